"""Everything of a tuning with a guarantee that may look at the learning rows.

Candidates are tuned under the model's bounds made safer by a margin, counted in standard errors.
The first has the largest margin that any rule reaches: where TPR and FPR pull in opposite
directions, this is the rule that balances them. The next ones give up margin for a smaller
selective risk. Losses are smoothed first, so that one wrong row does not bend a line.

Losses are smoothed by ridge logistic regression on the ranks of the scores, a guess of a share. It
only helps to learn: which rules are tried, and which of the proven ones is taken. No promise rests
on it being right.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.models import RejectionModel
from demur.core.program import Number
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.errors import InfeasibleError
from demur.tuning.prepared import Prepared, prepare
from demur.tuning.result import Directions, Exact, Grid, Shape
from demur.tuning.tune import find_rule, tune

_MOST_ROWS = 50_000
_RIDGE = 1.0
_STEPS = 30


@dataclass(frozen=True, slots=True, eq=False)
class RankLogistic:
    """The share of something among rows with given scores.

    Each score is replaced by the normal quantile of its rank, so that units, outliers and any
    rescaling of a score do not matter; squares and the product of two scores bend the fit.
    """

    sorted_scores: tuple[FloatArray, ...]
    weights: FloatArray

    @classmethod
    def fit(cls, scores: FloatArray, shares: FloatArray) -> RankLogistic:
        """Fit shares in [0, 1] of rows of scores, shape (n, k)."""
        rows = spread_rows(len(scores))
        scores, shares = scores[rows], shares[rows]
        columns = tuple(np.sort(column) for column in scores.T)
        features = _features(scores, columns)
        ridge = np.full(features.shape[1], _RIDGE)
        ridge[0] = 1e-3
        least = 0.5 / len(shares)
        mean = min(max(float(shares.mean()), least), 1 - least)
        weights = np.zeros(features.shape[1])
        weights[0] = math.log(mean / (1 - mean))
        # Newton's steps, halved where they overshoot; the ridge keeps them bounded where a score
        # separates the rows.
        height = _penalised(features, shares, ridge, weights)
        for _ in range(_STEPS):
            fitted = logistic(features @ weights)
            curvature = np.maximum(fitted * (1 - fitted), 1e-9)
            slope = features.T @ (shares - fitted) - ridge * weights
            hessian = (features * curvature[:, None]).T @ features + np.diag(ridge)
            step = np.linalg.solve(hessian, slope)
            higher = _penalised(features, shares, ridge, weights + step)
            while higher < height and np.abs(step).max() > 1e-7:
                step = step / 2
                higher = _penalised(features, shares, ridge, weights + step)
            weights, height = weights + step, higher
            if np.abs(step).max() < 1e-7:
                break
        return cls(columns, weights)

    def predict(self, scores: FloatArray) -> FloatArray:
        """Return the share at each row."""
        return logistic(_features(scores, self.sorted_scores) @ self.weights)


def _penalised(
    features: FloatArray, shares: FloatArray, ridge: FloatArray, weights: FloatArray
) -> float:
    """Return the log likelihood of shares, less the ridge."""
    values = features @ weights
    likelihood = shares @ values - np.logaddexp(0, values).sum()
    return float(likelihood - (ridge * weights**2).sum() / 2)


def spread_rows(count: int) -> IntArray:
    """Return all rows, or as many as a fit needs, evenly spread over the file."""
    if count <= _MOST_ROWS:
        return np.arange(count)
    return np.linspace(0, count - 1, _MOST_ROWS).astype(np.int64)


def _features(scores: FloatArray, columns: tuple[FloatArray, ...]) -> FloatArray:
    from scipy.special import ndtri

    normal = []
    for column, known in zip(scores.T, columns, strict=True):
        rank = np.searchsorted(known, column, "left") + np.searchsorted(known, column, "right")
        normal.append(ndtri((rank / 2 + 0.25) / (len(known) + 0.5)))
    products = [a * b for i, a in enumerate(normal) for b in normal[:i]]
    squares = [one**2 - 1 for one in normal]
    return np.column_stack([np.ones(len(scores)), *normal, *squares, *products])


def logistic(values: FloatArray) -> FloatArray:
    """Return the share that log odds stand for."""
    from scipy.special import expit

    return np.asarray(expit(values))


SMALLEST_MARGIN = -3.0
_BISECTIONS = 6
# Losses in this many steps: exact searches are faster on small whole numbers.
_LOSS_STEPS = 1024

Safer = Callable[[float], RejectionModel | None]
"""The bounds with a margin; None if no counts could be that good."""


@dataclass(frozen=True, slots=True)
class Learner:
    """The learning rows, sorted once for all candidates."""

    rows: Sample
    ready: Prepared
    """With smoothed losses."""
    directions: Directions | None
    search: Exact | Grid | None
    shape: Shape = "half-plane"

    @classmethod
    def of(
        cls,
        rows: Sample,
        model: RejectionModel,
        directions: Directions | None,
        search: Exact | Grid | None,
        max_loss: Number | None = None,
        shape: Shape = "half-plane",
    ) -> Learner:
        """Prepare the learning rows for a model."""
        ood = "worst" if model.every_set else "pooled"
        ready = prepare(_smoothed(rows, max_loss), ood=ood)  # type: ignore[arg-type]
        return cls(rows, ready, directions, search, shape)

    def rule(self, model: RejectionModel) -> Rule:
        """Return the rule tuned on the learning rows."""
        found = self.at(model)
        if found is not None:
            return found
        try:
            known = self._known(model)
            return tune(self.ready, known, **self._how).rule
        except InfeasibleError as error:
            raise InfeasibleError(
                f"{error} (on the {self.rows.n_id} ID and {self.rows.n_ood} OOD rows set aside "
                "for learning)",
                model=error.model,
                attainable=error.attainable,
            ) from None

    def at(self, model: RejectionModel | None) -> Rule | None:
        """Return the rule tuned under bounds, None if there is none."""
        if model is None:
            return None
        known = self._known(model)
        return find_rule(self.ready, known, **self._how)

    @property
    def _how(self) -> dict[str, Any]:
        return {"directions": self.directions, "search": self.search, "shape": self.shape}

    def _known(self, model: RejectionModel) -> RejectionModel:
        """Return the bounds that the learning rows can tell of; the tests are of all bounds."""
        of_sets = self.rows.ood_sets
        unknown = [
            bound
            for bound in model.bounds
            if (bound.group is not None and bound.group not in self.rows.groups)
            or (bound.is_of_one_set and not _length(of_sets.get(str(bound.ood_set))))
        ]
        for bound in unknown:
            model = model.without(bound)
        return model

    def safest(self, safer: Safer, plain: Rule, largest: float) -> tuple[float, Rule]:
        """Return the rule with the largest margin that any reaches, or else `plain`."""
        rule = self.at(safer(largest))
        if rule is not None:
            return largest, rule
        # Less margin is easier.
        low, high, best = SMALLEST_MARGIN, largest, plain
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            rule = self.at(safer(middle))
            if rule is None:
                high = middle
            else:
                low, best = middle, rule
        return low, best

    def ladder(
        self, safer: Safer, plain: Rule, margins: Sequence[float]
    ) -> list[tuple[float, Rule]]:
        """Return margins and different rules, safest first; `margins` are falling."""
        margin, rule = self.safest(safer, plain, margins[0])
        found = [(margin, rule)]
        for bolder in margins:
            # Two rules of nearly the same margin are nearly the same.
            if bolder > found[-1][0] - 0.1:
                continue
            rule_there = self.at(safer(bolder))
            if rule_there is not None and all(_differ(rule_there, known) for _, known in found):
                found.append((bolder, rule_there))
        return found

    def combined(self, rule: Rule) -> FloatArray:
        """Return the combined score of the ID rows to learn on, sorted."""
        return np.sort(combined_doubt(rule, self.rows)[0])


def combined_doubt(rule: Rule, rows: Sample) -> tuple[FloatArray, FloatArray]:
    """Return what a rule compares with its threshold, of the ID rows and of the OOD rows.

    Rows that it never accepts, such as those with an infinite score, have an infinite doubt.
    """
    matched = rule.on(rows.columns)
    own, foreign = (matched.combine(scores) for scores in (rows.id_scores, rows.ood_scores))
    # Sums beyond float64 may be no number: these are not accepted, either.
    return np.nan_to_num(own, nan=np.inf, posinf=np.inf, neginf=-np.inf), foreign


def _differ(one: Rule, other: Rule) -> bool:
    # Cards and names are the same for all rules of one sample.
    return one != other


def _smoothed(rows: Sample, max_loss: Number | None) -> Sample:
    """Return the rows with losses that are a smooth function of the scores."""
    largest = 1.0 if max_loss is None else float(max_loss)
    fitted = RankLogistic.fit(rows.id_doubts, rows.id_loss / largest).predict(rows.id_doubts)
    losses = np.round(fitted * _LOSS_STEPS) * (largest / _LOSS_STEPS)
    return Sample(
        rows.id_scores,
        losses,
        {name: rows.ood_scores[part] for name, part in rows.ood_sets.items()},
        score_names=rows.score_names,
        confidence=rows.columns.confidence,
        id_group=rows.id_group,
    )


def _length(rows: slice | None) -> int:
    return 0 if rows is None else rows.stop - rows.start
