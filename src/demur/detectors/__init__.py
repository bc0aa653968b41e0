"""Scores of doubt from logits, features and the linear head: arrays in, scores out.

Detectors without training are functions; the others are fitted on training activations first.
`CATALOG` names them all. Higher = more doubt, everywhere.
"""

from demur.detectors.activations import Activations, Detector, as_scores
from demur.detectors.catalog import CATALOG, Entry, PlugIn, Sirc, plug_in, score_table
from demur.detectors.features import Knn, Mahalanobis, RelativeMahalanobis, Vim
from demur.detectors.logits import (
    React,
    ash,
    energy,
    entropy,
    gen,
    gradnorm,
    mls,
    msp,
    react,
    scale,
)

__all__ = [
    "CATALOG",
    "Activations",
    "Detector",
    "Entry",
    "Knn",
    "Mahalanobis",
    "PlugIn",
    "React",
    "RelativeMahalanobis",
    "Sirc",
    "Vim",
    "as_scores",
    "ash",
    "energy",
    "entropy",
    "gen",
    "gradnorm",
    "mls",
    "msp",
    "plug_in",
    "react",
    "scale",
    "score_table",
]


def __dir__() -> list[str]:
    return __all__
