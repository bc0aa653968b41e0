"""What is attainable on a curve when a model's bounds are not."""

from __future__ import annotations

import math

from demur.core.models import PrecisionRecallModel, RejectionModel
from demur.errors import InfeasibleError
from demur.population.bounds import Bounds, precision
from demur.population.curve import ThresholdCurve, candidates


def infeasible_error(model: RejectionModel, curve: ThresholdCurve) -> InfeasibleError:
    """Return the error that says how far the bounds are out of reach of the rules of `curve`.

    On the Neyman-Pearson curve (mu = inf) these are the limits of all rules.
    """
    bounds = Bounds.of(model)
    pure = candidates(curve, Bounds(0.0, bounds.max_fpr, bounds.max_ratio))
    largest = float(pure.tpr.max(initial=0.0))
    enough = candidates(curve, Bounds(bounds.min_tpr, 1.0, math.inf))
    if isinstance(model, PrecisionRecallModel):
        limit = float(precision(enough.tpr, enough.fpr, float(model.ood_prior)).max())
        attainable = {"max_recall": largest, "max_precision": limit}
        wanted, bound = f"recall >= {model.min_recall}", f"precision >= {model.min_precision}"
        most = f"largest recall is {largest:.4g}"
        nearest = f"largest precision is {limit:.4g} (ood_prior {model.ood_prior})"
    else:
        # Without a bound on TPR, accepting ever less brings the FPR down to 0.
        limit = float(enough.fpr.min()) if bounds.min_tpr > 0 else 0.0
        attainable = {"max_tpr": largest, "min_fpr": limit}
        wanted, bound = f"tpr >= {bounds.min_tpr}", f"fpr <= {bounds.max_fpr}"
        most, nearest = f"largest tpr is {largest:.4g}", f"smallest fpr is {limit:.4g}"
    if largest == 0:
        possible = f"every rule that accepts any ID input breaks {bound}"
    else:
        possible = f"at {bound} the {most}"
    message = (
        f"no rule reaches {wanted} with {bound}: {possible}, at {wanted} the {nearest}; "
        "relax a bound"
    )
    return InfeasibleError(message, model=model, attainable=attainable)
