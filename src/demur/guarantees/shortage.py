"""What to say when the data do not suffice: how many rows would be needed."""

from __future__ import annotations

import math
from dataclasses import replace

from demur.core.models import PrecisionRecallModel, TprFprModel
from demur.core.rates import OperatingPoint
from demur.errors import InfeasibleError
from demur.guarantees.plan import fewest_rows, rows_to_prove
from demur.guarantees.requirements import (
    PrecisionRecallRequirement,
    Requirement,
    Sizes,
    TprFprRequirement,
)

_POWER = 0.9
_MOST_TIMES = 10_000.0


def shortage(
    requirement: Requirement,
    safest: OperatingPoint | None,
    hoped: OperatingPoint | None,
    confidence: float,
) -> InfeasibleError:
    """Return the error that says how many rows would be needed.

    `safest` is what the first candidate did on the test rows; None when there is none. `hoped`
    is what the safest rule does when it learns on all rows: the rates to plan with, unless no
    counts on so few test rows could prove the bounds.
    """
    model, sizes = requirement.model, requirement.sizes
    rows = f"{sizes.test_id} ID and {sizes.test_ood} OOD test rows"
    impossible = not requirement.proven(sizes.test_id, 0)
    if impossible:
        seen = f"not even a perfect result on {rows} would be a proof"
    elif safest is None:
        learned = f"{sizes.learn_id} ID and {sizes.learn_ood} OOD rows to learn on"
        seen = f"no rule meets them on the {learned}"
    else:
        seen = f"on {rows} the safest candidate has tpr {safest.tpr:.4g} and fpr {safest.fpr:.4g}"
    needed = (math.nan, math.nan)
    if impossible:
        needed = _fewest(requirement)
    elif hoped is not None:
        # One row more on the wrong side: all of few rows accepted is not a rate of one.
        tpr = hoped.accepted_id / (sizes.learn_id + sizes.test_id + 1)
        fpr = (hoped.accepted_ood + 1) / (sizes.learn_ood + sizes.test_ood + 1)
        needed = _needed(requirement, tpr, fpr)
        seen += f" (at best {hoped.tpr:.4g} and {hoped.fpr:.4g} on all rows)"
    id_rows = _all_rows(needed[0], sizes.learn_id, sizes.test_id)
    ood_rows = _all_rows(needed[1], sizes.learn_ood, sizes.test_ood)
    return InfeasibleError(
        f"no rule is proven to meet {asked_text(model)} with confidence {confidence}: {seen}; "
        f"{_advice(id_rows, ood_rows, at_least=impossible)}",
        model=model,
        attainable={"needed_id": id_rows, "needed_ood": ood_rows},
    )


def asked_text(model: TprFprModel | PrecisionRecallModel) -> str:
    """Return the bounds of a model in one phrase."""
    if isinstance(model, TprFprModel):
        fpr = "" if float(model.max_fpr) == 1 else f" and fpr <= {model.max_fpr}"
        return f"tpr >= {model.min_tpr}{fpr}"
    return (
        f"precision >= {model.min_precision} and recall >= {model.min_recall} at OOD prior "
        f"{model.ood_prior}"
    )


def _advice(id_rows: float, ood_rows: float, *, at_least: bool) -> str:
    if math.isnan(id_rows) or math.isnan(ood_rows):
        if at_least:
            return "no finite sample proves a bound of exactly 0 or 1: relax it"
        return "these rates leave no margin, so more rows alone will not help: relax a bound"
    about = "at least" if at_least else "about"
    return f"{about} {id_rows:.0f} ID and {ood_rows:.0f} OOD rows are needed in all"


def _fewest(requirement: Requirement) -> tuple[float, float]:
    """Return the test rows below which not even a perfect result is a proof."""
    if isinstance(requirement, TprFprRequirement):
        bounds = float(requirement.model.min_tpr), 1 - float(requirement.model.max_fpr)
        id_rows, ood_rows = (fewest_rows(bound, requirement.delta) for bound in bounds)
        return _or_nan(id_rows), _or_nan(ood_rows)
    return _scaled(requirement, 1.0, 0.0)


def _needed(requirement: Requirement, tpr: float, fpr: float) -> tuple[float, float]:
    """Return the test rows that prove the bounds nine times out of ten at these true rates."""
    if isinstance(requirement, TprFprRequirement):
        each = math.sqrt(_POWER)
        model, delta = requirement.model, requirement.delta
        tnr_bound = 1 - float(model.max_fpr)
        tnr = 1.0 if tnr_bound == 0 else 1 - fpr
        return (
            _or_nan(rows_to_prove(float(model.min_tpr), tpr, delta, each)),
            _or_nan(rows_to_prove(tnr_bound, tnr, delta, each)),
        )
    return _scaled(requirement, tpr, fpr)


def _scaled(requirement: PrecisionRecallRequirement, tpr: float, fpr: float) -> tuple[float, float]:
    """Return how many times the test rows it takes when the rates come out a little worse.

    A little worse is 1.6 standard errors each, as happens in one sample out of twenty.
    """
    sizes = requirement.sizes

    def enough(times: float) -> bool:
        n_id, n_ood = math.ceil(times * sizes.test_id), math.ceil(times * sizes.test_ood)
        low = tpr - 1.6 * math.sqrt(tpr * (1 - tpr) / n_id)
        high = fpr + 1.6 * math.sqrt(fpr * (1 - fpr) / n_ood)
        larger = replace(requirement, sizes=Sizes(sizes.learn_id, sizes.learn_ood, n_id, n_ood))
        return larger.proven(max(0, math.floor(low * n_id)), min(n_ood, math.ceil(high * n_ood)))

    high = 1.0
    while not enough(high):
        high *= 2
        if high > _MOST_TIMES:
            return math.nan, math.nan
    low = high / 2
    while high / low > 1.02:
        middle = (low + high) / 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return math.ceil(high * sizes.test_id), math.ceil(high * sizes.test_ood)


def _all_rows(needed_test: float, learned: int, tested: int) -> float:
    """Return the rows in all that leave so many for testing; never fewer than there are."""
    if math.isnan(needed_test) or tested == 0:
        return needed_test
    return float(max(math.ceil(needed_test * (learned + tested) / tested), learned + tested))


def _or_nan(rows: int | None) -> float:
    return math.nan if rows is None else float(rows)
