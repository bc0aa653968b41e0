"""What can be promised of a rule, what cannot, and how much data a promise takes.

`certify` bounds the rates of a fixed rule on fresh data, `tune_certified` tunes and certifies
from one sample, `plan` says how many rows that takes. `cross_tune` and `bootstrap` estimate
what tuned rules do on new data, `compare` and `compare_auroc` compare two methods on the same
rows. `estimate_prior` and `OperatingTable` are for a share of OOD inputs that is unknown or
drifts.
"""

from demur.guarantees.bootstrap import Bootstrap, Measure, bootstrap
from demur.guarantees.bounded import mean_lower, mean_upper
from demur.guarantees.certified_tuning import Candidate, CertifiedTuning, tune_certified
from demur.guarantees.certify import Certified, certify
from demur.guarantees.counting import operating_table
from demur.guarantees.cross import CrossTuning, Fold, cross_tune
from demur.guarantees.delong import (
    AurocComparison,
    AurocEstimate,
    auroc_interval,
    compare_auroc,
)
from demur.guarantees.intervals import Interval, clopper_pearson
from demur.guarantees.paired import Comparison, compare
from demur.guarantees.plan import Plan, PlanRow, PowerPoint, plan
from demur.guarantees.prior import (
    PriorEstimate,
    cost_range,
    estimate_prior,
    explaining_priors,
    precision_range,
)
from demur.guarantees.saved import OperatingTable

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
    "precision_range",
    "tune_certified",
]
