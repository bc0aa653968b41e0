"""Every error demur raises on purpose, and its warnings.

::

    DemurError(Exception)
    ├─ InvalidInputError(ValueError)   shape, NaN, negative loss or weight, bound outside its range
    ├─ InfeasibleError                 no rule meets the bounds; carries the nearest attainable ones
    ├─ NotTunedError                   an adapter was used before tuning
    └─ MissingExtraError(ImportError)  names the extra to install
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

__all__ = [
    "DemurError",
    "InfeasibleError",
    "InvalidInputError",
    "LikelyMistakeWarning",
    "MissingExtraError",
    "NotTunedError",
    "ReadingWarning",
    "ScoreUnitsWarning",
]


class DemurError(Exception):
    """Root of all errors raised by demur.

    Examples
    --------
    >>> import demur as dm
    >>> try:
    ...     dm.TprFprModel(min_tpr=80)
    ... except dm.DemurError as error:
    ...     print(error)
    min_tpr must be in [0, 1], got 80
    """


class InvalidInputError(DemurError, ValueError):
    """An argument cannot be used; the message names it and the first offending row.

    Examples
    --------
    >>> import demur as dm
    >>> try:
    ...     dm.Sample([0.1, float("nan")], [0, 1])
    ... except dm.InvalidInputError as error:
    ...     print(error)
    id_scores[1] is NaN: [nan]
    """


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

    Examples
    --------
    >>> import demur as dm
    >>> sample = dm.Sample([1, 2, 3], [0, 0, 1], [2, 4])
    >>> try:
    ...     dm.tune(sample, dm.TprFprModel(min_tpr=1, max_fpr=0))
    ... except dm.InfeasibleError as error:
    ...     print(error.attainable)
    {'max_tpr': 0.3333333333333333, 'min_fpr': 0.5}
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
    """A rule was asked for before it was tuned.

    Examples
    --------
    >>> import demur as dm
    >>> from demur.detectors import Knn
    >>> try:
    ...     Knn(k=1).score([[0.0, 1.0]])
    ... except dm.DemurError as error:
    ...     print(type(error).__name__)
    NotTunedError
    """


class MissingExtraError(DemurError, ImportError):
    """An optional package is needed; the message names the extra that brings it.

    Examples
    --------
    >>> import demur as dm
    >>> error = dm.MissingExtraError("torch", "torch")
    >>> error.package, error.extra
    ('torch', 'torch')
    """

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
    """The data look as if something was mixed up; what was asked is done all the same.

    Examples
    --------
    >>> import demur as dm
    >>> import warnings
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     # Confidences given as doubts: what is foreign looks more trustworthy.
    ...     tuned = dm.tune(dm.Sample(range(50, 100), [0] * 50, range(50)), dm.TprFprModel(0.5))
    >>> any(issubclass(one.category, dm.LikelyMistakeWarning) for one in said)
    True
    """


class ReadingWarning(LikelyMistakeWarning):
    """A file was read in a way that had to be guessed, such as by another separator.

    Examples
    --------
    >>> from demur.errors import LikelyMistakeWarning, ReadingWarning
    >>> issubclass(ReadingWarning, LikelyMistakeWarning)
    True
    """


class ScoreUnitsWarning(UserWarning):
    """A grid of angles is searched over two scores whose units differ too much for it.

    Examples
    --------
    >>> import demur as dm
    >>> import warnings
    >>> sample = dm.Sample([[1, 1e6], [2, 3e6], [3, 2e6]], [0, 0, 1], [[3, 4e6]])
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     tuned = dm.tune(sample, dm.TprFprModel(0.5), search=dm.Grid(360))
    >>> [one.category.__name__ for one in said]
    ['ScoreUnitsWarning']
    """


def __dir__() -> list[str]:
    return __all__
