"""scikit-learn: a classifier of any kind made selective.

Needs the extra ``sklearn``.
"""

from demur.errors import MissingExtraError

try:
    import sklearn as _sklearn  # noqa: F401
except ModuleNotFoundError:
    raise MissingExtraError("scikit-learn", "sklearn") from None

from demur.adapters.sklearn_classifier import SelectiveClassifier
from demur.adapters.sklearn_scores import NeighbourDistance

__all__ = ["NeighbourDistance", "SelectiveClassifier"]
