"""What a row says, as narwhals expressions: its scores, loss, side, masses, bins and hash.

Only operations that every engine rounds alike: comparisons, sums and products of doubles,
``floor`` before a cast, and integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import narwhals.stable.v2 as nw
import numpy as np
import numpy.typing as npt

from demur.core.bins import Axis
from demur.core.columns import ID_NAMES, NEITHER_FLAG_NOR_NAME, check_names, match_name
from demur.core.row_draws import BITS, POISSON, PRIME, SMALL, STEPS, RowDraw, hashed_order
from demur.core.rule import BoxRule, Rule
from demur.core.sample import POOLED_NAME
from demur.core.source import Measure, Rows, Sides
from demur.errors import InvalidInputError
from demur.losses import check_kinds, label_kinds
from demur.sources.open import SINGLE, Missing, Roles

Expr: TypeAlias = nw.Expr

Frame: TypeAlias = Any
"""A narwhals frame, lazy or not."""

Table: TypeAlias = Mapping[str, npt.NDArray[Any]]
"""Columns that an engine handed over."""

ID_SIDE = -1
"""Side of the ID rows; OOD rows have the number of their set."""

NO_FLAG, BAD_FLAG = "\ufffdmissing", "\ufffdbad"
"""Labels of the rows whose flag is missing, or neither 0 nor 1."""

GROUP = "id\x1f"
"""Before the name of its group in the label of an ID row."""

KEY = "demur_key"
"""Column of the numbers of keys that are text, which every engine makes in its own way."""

TIMES = "demur_times"
"""Column of the weights of rows that are drawn several times."""

_ONE_SIDE = Sides()

LARGE = 2.0**53
"""From here on all doubles are whole numbers; Spark has no integer for all their floors."""


@dataclass(frozen=True, slots=True)
class StandardRows:
    """How the rows of a frame are put under standard names."""

    roles: Roles
    schema: Mapping[str, Any]
    missing: Missing
    draws: tuple[RowDraw, ...] = ()
    """What is left of the rows, one draw after the other."""
    weight: str | None = None
    """The column of weights before rows were drawn several times."""
    only_set: str | None = None
    """The OOD set that is left of all."""

    @classmethod
    def of(cls, frame: Any, roles: Roles, missing: Missing) -> StandardRows:
        """Return how for a narwhals frame, if its columns will do."""
        if missing not in ("error", "drop"):
            raise InvalidInputError(f'missing must be "error" or "drop", got {missing!r}')
        schema = dict(_schema(frame))
        check_names(list(schema), roles.used(), "the frame")
        roles = matched(roles, list(schema))
        for argument, name in roles.used():
            if name == "*" or (name.startswith("^") and name.endswith("$")):
                raise InvalidInputError(
                    f"{argument}: engines take the name {name!r} for a pattern of names; rename "
                    "the column, or read the rows into memory"
                )
        for argument, name in roles.numeric():
            if not is_flag(schema[name]):
                raise InvalidInputError(
                    f"{argument}: column {name!r} holds {schema[name]}, not numbers"
                )
        if roles.ood is not None and not _can_mark(schema[roles.ood]):
            raise InvalidInputError(
                f"ood: column {roles.ood!r} holds {schema[roles.ood]}, {NEITHER_FLAG_NOR_NAME}"
            )
        _check_classes(roles, schema)
        return cls(roles, schema, missing, weight=roles.weight)

    def drawn(self, draw: RowDraw) -> StandardRows:
        """Return how for the rows that a draw leaves."""
        check_key(self.roles.key, self.schema)
        drawn = replace(self, draws=(*self.draws, draw))
        if not draw.repeats:
            return drawn
        # From here on, how often a row is drawn is its weight.
        schema = dict(self.schema) | {TIMES: nw.Float64()}
        return replace(drawn, roles=replace(self.roles, weight=TIMES), schema=schema)

    def with_set(self, name: str) -> StandardRows:
        """Return how for the ID rows and those of one OOD set."""
        return replace(self, only_set=name)

    @property
    def text_key(self) -> str | None:
        """The key, if rows are drawn by one that is text."""
        key = self.roles.key
        return key if self.draws and key is not None and is_text(self.schema[key]) else None

    @property
    def needed(self) -> list[str]:
        """Columns of the frame that are read."""
        names = [name for _, name in self.roles.used()] + ([self.weight] if self.weight else [])
        return [name for name in dict.fromkeys(names) if name != TIMES]

    @property
    def scores(self) -> tuple[str, ...]:
        """Standard names of the scores."""
        return tuple(f"s{i}" for i in range(len(self.roles.scores)))

    def rows(
        self,
        frame: Frame,
        sides: Sides = _ONE_SIDE,
        *,
        labels: bool = False,
        by: str | None = None,
    ) -> Frame:
        """Return the rows; "side" tells `sides` apart, "label" is the name of the OOD set."""
        roles, schema = self.roles, self.schema
        frame = self._left(frame)
        columns = {
            standard: score(name, sign)
            for standard, name, sign in zip(
                self.scores, roles.scores, roles.columns.signs, strict=True
            )
        }
        # OOD rows have loss 0, whatever the column says.
        outside = is_ood(roles, schema)
        columns["loss"] = nw.when(outside).then(nw.lit(0.0)).otherwise(loss(roles, schema))
        if roles.weight is not None:
            columns["weight"] = number(roles.weight, schema)
        needed = list(columns)
        columns["side"] = side(roles, schema, sides)
        if labels:
            columns["label"] = label(roles, schema)
            if roles.ood is not None:
                columns["named"] = _says(roles, schema).cast(nw.Int64)
        if by is not None:
            check_names(list(schema), [("by", by)], "the frame")
            columns["by"] = nw.col(by)
        rows = frame.select(**columns)
        if self.missing == "drop":
            for name in needed:
                rows = rows.filter(~missing(nw.col(name)))
        return rows

    def _left(self, frame: Frame) -> Frame:
        """Return the rows of a frame that the draws leave, without sets that are left out."""
        roles, schema = self.roles, self.schema
        if self.only_set is not None:
            own = _set_name(roles) == self.only_set
            frame = frame.filter(~is_ood(roles, schema) | own)
        weight = None if self.weight is None else number(self.weight, schema)
        for place, draw in enumerate(self.draws):
            hashed, outside = hashed_columns(roles, schema), is_ood(roles, schema)
            frame = drawn_rows(frame, draw, hashed, outside, weight, f"demur_{place}")
        return frame

    def judged(self, frame: Frame, rule: Rule, *, by: str | None = None) -> Frame:
        """Return flags of what `rule` does with the rows, and whether these can be so judged.

        "sound" is not true of rows with a missing or infinite value, a loss beside 0 and 1, or a
        flag that is none. Rows have a "label" where they are told apart by more than a flag.
        """
        roles, schema = self.roles, self.schema
        scores = list(map(score, roles.scores, roles.columns.signs))
        outside, known = _outside(roles, schema)
        wrong, plain = _wrong(roles, schema)
        # Few steps, each of which goes over all rows in some engines.
        columns = {"value": weighed(rule, scores), "outside": outside, "wrong": wrong}
        columns["fit"] = known & (plain | outside)
        # What is weighed is finite only if all that was weighed is.
        unseen = {
            name: value
            for name, value, weight in zip(self.scores, scores, rule.direction, strict=True)
            if not weight or isinstance(rule, BoxRule)
        }
        if self.labelled:
            columns["label"] = label(roles, schema)
        if by is not None:
            check_names(list(schema), [("by", by)], "the frame")
            columns["by"] = nw.col(by)
        rows = self._left(frame).select(**columns, **unseen)
        value = nw.col("value")
        within = value <= rule.threshold if rule.tau else value < rule.threshold
        sound = finite(["value", *unseen]) & nw.col("fit")
        lost = nw.col("wrong") & ~nw.col("outside")
        return rows.with_columns(sound=sound, accept=within, lost=lost)

    @property
    def labelled(self) -> bool:
        """Whether rows are told apart by more than a flag."""
        ood = self.roles.ood
        named = ood is not None and not is_flag(self.schema[ood])
        return named or self.roles.group is not None

    def fetched(self, table: Table) -> Rows:
        """Return rows that an engine handed over."""
        return Rows(
            # Adding zero turns -0.0 into 0.0.
            np.column_stack([table[name] for name in self.scores]) + 0.0,
            table["side"].astype(np.int64),
            table["loss"].astype(np.float64),
            table["weight"].astype(np.float64) if self.roles.weight is not None else None,
        )


def _schema(frame: Any) -> Any:
    """Return the types of the columns; refuse those that an engine has none for."""
    try:
        return frame.collect_schema()
    except nw.exceptions.NarwhalsError:
        # What an engine says of its files is told by its source.
        raise
    except ValueError as error:
        raise InvalidInputError(
            f"the columns cannot be read: {' '.join(str(error).split())}"
        ) from None


def known_frame(frame: Any) -> Any:
    """Return a frame as one of narwhals; refuse it where two columns have one name."""
    try:
        return nw.from_native(frame)
    except (nw.exceptions.NarwhalsError, ValueError) as error:
        raise InvalidInputError(
            f"the frame cannot be read: {' '.join(str(error).split())}"
        ) from None


def matched(roles: Roles, available: list[str]) -> Roles:
    """Return the roles by the names that the columns have in the frame."""
    names = {name: match_name(name, available) for _, name in roles.used()}
    if all(name == found for name, found in names.items()):
        return roles
    given = {role: getattr(roles, role) for role in SINGLE}
    found: dict[str, Any] = {role: names[name] for role, name in given.items() if name is not None}
    return replace(
        roles,
        scores=tuple(names[name] for name in roles.scores),
        confidence=tuple(names[name] for name in roles.confidence),
        **found,
    )


def _check_classes(roles: Roles, schema: Mapping[str, Any]) -> None:
    """Refuse classes of different kinds by the types of their columns, as `check_kinds` does."""
    if roles.label is None or roles.prediction is None:
        return
    told = [("label", roles.label), ("prediction", roles.prediction)]
    kinds = [_kind(schema[name]) for _, name in told]
    if None in kinds or kinds[0] == kinds[1]:
        return
    said = [
        f"{argument}: column {name!r} holds {kind} ({schema[name]})"
        for (argument, name), kind in zip(told, kinds, strict=True)
    ]
    raise InvalidInputError(
        f"{', '.join(said)}: labels of different kinds are never equal; make both numbers or both "
        "text"
    )


def _kind(kind: Any) -> str | None:
    """Return the kind of the classes in a column; None where only the values can tell."""
    if is_flag(kind):
        return "numbers"
    if kind in (nw.String, nw.Categorical, nw.Enum, nw.Binary):
        return "text"
    return None if kind in (nw.Object, nw.Unknown) else str(kind)


def check_class_values(frame: Frame, standard: StandardRows) -> None:
    """Refuse classes of different kinds in a frame in memory whose columns hold any object."""
    roles, schema = standard.roles, standard.schema
    if roles.label is None or roles.prediction is None:
        return
    if {_kind(schema[name]) for name in (roles.label, roles.prediction)} == {"numbers"}:
        return
    inside = frame if roles.ood is None else frame.filter(~is_ood(roles, schema))
    told = [(f"label: column {roles.label!r}", roles.label)]
    told += [(f"prediction: column {roles.prediction!r}", roles.prediction)]
    kinds = []
    for _, name in told:
        values = np.empty(len(inside), object)
        values[:] = inside[name].to_list()
        gone = inside[name].is_null().to_numpy().astype(bool)
        kinds.append(label_kinds(values[~gone]))
    check_kinds(told[0][0], kinds[0], told[1][0], kinds[1])


def score(name: str, sign: float) -> Expr:
    """Return a score as doubt; the sign of a confidence is -1."""
    value = nw.col(name).cast(nw.Float64)
    return 0.0 - value if sign < 0 else value


def loss(roles: Roles, schema: Mapping[str, Any]) -> Expr:
    """Return the loss of an ID row, null or NaN where it is missing."""
    if not roles.labelled:
        return nw.lit(0.0)
    if roles.loss is not None:
        return number(roles.loss, schema)
    if roles.correct is not None:
        right = number(roles.correct, schema)
        # What is neither right nor wrong is no loss, and refused as one below 0.
        wrong = nw.when((right == 0.0) | (right == 1.0)).then(1.0 - right).otherwise(nw.lit(-1.0))
        return nw.when(missing(right)).then(nw.lit(float("nan"))).otherwise(wrong)
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
    value = nw.col(name)
    # Not every engine casts flags to doubles.
    return (value.cast(nw.Int64) if schema[name] == nw.Boolean else value).cast(nw.Float64)


def hashed_columns(roles: Roles, schema: Mapping[str, Any]) -> list[Expr]:
    """Return what rows are drawn by: their key, or else their scores in the order of the names."""
    if roles.key is None:
        return [number(name, schema) for name in hashed_order(roles.scores)]
    return [nw.col(KEY) if is_text(schema[roles.key]) else number(roles.key, schema)]


def is_ood(roles: Roles, schema: Mapping[str, Any]) -> Expr:
    """Return whether a row is OOD; `label` tells the rows of which this cannot be said."""
    if roles.ood is None:
        return nw.lit(False)
    if is_flag(schema[roles.ood]):
        return (number(roles.ood, schema) == 1.0).fill_null(False)
    return ~_is_id_name(_set_name(roles))


def _outside(roles: Roles, schema: Mapping[str, Any]) -> tuple[Expr, Expr]:
    """Return whether a row is OOD, and whether that can be said of it."""
    if roles.ood is None or not is_flag(schema[roles.ood]):
        return is_ood(roles, schema), nw.lit(True)
    flag = nw.col(roles.ood)
    if schema[roles.ood] == nw.Boolean:
        return flag, ~flag.is_null()
    number_ = flag.cast(nw.Float64)
    return number_ == 1.0, (number_ == 0.0) | (number_ == 1.0)


def _wrong(roles: Roles, schema: Mapping[str, Any]) -> tuple[Expr, Expr]:
    """Return whether the loss of a row is 1, and whether it is 0 or 1."""
    told = roles.loss or roles.correct
    if told is not None and schema[told] == nw.Boolean:
        flag = nw.col(told)
        return flag if roles.loss is not None else ~flag, ~flag.is_null()
    value = loss(roles, schema)
    return value == 1.0, (value == 0.0) | (value == 1.0)


def _set_name(roles: Roles) -> Expr:
    """Return what a column of names says of a row."""
    return nw.col(str(roles.ood)).cast(nw.String).fill_null("")


def _says(roles: Roles, schema: Mapping[str, Any]) -> Expr:
    """Return whether the column `ood` says anything of a row."""
    if is_flag(schema[str(roles.ood)]):
        return ~missing(number(str(roles.ood), schema))
    return _set_name(roles).str.strip_chars() != ""


def _is_id_name(name: Expr) -> Expr:
    """Return whether the name of a set marks ID rows: any spelling of `ID_NAMES`."""
    return name.str.strip_chars().str.to_lowercase().is_in(list(ID_NAMES))


def group_name(roles: Roles, schema: Mapping[str, Any]) -> Expr:
    """Return the name of the group of an ID row, as text; empty where it is missing."""
    name = str(roles.group)
    value = nw.col(name)
    if schema[name] == nw.Boolean:
        text = nw.when(value).then(nw.lit("1")).otherwise(nw.lit("0"))
        return nw.when(value.is_null()).then(nw.lit("")).otherwise(text)
    if schema[name].is_float():
        # Engines write numbers as text in different ways, whole ones in one.
        number = value.cast(nw.Float64)
        small = nw.when(number.abs() < LARGE).then(number)
        whole_ = nw.when(small == small.floor()).then(small)
        text = whole_.cast(nw.Int64).cast(nw.String)
        return nw.when(missing(value)).then(nw.lit("")).otherwise(text.fill_null(BAD_FLAG))
    return value.cast(nw.String).fill_null("")


def label(roles: Roles, schema: Mapping[str, Any]) -> Expr:
    """Return the name of the OOD set of a row, ``"id"``, or `NO_FLAG` or `BAD_FLAG`.

    With groups the label of an ID row is `GROUP` and the name of its group.
    """
    known = _label(roles, schema)
    if roles.group is None:
        return known
    named = nw.concat_str([nw.lit(GROUP), group_name(roles, schema)])
    return nw.when(known == "id").then(named).otherwise(known)


def _label(roles: Roles, schema: Mapping[str, Any]) -> Expr:
    if roles.ood is None:
        return nw.lit("id")
    if not is_flag(schema[roles.ood]):
        name = _set_name(roles)
        return nw.when(_is_id_name(name)).then(nw.lit("id")).otherwise(name)
    flag = number(roles.ood, schema)
    known = nw.when(flag == 1.0).then(nw.lit(POOLED_NAME)).otherwise(nw.lit(BAD_FLAG))
    known = nw.when(flag == 0.0).then(nw.lit("id")).otherwise(known)
    return nw.when(missing(flag)).then(nw.lit(NO_FLAG)).otherwise(known)


def is_flag(kind: Any) -> bool:
    """Return whether a column of this type says yes or no, and does not name sets."""
    return bool(kind == nw.Boolean or kind.is_numeric())


def _can_mark(kind: Any) -> bool:
    """Return whether a column of this type can tell which rows are OOD; some tell by values."""
    named = kind in (nw.String, nw.Categorical, nw.Enum, nw.Object, nw.Unknown)
    return named or is_flag(kind)


def side(roles: Roles, schema: Mapping[str, Any], sides: Sides) -> Expr:
    """Return -1 for an ID row, for an OOD row the place of its set, or 0 without sets.

    With groups it is -1 less the place of its group for an ID row.
    """
    number, inside = whole(0), whole(ID_SIDE)
    for place, name in enumerate(sides.sets[1:], start=1):
        same = nw.col(str(roles.ood)).cast(nw.String) == name
        number = nw.when(same).then(whole(place)).otherwise(number)
    for place, name in enumerate(sides.groups[1:], start=1):
        same = group_name(roles, schema) == name
        inside = nw.when(same).then(whole(ID_SIDE - place)).otherwise(inside)
    return nw.when(is_ood(roles, schema)).then(number).otherwise(inside)


def missing(value: Expr) -> Expr:
    """Return whether there is no value: null or NaN."""
    return value.is_null() | value.is_nan()


def finite(scores: Sequence[str]) -> Expr:
    """Return whether all scores of a row are finite."""
    every = nw.col(scores[0]).is_finite()
    for name in scores[1:]:
        every = every & nw.col(name).is_finite()
    return every


def combined(weights: Sequence[float], values: Sequence[Expr]) -> Expr:
    """Return ``weights . values``: the products and the sum that `Rule` forms."""
    total: Expr = float(weights[0]) * values[0]
    for weight, value in zip(weights[1:], values[1:], strict=True):
        total = total + float(weight) * value
    return total


def weighed(rule: Rule, values: Sequence[Expr]) -> Expr:
    """Return what a rule compares with its threshold, of the scores that it needs."""
    if isinstance(rule, BoxRule):
        limited = zip(rule.direction, rule.limits, values, strict=True)
        excess = [sign * value - sign * limit for sign, limit, value in limited if sign]
        largest: Expr = excess[0]
        for other in excess[1:]:
            largest = nw.when(other > largest).then(other).otherwise(largest)
        return largest
    needed = [k for k, weight in enumerate(rule.direction) if weight]
    return combined([rule.direction[k] for k in needed], [values[k] for k in needed])


def place(axis: Axis, value: Expr) -> Expr:
    """Return `Axis.bin` of a finite score: a tree of comparisons that ends in the right piece."""

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
    return nw.lit(value).cast(nw.Int64)


def masses(measure: Measure, *, weighted: bool) -> dict[str, Expr]:
    """Return the integer masses of a row from its columns "side", "loss" and "weight".

    "mass" is its ID or its OOD mass. Where all masses are 0 or 1, the others follow from "one"
    and "loss".
    """
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
    if isinstance(frame, nw.DataFrame):
        return _drawn_here(frame, draw, columns, is_ood, weight)
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


def _drawn_here(
    frame: nw.DataFrame[Any],
    draw: RowDraw,
    columns: Sequence[nw.Expr],
    is_ood: nw.Expr,
    weight: nw.Expr | None,
) -> nw.DataFrame[Any]:
    """Return the same of a frame in memory, whose rows are hashed in arrays."""
    asked = {f"h{k}": column.fill_null(float("nan")) for k, column in enumerate(columns)}
    table = frame.select(**asked, outside=is_ood)
    hashed = [table[name].to_numpy().astype(np.float64) for name in asked]
    outside = table["outside"].to_numpy().astype(bool)
    kept = np.flatnonzero(draw.keeps(hashed, np.broadcast_to(outside, len(frame))))
    frame = frame[kept.tolist()]
    if not draw.repeats:
        return frame
    often = draw.times([column[kept] for column in hashed]).astype(np.float64)
    times = nw.new_series(TIMES, often, nw.Float64, backend=frame.implementation)
    frame = frame.with_columns(times)
    return frame if weight is None else frame.with_columns((nw.col(TIMES) * weight).alias(TIMES))


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
    """Return the frame with a double taken apart, and the parts; see `core.row_draws.words`."""
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
