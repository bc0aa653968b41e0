"""What is attainable when a model's bounds are not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

from demur.core.models import PrecisionRecallModel, RejectionModel, TprFprModel
from demur.core.points import Points
from demur.core.program import Program
from demur.core.rates import precision
from demur.errors import InfeasibleError

Find = Callable[[Program], tuple[int, int] | None]
"""Accepted ID and OOD mass of the optimum of a program, or None."""


def infeasible_error(model: RejectionModel, points: Points, find: Find) -> InfeasibleError:
    """Return the error that says how far the bounds are out of reach."""
    program = model.program(points.totals)
    # The most ID mass that fits the bound on OOD, whatever the loss.
    most = find(replace(program, loss=0, id=-1, ood=0, per_id=False, min_id=1))
    max_tpr = most[0] / points.totals.id if most else 0.0
    if isinstance(model, TprFprModel):
        return _tpr_fpr_error(model, max_tpr, _smallest_fpr(model, points, find))
    if isinstance(model, PrecisionRecallModel):
        return _precision_recall_error(model, max_tpr, _largest_precision(model, points, find))
    return InfeasibleError(f"no rule meets the bounds of {model}", model=model, attainable={})


def _tpr_fpr_error(model: TprFprModel, max_tpr: float, min_fpr: float) -> InfeasibleError:
    asked = f"tpr >= {model.min_tpr} with fpr <= {model.max_fpr}"
    if math.isnan(min_fpr):
        possible = _beyond_reach("tpr", model.min_tpr)
    else:
        possible = (
            f"at fpr <= {model.max_fpr} the largest tpr is {max_tpr:.4g}, "
            f"at tpr >= {model.min_tpr} the smallest fpr is {min_fpr:.4g}"
        )
    return _error(model, asked, possible, {"max_tpr": max_tpr, "min_fpr": min_fpr})


def _precision_recall_error(
    model: PrecisionRecallModel, max_recall: float, max_precision: float
) -> InfeasibleError:
    asked = f"recall >= {model.min_recall} with precision >= {model.min_precision}"
    if math.isnan(max_precision):
        possible = _beyond_reach("recall", model.min_recall)
    else:
        possible = (
            f"at precision >= {model.min_precision} the largest recall is {max_recall:.4g}, "
            f"at recall >= {model.min_recall} the largest precision is {max_precision:.4g} "
            f"(ood_prior {model.ood_prior})"
        )
    attainable = {"max_recall": max_recall, "max_precision": max_precision}
    return _error(model, asked, possible, attainable)


def _error(
    model: RejectionModel, asked: str, possible: str, attainable: dict[str, float]
) -> InfeasibleError:
    message = f"no rule reaches {asked}: {possible}; relax a bound or add a second score"
    return InfeasibleError(message, model=model, attainable=attainable)


def _beyond_reach(name: str, bound: object) -> str:
    return f"no rule has {name} >= {bound} at all, since rows with a score of +inf are rejected"


def _smallest_fpr(model: TprFprModel, points: Points, find: Find) -> float:
    totals = points.totals
    if len(totals.ood) > 1:
        return _worst_case(lambda share: replace(model, max_fpr=share), points, find)
    program = replace(model, max_fpr=1).program(totals)
    least = find(replace(program, loss=0, ood=1, per_id=False))
    if least is None:
        return math.nan
    return least[1] / totals.ood[0] if totals.ood[0] else 0.0


def _largest_precision(model: PrecisionRecallModel, points: Points, find: Find) -> float:
    totals = points.totals
    if len(totals.ood) > 1:
        return 1 - _worst_case(lambda s: replace(model, min_precision=1 - s), points, find)
    program = replace(model, min_precision=0).program(totals)
    purest = find(replace(program, loss=0, ood=1))
    if purest is None:
        return math.nan
    return precision(*purest, totals, model.ood_prior)


def _worst_case(relaxed: Callable[[Fraction], RejectionModel], points: Points, find: Find) -> float:
    """Return the smallest bound, to four decimals, that every OOD set can meet."""
    steps = 10_000

    def feasible(k: int) -> bool:
        return find(relaxed(Fraction(k, steps)).program(points.totals)) is not None

    if not feasible(steps):
        return math.nan
    low, high = -1, steps
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if feasible(middle) else (middle, high)
    return high / steps
