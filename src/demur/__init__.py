"""demur decides when a classifier should not answer."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from demur import adapters as adapters
    from demur import detectors as detectors
    from demur import errors as errors
    from demur import guarantees as guarantees
    from demur import learn as learn
    from demur import losses as losses
    from demur import metrics as metrics
    from demur import population as population
    from demur import report as report
    from demur import sources as sources
    from demur import watch as watch
    from demur.core.models import (
        Bound,
        CostModel,
        ExpectedCost,
        PrecisionRecallModel,
        RejectionModel,
        RiskFprModel,
        TprFprModel,
    )
    from demur.core.rates import OperatingPoint, evaluate
    from demur.core.rule import BoxRule, Rule
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
    from demur.tuning.by_group import tune_by_group
    from demur.tuning.frontier import Frontier, frontier
    from demur.tuning.prepared import Prepared, prepare
    from demur.tuning.result import Exact, Grid, SearchCertificate, Tuning
    from demur.tuning.result import SearchCertificate as Certificate  # noqa: F401
    from demur.tuning.tune import tune

__version__: str
"""The version that is installed."""

__all__ = [
    "Bound",
    "BoxRule",
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
    "RiskFprModel",
    "Rule",
    "Sample",
    "ScoreSource",
    "ScoreUnitsWarning",
    "SearchCertificate",
    "TprFprModel",
    "Tuning",
    "evaluate",
    "frontier",
    "open_source",
    "prepare",
    "show_versions",
    "tune",
    "tune_by_group",
]

_NAMES = {
    "core.models": (
        "Bound",
        "CostModel",
        "ExpectedCost",
        "PrecisionRecallModel",
        "RejectionModel",
        "RiskFprModel",
        "TprFprModel",
    ),
    "core.rates": ("OperatingPoint", "evaluate"),
    "core.rule": ("BoxRule", "Rule"),
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
    "tuning.by_group": ("tune_by_group",),
    "tuning.frontier": ("Frontier", "frontier"),
    "tuning.prepared": ("Prepared", "prepare"),
    "tuning.result": ("Exact", "Grid", "SearchCertificate", "Tuning"),
    "tuning.tune": ("tune",),
}
_PLACES = {name: place for place, names in _NAMES.items() for name in names}
_ROOMS = (
    "adapters",
    "detectors",
    "errors",
    "guarantees",
    "learn",
    "losses",
    "metrics",
    "population",
    "report",
    "sources",
    "watch",
)


def __getattr__(name: str) -> Any:
    # Everything is imported when it is first used, so that import stays fast.
    if name in _ROOMS:
        return import_module(f"demur.{name}")
    if name == "__version__":
        from importlib.metadata import version

        return version("demur")
    if name == "Certificate":
        # The name under which the search first told how sure it is; promises have others.
        return _called_otherwise(name, "SearchCertificate")
    if name not in _PLACES:
        raise AttributeError(f"module 'demur' has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"demur.{_PLACES[name]}"), name)
    return found


def _called_otherwise(old: str, new: str) -> Any:
    import warnings

    said = f"demur.{old} is called demur.{new} now: it is about the search, not about new inputs"
    warnings.warn(said, DeprecationWarning, stacklevel=3)
    return __getattr__(new)


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS, "__version__"])


_PACKAGES = (
    "numpy",
    "scipy",
    "narwhals",
    "click",
    "pyarrow",
    "matplotlib",
    "scikit-learn",
    "torch",
    "onnx",
    "faiss-cpu",
)


def versions() -> dict[str, str]:
    """Return the engine and the versions of what demur uses, without importing the packages."""
    import platform

    from demur._kernels.engines import engine_name

    return {
        "demur": _version("demur"),
        "engine": engine_name(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: _version(name) for name in _PACKAGES},
    }


def show_versions() -> None:
    """Print what a bug report should contain, first of all the engine in use.

    Examples
    --------
    >>> import demur as dm
    >>> dm.show_versions()  # doctest: +ELLIPSIS
    demur ...
    engine ...
    """
    table = versions()
    width = max(map(len, table))
    for name, value in table.items():
        print(f"{name:<{width}}  {value}")


def _version(name: str) -> str:
    # Costs more than all of demur to import, so only when asked.
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
