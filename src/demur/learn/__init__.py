"""More than two scores, or nothing known of what is foreign: learning the doubts that decide.

`fit` makes of k scores the risk r and the ratio g that the best rule depends on, `tune_linear`
finds a rule that weighs k scores, and `from_traffic` learns g from unlabelled live inputs.
"""

from demur.learn.doubts import Learned, LearnedRule
from demur.learn.fitting import fit
from demur.learn.planes import LinearTuning, tune_linear
from demur.learn.traffic import Traffic, from_traffic

__all__ = [
    "Learned",
    "LearnedRule",
    "LinearTuning",
    "Traffic",
    "fit",
    "from_traffic",
    "tune_linear",
]


def __dir__() -> list[str]:
    return __all__
