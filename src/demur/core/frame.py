"""Reading columns of a data frame, of any library that narwhals knows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from demur.core.columns import Columns, check_names
from demur.errors import InvalidInputError

if TYPE_CHECKING:
    import narwhals as nw


def frame_columns(frame: Any, wanted: Iterable[tuple[str, str | None]]) -> Columns:
    """Return the columns named by (argument, column) pairs; columns that are None are left out."""
    import narwhals as nw

    try:
        native = nw.from_native(frame)
    except TypeError:
        raise InvalidInputError(
            f"frame is a {type(frame).__name__}, not a data frame that narwhals reads "
            "(pandas, polars, pyarrow, ...)"
        ) from None
    table = native.collect() if isinstance(native, nw.LazyFrame) else native
    used = [(argument, name) for argument, name in wanted if name is not None]
    check_names(table.columns, used, "the frame")
    return {name: _values(table[name]) for _, name in used}


def _values(series: nw.Series[Any]) -> npt.NDArray[Any]:
    """Return a column as an array; missing numbers are NaN, other missing values None."""
    import narwhals as nw

    if series.dtype.is_numeric() or series.dtype == nw.Boolean:
        return series.cast(nw.Float64).fill_null(np.nan).to_numpy().astype(np.float64)
    values = np.array(series.to_list(), dtype=object)
    values[series.is_null().to_numpy().astype(bool)] = None
    return values
