"""demur decides when a classifier should not answer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from demur import adapters as adapters
    from demur import detectors as detectors
    from demur import errors as errors
    from demur import guarantees as guarantees
    from demur import losses as losses
    from demur import metrics as metrics
    from demur import population as population
    from demur import report as report
    from demur import sources as sources
    from demur.core.models import Bound, ExpectedCost, RejectionModel
    from demur.core.paper_models import CostModel, PrecisionRecallModel, TprFprModel
    from demur.core.rates import OperatingPoint, evaluate
    from demur.core.rule import Rule
    from demur.core.sample import Sample
    from demur.core.source import ScoreSource
    from demur.errors import (
        DemurError,
        InfeasibleError,
        InvalidInputError,
        LikelyMistakeWarning,
        MissingExtraError,
        NotTunedError,
        ScoreUnitsWarning,
    )
    from demur.report import Report
    from demur.sources.open import open_source
    from demur.tuning.frontier import Frontier, frontier
    from demur.tuning.prepared import Prepared, prepare
    from demur.tuning.result import Certificate, Exact, Grid, Tuning
    from demur.tuning.tune import tune
    from demur.versions import show_versions

__version__: str
"""The version that is installed."""

__all__ = [
    "Bound",
    "Certificate",
    "CostModel",
    "DemurError",
    "Exact",
    "ExpectedCost",
    "Frontier",
    "Grid",
    "InfeasibleError",
    "InvalidInputError",
    "LikelyMistakeWarning",
    "MissingExtraError",
    "NotTunedError",
    "OperatingPoint",
    "PrecisionRecallModel",
    "Prepared",
    "RejectionModel",
    "Report",
    "Rule",
    "Sample",
    "ScoreSource",
    "ScoreUnitsWarning",
    "TprFprModel",
    "Tuning",
    "evaluate",
    "frontier",
    "open_source",
    "prepare",
    "show_versions",
    "tune",
]

_NAMES = {
    "core.models": ("Bound", "ExpectedCost", "RejectionModel"),
    "core.paper_models": ("CostModel", "PrecisionRecallModel", "TprFprModel"),
    "core.rates": ("OperatingPoint", "evaluate"),
    "core.rule": ("Rule",),
    "core.sample": ("Sample",),
    "core.source": ("ScoreSource",),
    "errors": (
        "DemurError",
        "InfeasibleError",
        "InvalidInputError",
        "LikelyMistakeWarning",
        "MissingExtraError",
        "NotTunedError",
        "ScoreUnitsWarning",
    ),
    "report": ("Report",),
    "sources.open": ("open_source",),
    "tuning.frontier": ("Frontier", "frontier"),
    "tuning.prepared": ("Prepared", "prepare"),
    "tuning.result": ("Certificate", "Exact", "Grid", "Tuning"),
    "tuning.tune": ("tune",),
    "versions": ("show_versions",),
}
_PLACES = {name: place for place, names in _NAMES.items() for name in names}
_ROOMS = (
    "adapters",
    "detectors",
    "errors",
    "guarantees",
    "losses",
    "metrics",
    "population",
    "report",
    "sources",
)


def __getattr__(name: str) -> Any:
    # Everything is imported when it is first used, so that import stays fast.
    if name in _ROOMS:
        return import_module(f"demur.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version("demur")
    if name not in _PLACES:
        raise AttributeError(f"module 'demur' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"demur.{_PLACES[name]}"), name)
    return found


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS, "__version__"])
