"""What is foreign, learned from live inputs of which nobody knows which they are.

Live inputs are a mixture of ID and OOD. Telling ID rows from live ones with the odds
``a + exp(f(x))``, a >= 0, takes the mixture apart: with rho live rows an ID row, ``exp(f)`` is
rho times the share of OOD times the ratio g, and a is rho times the share of ID.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from demur import _arrays
from demur._arrays import FloatArray, seeded
from demur.core.card import Card
from demur.core.columns import ScoreColumns
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.guarantees.splits import Seed
from demur.learn.doubts import RATIO, Learned
from demur.learn.fitting import link
from demur.learn.functions import Polyline, PolylineSum, ScoreFunction

_RIDGE = 1.0
_FEWEST = 50
_STEPS = 500
_LARGEST_LOG = 30.0


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Traffic:
    """The ratio g learned from live inputs, and the share of OOD inputs among them.

    Examples
    --------
    >>> import demur as dm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> known = rng.normal(0, 1, (300, 2))
    >>> live = np.vstack([rng.normal(0, 1, (240, 2)), rng.normal(4, 1, (60, 2))])
    >>> found = dm.learn.from_traffic(known, live)
    >>> found.low < 0.2 < found.high
    True
    """

    learned: Learned
    """`transform` gives g, up to a factor that no tuned rule depends on."""
    ood_share: float
    low: float
    high: float
    """The interval of the share: by the likelihood, so it rests on log g being linear."""
    level: float
    id_ratio: FloatArray
    """g of the ID rows, each from a fit without its fold."""
    live_ratio: FloatArray
    live_ood: FloatArray
    """How probably each live row is OOD, from a fit without its fold."""

    def sample(self, id_scores: Any, id_loss: Any, live_scores: Any) -> Sample:
        """Return a sample to tune on: the scores, and g as the last; live rows stand for OOD.

        A live row weighs as much as it is probably OOD, so that the FPR of a rule is estimated
        from rows that nobody has labelled. The estimate is as good as the model of the odds.

        Parameters
        ----------
        id_scores, live_scores
            A score of the risk, such as 1 - max softmax, of the rows g was learned from.
        """
        own = _arrays.real_vector("id_scores", id_scores, length=len(self.id_ratio))
        live = _arrays.real_vector("live_scores", live_scores, length=len(self.live_ratio))
        return Sample(
            np.column_stack([own, self.id_ratio]),
            id_loss,
            {"live": np.column_stack([live, self.live_ratio])},
            ood_weight={"live": self.live_ood},
            score_names=("risk", RATIO),
        )

    def __repr__(self) -> str:
        return (
            f"Traffic(share of OOD {self.ood_share:.3f}, {self.level:.0%} interval "
            f"{self.low:.3f} to {self.high:.3f})"
        )


class _Fit(NamedTuple):
    share_of_id: float
    """a."""
    weights: FloatArray
    """Of 1 and the standardised features."""
    value: float


def from_traffic(
    id_features: Any,
    live_features: Any,
    *,
    names: Sequence[str] | None = None,
    level: float = 0.95,
    folds: int = 5,
    rng: Seed = 0,
) -> Traffic:
    """Learn what is foreign from live inputs without labels (after POSCOD).

    Parameters
    ----------
    id_features
        Shape (n, d): scores or features of rows known to be ID, in which log g is about linear.
    live_features
        The same of inputs in use, of which some are OOD and nobody knows which.
    names
        Names of the columns, to read live frames by.
    level
        Of the interval of the share of OOD inputs.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> own, live = rng.normal(size=(2000, 1)), rng.normal(size=(2000, 1))
    >>> live[:600] += 3
    >>> found = from_traffic(own, live)
    >>> found.low < 0.3 < found.high
    True
    """
    own, live = (
        _arrays.score_matrix(name, values)
        for name, values in (("id_features", id_features), ("live_features", live_features))
    )
    if own.shape[1] != live.shape[1]:
        raise InvalidInputError(
            f"id_features has {own.shape[1]} columns, live_features {live.shape[1]}"
        )
    for name, rows in (("id_features", own), ("live_features", live)):
        _arrays.refuse(name, rows, np.isinf(rows).any(axis=1), "is infinite")
        if len(rows) < max(_FEWEST, 2 * folds):
            raise InvalidInputError(
                f"{name} has {len(rows)} rows: a mixture is taken apart by {_FEWEST} at least"
            )
    if not 0.5 <= level < 1:
        raise InvalidInputError(f"level must be in [0.5, 1), got {level!r}")
    columns = ScoreColumns.of(names, count=own.shape[1])
    mixture = _Mixture.of(own, live)
    fitted = mixture.fit()
    share = 1 - fitted.share_of_id / mixture.live_per_id
    low, high = mixture.interval(fitted, level)
    ratios, ood = _out_of_fold(own, live, folds, rng)
    told = {"method": "traffic", "rows": {"id": len(own), "live": len(live)}}
    function = mixture.function(fitted)
    learned = Learned(columns, {RATIO: function}, Card(told))
    return Traffic(learned, share, low, high, level, *ratios, ood)


@dataclass(frozen=True, slots=True, eq=False)
class _Mixture:
    """ID and live rows, standardised, and the likelihood of which is which."""

    rows: FloatArray
    """With a first column of ones, ID rows before live ones."""
    live: FloatArray
    """1 for a live row."""
    centre: FloatArray
    scale: FloatArray
    ends: tuple[FloatArray, FloatArray]

    @classmethod
    def of(cls, own: FloatArray, live: FloatArray) -> _Mixture:
        everything = np.concatenate([own, live])
        centre, scale = everything.mean(axis=0), everything.std(axis=0)
        scale[scale == 0] = 1.0
        rows = np.column_stack([np.ones(len(everything)), (everything - centre) / scale])
        told = np.repeat([0.0, 1.0], [len(own), len(live)])
        return cls(rows, told, centre, scale, (everything.min(axis=0), everything.max(axis=0)))

    @property
    def live_per_id(self) -> float:
        """Rho."""
        return float(self.live.sum() / (1 - self.live).sum())

    def fit(self) -> _Fit:
        """Maximise the likelihood, from several shares of OOD to begin with."""
        shares = (0.1, 0.5, 0.9)
        starts = [(self.live_per_id * (1 - share), share) for share in shares]
        found = [self._descend(a, self._start(share), free=True) for a, share in starts]
        return min(found, key=lambda one: one.value)

    def interval(self, best: _Fit, level: float) -> tuple[float, float]:
        """Return the shares of OOD whose likelihood is not too small beside the largest."""
        from scipy.stats import chi2

        limit = best.value + float(chi2.ppf(level, 1)) / 2
        ends = []
        for far in (0.0, self.live_per_id):
            near, fit = best.share_of_id, best
            last = far
            if self._descend(far, fit.weights, free=False).value <= limit:
                ends.append(far)
                continue
            for _ in range(30):
                middle = (near + last) / 2
                tried = self._descend(middle, fit.weights, free=False)
                near, last = (middle, last) if tried.value <= limit else (near, middle)
                if abs(near - last) < 1e-4 * self.live_per_id:
                    break
            ends.append(last)
        low, high = sorted(1 - end / self.live_per_id for end in ends)
        return max(low, 0.0), min(high, 1.0)

    def function(self, fitted: _Fit) -> ScoreFunction:
        """Return g as a function of the features as they are."""
        slopes = fitted.weights[1:] / self.scale
        parts = []
        for slope, centre, low, high in zip(slopes, self.centre, *self.ends, strict=True):
            ends = (float(low), float(high)) if high > low else (float(low),)
            parts.append(Polyline(ends, tuple(float(slope * (end - centre)) for end in ends)))
        total = PolylineSum(float(fitted.weights[0]), tuple(parts))
        share = 1 - fitted.share_of_id / self.live_per_id
        # Without any OOD there is no ratio either; what it is then does not matter.
        factor = 1 / (self.live_per_id * max(share, 1e-6))
        meaning = link(self.rows @ fitted.weights, lambda z: factor * np.exp(z))
        return ScoreFunction(total, meaning)

    def _start(self, share: float) -> FloatArray:
        weights = np.zeros(self.rows.shape[1])
        weights[0] = np.log(self.live_per_id * share)
        return weights

    def _descend(self, share_of_id: float, weights: FloatArray, *, free: bool) -> _Fit:
        from scipy.optimize import minimize

        def judged(packed: FloatArray) -> tuple[float, FloatArray]:
            a, w = packed[0], packed[1:]
            odds = np.exp(np.clip(self.rows @ w, -_LARGEST_LOG, _LARGEST_LOG))
            mixed = np.maximum(a + odds, 1e-300)
            value = np.log1p(mixed).sum() - self.live @ np.log(mixed)
            by_mixed = 1 / (1 + mixed) - self.live / mixed
            slope = self.rows.T @ (by_mixed * odds)
            slope[1:] += _RIDGE * w[1:]
            by_a = by_mixed.sum() if free else 0.0
            penalty = _RIDGE * float(w[1:] @ w[1:]) / 2
            return float(value) + penalty, np.concatenate([[by_a], slope])

        bounds = [(0.0, self.live_per_id) if free else (share_of_id, share_of_id)]
        found = minimize(
            judged,
            np.concatenate([[share_of_id], weights]),
            jac=True,
            method="L-BFGS-B",
            bounds=bounds + [(None, None)] * len(weights),
            options={"maxiter": _STEPS},
        )
        return _Fit(float(found.x[0]), found.x[1:], float(found.fun))


def _out_of_fold(
    own: FloatArray, live: FloatArray, folds: int, rng: Seed
) -> tuple[tuple[FloatArray, FloatArray], FloatArray]:
    """Return g of all rows, and how probably live ones are OOD, each from a fit without them."""
    if isinstance(folds, bool) or not isinstance(folds, int) or folds < 2:
        raise InvalidInputError(f"folds must be a whole number of at least 2, got {folds!r}")
    generator = seeded(rng)
    numbers = [generator.permutation(np.arange(len(rows)) % folds) for rows in (own, live)]
    ratios, ood = (np.empty(len(own)), np.empty(len(live))), np.empty(len(live))
    for fold in range(folds):
        here = [number == fold for number in numbers]
        mixture = _Mixture.of(own[~here[0]], live[~here[1]])
        fitted = mixture.fit()
        function = mixture.function(fitted)
        for ratio, rows, mine in zip(ratios, (own, live), here, strict=True):
            ratio[mine] = function(rows[mine])
        share = 1 - fitted.share_of_id / mixture.live_per_id
        weighed = share * ratios[1][here[1]]
        ood[here[1]] = weighed / (weighed + (1 - share) + 1e-12)
    return ratios, ood
