"""Data and models of other packages: scikit-learn, PyTorch, OpenOOD, logs of language models.

Each adapter is imported when it is first used, and its package with it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ["llm", "openood", "sklearn", "torch"]

if TYPE_CHECKING:
    from demur.adapters import llm as llm
    from demur.adapters import openood as openood
    from demur.adapters import sklearn as sklearn
    from demur.adapters import torch as torch
else:

    def __getattr__(name):
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return import_module(f"{__name__}.{name}")


def __dir__() -> list[str]:
    return __all__
