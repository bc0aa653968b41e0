"""Counting rows where they are: one grouped count of a DuckDB, Spark, Dask or other frame.

Rows are grouped by period, decision, bins and label, so that what comes back is a small table,
whatever the number of rows; `counts_by_period` makes of it what `Watch.update` makes of rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np

from demur._arrays import FloatArray
from demur.core.columns import ID_NAMES, check_names
from demur.core.sample import POOLED_NAME
from demur.errors import InvalidInputError
from demur.sources.engines import expressions as ex
from demur.watch.counts import CountLayout, LiveCounts
from demur.watch.setup import WatchSetup
from demur.watch.timeline import Period, as_period

_MOST = 2_000_000
"""No sensible grouping has more groups; a column such as an id would bring all rows here."""


@dataclass(frozen=True, slots=True)
class GroupedColumns:
    """Which columns of a frame mean what."""

    by: str
    loss: str | None = None
    ood: str | None = None
    audited: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True)
class PeriodCounts:
    """What a grouped count found, in order of the periods."""

    counts: dict[Period, LiveCounts]
    waiting: list[Period]
    """Periods with an audited row without a label: from the first one on, labels wait."""


def counts_by_period(setup: WatchSetup, frame: Any, columns: GroupedColumns) -> PeriodCounts:
    """Count a frame of any engine that narwhals knows, in one pass."""
    if setup.made_by is not None:
        raise InvalidInputError(
            "learned scores are made in memory: call watch.update(rows, time=...), or demur watch "
            "on files, which reads any number of rows part by part"
        )
    known = ex.known_frame(frame).lazy()
    schema = dict(known.collect_schema())
    named = setup.rule.score_names
    if named is None:
        raise InvalidInputError("the rule has no score_names to read columns by")
    wanted = [("scores", n) for n, w in zip(named, setup.rule.direction, strict=True)]
    roles = ("by", "loss", "ood", "audited", "group")
    wanted += [(r, getattr(columns, r)) for r in roles if getattr(columns, r) is not None]
    check_names(list(schema), wanted, "the frame")
    keys = _keys(setup, columns, schema)
    loss = nw.col("loss")
    counted = known.select(**keys).with_columns(
        rows=ex.whole(1), lost=loss, squared=loss * loss, waiting=nw.col("waits")
    )
    by = ["by", "accept", *(f"b{k}" for k in range(len(named))), "risk", "lack", "label"]
    by += ["set"] * (columns.ood is not None) + ["group"] * (columns.group is not None)
    sums = [nw.col(name).sum() for name in ("rows", "has_loss", "lost", "squared", "waiting")]
    table = counted.group_by(*by).agg(*sums).collect()
    if len(table) > _MOST:
        raise InvalidInputError(f"by: {columns.by!r} has too many values to be a period")
    return _assemble(setup.layout, {name: _column(table[name]) for name in table.columns})


def _keys(setup: WatchSetup, columns: GroupedColumns, schema: Any) -> dict[str, Any]:
    rule, names = setup.rule, setup.rule.score_names or ()
    values = [nw.col(name).cast(nw.Float64) for name in names]
    gone = [ex.missing(value) | (value == float("-inf")) for value in values]
    used = [k for k, weight in enumerate(rule.direction) if weight != 0]
    lack = _any([gone[k] for k in used])
    infinite = _any([~gone[k] & (value == float("inf")) for k, value in enumerate(values)])
    total = ex.weighed(rule, values)
    within = total <= rule.threshold if rule.tau else total < rule.threshold
    never = nw.lit(rule.threshold == -np.inf)
    accept = nw.when(lack | infinite | never).then(nw.lit(False)).otherwise(within)
    keys: dict[str, Any] = {"by": nw.col(columns.by), "accept": accept.cast(nw.Int64)}
    for k, cuts in enumerate(setup.cuts):
        place = nw.when(gone[k]).then(nw.lit(len(cuts) + 1)).otherwise(_place(values[k], cuts))
        keys[f"b{k}"] = place.cast(nw.Int64)
    ends = np.zeros(0) if setup.reference is None else setup.reference.risk_cuts
    keys["risk"] = nw.when(accept).then(_place(total, ends)).otherwise(nw.lit(0)).cast(nw.Int64)
    keys["lack"] = lack.cast(nw.Int64)
    return keys | _label_keys(columns, schema, accept)


def _label_keys(columns: GroupedColumns, schema: Any, accept: Any) -> dict[str, Any]:
    """Return "label": 0 for none, 1 for ID, 2 for OOD, and what belongs to it."""
    none = nw.lit(False)
    loss = nw.lit(float("nan")) if columns.loss is None else ex.number(columns.loss, schema)
    has_loss = none if columns.loss is None else ~ex.missing(loss)
    marked = foreign = none
    keys: dict[str, Any] = {}
    if columns.ood is not None:
        mark = nw.col(columns.ood)
        if ex.is_flag(schema[columns.ood]):
            mark = mark.cast(nw.Float64)
            marked = ~ex.missing(mark)
            foreign = nw.when(marked).then(mark != 0.0).otherwise(none)
            keys["set"] = nw.lit(POOLED_NAME)
        else:
            marked = ~mark.is_null()
            text = mark.cast(nw.String)
            inside = text.str.strip_chars().str.to_lowercase().is_in(list(ID_NAMES))
            foreign = nw.when(marked).then(~inside).otherwise(none)
            keys["set"] = nw.when(foreign).then(text).otherwise(nw.lit(""))
    known = marked | has_loss
    picked = nw.lit(True)
    if columns.audited is not None:
        flag = nw.col(columns.audited).cast(nw.Float64)
        picked = nw.when(ex.missing(flag)).then(none).otherwise(flag != 0.0)
        complete = known & (foreign | ~accept | has_loss)
        keys["waits"] = (picked & ~complete).cast(nw.Int64)
    else:
        keys["waits"] = ex.whole(0)
    label = nw.when(foreign).then(nw.lit(2)).otherwise(nw.lit(1))
    keys["label"] = nw.when(picked & known).then(label).otherwise(nw.lit(0)).cast(nw.Int64)
    counted = picked & has_loss & ~foreign & accept
    keys["loss"] = nw.when(counted).then(loss).otherwise(nw.lit(0.0))
    keys["has_loss"] = counted.cast(nw.Int64)
    if columns.group is not None:
        keys["group"] = nw.col(columns.group).cast(nw.String)
    return keys


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


def _column(series: Any) -> Any:
    return series.to_numpy() if series.dtype.is_numeric() else np.array(series.to_list(), object)


def _assemble(layout: CountLayout, table: dict[str, Any]) -> PeriodCounts:
    names = [as_period(value) for value in table["by"].tolist()]
    found: dict[Period, LiveCounts] = {}
    ordered = sorted(set(names))
    number = {name: k for k, name in enumerate(ordered)}
    place = np.array([number[name] for name in names], np.int64)
    waiting: list[Period] = []
    for k, name in enumerate(ordered):
        rows = np.flatnonzero(place == k)
        part = {key: column[rows] for key, column in table.items()}
        if part["waiting"].sum() > 0:
            waiting.append(name)
        found[name] = _period(layout, part)
    return PeriodCounts(found, waiting)


def _period(layout: CountLayout, part: dict[str, Any]) -> LiveCounts:
    counts = LiveCounts.none(layout)
    rows, taken = part["rows"].astype(np.float64), part["accept"].astype(np.int64)
    counts.sums[:3] = rows.sum(), rows[taken == 1].sum(), rows[part["lack"] == 1].sum()
    for k, place in enumerate(layout.scores):
        size = layout.bins[k] + 1
        bins = part[f"b{k}"].astype(np.int64) + size * taken
        counts.sums[place] = np.bincount(bins, rows, minlength=2 * size)
    risk = part["risk"].astype(np.int64)[taken == 1]
    counts.sums[layout.risk] = np.bincount(risk, rows[taken == 1], minlength=layout.risk_bins)
    counts.sums[layout.labelled()] = _labelled(part, rows, taken, np.ones(len(rows), bool))
    for name in layout.groups:
        if "group" in part:
            these = np.array([value == name for value in part["group"]], bool)
            counts.sums[layout.labelled(name)] = _labelled(part, rows, taken, these)
    foreign = part["label"] == 2
    for name in dict.fromkeys(sorted(part["set"][foreign].tolist())) if foreign.any() else ():
        these = foreign & np.array([value == name for value in part["set"]], bool)
        counts.sets[str(name)] = np.array([rows[these].sum(), (rows * taken)[these].sum()])
    return counts


def _labelled(part: dict[str, Any], rows: Any, taken: Any, these: Any) -> Any:
    sums = []
    for label in (1, 2):
        which = these & (part["label"] == label)
        sums += [rows[which].sum(), rows[which & (taken == 1)].sum()]
    return [*sums, *(part[name][these].sum() for name in ("has_loss", "lost", "squared"))]
