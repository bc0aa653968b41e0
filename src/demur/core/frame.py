"""Reading a sample from the columns of a data frame, of any library that narwhals knows."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from demur._arrays import BoolArray, FloatArray
from demur.core.sample import POOLED_NAME, Sample
from demur.errors import InvalidInputError
from demur.losses import Loss, evaluate_loss

if TYPE_CHECKING:
    import narwhals as nw

ID_NAMES = ("", "id")
"""Values of an OOD-set column that mark ID rows, besides null."""


def sample_from_frame(
    frame: Any,
    *,
    scores: Sequence[str],
    loss: str | None = None,
    label: str | None = None,
    prediction: str | None = None,
    loss_function: Loss = "zero_one",
    ood: str | None = None,
    weight: str | None = None,
) -> Sample:
    """Build a sample; see `Sample.from_frame`."""
    columns = _Columns(frame)
    names = [scores] if isinstance(scores, str) else list(scores)
    values = np.column_stack([columns.numbers("scores", name) for name in names])
    is_ood, sets = _ood_rows(columns, ood)
    id_rows = np.flatnonzero(~is_ood)
    if len(id_rows) == 0:
        raise InvalidInputError(f"column {ood!r} marks every row as OOD: no ID row is left")
    if (loss is None) == (label is None or prediction is None):
        raise InvalidInputError("give either loss, or label and prediction")
    if loss is not None:
        id_loss = columns.numbers("loss", loss, rows=id_rows, least=0.0)
    else:
        id_loss = evaluate_loss(
            loss_function,
            columns.values("label", str(label))[id_rows],
            columns.values("prediction", str(prediction))[id_rows],
        )
    weights = None if weight is None else columns.numbers("weight", weight, least=0.0)
    return Sample(
        id_scores=values[id_rows],
        id_loss=id_loss,
        ood_scores={name: values[rows] for name, rows in sets.items()},  # type: ignore[arg-type]
        id_weight=None if weights is None else weights[id_rows],
        ood_weight=None if weights is None else {n: weights[rows] for n, rows in sets.items()},  # type: ignore[arg-type]
        score_names=tuple(names),
    )


class _Columns:
    """Columns of a frame by name, with errors that name the column and the row."""

    def __init__(self, frame: Any) -> None:
        import narwhals as nw

        try:
            native = nw.from_native(frame)
        except TypeError:
            raise InvalidInputError(
                f"frame is a {type(frame).__name__}, not a data frame that narwhals reads "
                "(pandas, polars, pyarrow, ...)"
            ) from None
        self._frame: nw.DataFrame[Any] = (
            native.collect() if isinstance(native, nw.LazyFrame) else native
        )

    def series(self, argument: str, name: str) -> nw.Series[Any]:
        if name not in self._frame.columns:
            close = difflib.get_close_matches(str(name), self._frame.columns, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise InvalidInputError(
                f"{argument}: there is no column {name!r}; {hint}"
                f"the columns are {', '.join(map(repr, self._frame.columns))}"
            )
        return self._frame[name]

    def values(self, argument: str, name: str) -> npt.NDArray[Any]:
        return self.series(argument, name).to_numpy()

    def numbers(
        self, argument: str, name: str, *, rows: Any = None, least: float | None = None
    ) -> FloatArray:
        import narwhals as nw

        series = self.series(argument, name)
        if not (series.dtype.is_numeric() or series.dtype == nw.Boolean):
            raise InvalidInputError(
                f"{argument}: column {name!r} holds {series.dtype}, not numbers"
            )
        everything = series.cast(nw.Float64).fill_null(np.nan).to_numpy().astype(np.float64)
        rows = np.arange(len(everything)) if rows is None else rows
        values = everything[rows]
        bad = np.isnan(values) if least is None else ~((values >= least) & np.isfinite(values))
        if bad.any():
            row = int(rows[np.flatnonzero(bad)[0]])
            wanted = "a number" if least is None else f"a finite number >= {least:g}"
            raise InvalidInputError(
                f"{argument}: column {name!r}, row {row} is {everything[row]}, not {wanted} "
                f"({int(bad.sum())} such rows)"
            )
        return np.asarray(values)


def _ood_rows(
    columns: _Columns, name: str | None
) -> tuple[BoolArray, dict[str, npt.NDArray[np.int64]]]:
    """Return which rows are OOD and the rows of each OOD set."""
    import narwhals as nw

    if name is None:
        length = len(columns._frame)
        return np.zeros(length, np.bool_), {POOLED_NAME: np.empty(0, np.int64)}
    series = columns.series("ood", name)
    if series.dtype.is_numeric() or series.dtype == nw.Boolean:
        flags = columns.numbers("ood", name)
        bad = np.flatnonzero((flags != 0) & (flags != 1))
        if len(bad):
            raise InvalidInputError(
                f"ood: column {name!r}, row {int(bad[0])} is {flags[bad[0]]}; a flag must be 0 or 1"
            )
        return flags == 1, {POOLED_NAME: np.flatnonzero(flags == 1)}
    missing = series.is_null().to_list()
    labels = ["" if null else str(v) for v, null in zip(series.to_list(), missing, strict=True)]
    is_ood = np.array([label not in ID_NAMES for label in labels], np.bool_)
    sets: dict[str, list[int]] = {}
    for row in np.flatnonzero(is_ood):
        sets.setdefault(labels[row], []).append(int(row))
    if not sets:
        return is_ood, {POOLED_NAME: np.empty(0, np.int64)}
    return is_ood, {key: np.array(rows, np.int64) for key, rows in sorted(sets.items())}
