"""What is attainable when a model's bounds are not: for each bound the best, the others kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction

from demur.core.models import Bound, RejectionModel
from demur.core.points import Points
from demur.core.program import Program, Totals
from demur.core.rates import precision
from demur.core.wording import bound_text
from demur.errors import InfeasibleError

Find = Callable[[Program], tuple[int, int] | None]
"""Accepted ID and OOD mass of the optimum of a program, or None."""


def infeasible_error(
    model: RejectionModel, points: Points, find: Find, *, causes: Sequence[str] = ()
) -> InfeasibleError:
    """Return the error that says how far the bounds are out of reach.

    `causes` are likely mistakes in the data, which come before any advice.
    """
    if not model.bounds:
        return InfeasibleError(f"no rule meets the bounds of {model}", model=model, attainable={})
    # The TPR comes first, whatever the order of the bounds.
    bounds = sorted(model.bounds, key=lambda bound: bound.quantity != "tpr")
    best = {bound: _best(model, bound, points.totals, find) for bound in bounds}
    asked = " with ".join(bound_text(model, bound) for bound in bounds)
    attainable = {
        f"{'max' if bound.is_lower else 'min'}_{model.word(bound)}": value
        for bound, value in best.items()
    }
    advice = "relax a bound" + (" or add a second score" if points.scores.shape[1] == 1 else "")
    first = "".join(f"; a likely cause: {cause}" for cause in causes)
    return InfeasibleError(
        f"no rule reaches {asked}: {_possible(model, best)}{first}; {'else ' if first else ''}"
        f"{advice}",
        model=model,
        attainable=attainable,
    )


def _possible(model: RejectionModel, best: dict[Bound, float]) -> str:
    """Return what each bound could be instead, in words."""
    tpr = model.bound("tpr")
    if any(math.isnan(value) for value in best.values()):
        beyond = "accepts any ID row" if tpr is None else f"has {bound_text(model, tpr)} at all"
        return f"no rule {beyond}, since rows with a score of +inf are rejected"
    parts = []
    for bound, value in best.items():
        others = " and ".join(bound_text(model, other) for other in best if other != bound)
        superlative = "largest" if bound.is_lower else "smallest"
        text = f"the {superlative} {model.word(bound)} is {value:.4g}"
        parts.append(f"at {others} {text}" if others else text)
    prior = "" if model.bound("precision") is None else f" (ood_prior {model.ood_prior})"
    return ", ".join(parts) + prior


def _best(model: RejectionModel, bound: Bound, totals: Totals, find: Find) -> float:
    """Return the best attainable value of a bounded quantity; NaN where the others forbid all."""
    if bound.quantity == "tpr":
        # The most ID mass that fits the other bounds, whatever the loss.
        program = replace(model.program(totals), loss=0, id=-1, ood=0, per_id=False, min_id=1)
        most = find(program)
        return most[0] / totals.id if most else 0.0
    if bound.quantity == "fpr":
        return _smallest_fpr(model, bound, totals, find)
    return _largest_precision(model, bound, totals, find)


def _smallest_fpr(model: RejectionModel, bound: Bound, totals: Totals, find: Find) -> float:
    if len(totals.ood) > 1:
        return _worst_case(lambda share: model.moved(bound, share), totals, find)
    program = model.moved(bound, 1).program(totals)
    least = find(replace(program, loss=0, id=0, ood=1, per_id=False))
    if least is None:
        return math.nan
    return least[1] / totals.ood[0] if totals.ood[0] else 0.0


def _largest_precision(model: RejectionModel, bound: Bound, totals: Totals, find: Find) -> float:
    if len(totals.ood) > 1:
        return 1 - _worst_case(lambda share: model.moved(bound, 1 - share), totals, find)
    program = model.moved(bound, 0).program(totals)
    purest = find(replace(program, loss=0, id=0, ood=1, per_id=True))
    if purest is None:
        return math.nan
    return precision(*purest, totals, model.ood_prior or 0)


def _worst_case(relaxed: Callable[[Fraction], RejectionModel], totals: Totals, find: Find) -> float:
    """Return the smallest bound, to four decimals, that every OOD set can meet."""
    steps = 10_000

    def feasible(k: int) -> bool:
        return find(relaxed(Fraction(k, steps)).program(totals)) is not None

    if not feasible(steps):
        return math.nan
    low, high = -1, steps
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if feasible(middle) else (middle, high)
    return high / steps
