"""A rule as an SQL predicate that decides as `Rule.accept` does, bit for bit.

What the dialects disagree on is kept in one table: how names are quoted, how a double is
written, and what it is called. Everything else is common ground:

- Numbers are cast to doubles, so that a DECIMAL column is not multiplied in decimals and a
  FLOAT column not in single precision. The products and the sum are those of `Rule.accept`.
- ``BETWEEN`` the smallest and the largest double is false for infinities, and for NaN whether
  the engine orders NaN last (DuckDB, Spark, Postgres) or compares it with nothing (BigQuery).
- ``COALESCE`` makes a missing score a plain "no", so that ``NOT`` of the predicate is "reject".

Postgres and BigQuery stop with an error where a product or a sum leaves the range of doubles
(Postgres also where a product underflows to zero); they never decide otherwise.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from demur.errors import InvalidInputError

Dialect = Literal["duckdb", "spark", "postgres", "bigquery"]


@dataclass(frozen=True, slots=True)
class _Syntax:
    quote: Callable[[str], str]
    number: str
    """How a double is written; ``{}`` is its digits."""
    kind: str
    """What the type of doubles is called."""

    def double(self, value: float) -> str:
        return self.number.format(_digits(value))


def _doubled(mark: str) -> Callable[[str], str]:
    return lambda name: mark + name.replace(mark, mark * 2) + mark


def _escaped(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


_SYNTAX: dict[Dialect, _Syntax] = {
    "duckdb": _Syntax(_doubled('"'), "{}", "DOUBLE"),
    # Without the suffix, a setting of Spark can turn the number into a decimal.
    "spark": _Syntax(_doubled("`"), "{}D", "DOUBLE"),
    # Postgres takes a plain number for a decimal.
    "postgres": _Syntax(_doubled('"'), "CAST('{}' AS DOUBLE PRECISION)", "DOUBLE PRECISION"),
    "bigquery": _Syntax(_escaped, "{}", "FLOAT64"),
}


def predicate(
    columns: Sequence[str | None],
    direction: Sequence[float],
    threshold: float,
    *,
    accept_boundary: bool,
    dialect: Dialect,
) -> str:
    """Return SQL that is TRUE where ``direction . columns`` is within the threshold, else FALSE.

    Examples
    --------
    >>> predicate(["knn"], [1.0], -math.inf, accept_boundary=True, dialect="spark")
    'FALSE'
    """
    if not isinstance(dialect, str) or dialect not in _SYNTAX:
        raise InvalidInputError(
            f"dialect must be one of {', '.join(get_args(Dialect))}, got {dialect!r}"
        )
    syntax = _SYNTAX[dialect]
    for name, weight in zip(columns, direction, strict=True):
        # No engine takes a NUL, and some would end the text there.
        if not name or not isinstance(name, str) or "\0" in name:
            if name is None and weight == 0:
                continue
            raise InvalidInputError(f"columns: {name!r} is not the name of a column")
    if threshold == -math.inf:
        return "FALSE"
    values = [
        (weight, f"CAST({syntax.quote(name)} AS {syntax.kind})")
        for name, weight in zip(columns, direction, strict=True)
        if name is not None
    ]
    least, most = syntax.double(-sys.float_info.max), syntax.double(sys.float_info.max)
    # What is weighed must be a number; of other scores only +inf counts, which always rejects.
    finite = [
        f"{value} BETWEEN {least} AND {most}"
        if weight != 0
        else f"COALESCE({value} <> CAST('Infinity' AS {syntax.kind}), TRUE)"
        for weight, value in values
    ]
    terms = [f"{syntax.double(weight)} * {value}" for weight, value in values if weight != 0]
    compare = "<=" if accept_boundary else "<"
    within = f"{' + '.join(terms)} {compare} {syntax.double(threshold)}"
    return f"COALESCE({' AND '.join(finite)} AND {within}, FALSE)"


def _digits(value: float) -> str:
    """Write a float with an exponent, in the fewest digits that read back as the same float.

    The exponent tells engines that it is a double and not a decimal.
    """
    return next(text for digits in range(1, 18) if float(text := f"{value:.{digits}e}") == value)
