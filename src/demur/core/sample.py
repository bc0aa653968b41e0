"""Scored validation data: ID rows with losses, OOD rows without; and what looks like a mistake.

What looks like a mistake may be meant: it is said, never refused.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from demur import _arrays
from demur._arrays import FloatArray
from demur.core.columns import ScoreColumns
from demur.errors import InvalidInputError, LikelyMistakeWarning
from demur.losses import Loss, evaluate_loss

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from demur.core.models import RejectionModel


from demur._arrays import BoolArray

POOLED_NAME = "ood"


@dataclass(frozen=True, slots=True, eq=False, init=False)
class Sample:
    """Scores and losses of ID rows, scores of OOD rows. A higher score means more doubt.

    Parameters
    ----------
    id_scores
        Shape (n_id,) or (n_id, k): one score s, or the pair (s_r, s_g), which is what can be
        tuned; `demur.learn` makes a pair of more. +inf is legal and means "always reject"; NaN
        and -inf are refused.
    id_loss
        Shape (n_id,): l(y, h(x)) >= 0 of each ID row.
    ood_scores
        Like `id_scores`, or a dict of named OOD sets. None or empty for the models without
        OOD data.
    id_weight, ood_weight
        Optional non-negative weights; for named OOD sets a dict with the same names.
    score_names
        Names of the score columns, carried into the tuned rule. Data frames and dicts of columns
        are read by them, or bring them.
    confidence
        Which of the columns are confidences: higher means *less* doubt.
    id_group
        Shape (n_id,): which group each ID row belongs to, for bounds on single groups.

    Examples
    --------
    >>> sample = Sample(id_scores=[0.1, 0.2, 0.9], id_loss=[0, 0, 1], ood_scores=[0.7, 0.8])
    >>> sample
    Sample(n_id=3, n_ood=2, scores=1)
    """

    id_scores: FloatArray
    id_loss: FloatArray
    ood_scores: FloatArray
    id_weight: FloatArray | None
    ood_weight: FloatArray | None
    columns: ScoreColumns
    """Names of the score columns and the sense of each."""
    ood_sets: Mapping[str, slice]
    """Rows of each named OOD set; a single unnamed set is called ``"ood"``."""
    groups: tuple[str, ...]
    """Names of the groups of ID rows, ascending."""
    group_code: NDArray[np.int32] | None
    """The place of each ID row's group in `groups`."""

    def __init__(
        self,
        id_scores: ArrayLike | Mapping[str, ArrayLike],
        id_loss: ArrayLike,
        ood_scores: ArrayLike | Mapping[str, ArrayLike | Mapping[str, ArrayLike]] | None = None,
        id_weight: ArrayLike | None = None,
        ood_weight: ArrayLike | Mapping[str, ArrayLike] | None = None,
        score_names: Sequence[str] | None = None,
        confidence: Sequence[str] = (),
        id_group: ArrayLike | None = None,
    ) -> None:
        score_names = [score_names] if isinstance(score_names, str) else score_names
        score_names, scores = _named_matrix("id_scores", id_scores, score_names)
        if len(scores) == 0:
            raise InvalidInputError("id_scores is empty: at least one ID row is needed")
        n, k = scores.shape
        loss = _arrays.nonnegative_vector("id_loss", id_loss, length=n)
        columns = ScoreColumns.of(score_names, confidence=confidence, count=k)
        foreign, sets = _join_ood(ood_scores, columns)
        for side, part in (("id_scores", scores), ("ood_scores", foreign)):
            _refuse_infinite(side, part, columns)
        weight = _weight("id_weight", id_weight, n)
        if weight is not None and not weight.any():
            raise InvalidInputError("id_weight is zero on every row: some ID weight is needed")
        groups, group_code = _groups(id_group, n)
        made = {
            "id_scores": scores,
            "id_loss": loss,
            "ood_scores": foreign,
            "id_weight": weight,
            "ood_weight": _join_ood_weight(ood_weight, sets, len(foreign)),
            "columns": columns,
            "ood_sets": sets,
            "groups": groups,
            "group_code": group_code,
        }
        for name, value in made.items():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
            object.__setattr__(self, name, value)

    @property
    def id_group(self) -> NDArray[np.str_] | None:
        """The group of each ID row; None if they have none."""
        return None if self.group_code is None else np.array(self.groups)[self.group_code]

    @property
    def score_names(self) -> tuple[str, ...] | None:
        """Names of the score columns, where known."""
        return self.columns.names

    @classmethod
    def from_predictions(
        cls,
        id_scores: Any,
        y_true: Any,
        y_pred: Any,
        *,
        ood_scores: Any = None,
        loss: Loss = "zero_one",
        id_weight: Any = None,
        ood_weight: Any = None,
        score_names: Sequence[str] | None = None,
        confidence: Sequence[str] = (),
        id_group: Any = None,
    ) -> Sample:
        """Build a sample from labels and predictions of the ID rows.

        Parameters
        ----------
        y_true, y_pred
            Labels and predictions, shape (n_id,).
        loss
            ``"zero_one"``, ``"absolute"``, a cost matrix, or a callable.

        Examples
        --------
        >>> s = Sample.from_predictions([0.1, 0.9], ["cat", "dog"], ["cat", "cat"])
        >>> s.id_loss
        array([0., 1.])
        """
        return cls(
            id_scores=id_scores,
            id_loss=evaluate_loss(loss, y_true, y_pred),
            ood_scores=ood_scores,
            id_weight=id_weight,
            ood_weight=ood_weight,
            score_names=score_names,
            confidence=confidence,
            id_group=id_group,
        )

    @classmethod
    def from_frame(
        cls,
        frame: Any,
        scores: str | Sequence[str],
        *,
        loss: str | None = None,
        correct: str | None = None,
        label: str | None = None,
        prediction: str | None = None,
        loss_function: Loss = "zero_one",
        ood: str | None = None,
        weight: str | None = None,
        confidence: str | Sequence[str] = (),
        group: str | None = None,
    ) -> Sample:
        """Build a sample from named columns of a pandas, polars, pyarrow, ... data frame.

        Parameters
        ----------
        scores
            One or two score columns, or more for `demur.learn`.
        loss
            Column of losses, read on ID rows only; or give `label` and `prediction`, from which
            `loss_function` computes them.
        correct
            In place of losses, a column with 1 where the prediction is right and 0 where it is
            wrong.
        ood
            Column that tells OOD rows: a flag (bool or 0/1), or the name of the OOD set, where
            null, ``""`` and ``"id"`` mark ID rows.
        weight
            Column of weights.
        confidence
            Those of `scores` in which higher means *less* doubt.
        group
            Column of groups, read on ID rows only.

        Examples
        --------
        >>> import polars as pl
        >>> frame = pl.DataFrame(
        ...     {"msp": [0.1, 0.7, 0.8], "wrong": [0, 1, None], "set": ["id", "id", "svhn"]}
        ... )
        >>> Sample.from_frame(frame, "msp", loss="wrong", ood="set")
        Sample(n_id=2, n_ood=1, scores=1, ood_sets=['svhn'])
        """
        from demur.core.columns import frame_columns, sample_from_columns

        if not isinstance(scores, (str, Sequence)):
            raise InvalidInputError(f"scores must be names of columns, got {scores!r}")
        names = [scores] if isinstance(scores, str) else list(scores)
        roles: dict[str, Any] = {
            "loss": loss,
            "correct": correct,
            "label": label,
            "prediction": prediction,
            "ood": ood,
            "weight": weight,
            "group": group,
        }
        columns = frame_columns(frame, [*(("scores", name) for name in names), *roles.items()])
        confident = [confidence] if isinstance(confidence, str) else list(confidence)
        return sample_from_columns(
            columns, names, loss_function=loss_function, confidence=confident, **roles
        )

    @property
    def id_doubts(self) -> FloatArray:
        """Scores of the ID rows as doubts: confidences have the other sign."""
        return self.columns.as_doubts(self.id_scores)

    @property
    def ood_doubts(self) -> FloatArray:
        """Scores of the OOD rows as doubts."""
        return self.columns.as_doubts(self.ood_scores)

    @property
    def n_id(self) -> int:
        """Number of ID rows."""
        return len(self.id_scores)

    @property
    def n_ood(self) -> int:
        """Number of OOD rows, all sets together."""
        return len(self.ood_scores)

    @property
    def n_scores(self) -> int:
        """Number of scores a row."""
        return int(self.id_scores.shape[1])

    def score(self, column: int) -> Sample:
        """Return the single-score sample of one column."""
        if not isinstance(column, (int, np.integer)) or not 0 <= column < self.n_scores:
            raise InvalidInputError(f"column must be 0 to {self.n_scores - 1}, got {column!r}")
        return self._with_scores(
            self.id_scores[:, column],
            self.ood_scores[:, column],
            [column],
        )

    def for_ood(self, name: str) -> Sample:
        """Return the sample with only the named OOD set."""
        if not isinstance(name, str) or name not in self.ood_sets:
            raise InvalidInputError(
                f"no OOD set is called {name!r}; there are {sorted(self.ood_sets)}"
            )
        rows = self.ood_sets[name]
        return Sample(
            id_scores=self.id_scores,
            id_loss=self.id_loss,
            ood_scores={name: self.ood_scores[rows]},
            id_weight=self.id_weight,
            ood_weight=None if self.ood_weight is None else {name: self.ood_weight[rows]},
            score_names=self.score_names,
            confidence=self.columns.confidence,
            id_group=self.id_group,
        )

    def subset(self, id_rows: Any, ood_rows: Any) -> Sample:
        """Return some rows; OOD rows are counted over all sets, which keep their names."""
        try:
            kept, own = np.arange(self.n_ood)[ood_rows], np.arange(self.n_id)[id_rows]
        except (IndexError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"rows must be positions, flags or slices of {self.n_id} ID and {self.n_ood} OOD "
                f"rows: {error}"
            ) from None
        if own.ndim != 1 or kept.ndim != 1:
            raise InvalidInputError("rows must be several positions, flags or a slice")
        sets = {
            name: kept[(kept >= rows.start) & (kept < rows.stop)]
            for name, rows in self.ood_sets.items()
        }
        return Sample(
            id_scores=self.id_scores[id_rows],
            id_loss=self.id_loss[id_rows],
            ood_scores={name: self.ood_scores[rows] for name, rows in sets.items()},
            id_weight=None if self.id_weight is None else self.id_weight[id_rows],
            ood_weight=None
            if self.ood_weight is None
            else {name: self.ood_weight[rows] for name, rows in sets.items()},
            score_names=self.score_names,
            confidence=self.columns.confidence,
            id_group=None if self.id_group is None else self.id_group[id_rows],
        )

    def _with_scores(
        self, id_scores: FloatArray, ood_scores: FloatArray, kept: list[int]
    ) -> Sample:
        names = None if self.score_names is None else [self.score_names[k] for k in kept]
        sets = {name: ood_scores[rows] for name, rows in self.ood_sets.items()}
        return Sample(
            id_scores=id_scores,
            id_loss=self.id_loss,
            ood_scores=sets,
            id_weight=self.id_weight,
            ood_weight=None
            if self.ood_weight is None
            else {name: self.ood_weight[rows] for name, rows in self.ood_sets.items()},
            score_names=names,
            confidence=[n for n in names or () if n in self.columns.confidence],
            id_group=self.id_group,
        )

    def __repr__(self) -> str:
        sets = "" if list(self.ood_sets) == [POOLED_NAME] else f", ood_sets={list(self.ood_sets)}"
        groups = f", groups={list(self.groups)}" if self.groups else ""
        return f"Sample(n_id={self.n_id}, n_ood={self.n_ood}, scores={self.n_scores}{sets}{groups})"


def _named_matrix(
    name: str, scores: Any, names: Sequence[str] | None
) -> tuple[Sequence[str] | None, FloatArray]:
    """Return scores with their names: columns of a frame are read by name, arrays by position."""
    # Imported here, since most samples are made of arrays.
    from demur.core.columns import has_columns, named_scores

    if not has_columns(scores):
        return names, _arrays.score_matrix(name, scores)
    return named_scores(name, scores, names)


def _refuse_infinite(name: str, scores: FloatArray, columns: ScoreColumns) -> None:
    """Refuse an infinite confidence: only a doubt of +inf has a meaning, always to reject."""
    for column, confident in enumerate(sign < 0 for sign in columns.signs):
        if confident:
            bad = np.isinf(scores[:, column])
            _arrays.refuse(name, scores, bad, "is not a finite confidence")


def _join_ood(scores: Any, columns: ScoreColumns) -> tuple[FloatArray, dict[str, slice]]:
    """Stack named OOD sets and remember their rows."""
    named = scores if isinstance(scores, Mapping) else {POOLED_NAME: scores}
    if not named:
        raise InvalidInputError("ood_scores is an empty dict: give None for no OOD data")
    parts: list[FloatArray] = []
    sets: dict[str, slice] = {}
    start = 0
    for name, values in named.items():
        label = f"ood_scores[{name!r}]" if isinstance(scores, Mapping) else "ood_scores"
        part = np.empty((0, columns.count))
        if values is not None:
            _, part = _named_matrix(label, values, columns.names)
            part = _arrays.score_matrix(label, part, columns=columns.count)
        if str(name) in sets:
            raise InvalidInputError(f"ood_scores has two sets called {str(name)!r}")
        parts.append(part)
        sets[str(name)] = slice(start, start + len(part))
        start += len(part)
    return np.concatenate(parts), sets


def _join_ood_weight(weight: Any, sets: Mapping[str, slice], length: int) -> FloatArray | None:
    if not isinstance(weight, Mapping):
        return _weight("ood_weight", weight, length)
    if set(weight) != set(sets):
        raise InvalidInputError(
            f"ood_weight names {sorted(map(str, weight))}, ood_scores names {sorted(sets)}"
        )
    parts = [
        _arrays.nonnegative_vector(f"ood_weight[{name!r}]", weight[name], length=s.stop - s.start)
        for name, s in sets.items()
    ]
    return np.concatenate(parts)


def _groups(labels: Any, length: int) -> tuple[tuple[str, ...], NDArray[np.int32] | None]:
    """Return the names of groups, ascending, and the place of each row's group among them."""
    if labels is None:
        return (), None
    named = _arrays.labels("id_group", labels, length=length)
    if named.dtype.kind == "f":
        # Numbers may come as floats or as integers, as others are missing or not.
        _arrays.refuse("id_group", named, named != np.floor(named), "is not a whole number")
        named = named.astype(np.int64)
    if named.dtype.kind == "b":
        # Files and frames hand flags over as numbers, and so do engines that count.
        named = np.where(named, "1", "0")
    named = named.astype(str)
    _arrays.refuse("id_group", named, named == "", "is missing")
    names, code = np.unique(named, return_inverse=True)
    return tuple(names.tolist()), code.astype(np.int32)


def _weight(name: str, weight: Any, length: int) -> FloatArray | None:
    if weight is None:
        return None
    array = _arrays.nonnegative_vector(name, weight, length=length)
    if not np.isfinite(array.sum()):
        raise InvalidInputError(f"{name} adds up to more than a float can hold")
    return array


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


def members(sample: Sample, group: str | None) -> BoolArray:
    """Return which ID rows are of a group; all of them without one."""
    if group is None:
        return np.ones(sample.n_id, np.bool_)
    if sample.group_code is None or group not in sample.groups:
        return np.zeros(sample.n_id, np.bool_)
    return np.asarray(sample.group_code == sample.groups.index(group))
