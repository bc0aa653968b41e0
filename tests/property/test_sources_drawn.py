"""Rows drawn by a hash are the same rows on every engine, and those that plain arithmetic draws."""

from __future__ import annotations

import hashlib
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from tests.support import engines

import demur as dm
from demur.core.row_draws import POISSON, PRIME, RowDraw, repeats_key, split
from demur.guarantees import bootstrap, cross_tune
from demur.sources.engines.frames import ArraySource
from demur.sources.open import Roles

ENGINES = engines.EVERY | {"duckdb by SQL": engines.duckdb_sql}


@pytest.fixture(scope="module", params=ENGINES)
def source_of(request):
    with ENGINES[request.param]() as made:
        yield made


SLOW = ("pushdown", "spark")
"""Engines that take long to plan a draw; the others make folds and replicates, too."""

KEYS = [None, "whole", "text", "part"]


def draws_for(source, key):
    """Return the draws to try: with Spark, which is slow to plan each, another for each key."""
    return [DRAWS[2 + KEYS.index(key)]] if source.engine == "spark" else DRAWS


def plain_words(value):
    """Take a double apart in exact arithmetic, one number at a time."""
    if value is None or math.isnan(value):
        return (64 + 256) << 16, 0, 0
    if math.isinf(value):
        return (64 + 512 + 128 * bool(value < 0)) << 16, 0, 0
    size, code = abs(Fraction(float(value))), 128 * bool(value < 0)
    if size < 1:
        size, code = size * 2**1022, code + 64
    places = 0
    while size >= 2**16:
        size, places = size / 2**16, places + 1
    head = math.floor(size)
    rest = (size - head) * 2**26
    return ((code + places) << 16) + head, math.floor(rest), math.floor(rest % 1 * 2**26)


def plain_number(draw, values):
    first, factors = draw.factors(len(values))
    total = first
    for value, own in zip(values, factors, strict=True):
        total += sum(f * w for f, w in zip(own, plain_words(value), strict=True))
    return pow(int(total), 5, PRIME)


def md5_number(text):
    return None if text is None else float(int(hashlib.md5(text.encode()).hexdigest()[:12], 16))


def hard_table(n=240):
    rng = np.random.default_rng(5)
    one = rng.normal(0, 1, n) * 10.0 ** rng.integers(-300, 300, n)
    one[:8] = [0.0, -0.0, 5e-324, -2.2e-308, 1.7976931348623157e308, 1.0, 1 - 2**-53, np.inf]
    two = np.round(rng.random(n), 2).astype(np.float32)
    ood = rng.random(n) < 0.3
    ids = rng.integers(-(2**60), 2**60, n // 4)[rng.integers(0, n // 4, n)]
    names = [None if k % 11 == 0 else f"patient {k % 37} ä€" for k in range(n)]
    table = pa.table(
        {
            "b": one,
            "a": two,
            "loss": (rng.random(n) < 0.2).astype(np.int64),
            "ood": ood,
            "whole": ids,
            "text": names,
            "part": pa.array([None if k % 7 == 0 else k % 61 / 4 for k in range(n)]),
        }
    )
    return table, one, two, ood, ids, names


DRAWS = [
    RowDraw.holdout(0.3, 7),
    RowDraw.holdout(0.3, 7).others,
    RowDraw.fold(1, 3, 0),
    RowDraw.thinned(0.2, 0.7, 3),
    RowDraw.replicate(4, 1),
    RowDraw.replicate(4, 1).others,
]


def held(source):
    """Return the rows of a source, in order of their scores, each as often as it counts."""
    rows = source.sample(10**9, seed=0)
    weight = np.ones(len(rows.loss)) if rows.weight is None else rows.weight
    table = np.column_stack([rows.scores, rows.group >= 0, weight])
    return table[np.lexsort(table.T[::-1])]


@pytest.mark.parametrize("key", KEYS)
def test_the_same_rows_everywhere(source_of, key):
    table, one, two, ood, ids, names = hard_table()
    keys = {
        None: list(zip(two.astype(float), one, strict=True)),
        "whole": [(float(k),) for k in ids],
        "text": [(md5_number(name),) for name in names],
        "part": [(value,) for value in table["part"].to_pylist()],
    }[key]
    source = source_of(table, Roles(("b", "a"), loss="loss", ood="ood", key=key))
    for draw in draws_for(source, key):
        numbers = np.array([plain_number(draw, values) for values in keys])
        if draw.kept is None:
            times = np.array([sum(number >= limit for limit in POISSON) for number in numbers])
            kept = (times == 0) == draw.outside
        else:
            times = np.ones(len(numbers))
            ends = np.array(draw.kept)[ood.astype(int)]
            kept = ((numbers >= ends[:, 0]) & (numbers < ends[:, 1])) != draw.outside
        weight = times if draw.repeats else np.ones(len(numbers))
        expected = np.column_stack([one + 0.0, two.astype(float), ood, weight])[kept]
        drawn = source.drawn(draw)
        np.testing.assert_array_equal(held(drawn), expected[np.lexsort(expected.T[::-1])])
        assert drawn.overview().id_rows == (kept & ~ood).sum()


def test_parts_of_parts_and_tuning(source_of):
    rng = np.random.default_rng(1)
    n = 900
    ood = rng.random(n) < 0.4
    score = np.round(rng.normal(0, 1, (n, 2)) + 1.5 * ood[:, None], 3)
    wrong = (rng.random(n) < 1 / (1 + np.exp(1 - score[:, 0]))).astype(np.int64)
    table = pa.table(
        {"a": score[:, 0], "b": score[:, 1], "loss": wrong, "ood": ood, "w": 0.25 * (1 + wrong)}
    )
    roles = Roles(("a", "b"), loss="loss", ood="ood", weight="w", confidence=("b",))
    sample = dm.Sample.from_frame(
        table, ["a", "b"], loss="loss", ood="ood", weight="w", confidence="b"
    )
    arrays, source = ArraySource(sample), source_of(table, roles)
    for draws in (
        [RowDraw.holdout(0.25, 0)],
        [RowDraw.holdout(0.25, 0).others, RowDraw.fold(0, 2, 5)],
        [RowDraw.holdout(0.25, 0).others, RowDraw.replicate(1, 5)],
    ):
        if source.engine == "spark" and not draws[-1].repeats:
            continue
        here, there = arrays, source
        for draw in draws:
            here, there = here.drawn(draw), there.drawn(draw)
        model = dm.TprFprModel(0.5, 0.6)
        ours, theirs = (dm.tune(one, model, directions="circle") for one in (here, there))
        assert ours.point == theirs.point and ours.rule.threshold == theirs.rule.threshold
    assert split(source, 0.25)[1].overview().rows == split(arrays, 0.25)[1].overview().rows


def test_keys_that_engines_do_not_share_are_refused():
    table = pa.table({"s": [0.1, 0.2], "l": [0, 1], "k": pa.array([1, 2], pa.date32())})
    with engines.frames() as source_of:
        source = source_of(table, Roles(("s",), loss="l", key="k"))
        with pytest.raises(dm.InvalidInputError, match="ids must be numbers or text"):
            source.drawn(RowDraw.fold(0, 2, 0))


def test_numbers_are_spread_evenly_and_seeds_are_independent():
    values = [np.arange(200_000) / 1e4]
    one, two = (RowDraw.replicate(k, 0).times(values) for k in (0, 1))
    assert abs(one.mean() - 1) < 0.01 and abs(one.var() - 1) < 0.02
    assert abs(np.corrcoef(one, two)[0, 1]) < 0.01
    assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 0.01
    shares = [RowDraw.holdout(0.3, seed).keeps(values, np.zeros(200_000, bool)) for seed in (0, 1)]
    assert all(abs(share.mean() - 0.3) < 0.005 for share in shares)
    assert abs((shares[0] & shares[1]).mean() - 0.09) < 0.005


@pytest.mark.parametrize("engine", [name for name in ENGINES if name not in SLOW])
def test_folds_in_which_sets_and_groups_have_no_rows(engine):
    """Each set and group keeps its own rates, also where a fold has rows of the others only."""
    rng = np.random.default_rng(1)
    n = 300
    ood = rng.random(n) < 0.4
    score, wrong = rng.normal(size=n) + ood, (rng.random(n) < 0.3).astype(np.int64)
    names, groups = np.where(ood, "b", "id"), np.where(rng.random(n) < 0.5, "g", "h")
    names[:3], groups[2] = ["a", "c", "id"], "f"
    table = pa.table({"a": score, "loss": wrong, "set": names, "group": groups})
    model = dm.TprFprModel(0.5, 0.9)
    with ENGINES[engine]() as source_of:
        source = source_of(table, Roles(("a",), loss="loss", ood="set", group="group"))
        found = cross_tune(source, model, folds=4, rng=0)
    accepted = np.zeros(n, bool)
    for number, fold in enumerate(found.folds):
        here = RowDraw.fold(number, 4, 0).keeps([score], names != "id")
        accepted[here] = fold.rule.accept(score[here])
    for name, rate in found.held_out.fpr_by_set.items():
        assert rate == accepted[names == name].mean()
    for name, rate in found.held_out.tpr_by_group.items():
        assert rate == accepted[(names == "id") & (groups == name)].mean()
    assert set(found.held_out.tpr_by_group) == {"f", "g", "h"}


@pytest.mark.parametrize("engine", [name for name in ENGINES if name not in SLOW])
def test_replicates_of_weighted_rows_are_the_same(engine):
    rng = np.random.default_rng(2)
    n = 600
    ood = rng.random(n) < 0.4
    score, wrong = rng.normal(size=n) + ood, (rng.random(n) < 0.3).astype(np.int64)
    table = pa.table({"a": score, "loss": wrong, "ood": ood, "w": rng.integers(1, 5, n) / 4})
    model, columns = dm.TprFprModel(0.6, 0.6), {"loss": "loss", "ood": "ood", "weight": "w"}
    arrays = ArraySource(dm.Sample.from_frame(table, "a", **columns))
    with ENGINES[engine]() as source_of:
        source = source_of(table, Roles(("a",), **columns))
        booted = [bootstrap(one, model, replicates=2, rng=4) for one in (arrays, source)]
    drawn = RowDraw.replicate(0, 4).times([score]) * table["w"].to_numpy()
    for name, rate in booted[0].measures.items():
        assert rate.interval == booted[1].measures[name].interval
        np.testing.assert_array_equal(rate.in_bag, booted[1].measures[name].in_bag)
    # The least share at which the replicate's rule meets the bound, by hand.
    reached = np.cumsum(drawn[~ood][np.argsort(score[~ood])]) / drawn[~ood].sum()
    assert booted[1].measures["tpr"].in_bag[0] >= 0.6
    assert booted[1].measures["tpr"].in_bag[0] in reached


def test_shared_keys_are_seen():
    rng = np.random.default_rng(3)
    n = 60_000
    columns = {
        "a": rng.normal(size=n),
        "loss": np.zeros(n),
        "set": np.repeat(["id", "far"], n // 2),
    }
    for ids, repeated in (
        (np.arange(n), False),
        # One row of either side each.
        (np.arange(n) % (n // 2), False),
        (rng.integers(0, n, n), True),
        # So few that perhaps none is drawn.
        (np.arange(n) % 3, True),
    ):
        table = pa.table(columns | {"key": ids})
        source = dm.open_source(table, "a", loss="loss", ood="set", key="key")
        assert repeats_key(source, "key") == repeated


@pytest.mark.parametrize("engine", [name for name in ENGINES if name not in SLOW])
def test_folds_and_replicates_give_the_same_estimates(engine):
    rng = np.random.default_rng(9)
    n = 1500
    ood = rng.random(n) < 0.4
    score = rng.normal(0, 1, (n, 2)) + 1.5 * ood[:, None]
    wrong = (rng.random(n) < 1 / (1 + np.exp(1 - score[:, 0]))).astype(np.int64)
    table = pa.table({"a": score[:, 0], "b": score[:, 1], "loss": wrong, "ood": ood})
    sample = dm.Sample.from_frame(table, ["a", "b"], loss="loss", ood="ood")
    model, arrays = dm.TprFprModel(0.6, 0.4), ArraySource(sample)
    # Each draw takes these engines seconds; arrays show below that the mean is right.
    folds, replicates = (2, 2) if engine in ("dask", "sqlite") else (3, 5)
    with ENGINES[engine]() as source_of:
        source = source_of(table, Roles(("a", "b"), loss="loss", ood="ood"))
        cross = [cross_tune(one, model, folds=folds, rng=4) for one in (arrays, source)]
        booted = [bootstrap(one, model, replicates=replicates, rng=4) for one in (arrays, source)]
    assert cross[0].held_out == cross[1].held_out
    # By hand: every row is decided by the rule of its fold.
    columns = [score[:, 0], score[:, 1]]
    accepted = np.zeros(n, bool)
    for number, fold in enumerate(cross[1].folds):
        here = RowDraw.fold(number, folds, 4).keeps(columns, ood)
        accepted[here] = fold.rule.accept(score[here])
    assert cross[1].held_out.accepted_id == accepted[~ood].sum()
    assert cross[1].held_out.accepted_ood == accepted[ood].sum()
    for name, rate in booted[0].measures.items():
        other = booted[1].measures[name]
        assert rate.interval == other.interval
        np.testing.assert_array_equal(rate.out_of_bag, other.out_of_bag)
    # Means over draws with replacement are near the estimate from the sample.
    if replicates == 5:
        assert abs(booted[0].measures["tpr"].in_bag.mean() - 0.6) < 0.01
    with pytest.raises(dm.InvalidInputError, match="need a Sample"):
        cross_tune(arrays, model, groups=(np.zeros(1), np.zeros(1)))
    with pytest.raises(dm.InvalidInputError, match="no costs"):
        bootstrap(arrays, dm.CostModel(0.1, 0.1, 0, 0.2), replicates=2)


def test_folds_and_replicates_take_the_grid_of_the_paper():
    rng = np.random.default_rng(10)
    n = 900
    ood = rng.random(n) < 0.4
    score = rng.normal(0, 1, (n, 2)) + 1.5 * ood[:, None]
    loss = rng.random(n) < 0.3
    sample = dm.Sample(score[~ood], loss[~ood], score[ood], score_names=("a", "b"))
    model, grid = dm.TprFprModel(0.6, 0.4), dm.Grid(20)
    found = cross_tune(ArraySource(sample), model, folds=3, rng=1, search=grid)
    columns = [score[:, 0], score[:, 1]]
    for number, fold in enumerate(found.folds):
        rest = ~RowDraw.fold(number, 3, 1).keeps(columns, ood)
        part = dm.Sample(score[rest & ~ood], loss[rest & ~ood], score[rest & ood])
        assert fold.tuned == dm.tune(part, model, search=grid).point
    booted = bootstrap(ArraySource(sample), model, replicates=2, rng=1, search=grid)
    times = RowDraw.replicate(0, 1).times(columns)
    weighted = dm.Sample(
        score[~ood], loss[~ood], score[ood], id_weight=times[~ood], ood_weight=times[ood]
    )
    again = dm.tune(weighted, model, search=grid).point
    assert booted.measures["tpr"].in_bag[0] == again.tpr
    assert booted.measures["fpr"].in_bag[0] == again.fpr
