"""Scores of doubt from logits, features and the linear head: arrays in, scores out.

Detectors without training are functions; the others are fitted on training activations first.
`CATALOG` names them all. Higher = more doubt, everywhere.
"""

from demur.detectors.activations import Activations, Detector
from demur.detectors.arrays import as_scores
from demur.detectors.catalog import CATALOG, Entry, score_table
from demur.detectors.combine import PlugIn, Sirc, plug_in
from demur.detectors.features import Mahalanobis, RelativeMahalanobis, Vim
from demur.detectors.logits import energy, entropy, gen, gradnorm, mls, msp
from demur.detectors.neighbours import Knn
from demur.detectors.shaping import React, ash, react, scale

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
