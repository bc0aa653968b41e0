"""What a row of a database says, in SQL: its scores, loss, side, masses and bins.

Everything is written once, in the SQL of DuckDB, and `written` has sqlglot write it in the dialect
of the database. Only operations that all of them round alike: comparisons, sums and products of
doubles, `FLOOR` before a cast, and integers. A NaN becomes NULL at once, so that it makes no
difference that some databases order it last and find it equal to itself; products are formed only
where they neither overflow nor underflow, which Postgres would stop at.
"""

from __future__ import annotations

import itertools
import math
import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import import_module
from typing import Any, Literal

from demur.core.bins import Axis, Bins
from demur.core.columns import ID_NAMES
from demur.core.row_draws import BITS, KEY_DIGITS, POISSON, PRIME, SMALL, RowDraw, hashed_order
from demur.core.rule import BoxRule, Rule
from demur.core.sample import POOLED_NAME
from demur.core.source import Measure, Sides
from demur.errors import MissingExtraError
from demur.sources.engines.expressions import BAD_FLAG, GROUP, ID_SIDE, NO_FLAG, TIMES
from demur.sources.open import Missing, Roles

Kind = Literal["flag", "whole", "real", "text", ""]
"""What the type of a column means; nothing where no value has one."""

_KINDS: dict[Kind, str] = {
    "flag": r"bool(ean)?",
    "whole": r"u?(tiny|small|medium|big|huge|byte)?int(eger)?(2|4|8|64)?(\(\d+\))?|long|short",
    "real": r"double( precision)?|float(4|8|64)?|real|(numeric|decimal|bignumeric|number)(\(.*\))?",
    # The type of nothing but NULL, in DuckDB and Trino.
    "": r'"null"|unknown',
    "text": r"(n?(var)?char|character( varying)?|text|string|varchar2|name|citext|bpchar)(\(.*\))?",
}
_LARGEST = 1.7976931348623157e308
# Beyond this every double is whole.
_WHOLE = 2.0**53


def kind_of(type_name: str) -> Kind | str:
    """Return what a type of a database means; other types are called by their own name.

    Examples
    --------
    >>> kind_of("double precision"), kind_of("DECIMAL(10,3)"), kind_of("character varying")
    ('real', 'real', 'text')
    >>> kind_of("double precision[]")
    'double precision[]'
    """
    # Snowflake adds how the column is stored: NUMBER(38,0)[SB1].
    name = re.sub(r"\[[A-Z]+\d*\]$", "", type_name.strip()).lower()
    return next((kind for kind, known in _KINDS.items() if re.fullmatch(known, name)), type_name)


def quoted(name: str) -> str:
    """Write the name of a column or table."""
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """Write a text."""
    return "'" + text.replace("'", "''") + "'"


def double(value: float) -> str:
    """Return a name that stands for a double until `written` has the SQL of a database.

    Queries hold thousands of them, and sqlglot would take longer to write these than databases
    take to answer.

    Examples
    --------
    >>> double(0.1), written(f"SELECT {double(0.1)}", "duckdb")
    ('demur_double_3fb999999999999a', "SELECT CAST('0.1' AS DOUBLE)")
    """
    return f"demur_double_{struct.pack('>d', value).hex()}"


_DOUBLE = re.compile(r"\bdemur_double_([0-9a-f]{16})\b")
# Stands for a chance between 0 and 1.
_CHANCE = "demur_chance_below_one"


@dataclass(frozen=True, slots=True)
class SqlRows:
    """How the rows of a table are put under standard names."""

    table: str
    """As SQL."""
    roles: Roles
    kinds: Mapping[str, str]
    """What the columns in use hold."""
    missing: Missing
    number: str
    """`SqlDialect.number` of the database."""
    fence: str
    """`SqlDialect.fence` of the database."""
    id_names: tuple[str, ...] = ID_NAMES
    """Texts of the column `ood` that mark ID rows, as the table spells them."""
    draws: tuple[RowDraw, ...] = ()
    """What is left of the rows, one draw after the other."""
    only_set: str | None = None
    """The OOD set that is left of all."""

    def with_set(self, name: str) -> SqlRows:
        """Return how for the ID rows and those of one OOD set."""
        return replace(self, only_set=name)

    def drawn(self, draw: RowDraw) -> SqlRows:
        """Return how for the rows that a draw leaves."""
        return replace(self, draws=(*self.draws, draw))

    @property
    def weighted(self) -> bool:
        """Whether rows have weights: by a column, or because they are drawn several times."""
        return self.roles.weight is not None or any(draw.repeats for draw in self.draws)

    @property
    def counted_roles(self) -> Roles:
        """The roles of the rows as they are drawn."""
        weight = (self.roles.weight or TIMES) if self.weighted else None
        return replace(self.roles, weight=weight)

    @property
    def scores(self) -> tuple[str, ...]:
        """Standard names of the scores."""
        return tuple(f"s{i}" for i in range(len(self.roles.scores)))

    def rows(
        self, sides: Sides, *, labels: bool = False, by: str | None = None, share: float = 1.0
    ) -> str:
        """Return a query of the rows, or of about a share of them.

        "side" tells `sides` apart, "label" is the name of the OOD set, "by" that column.
        """
        columns = {name: name for name in self.scores}
        columns["loss"] = f"CASE WHEN {self._outside} THEN {double(0)} ELSE lost END"
        if self.weighted:
            own = ["weight"] if self.roles.weight is not None else []
            times = [f"d{place}_times" for place, draw in enumerate(self.draws) if draw.repeats]
            columns["weight"] = " * ".join([*times, *own])
        needed = list(columns)
        columns["side"] = self._side(sides)
        if labels:
            columns["label"] = self._label
            if self.roles.ood is not None:
                columns["named"] = _bit("flag IS NOT NULL" if self.has_flag else "TRIM(flag) <> ''")
        if by is not None:
            columns["grouped_by"] = "grouped_by"
        values = self._values(by, share)
        if self.only_set is not None:
            kept = f"NOT ({self._outside}) OR flag = {literal(self.only_set)}"
            values = f"SELECT * FROM ({values}) AS v WHERE {kept}"
        for place, draw in enumerate(self.draws):
            values = drawn(values, draw, len(self._hashed), self._outside, f"d{place}", self.fence)
        query = select(columns, values)
        if self.missing == "drop":
            held = " AND ".join(f"{name} IS NOT NULL" for name in needed)
            query = f"SELECT * FROM ({query}) AS kept WHERE {held}"
        return query + self.fence

    def _values(self, by: str | None, share: float) -> str:
        """Return a query of the columns in use, as doubles and texts."""
        roles = self.roles
        columns = {}
        for standard, name, sign in zip(
            self.scores, roles.scores, roles.columns.signs, strict=True
        ):
            value = self._double(name)
            columns[standard] = f"{double(0)} - {value}" if sign < 0 else value
        columns["lost"] = self._loss()
        if roles.weight is not None:
            columns["weight"] = self._double(roles.weight)
        if roles.ood is not None:
            columns["flag"] = self._double(roles.ood) if self.has_flag else self.set_name
        if roles.group is not None:
            columns["member"] = self._group()
        if by is not None:
            columns["grouped_by"] = quoted(by)
        if self.draws:
            columns |= {f"h{k}": value for k, value in enumerate(self._hashed)}
        where = f" WHERE {_CHANCE} < {double(share)}" if share < 1 else ""
        return select(columns, f"SELECT * FROM {self.table}{where}")

    def unjudged(self, more: Mapping[str, str]) -> str:
        """Return a query of all rows as they are: scores, "lost", "mark", "member" and `more`.

        "lost" is NULL where no loss is told; a prediction that is missing is wrong. "mark" is the
        name of a set, or 0, 1, 2 for another number, -1 for none.
        """
        roles = self.roles
        columns = {s: self._double(n) for s, n in zip(self.scores, roles.scores, strict=True)}
        columns["lost"] = self._told_loss() if roles.labelled else "CAST(NULL AS DOUBLE)"
        if roles.ood is not None and self.has_flag:
            flag = self._double(roles.ood)
            cases = f"WHEN {flag} = {double(0)} THEN 0 WHEN {flag} = {double(1)} THEN 1"
            columns["mark"] = f"CASE WHEN {flag} IS NULL THEN -1 {cases} ELSE 2 END"
        elif roles.ood is not None:
            name = f"CAST({quoted(roles.ood)} AS VARCHAR)"
            columns["mark"] = f"COALESCE({name}, {literal(NO_FLAG)})"
        if roles.group is not None:
            columns["member"] = self._group()
        columns |= {standard: self._plain(name) for standard, name in more.items()}
        return select(columns, f"SELECT * FROM {self.table}") + self.fence

    def _plain(self, name: str) -> str:
        """Return a number or flag as a double, any other value as it is."""
        is_number = self.kinds[name] in ("flag", "whole", "real")
        return self._double(name) if is_number else quoted(name)

    def _told_loss(self) -> str:
        """Return the loss of a row, NULL where there is none, or no label."""
        roles = self.roles
        if roles.label is None or roles.prediction is None:
            return self._loss()
        label, prediction = (
            f"{quoted(name)} IS NULL"
            + (f" OR TRIM({quoted(name)}) = ''" if self.kinds[name] == "text" else "")
            for name in (roles.label, roles.prediction)
        )
        unknown = f"WHEN {label} THEN NULL WHEN {prediction} THEN {double(1)}"
        return f"CASE {unknown} ELSE {self._loss()} END"

    @property
    def _hashed(self) -> list[str]:
        """What rows are drawn by, as doubles: their key, or else their scores as they are."""
        key = self.roles.key
        if key is None:
            return [self._double(name) for name in hashed_order(self.roles.scores)]
        return [_text_number(quoted(key)) if self.kinds[key] == "text" else self._double(key)]

    @property
    def has_flag(self) -> bool:
        """Whether the column `ood` says yes or no, and does not name sets."""
        return self.kinds[str(self.roles.ood)] in ("flag", "whole", "real")

    @property
    def set_name(self) -> str:
        """The name of the OOD set of a row, as text."""
        return f"COALESCE(CAST({quoted(str(self.roles.ood))} AS VARCHAR), '')"

    def _double(self, name: str) -> str:
        """Return a number or a flag as a double, NULL for NaN."""
        value = quoted(name)
        if self.kinds[name] == "flag":
            return f"CAST({_flag(value)} AS DOUBLE)"
        return self._known(f"CAST({value} AS DOUBLE)")

    def _known(self, value: str) -> str:
        """Return a double, NULL for NaN."""
        ends = map(double, (_LARGEST, math.inf, -math.inf))
        return f"({self.number.format(value, *ends)})"

    def _loss(self) -> str:
        """Return the loss of an ID row, NULL where it is missing."""
        roles = self.roles
        if not roles.labelled:
            return double(0)
        if roles.loss is not None:
            return self._double(roles.loss)
        if roles.correct is not None:
            right = self._double(roles.correct)
            # What is neither right nor wrong is no loss, and refused as one below 0.
            return (
                f"CASE {right} WHEN {double(1)} THEN {double(0)} WHEN {double(0)} THEN {double(1)} "
                f"ELSE CASE WHEN {right} IS NOT NULL THEN {double(-1)} END END"
            )
        names = str(roles.label), str(roles.prediction)
        if roles.loss_function == "absolute":
            return self._known(f"ABS({self._double(names[0])} - {self._double(names[1])})")
        label, prediction = (self._class(name, names) for name in names)
        return (
            f"CASE WHEN {label} = {prediction} THEN {double(0)} "
            f"WHEN {label} <> {prediction} THEN {double(1)} END"
        )

    def _class(self, name: str, both: Sequence[str]) -> str:
        """Return a class so that it can be compared: whole numbers as they are, to all digits."""
        kinds = {self.kinds[other] for other in both}
        if kinds == {"whole"}:
            return quoted(name)
        if kinds <= {"flag", "whole", "real"}:
            return self._double(name)
        return f"CAST({quoted(name)} AS VARCHAR)"

    def _group(self) -> str:
        """Return the name of the group of a row, empty where it is missing."""
        name = str(self.roles.group)
        value, kind = quoted(name), self.kinds[name]
        if kind == "flag":
            return f"CASE WHEN {value} THEN '1' WHEN NOT {value} THEN '0' ELSE '' END"
        if kind == "real":
            # Databases write numbers as text in different ways, whole ones in one.
            number = self._double(name)
            whole = f"ABS({number}) < {double(_WHOLE)} AND {number} = FLOOR({number})"
            text = f"CAST(CAST({number} AS BIGINT) AS VARCHAR)"
            return (
                f"CASE WHEN {number} IS NULL THEN '' WHEN {whole} THEN {text} "
                f"ELSE {literal(BAD_FLAG)} END"
            )
        return f"COALESCE(CAST({value} AS VARCHAR), '')"

    @property
    def _outside(self) -> str:
        """The condition that a row is OOD; `_label` tells the rows of which it cannot be said."""
        if self.roles.ood is None:
            return "1 = 0"
        if self.has_flag:
            return f"flag = {double(1)}"
        return f"flag NOT IN ({', '.join(map(literal, self.id_names))})"

    def _side(self, sides: Sides) -> str:
        own = _cases("member", sides.groups[1:], lambda place: ID_SIDE - place, ID_SIDE)
        other = _cases("flag", sides.sets[1:], lambda place: place, 0)
        return f"CAST(CASE WHEN {self._outside} THEN {other} ELSE {own} END AS BIGINT)"

    @property
    def _label(self) -> str:
        own = "'id'" if self.roles.group is None else f"{literal(GROUP)} || member"
        if self.roles.ood is None:
            return own
        if not self.has_flag:
            return f"CASE WHEN {self._outside} THEN flag ELSE {own} END"
        return (
            f"CASE WHEN flag IS NULL THEN {literal(NO_FLAG)} "
            f"WHEN flag = {double(1)} THEN {literal(POOLED_NAME)} "
            f"WHEN flag = {double(0)} THEN {own} ELSE {literal(BAD_FLAG)} END"
        )


def drawn(rows: str, draw: RowDraw, columns: int, outside: str, name: str, fence: str) -> str:
    """Return the rows that a draw leaves, by the doubles h0, h1, …; see `drawing.drawn_rows`.

    A step is a table of its own, with a fence, so that no database writes it out twice; one named
    after the other, as not every database takes queries that lie in each other many times.
    """
    first, factors = draw.factors(columns)
    parts = [_Parts(f"h{k}", f"{name}_{k}") for k in range(columns)]
    steps = [
        {f"{part.name}_{step}": getattr(part, step) for part in parts}
        for step in ("size", "steps", "rest")
    ]
    words = [
        f"{factor} * {word}"
        for part, own in zip(parts, factors, strict=True)
        for factor, word in zip(own, part.words, strict=True)
    ]
    # No product is beyond 2^57.
    total = f"{name}_sum"
    steps.append({total: f"({' + '.join([str(first), *words])}) % {PRIME}"})
    square = f"({total} * {total} % {PRIME})"
    steps.append({name: f"{square} * {square} % {PRIME} * {total} % {PRIME}"})
    kept = f"{name} >= {POISSON[0]}"
    if draw.kept is not None:
        inside, foreign = (f"{name} >= {low} AND {name} < {high}" for low, high in draw.kept)
        both = f"CASE WHEN {outside} THEN {_bit(foreign)} ELSE {_bit(inside)} END = 1"
        kept = inside if draw.kept[0] == draw.kept[1] else both
    often = ["1", *(_bit(f"{name} >= {limit}") for limit in POISSON[1:])]
    times = {f"{name}_times": f"CAST({' + '.join(often)} AS DOUBLE)"} if draw.repeats else {}
    where = f" WHERE NOT ({kept})" if draw.outside else f" WHERE {kept}"
    listed = ", ".join(["*", *(f"{value} AS {column}" for column, value in times.items())])
    tables = [f"{name}_step{place}" for place in range(len(steps) + 1)]
    named = [f"{tables[0]} AS ({rows})"]
    for added, before, table in zip(steps, tables, tables[1:], strict=False):
        more = ", ".join(f"{value} AS {column}" for column, value in added.items())
        named.append(f"{table} AS (SELECT *, {more} FROM {before}{fence})")
    return f"WITH {', '.join(named)} SELECT {listed} FROM {tables[-1]}{where}{fence}"


@dataclass(frozen=True, slots=True)
class _Parts:
    """A double taken apart, as `drawing.words` does, by columns whose names begin with a name."""

    value: str
    name: str

    @property
    def _infinite(self) -> str:
        return f"ABS({self.value}) > {double(_LARGEST)}"

    @property
    def size(self) -> str:
        """The double without its sign; what is below 1 is multiplied by a power of two."""
        return (
            f"CASE WHEN {self.value} IS NULL OR {self._infinite} THEN {double(0)} "
            f"WHEN ABS({self.value}) < {double(1)} THEN ABS({self.value}) * {double(SMALL)} "
            f"ELSE ABS({self.value}) END"
        )

    @property
    def steps(self) -> str:
        """How often that can be divided by 2^16."""
        size = f"{self.name}_size"
        places = (f"WHEN {size} < {double(2.0 ** (16 * k))} THEN {k - 1}" for k in range(1, 64))
        return f"CASE {' '.join(places)} ELSE 63 END"

    @property
    def rest(self) -> str:
        """What is left when it was."""
        factors = (f"WHEN {k} THEN {double(2.0 ** (-16 * k))}" for k in range(1, 64))
        divisor = f"CASE {self.name}_steps {' '.join(factors)} ELSE {double(1)} END"
        return f"{self.name}_size * {divisor}"

    @property
    def words(self) -> tuple[str, str, str]:
        """The three whole numbers."""
        small = f"{self.value} IS NULL OR {self._infinite} OR ABS({self.value}) < {double(1)}"
        code = (
            f"{self.name}_steps + 64 * {_bit(small)} + 128 * {_bit(f'{self.value} < {double(0)}')} "
            f"+ 256 * {_bit(f'{self.value} IS NULL')} + 512 * {_bit(self._infinite)}"
        )
        whole = f"FLOOR({self.name}_rest)"
        middle = f"({self.name}_rest - {whole}) * {double(2.0**BITS)}"
        last = f"({middle} - FLOOR({middle})) * {double(2.0**BITS)}"
        head = f"(CAST(({code}) * 65536 AS BIGINT) + CAST({whole} AS BIGINT))"
        return head, f"CAST(FLOOR({middle}) AS BIGINT)", f"CAST(FLOOR({last}) AS BIGINT)"


def _bit(condition: str) -> str:
    """Return 1 where something is the case, else 0."""
    return f"CASE WHEN {condition} THEN 1 ELSE 0 END"


def _text_number(value: str) -> str:
    """Return the number that stands for a key of text: the first digits of its MD5."""
    digits = [
        f"CAST(STRPOS('0123456789abcdef', SUBSTR(MD5({value}), {k + 1}, 1)) - 1 AS DOUBLE) "
        f"* {double(16.0 ** (KEY_DIGITS - 1 - k))}"
        for k in range(KEY_DIGITS)
    ]
    return f"CASE WHEN {value} IS NOT NULL THEN {' + '.join(digits)} END"


def _flag(value: str) -> str:
    return f"CASE WHEN {value} THEN 1 WHEN NOT {value} THEN 0 END"


def _cases(column: str, names: Sequence[str], number: Any, otherwise: int) -> str:
    """Return the number of a name; the first one is what is left over."""
    if not names:
        return str(otherwise)
    cases = (f"WHEN {literal(name)} THEN {number(k)}" for k, name in enumerate(names, start=1))
    return f"CASE {column} {' '.join(cases)} ELSE {otherwise} END"


def select(columns: Mapping[str, str], rows: str, more: str = "") -> str:
    """Return a query of some expressions of the rows of another one."""
    listed = ", ".join(f"{value} AS {name}" for name, value in columns.items())
    return f"SELECT {listed} FROM ({rows}) AS r{more}"


def extended(rows: str, **columns: str) -> str:
    """Return a query of rows with more columns."""
    listed = ", ".join(f"{value} AS {name}" for name, value in columns.items())
    return f"SELECT r.*, {listed} FROM ({rows}) AS r"


def finite(scores: Sequence[str]) -> str:
    """Return the condition that all scores of a row are finite."""
    return " AND ".join(f"ABS({name}) <= {double(_LARGEST)}" for name in scores)


def count(condition: str) -> str:
    """Return how many rows fulfil a condition."""
    return f"CAST(SUM(CASE WHEN {condition} THEN 1 ELSE 0 END) AS BIGINT)"


def combined(weights: Sequence[float], values: Sequence[str]) -> str:
    """Return ``weights . values``: the products and the sum that `Rule` forms."""
    pairs = zip(weights, values, strict=True)
    return " + ".join(f"{double(weight)} * {value}" for weight, value in pairs)


def accepted(rule: Rule, scores: Sequence[str]) -> str:
    """Return the condition that a rule accepts a row whose scores are all there."""
    needed = [k for k, weight in enumerate(rule.direction) if weight]
    if isinstance(rule, BoxRule):
        signed = [(rule.direction[k], rule.limits[k], scores[k]) for k in needed]
        values = [
            f"{double(sign)} * {score} - {double(sign * limit)}" for sign, limit, score in signed
        ]
    else:
        values = [combined([rule.direction[k] for k in needed], [scores[k] for k in needed])]
    sense = "<=" if rule.tau else "<"
    within = [f"{value} {sense} {double(rule.threshold)}" for value in values]
    return " AND ".join([finite(scores), *within])


# SQLite takes no more than some hundred words that wait for their end: a few for each CASE.
_DEEPEST = 6


def place(axis: Axis, value: str) -> str:
    """Return `Axis.bin` of a finite score: a tree of comparisons that ends in the right piece."""
    edges = axis.edges()
    ways = max(2, math.ceil(len(axis.start) ** (1 / _DEEPEST)))

    def tree(low: int, high: int) -> str:
        if high - low == 1:
            return leaf(low)
        ends = sorted({low + (high - low) * k // ways for k in range(ways + 1)})
        first, *others = itertools.pairwise(ends)
        branches = "".join(
            f"WHEN {value} >= {double(axis.start[start])} THEN {tree(start, stop)} "
            for start, stop in reversed(others)
        )
        return f"CASE {branches}ELSE {tree(*first)} END"

    def leaf(piece: int) -> str:
        first, last = int(axis.first[piece]), int(axis.first[piece + 1]) - 1
        if first == last:
            return str(first)
        start, scale = float(axis.start[piece]), float(axis.scale[piece])
        apart = f"{value} - {double(start)}"
        # Only products between 1/2 and the number of bins are formed.
        half = min(0.5 / scale, _LARGEST) if scale > 0 else _LARGEST
        return (
            f"CASE WHEN {value} >= {double(edges[last - 1])} THEN {last} "
            f"WHEN {apart} < {double(half)} THEN {first} "
            f"ELSE {first} + CAST(FLOOR(({apart}) * {double(scale)}) AS BIGINT) END"
        )

    return tree(0, len(axis.start))


def with_cell(rows: str, name: str, bins: Bins, scores: Sequence[str]) -> str:
    """Return rows with `Bins.key` as one more column; that of infinite scores means nothing."""
    cut = list(scores)
    if bins.weights is not None:
        cut = [f"{name}_{k}" for k in range(len(bins.weights))]
        sums = [combined(weights, scores) for weights in bins.weights]
        rows = extended(rows, **dict(zip(cut, sums, strict=True)))
    key = place(bins.axes[0], cut[0])
    for axis, value in zip(bins.axes[1:], cut[1:], strict=True):
        key = f"({key}) * {axis.bins} + {place(axis, value)}"
    return extended(rows, **{name: f"CASE WHEN {finite(scores)} THEN CAST({key} AS BIGINT) END"})


def masses(measure: Measure, *, weighted: bool) -> dict[str, str]:
    """Return the integer masses of a row from its columns "side", "loss" and "weight".

    They are those of `expressions.masses`.
    """
    if measure.plain:
        return {"one": "1", "loss": "CAST(loss AS BIGINT)"}
    weight = "weight" if weighted else double(1)
    scaled = (
        f"CASE WHEN side < 0 THEN {_scaled(weight, measure.id_exponent)} "
        f"ELSE {_scaled(weight, measure.ood_exponent)} END"
    )
    rounded = f"FLOOR({scaled} + {double(0.5)})"
    lost = f"FLOOR({_scaled(f'{weight} * loss', measure.loss_exponent)} + {double(0.5)})"
    cheap = f"side < 0 AND {lost} < {rounded} * {double(measure.price)}"
    return {
        "one": "1",
        "mass": f"CAST({rounded} AS BIGINT)",
        "loss": f"CAST({lost} AS BIGINT)",
        "cheap_id": f"CASE WHEN {cheap} THEN CAST({rounded} AS BIGINT) ELSE 0 END",
        "cheap_loss": f"CASE WHEN {cheap} THEN CAST({lost} AS BIGINT) ELSE 0 END",
        "inexact": f"CASE WHEN {rounded} <> {scaled} THEN 1 ELSE 0 END",
    }


def _scaled(value: str, exponent: int) -> str:
    """Return ``value * 2**exponent``, in two steps because a float may not hold the power."""
    half = exponent // 2
    return f"{value} * {double(2.0**half)} * {double(2.0 ** (exponent - half))}"


def is_part(value: str) -> str:
    """Return the condition that a number is not whole."""
    return f"{value} < {double(_WHOLE)} AND {value} <> FLOOR({value})"


@dataclass(frozen=True, slots=True)
class SqlDialect:
    """What sqlglot does not know of a database."""

    number: str = "CASE WHEN ABS({0}) <= {1} OR {0} = {2} OR {0} = {3} THEN {0} END"
    """What makes NaN NULL; given are a double, the largest one and the infinities."""
    fence: str = ""
    """Keeps a query within another from being written out at every place that uses its columns."""
    type_of: str = ""
    """Tells the type of a column; empty where the driver does."""
    real: str = "DOUBLE"
    """The type of doubles."""
    chance: str = "RANDOM()"
    """A random number between 0 and 1."""
    infinity: str = "Infinity"
    """How an infinite double is written as text."""
    has_md5: bool = True
    """Whether it tells the MD5 of a text, in hexadecimal digits."""
    folds: bool = False
    """Whether names in small letters that are not quoted mean capitals."""


DIALECTS = {
    "postgres": SqlDialect(
        fence=" OFFSET 0", type_of="CAST(PG_TYPEOF({}) AS VARCHAR)", real="DOUBLE PRECISION"
    ),
    # Each value has a type of its own, and a NaN is stored as NULL.
    "sqlite": SqlDialect(
        number="{0}",
        fence=" LIMIT -1 OFFSET 0",
        has_md5=False,
        real="REAL",
        chance="(CAST(RANDOM() AS REAL) / CAST(18446744073709551616 AS REAL) + 0.5)",
    ),
    # Comparisons are taken to be settled by statistics of Parquet files, which leave NaN out.
    "duckdb": SqlDialect(
        number="CASE WHEN ISFINITE({0}) OR ISINF({0}) THEN {0} END", type_of="TYPEOF({})"
    ),
    "snowflake": SqlDialect(
        type_of="SYSTEM$TYPEOF({})",
        chance="UNIFORM(CAST(0 AS DOUBLE), CAST(1 AS DOUBLE), RANDOM())",
        infinity="inf",
        folds=True,
    ),
    "bigquery": SqlDialect(real="FLOAT64", chance="RAND()"),
    "trino": SqlDialect(type_of="TYPEOF({})", has_md5=False),
}
"""The databases that demur knows, by sqlglot's names."""


def written(query: str, dialect: str) -> str:
    """Return a query in the SQL of a database.

    Examples
    --------
    >>> written('SELECT CAST("a" AS DOUBLE) AS a FROM "t"', "bigquery")
    'SELECT CAST(`a` AS FLOAT64) AS a FROM `t`'
    """
    text = str(sql_writer().parse_one(query, read="duckdb").sql(dialect))
    text = _DOUBLE.sub(lambda found: _number(found[1], dialect), text)
    return text.replace(_CHANCE, DIALECTS[dialect].chance)


@lru_cache(4096)
def _number(bits: str, dialect: str) -> str:
    """Write a double, given its bits, so that it is read as the same one."""
    (value,) = struct.unpack(">d", bytes.fromhex(bits))
    if dialect != "sqlite":
        own = DIALECTS[dialect]
        return f"CAST('{repr(value).replace('inf', own.infinity)}' AS {own.real})"
    if math.isinf(value):
        return "9e999" if value > 0 else "-9e999"
    # SQLite may read decimals an ulp off, whole numbers and powers of two never.
    top, bottom = value.as_integer_ratio()
    exponent = 1 - bottom.bit_length()
    while top and top % 2 == 0 and abs(top) >= 2**53:
        top, exponent = top // 2, exponent + 1
    text = f"CAST({top} AS REAL)"
    while exponent:
        step = min(abs(exponent), 62)
        text += f" {'*' if exponent > 0 else '/'} CAST({2**step} AS REAL)"
        exponent -= step if exponent > 0 else -step
    return f"({text})"


def sql_writer() -> Any:
    """Import sqlglot, which is an extra."""
    try:
        return import_module("sqlglot")
    except ModuleNotFoundError:
        raise MissingExtraError("sqlglot", "sql") from None
