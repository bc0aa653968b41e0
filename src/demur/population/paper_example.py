"""The paper's synthetic example, and population values of its methods A to D.

Three Gaussian classes lie on the line, and Gaussian OOD data.

The text prints OOD N(3, variance 0.2); its Table 1 needs mean 2. With mean 3 the conditional
risk alone (method C) has AUROC 0.37 instead of the printed 0.76, with mean 2 all rows of the
single-score methods fit. Both settings are here: `CORRECTED` and `AS_PRINTED`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from demur import _arrays
from demur._arrays import FloatArray, takes
from demur.core.models import Bound, RejectionModel
from demur.core.sample import Sample
from demur.errors import InfeasibleError, InvalidInputError
from demur.population.problems import FiniteProblem, PopulationOptimum
from demur.population.solve import optimum
from demur.population.thresholds import best_threshold, score_curve, threshold_curve

_PRIORS = np.array([0.3, 0.3, 0.4])
_MEANS = np.array([-1.0, 1.0, 3.0])
# Ten standard deviations beyond the outermost means: what is cut off is below 1e-22.
_RANGE = (-11.0, 13.0)


@dataclass(frozen=True, slots=True)
class GaussianExample:
    """ID classes 0.3 N(-1, 1), 0.3 N(1, 1), 0.4 N(3, 1), OOD N(`ood_mean`, `ood_variance`).

    Examples
    --------
    >>> CORRECTED.likelihood_ratio([2.0]).round(3), AS_PRINTED.likelihood_ratio([3.0]).round(3)
    (array([5.226]), array([5.074]))
    """

    ood_mean: float = 2.0
    ood_variance: float = 0.2
    ood_prior: float = 0.25

    def __post_init__(self) -> None:
        for name in ("ood_mean", "ood_variance", "ood_prior"):
            _arrays.check_kind(name, getattr(self, name), _arrays.NUMBER)
        if not np.isfinite(self.ood_mean):
            raise InvalidInputError(f"ood_mean must be finite, got {self.ood_mean}")
        if not 0 < self.ood_variance < np.inf:
            raise InvalidInputError(f"ood_variance must be positive, got {self.ood_variance}")
        if not 0 <= self.ood_prior < 1:
            raise InvalidInputError(f"ood_prior must be in [0, 1), got {self.ood_prior}")

    def id_density(self, x: Any) -> FloatArray:
        """Return p_I(x, y), shape (n, 3)."""
        return np.exp(_log_joint(_arrays.real_vector("x", x)))

    def ood_density(self, x: Any) -> FloatArray:
        """Return p_O(x), shape (n,)."""
        return np.exp(self._log_ood(_arrays.real_vector("x", x)))

    def conditional_risk(self, x: Any) -> FloatArray:
        """Return r_B(x), the error of the Bayes classifier at x."""
        joint = _log_joint(_arrays.real_vector("x", x))
        posterior = np.exp(joint - joint.max(axis=1, keepdims=True))
        total = posterior.sum(axis=1)
        # The largest term is exactly 1, so that this adds up the other ones.
        return np.asarray((total - 1) / total)

    def likelihood_ratio(self, x: Any) -> FloatArray:
        """Return g(x) = p_O(x) / p_I(x)."""
        points = _arrays.real_vector("x", x)
        joint = _log_joint(points)
        return np.asarray(np.exp(self._log_ood(points) - np.logaddexp.reduce(joint, axis=1)))

    def discretise(self, cells: int = 20_000) -> FiniteProblem:
        """Return the example on `cells` equal cells over [-11, 13].

        With the default, rates, risks and areas are within 1e-4 of the continuous example.
        """
        _arrays.check_kind("cells", cells, _arrays.WHOLE)
        if cells < 100:
            raise InvalidInputError(f"cells must be at least 100, got {cells}")
        low, high = _RANGE
        width = (high - low) / cells
        x = low + (np.arange(cells) + 0.5) * width
        return FiniteProblem.from_densities(self.id_density(x), self.ood_density(x), width=width)

    def sample(self, n: int, rng: np.random.Generator | int | None = None) -> Sample:
        """Draw n inputs, of which the nearest number to ``ood_prior * n`` are OOD.

        The scores are the true (r_B, g), the loss is the 0/1 loss of the Bayes classifier.

        Examples
        --------
        >>> CORRECTED.sample(1000, 0)
        Sample(n_id=750, n_ood=250, scores=2)
        """
        _arrays.check_kind("n", n, _arrays.WHOLE)
        generator = _arrays.seeded(rng)
        n_ood = round(self.ood_prior * n)
        y = generator.choice(len(_PRIORS), size=n - n_ood, p=_PRIORS)
        x_id = generator.normal(_MEANS[y], 1.0)
        x_ood = generator.normal(self.ood_mean, np.sqrt(self.ood_variance), size=n_ood)
        return Sample(
            id_scores=self._scores(x_id),
            id_loss=(_log_joint(x_id).argmax(axis=1) != y).astype(np.float64),
            ood_scores=self._scores(x_ood),
            score_names=("r", "g"),
        )

    def _scores(self, x: FloatArray) -> FloatArray:
        return np.column_stack([self.conditional_risk(x), self.likelihood_ratio(x)])

    def _log_ood(self, x: FloatArray) -> FloatArray:
        squared = (x - self.ood_mean) ** 2 / self.ood_variance
        return np.asarray(-squared / 2 - np.log(2 * np.pi * self.ood_variance) / 2)


CORRECTED = GaussianExample()
"""OOD mean 2, the setting that fits the paper's Table 1."""
AS_PRINTED = GaussianExample(ood_mean=3.0)
"""OOD mean 3, the setting of the paper's text."""


def _log_joint(x: FloatArray) -> FloatArray:
    return np.asarray(np.log(_PRIORS) - (x[:, None] - _MEANS) ** 2 / 2 - np.log(2 * np.pi) / 2)


METHODS: Mapping[str, float | None] = MappingProxyType(
    {"A": math.inf, "B": 0.2, "C": 0.0, "D": None}
)
"""mu of the paper's methods A(inf), B(0.2), C(0); None is D, every mu >= 0."""

# Where the envelope over mu is taken for D; single-score methods lie between.
_MU_GRID = (0.0, *np.geomspace(1e-4, 1e3, 57), math.inf)


@dataclass(frozen=True, slots=True)
class PopulationValues:
    """A row of the paper's Table 1 for known distributions; NaN means unable.

    Examples
    --------
    >>> import demur as dm
    >>> from demur.population import CORRECTED, METHODS, population_values
    >>> asked = {"tpr_fpr": dm.TprFprModel(0.7, 0.2),
    ...          "precision_recall": dm.PrecisionRecallModel(0.9, 0.7, ood_prior=0.25)}
    >>> values = population_values(CORRECTED.discretise(500), METHODS["C"], **asked)
    >>> round(values.auroc, 2), values.risk_at_tpr_fpr  # unable
    (0.76, nan)
    """

    risk_at_tpr_fpr: float
    risk_at_precision_recall: float
    auroc: float
    aupr: float
    oscr_accepted: float
    """Area under correct / *accepted* ID (1 - selective risk) over FPR, as in the paper."""
    oscr_all: float
    """Area under correct and accepted / *all* ID over FPR, as elsewhere."""


@takes(problem=FiniteProblem, tpr_fpr=RejectionModel, precision_recall=RejectionModel)
def population_values(
    problem: FiniteProblem,
    mu: float | None,
    *,
    tpr_fpr: RejectionModel,
    precision_recall: RejectionModel,
) -> PopulationValues:
    """Return the metrics of the score ``r + mu*g``, or of all mu >= 0 together (mu None).

    For all mu together the ROC and precision-recall curves are those of g alone, which no
    rule exceeds; the OSCR areas are under the largest rate at equal FPR. Areas are trapezoids
    between thresholds; losses must be 0/1 for the OSCR areas to mean anything. AUPR uses the
    prior of `precision_recall`.

    Examples
    --------
    >>> from demur import PrecisionRecallModel, TprFprModel
    >>> from demur.population.paper_example import CORRECTED
    >>> values = population_values(CORRECTED.discretise(2000), METHODS["A"],
    ...     tpr_fpr=TprFprModel(0.7, 0.2), precision_recall=PrecisionRecallModel(0.9, 0.7, 0.25))
    >>> round(values.risk_at_tpr_fpr, 3), round(values.auroc, 3)
    (0.158, 0.878)
    """
    if precision_recall.ood_prior is None:
        raise InvalidInputError(f"precision_recall declares no ood_prior, got {precision_recall!r}")
    discriminator = threshold_curve(problem, math.inf if mu is None else mu)
    precision = discriminator.precision(float(precision_recall.ood_prior))
    per_accepted, per_all = _oscr_areas(problem, mu)
    return PopulationValues(
        risk_at_tpr_fpr=_risk(problem, tpr_fpr, mu),
        risk_at_precision_recall=_risk(problem, precision_recall, mu),
        auroc=_area(discriminator.fpr, discriminator.tpr),
        aupr=_area(discriminator.tpr, precision),
        oscr_accepted=per_accepted,
        oscr_all=per_all,
    )


@takes(problem=FiniteProblem)
def risk_coverage(
    problem: FiniteProblem, tpr: Any, *, max_fpr: float, mu: float | None = None
) -> FloatArray:
    """Return the lowest selective risk at each minimal TPR in `tpr`, FPR at most `max_fpr`.

    Parameters
    ----------
    mu
        Of the score ``r + mu*g``; None for the optimum over all rules.

    Returns
    -------
    FloatArray
        NaN where the bounds cannot be met.

    Examples
    --------
    >>> from demur.population.paper_example import CORRECTED
    >>> risk_coverage(CORRECTED.discretise(500), [0.4, 0.5, 0.6], max_fpr=0.2, mu=0).round(2)
    array([0.04, 0.07,  nan])
    """
    levels = _arrays.real_vector("tpr", tpr)
    most = Bound("fpr", at_most=max_fpr)
    models = [
        RejectionModel("selective_risk", (Bound("tpr", at_least=float(t)), most)) for t in levels
    ]
    return np.array([_risk(problem, model, mu) for model in models])


def _risk(problem: FiniteProblem, model: RejectionModel, mu: float | None) -> float:
    try:
        return _best(problem, model, mu).point.selective_risk
    except InfeasibleError:
        return math.nan


def _best(problem: FiniteProblem, model: RejectionModel, mu: float | None) -> PopulationOptimum:
    return optimum(problem, model) if mu is None else best_threshold(problem, model, mu=mu)


def _oscr_areas(problem: FiniteProblem, mu: float | None) -> tuple[float, float]:
    if mu is not None:
        curve = threshold_curve(problem, mu)
        return (
            _area(curve.fpr, 1 - curve.selective_risk),
            _area(curve.fpr, curve.tpr - curve.loss),
        )
    levels = np.unique(threshold_curve(problem, math.inf).fpr)
    best = np.max([_correct_among_accepted(problem, m, levels) for m in _MU_GRID], axis=0)
    # Correct and accepted is largest where 1 - r >= nu*g: thresholds of g / (1 - r).
    risk, ratio = problem.scores().T
    with np.errstate(divide="ignore", invalid="ignore"):
        values = np.where(np.isfinite(ratio), ratio / (1 - risk), np.inf)
    everywhere = score_curve(problem, values, risk)
    return _area(levels, best), _area(everywhere.fpr, everywhere.tpr - everywhere.loss)


def _correct_among_accepted(problem: FiniteProblem, mu: float, fpr: FloatArray) -> FloatArray:
    curve = threshold_curve(problem, mu)
    return np.interp(fpr, curve.fpr[1:], 1 - curve.selective_risk[1:])


def _area(x: FloatArray, y: FloatArray) -> float:
    """Return the area under a curve over [0, 1], flat before its first defined point."""
    defined = ~np.isnan(y)
    x, y = x[defined], y[defined]
    x, y = np.concatenate([[0.0], x, [1.0]]), np.concatenate([y[:1], y, y[-1:]])
    return float(np.trapezoid(y, x))
