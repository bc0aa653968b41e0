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
from typing import Any, Literal, get_args

from demur.errors import InvalidInputError

Dialect = Literal["duckdb", "spark", "postgres", "bigquery", "snowflake", "trino"]


@dataclass(frozen=True, slots=True)
class Syntax:
    """What the dialects disagree on."""

    quote: Callable[[str], str]
    number: str
    """How a double is written; ``{}`` is its digits."""
    kind: str
    """What the type of doubles is called."""
    is_finite: str = "{value} BETWEEN {least} AND {most}"
    """What is TRUE of finite numbers."""
    infinity: str = "CAST('Infinity' AS {kind})"
    """How an infinite double is written."""

    def double(self, value: float) -> str:
        """Write a number so that it is read as the same double."""
        return self.number.format(_digits(value))

    def finite(self, value: str) -> str:
        """Return the condition that an expression is a number, and no infinity."""
        least, most = self.double(-sys.float_info.max), self.double(sys.float_info.max)
        return self.is_finite.format(value=value, least=least, most=most)


def _doubled(mark: str) -> Callable[[str], str]:
    return lambda name: mark + name.replace(mark, mark * 2) + mark


def _escaped(name: str) -> str:
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


_SYNTAX: dict[Dialect, Syntax] = {
    # DuckDB takes comparisons to be settled by the least and largest values that Parquet files
    # tell of, which leave NaN out; `isfinite` it computes for each row.
    "duckdb": Syntax(_doubled('"'), "{}", "DOUBLE", "isfinite({value})"),
    # Without the suffix, a setting of Spark can turn the number into a decimal.
    "spark": Syntax(_doubled("`"), "{}D", "DOUBLE"),
    # Postgres takes a plain number for a decimal.
    "postgres": Syntax(_doubled('"'), "CAST('{}' AS DOUBLE PRECISION)", "DOUBLE PRECISION"),
    "bigquery": Syntax(_escaped, "{}", "FLOAT64"),
    # A plain number is a decimal here, too.
    "snowflake": Syntax(
        _doubled('"'), "CAST('{}' AS DOUBLE)", "DOUBLE", infinity="CAST('inf' AS {kind})"
    ),
    # A product, since SQLite, which this is for as well, takes the text 'Infinity' for zero.
    "trino": Syntax(_doubled('"'), "{}", "DOUBLE", infinity="1.0e+300 * 1.0e+300"),
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
    syntax = syntax_of(dialect)
    _check_columns(columns, direction)
    if threshold == -math.inf:
        return "FALSE"
    values = _values(columns, direction, syntax)
    terms = [f"{syntax.double(weight)} * {value}" for weight, value in values if weight != 0]
    compare = "<=" if accept_boundary else "<"
    within = f"{' + '.join(terms)} {compare} {syntax.double(threshold)}"
    return _accepting(values, [within], syntax)


def within_limits(
    columns: Sequence[str | None],
    signs: Sequence[float],
    limits: Sequence[float],
    *,
    dialect: Dialect,
) -> str:
    """Return SQL that is TRUE where every column is within its limit, else FALSE.

    Examples
    --------
    >>> within_limits(["knn"], [1.0], [0.5], dialect="spark").split(" AND ")[-1]
    'CAST(`knn` AS DOUBLE) <= 5.0e-01D, FALSE)'
    """
    syntax = syntax_of(dialect)
    _check_columns(columns, signs)
    # A limit that is infinite here is one that nothing keeps: others have no sign.
    if any(sign and math.isinf(limit) for sign, limit in zip(signs, limits, strict=True)):
        return "FALSE"
    values = _values(columns, signs, syntax)
    kept = [limit for limit, name in zip(limits, columns, strict=True) if name is not None]
    within = [
        f"{value} {'<=' if sign > 0 else '>='} {syntax.double(limit)}"
        for (sign, value), limit in zip(values, kept, strict=True)
        if sign
    ]
    return _accepting(values, within, syntax)


def _check_columns(columns: Sequence[str | None], weights: Sequence[float]) -> None:
    for name, weight in zip(columns, weights, strict=True):
        # No engine takes a NUL, and some would end the text there.
        if not name or not isinstance(name, str) or "\0" in name:
            if name is None and weight == 0:
                continue
            raise InvalidInputError(f"columns: {name!r} is not the name of a column")


def _values(
    columns: Sequence[str | None], weights: Sequence[float], syntax: Syntax
) -> list[tuple[float, str]]:
    """Return the weight of each column there is, and its value as a double."""
    return [
        (weight, f"CAST({syntax.quote(name)} AS {syntax.kind})")
        for name, weight in zip(columns, weights, strict=True)
        if name is not None
    ]


def _accepting(values: list[tuple[float, str]], within: list[str], syntax: Syntax) -> str:
    """Return what is TRUE where all scores are there and some conditions hold."""
    # What is weighed must be a number; of other scores only +inf counts, which always rejects.
    finite = [
        syntax.finite(value)
        if weight != 0
        else f"COALESCE({value} <> {syntax.infinity.format(kind=syntax.kind)}, TRUE)"
        for weight, value in values
    ]
    return f"COALESCE({' AND '.join([*finite, *within])}, FALSE)"


def syntax_of(dialect: Any) -> Syntax:
    """Return the syntax of a dialect; refuse what is none."""
    if not isinstance(dialect, str) or dialect not in _SYNTAX:
        raise InvalidInputError(
            f"dialect must be one of {', '.join(get_args(Dialect))}, got {dialect!r}"
        )
    return _SYNTAX[dialect]


def _digits(value: float) -> str:
    """Write a float with an exponent, in the fewest digits that read back as the same float.

    The exponent tells engines that it is a double and not a decimal.
    """
    return next(text for digits in range(1, 18) if float(text := f"{value:.{digits}e}") == value)
