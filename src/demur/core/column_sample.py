"""The sample that columns make, and what looks like a mistake in a sample.

Columns tell which rows are OOD, and the losses of the others. What looks like a mistake may be
meant: it is said, never refused.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur.core.columns import (
    ID_NAMES,
    OOD_NEEDS_NO_LOSS,
    Columns,
    check_losses,
    check_names,
    floats,
    numbers,
    refuse_values,
)
from demur.core.models import RejectionModel
from demur.core.sample import POOLED_NAME, Sample
from demur.errors import InvalidInputError, LikelyMistakeWarning
from demur.losses import Loss, evaluate_loss


def sample_from_columns(
    columns: Columns,
    scores: Sequence[str],
    *,
    loss: str | None = None,
    correct: str | None = None,
    label: str | None = None,
    prediction: str | None = None,
    loss_function: Loss = "zero_one",
    ood: str | None = None,
    weight: str | None = None,
    confidence: Sequence[str] = (),
    group: str | None = None,
) -> Sample:
    """Build a sample; the columns mean what they mean in `Sample.from_frame`.

    Parameters
    ----------
    confidence
        Those of `scores` in which higher means *less* doubt.

    Examples
    --------
    >>> columns = {
    ...     "conf": np.array([0.9, 0.3, 0.2]),
    ...     "wrong": np.array([0, 1, 0]),
    ...     "set": np.array(["id", "id", "svhn"]),
    ... }
    >>> sample = sample_from_columns(
    ...     columns, ["conf"], loss="wrong", ood="set", confidence=["conf"]
    ... )
    >>> sample, sample.id_scores[:, 0].tolist()
    (Sample(n_id=2, n_ood=1, scores=1, ood_sets=['svhn']), [0.9, 0.3])
    """
    roles = {"loss": loss, "correct": correct, "label": label, "prediction": prediction}
    named = [*roles.items(), ("ood", ood), ("weight", weight), ("group", group)]
    used = [("scores", n) for n in scores] + [(role, n) for role, n in named if n is not None]
    check_names(list(columns), used, "the table")
    if not scores:
        raise InvalidInputError("scores is empty: name the score columns")
    values = np.column_stack([_score(columns, name, name in confidence) for name in scores])
    if len(values) == 0:
        raise InvalidInputError("the table has no rows")
    is_ood, sets = ood_rows(columns, ood, len(values))
    id_rows = np.flatnonzero(~is_ood)
    if len(id_rows) == 0:
        raise InvalidInputError(f"ood: column {ood!r} marks every row as OOD: no ID row is left")
    check_losses(loss, correct, label, prediction)
    if told := loss or correct:
        argument = "loss" if loss else "correct"
        if ood is None:
            _refuse_empty_loss(columns, argument, told)
        id_loss = numbers(columns, argument, told, rows=id_rows, least=0.0 if loss else None)
        if correct:
            strange = id_rows[(id_loss != 0) & (id_loss != 1)]
            right, what = floats(columns, argument, told), "neither 1 (right) nor 0 (wrong)"
            refuse_values(argument, told, right, strange, what)
            id_loss = 1 - id_loss
    else:
        for argument, name in (("label", str(label)), ("prediction", str(prediction))):
            _refuse_empty_class(columns, argument, name, id_rows, known=ood is not None)
        id_loss = _class_loss(loss_function, columns, str(label), str(prediction), id_rows)
    weights = None if weight is None else numbers(columns, "weight", weight, least=0.0)
    return Sample(
        id_scores=values[id_rows],
        id_loss=id_loss,
        ood_scores={name: values[rows] for name, rows in sets.items()},
        id_weight=None if weights is None else weights[id_rows],
        ood_weight=None if weights is None else {n: weights[rows] for n, rows in sets.items()},
        score_names=tuple(scores),
        confidence=tuple(confidence),
        id_group=None if group is None else columns[group][id_rows],
    )


def _class_loss(
    loss: Loss, columns: Columns, label: str, prediction: str, rows: IntArray
) -> FloatArray:
    try:
        return evaluate_loss(loss, columns[label][rows], columns[prediction][rows])
    except InvalidInputError as error:
        said = str(error).replace("y_true", f"label: column {label!r}")
        said = said.replace("y_pred", f"prediction: column {prediction!r}")
        raise InvalidInputError(said) from None


def ood_rows(
    columns: Columns, name: str | None, length: int
) -> tuple[BoolArray, dict[str, IntArray]]:
    """Return which rows are OOD, and the rows of each OOD set by the set's name."""
    if name is None:
        return np.zeros(length, np.bool_), {POOLED_NAME: np.empty(0, np.int64)}
    column = columns[name]
    if column.dtype.kind in "biuf":
        flags = numbers(columns, "ood", name)
        bad = np.flatnonzero((flags != 0) & (flags != 1))
        if len(bad):
            raise InvalidInputError(
                f"ood: column {name!r}, row {int(bad[0])} is {flags[bad[0]]:g}; "
                "a flag must be 0 or 1"
            )
        return flags == 1, {POOLED_NAME: np.flatnonzero(flags == 1)}
    labels = np.array(["" if item is None else _text(item) for item in column.tolist()])
    labels = np.where(np.isin(np.strings.strip(np.strings.lower(labels)), ID_NAMES), "id", labels)
    is_ood = labels != "id"
    sets = {str(key): np.flatnonzero(labels == key) for key in np.unique(labels[is_ood])}
    return is_ood, sets or {POOLED_NAME: np.empty(0, np.int64)}


def _score(columns: Columns, name: str, confident: bool) -> FloatArray:
    """Return a score column as it is."""
    values = numbers(columns, "scores", name)
    if confident:
        # A saved rule reads the raw column, where only +inf has a meaning: always reject.
        infinite = np.flatnonzero(np.isinf(values))
        refuse_values("confidence", name, values, infinite, "not a finite confidence")
        return values
    refuse_values("scores", name, values, np.flatnonzero(np.isneginf(values)), "not a legal score")
    return values


def _refuse_empty_loss(columns: Columns, argument: str, name: str) -> None:
    values = floats(columns, argument, name)
    empty = np.flatnonzero(np.isnan(values))
    refuse_values(argument, name, values, empty, "not a finite number >= 0", OOD_NEEDS_NO_LOSS)


def _refuse_empty_class(
    columns: Columns, argument: str, name: str, rows: IntArray, *, known: bool
) -> None:
    """Refuse ID rows without a class; `known` says whether OOD rows are marked."""
    values = columns[name][rows].tolist() if columns[name].dtype.kind not in "biu" else []
    empty = [k for k, value in enumerate(values) if value is None or value == "" or value != value]
    if empty:
        raise InvalidInputError(
            f"{argument}: column {name!r}, row {int(rows[empty[0]])} is empty ({len(empty)} such "
            f"rows){'' if known else OOD_NEEDS_NO_LOSS}"
        )


def _text(item: Any) -> str:
    return item.decode(errors="replace") if isinstance(item, bytes) else str(item)


# Rows of each kind that are compared, and the least that say anything.
_LOOKED_AT, _LEAST = 500, 20
# How many standard errors an area must lie below one half.
_SURELY = 4.0


class Mistake(NamedTuple):
    """A likely mistake, for programs and for people."""

    kind: str
    """``"confidence"``, ``"correct"``, ``"swapped"`` or ``"per cent"``."""
    column: str | None
    text: str


def likely_mistakes(sample: Sample, model: RejectionModel | None = None) -> list[Mistake]:
    """Return what looks like a mistake: a confidence as doubt, *correct* as loss, sides swapped.

    A few hundred rows of each kind are looked at, whatever the size of the sample. Of a model:
    bounds on the selective risk that look like per cent.
    """
    losses = _some(sample.id_loss)
    zero_one = bool(((losses == 0) | (losses == 1)).all())
    mostly_wrong = zero_one and len(losses) >= _LEAST and float(losses.mean()) > 0.5
    found = [] if model is None else _in_per_cent(sample, model)
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
    # Where no errors tell, sides that are swapped are one mistake, two senses are two.
    unknown = len(areas) > 1 and all(errors is None for _, errors in areas)
    if foreign_below and all(foreign_below) and (mostly_wrong or unknown or _errors_above(areas)):
        shown = ", ".join(f"{ood.value:.2f}" for ood, _ in areas if ood is not None)
        found.append(
            Mistake(
                "swapped",
                None,
                f"OOD rows have less doubt than ID rows in every score (AUROC {shown}): are the ID "
                "and the OOD rows swapped?"
                + " Or are both scores the other way round (confidence=, --confidence)?"
                * unknown,
            )
        )
        return found
    return found + [m for k, area in enumerate(areas) if (m := _reversed(sample, k, *area))]


def warn_of_mistakes(sample: Sample, model: RejectionModel, *, stacklevel: int) -> None:
    """Warn of each likely mistake."""
    for mistake in likely_mistakes(sample, model):
        warnings.warn(LikelyMistakeWarning(mistake.text), stacklevel=stacklevel + 1)


def _in_per_cent(sample: Sample, model: RejectionModel) -> list[Mistake]:
    """Return the bounds above 1 on the selective risk, if no loss is above 1."""
    above = [b for b in model.bounds if b.quantity == "selective_risk" and b.share > 1]
    if not above or sample.id_loss.max(initial=0.0) > 1:
        return []
    value = float(above[0].share)
    return [
        Mistake(
            "per cent",
            None,
            f"a selective risk of at most {value:g} asks for nothing, as no loss is above 1: did "
            f"you mean {value / 100:g} ({value:g}%)?",
        )
    ]


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
    # Looking up values in their order is several times faster.
    ordered, more = np.sort(less), np.sort(more)
    below = np.searchsorted(ordered, more) + np.searchsorted(ordered, more, side="right")
    value = int(below.sum()) / (2 * len(less) * len(more))
    error = math.sqrt((1 / len(more) + 1 / len(less)) / 12)
    return _Area(value, value < 0.5 - _SURELY * error)


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
