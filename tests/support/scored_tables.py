"""Samples as tables with shuffled rows, and what a source must answer, counted plainly."""

from __future__ import annotations

import os
from decimal import Decimal

import numpy as np
import pyarrow as pa

import demur as dm
from demur.core.bins import Bins, axis_for
from demur.core.source import Cells, Measure, Rows, Strip
from demur.sources.open import Roles

SETS = int(os.environ.get("DEMUR_RANDOM_SETS", "0"))
"""How many random data sets each engine is to be tried on; 0 for the few of the quick suite."""


def table_of(sample, rng, *, day=False):
    """Return the rows as a table, in random order, and which column is what."""
    n = sample.n_id + sample.n_ood
    order = rng.permutation(n)
    scores = np.vstack([sample.id_scores, sample.ood_scores])[order]
    columns = {f"score {k}": scores[:, k] for k in range(sample.n_scores)}
    # OOD rows have no loss.
    loss = pa.array([*sample.id_loss, *[None] * sample.n_ood]).take(pa.array(order))
    columns["loss"] = loss
    named = list(sample.ood_sets) != ["ood"]
    sets = ["id", None, ""]
    groups = [sets[i % 3] if named else False for i in range(sample.n_id)]
    for name, rows in sample.ood_sets.items():
        groups += [name if named else True] * (rows.stop - rows.start)
    kind = pa.string() if named else pa.bool_()
    columns["group"] = pa.array([groups[i] for i in order], kind)
    weighted = sample.id_weight is not None
    if weighted:
        columns["weight"] = np.concatenate([sample.id_weight, sample.ood_weight])[order]
    if day:
        columns["day"] = pa.array((order % 3).astype(np.int64))
    roles = Roles(
        tuple(f"score {k}" for k in range(sample.n_scores)),
        loss="loss",
        ood="group",
        weight="weight" if weighted else None,
    )
    return pa.table(columns), roles


NUMBERS = {
    "double": pa.float64(),
    "single": pa.float32(),
    "byte": pa.int8(),
    "whole": pa.int32(),
    "large": pa.int64(),
    "unsigned": pa.uint64(),
    "decimal": pa.decimal128(12, 3),
    "digits": pa.decimal128(38, 20),
}
"""Types that a column of numbers may have."""


def varied_table(sample, rng, *, holes=True):
    """Return a sample, its table with columns of many types and rows that lack a value, and roles.

    The sample is the one given, with some scores rounded to decimals; rows with holes are in the
    table only, and the last that is returned says how many these are.
    """
    sample = _with_decimals(sample, rng)
    table, roles = table_of(sample, rng)
    for place, name in enumerate(table.column_names):
        if name != roles.ood:
            table = table.set_column(place, name, _stored(table[name], rng))
    if not holes or rng.random() < 0.5:
        return sample, table, roles, 0
    needed = [name for name in table.column_names if name != roles.ood]
    count = int(rng.integers(1, 6))
    for _ in range(count):
        table = _with_hole(table, str(rng.choice(needed)), roles, rng)
    return sample, table, roles, count


def _with_decimals(sample, rng):
    """Round a score to thousandths."""
    sides = [np.array(side) for side in (sample.id_scores, sample.ood_scores)]
    column = int(rng.integers(sample.n_scores))
    if rng.random() < 0.5:
        return sample
    for side in sides:
        small = np.abs(side[:, column]) < 1e6
        side[small, column] = np.round(side[small, column], 3)
    ood = {name: sides[1][rows] for name, rows in sample.ood_sets.items()}
    weight = sample.ood_weight
    if weight is not None:
        weight = {name: weight[rows] for name, rows in sample.ood_sets.items()}
    return dm.Sample(sides[0], sample.id_loss, ood, id_weight=sample.id_weight, ood_weight=weight)


def _stored(column, rng):
    """Return a column of numbers in one of the types that hold all its values to the last bit."""
    values = column.to_pylist()
    fit = [stored for kind in NUMBERS.values() if (stored := _as_type(values, kind)) is not None]
    return fit[int(rng.integers(len(fit)))]


def _as_type(values, kind):
    try:
        if pa.types.is_decimal(kind):
            # What is written is the shortest decimal that is read as the double.
            stored = pa.array([None if v is None else Decimal(repr(v)) for v in values], kind)
        else:
            stored = pa.array(values, pa.float64()).cast(kind, safe=not pa.types.is_floating(kind))
    except pa.ArrowInvalid:
        return None
    read = [None if v is None else float(v) for v in stored.to_pylist()]
    return stored if read == values else None


def _with_hole(table, name, roles, rng):
    """Return a table with one more row, an ID row that lacks one value."""
    place = int(rng.integers(table.num_rows + 1))
    row = dict.fromkeys(table.column_names, 1)
    row[roles.ood] = "id" if pa.types.is_string(table[roles.ood].type) else False
    floating = pa.types.is_floating(table[name].type)
    row[name] = float("nan") if floating and rng.random() < 0.7 else None
    one = pa.table({key: _one(value, table[key].type) for key, value in row.items()})
    return pa.concat_tables([table[:place], one, table[place:]]).combine_chunks()


def _one(value, kind):
    return pa.array([Decimal(1) if value == 1 and pa.types.is_decimal(kind) else value], kind)


def rows_of(sample):
    """Return the rows of a sample, all sets in ascending order of their names."""
    group = np.full(sample.n_ood, 0)
    for k, rows in enumerate(sample.ood_sets.values()):
        group[rows] = k
    weighted = sample.id_weight is not None
    return Rows(
        np.vstack([sample.id_scores, sample.ood_scores]) + 0.0,
        np.concatenate([np.full(sample.n_id, -1), group]),
        np.concatenate([sample.id_loss, np.zeros(sample.n_ood)]),
        np.concatenate([sample.id_weight, sample.ood_weight]) if weighted else None,
    )


def check_answers(source, sample, rng):
    """Assert that a source answers every question as plain counting over the rows does."""
    rows = rows_of(sample)
    seen = source.overview()
    finite = np.isfinite(rows.scores).all(axis=1)
    assert seen.id_rows == sample.n_id and sum(seen.ood_rows) == sample.n_ood
    assert seen.sets == tuple(sample.ood_sets)
    if finite.any():
        np.testing.assert_array_equal(seen.low, rows.scores[finite].min(axis=0))
        np.testing.assert_array_equal(seen.high, rows.scores[finite].max(axis=0))
    apart = bool(rng.integers(2))
    measure = Measure.of(seen, apart=apart, price=float(rng.choice([0.5, 1.0, 2.0])))
    bins = Bins(tuple(axis_for(column, 12) for column in rows.scores[finite][:200].T))
    _check_histogram(source, rows, measure, bins, rng)
    if len(bins.axes) == 2:
        _check_cone(source, rows, measure, bins, rng)
    _check_tallies(source, rows, measure, rng)


def _masses(rows, measure, kept):
    """Return ID, loss and OOD masses of some rows, added up in Python integers."""
    masses = measure.masses(rows)
    table = [masses.id, masses.loss, *masses.ood]
    return [sum(column[kept].tolist()) for column in table]


def _check_histogram(source, rows, measure, bins, rng):
    finite = np.isfinite(rows.scores).all(axis=1)
    key = np.full(len(finite), -1)
    key[finite] = bins.key(rows.scores[finite])
    weights = (0.6, 0.8)[: rows.scores.shape[1]]
    value = sum(w * np.where(finite, c, 0.0) for w, c in zip(weights, rows.scores.T, strict=True))
    inside = np.sort(value[finite]) if finite.any() else np.zeros(1)
    strip = Strip(weights, float(inside[len(inside) // 3]), float(inside[-len(inside) // 3]), 20)
    found = source.histogram(bins, measure, strips=[strip])
    assert found.key.tolist() == sorted(set(key[finite].tolist()))
    for i, cell in enumerate(found.key.tolist()):
        held = key == cell
        assert found.rows[i] == held.sum()
        expected = _masses(rows, measure, held)
        assert [found.id[i], found.loss[i], *found.ood[:, i]] == expected
        assert (found.low[i] <= rows.scores[held]).all() and (
            found.high[i] >= rows.scores[held]
        ).all()
        masses = measure.masses(rows)
        cheap = held & (masses.loss < measure.price * masses.id)
        assert [found.cheap_id[i], found.cheap_loss[i]] == _masses(rows, measure, cheap)[:2]
    assert list(found.infinite) == _masses(rows, measure, ~finite)
    (profile,) = found.profiles
    for i in rng.integers(0, len(profile.threshold), 5):
        kept = finite & (value <= profile.threshold[i])
        expected = _masses(rows, measure, kept)
        assert [profile.id[i], profile.loss[i], *profile.ood[:, i]] == expected
    _check_marked(source, rows, measure, Cells(bins, found.key[rng.random(len(found.key)) < 0.4]))


def _check_marked(source, rows, measure, cells):
    finite = np.isfinite(rows.scores).all(axis=1)
    held = finite.copy()
    held[finite] = np.isin(cells.bins.key(rows.scores[finite]), cells.key)
    fetched = source.rows(cells)
    as_set = lambda r, kept: sorted(  # noqa: E731
        map(tuple, np.column_stack([r.scores, r.group, r.loss])[kept].tolist())
    )
    assert as_set(fetched, slice(None)) == as_set(rows, held)
    if rows.weight is not None:
        assert sorted(fetched.weight.tolist()) == sorted(rows.weight[held].tolist())
    finer = source.histogram(cells.bins.refined(4), measure, within=cells)
    assert finer.rows.sum() == held.sum()
    assert [finer.id.sum(), finer.loss.sum()] == _masses(rows, measure, held)[:2]
    key = cells.bins.refined(4).key(rows.scores[held]) if held.any() else np.empty(0, int)
    assert finer.key.tolist() == sorted(set(key.tolist()))


def _check_cone(source, rows, measure, bins, rng):
    """Cells of two weighted sums, and a strip, of the rows in some cells of scores."""
    finite = np.isfinite(rows.scores).all(axis=1)
    scores = rows.scores[finite]
    x, y = (scores[:, k] for k in range(2))
    weights = ((1.0, 0.25), (-0.5, 1.0)) if rng.random() < 0.5 else ((1.0, 0.0), (1.0, 0.3))
    values = np.column_stack([p * x + q * y for p, q in weights])
    sums = Bins(tuple(axis_for(column[:200], 9) for column in values.T), weights)
    key = sums.axes[0].bin(values[:, 0]) * sums.axes[1].bins + sums.axes[1].bin(values[:, 1])
    some = np.unique(bins.key(scores))
    within = Cells(bins, some[rng.random(len(some)) < 0.5])
    held = np.isin(bins.key(scores), within.key)
    value = 0.6 * x + 0.8 * y
    inside = np.sort(value) if len(value) else np.zeros(1)
    strip = Strip((0.6, 0.8), float(inside[len(inside) // 4]), float(inside[-1]), 9)
    found = source.histogram(sums, measure, strips=[strip], within=within)
    assert found.key.tolist() == sorted(set(key[held].tolist()))
    places = np.flatnonzero(finite)
    for i, cell in enumerate(found.key.tolist()):
        there = held & (key == cell)
        assert found.rows[i] == there.sum()
        expected = _masses(rows, measure, places[there])
        assert [found.id[i], found.loss[i], *found.ood[:, i]] == expected
        assert (found.low[i] <= values[there]).all() and (found.high[i] >= values[there]).all()
    (profile,) = found.profiles
    for i in range(len(profile.threshold)):
        expected = _masses(rows, measure, places[held & (value <= profile.threshold[i])])
        assert [profile.id[i], profile.loss[i], *profile.ood[:, i]] == expected
    cells = Cells(sums, found.key[::2])
    fetched = source.rows(cells)
    assert sorted(map(tuple, fetched.scores.tolist())) == sorted(
        map(tuple, scores[np.isin(key, cells.key)].tolist())
    )


def _check_tallies(source, rows, measure, rng):
    weights = (0.6, 0.8)[: rows.scores.shape[1]] if rng.random() < 0.5 else None
    direction = weights or (1.0, 0.0)[: rows.scores.shape[1]]
    finite = rows.scores[np.isfinite(rows.scores).all(axis=1)]
    threshold = float(np.median(finite[:, 0])) if len(finite) else 0.0
    rule = dm.Rule(direction, threshold)
    accepted = rule.accept(rows.scores)
    tally = source.tally(rule, measure)[None]
    assert [tally.id, tally.loss, *tally.ood] == _masses(rows, measure, accepted)
    every = np.ones(len(accepted), bool)
    assert [tally.total_id, tally.total_loss, *tally.total_ood] == _masses(rows, measure, every)
