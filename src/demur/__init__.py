"""demur decides when a classifier should not answer."""

from demur.core.models import CostModel, PrecisionRecallModel, TprFprModel
from demur.core.rates import OperatingPoint, evaluate
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.errors import (
    DemurError,
    InfeasibleError,
    InvalidInputError,
    MissingExtraError,
    NotTunedError,
)
from demur.tuning.result import Certificate, Exact, Grid, Tuning
from demur.tuning.tune import tune

__all__ = [
    "Certificate",
    "CostModel",
    "DemurError",
    "Exact",
    "Grid",
    "InfeasibleError",
    "InvalidInputError",
    "MissingExtraError",
    "NotTunedError",
    "OperatingPoint",
    "PrecisionRecallModel",
    "Rule",
    "Sample",
    "TprFprModel",
    "Tuning",
    "evaluate",
    "tune",
]
