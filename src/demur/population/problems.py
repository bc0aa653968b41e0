"""Problems whose distributions are known, and what solving one hands back.

A problem is a probability table over finitely many inputs; solved, it has c(x) with its threshold,
and every rate of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur import _arrays
from demur._arrays import BoolArray, FloatArray, IntArray
from demur._kernels.engines import midway
from demur.core.columns import combine
from demur.core.models import RejectionModel
from demur.core.rates import OperatingPoint
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.errors import InvalidInputError

# Tables printed with ten digits pass; a forgotten row or a wrong normalisation does not.
_SUM_TOLERANCE = 1e-9
# A grid that misses more than this share of a density does not describe it.
_GRID_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True, eq=False)
class FiniteProblem:
    """Known ID and OOD distributions over n inputs, and a loss.

    Parameters
    ----------
    p_id
        Shape (n, classes): the joint table p_I(x, y). Must add up to 1 within 1e-9; the rest
        of the rounding error is divided away.
    p_ood
        Shape (n,): p_O(x), adding up to 1 likewise.
    loss
        Cost matrix, true class x predicted class; the 0/1 loss by default.

    Examples
    --------
    >>> problem = FiniteProblem(p_id=[[0.4, 0.1], [0.2, 0.3], [0, 0]], p_ood=[0.1, 0.4, 0.5])
    >>> problem.bayes_classifier()
    array([0, 1, 0])
    >>> problem.conditional_risk(), problem.likelihood_ratio()
    (array([0.2, 0.4, 0. ]), array([0.2, 0.8, inf]))
    """

    p_id: FloatArray
    p_ood: FloatArray
    loss: FloatArray = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        p_id = _mass_table("p_id", self.p_id)
        p_ood = _arrays.nonnegative_vector("p_ood", self.p_ood, length=len(p_id))
        classes = p_id.shape[1]
        loss = 1 - np.eye(classes) if self.loss is None else self.loss
        loss = _arrays.cost_matrix("loss", loss)
        if len(loss) != classes:
            raise InvalidInputError(f"loss is for {len(loss)} classes, p_id has {classes} columns")
        for name, value in (("p_id", _sum_to_one("p_id", p_id)), ("loss", loss)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "p_ood", _sum_to_one("p_ood", p_ood))
        for array in (self.p_id, self.p_ood, self.loss):
            array.flags.writeable = False

    @classmethod
    def from_densities(
        cls, id_density: Any, ood_density: Any, *, width: Any, loss: Any = None
    ) -> FiniteProblem:
        """Discretise a one-dimensional continuous problem into cells.

        Density times width is the mass of a cell. The masses are divided by their sum, which
        must be 1 within 0.1 %: a coarse grid or one that cuts the tails off is refused.

        Parameters
        ----------
        id_density
            Shape (n, classes): p_I(x, y) at the centre of each cell.
        ood_density
            Shape (n,): p_O(x) at the same places.
        width
            Cell width, one number or shape (n,).

        Examples
        --------
        >>> x = (np.arange(100) + 0.5) / 100
        >>> triangle = FiniteProblem.from_densities(
        ...     np.column_stack([x, 1 - x]), np.ones(100), width=0.01)
        >>> round(float(triangle.p_marginal @ triangle.conditional_risk()), 12)
        0.25
        """
        density = _mass_table("id_density", id_density)
        ood = _arrays.nonnegative_vector("ood_density", ood_density, length=len(density))
        cells = _arrays.nonnegative_vector("width", np.broadcast_to(width, ood.shape))
        masses = density * cells[:, None], ood * cells
        for name, mass in zip(("id_density", "ood_density"), masses, strict=True):
            if not abs(mass.sum() - 1) <= _GRID_TOLERANCE:
                raise InvalidInputError(
                    f"{name} times width adds up to {mass.sum():.6g}, not 1: "
                    "the grid is too narrow or too coarse"
                )
        return cls(masses[0] / masses[0].sum(), masses[1] / masses[1].sum(), loss)

    @property
    def n_inputs(self) -> int:
        """Number of inputs."""
        return len(self.p_ood)

    @property
    def p_marginal(self) -> FloatArray:
        """p_I(x), the ID probability of each input whatever its class."""
        return np.asarray(self.p_id.sum(axis=1))

    def bayes_classifier(self) -> IntArray:
        """Return h_B(x), the class of least expected loss; the first one where p_I(x) = 0."""
        return np.asarray((self.p_id @ self.loss).argmin(axis=1), dtype=np.int64)

    def conditional_risk(self, classifier: Any = None) -> FloatArray:
        """Return r(x), the expected loss at each input; 0 where p_I(x) = 0.

        Parameters
        ----------
        classifier
            Shape (n,): the class predicted at each input; the Bayes classifier by default.
        """
        chosen = self.bayes_classifier() if classifier is None else self._classes(classifier)
        joint_loss = (self.p_id @ self.loss)[np.arange(self.n_inputs), chosen]
        marginal = self.p_marginal
        risk = np.zeros(self.n_inputs)
        return np.asarray(np.divide(joint_loss, marginal, out=risk, where=marginal > 0))

    def likelihood_ratio(self) -> FloatArray:
        """Return g(x) = p_O(x) / p_I(x); +inf where p_I(x) = 0, also if p_O(x) = 0 too.

        An input with p_I(x) = 0 brings no ID mass, so that no rule ever gains by accepting it.
        """
        marginal = self.p_marginal
        ratio = np.full(self.n_inputs, np.inf)
        with np.errstate(over="ignore"):
            return np.asarray(np.divide(self.p_ood, marginal, out=ratio, where=marginal > 0))

    def scores(self, classifier: Any = None) -> FloatArray:
        """Return the optimal pair of scores (r, g), shape (n, 2)."""
        return np.column_stack([self.conditional_risk(classifier), self.likelihood_ratio()])

    def as_sample(self, classifier: Any = None) -> Sample:
        """Return the problem as a weighted sample that `demur.tune` and the metrics understand.

        Scores are (r, g), the loss is r, the weights are p_I and p_O.

        Examples
        --------
        >>> problem = FiniteProblem(p_id=[[0.4, 0.1], [0.2, 0.3]], p_ood=[0.2, 0.8])
        >>> problem.as_sample()
        Sample(n_id=2, n_ood=2, scores=2)
        """
        scores = self.scores(classifier)
        return Sample(
            id_scores=scores,
            id_loss=scores[:, 0],
            ood_scores=scores,
            id_weight=self.p_marginal,
            ood_weight=self.p_ood,
            score_names=("r", "g"),
        )

    def _classes(self, classifier: Any) -> IntArray:
        given = _arrays.real_vector("classifier", classifier, length=self.n_inputs)
        bad = np.flatnonzero(~np.isin(given, np.arange(self.p_id.shape[1])))
        if len(bad):
            raise InvalidInputError(
                f"classifier[{bad[0]}] is {given[bad[0]]}, "
                f"but there are classes 0 to {self.p_id.shape[1] - 1}"
            )
        return given.astype(np.int64)

    def __repr__(self) -> str:
        return f"FiniteProblem(n_inputs={self.n_inputs}, classes={self.p_id.shape[1]})"


def _mass_table(name: str, values: Any) -> FloatArray:
    array = np.asarray(values)
    if array.ndim != 2 or 0 in array.shape:
        raise InvalidInputError(f"{name} must have shape (n, classes), got {array.shape}")
    flat = _arrays.nonnegative_vector(name, array.reshape(-1))
    return flat.reshape(array.shape)


def _sum_to_one(name: str, table: FloatArray) -> FloatArray:
    total = table.sum()
    if not abs(total - 1) <= _SUM_TOLERANCE:
        raise InvalidInputError(f"{name} must add up to 1, adds up to {total:.12g}")
    return np.asarray(table / total)


@dataclass(frozen=True, slots=True, eq=False)
class PopulationOptimum:
    """An optimal selective function c(x) of a known problem, and what it attains.

    c is 1 where ``r + mu*g < threshold``, 0 where it is greater, and tau(x) on the boundary.

    Examples
    --------
    >>> import demur as dm
    >>> from demur.population import CORRECTED, optimum
    >>> found = optimum(CORRECTED.discretise(2000), dm.TprFprModel(0.7, 0.2))
    >>> round(found.point.selective_risk, 4), round(found.mu, 3)
    (0.1259, 0.043)
    """

    problem: FiniteProblem
    model: RejectionModel
    accept_probability: FloatArray
    """c(x) of each input, shape (n,)."""
    mu: float
    """Weight of the likelihood ratio; inf means that it alone counts (the score is g)."""
    threshold: float
    """lambda in the units of ``r + mu*g`` (of g when mu is inf)."""
    boundary: BoolArray
    """Inputs on the threshold, whose c(x) is tau(x); shape (n,)."""
    rule: Rule
    """The same rule with a unit direction. It accepts the whole boundary (tau = 1)."""
    point: OperatingPoint
    """Rates of c, masses as probabilities."""

    def __post_init__(self) -> None:
        self.accept_probability.flags.writeable = False
        self.boundary.flags.writeable = False

    @property
    def tau(self) -> FloatArray:
        """tau(x) of the inputs on the boundary, in their order."""
        return self.accept_probability[self.boundary]


def direction(mu: float) -> tuple[float, float]:
    """Return the unit vector along (1, mu)."""
    if math.isinf(mu):
        return 0.0, 1.0
    length = math.hypot(1.0, mu)
    return 1 / length, mu / length


def combined_score(scores: FloatArray, mu: float) -> FloatArray:
    """Return r + mu*g, or g when mu is inf; +inf wherever g is."""
    ratio = scores[:, 1]
    if math.isinf(mu):
        return np.array(ratio)
    # With mu = 0 an infinite ratio would be NaN.
    return np.where(np.isfinite(ratio), combine((1.0, mu), scores), np.inf)


def assemble(
    problem: FiniteProblem, model: RejectionModel, scores: FloatArray, mu: float, c: FloatArray
) -> PopulationOptimum:
    """Put an optimum together from mu and c, some of which must be positive."""
    values = combined_score(scores, mu)
    last, first = _around_threshold(values, c)
    # Accepted and rejected values overlap in the boundary, one value up to rounding.
    boundary = np.isfinite(values) & (values >= first) & (values <= last)
    unit = direction(mu)
    on_rule = _around_threshold(Rule(unit, 0.0).combine(scores), np.where(boundary, 1.0, c))
    tied = bool(boundary.any())
    return PopulationOptimum(
        problem=problem,
        model=model,
        accept_probability=c,
        mu=mu,
        threshold=(last + first) / 2 if tied else float(midway(last, first)),
        boundary=boundary,
        rule=Rule(unit, on_rule[0] if tied else float(midway(*on_rule)), score_names=("r", "g")),
        point=operating_point(problem, model, scores[:, 0], c),
    )


def operating_point(
    problem: FiniteProblem, model: RejectionModel, risk: FloatArray, c: FloatArray
) -> OperatingPoint:
    """Return every rate of c."""
    marginal = problem.p_marginal
    tpr, fpr, loss = (float(p @ c) for p in (marginal, problem.p_ood, marginal * risk))
    prior = None if model.ood_prior is None else float(model.ood_prior)
    cost = None if model.cost is None else model.cost.at(tpr, fpr, loss, prior or 0.0)
    return OperatingPoint(
        tpr=tpr,
        fpr=fpr,
        selective_risk=float(quotient(loss, tpr)),
        accepted_id=tpr,
        accepted_ood=fpr,
        accepted_loss=loss,
        ood_prior=prior,
        precision=None if prior is None else float(precision(tpr, fpr, prior)),
        expected_cost=cost,
        fpr_by_set={"ood": fpr},
    )


def _around_threshold(values: FloatArray, c: FloatArray) -> tuple[float, float]:
    """Return the last (partly) accepted and the first (partly) rejected value."""
    rejected = np.isfinite(values) & (c < 1)
    return float(values[c > 0].max()), float(values[rejected].min(initial=np.inf))


def quotient(part: FloatArray | float, whole: FloatArray | float) -> FloatArray:
    """Return part / whole, NaN where the whole is nothing."""
    undefined = np.full(np.shape(whole), np.nan)
    return np.asarray(np.divide(part, whole, out=undefined, where=np.asarray(whole) > 0))


def precision(tpr: FloatArray | float, fpr: FloatArray | float, ood_prior: float) -> FloatArray:
    """Return ``(1-pi) TPR / ((1-pi) TPR + pi FPR)``, NaN where nothing is accepted."""
    accepted_id = (1 - ood_prior) * tpr
    return quotient(accepted_id, accepted_id + ood_prior * fpr)
