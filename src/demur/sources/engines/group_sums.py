"""Groups of sums, as an engine returns them, and the answers that are in them.

The first pass groups the rows by their label: from it come the overview, and what is wrong with
rows that cannot be used. Later ones group by cell or by decision, and by side.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import numpy.typing as npt

from demur._arrays import FloatArray, IntArray
from demur.core.bins import Bins
from demur.core.columns import (
    OOD_NEEDS_NO_LOSS,
    are_written_flags,
    silent_ood_error,
    written_flags_error,
)
from demur.core.sample import POOLED_NAME
from demur.core.source import (
    Histogram,
    Measure,
    NoRowsError,
    Overview,
    Profile,
    RuleCounts,
    Sizes,
    Sum,
    Tally,
)
from demur.errors import InvalidInputError
from demur.sources.engines import expressions as ex
from demur.sources.engines.expressions import Expr, Frame, Table
from demur.sources.open import Roles

INFINITE, NOWHERE = -1, -2
"""Keys of rows with an infinite score, and of rows that are not to be counted."""

MOST_SETS = 1000
_ILLEGAL = {"scores": "-inf", "correct": "neither 0 nor 1"}


def grouped(rows: Frame, roles: Roles) -> Frame:
    """Return counts, sums and extremes of standard rows with labels, for each label."""
    aggregates = [getattr(nw.col(name), how)() for name, how in _kinds(roles).items()]
    groups = rows.with_columns(**_columns(roles)).group_by("label").agg(*aggregates)
    # A column that names a set for every row would bring all of them here.
    return groups.head(MOST_SETS + 5)


def regrouped(tables: Sequence[Table], roles: Roles) -> Table:
    """Return the groups of all rows, given those of disjoint parts."""
    joined = {
        name: np.concatenate([table[name] for table in tables])
        for name in ("label", *_kinds(roles))
    }
    labels = list(dict.fromkeys(joined["label"].tolist()))
    place = np.array([labels.index(label) for label in joined["label"].tolist()], np.int64)
    table: dict[str, npt.NDArray[Any]] = {"label": np.array(labels, object)}
    for name, how in _kinds(roles).items():
        values = joined[name]
        by = {"sum": np.add, "min": np.fmin, "max": np.fmax}[how]
        start = np.zeros(len(labels), values.dtype)
        if how != "sum":
            values, start = values.astype(np.float64), np.full(len(labels), np.nan)
        by.at(start, place, values)
        table[name] = start
    return table


def with_set(table: Table, name: str) -> Table:
    """Return the groups of the ID rows and of one OOD set."""
    kept = np.array([_is_id(label) or label == name for label in table["label"].tolist()])
    return {column: values[kept] for column, values in table.items()}


def unclear_ood(roles: Roles, table: Table) -> InvalidInputError | None:
    """Return what is wrong with a column `ood` that says nothing of any row, or may lack flags."""
    rows = int(table["rows"].sum())
    if roles.ood is None or not rows:
        return None
    if not table["named"].sum():
        return silent_ood_error(roles.ood, rows)
    is_id = np.array([_is_id(label) for label in table["label"].tolist()])
    sets = sorted(table["label"][~is_id].tolist())
    if are_written_flags(sets, id_named=bool(table["named"][is_id].any())):
        return written_flags_error(roles.ood, sets)
    return None


def overview_of(roles: Roles, table: Table, place: str) -> Overview:
    """Return the overview that is in groups by label; refuse rows that cannot be used."""
    if not len(table["label"]) or not table["rows"].sum():
        raise NoRowsError(place)
    _refuse(roles, table)
    return _overview(roles, table)


def _kinds(roles: Roles) -> dict[str, str]:
    """Return the names of the columns and how they are aggregated."""
    kinds = {"rows": "sum", "other_loss": "sum", "lost_total": "sum", "lost_part": "sum"}
    for i in range(len(roles.scores)):
        kinds |= {f"s{i}_missing": "sum", f"s{i}_illegal": "sum"}
        kinds |= {f"s{i}_low": "min", f"s{i}_high": "max"}
    for name in ["loss"] + ["weight"] * (roles.weight is not None):
        kinds |= {f"{name}_missing": "sum", f"{name}_illegal": "sum"}
    if roles.weight is not None:
        kinds |= {"weight_total": "sum", "weight_part": "sum"}
    return kinds | ({"named": "sum"} if roles.ood is not None else {})


def _columns(roles: Roles) -> dict[str, Expr]:
    """Return what there is to aggregate of each row."""
    loss = lost = nw.col("loss")
    scores = [f"s{i}" for i in range(len(roles.scores))]
    columns = {"rows": ex.whole(1), "other_loss": _count((loss != 0.0) & (loss != 1.0))}
    for name in scores:
        value = nw.col(name)
        columns[f"{name}_missing"] = _count(ex.missing(value))
        columns[f"{name}_illegal"] = _count(value == float("-inf"))
        inside = nw.when(ex.finite(scores)).then(value)
        columns[f"{name}_low"], columns[f"{name}_high"] = inside, inside
    amounts = {"loss": loss}
    if roles.weight is not None:
        amounts["weight"] = weight = nw.col("weight")
        lost = weight * loss
        columns["weight_total"], columns["weight_part"] = weight, _part(weight)
    columns["lost_total"], columns["lost_part"] = lost, _part(lost)
    for name, value in amounts.items():
        columns[f"{name}_missing"] = _count(ex.missing(value))
        columns[f"{name}_illegal"] = _count((value < 0.0) | (value == float("inf")))
    return columns


def _part(value: Expr) -> Expr:
    """Return 1 where a number is not whole."""
    whole = nw.when(value.abs() < ex.LARGE).then(value.floor().cast(nw.Float64)).otherwise(value)
    return _count(value != whole)


def _count(flag: Expr) -> Expr:
    """Return 1 where something is the case."""
    return flag.fill_null(False).cast(nw.Int64)


def _refuse(roles: Roles, table: Table) -> None:
    """Refuse rows that cannot be used, with the column, what is wrong and how many there are."""
    labels = table["label"].tolist()
    amount = dict(zip(labels, table["rows"].tolist(), strict=True))
    for bad, what in ((ex.NO_FLAG, "a missing flag"), (ex.BAD_FLAG, "a flag that is not 0 or 1")):
        if bad in amount:
            raise InvalidInputError(f"ood: column {roles.ood!r} has {what} in {amount[bad]} rows")
    if len(labels) > MOST_SETS:
        raise InvalidInputError(
            f"ood: column {roles.ood!r} names more than {MOST_SETS} OOD sets; "
            "give a flag, or a column with few names"
        )
    told = "loss" if roles.correct is None else "correct"
    lost = roles.loss or roles.correct or f"{roles.label}, {roles.prediction}"
    named = [(f"s{i}", "scores", name) for i, name in enumerate(roles.scores)]
    named += [("loss", told, lost)]
    named += [("weight", "weight", roles.weight)] if roles.weight is not None else []
    for key, argument, name in named:
        missing, illegal = (int(table[f"{key}_{kind}"].sum()) for kind in ("missing", "illegal"))
        if missing:
            hint = OOD_NEEDS_NO_LOSS if key == "loss" and roles.ood is None else ""
            raise InvalidInputError(
                f"{argument}: column {name!r} is missing or NaN in {missing} rows; "
                'give missing="drop" to leave them out (in Python; at the command line read a view '
                f"or files without them){hint}"
            )
        if illegal:
            what = _ILLEGAL.get(argument, "negative or infinite")
            raise InvalidInputError(f"{argument}: column {name!r} is {what} in {illegal} rows")
    _refuse_groups(roles, amount)
    if not any(_is_id(label) for label in labels):
        raise InvalidInputError(
            f"ood: column {roles.ood!r} marks every row as OOD: no ID row is left"
        )


def _is_id(label: str) -> bool:
    return label == "id" or label.startswith(ex.GROUP)


def _refuse_groups(roles: Roles, amount: Mapping[str, int]) -> None:
    """Refuse ID rows whose group is not known."""
    for bad, what in (("", "missing"), (ex.BAD_FLAG, "a number that is not whole")):
        if ex.GROUP + bad in amount:
            raise InvalidInputError(
                f"group: column {roles.group!r} is {what} in {amount[ex.GROUP + bad]} ID rows"
            )


def _overview(roles: Roles, table: Table) -> Overview:
    labels = table["label"].tolist()
    is_id = np.array([_is_id(label) for label in labels])
    sets = tuple(sorted(label for label in labels if not _is_id(label))) or (POOLED_NAME,)
    groups = [label.removeprefix(ex.GROUP) for label in labels if label.startswith(ex.GROUP)]
    amount = dict(zip(labels, table["rows"].tolist(), strict=True))
    k = len(roles.scores)
    extremes = [
        [by(np.append(table[f"s{i}_{end}"].astype(float), start)) for i in range(k)]
        for end, by, start in (("low", np.nanmin, np.inf), ("high", np.nanmax, -np.inf))
    ]

    def total(name: str, kept: npt.NDArray[np.bool_]) -> Sum:
        if f"{name}_total" not in table:
            return Sum(float(table["rows"][kept].sum()), True)
        added = float(table[f"{name}_total"][kept].sum())
        if not np.isfinite(added):
            role = "loss" if name == "lost" else name
            raise InvalidInputError(f"{role} adds up to more than a float can hold")
        return Sum(added, not table[f"{name}_part"][kept].any())

    weights = total("weight", is_id)
    if weights.total == 0:
        raise InvalidInputError(f"weight: column {roles.weight!r} is zero on every ID row")
    return Overview(
        int(table["rows"][is_id].sum()),
        tuple(amount.get(name, 0) for name in sets),
        sets,
        tuple(sorted(groups)),
        weights,
        total("weight", ~is_id),
        total("lost", is_id),
        np.array(extremes[0]),
        np.array(extremes[1]),
        roles.weight is not None,
        bool(table["other_loss"][is_id].any()),
    )


def histogram_of(
    table: Table, bins: Bins, measure: Measure, thresholds: Sequence[FloatArray], overview: Overview
) -> Histogram:
    """Return the histogram that is in groups by key and side.

    After the keys of the cells come those of the strips, one for each of their `thresholds`.
    """
    sums = _KeySums(table, measure)
    cells = sums.between(0, bins.cells)
    key = np.unique(cells.key)
    at = np.searchsorted(key, cells.key)
    by_cell = cells.added(at, len(key))
    infinite = sums.between(INFINITE, 0)
    lost = infinite.added(np.zeros(len(infinite.key), np.int64), 1)
    profiles, start = [], bins.cells
    for strip in thresholds:
        part = sums.between(start, start + len(strip))
        table_ = np.cumsum(part.added(part.key - start, len(strip)).masses, axis=1)
        profiles.append(Profile.of(strip, table_, measure))
        start += len(strip)
    low, high = _extents(bins, key, overview)
    id_, loss, ood = by_cell.masses[0], by_cell.masses[1], by_cell.masses[2 : 2 + measure.columns]
    return Histogram(
        *(key, low, high, by_cell.rows),
        *(id_, ood, loss, by_cell.cheap[0], by_cell.cheap[1]),
        tuple(int(mass) for mass in lost.masses[:, 0]),
        sums.inexact,
        tuple(profiles),
        by_cell.masses[2 + measure.columns :],
    )


def value_name(value: Any) -> Any:
    """Return a value of a column by which rows are told apart, the same from every engine.

    NaN is missing like None; whole numbers come as floats from columns in which some are missing.
    """
    if isinstance(value, (float, np.floating)):
        return None if np.isnan(value) else int(value) if value == np.floor(value) else float(value)
    return value.item() if isinstance(value, np.generic) else value


def tallies_of(table: Table, measure: Measure) -> dict[Any, Tally]:
    """Return the tallies that are in groups by the values of a column, acceptance and side."""
    n = len(table["side"])
    names = [None] * n if "by" not in table else list(map(value_name, table["by"].tolist()))
    groups = {name: place for place, name in enumerate(dict.fromkeys(names))} or {None: 0}
    place = np.array([groups[name] for name in names], np.int64)
    sums = _KeySums(dict(table) | {"key": 2 * place + table["accept"].astype(np.int64)}, measure)
    masses = sums.added(sums.key, 2 * len(groups)).masses
    found = {}
    for name, at in groups.items():
        accepted, total = masses[:, 2 * at + 1], masses[:, 2 * at : 2 * at + 2].sum(axis=1)
        found[name] = tally_of(accepted, total, measure)
    return found


JUDGED = ("rows", "sound", "outside", "lost", "accept", "accepted_ood", "accepted_lost")
"""What is counted of rows that `StandardRows.judged` returns."""


def judged_flags() -> dict[str, Expr]:
    """Return the flags that are counted for `rule_counts_of`, by the names of the counts."""
    accept = nw.col("accept")
    own = {name: nw.col(name) for name in ("sound", "outside", "lost", "accept")}
    accepted = {
        "accepted_ood": accept & nw.col("outside"),
        "accepted_lost": accept & nw.col("lost"),
    }
    return own | accepted


def rule_counts_of(roles: Roles, table: Table) -> RuleCounts | None:
    """Return what a rule accepts, from counts by label or by the values of a column.

    None if some rows have to be looked at more closely, or refused.
    """
    counts = {name: table[name].astype(np.int64) for name in JUDGED}
    rows = counts["rows"]
    if not rows.sum() or (counts["sound"] < rows).any() or counts["outside"].sum() == rows.sum():
        return None
    found = np.array(
        [
            [rows - counts["outside"], counts["lost"], counts["outside"]],
            [
                counts["accept"] - counts["accepted_ood"],
                counts["accepted_lost"],
                counts["accepted_ood"],
            ],
        ]
    )
    if "label" in table:
        return _labelled_counts(table["label"].tolist(), found, named=roles.ood is not None)
    totals = found[0].sum(axis=1).tolist()
    sizes = Sizes(totals[0], (totals[2],), (POOLED_NAME,), ())
    measure = Measure.of_counts(sizes)
    names = list(map(value_name, table["by"].tolist())) if "by" in table else [None]
    tallies = [
        {name: tally_of(found[1, :, k], found[0, :, k], measure)} for k, name in enumerate(names)
    ]
    return RuleCounts(sizes, measure, merged_tallies(tallies))


def _labelled_counts(labels: list[str], found: IntArray, *, named: bool) -> RuleCounts | None:
    """Return the counts of all labels; `found` has shape (all or accepted, mass, label)."""
    unknown = {ex.NO_FLAG, ex.BAD_FLAG, ex.GROUP, ex.GROUP + ex.BAD_FLAG}
    sets = sorted(label for label in labels if not _is_id(label))
    # Whether a column without OOD rows says anything takes a closer look, too.
    unclear = are_written_flags(sets, id_named=False) or (named and not sets)
    if len(labels) > MOST_SETS or unknown & set(labels) or unclear:
        return None
    place = {label: k for k, label in enumerate(labels)}
    inside = [k for label, k in place.items() if _is_id(label)]
    groups = sorted(label for label in labels if label.startswith(ex.GROUP))
    masses = [found[:, mass, inside].sum(axis=1) for mass in (0, 1)]
    masses += [found[:, 2, place[label]] for label in sets] or [np.zeros(2, np.int64)]
    masses += [found[:, mass, place[label]] for mass in (0, 1) for label in groups]
    total, accepted = np.array(masses).T
    sizes = Sizes(
        int(total[0]),
        tuple(total[2 : 2 + max(len(sets), 1)].tolist()),
        tuple(sets) or (POOLED_NAME,),
        tuple(label.removeprefix(ex.GROUP) for label in groups),
    )
    measure = Measure.of_counts(sizes)
    return RuleCounts(sizes, measure, {None: tally_of(accepted, total, measure)})


def tally_of(accepted: IntArray, total: IntArray, measure: Measure) -> Tally:
    """Return a tally from masses accepted, and of all rows, as `Measure.rows` counts them."""
    parts = []
    for masses in (accepted.tolist(), total.tolist()):
        ood = 2 + measure.columns
        parts.append((masses[0], tuple(masses[2:ood]), masses[1], tuple(masses[ood:])))
    return Tally(*parts[0][:3], *parts[1][:3], groups=parts[0][3], total_groups=parts[1][3])


def merged_tallies(parts: Sequence[Mapping[Any, Tally]]) -> dict[Any, Tally]:
    """Return the tallies of all parts, group by group."""
    found: dict[Any, Tally] = {}
    for part in parts:
        for group, tally in part.items():
            found[group] = found[group] + tally if group in found else tally
    return found


class _Added:
    """Sums by place: masses as `Measure.rows` counts them, rows, cheap ID and loss masses."""

    def __init__(self, places: int, masses: int) -> None:
        self.masses = np.zeros((masses, places), np.int64)
        self.rows = np.zeros(places, np.int64)
        self.cheap = np.zeros((2, places), np.int64)


class _KeySums:
    """Groups of sums as integer columns, of which "one" and "loss" are always there."""

    def __init__(self, table: Table, measure: Measure) -> None:
        self._measure = measure
        self._table = {
            name: column.astype(np.int64) for name, column in table.items() if name != "by"
        }
        self.key, self._side = self._table["key"], self._table["side"]

    def between(self, start: int, stop: int) -> _KeySums:
        """Return the groups with keys from `start` to `stop`."""
        kept = (self.key >= start) & (self.key < stop)
        return _KeySums({name: column[kept] for name, column in self._table.items()}, self._measure)

    def added(self, place: IntArray, places: int) -> _Added:
        """Add the groups up by place."""
        table, total = self._table, _Added(places, self._measure.rows)
        is_id = self._side < 0
        mass = table.get("mass", table["one"])
        np.add.at(total.rows, place, table["one"])
        np.add.at(total.masses[0], place[is_id], mass[is_id])
        np.add.at(total.masses[1], place[is_id], table["loss"][is_id])
        np.add.at(total.masses, (2 + self._side[~is_id], place[~is_id]), mass[~is_id])
        groups = len(self._measure.groups)
        if groups:
            first = 2 + self._measure.columns - 1 - self._side[is_id]
            np.add.at(total.masses, (first, place[is_id]), mass[is_id])
            np.add.at(total.masses, (first + groups, place[is_id]), table["loss"][is_id])
        if not self._measure.plain:
            for sums, name in zip(total.cheap, ("cheap_id", "cheap_loss"), strict=True):
                np.add.at(sums, place[is_id], table[name][is_id])
        elif self._measure.price > 1:
            total.cheap[:] = total.masses[:2]
        else:
            total.cheap[0] = total.masses[0] - total.masses[1]
        return total

    @property
    def inexact(self) -> tuple[bool, bool]:
        """Whether any ID, any OOD mass was rounded."""
        if self._measure.plain:
            return False, False
        rounded = self._table["inexact"] > 0
        return bool(rounded[self._side < 0].any()), bool(rounded[self._side >= 0].any())


def _extents(bins: Bins, key: IntArray, overview: Overview) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and the largest values that rows of the cells can have."""
    low, high = [], []
    for axis, place, least, most in zip(
        bins.axes, bins.places(key), *_reach(bins, overview), strict=True
    ):
        edges = axis.edges()
        low.append(np.maximum(np.append(-np.inf, edges), least)[place])
        high.append(np.minimum(np.append(np.nextafter(edges, -np.inf), np.inf), most)[place])
    return np.column_stack(low), np.column_stack(high)


def _reach(bins: Bins, overview: Overview) -> tuple[FloatArray, FloatArray]:
    """Return the smallest and the largest value that each axis can meet."""
    if bins.weights is None:
        return overview.low, overview.high
    low, high = [], []
    for number, weights in enumerate(bins.weights):
        up = np.array(weights) >= 0
        ends = np.array(
            [
                np.where(up, overview.low, overview.high),
                np.where(up, overview.high, overview.low),
            ]
        )
        least, most = bins.values(ends)[:, number]
        low.append(least)
        high.append(most)
    return np.array(low), np.array(high)
