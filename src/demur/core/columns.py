"""Columns by name as NumPy arrays, score columns with their senses, and the sample columns make.

Data frames of any library that narwhals knows are read here; files come here as columns. Columns
tell which rows are OOD, and the losses of the others.

Every place that weighs scores calls `combine`, and every place that puts a threshold between two
values calls `midway`: decisions have to agree to the last bit.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from demur import _arrays
from demur._arrays import BoolArray, FloatArray, IntArray
from demur.errors import InvalidInputError, ReadingWarning
from demur.losses import Loss, evaluate_loss

if TYPE_CHECKING:
    import narwhals as nw

    from demur.core.sample import Sample


@dataclass(frozen=True, slots=True)
class ScoreColumns:
    """The score columns of a sample, a source or a rule: their names, and the sense of each.

    A *doubt* is higher where more speaks for rejecting, a *confidence* lower. Searches know doubts
    only; rules are about the columns as they are, in which a confidence has the other sign.

    Examples
    --------
    >>> columns = ScoreColumns.of(["msp", "knn"], confidence=["msp"], count=2)
    >>> columns.signs, columns.raw_direction((0.6, 0.8))
    ((-1.0, 1.0), (-0.6, 0.8))
    """

    count: int
    names: tuple[str, ...] | None = None
    """None where the columns are known by their position only."""
    confidence: tuple[str, ...] = ()
    """Names of the columns that are confidences."""

    @property
    def titles(self) -> tuple[str, ...]:
        """What columns are called where words need a name: a number, if they have none."""
        return self.names or tuple(f"score {k + 1}" for k in range(self.count))

    @classmethod
    def of(
        cls, names: Sequence[str] | None, *, confidence: Sequence[str] = (), count: int
    ) -> ScoreColumns:
        """Check names and senses of `count` columns; a single name stands for itself."""
        names = (names,) if isinstance(names, str) else names
        confidence = (confidence,) if isinstance(confidence, str) else confidence
        if names is None:
            if confidence:
                raise InvalidInputError("confidence: columns need score_names to be told by name")
            return cls(count)
        if not _are_names(names) or len(names) != count or len(set(names)) != count:
            raise InvalidInputError(f"score_names must be {count} different names, got {names!r}")
        known = tuple(str(name) for name in names)
        if not _are_names(confidence):
            raise InvalidInputError(f"confidence must be a list of names, got {confidence!r}")
        strange = [name for name in confidence if name not in known]
        if strange:
            raise InvalidInputError(f"confidence: {strange[0]!r} is not one of the scores {known}")
        return cls(count, known, tuple(name for name in known if name in confidence))

    @property
    def signs(self) -> tuple[float, ...]:
        """1 for a doubt, -1 for a confidence."""
        if self.names is None:
            return (1.0,) * self.count
        return tuple(-1.0 if name in self.confidence else 1.0 for name in self.names)

    def as_doubts(self, scores: FloatArray) -> FloatArray:
        """Return columns as doubts; sign changes are exact, and undo themselves."""
        return scores * np.array(self.signs) if self.confidence else scores

    def raw_direction(self, direction: Sequence[float]) -> tuple[float, ...]:
        """Return weights of doubts as weights of the columns as they are."""
        # Adding zero turns -0.0 into 0.0.
        return tuple(sign * w + 0.0 for sign, w in zip(self.signs, direction, strict=True))


def _are_names(names: Any) -> bool:
    # Mostly a tuple: what is any other sequence takes several times as long to find out.
    listed = isinstance(names, (tuple, list)) or (
        isinstance(names, Sequence) and not isinstance(names, (str, bytes))
    )
    return listed and all(isinstance(name, str) for name in names)


def combine(direction: Sequence[float] | FloatArray, scores: FloatArray) -> FloatArray:
    """Weigh scores (n, k) in float64: products and sums rounded one by one, as SQL and C would.

    `direction` has shape (k,), or (k, rules, 1) for a row of results per rule.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        combined: FloatArray = direction[0] * scores[:, 0]
        for column in range(1, len(direction)):
            combined += direction[column] * scores[:, column]
    return combined


Columns = Mapping[str, npt.NDArray[Any]]

ID_NAMES = ("", "id")
"""Values of an OOD-set column that mark ID rows, in any spelling, besides a missing one."""

OOD_NEEDS_NO_LOSS = "; if these are the OOD rows, name the column that marks them (--ood COLUMN)"
"""Appended where losses are missing and no column says which rows are OOD."""

NEITHER_FLAG_NOR_NAME = "neither flags (0 and 1) nor names of OOD sets (text)"
"""What is said of a column that cannot tell which rows are OOD."""

# How flags look as text, the one for no first.
_WRITTEN_FLAGS = {"false": False, "true": True}

_SHOWN = 40


def check_names(available: Sequence[str], wanted: Iterable[tuple[str, str]], where: str) -> None:
    """Refuse the first (argument, name) in `wanted` that is not one of the columns.

    A name that is a column's but for spaces around it is taken for that one, and said.
    """
    for argument, asked in wanted:
        if not isinstance(asked, str):
            raise InvalidInputError(f"{argument} must be the name of a column, got {asked!r}")
        name = match_name(asked, available)
        if name != asked:
            warnings.warn(
                f"{argument}: {asked!r} is taken for the column {name!r} of {where}",
                ReadingWarning,
                # One place for all callers, so that it is said once.
                stacklevel=1,
            )
        if name not in available:
            raise InvalidInputError(
                f"{argument}: {where} has no column {name!r}; {guess(name, available)}"
                f"the columns are {listing(available)}"
            )
        if list(available).count(name) > 1:
            raise InvalidInputError(f"{argument}: {where} has several columns called {name!r}")


def match_name(name: str, available: Sequence[str]) -> str:
    """Return the column that a name means: that of this name, or else but for spaces around it."""
    if name in available:
        return name
    alike = [other for other in available if str(other).strip() == name.strip()]
    return alike[0] if len(alike) == 1 else name


def guess(name: str, available: Iterable[str]) -> str:
    """Return ``"did you mean ...? "``, or nothing if no name is close; case does not matter."""
    folded = {other.casefold(): other for other in available}
    close = difflib.get_close_matches(name.casefold(), folded, n=1)
    return f"did you mean {folded[close[0]]!r}? " if close else ""


def listing(names: Sequence[str]) -> str:
    """Return the names for a message, shortened when there are very many."""
    shown = ", ".join(map(repr, names[:_SHOWN]))
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return shown + more if names else "none"


def frame_columns(frame: Any, wanted: Iterable[tuple[str, str | None]]) -> Columns:
    """Return the columns named by (argument, column) pairs; columns that are None are left out."""
    import narwhals as nw

    native = _native(frame)
    table = native.collect() if isinstance(native, nw.LazyFrame) else native
    used = [(argument, name) for argument, name in wanted if name is not None]
    check_names(table.columns, used, "the frame")
    return {name: _values(table[match_name(name, table.columns)]) for _, name in used}


def frame_names(frame: Any) -> list[str]:
    """Return the names of the columns of a data frame."""
    return list(_native(frame).collect_schema().names())


def _native(frame: Any) -> Any:
    import narwhals as nw

    try:
        return nw.from_native(frame)
    except nw.exceptions.DuplicateError as error:
        raise InvalidInputError(f"frame has columns of the same name: {error}") from None
    except TypeError:
        raise InvalidInputError(
            f"frame is a {type(frame).__name__}, not a data frame that narwhals reads "
            "(pandas, polars, pyarrow, ...)"
        ) from None


def _values(series: nw.Series[Any]) -> npt.NDArray[Any]:
    """Return a column as an array; missing numbers are NaN, other missing values None."""
    import narwhals as nw

    kind = dtype_of(series)
    if kind.is_nested():
        raise InvalidInputError(f"column {series.name!r} holds {kind}, not one value a row")
    if kind.is_decimal() or are_decimals(series):
        # Libraries cast decimals to within an ulp; Python rounds them correctly.
        items = zip(series.to_list(), series.is_null().to_list(), strict=True)
        return np.array([np.nan if gone else float(item) for item, gone in items], np.float64)
    if kind.is_integer():
        return _whole_numbers(series)
    if kind.is_numeric() or kind == nw.Boolean:
        return series.cast(nw.Float64).fill_null(np.nan).to_numpy().astype(np.float64)
    # One by one: of lists that are equally long, NumPy would make an array of more dimensions.
    values = np.fromiter(series.to_list(), object, len(series))
    values[series.is_null().to_numpy().astype(bool)] = None
    return values


def dtype_of(series: nw.Series[Any]) -> Any:
    """Return the type of a column; unknown where narwhals has none for it."""
    import narwhals as nw

    try:
        return series.dtype
    except ValueError:
        # Decimals of a negative scale.
        return nw.Unknown()


def are_decimals(series: nw.Series[Any]) -> bool:
    """Return whether a column holds decimals of Arrow, of any width and scale."""
    native = series.to_native()
    kind = getattr(getattr(native, "dtype", None), "pyarrow_dtype", getattr(native, "type", None))
    return str(kind).startswith("decimal")


def _whole_numbers(series: nw.Series[Any]) -> npt.NDArray[Any]:
    """Return integers as they are: beyond 2^53, doubles would make two classes one."""
    missing = series.is_null().to_numpy().astype(bool)
    values = np.asarray(series.fill_null(0).to_numpy())
    if not missing.any():
        return values
    apart = values.astype(np.float64)
    if (np.abs(apart) < 2.0**53).all():
        return np.where(missing, np.nan, apart)
    objects = values.astype(object)
    objects[missing] = None
    return objects


def score_columns(
    scores: Any, columns: ScoreColumns, *, needed: Sequence[bool], refuse: bool
) -> FloatArray:
    """Return scores (n, k) in the order of `columns`: by name where they have names, else as given.

    Columns that are not `needed` may be absent, and then are NaN. Values that are no scores
    (missing, NaN, -inf) are refused or left as they are.
    """
    if has_columns(scores):
        return _named_scores(scores, columns, needed, refuse)
    checked = _arrays.score_matrix("scores", scores, columns=columns.count, strict=False)
    if refuse:
        _arrays.refuse_scores("scores", checked, [k for k in range(columns.count) if needed[k]])
    return checked


def has_columns(data: Any) -> bool:
    """Whether data have columns with names; a series, of which there is one, does not count."""
    if isinstance(data, (np.ndarray, list, tuple)):
        return False
    if isinstance(data, Mapping):
        return True
    # Asked of the type: some frames find their columns only at a price.
    return hasattr(type(data), "columns") or hasattr(type(data), "column_names")


def _named_scores(
    data: Any, columns: ScoreColumns, needed: Sequence[bool], refuse: bool
) -> FloatArray:
    if columns.names is None:
        raise InvalidInputError(
            "the rule has no score_names to read columns by: give an array of shape "
            f"(n, {columns.count}), or a rule with score_names"
        )
    mapping = isinstance(data, Mapping)
    available = [str(name) for name in data] if mapping else frame_names(data)
    matched = {name: match_name(name, available) for name in columns.names}
    wanted = [
        name
        for name, need in zip(columns.names, needed, strict=True)
        if need or matched[name] in available
    ]
    check_names(available, [("scores", name) for name in wanted], "the data")
    if mapping:
        given = {str(name): values for name, values in data.items()}
        table = {
            name: np.atleast_1d(_arrays.plain_array(name, given[matched[name]])) for name in wanted
        }
    else:
        table = dict(frame_columns(data, [("scores", name) for name in wanted]))
    length = max((len(table[name]) for name in wanted), default=0)
    values = np.full((length, columns.count), np.nan)
    for column, name in enumerate(columns.names):
        if name in wanted:
            found = floats(table, "scores", name)
            if len(found) != length:
                raise InvalidInputError(
                    f"scores: column {name!r} has {len(found)} of {length} rows"
                )
            values[:, column] = found
            if refuse and needed[column]:
                bad = np.flatnonzero(np.isnan(found) | np.isneginf(found))
                refuse_values("scores", name, found, bad, "not a score")
    return values


def named_scores(
    argument: str, data: Any, names: Sequence[str] | None
) -> tuple[tuple[str, ...], FloatArray]:
    """Return the columns `names` of a frame or a mapping, by default all of them, as scores."""
    if names is None:
        names = [str(n) for n in data] if isinstance(data, Mapping) else frame_names(data)
        if len(names) > 2:
            raise InvalidInputError(
                f"{argument} has the columns {listing(names)}: say which one or two are the "
                "scores, with score_names"
            )
    columns = ScoreColumns.of(names, count=len(names))
    needed = [True] * columns.count
    return columns.names or (), score_columns(data, columns, needed=needed, refuse=True)


def floats(columns: Columns, argument: str, name: str) -> FloatArray:
    """Return a column as floats, NaN where a value is missing."""
    column = columns[name]
    if column.dtype.kind == "O" and all(map(_is_number, column.flat)):
        try:
            return np.array([np.nan if item is None else item for item in column.flat], np.float64)
        except OverflowError:
            raise InvalidInputError(
                f"{argument}: column {name!r} holds a whole number beyond what a float can hold"
            ) from None
    if column.dtype.kind not in "biuf":
        raise InvalidInputError(f"{argument}: column {name!r} holds {_kind(column)}, not numbers")
    if column.ndim != 1:
        raise InvalidInputError(f"{argument}: column {name!r} has shape {column.shape}, not (n,)")
    return column.astype(np.float64)


def numbers(
    columns: Columns,
    argument: str,
    name: str,
    *,
    rows: IntArray | None = None,
    least: float | None = None,
) -> FloatArray:
    """Return a column, or some rows of it, as floats without NaN."""
    values = floats(columns, argument, name)
    rows = np.arange(len(values)) if rows is None else rows
    kept = values[rows]
    bad = np.isnan(kept) if least is None else ~((kept >= least) & np.isfinite(kept))
    wanted = "a number" if least is None else f"a finite number >= {least:g}"
    refuse_values(argument, name, values, rows[bad], f"not {wanted}")
    return np.asarray(kept)


def refuse_values(
    argument: str, name: str, values: FloatArray, bad: IntArray, what: str, hint: str = ""
) -> None:
    """Refuse a column for its bad rows, if there are any."""
    if len(bad):
        raise InvalidInputError(
            f"{argument}: column {name!r}, row {int(bad[0])} is {values[bad[0]]}, {what} "
            f"({len(bad)} such rows){hint}"
        )


def _kind(column: npt.NDArray[Any]) -> str:
    if column.dtype.kind in "OUS":
        # Beside numbers, text is what is wrong; rows of several files may be of both.
        others = (item for item in column.tolist() if column.ndim != 1 or not _is_number(item))
        first = next(others, None)
        return f"{type(first).__name__} values such as {first!r}"
    return str(column.dtype)


def _is_number(item: Any) -> bool:
    return item is None or isinstance(item, (Real, Decimal, np.bool_))


def check_losses(
    loss: str | None, correct: str | None, label: str | None, prediction: str | None
) -> None:
    """Refuse losses that are told in no way, or in two."""
    pair = label is not None and prediction is not None
    ways = [loss is not None, correct is not None, pair]
    alone = not pair and (label is not None or prediction is not None)
    if sum(ways) != 1 or alone:
        raise InvalidInputError("give either loss, or label and prediction, or correct")


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
    part: bool = False,
) -> Sample:
    """Build a sample; the columns mean what they mean in `Sample.from_frame`.

    Parameters
    ----------
    confidence
        Those of `scores` in which higher means *less* doubt.
    part
        Whether these are some of the rows, of which no OOD row need be marked.

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
    from demur.core.sample import Sample

    roles = {"loss": loss, "correct": correct, "label": label, "prediction": prediction}
    named = [*roles.items(), ("ood", ood), ("weight", weight), ("group", group)]
    used = [("scores", n) for n in scores] + [(role, n) for role, n in named if n is not None]
    check_names(list(columns), used, "the table")
    if not scores:
        raise InvalidInputError("scores is empty: name the score columns")
    values = np.column_stack([_score(columns, name, name in confidence) for name in scores])
    if len(values) == 0:
        raise InvalidInputError("the table has no rows")
    if not part:
        refuse_unclear_ood(columns, ood)
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
    from demur.core.sample import POOLED_NAME

    if name is None:
        return np.zeros(length, np.bool_), {POOLED_NAME: np.empty(0, np.int64)}
    column = columns[name]
    if _are_flags(column):
        flags = numbers(columns, "ood", name)
        bad = np.flatnonzero((flags != 0) & (flags != 1))
        if len(bad):
            raise InvalidInputError(
                f"ood: column {name!r}, row {int(bad[0])} is {flags[bad[0]]:g}; "
                "a flag must be 0 or 1"
            )
        return flags == 1, {POOLED_NAME: np.flatnonzero(flags == 1)}
    _refuse_unnamed(name, column)
    labels = np.array(["" if item is None else _text(item) for item in column.tolist()])
    labels = np.where(np.isin(np.strings.strip(np.strings.lower(labels)), ID_NAMES), "id", labels)
    is_ood = labels != "id"
    sets = {str(key): np.flatnonzero(labels == key) for key in np.unique(labels[is_ood])}
    if are_written_flags(sets):
        raise written_flags_error(name, sets)
    return is_ood, sets or {POOLED_NAME: np.empty(0, np.int64)}


def _are_flags(column: npt.NDArray[Any]) -> bool:
    """Return whether a column says yes or no, also where it may hold any object."""
    if column.dtype.kind != "O":
        return column.dtype.kind in "biuf"
    items = column.tolist()
    return any(item is not None for item in items) and all(map(_is_number, items))


def _refuse_unnamed(name: str, column: npt.NDArray[Any]) -> None:
    """Refuse what is neither a flag nor the name of a set, such as dates, lists or bytes."""
    for item in column.tolist():
        if item is not None and not isinstance(item, (str, Real, Decimal)):
            raise InvalidInputError(
                f"ood: column {name!r} holds {type(item).__name__} values such as {item!r}, "
                f"{NEITHER_FLAG_NOR_NAME}"
            )


def are_written_flags(sets: Iterable[str], *, id_named: bool = True) -> bool:
    """Return whether names of OOD sets are flags as text.

    One of them says *no*; or all say *yes* and no ID row is named, so that flags may be missing.

    Examples
    --------
    >>> are_written_flags(["False", "True"]), are_written_flags(["far", "false"])
    (True, False)
    >>> are_written_flags(["1.00"]), are_written_flags(["1.00"], id_named=False)
    (False, True)
    """
    flags = {_written_flag(name) for name in sets}
    return bool(flags) and None not in flags and (False in flags or not id_named)


def _written_flag(text: str) -> bool | None:
    """Return what a flag says that became text; None where it is none."""
    bare = text.strip().lower()
    try:
        number = Decimal(bare)
        return bool(number) if number in (0, 1) else None
    except InvalidOperation:
        return _WRITTEN_FLAGS.get(bare)


def refuse_unclear_ood(columns: Columns, name: str | None) -> None:
    """Refuse a column of all rows that says of none whether it is OOD, or may lack flags."""
    column = columns[name] if name and name in columns else np.zeros(0)
    if not len(column) or column.dtype.kind in "biu":
        return
    if column.dtype.kind == "f":
        silent, names = bool(np.isnan(column).all()), set[Any]()
    else:
        known = [item for item in column.tolist() if not _is_empty(item)]
        silent = not known
        names = set(known) if all(isinstance(item, str) for item in known) else set()
    if silent:
        raise silent_ood_error(name, len(column))
    if are_written_flags(names, id_named=False):
        raise written_flags_error(name, sorted(names))


def _is_empty(item: Any) -> bool:
    """Return whether nothing is said: None, NaN, or text without a letter."""
    if isinstance(item, (float, str)):
        return item != item or not str(item).strip()
    return item is None


def silent_ood_error(name: str | None, rows: int) -> InvalidInputError:
    """Return what is said of a column that says nothing.

    Where it has no type, as in some files and databases, nobody could tell missing flags, which
    are refused, from names of OOD sets that are missing because all rows are ID.
    """
    return InvalidInputError(
        f"ood: column {name!r} is empty in all {rows:,} rows, so it says of none whether it is "
        "OOD; leave it out if all rows are ID, or write 'id' in it"
    )


def written_flags_error(name: str | None, sets: Iterable[str]) -> InvalidInputError:
    """Return what is said of flags as text."""
    return InvalidInputError(
        f"ood: column {name!r} holds {', '.join(map(repr, sets))} as text, which would be names of "
        "OOD sets: store flags as flags or as numbers, or give the sets other names and write 'id' "
        "in ID rows"
    )


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
