"""Counting rows where they are: one grouped count in an engine or a database.

Rows are grouped by period, decision, bins and what is known of them, so that what comes back is a
small table, whatever the number of rows; `counts_by_period` makes of it what `Watch.update` makes
of rows. What a label means is settled here, by the very words of `demur.watch.counts`: engines and
databases only tell which texts and flags there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from demur._arrays import BoolArray, FloatArray
from demur.core.columns import are_written_flags, check_names, match_name, written_flags_error
from demur.core.fingerprint import LOOKED_AT
from demur.core.rule import BoxRule, Rule
from demur.core.sample import POOLED_NAME
from demur.errors import InvalidInputError
from demur.sources.engines import expressions as ex
from demur.sources.engines import sql_rows as sql
from demur.sources.engines.base import BaseSource
from demur.sources.engines.frames import answer_of
from demur.sources.engines.sql_rows import SqlRows, double
from demur.sources.open import Roles
from demur.watch.counts import ROWS, CountLayout, KnownRows, LiveCounts, mark_of
from demur.watch.files import (
    ExampleRow,
    FileColumns,
    FileCounts,
    PeriodNames,
    rows_beyond,
    rows_broken,
    texts,
)
from demur.watch.setup import WatchSetup
from demur.watch.timeline import Period, as_period, in_order_of_time

_MOST = 2_000_000
"""No sensible grouping has more groups; a column such as an id would bring all rows here."""

# Flags as they are counted: none, no, yes, and any other number.
_NONE, _OTHER = -1, 2
_SUMS = ("rows", "lost", "squared", "strange")


@dataclass(frozen=True, slots=True)
class GroupedColumns:
    """Which columns of a frame or table mean what."""

    by: str
    loss: str | None = None
    ood: str | None = None
    audited: str | None = None
    group: str | None = None
    label: str | None = None
    prediction: str | None = None

    def used(self) -> list[tuple[str, str]]:
        """Return the columns with the arguments that name them."""
        roles = ("by", "loss", "ood", "audited", "group", "label", "prediction")
        return [(r, getattr(self, r)) for r in roles if getattr(self, r) is not None]

    @property
    def labelled(self) -> bool:
        """Whether losses are told."""
        return self.loss is not None or None not in (self.label, self.prediction)


@dataclass(frozen=True, slots=True)
class PeriodCounts:
    """What a grouped count found, in order of the periods."""

    counts: dict[Period, LiveCounts]
    waiting: list[Period]
    """Periods with an audited row without a label: from the first one on, labels wait."""


def counts_by_period(
    setup: WatchSetup,
    data: Any,
    columns: GroupedColumns,
    *,
    period: Callable[[Any], Period] = as_period,
    as_files: bool = False,
) -> PeriodCounts:
    """Count a frame of any engine that narwhals knows, or an opened source, in one pass.

    Parameters
    ----------
    period
        Names the period that a value of the column means.
    as_files
        As the command reads files, an empty name of a set is no label, and flags are 0 and 1.
    """
    question = LiveQuestion.of(setup, columns)
    table = _answer_of(data, question)
    if len(table["by"]) > _MOST:
        raise InvalidInputError(
            f"by: {columns.by!r} has too many values to be a period, or another column to be a "
            "label"
        )
    question.refuse_strange(table)
    names = [period(value) for value in table["by"].tolist()]
    labels = _KnownGroups.of(table, columns, as_files=as_files)
    return _assemble(setup.layout, names, _with_members(table, columns, as_files), labels)


def _with_members(table: ex.Table, columns: GroupedColumns, as_files: bool) -> ex.Table:
    """Return groups of which the names of groups of rows are as files have them, if asked."""
    if "member" not in table:
        return table
    members = table["member"].astype(object)
    strange = members == ex.BAD_FLAG
    if strange.any():
        rows = int(table["rows"][strange].sum())
        raise InvalidInputError(
            f"group: column {columns.group!r} is a number that is not whole in {rows} rows"
        )
    return dict(table) | ({"member": texts(members)} if as_files else {})


def count_source(
    setup: WatchSetup, source: BaseSource, roles: FileColumns, names: PeriodNames
) -> FileCounts:
    """Count a source as `count_files` does files; of some rows, it is looked at what they are.

    Nothing tells which rows come first, so none waits for a label.
    """
    classes = roles.label is not None and roles.prediction is not None
    columns = GroupedColumns(
        str(roles.by),
        None if classes else roles.loss,
        roles.ood,
        group=roles.group,
        label=roles.label,
        prediction=roles.prediction,
    )
    found = FileCounts(files=names.files)
    counted = counts_by_period(setup, source, columns, period=names, as_files=True)
    names.refuse_many(len(counted.counts))
    found.counts = counted.counts
    found.rows = int(sum(counts.sums[ROWS] for counts in counted.counts.values()))
    if found.rows:
        _look_at_some(setup, source, columns, roles.on, names, found)
    return found


def _look_at_some(
    setup: WatchSetup,
    source: BaseSource,
    columns: GroupedColumns,
    on: str | None,
    period: Callable[[Any], Period],
    found: FileCounts,
) -> None:
    """Bring some rows of a source, whichever it has first; `on` is the column of their names."""
    question = LiveQuestion.of(setup, columns)
    table = source.answered(LiveSample(question, on))
    source.work.fetched += len(table["by"])
    scores = np.column_stack([table[f"s{k}"].astype(np.float64) for k in range(len(setup.names))])
    rows, loss = setup.rows(scores.copy()), table["lost"].astype(np.float64)
    marked, foreign = np.zeros(len(loss), bool), np.full(len(loss), "", object)
    if columns.ood is not None:
        known = {mark: _meaning(mark, columns.ood, True) for mark in dict.fromkeys(table["mark"])}
        marked = np.array([known[mark][0] for mark in table["mark"]], bool)
        foreign = np.array([known[mark][1] for mark in table["mark"]], object)
    told = KnownRows(marked | ~np.isnan(loss), foreign != "", loss, foreign)
    keys = np.full(len(loss), "a row", object) if on is None else texts(table["key"])
    found.looked_at.append(scores)
    found.examined = len(scores) if len(scores) < found.rows else None
    ways = ((found.beyond, rows_beyond(setup, rows)), (found.broken, rows_broken(rows, told)))
    for kept, rows_found in ways:
        for k, why in rows_found:
            of_row = tuple(scores[k].tolist())
            kept.append(ExampleRow(str(keys[k]), period(table["by"][k]), why, of_row))


def _answer_of(data: Any, question: LiveQuestion) -> ex.Table:
    if isinstance(data, BaseSource):
        return data.answered(question)
    try:
        frame = ex.known_frame(data)
    except TypeError:
        raise InvalidInputError(
            f"data is a {type(data).__name__}: give a frame of Spark, Dask, Polars, DuckDB, pandas "
            "or pyarrow, or what open_source returns"
        ) from None
    if not isinstance(frame, nw.LazyFrame):
        return answer_of(frame, question)
    held = question.of_frame(frame).collect()
    return {name: _column(held[name]) for name in held.columns}


def _column(series: Any) -> Any:
    return series.to_numpy() if series.dtype.is_numeric() else np.array(series.to_list(), object)


@dataclass(frozen=True)
class LiveQuestion:
    """How many rows there are of every kind that a watch tells apart, by frame or by SQL."""

    rule: Rule
    names: tuple[str, ...]
    cuts: tuple[FloatArray, ...]
    risk_cuts: FloatArray
    max_loss: float | None
    columns: GroupedColumns
    grouped: bool
    """Whether groups of rows are told apart."""

    @classmethod
    def of(cls, setup: WatchSetup, columns: GroupedColumns) -> LiveQuestion:
        """Return the question of a watch."""
        if setup.made_by is not None:
            raise InvalidInputError(
                "learned scores are made in memory: call watch.update(rows, time=...), or demur "
                "watch on files, which reads any number of rows part by part"
            )
        names = setup.rule.score_names
        if names is None:
            raise InvalidInputError("the rule has no score_names to read columns by")
        ends = np.zeros(0) if setup.reference is None else setup.reference.risk_cuts
        grouped = bool(setup.layout.groups) and columns.group is not None
        return cls(setup.rule, names, setup.cuts, ends, setup.max_loss, columns, grouped)

    @property
    def used(self) -> list[tuple[str, str]]:
        """The columns that are read, with the arguments that name them."""
        return [*(("scores", name) for name in self.names), *self.columns.used()]

    @property
    def numeric(self) -> list[tuple[str, str]]:
        """Those of them that must hold numbers."""
        return [(role, name) for role, name in self.used if role in ("scores", "loss", "audited")]

    @property
    def enough(self) -> int | None:
        """All groups are wanted."""
        return None

    def roles(self, available: list[str]) -> Roles:
        """Return what columns mean, by the names that they have; scores are as they are."""
        check_names(available, self.used, "the frame")
        told = {role: match_name(name, available) for role, name in self.columns.used()}
        names = tuple(match_name(name, available) for name in self.names)
        kept = ("loss", "label", "prediction", "ood", "group")
        named: dict[str, Any] = {role: told[role] for role in kept if role in told}
        if not self.columns.labelled:
            named = {r: n for r, n in named.items() if r not in ("label", "prediction")}
        return Roles(names, labelled=self.columns.labelled, **named)

    @property
    def keys(self) -> list[str]:
        """What tells groups apart."""
        keys = ["by", "accept", *(f"b{k}" for k in range(len(self.names))), "risk", "lack", "known"]
        keys += ["mark"] * (self.columns.ood is not None)
        keys += ["picked"] * (self.columns.audited is not None)
        return keys + ["member"] * self.grouped

    def of_frame(self, frame: Any) -> Any:
        """Return the groups of the rows of a narwhals frame, lazy or not."""
        schema = dict(frame.collect_schema())
        rows = frame.select(**_FrameRows(self, schema).columns())
        sums = [nw.col(name).sum() for name in _SUMS]
        return rows.group_by(*self.keys).agg(*sums).head(_MOST + 1)

    def of_table(self, rows: SqlRows, available: list[str]) -> str:
        """Return the query of the groups of the rows of a table, which names their types."""
        told = {role: match_name(name, available) for role, name in self.columns.used()}
        rows = replace(rows, roles=self.roles(available))
        more = {"grouped_by": told["by"]}
        more |= {"picked_by": told["audited"]} if "audited" in told else {}
        return _table_groups(self, rows, rows.unjudged(more))

    def refuse_strange(self, table: ex.Table) -> None:
        """Refuse losses that cannot be one."""
        strange = int(table["strange"].sum()) if len(table["strange"]) else 0
        if not strange:
            return
        where = self.columns.loss or f"{self.columns.label}, {self.columns.prediction}"
        what = "neither 0 nor 1: make the watch with max_loss, the largest possible one"
        if self.max_loss is not None:
            what = f"not between 0 and the declared max_loss {self.max_loss:g}"
        raise InvalidInputError(f"loss: column {where!r} is in {strange} rows {what}")


@dataclass(frozen=True)
class LiveSample:
    """Some rows as they are, whichever come first."""

    question: LiveQuestion
    on: str | None

    @property
    def numeric(self) -> list[tuple[str, str]]:
        """Those of the columns that must hold numbers."""
        return self.question.numeric

    @property
    def enough(self) -> int:
        """So many rows are looked at."""
        return LOOKED_AT

    @property
    def used(self) -> list[tuple[str, str]]:
        """The columns that are read."""
        return [*self.question.used, *([("on", self.on)] if self.on is not None else [])]

    def of_frame(self, frame: Any) -> Any:
        """Return some rows of a narwhals frame, lazy or not."""
        schema = dict(frame.collect_schema())
        columns = _FrameRows(self.question, schema).plain()
        if self.on is not None:
            columns["key"] = nw.col(match_name(self.on, list(schema)))
        return frame.select(**columns).head(LOOKED_AT)

    def of_table(self, rows: SqlRows, available: list[str]) -> str:
        """Return the query of some rows of a table."""
        rows = replace(rows, roles=self.question.roles(available))
        named = {"by": self.question.columns.by} | ({"key": self.on} if self.on else {})
        values = rows.unjudged({f"q_{n}": match_name(c, available) for n, c in named.items()})
        listed = {f"q_{name}": name for name in (*rows.scores, "lost")}
        listed |= {"q_mark": "mark"} if rows.roles.ood is not None else {}
        listed |= {f"q_{name}": f"q_{name}" for name in named}
        return sql.select(listed, values, f" LIMIT {LOOKED_AT}")


class _FrameRows:
    """What a row says, as narwhals expressions."""

    def __init__(self, question: LiveQuestion, schema: dict[str, Any]) -> None:
        self._question, self._schema = question, schema
        self._roles = question.roles(list(schema))
        told = question.columns.used()
        self._named = {role: match_name(name, list(schema)) for role, name in told}
        for argument, asked in question.numeric:
            kind = schema[name := match_name(asked, list(schema))]
            if not ex.is_flag(kind):
                raise InvalidInputError(f"{argument}: column {name!r} holds {kind}, not numbers")

    def plain(self) -> dict[str, Any]:
        """Return scores, loss, period and what marks the row."""
        marks = self._marks()
        told = {"by": self.by, "lost": self.loss}
        told |= {"mark": marks["mark"]} if "mark" in marks else {}
        return told | {f"s{k}": value for k, value in enumerate(self._scores)}

    @property
    def _scores(self) -> list[Any]:
        return [ex.number(name, self._schema) for name in self._roles.scores]

    def columns(self) -> dict[str, Any]:
        """Return the keys and what is added up."""
        keys = {"by": self.by} | self._decided(self._scores)
        accept = keys["accept"] == 1
        loss = self.loss
        there = ~ex.missing(loss)
        keys["known"] = there.cast(nw.Int64)
        keys |= self._marks()
        if self._question.grouped:
            keys["member"] = ex.group_name(self._roles, self._schema)
        kept = nw.when(there & accept & self._sound(loss)).then(loss).otherwise(nw.lit(0.0))
        strange = nw.when(there).then(~self._sound(loss)).otherwise(nw.lit(False))
        sums = {"rows": ex.whole(1), "lost": kept, "squared": kept * kept}
        return keys | sums | {"strange": strange.cast(nw.Int64)}

    @property
    def by(self) -> Any:
        """The value that names the period."""
        name = self._named["by"]
        value, kind = nw.col(name), self._schema[name]
        # Decimals and missing numbers come back from every engine as doubles.
        return value.cast(nw.Float64) if kind.is_numeric() else value

    @property
    def loss(self) -> Any:
        """The loss, missing where none is told; a wrong class is one, also a missing one."""
        if not self._question.columns.labelled:
            return nw.lit(float("nan"))
        loss, roles = ex.loss(self._roles, self._schema), self._roles
        if roles.label is None or roles.prediction is None:
            return loss
        unpredicted = self._nothing(roles.prediction)
        loss = nw.when(unpredicted).then(nw.lit(1.0)).otherwise(loss)
        return nw.when(self._nothing(roles.label)).then(nw.lit(float("nan"))).otherwise(loss)

    def _nothing(self, name: str) -> Any:
        value, kind = nw.col(name), self._schema[name]
        if ex.is_text(kind):
            return value.is_null() | (value.cast(nw.String).str.strip_chars() == "")
        return ex.missing(value) if kind.is_float() else value.is_null()

    def _sound(self, loss: Any) -> Any:
        most = self._question.max_loss
        if most is None:
            return (loss == 0.0) | (loss == 1.0)
        return (loss >= 0.0) & (loss <= most)

    def _marks(self) -> dict[str, Any]:
        keys: dict[str, Any] = {}
        name = self._roles.ood
        if name is not None and ex.is_flag(self._schema[name]):
            flag = ex.number(name, self._schema)
            code = nw.when(flag == 1.0).then(ex.whole(1)).otherwise(ex.whole(_OTHER))
            code = nw.when(flag == 0.0).then(ex.whole(0)).otherwise(code)
            keys["mark"] = nw.when(ex.missing(flag)).then(ex.whole(_NONE)).otherwise(code)
        elif name is not None:
            keys["mark"] = nw.col(name).cast(nw.String).fill_null(ex.NO_FLAG)
        if "audited" in self._named:
            flag = ex.number(self._named["audited"], self._schema)
            picked = nw.when(ex.missing(flag)).then(nw.lit(False)).otherwise(flag != 0.0)
            keys["picked"] = picked.cast(nw.Int64)
        return keys

    def _decided(self, values: list[Any]) -> dict[str, Any]:
        rule, question = self._question.rule, self._question
        gone = [ex.missing(value) | (value == float("-inf")) for value in values]
        lack = _any([gone[k] for k, used in enumerate(rule.needed) if used])
        infinite = _any([~gone[k] & (value == float("inf")) for k, value in enumerate(values)])
        total = ex.weighed(rule, values)
        within = total <= rule.threshold if rule.tau else total < rule.threshold
        never = nw.lit(rule.threshold == -np.inf)
        accept = nw.when(lack | infinite | never).then(nw.lit(False)).otherwise(within)
        keys = {"accept": accept.cast(nw.Int64), "lack": lack.cast(nw.Int64)}
        for k, cuts in enumerate(question.cuts):
            place = nw.when(gone[k]).then(nw.lit(len(cuts) + 1)).otherwise(_place(values[k], cuts))
            keys[f"b{k}"] = place.cast(nw.Int64)
        risk = nw.when(accept).then(_place(total, question.risk_cuts)).otherwise(nw.lit(0))
        return keys | {"risk": risk.cast(nw.Int64)}


def _any(parts: list[Any]) -> Any:
    found = parts[0]
    for part in parts[1:]:
        found = found | part
    return found


def _place(value: Any, cuts: FloatArray) -> Any:
    """Return how many cuts a value is above."""
    found = ex.whole(0)
    for cut in cuts.tolist():
        found = found + (value > cut).cast(nw.Int64)
    return found


def _table_groups(question: LiveQuestion, rows: SqlRows, values: str) -> str:
    """Return the query of the groups of rows that `SqlRows.unjudged` tells of.

    Each step is a query of its own, with a fence: written out in the next one, steps would grow.
    """
    scores, rule = rows.scores, question.rule
    gone = {s: f"({s} IS NULL OR {s} = {double(-np.inf)})" for s in scores}
    needed = [s for s, used in zip(scores, rule.needed, strict=True) if used]
    lack = " OR ".join(gone[s] for s in needed)
    infinite = " OR ".join(f"{s} = {double(np.inf)}" for s in scores)
    plain = f"NOT ({lack}) AND NOT COALESCE({infinite}, 1 = 0)"
    steps = {
        "lack": f"CASE WHEN {lack} THEN 1 ELSE 0 END",
        "total": f"CASE WHEN {plain} THEN {_weighed(rule, scores)} END",
    }
    first = f"SELECT *, {_listed(steps)} FROM ({values}) AS v{rows.fence}"
    sense = "<=" if rule.tau else "<"
    within = f"total {sense} {double(rule.threshold)}" if rule.threshold > -np.inf else "1 = 0"
    steps = {"accept": f"CASE WHEN {within} THEN 1 ELSE 0 END"}
    second = f"SELECT *, {_listed(steps)} FROM ({first}) AS w{rows.fence}"
    keys = {"by": "grouped_by", "accept": "accept", "lack": "lack"}
    for k, (score, cuts) in enumerate(zip(scores, question.cuts, strict=True)):
        keys[f"b{k}"] = f"CASE WHEN {gone[score]} THEN {len(cuts) + 1} ELSE {_bin(score, cuts)} END"
    risk = _bin("total", question.risk_cuts)
    keys["risk"] = f"CASE WHEN accept = 1 THEN {risk} ELSE 0 END"
    keys["known"] = "CASE WHEN lost IS NULL THEN 0 ELSE 1 END"
    picked = f"CASE WHEN picked_by IS NULL OR picked_by = {double(0)} THEN 0 ELSE 1 END"
    more = {"mark": "mark", "picked": picked, "member": "member"}
    keys |= {name: more[name] for name in question.keys if name in more}
    return _added_up(second, keys, question.max_loss)


def _added_up(rows: str, keys: dict[str, str], max_loss: float | None) -> str:
    sound = f"lost IN ({double(0.0)}, {double(1.0)})"
    if max_loss is not None:
        sound = f"lost >= {double(0.0)} AND lost <= {double(max_loss)}"
    values = {f"k_{name}": value for name, value in keys.items()}
    values["m_lost"] = f"CASE WHEN accept = 1 AND {sound} THEN lost ELSE {double(0.0)} END"
    values["m_strange"] = f"CASE WHEN lost IS NULL OR {sound} THEN 0 ELSE 1 END"
    # Databases stop at squares below all doubles, which add nothing.
    square = f"CASE WHEN m_lost > {double(1e-150)} THEN m_lost * m_lost ELSE {double(0.0)} END"
    sums = {f"q_{name}": f"k_{name}" for name in keys}
    sums["q_rows"] = "CAST(COUNT(*) AS BIGINT)"
    sums |= {"q_lost": "SUM(m_lost)", "q_squared": f"SUM({square})"}
    sums["q_strange"] = "CAST(SUM(m_strange) AS BIGINT)"
    named = ", ".join(f"k_{name}" for name in keys)
    return sql.select(sums, sql.select(values, rows), f" GROUP BY {named} LIMIT {_MOST + 1}")


def _listed(columns: dict[str, str]) -> str:
    return ", ".join(f"{value} AS {name}" for name, value in columns.items())


def _weighed(rule: Rule, scores: tuple[str, ...]) -> str:
    """Return what a rule compares with its threshold, of scores that are numbers."""
    needed = [k for k, used in enumerate(rule.needed) if used]
    if not isinstance(rule, BoxRule):
        return sql.combined([rule.direction[k] for k in needed], [scores[k] for k in needed])
    signed = [(rule.direction[k], rule.limits[k], scores[k]) for k in needed]
    excess = [f"{double(sign)} * {s} - {double(sign * limit)}" for sign, limit, s in signed]
    if len(excess) == 1:
        return excess[0]
    first, second = excess
    return f"CASE WHEN {second} > {first} THEN {second} ELSE {first} END"


def _bin(value: str, cuts: FloatArray) -> str:
    """Return how many cuts a value is above."""
    if not len(cuts):
        return "0"
    cases = [f"WHEN {value} > {double(c)} THEN {k + 1}" for k, c in enumerate(cuts.tolist())]
    return f"CASE {' '.join(reversed(cases))} ELSE 0 END"


@dataclass(frozen=True, slots=True)
class _KnownGroups:
    """What is known of the rows of every group."""

    counted: BoolArray
    """Whether their labels count."""
    is_ood: BoolArray
    has_loss: BoolArray
    """Whether they are accepted ID rows with a loss that counts."""
    waiting: BoolArray
    set_name: Any

    @classmethod
    def of(cls, table: ex.Table, columns: GroupedColumns, *, as_files: bool) -> _KnownGroups:
        """Read the marks of groups, as `known_rows` reads those of rows."""
        size = len(table["by"])
        has_loss = _flags(table["known"])
        marked, names = np.zeros(size, bool), np.full(size, "", object)
        if columns.ood is not None:
            marks = table["mark"].tolist()
            meaning = {mark: _meaning(mark, columns.ood, as_files) for mark in dict.fromkeys(marks)}
            if as_files:
                _refuse_written(columns.ood, meaning)
            marked = np.array([meaning[mark][0] for mark in marks], bool)
            names = np.array([meaning[mark][1] for mark in marks], object)
        foreign = names != ""
        picked = _flags(table["picked"]) if columns.audited else np.ones(size, bool)
        known, accept = marked | has_loss, _flags(table["accept"])
        complete = known & (foreign | ~accept | has_loss)
        waiting = picked & ~complete if columns.audited else np.zeros(size, bool)
        kept = picked & has_loss & ~foreign & accept
        return cls(picked & known, foreign, kept, waiting, names)

    def take(self, which: Any) -> _KnownGroups:
        """Return those of some groups."""
        kept = (self.counted, self.is_ood, self.has_loss, self.waiting, self.set_name)
        return _KnownGroups(*(column[which] for column in kept))

    def sums(self, part: ex.Table, these: BoolArray) -> list[float]:
        """Return the sums of labelled rows, as `LabelledRows.sums` does."""
        rows, taken = part["rows"].astype(np.float64), part["accept"].astype(np.int64) == 1
        found = []
        for foreign in (False, True):
            which = these & self.counted & (self.is_ood == foreign)
            found += [float(rows[which].sum()), float(rows[which & taken].sum())]
        lost = these & self.has_loss
        sums = (part[name].astype(np.float64)[lost].sum() for name in ("lost", "squared"))
        return [*found, float(rows[lost].sum()), *map(float, sums)]


def _flags(column: Any) -> BoolArray:
    return np.asarray(column.astype(np.float64) == 1)


def _meaning(mark: Any, name: str, as_files: bool) -> tuple[bool, str]:
    """Return whether a mark tells anything, and the name of the OOD set."""
    if isinstance(mark, str):
        if mark == ex.NO_FLAG or (as_files and not mark.strip()):
            return False, ""
        return mark_of(mark)
    if mark == _OTHER and as_files:
        raise InvalidInputError(
            f"ood: column {name!r} has a flag that is not 0 or 1 in some rows: write 1 for OOD "
            "rows, or the names of their sets as text"
        )
    return mark != _NONE, POOLED_NAME if mark > 0 else ""


def _refuse_written(name: str, meaning: dict[Any, tuple[bool, str]]) -> None:
    sets = sorted({found for _, found in meaning.values() if found})
    texts = any(isinstance(mark, str) for mark in meaning)
    id_named = any(known and not found for known, found in meaning.values())
    if texts and are_written_flags(sets, id_named=id_named):
        raise written_flags_error(name, sets)


def _assemble(
    layout: CountLayout, names: list[Period], table: ex.Table, labels: _KnownGroups
) -> PeriodCounts:
    ordered = in_order_of_time(names)
    number = {name: k for k, name in enumerate(ordered)}
    place = np.array([number[name] for name in names], np.int64)
    order = np.argsort(place, kind="stable")
    ends = np.searchsorted(place[order], np.arange(len(ordered) + 1))
    found = {
        name: _period(layout, table, labels, order[ends[k] : ends[k + 1]])
        for k, name in enumerate(ordered)
    }
    waits = [name for k, name in enumerate(ordered) if labels.waiting[place == k].any()]
    return PeriodCounts(found, waits)


def _period(layout: CountLayout, table: ex.Table, labels: _KnownGroups, which: Any) -> LiveCounts:
    """Return the counts of some groups."""
    counts = LiveCounts.none(layout)
    part = {name: column[which] for name, column in table.items()}
    rows, taken = part["rows"].astype(np.float64), part["accept"].astype(np.int64)
    lacking = part["lack"].astype(np.int64) == 1
    counts.sums[:3] = rows.sum(), rows[taken == 1].sum(), rows[lacking].sum()
    for k, place in enumerate(layout.scores):
        size = layout.bins[k] + 1
        bins = part[f"b{k}"].astype(np.int64) + size * taken
        counts.sums[place] = np.bincount(bins, rows, minlength=2 * size)
    risk = part["risk"].astype(np.int64)[taken == 1]
    counts.sums[layout.risk] = np.bincount(risk, rows[taken == 1], minlength=layout.risk_bins)
    own = labels.take(which)
    counts.sums[layout.labelled()] = own.sums(part, np.ones(len(which), bool))
    for name in layout.groups:
        if "member" in part:
            these = np.array([member == name for member in part["member"].tolist()], bool)
            counts.sums[layout.labelled(name)] = own.sums(part, these)
    foreign = own.counted & own.is_ood
    # In the order of their names: rows have no order here.
    for name in sorted(set(own.set_name[foreign].tolist())):
        these = foreign & (own.set_name == name)
        pair = np.array([rows[these].sum(), (rows * taken)[these].sum()])
        counts.add(LiveCounts(layout, np.zeros(layout.size), {name: pair}))
    return counts
