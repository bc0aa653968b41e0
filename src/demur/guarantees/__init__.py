"""What can be promised of a rule, what cannot, and how much data a promise takes.

`certify` bounds the rates of a fixed rule on fresh data, `tune_certified` tunes and certifies
from one sample, `plan` and `plan_tuning` say how many rows that takes. `cross_tune` and
`bootstrap` estimate what tuned rules do on new data, `compare` and `compare_auroc` compare two
methods on the same rows. `estimate_prior` and `OperatingTable` are for a share of OOD inputs that
is unknown or drifts.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from demur.guarantees.bootstrapping import (
        Bootstrap,
        Comparison,
        ResampledRate,
        bootstrap,
        compare,
    )
    from demur.guarantees.candidates import Candidate
    from demur.guarantees.certified_rule import Certified, certify
    from demur.guarantees.certified_tuning import (
        CertifiedTuning,
        TuningPlan,
        plan_tuning,
        tune_certified,
    )
    from demur.guarantees.cross_tuning import CrossTuning, Fold, cross_tune
    from demur.guarantees.intervals import (
        Interval,
        clopper_pearson,
        cost_range,
        mean_lower,
        mean_upper,
        precision_range,
    )
    from demur.guarantees.operating_tables import OperatingTable, operating_table
    from demur.guarantees.planning import Plan, PlanRow, PowerPoint, plan
    from demur.guarantees.prior import PriorEstimate, estimate_prior, explaining_priors
    from demur.guarantees.standard_errors import (
        AurocComparison,
        AurocEstimate,
        auroc_interval,
        compare_auroc,
    )

    Measure = ResampledRate

__all__ = [
    "AurocComparison",
    "AurocEstimate",
    "Bootstrap",
    "Candidate",
    "Certified",
    "CertifiedTuning",
    "Comparison",
    "CrossTuning",
    "Fold",
    "Interval",
    "Measure",
    "OperatingTable",
    "Plan",
    "PlanRow",
    "PowerPoint",
    "PriorEstimate",
    "ResampledRate",
    "TuningPlan",
    "auroc_interval",
    "bootstrap",
    "certify",
    "clopper_pearson",
    "compare",
    "compare_auroc",
    "cost_range",
    "cross_tune",
    "estimate_prior",
    "explaining_priors",
    "mean_lower",
    "mean_upper",
    "operating_table",
    "plan",
    "plan_tuning",
    "precision_range",
    "tune_certified",
]

_NAMES = {
    "candidates": ("Candidate",),
    "certified_rule": ("Certified", "certify"),
    "certified_tuning": ("CertifiedTuning", "TuningPlan", "plan_tuning", "tune_certified"),
    "intervals": (
        "Interval",
        "clopper_pearson",
        "cost_range",
        "mean_lower",
        "mean_upper",
        "precision_range",
    ),
    "operating_tables": ("OperatingTable", "operating_table"),
    "planning": ("Plan", "PlanRow", "PowerPoint", "plan"),
    "prior": ("PriorEstimate", "estimate_prior", "explaining_priors"),
    "bootstrapping": ("Bootstrap", "Comparison", "ResampledRate", "bootstrap", "compare"),
    "cross_tuning": ("CrossTuning", "Fold", "cross_tune"),
    "standard_errors": ("AurocComparison", "AurocEstimate", "auroc_interval", "compare_auroc"),
}
_PLACES = {name: (place, name) for place, names in _NAMES.items() for name in names}
# The name under which results of resampling were first known.
_PLACES["Measure"] = ("bootstrapping", "ResampledRate")

if not TYPE_CHECKING:
    # Imported when first used: most commands need few of these. Hidden from type checkers, to which
    # a name that is not here is a mistake.
    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"module 'demur.guarantees' has no attribute {name!r}")
        place, known_as = _PLACES[name]
        found = globals()[name] = getattr(import_module(f"demur.guarantees.{place}"), known_as)
        return found


def __dir__() -> list[str]:
    return list(__all__)
