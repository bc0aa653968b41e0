"""Every error demur raises on purpose, and its warnings.

```
DemurError(Exception)
├─ InvalidInputError(ValueError)   shape, NaN, negative loss or weight, bound outside its range
├─ InfeasibleError                 no rule meets the bounds; carries the nearest attainable ones
├─ NotTunedError                   an adapter was used before tuning
└─ MissingExtraError(ImportError)  names the extra to install
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class DemurError(Exception):
    """Root of all errors raised by demur."""


class InvalidInputError(DemurError, ValueError):
    """An argument cannot be used; the message names it and the first offending row."""


class InfeasibleError(DemurError):
    """No rule meets the asked bounds.

    Attributes
    ----------
    model
        The rejection model whose bounds cannot be met.
    attainable
        The nearest attainable bounds by name, for example
        ``{"max_tpr": 0.59, "min_fpr": 0.33}``: the largest TPR at the asked FPR and the
        smallest FPR at the asked TPR. NaN where no rule meets the other bound at all.
    """

    def __init__(self, message: str, *, model: Any, attainable: Mapping[str, float]) -> None:
        super().__init__(message)
        self.model = model
        self.attainable = dict(attainable)

    def __reduce__(self) -> tuple[Any, ...]:
        # The default would call __init__ without the keyword arguments when unpickled.
        return _rebuild_infeasible, (str(self), self.model, self.attainable)


def _rebuild_infeasible(message: str, model: Any, attainable: dict[str, float]) -> InfeasibleError:
    return InfeasibleError(message, model=model, attainable=attainable)


class NotTunedError(DemurError):
    """A rule was asked for before it was tuned."""


class MissingExtraError(DemurError, ImportError):
    """An optional package is needed; the message names the extra that brings it."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"this needs the package {package!r}, which is not installed; "
            f"install it with: pip install 'demur[{extra}]'"
        )
        self.package = package
        self.extra = extra

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.package, self.extra)


class LikelyMistakeWarning(UserWarning):
    """The data look as if something was mixed up; what was asked is done all the same."""


class ReadingWarning(LikelyMistakeWarning):
    """A file was read in a way that had to be guessed, such as by another separator."""


class ScoreUnitsWarning(UserWarning):
    """A grid of angles is searched over two scores whose units differ too much for it."""
