"""Rows of a table in a database, counted there by grouped queries.

Only groups of sums come back, and the rows that a search has to look at one by one. The database
needs nothing of demur, and no rights but to read the table.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from demur.core.bins import Bins
from demur.core.columns import (
    ID_NAMES,
    NEITHER_FLAG_NOR_NAME,
    check_names,
    guess,
    listing,
    match_name,
)
from demur.core.row_draws import RowDraw
from demur.core.rule import Rule
from demur.core.source import (
    MEMORY,
    Cells,
    Histogram,
    Measure,
    Rows,
    Sides,
    Strip,
    Tally,
)
from demur.errors import InvalidInputError
from demur.sources.engines import sql_rows as sql
from demur.sources.engines.base import (
    LabelledSource,
    RowQuestion,
    StripAxis,
    check_tallies,
    counted_whole,
)
from demur.sources.engines.connections import Database
from demur.sources.engines.expressions import Table, matched
from demur.sources.engines.group_sums import (
    INFINITE,
    MOST_SETS,
    NOWHERE,
    histogram_of,
    tallies_of,
)
from demur.sources.engines.sql_rows import DIALECTS, SqlRows, double, kind_of, quoted
from demur.sources.open import Missing, Roles

_NUMBERS = ("flag", "whole", "real")
# What SQLite calls the numbers of a column that also has text.
_STORED = ("integer", "real")
# Cells of which one query asks; some databases take no longer text.
_KEYS = 50_000
# Stands for their keys while a query is written, which would take long.
_MARKED = "demur_marked_keys"


class SqlSource(LabelledSource):
    """Rows of a table in a database.

    Parameters
    ----------
    database
        A connection and its dialect.
    table
        Name of a table or view, after that of its schema where needed: ``"lake.scores"``. Parts
        with a dot or quotes in them are written in double quotes.
    roles
        Which columns mean what.
    missing
        ``"error"`` refuses missing values, ``"drop"`` leaves such rows out.
    memory
        Bytes to get along with in this process.

    Examples
    --------
    >>> import sqlite3, demur
    >>> connection = sqlite3.connect(":memory:")
    >>> _ = connection.execute("CREATE TABLE scores (s REAL, l INTEGER, o INTEGER)")
    >>> rows = [(0.1, 0, 0), (0.2, 1, 0), (0.9, 0, 1)]
    >>> _ = connection.executemany("INSERT INTO scores VALUES (?, ?, ?)", rows)
    >>> roles = Roles(("s",), loss="l", ood="o")
    >>> with SqlSource(Database.of(connection), "scores", roles) as source:
    ...     demur.tune(source, demur.TprFprModel(0.5)).point.selective_risk
    0.0
    >>> connection.close()
    """

    def __init__(
        self,
        database: Database,
        table: str,
        roles: Roles,
        *,
        missing: Missing = "error",
        memory: int = MEMORY,
    ) -> None:
        if missing not in ("error", "drop"):
            raise InvalidInputError(f'missing must be "error" or "drop", got {missing!r}')
        self.engine = database.dialect
        super().__init__(roles.columns, memory=memory)
        self.drawn_by_key = roles.key is not None
        self._database = database
        self._table = table_name(table, folds=DIALECTS[database.dialect].folds)
        self._names, self._told = _columns(database, self._table, table)
        self.place = f"the table {table}"
        if self.engine == "postgres":
            _refuse_rounded_text(database)
        check_names(self._names, roles.used(), f"the table {table}")
        roles = matched(roles, self._names)
        kinds = self._kinds([name for _, name in roles.used()], roles.ood)
        _check_kinds(roles, kinds)
        own = DIALECTS[database.dialect]
        self._rows = SqlRows(self._table, roles, kinds, missing, own.number, own.fence)
        if roles.ood is not None and not self._rows.has_flag:
            self._rows = replace(self._rows, id_names=self._id_names())
        self._scores = self._rows.scores

    def close(self) -> None:
        """Close the connection if it was opened for this source."""
        self._database.close()

    def _kinds(self, names: Sequence[str], ood: str | None) -> dict[str, str]:
        """Return what columns hold."""
        types = self._types(list(dict.fromkeys(names)), self._told)
        kinds = {name: kind_of(kind) for name, kind in types.items()}
        # Where nothing but missing values is stored, no row is in a set.
        return {n: kind or ("text" if n == ood else "whole") for n, kind in kinds.items()}

    @property
    def _leaves_out(self) -> bool:
        return self._rows.missing == "drop"

    def _answer(self, question: RowQuestion) -> Table:
        check_names(self._names, question.used, "the table")
        named = {role: match_name(name, self._names) for role, name in question.used}
        wanted = dict.fromkeys(match_name(name, self._names) for _, name in question.used)
        kinds = self._kinds(list(wanted), named.get("ood"))
        for argument, name in question.numeric:
            if (kind := kinds[match_name(name, self._names)]) not in _NUMBERS:
                raise InvalidInputError(f"{argument}: column {name!r} holds {kind}, not numbers")
        return self._pass(question.of_table(replace(self._rows, kinds=kinds), self._names))

    def _types(self, names: Sequence[str], told: Mapping[str, str]) -> dict[str, str]:
        """Return the types of columns, as the database calls them."""
        type_of = DIALECTS[self.engine].type_of
        if self.engine == "sqlite":
            return self._stored_types(names)
        if not type_of:
            return {name: told[name] for name in names}
        columns = {f"c{k}": type_of.format(quoted(name)) for k, name in enumerate(names)}
        # A row without values, also of a table that has no rows.
        none = f"(SELECT * FROM {self._table} LIMIT 0) AS t"
        row = f"SELECT t.* FROM (SELECT 1 AS one) AS o LEFT JOIN {none} ON 1 = 1"
        found = self._ask(sql.select(columns, row))
        return {name: str(found[f"c{k}"][0]) for k, name in enumerate(names)}

    def _stored_types(self, names: Sequence[str]) -> dict[str, str]:
        """Return what the values of columns are, where each has a type of its own."""
        found = {}
        for name in names:
            # Kinds of values beside missing ones.
            kinds = self._ask(
                f"SELECT DISTINCT TYPEOF({quoted(name)}) AS q_kind FROM {self._table} "
                f"WHERE {quoted(name)} IS NOT NULL"
            )["kind"].tolist()
            found[name] = " and ".join(sorted(kinds))
            if kinds and set(kinds) <= {"integer", "real"}:
                found[name] = "real" if "real" in kinds else "integer"
        return found

    def _id_names(self) -> tuple[str, ...]:
        """Return the texts that mark ID rows, as the table spells them."""
        names = f"SELECT DISTINCT {self._rows.set_name} AS q_name FROM {self._table}"
        found = self._ask(f"SELECT q_name FROM ({names}) AS n LIMIT {MOST_SETS + 5}")
        known = [name for name in found["name"].tolist() if name.strip().lower() in ID_NAMES]
        return tuple(known) or ID_NAMES

    def _ask(self, query: str, keys: str = "") -> Table:
        """Return the answer to a query that is one more look at the rows."""
        return self._database.select(sql.written(query, self.engine).replace(_MARKED, keys))

    def _pass(self, query: str, keys: str = "") -> Table:
        with self._passing():
            return self._ask(query, keys)

    def _look(self) -> tuple[Roles, Table]:
        rows = self._rows.rows(Sides(), labels=True)
        aggregates = _looks(self._scores, weighted=self._rows.weighted)
        if self._rows.roles.ood is not None:
            aggregates["named"] = "CAST(SUM(named) AS BIGINT)"
        listed = ", ".join(f"{value} AS q_{name}" for name, value in aggregates.items())
        query = f"SELECT label, {listed} FROM ({rows}) AS r GROUP BY label LIMIT {MOST_SETS + 5}"
        return self._rows.counted_roles, self._pass(query)

    def _keep_set(self, name: str) -> None:
        self._rows = self._rows.with_set(name)

    def sample(self, rows: int, *, seed: int) -> Rows:
        """Return about so many rows; databases choose them by a chance of their own."""
        share = rows / max(self._overview.rows, 1)
        return self._fetched(self._pass(self._rows.rows(self._overview.sides, share=share)))

    def drawn(self, draw: RowDraw) -> SqlSource:
        """Return the rows that a draw keeps, as a source of their own."""
        key, kinds = self._rows.roles.key, self._rows.kinds
        if key is not None and kinds[key] not in (*_NUMBERS, "text"):
            raise InvalidInputError(
                f"key: column {key!r} holds {kinds[key]}: ids must be numbers or text"
            )
        is_text = key is not None and kinds[key] == "text"
        if is_text and not (DIALECTS[self.engine].has_md5 or self._database.tells_md5()):
            raise InvalidInputError(
                f"key: column {key!r} is text, of which {self.engine} has no MD5 to draw rows by: "
                "give a column of numbers, or read the rows into memory (--engine memory)"
            )
        other = self._without_answers()
        other._rows = self._rows.drawn(draw)
        return other

    def tally(self, rule: Rule, measure: Measure, *, by: str | None = None) -> Mapping[Any, Tally]:
        """Return what `rule` accepts, for each value of the column `by`."""
        if len(rule.direction) != len(self._scores):
            raise InvalidInputError(
                f"the rule takes {len(rule.direction)} scores, the source has {len(self._scores)}"
            )
        if by is not None:
            check_names(self._names, [("by", by)], "the table")
            by = match_name(by, self._names)
        rows = self._rows.rows(measure.sides, by=by)
        accept = f"CASE WHEN {sql.accepted(rule, self._scores)} THEN 1 ELSE 0 END"
        keys = {"accept": "accept", "side": "side"} | ({"by": "grouped_by"} if by else {})
        table = self._pass(self._summed(sql.extended(rows, accept=accept), keys, measure))
        tallies = tallies_of(table, measure)
        check_tallies(self._overview, measure, tallies)
        return tallies

    def histogram(
        self,
        bins: Bins,
        measure: Measure,
        *,
        strips: Sequence[Strip] = (),
        within: Cells | None = None,
    ) -> Histogram:
        """Add up the rows by cell and along strips.

        Every row is counted once for its cell and once for every strip: it is joined with their
        numbers, and all the keys of cells and strips are different numbers.
        """
        axes = [StripAxis(strip) for strip in strips]
        rows = self._rows.rows(measure.sides)
        parts = []
        for place, keys in enumerate(_lists(within)):
            counted = self._keyed(rows, bins, axes, within, first=place == 0)
            query = self._summed(counted, {"key": "key", "side": "side"}, measure)
            parts.append(self._pass(query, keys))
        table = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        thresholds = [axis.threshold for axis in axes]
        found = histogram_of(table, bins, measure, thresholds, self._overview)
        return counted_whole(self._overview, measure, found, within)

    def _keyed(
        self,
        rows: str,
        bins: Bins,
        axes: Sequence[StripAxis],
        within: Cells | None,
        *,
        first: bool,
    ) -> str:
        """Return every row once for its cell and once for every strip, with "key"."""
        finite, kept = sql.finite(self._scores), "1 = 1"
        rows = sql.with_cell(rows, "cell", bins, self._scores)
        if within is not None:
            rows = sql.with_cell(rows, "marked", within.bins, self._scores)
            kept = f"marked IN ({_MARKED})"
        values = {
            f"strip{k}": sql.combined(axis.weights, self._scores) for k, axis in enumerate(axes)
        }
        rows = sql.extended(rows, **values) if values else rows
        # Where the cells are asked for in parts, infinite scores are counted with the first.
        infinite = INFINITE if first else NOWHERE
        keys = [
            f"CASE WHEN NOT ({finite}) THEN {infinite} WHEN {kept} THEN cell ELSE {NOWHERE} END"
        ]
        start = bins.cells
        for name, axis in zip(values, axes, strict=True):
            inside = f"{finite} AND {name} < {double(axis.end)} AND {kept}"
            key = f"{start} + {sql.place(axis.axis, name)}"
            keys.append(f"CASE WHEN {inside} THEN {key} ELSE {NOWHERE} END")
            start += axis.bins
        if len(keys) == 1:
            return sql.extended(rows, key=keys[0])
        which = " ".join(f"WHEN {place} THEN {key}" for place, key in enumerate(keys))
        numbers = " UNION ALL ".join(f"SELECT {place} AS place" for place in range(len(keys)))
        return (
            f"SELECT r.*, CASE place {which} END AS key FROM ({rows}) AS r "
            f"CROSS JOIN ({numbers}) AS n"
        )

    def _summed(self, rows: str, keys: Mapping[str, str], measure: Measure) -> str:
        """Return the masses of rows, added up by some keys."""
        masses = sql.masses(measure, weighted=self._rows.weighted)
        named = {f"k_{name}": value for name, value in keys.items()}
        massed = sql.select(named | {f"m_{name}": value for name, value in masses.items()}, rows)
        sums = {f"q_{name}": f"CAST(SUM(m_{name}) AS BIGINT)" for name in masses}
        listed = {f"q_{name}": f"k_{name}" for name in keys}
        return sql.select(listed | sums, massed, f" GROUP BY {', '.join(named)}")

    def rows(self, cells: Cells) -> Rows:
        """Return the rows of some cells."""
        rows = sql.with_cell(
            self._rows.rows(self._overview.sides), "marked", cells.bins, self._scores
        )
        names = [*self._scores, "loss", "side"]
        names += ["weight"] if self._rows.weighted else []
        query = f"SELECT {', '.join(names)} FROM ({rows}) AS r WHERE marked IN ({_MARKED})"
        parts = [self._fetched(self._pass(query, keys)) for keys in _lists(cells)]
        return self._brought(Rows.joined(parts, self._columns.count))

    def _fetched(self, table: Table) -> Rows:
        weight = table["weight"].astype(np.float64) if "weight" in table else None
        return Rows(
            # Adding zero turns -0.0 into 0.0.
            np.column_stack([table[name].astype(np.float64) for name in self._scores]) + 0.0,
            table["side"].astype(np.int64),
            table["loss"].astype(np.float64),
            weight,
        )


def table_name(table: Any, *, folds: bool = False) -> str:
    """Return the name of a table as SQL; a dot divides it unless it is in double quotes.

    Examples
    --------
    >>> table_name("lake.scores"), table_name('lake."my.scores"')
    ('"lake"."scores"', '"lake"."my.scores"')
    """
    if not isinstance(table, str) or "\0" in table or not _TABLE.fullmatch(table):
        raise InvalidInputError(
            f"table must be the name of a table, such as 'scores' or 'schema.scores', got {table!r}"
        )
    parts = []
    for part in _PART.findall(table):
        if part.startswith('"'):
            parts.append(part[1:-1].replace('""', '"'))
        else:
            parts.append(part.upper() if folds and part == part.lower() else part)
    return ".".join(map(quoted, parts))


_PART = re.compile(r'"(?:[^"]|"")+"|[^".]+')
_TABLE = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern})){{0,2}}")


def read_sql(
    database: Database, table: str, names: Sequence[str] | None
) -> tuple[list[str], dict[str, npt.NDArray[Any]]]:
    """Return the names of the columns of a table, and some of the columns."""
    place = table_name(table, folds=DIALECTS[database.dialect].folds)
    available = _columns(database, place, table)[0]
    if names is None:
        return available, {}
    check_names(available, [("columns", name) for name in names], f"the table {table}")
    wanted = [match_name(name, available) for name in names]
    listed = {f"q_{k}": quoted(name) for k, name in enumerate(wanted)}
    found = database.select(
        sql.written(sql.select(listed, f"SELECT * FROM {place}"), database.dialect)
    )
    return available, {name: found[str(k)] for k, name in enumerate(names)}


def _columns(database: Database, place: str, table: str) -> tuple[list[str], dict[str, str]]:
    """Return the columns of a table, and of which types the driver says they are."""
    try:
        return database.columns(sql.written(f"SELECT * FROM {place} LIMIT 0", database.dialect))
    except InvalidInputError as error:
        if not _UNKNOWN_TABLE.search(str(error)):
            raise
        raise _unknown_table(database, table, error) from None


_UNKNOWN_TABLE = re.compile("does not exist|no such table|not found", re.IGNORECASE)


def _unknown_table(database: Database, table: str, error: InvalidInputError) -> InvalidInputError:
    """Return what to say of a table that is not there: which ones are."""
    hint = "; give the name of a table or view, after that of its schema where needed"
    if re.match(r"\s*(select|with)\s", table, re.IGNORECASE):
        hint = "; a query cannot be given as the table: make a view of it"
    try:
        known = database.tables()
    except InvalidInputError:
        return InvalidInputError(f"{error}{hint}")
    # What lies in another schema is found by its last name, too.
    alike = [name for name in known if name.rpartition(".")[2] == table]
    close = f"did you mean {alike[0]!r}? " if alike else guess(table, known)
    return InvalidInputError(
        f"table {table!r} does not exist there, or may not be seen; {close}"
        f"tables and views are {listing(known)}{hint if not close else ''}"
    )


def _refuse_rounded_text(database: Database) -> None:
    """Refuse a connection to PostgreSQL that sends numbers with fewer digits than they have."""
    found = database.select("SELECT current_setting('extra_float_digits') AS q_digits")
    (digits,) = found["digits"]
    if int(digits) < 1:
        raise InvalidInputError(
            f"PostgreSQL: extra_float_digits is {digits}, which rounds numbers on their way here; "
            "SET extra_float_digits = 1"
        )


def _check_kinds(roles: Roles, kinds: Mapping[str, str]) -> None:
    """Refuse text where numbers must be, and classes of different kinds."""
    for argument, name in roles.numeric():
        if kinds[name] not in _NUMBERS:
            raise InvalidInputError(f"{argument}: column {name!r} holds {kinds[name]}, not numbers")
    ood = "text" if roles.ood is None else kinds[roles.ood]
    if not set(ood.split(" and ")) <= {*_NUMBERS, *_STORED, "text"}:
        raise InvalidInputError(f"ood: column {roles.ood!r} holds {ood}, {NEITHER_FLAG_NOR_NAME}")
    if roles.label is None or roles.prediction is None:
        return
    told = [("label", roles.label), ("prediction", roles.prediction)]
    said = ["numbers" if kinds[name] in _NUMBERS else kinds[name] for _, name in told]
    if said[0] != said[1] or " and " in said[0]:
        held = [
            f"{argument}: column {name!r} holds {kind}"
            for (argument, name), kind in zip(told, said, strict=True)
        ]
        raise InvalidInputError(
            f"{', '.join(held)}: labels of different kinds are never equal; make both numbers or "
            "both text"
        )


def _looks(scores: Sequence[str], *, weighted: bool) -> dict[str, str]:
    """Return what `group_sums` wants to know of the rows of a label."""
    finite, lost = sql.finite(scores), "loss"
    looks = {"rows": "COUNT(*)"}
    looks["other_loss"] = sql.count(f"loss <> {double(0)} AND loss <> {double(1)}")
    for name in scores:
        looks[f"{name}_missing"] = sql.count(f"{name} IS NULL")
        looks[f"{name}_illegal"] = sql.count(f"{name} = {double(-math.inf)}")
        for end, how in (("low", "MIN"), ("high", "MAX")):
            looks[f"{name}_{end}"] = f"{how}(CASE WHEN {finite} THEN {name} END)"
    amounts = ["loss"]
    if weighted:
        amounts, lost = ["loss", "weight"], "weight * loss"
        looks["weight_total"] = _total("weight")
        looks["weight_part"] = sql.count(sql.is_part("weight"))
    looks["lost_total"], looks["lost_part"] = _total(lost), sql.count(sql.is_part(lost))
    for name in amounts:
        looks[f"{name}_missing"] = sql.count(f"{name} IS NULL")
        looks[f"{name}_illegal"] = sql.count(f"{name} < {double(0)} OR {name} = {double(math.inf)}")
    return looks


def _total(value: str) -> str:
    # An infinite one is refused by itself; sums of it would stop some databases.
    return f"COALESCE(SUM(CASE WHEN {value} < {double(math.inf)} THEN {value} END), {double(0)})"


def _lists(cells: Cells | None) -> Iterator[str]:
    """Yield the keys of cells as text, in parts; once nothing where no cells are asked for."""
    if cells is None:
        yield ""
        return
    for start in range(0, max(len(cells.key), 1), _KEYS):
        part = cells.key[start : start + _KEYS].tolist()
        yield ", ".join(map(str, part)) or "-1"
