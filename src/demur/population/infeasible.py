"""What is attainable on a curve when a model's bounds are not."""

from __future__ import annotations

from demur.core.models import PrecisionRecallModel, RejectionModel
from demur.errors import InfeasibleError
from demur.population.bounds import Bounds, precision
from demur.population.curve import ThresholdCurve, candidates


def infeasible_error(model: RejectionModel, curve: ThresholdCurve) -> InfeasibleError:
    """Return the error that says how far the bounds are out of reach of the rules of `curve`.

    On the Neyman-Pearson curve (mu = inf) these are the limits of all rules.
    """
    bounds = Bounds.of(model)
    largest = candidates(curve, Bounds(0.0, bounds.max_fpr, bounds.max_ratio)).tpr.max(initial=0.0)
    enough = candidates(curve, Bounds(bounds.min_tpr, 1.0, float("inf")))
    if isinstance(model, PrecisionRecallModel):
        purest = float(precision(enough.tpr, enough.fpr, float(model.ood_prior)).max())
        names, values = ("recall", "precision"), (model.min_recall, model.min_precision)
        signs, limit, suffix = (">=", ">="), purest, f" (ood_prior {model.ood_prior})"
        attainable = {"max_recall": float(largest), "max_precision": limit}
        extreme = "largest"
    else:
        # With min_tpr = 0 the bound is approached by accepting ever less.
        limit = float(enough.fpr.min()) if bounds.min_tpr > 0 else 0.0
        names, values = ("tpr", "fpr"), (bounds.min_tpr, bounds.max_fpr)
        signs, suffix, extreme = (">=", "<="), "", "smallest"
        attainable = {"max_tpr": float(largest), "min_fpr": limit}
    first, second = (
        f"{name} {sign} {value}" for name, sign, value in zip(names, signs, values, strict=True)
    )
    if largest == 0:
        possible = f"every rule that accepts any ID input breaks {second}"
    else:
        possible = f"at {second} the largest {names[0]} is {largest:.4g}"
    message = (
        f"no rule reaches {first} with {second}: {possible}, "
        f"at {first} the {extreme} {names[1]} is {limit:.4g}{suffix}; relax a bound"
    )
    return InfeasibleError(message, model=model, attainable=attainable)
