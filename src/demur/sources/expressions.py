"""Narwhals expressions for the bin, the masses and the side of a row.

Only operations that every engine rounds alike: comparisons, sums and products of doubles,
``floor`` before a cast, and integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from demur.core.bins import Axis
from demur.core.columns import ID_NAMES
from demur.core.sample import POOLED_NAME
from demur.core.source import Measure
from demur.sources.roles import Roles

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw

    Expr: TypeAlias = nw.Expr

ID_SIDE = -1
"""Side of the ID rows; OOD rows have the number of their set."""

NO_FLAG, BAD_FLAG = "\ufffdmissing", "\ufffdbad"
"""Labels of the rows whose flag is missing, or neither 0 nor 1."""


def score(name: str, roles: Roles) -> Expr:
    """Return a score as doubt."""
    import narwhals.stable.v2 as nw

    value = nw.col(name).cast(nw.Float64)
    return 0.0 - value if name in roles.confidence else value


def loss(roles: Roles, schema: Mapping[str, Any]) -> Expr:
    """Return the loss of an ID row, null or NaN where it is missing."""
    import narwhals.stable.v2 as nw

    if roles.loss is not None:
        return number(roles.loss, schema)
    label, prediction = nw.col(str(roles.label)), nw.col(str(roles.prediction))
    if roles.loss_function == "absolute":
        return (label.cast(nw.Float64) - prediction.cast(nw.Float64)).abs()
    wrong = (label != prediction).cast(nw.Int64).cast(nw.Float64)
    for name in (str(roles.label), str(roles.prediction)):
        if schema[name].is_float():
            wrong = nw.when(nw.col(name).is_nan()).then(nw.lit(float("nan"))).otherwise(wrong)
    return wrong


def number(name: str, schema: Mapping[str, Any]) -> Expr:
    """Return a number or a flag as a double."""
    import narwhals.stable.v2 as nw

    value = nw.col(name)
    # Not every engine casts flags to doubles.
    return (value.cast(nw.Int64) if schema[name] == nw.Boolean else value).cast(nw.Float64)


def is_ood(roles: Roles, schema: Mapping[str, Any]) -> Expr:
    """Return whether a row is OOD; `label` tells the rows of which this cannot be said."""
    import narwhals.stable.v2 as nw

    if roles.ood is None:
        return nw.lit(False)
    if is_flag(schema[roles.ood]):
        return (number(roles.ood, schema) == 1.0).fill_null(False)
    return ~nw.col(roles.ood).cast(nw.String).fill_null("").is_in(list(ID_NAMES))


def label(roles: Roles, schema: Mapping[str, Any]) -> Expr:
    """Return the name of the OOD set of a row, ``"id"``, or `NO_FLAG` or `BAD_FLAG`."""
    import narwhals.stable.v2 as nw

    if roles.ood is None:
        return nw.lit("id")
    if not is_flag(schema[roles.ood]):
        name = nw.col(roles.ood).cast(nw.String).fill_null("")
        return nw.when(name == "").then(nw.lit("id")).otherwise(name)
    flag = number(roles.ood, schema)
    known = nw.when(flag == 1.0).then(nw.lit(POOLED_NAME)).otherwise(nw.lit(BAD_FLAG))
    known = nw.when(flag == 0.0).then(nw.lit("id")).otherwise(known)
    return nw.when(missing(flag)).then(nw.lit(NO_FLAG)).otherwise(known)


def is_flag(kind: Any) -> bool:
    """Return whether a column of this type says yes or no, and does not name sets."""
    import narwhals.stable.v2 as nw

    return bool(kind == nw.Boolean or kind.is_numeric())


def side(roles: Roles, schema: Mapping[str, Any], sets: Sequence[str]) -> Expr:
    """Return -1 for an ID row, for an OOD row the place of its set, or 0 without sets."""
    import narwhals.stable.v2 as nw

    number = whole(0)
    for place, name in enumerate(sets[1:], start=1):
        same = nw.col(str(roles.ood)).cast(nw.String) == name
        number = nw.when(same).then(whole(place)).otherwise(number)
    return nw.when(is_ood(roles, schema)).then(number).otherwise(whole(ID_SIDE))


def missing(value: Expr) -> Expr:
    """Return whether there is no value: null or NaN."""
    return value.is_null() | value.is_nan()


def finite(scores: Sequence[str]) -> Expr:
    """Return whether all scores of a row are finite."""
    import narwhals.stable.v2 as nw

    every = nw.col(scores[0]).is_finite()
    for name in scores[1:]:
        every = every & nw.col(name).is_finite()
    return every


def combined(weights: Sequence[float], scores: Sequence[str]) -> Expr:
    """Return ``weights . scores``: the products and the sum that `Rule` forms."""
    import narwhals.stable.v2 as nw

    total = float(weights[0]) * nw.col(scores[0])
    for weight, name in zip(weights[1:], scores[1:], strict=True):
        total = total + float(weight) * nw.col(name)
    return total


def place(axis: Axis, value: Expr) -> Expr:
    """Return `Axis.bin` of a finite score: a tree of comparisons that ends in the right piece."""
    import narwhals.stable.v2 as nw

    def tree(low: int, high: int) -> Expr:
        if high - low == 1:
            return leaf(low)
        middle = (low + high) // 2
        above = value >= float(axis.start[middle])
        return nw.when(above).then(tree(middle, high)).otherwise(tree(low, middle))

    def leaf(piece: int) -> Expr:
        first, last = int(axis.first[piece]), int(axis.first[piece + 1]) - 1
        if first == last:
            return whole(first)
        apart = (value - float(axis.start[piece])) * float(axis.scale[piece])
        # Clamped before the cast, as an integer could not hold every double.
        return apart.clip(0.0, float(last - first)).floor().cast(nw.Int64) + first

    return tree(0, len(axis.start))


def whole(value: int) -> Expr:
    """Return an integer of 64 bits."""
    import narwhals.stable.v2 as nw

    return nw.lit(value).cast(nw.Int64)


def masses(measure: Measure, *, weighted: bool) -> dict[str, Expr]:
    """Return the integer masses of a row from its columns "side", "loss" and "weight".

    "mass" is its ID or its OOD mass. Where all masses are 0 or 1, the others follow from "one"
    and "loss".
    """
    import narwhals.stable.v2 as nw

    is_id = nw.col("side") < 0
    one = whole(1)
    if measure.plain:
        return {"one": one, "loss": nw.col("loss").cast(nw.Int64)}
    weight = nw.col("weight") if weighted else nw.lit(1.0)
    id_scaled = _scaled(weight, measure.id_exponent)
    ood_scaled = _scaled(weight, measure.ood_exponent)
    scaled = nw.when(is_id).then(id_scaled).otherwise(ood_scaled)
    rounded = (scaled + 0.5).floor()
    # OOD rows have loss 0.
    lost = (_scaled(weight * nw.col("loss"), measure.loss_exponent) + 0.5).floor()
    cheap = is_id & (lost < rounded * measure.price)
    zero = whole(0)
    return {
        "one": one,
        "mass": rounded.cast(nw.Int64),
        "loss": lost.cast(nw.Int64),
        "cheap_id": nw.when(cheap).then(rounded.cast(nw.Int64)).otherwise(zero),
        "cheap_loss": nw.when(cheap).then(lost.cast(nw.Int64)).otherwise(zero),
        "inexact": (rounded != scaled).cast(nw.Int64),
    }


def _scaled(value: Expr, exponent: int) -> Expr:
    """Return ``value * 2**exponent``, in two steps because a float may not hold the power."""
    half = exponent // 2
    return value * 2.0**half * 2.0 ** (exponent - half)
