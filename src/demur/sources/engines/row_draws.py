"""Rows drawn by a hash, as narwhals expressions: `demur.core.row_draws` where the rows are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals.stable.v2 as nw

from demur.core.row_draws import BITS, POISSON, PRIME, SMALL, STEPS, RowDraw
from demur.errors import InvalidInputError

KEY = "demur_key"
"""Column of the numbers of keys that are text, which every engine makes in its own way."""

TIMES = "demur_times"
"""Column of the weights of rows that are drawn several times."""


def is_text(kind: Any) -> bool:
    """Return whether a column of this type holds text."""
    return kind in (nw.String, nw.Categorical, nw.Enum)


def check_key(name: str | None, schema: Mapping[str, Any]) -> None:
    """Refuse a key that engines do not hash alike."""
    if name is None or is_text(schema[name]):
        return
    kind = schema[name]
    if not (kind == nw.Boolean or kind.is_numeric()):
        raise InvalidInputError(
            f"key: column {name!r} holds {kind}: ids must be numbers or text; cast the column"
        )


def drawn_rows(
    frame: Any,
    draw: RowDraw,
    columns: Sequence[nw.Expr],
    is_ood: nw.Expr,
    weight: nw.Expr | None,
    name: str,
) -> Any:
    """Return the rows that a draw leaves; `name` begins those of columns that are added.

    A step is a projection, so that no engine writes it out twice in the next.
    """
    first, factors = draw.factors(len(columns))
    total = nw.lit(first).cast(nw.Int64)
    for place, (column, own) in enumerate(zip(columns, factors, strict=True)):
        frame, words = _taken_apart(frame, column, f"{name}_{place}")
        for factor, word in zip(own, words, strict=True):
            total = total + word * factor
        frame = frame.with_columns((total % PRIME).alias(name))
        total = nw.col(name)
    square = f"{name}_square"
    frame = frame.with_columns((total * total % PRIME).alias(square))
    power = nw.col(square) * nw.col(square) % PRIME * total % PRIME
    frame = _computed_once(frame.with_columns(power.alias(name)), name)
    frame = frame.filter(_kept(draw, nw.col(name), is_ood))
    if not draw.repeats:
        return frame
    times = sum((_one(nw.col(name) >= limit) for limit in POISSON[1:]), start=_one(nw.lit(True)))
    often = times.cast(nw.Float64)
    return frame.with_columns((often if weight is None else often * weight).alias(TIMES))


def _computed_once(frame: Any, name: str) -> Any:
    """Return the frame so that no engine writes out anew, for a filter, how a column is made.

    Spark would, and each of many steps refers to the one before it more than once.
    """
    if not frame.implementation.is_spark_like():
        return frame
    from demur.sources.engines.spark import computed_once

    return nw.from_native(computed_once(frame.to_native(), name)).lazy()


def _kept(draw: RowDraw, number: nw.Expr, is_ood: nw.Expr) -> nw.Expr:
    if draw.kept is None:
        kept = number >= POISSON[0]
    else:
        own, foreign = ((number >= low) & (number < high) for low, high in draw.kept)
        same = draw.kept[0] == draw.kept[1]
        kept = own if same else (is_ood & foreign) | (~is_ood & own)
    return ~kept if draw.outside else kept


def _taken_apart(frame: Any, value: nw.Expr, name: str) -> tuple[Any, list[nw.Expr]]:
    """Return the frame with a double taken apart, and the parts; see `drawing.words`."""
    held, size, code = (f"{name}_{part}" for part in ("value", "size", "code"))
    frame = frame.with_columns(value.fill_null(float("nan")).alias(held))
    x = nw.col(held)
    missing = x.is_nan()
    infinite = ~missing & ((x == float("inf")) | (x == float("-inf")))
    plain = nw.when(missing | infinite).then(nw.lit(0.0)).otherwise(x.abs())
    below = ~missing & (x < 0.0)
    signs = _one(below) * 128 + _one(missing) * 256 + _one(infinite) * 512
    frame = frame.with_columns(plain.alias(size), signs.alias(code))
    length, place = nw.col(size), nw.col(code)
    steps = [(length < 1.0, SMALL, 64)]
    steps += [(length >= 2.0**step, 2.0**-step, step // 16) for step in STEPS]
    for met, factor, mark in steps:
        times = nw.when(met).then(nw.lit(factor)).otherwise(nw.lit(1.0))
        frame = frame.with_columns(
            (length * times).alias(size), (place + _one(met) * mark).alias(code)
        )
    head, middle, last, rest = (f"{name}_{part}" for part in ("head", "middle", "last", "rest"))
    frame = frame.with_columns(length.floor().alias(head))
    frame = frame.with_columns(((length - nw.col(head)) * 2.0**BITS).alias(rest))
    frame = frame.with_columns(nw.col(rest).floor().alias(middle))
    frame = frame.with_columns(((nw.col(rest) - nw.col(middle)) * 2.0**BITS).floor().alias(last))
    words = [place * 2**16 + nw.col(head).cast(nw.Int64)]
    return frame, [*words, nw.col(middle).cast(nw.Int64), nw.col(last).cast(nw.Int64)]


def _one(flag: nw.Expr) -> nw.Expr:
    """Return 1 where something is the case, else 0."""
    return flag.cast(nw.Int64)
