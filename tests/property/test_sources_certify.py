"""Promises from counts of a source are those of the same rows in memory."""

import json

import engines
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run
from scored_tables import table_of

import demur as dm
from demur.core.rates import count_rule
from demur.core.row_draws import split
from demur.core.source import Measure
from demur.guarantees import certify
from demur.sources.engines.frames import ArraySource
from demur.sources.open import Roles

MODELS = [
    None,
    dm.TprFprModel(0.6, 0.5),
    dm.TprFprModel(0.6, 0.5).of_every_set(),
    dm.PrecisionRecallModel(0.5, 0.5, 0.3),
    dm.CostModel(0.2, 1.0, 0.1, 0.3),
    dm.RejectionModel(
        "tpr",
        [
            dm.Bound("tpr", at_least=0.3, group="b"),
            dm.Bound("selective_risk", at_most=0.3, group="a"),
            dm.Bound("fpr", at_most=0.6, ood_set="set 0"),
        ],
    ),
]


def scored(seed, *, sets=2):
    rng = np.random.default_rng(seed)
    return dm.Sample(
        rng.normal(size=(400, 2)),
        (rng.random(400) < 0.2).astype(float),
        {f"set {k}": rng.normal(size=(60 + 30 * k, 2)) + 1 for k in range(sets)},
        id_group=np.where(rng.random(400) < 0.3, "a", "b"),
    )


@pytest.mark.parametrize("sides", ["one", "two"])
@pytest.mark.parametrize("model", MODELS, ids=str)
def test_counts_promise_what_rows_do(model, sides):
    for seed in range(4):
        sample = scored(seed, sets=1 + seed % 3)
        rule = dm.Rule((0.6, 0.8), (-0.5, 0.3, 99.0, -99.0)[seed])
        here = certify(rule, sample, model=model, sides=sides)
        there = certify(rule, ArraySource(sample, batch=97), model=model, sides=sides)
        assert repr(there) == repr(here)
        for parts in ("tpr_by_group", "selective_risk_by_group", "fpr_by_set"):
            assert repr(getattr(there, parts)) == repr(getattr(here, parts))


@pytest.mark.parametrize("start", [engines.duckdb, engines.polars, engines.pushdown])
def test_engines_promise_the_same(start):
    sample, rng = scored(7), np.random.default_rng(7)
    rule, model = dm.Rule((0.6, 0.8), 0.3), dm.TprFprModel(0.6, 0.5)
    with start() as source_of:
        source = source_of(*table_of(sample, rng))
        assert repr(certify(rule, source, model=model)) == repr(certify(rule, sample, model=model))


def test_what_counts_cannot_promise_is_refused():
    sample = scored(0)
    graded = dm.Sample(sample.id_scores, sample.id_loss / 2, sample.ood_scores)
    with pytest.raises(dm.InvalidInputError, match="losses of 0 and 1"):
        certify(dm.Rule((0.6, 0.8), 0.3), ArraySource(graded))
    with pytest.raises(dm.InvalidInputError, match="share an id need memory"):
        certify(dm.Rule((0.6, 0.8), 0.3), ArraySource(sample), groups=([0] * 400, [0] * 150))


def test_the_command_counts_folders(tmp_path):
    table, _ = table_of(scored(3), np.random.default_rng(3))
    rule = dm.Rule((0.6, 0.8), 0.3, score_names=("score 0", "score 1"))
    rule.save(tmp_path / "rule.json")
    (tmp_path / "lake").mkdir()
    pq.write_table(table, tmp_path / "all.parquet")
    for part in range(3):
        pq.write_table(table.slice(part * 200, 200), tmp_path / f"lake/{part}.parquet")
    options = ["--loss", "loss", "--ood", "group", "--min-tpr", ".3", "--max-fpr", ".9", "--json"]
    found = [
        json.loads(run(tmp_path, "certify", "rule.json", data, *options).stdout)
        for data in ("all.parquet", "lake")
    ]
    work = found[1].pop("work")
    assert found[0] == found[1]
    assert work == {"engine": "duckdb", "passes": 1, "rows_fetched": 0}


def table_like(rng, n, *, kind):
    """Return a table whose columns are of many types, and the roles that name them."""
    ood = rng.random(n) < 0.3
    wrong = rng.random(n) < 0.2
    flags = {"flags": lambda x: x, "whole": lambda x: x.astype(np.int32), "doubles": np.float64}
    told = flags.get(kind, flags["flags"])
    columns = {"a": rng.normal(size=n).astype(np.float32), "b": np.round(rng.normal(size=n), 1)}
    columns |= {"ood": told(ood), "day": rng.integers(0, 3, n)}
    options = {"loss": "loss", "ood": "ood"}
    # On OOD rows a loss means nothing.
    columns["loss"] = np.where(ood & (kind == "doubles"), np.nan, told(wrong))
    if kind == "flags":
        columns["loss"] = told(wrong)
    if kind == "correct":
        columns["right"] = ~wrong
        options = {"correct": "right", "ood": "ood"}
    if kind == "classes":
        columns["y"], columns["yhat"] = rng.integers(0, 3, n), rng.integers(0, 3, n)
        options = {"label": "y", "prediction": "yhat", "ood": "ood"}
    if kind == "sets":
        columns["ood"] = np.where(ood, rng.choice(["far", "near"], n), "ID ")
    if kind == "groups":
        columns["group"] = rng.choice(["x", "y"], n)
        options["group"] = "group"
    if kind == "no ood":
        options = {"loss": "loss"}
    return pa.table(columns), Roles(("a", "b"), **options)


RULES = [
    dm.Rule((0.6, 0.8), 0.3),
    dm.Rule((0.6, -0.8), 0.1),
    dm.Rule((0.0, 1.0), 0.2),
    dm.BoxRule(limits=(0.4, 0.7)),
]
KINDS = ["flags", "whole", "doubles", "correct", "classes", "sets", "groups", "no ood"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("start", [engines.duckdb, engines.polars, engines.pushdown])
def test_one_pass_counts_what_two_do(start, kind):
    rng = np.random.default_rng(KINDS.index(kind))
    table, roles = table_like(rng, 700, kind=kind)
    with start() as source_of:
        for rule in RULES:
            once, twice = source_of(table, roles), source_of(table, roles)
            overview = twice.overview()
            counts = once.rule_counts(rule)
            assert once.work.passes == 1
            assert counts.tallies == twice.tally(rule, counts.measure)
            assert counts.measure == Measure.of(overview, apart=True, grouped=True)
            sizes = (overview.id_rows, overview.ood_rows, overview.sets, overview.groups)
            known = once.sizes()
            assert (known.id_rows, known.ood_rows, known.sets, known.groups) == sizes
            # Afterwards the first pass is known, and one more is all it takes.
            assert twice.rule_counts(rule) is None


@pytest.mark.parametrize("start", [engines.duckdb, engines.polars, engines.pushdown])
def test_one_pass_counts_by_the_values_of_a_column(start):
    table, roles = table_like(np.random.default_rng(5), 700, kind="flags")
    with start() as source_of:
        once, twice = source_of(table, roles), source_of(table, roles)
        counts, overview = once.rule_counts(RULES[0], by="day"), twice.overview()
        assert counts.tallies == twice.tally(RULES[0], counts.measure, by="day")
        assert counts.whole == twice.tally(RULES[0], counts.measure)[None]
        assert counts.sizes.rows == overview.rows
        named = source_of(*table_like(np.random.default_rng(5), 700, kind="sets"))
        assert named.rule_counts(RULES[0], by="day") is None


@pytest.mark.parametrize("start", [engines.duckdb, engines.polars, engines.pushdown])
def test_one_pass_counts_drawn_rows_only(start):
    table, roles = table_like(np.random.default_rng(5), 700, kind="flags")
    with start() as source_of:
        once, twice = (split(source_of(table, roles), 0.4)[1] for _ in range(2))
        counts, overview = once.rule_counts(RULES[0]), twice.overview()
        assert counts.sizes.rows == overview.rows < 400
        assert counts.tallies == twice.tally(RULES[0], counts.measure)


SPOILT = {
    "a": [float("nan"), None, float("inf"), float("-inf"), 3e38],
    "loss": [2.0, 0.5, -1.0, None, float("nan")],
    "ood": [2.0, None, float("nan")],
}


@pytest.mark.parametrize("column", ["ood", "loss"])
@pytest.mark.parametrize("start", [engines.duckdb, engines.polars, engines.pushdown])
def test_a_missing_flag_is_refused(start, column):
    table, roles = table_like(np.random.default_rng(1), 50, kind="flags")
    columns = {name: table[name].to_pylist() for name in table.column_names}
    columns[column][columns["ood"].index(False)] = None
    with start() as source_of, pytest.raises(dm.InvalidInputError, match="missing"):
        certify(RULES[0], source_of(pa.table(columns), roles))


@pytest.mark.parametrize("column", SPOILT)
@pytest.mark.parametrize("start", [engines.duckdb, engines.polars, engines.pushdown])
def test_a_row_that_cannot_be_counted_so_is_looked_at_closely(start, column):
    rng = np.random.default_rng(1)
    table, roles = table_like(rng, 50, kind="doubles")
    columns = {name: table[name].to_pylist() for name in table.column_names}
    place = columns["ood"].index(0.0)
    # Beside it no value overflows what is weighed but 3e38 * 1e300.
    rule = dm.Rule((1e300, 1.0), 0.3)
    with start() as source_of:
        for value in SPOILT[column]:
            spoilt = {**columns, column: [*columns[column]]}
            spoilt[column][place] = value
            source = source_of(pa.table(spoilt), roles)
            assert source.rule_counts(rule) is None
            reference = source_of(pa.table(spoilt), roles)
            try:
                overview = reference.overview()
            except dm.InvalidInputError as error:
                with pytest.raises(dm.InvalidInputError) as told:
                    count_rule(rule, source)
                assert str(told.value) == str(error)
            else:
                measure = Measure.of(overview, apart=True, grouped=True)
                assert count_rule(rule, source).tallies == reference.tally(rule, measure)


def test_tuning_rows_are_seen_in_a_few_places_of_large_files(tmp_path, monkeypatch):
    """Half of a file made the rule, the other half did not."""
    monkeypatch.setattr("demur.core.fingerprint.LOOKED_AT", 4000)
    rng = np.random.default_rng(2)
    tables = [table_like(rng, 40_000, kind="flags")[0] for _ in range(3)]
    # What is rounded is alike by chance.
    tables = [
        table.set_column(1, "b", pa.array(rng.normal(size=table.num_rows))) for table in tables
    ]
    for name, parts in {"own": tables[:1], "mixed": tables[:2], "fresh": tables[1:]}.items():
        (tmp_path / name).mkdir()
        for k, part in enumerate(parts):
            pq.write_table(part, tmp_path / name / f"{k}.parquet", row_group_size=1000)

    def opened(name):
        return dm.open_source(tmp_path / name, ["a", "b"], loss="loss", ood="ood")

    rule = dm.tune(opened("own"), dm.TprFprModel(0.5, 0.5)).rule
    with pytest.raises(dm.InvalidInputError, match="these rows made the rule"):
        certify(rule, opened("own"))
    with pytest.raises(dm.InvalidInputError, match=r"about [3-7]\d% of these rows made the rule"):
        certify(rule, opened("mixed"))
    source = opened("fresh")
    promise = certify(rule, source, model=dm.TprFprModel(0.4, 0.6))
    assert promise.holds
    assert source.work.passes == 2
    looked_at = source.glimpse(4000)
    assert 3500 < len(looked_at.loss) <= 4000
    every = source.sample(10**9, seed=0)
    assert set(map(tuple, looked_at.scores)) <= set(map(tuple, every.scores))
