"""What a user can choose for tuning, and what tuning hands back, also when bounds cannot be met.

To choose are the searches and the directions a rule may have: named sets of them, and grids of
angles. When a model's bounds are not attainable it is told what is: for each bound the best, the
others kept.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from demur._arrays import FloatArray
from demur.core.models import Bound, RejectionModel
from demur.core.points import Points
from demur.core.program import Program, Totals
from demur.core.rates import OperatingPoint, precision
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.wording import bound_text, formula, point_frame, point_text, whose
from demur.errors import InfeasibleError, InvalidInputError, ScoreUnitsWarning

Shape = Literal["half-plane", "box"]
"""Whether scores are weighed, or each has a limit of its own."""

Directions = Literal["nonneg", "real", "paper", "circle"]
Direction = tuple[float, float]

# Beyond this ratio of the spreads of two scores a grid loses some ten percent of the risk.
_COMPARABLE = 10.0


@dataclass(frozen=True, slots=True)
class DirectionSet:
    """Which weights (w_r, w_g) a rule may put on the two scores."""

    quarters: tuple[int, ...]
    """Which of the four quarter turns it covers, counted from the axis of s_r."""
    nonneg: tuple[bool, bool]
    """Which of the two weights must be at least zero."""
    angles: tuple[float, float]
    """The arc, for a grid of angles."""


class NamedSets(dict[str, DirectionSet]):
    """Sets of directions by their names."""

    def __missing__(self, name: str) -> DirectionSet:
        raise InvalidInputError(f"directions must be one of {sorted(self)}, got {name!r}")


DIRECTION_SETS = NamedSets(
    nonneg=DirectionSet((0,), (True, True), (0.0, np.pi / 2)),
    real=DirectionSet((0, 3), (True, False), (-np.pi / 2, np.pi / 2)),
    paper=DirectionSet((0, 1), (False, True), (0.0, np.pi)),
    circle=DirectionSet((0, 1, 2, 3), (False, False), (0.0, 2 * np.pi)),
)
"""What `directions` may be; see `demur.tune`."""


def grid_directions(allowed: DirectionSet, angles: int) -> list[Direction]:
    """Return equidistant unit vectors over the arc, exact where they fall on an axis."""
    low, high = allowed.angles
    whole_turn = high - low == 2 * np.pi
    steps = np.linspace(low, high, angles, endpoint=not whole_turn)
    pairs = np.column_stack([np.cos(steps), np.sin(steps)])
    # cos(pi/2) is 6e-17 in floats, which would break the ties of the other score.
    pairs[np.abs(pairs) < 1e-15] = 0.0
    return [(float(c), float(s)) for c, s in pairs]


def warn_of_units(
    scores: FloatArray, spread: FloatArray, directions: list[Direction], *, stacklevel: int
) -> None:
    """Warn if one score varies so much more than the other that few angles weigh both."""
    if len(scores) == 0 or (scores == scores[0]).all(axis=0).any():
        # A score that never changes has no say at any angle.
        return
    spread_r, spread_g = spread.tolist()
    ratio = max(spread_r, spread_g) / min(spread_r, spread_g)
    if ratio <= _COMPARABLE:
        return
    weights = np.abs(np.array(directions)) * spread
    both = int((weights.min(axis=1) >= weights.max(axis=1) / 10).sum())
    warnings.warn(
        f"the units of the two scores differ by a factor of {ratio:.3g}: their 10-90 % ranges "
        f"over the ID rows are {spread_r:.3g} and {spread_g:.3g}. Only {both} of the "
        f"{len(directions)} angles give both scores a say (their shares within a factor of 10), "
        "so the grid may miss good rules; rescale a score, or search exactly, which does not "
        "depend on units",
        ScoreUnitsWarning,
        stacklevel=stacklevel + 1,
    )


Status = Literal["optimal", "gap", "budget", "unresolved", "grid"]


@dataclass(frozen=True, slots=True)
class Exact:
    """Search all thresholds and all directions.

    Parameters
    ----------
    gap
        Stop when no rule can have an objective smaller by more than this; 0 proves optimality.
    budget
        Stop after this many boxes of the search tree, None for never. It bounds the time on
        inputs made to be hard; ordinary data need some thousands.

    Examples
    --------
    >>> import demur as dm
    >>> sample = dm.Sample([[1, 3], [2, 1], [3, 2]], [0, 0, 1], [[3, 3]])
    >>> dm.tune(sample, dm.TprFprModel(0.5, 0.5), search=dm.Exact(gap=0.01)).certificate.status
    'gap'
    """

    gap: float = 0.0
    budget: int | None = None

    def __post_init__(self) -> None:
        if not (isinstance(self.gap, (int, float)) and 0 <= self.gap < math.inf):
            raise InvalidInputError(f"gap must be a finite number >= 0, got {self.gap!r}")
        if self.budget is not None and not _positive_whole(self.budget):
            raise InvalidInputError(
                f"budget must be a positive whole number or None, got {self.budget!r}"
            )


@dataclass(frozen=True, slots=True)
class Grid:
    """Search `angles` equidistant angles, the paper's algorithm: 360 over [0, pi].

    An angle grid depends on the units of the scores and can miss the optimum; it is here to
    reproduce the paper.

    Examples
    --------
    >>> import demur as dm
    >>> sample = dm.Sample([[1, 3], [2, 1], [3, 2]], [0, 0, 1], [[3, 3]])
    >>> dm.tune(sample, dm.TprFprModel(0.5, 0.5), search=dm.Grid(angles=360)).certificate.status
    'grid'
    """

    angles: int = 360

    def __post_init__(self) -> None:
        if not _positive_whole(self.angles):
            raise InvalidInputError(f"angles must be a positive whole number, got {self.angles!r}")


@dataclass(frozen=True, slots=True)
class SearchCertificate:
    """How sure it is that no better rule exists among those searched: nothing about new rows.

    What holds in the population is promised by `demur.guarantees`.

    Examples
    --------
    >>> import demur as dm
    >>> dm.tune(dm.Sample([1, 2], [0, 1], [3]), dm.TprFprModel(0.5)).certificate.status
    'optimal'
    """

    status: Status
    """``"optimal"``; ``"gap"`` or ``"budget"`` when `Exact` stopped early for that reason;
    ``"unresolved"`` when a better half-plane is so thin that no float64 rule for it was found;
    ``"grid"`` when only a grid of angles was searched."""
    lower_bound: float = math.nan
    """No rule of the searched directions has a smaller objective; NaN for a grid."""
    boxes: int = 0
    """Boxes of directions and thresholds that were looked at."""
    unresolved: int = 0
    """Better accepted masses, or ones that a tie would go to, of half-planes so thin that no
    float64 rule for them was found, and boxes that were not taken apart. Columns of decimals are
    decimals."""


@dataclass(frozen=True, slots=True, repr=False)
class Tuning:
    """A tuned rule and its operating point on the sample it was tuned on.

    The operating point is optimistic: judge the rule on fresh data with `demur.evaluate`.

    Examples
    --------
    >>> import demur as dm
    >>> tuned = dm.tune(dm.Sample([1, 2, 3, 4], [0, 0, 0, 1], [3, 5]), dm.TprFprModel(0.5, 0.5))
    >>> tuned
    Tuning(accept when score 1 <= 3.5: tpr 0.75, fpr 0.5, selective_risk 0, optimal)
    >>> tuned.rule.accept([2.5, 9.0])
    array([ True, False])
    """

    rule: Rule
    point: OperatingPoint
    model: RejectionModel
    totals: Totals
    certificate: SearchCertificate

    def plot(self, ax: Any = None, *, sample: Sample | None = None) -> Any:
        """Draw the rates and what was asked for, or the rows of `sample` and what is accepted.

        With matplotlib, on `ax` or on new axes, which are returned.
        """
        from demur import plots

        if sample is None:
            return plots.rates(self.point, self.model, ax=ax)
        return plots.score_plane(self.rule, sample, ax=ax)

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame of pandas or Polars with a row per rate."""
        return point_frame({"tuned": self.point}, backend)

    def __repr__(self) -> str:
        return (
            f"Tuning(accept when {formula(self.rule)}: {point_text(self.point)}, "
            f"{self.certificate.status})"
        )


def _positive_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


Find = Callable[[Program], tuple[int, int, int] | None]
"""Accepted ID, OOD and loss mass of the optimum of a program, or None."""

# Bounds that only a search for each can tell are found to so many decimals.
_STEPS = 10_000


def infeasible_error(
    model: RejectionModel,
    points: Points,
    find: Find,
    *,
    causes: Sequence[str] = (),
    any_rule: Find | None = None,
    kind: str = "rule",
    about: bool = False,
) -> InfeasibleError:
    """Return the error that says how far the bounds are out of reach.

    `causes` are likely mistakes in the data, which come before any advice. `any_rule` finds
    something feasible, which need not be the optimum. `kind` says what rules were searched.
    `about` says that what `find` tells is attainable, but perhaps not quite the best.
    """
    if not model.bounds:
        return InfeasibleError(f"no rule meets the bounds of {model}", model=model, attainable={})
    # The TPR comes first, whatever the order of the bounds.
    bounds = sorted(model.bounds, key=lambda bound: bound.quantity != "tpr")
    if len(bounds) > 2 or not _is_plain(model):
        bounds = [bound for bound in bounds if not bound.is_trivial] or bounds
    attain = _Attainable(model, points.totals, find, any_rule or find)
    best = {bound: attain.best(bound) for bound in bounds}
    texts = [bound_text(model, bound) for bound in bounds]
    asked = " with ".join(texts) if len(texts) < 3 else ", ".join(texts)
    attainable = {
        f"{'max' if bound.is_lower else 'min'}_{model.word(bound)}{whose(bound)}": value
        for bound, value in best.items()
    }
    advice = "relax a bound" + (" or add a second score" if points.scores.shape[1] == 1 else "")
    first = "".join(f"; a likely cause: {cause}" for cause in causes)
    possible = _possible(model, best, about=about)
    return InfeasibleError(
        f"no {kind} reaches {asked}: {possible}{first}; {'else ' if first else ''}{advice}",
        model=model,
        attainable=attainable,
    )


def _is_plain(model: RejectionModel) -> bool:
    """Return whether bounds are on the TPR, FPR and precision of all rows only."""
    return all(
        bound.quantity != "selective_risk" and not bound.is_of_part for bound in model.bounds
    )


def _possible(model: RejectionModel, best: dict[Bound, float], *, about: bool) -> str:
    """Return what each bound could be instead, in words."""
    tpr, unable = model.bound("tpr"), [b for b, value in best.items() if math.isnan(value)]
    if unable and _is_plain(model) and len(best) <= 2:
        beyond = "accepts any ID row" if tpr is None else f"has {bound_text(model, tpr)} at all"
        return f"no rule {beyond}, since rows with a score of +inf are rejected"
    able = [bound for bound in best if bound not in unable]
    if not able:
        return "relaxing one of these bounds alone is not enough"
    few = len(best) <= 2
    parts = []
    for bound in able:
        others = " and ".join(bound_text(model, other) for other in best if other != bound)
        superlative = "largest" if bound.is_lower else "smallest"
        value = f"{'about ' if about else ''}{best[bound]:.4g}"
        text = f"the {superlative} {model.word(bound)}{whose(bound)} is {value}"
        parts.append(f"at {others} {text}" if others and few else text)
    prior = "" if model.bound("precision") is None else f" (ood_prior {model.ood_prior})"
    kept = "" if few else "with the other bounds kept, "
    rest = [model.word(bound) + whose(bound) for bound in unable]
    said = "any other bound" if len(rest) > 2 else " or ".join(rest)
    helpless = f"; relaxing {said} alone is not enough" if rest else ""
    return kept + ", ".join(parts) + prior + helpless


def relaxed_programs(model: RejectionModel, totals: Totals) -> list[Program]:
    """Return the programs that an `InfeasibleError` would need optima of.

    Those of bounds whose best value takes a search for each value that is tried are left out.
    """

    def none(_: Program) -> None:
        return None

    attain = _Attainable(model, totals, none, none)
    return [attain.program(bound) for bound in model.bounds if not attain.is_searched(bound)]


class _Attainable:
    """Finds the best value of each bounded quantity, the other bounds kept."""

    def __init__(self, model: RejectionModel, totals: Totals, find: Find, any_rule: Find) -> None:
        self._model, self._totals = model, totals
        self._find, self._any_rule = find, any_rule

    def best(self, bound: Bound) -> float:
        """Return the best attainable value; NaN where the other bounds forbid all rules."""
        if self.is_searched(bound):
            return self._searched(bound)
        if bound.quantity == "tpr":
            return self._largest_tpr(bound)
        if bound.quantity == "fpr":
            return self._smallest_fpr(bound)
        if bound.quantity == "selective_risk":
            return self._smallest_risk(bound)
        return self._largest_precision(bound)

    def _largest_tpr(self, bound: Bound) -> float:
        most = self._find(self.program(bound))
        nothing = 0.0 if _is_plain(self._model) else math.nan
        return most[0] / self._totals.id if most else nothing

    def _smallest_fpr(self, bound: Bound) -> float:
        totals, least = self._totals, self._find(self.program(bound))
        if least is None:
            return math.nan
        return least[1] / sum(totals.ood) if sum(totals.ood) else 0.0

    def _largest_precision(self, bound: Bound) -> float:
        purest = self._find(self.program(bound))
        if purest is None:
            return math.nan
        return precision(purest[0], purest[1], self._totals, self._model.ood_prior or 0)

    def _smallest_risk(self, bound: Bound) -> float:
        totals, least = self._totals, self._find(self.program(bound))
        if least is None:
            return math.nan
        return totals.loss_sum(least[2]) / totals.id_weight(least[0])

    def program(self, bound: Bound) -> Program:
        """Return the program whose optimum has the best value of a bound, the others kept."""
        model, totals = self._model, self._totals
        if bound.quantity == "tpr":
            # The most ID mass that fits the other bounds, whatever the loss.
            program = model.moved(bound, 0).program(totals)
            return replace(program, loss=0, id=-1, ood=0, per_id=False, min_id=1)
        if bound.quantity == "fpr":
            program = model.moved(bound, 1).program(totals)
            return replace(program, loss=0, id=0, ood=1, per_id=False)
        if bound.quantity == "precision":
            program = model.moved(bound, 0).program(totals)
            return replace(program, loss=0, id=0, ood=1, per_id=True)
        program = model.without(bound).program(totals)
        return replace(program, loss=1, id=0, ood=0, per_id=True, min_id=max(1, program.min_id))

    def is_searched(self, bound: Bound) -> bool:
        """Return whether no single program tells the best value of a bound."""
        if bound.is_of_part:
            return True
        # Whether several sets have to keep a bound each by itself.
        together = bound.ood_set is None and (self._model.every_set or self._totals.pooled)
        of_sets = bound.quantity in ("fpr", "precision")
        return of_sets and len(self._totals.ood) > 1 and not together

    def _searched(self, bound: Bound) -> float:
        """Return the best value of a bound to four digits, by a search for each that is tried."""
        most = self._reach(bound) if bound.quantity == "selective_risk" else Fraction(1)
        if most is None or not self._feasible(bound, Fraction(0) if bound.is_lower else most):
            return math.nan

        def value(k: int) -> Fraction:
            share = most * Fraction(k, _STEPS)
            return 1 - share if bound.is_lower else share

        low, high = -1, _STEPS
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if self._feasible(bound, value(middle)) else (middle, high)
        return float(value(high))

    def _feasible(self, bound: Bound, value: Fraction) -> bool:
        return self._any_rule(self._model.moved(bound, value).program(self._totals)) is not None

    def _reach(self, bound: Bound) -> Fraction | None:
        """Return a bound on risk that can be met, of the size of the smallest one; None if none."""
        totals = self._totals
        unit = Fraction(2) ** (totals.id_exponent - totals.loss_exponent)
        # No mean of losses is above their sum, a row having a weight of at least one unit.
        largest, reach = totals.loss * unit + 1, max(bound.share, Fraction(1, 1000))
        if not self._feasible(bound, largest):
            return None
        while reach < largest and not self._feasible(bound, reach):
            reach *= 2
        return min(reach, largest)
