"""What looks like a mistake in the data but may be meant: it is said, never refused."""

from __future__ import annotations

import warnings
from typing import NamedTuple

import numpy as np

from demur._arrays import FloatArray
from demur.core.sample import Sample
from demur.errors import LikelyMistakeWarning

# Rows of each kind that are compared, and the least that say anything.
_LOOKED_AT, _LEAST = 500, 20
# How many standard errors an area must lie below one half.
_SURELY = 4.0


class Mistake(NamedTuple):
    """A likely mistake, for programs and for people."""

    kind: str
    """``"confidence"``, ``"correct"`` or ``"swapped"``."""
    column: str | None
    text: str


def likely_mistakes(sample: Sample) -> list[Mistake]:
    """Return what looks like a mistake: a confidence as doubt, *correct* as loss, sides swapped.

    A few hundred rows of each kind are looked at, whatever the size of the sample.
    """
    losses = _some(sample.id_loss)
    zero_one = bool(np.isin(losses, (0, 1)).all())
    mostly_wrong = zero_one and len(losses) >= _LEAST and float(losses.mean()) > 0.5
    found = []
    if mostly_wrong:
        found.append(
            Mistake(
                "correct",
                None,
                f"{losses.mean():.0%} of the losses are 1: a loss is 1 where the prediction is "
                "wrong; did you pass a column that is 1 where it is correct?",
            )
        )
    areas = [_areas(sample, column) for column in range(sample.columns.count)]
    foreign_below = [against_ood is not None and against_ood.below for against_ood, _ in areas]
    if foreign_below and all(foreign_below) and (mostly_wrong or _errors_above(areas)):
        shown = ", ".join(f"{ood.value:.2f}" for ood, _ in areas if ood is not None)
        found.append(
            Mistake(
                "swapped",
                None,
                f"OOD rows have less doubt than ID rows in every score (AUROC {shown}): are the ID "
                "and the OOD rows swapped?",
            )
        )
        return found
    return found + [m for k, area in enumerate(areas) if (m := _reversed(sample, k, *area))]


def warn_of_mistakes(sample: Sample, *, stacklevel: int) -> None:
    """Warn of each likely mistake."""
    for mistake in likely_mistakes(sample):
        warnings.warn(LikelyMistakeWarning(mistake.text), stacklevel=stacklevel + 1)


class _Area(NamedTuple):
    """The chance that a row of one kind has more doubt than a row of another."""

    value: float
    below: bool
    """Whether it surely is below one half."""


def _areas(sample: Sample, column: int) -> tuple[_Area | None, _Area | None]:
    """Return the AUROC of a score against OOD rows, and against errors."""
    sign = sample.columns.signs[column]
    own, foreign = sign * _some(sample.id_scores[:, column]), _some(sample.ood_scores[:, column])
    against_ood = _area(sign * foreign, own)
    if against_ood is not None and not against_ood.below:
        # One area that is not below one half settles it: the other is not needed.
        return against_ood, None
    wrong = _some(sample.id_loss) > 0
    return against_ood, _area(own[wrong], own[~wrong])


def _area(more: FloatArray, less: FloatArray) -> _Area | None:
    if min(len(more), len(less)) < _LEAST:
        return None
    ordered = np.sort(less)
    below = np.searchsorted(ordered, more) + np.searchsorted(ordered, more, side="right")
    value = float(below.mean()) / (2 * len(less))
    error = np.sqrt((1 / len(more) + 1 / len(less)) / 12)
    return _Area(value, bool(value < 0.5 - _SURELY * error))


def _errors_above(areas: list[tuple[_Area | None, _Area | None]]) -> bool:
    errors = [area for _, area in areas if area is not None]
    return bool(errors) and all(area.value > 0.5 for area in errors)


def _reversed(
    sample: Sample, column: int, against_ood: _Area | None, against_errors: _Area | None
) -> Mistake | None:
    """Return the mistake of a score that is lower wherever there is more to doubt."""
    known = [area for area in (against_ood, against_errors) if area is not None]
    if not known or not all(area.below for area in known):
        return None
    names = sample.columns.names
    name = f"score {column + 1}" if names is None else repr(names[column])
    told = "a confidence" if sample.columns.signs[column] > 0 else "a doubt"
    seen = " and ".join(
        f"{what} ({area.value:.2f})"
        for what, area in (("OOD rows", against_ood), ("errors", against_errors))
        if area is not None
    )
    return Mistake(
        "confidence",
        None if names is None else names[column],
        f"{name} points the other way: its AUROC is below one half for {seen}. Is it {told}? Then "
        "say so (confidence=, --confidence)",
    )


def _some(values: FloatArray) -> FloatArray:
    """Return some hundred values spread over all of them."""
    return values[:: max(1, len(values) // _LOOKED_AT)][:_LOOKED_AT]
