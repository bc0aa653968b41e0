"""demur decides when a classifier should not answer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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
    ScoreUnitsWarning,
)
from demur.tuning.frontier import Frontier, frontier
from demur.tuning.prepared import prepare
from demur.tuning.result import Certificate, Exact, Grid, Tuning
from demur.tuning.tune import tune
from demur.versions import show_versions

if TYPE_CHECKING:
    from demur.report import Report

__all__ = [
    "Certificate",
    "CostModel",
    "DemurError",
    "Exact",
    "Frontier",
    "Grid",
    "InfeasibleError",
    "InvalidInputError",
    "MissingExtraError",
    "NotTunedError",
    "OperatingPoint",
    "PrecisionRecallModel",
    "Report",
    "Rule",
    "Sample",
    "ScoreUnitsWarning",
    "TprFprModel",
    "Tuning",
    "evaluate",
    "frontier",
    "prepare",
    "show_versions",
    "tune",
]

_ROOMS = ("adapters", "detectors", "guarantees", "losses", "metrics", "population", "report")


def __getattr__(name: str) -> Any:
    # Rooms that tuning does not need are imported when first used, so that import stays fast.
    if name in _ROOMS:
        return import_module(f"demur.{name}")
    if name == "Report":
        return import_module("demur.report").Report
    raise AttributeError(f"module 'demur' has no attribute {name!r}")
