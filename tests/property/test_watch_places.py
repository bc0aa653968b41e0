"""Live rows counted in files, by engines and in databases are the same rows."""

import sqlite3
from contextlib import closing
from decimal import Decimal

import databases
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from engines import need_java, spark_session, without_pandas_warning
from scored_tables import SETS
from watched import live_rows, tuned_rule

import demur as dm
from demur.cli.commands.watch import LivePlace
from demur.cli.inputs import EngineOptions
from demur.cli.output import Progress
from demur.core.rule import BoxRule
from demur.core.source import MEMORY
from demur.watch import Watch
from demur.watch.files import FileColumns

# Dask says so of itself.
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword in DataFrame.reset_index")

NAMES = ("msp", "knn")
BOUNDS = [
    dm.Bound("selective_risk", at_most=0.06),
    dm.Bound("tpr", at_least=0.7, group="7"),
    dm.Bound("fpr", at_most=0.1, ood_set="each"),
]
CUTS = Watch(tuned_rule()).setup.cuts
RULES = {
    "half-plane": tuned_rule(),
    "one score decides": dm.Rule((0.0, 1.0), 0.4, score_names=NAMES),
    "box": BoxRule((1.0, 1.0), NAMES, limits=(0.7, 1.2)),
    "nothing is accepted": dm.Rule((0.6, 0.8), -np.inf, score_names=NAMES),
    "an open end": dm.Rule((1.0, 0.0), float(CUTS[0][3]), tau=0, score_names=NAMES),
}
PERIODS = {
    "dates": lambda day: pa.array((day + 20500).astype(np.int32)).cast(pa.date32()),
    "numbers": lambda day: pa.array(day),
    "fractions": lambda day: pa.array(day + 0.5),
    "decimals": lambda day: pa.array([Decimal(f"{k}.25") for k in day], pa.decimal128(10, 2)),
    "text": lambda day: pa.array([f"day {k}" for k in day]),
    "numbers as text": lambda day: pa.array([str(k) for k in day]),
    "moments": lambda day: pa.array(day * 43_200_000_000).cast(pa.timestamp("us")),
}


def missing_in(rng, values, share=0.3):
    """Return values of which some are missing."""
    gone = rng.random(len(values)) < share
    return [None if lost else value for value, lost in zip(values.tolist(), gone, strict=True)]


def live_table(rng, period, rows=400, graded=False):
    """Return rows with all that live rows may hold."""
    scores, loss, foreign = live_rows(rng, rows, prior=0.3)
    for k in (0, 1):
        scores[rng.random(rows) < 0.1, k] = rng.choice(CUTS[k])
        for value in (np.nan, np.inf, -np.inf):
            scores[rng.random(rows) < 0.04, k] = value
    sets = np.where(foreign, rng.choice(["far", "s 2"], rows), rng.choice(["id", " Id ", ""], rows))
    label = rng.integers(0, 3, rows)
    wrong = np.nan_to_num(loss).astype(int)
    given = rng.random(rows) if graded else wrong.astype(float)
    return pa.table(
        {
            "msp": pa.array(scores[:, 0]),
            "knn": pa.array(missing_in(rng, scores[:, 1], 0.05), pa.float64()),
            "loss": pa.array(missing_in(rng, given), pa.float64()),
            "wrong": pa.array(missing_in(rng, wrong == 1), pa.bool_()),
            "set": pa.array(missing_in(rng, sets), pa.string()),
            "flag": pa.array(missing_in(rng, foreign), pa.bool_()),
            "mark": pa.array(missing_in(rng, foreign.astype(int)), pa.int64()),
            "label": pa.array(missing_in(rng, label), pa.int64()),
            "class": pa.array(missing_in(rng, (label + wrong) % 3, 0.1), pa.int64()),
            "name": pa.array(missing_in(rng, np.array(["cat", "dog", ""])[label]), pa.string()),
            "told": pa.array(np.array(["cat", "dog", "owl"])[(label + wrong) % 3]),
            "site": pa.array(rng.integers(6, 9, rows)),
            "image": pa.array([f"r{k}" for k in range(rows)]),
            "day": PERIODS[period](np.sort(rng.integers(1, 5, rows))),
        }
    )


LABELS = {
    "none": {},
    "loss and sets": {"loss": "loss", "ood": "set"},
    "loss and groups": {"loss": "loss", "ood": "mark", "group": "site"},
    "truth values": {"loss": "wrong", "ood": "flag"},
    "classes": {"label": "label", "prediction": "class", "ood": "flag"},
    "names of classes": {"label": "name", "prediction": "told", "ood": "set"},
    "sets only": {"ood": "set", "group": "site"},
}


def write_files(table, folder, kind="parquet"):
    """Write the rows into three files, each period in at least one."""
    ends = [0, table.num_rows // 3, table.num_rows // 2, table.num_rows]
    for k in range(3):
        part = table.slice(ends[k], ends[k + 1] - ends[k])
        write = pq.write_table if kind == "parquet" else pa.csv.write_csv
        write(part, folder / f"{k}.{kind}")
    return (str(folder / f"*.{kind}"),)


def counted(watch, place, table, roles, engine="auto"):
    """Return what a place gives a watch."""
    found = LivePlace.of(place, table, EngineOptions(engine, MEMORY))
    columns = FileColumns(NAMES, by="day", on="image", **roles)
    return without_pandas_warning(lambda: found.count(watch, columns, None, Progress("counting")))


def same_counts(found, expected):
    assert sorted(found.counts) == sorted(expected.counts)
    for period, counts in expected.counts.items():
        other = found.counts[period]
        assert other.sums == pytest.approx(counts.sums, rel=1e-12), period
        whole = counts.sums == np.floor(counts.sums)
        assert np.array_equal(other.sums[whole], counts.sums[whole]), period
        assert {n: v.tolist() for n, v in other.sets.items()} == {
            n: v.tolist() for n, v in counts.sets.items()
        }
    assert (found.rows, found.waiting) == (expected.rows, None)


def put_sqlite(table, folder):
    file = folder / f"rows{len(list(folder.glob('*.db')))}.db"
    kinds = {str(f.type) for f in table.schema}
    if any(kind.startswith(("date", "timestamp")) for kind in kinds):
        # It has no dates: these are text there.
        texts = [str(value) for value in table["day"].to_pylist()]
        table = table.set_column(table.column_names.index("day"), "day", pa.array(texts))
    with closing(sqlite3.connect(file)) as connection:
        databases.put(connection, table, "sqlite", "live")
        connection.commit()
    return (f"sqlite:///{file}",), "live"


def put_postgres(connection, table):
    types = {
        "day": {"timestamp[us]": "timestamp", "date32[day]": "date"}.get(str(table["day"].type))
    }
    types = {name: kind for name, kind in types.items() if kind}
    databases.put(connection, table, "postgres", "live", types=types)
    return (f"{databases.postgres_url()}#live",), None


CASES = [
    (rule, labels, period)
    for rule, labels, period in zip(
        [*RULES, "half-plane", "half-plane"], LABELS, PERIODS, strict=True
    )
]


@pytest.fixture(scope="module")
def server():
    import psycopg

    with psycopg.connect(databases.postgres_url(), autocommit=True) as connection:
        yield connection


@pytest.mark.parametrize("seed", range(SETS or 2))
@pytest.mark.parametrize(("rule", "labels", "period"), CASES)
@pytest.mark.parametrize("engine", ["duckdb", "dask", "sqlite", "postgres"])
def test_every_place_counts_what_files_are_read_for(
    engine, rule, labels, period, seed, tmp_path, request
):
    rng = np.random.default_rng([seed, *map(ord, labels)])
    order = rng.permutation(len(CASES))
    period = list(PERIODS)[order[list(PERIODS).index(period)]]
    graded = bool(seed % 2) and labels.startswith("loss")
    table = live_table(rng, period, graded=graded)
    watch = Watch(RULES[rule], expect=BOUNDS, max_loss=1.0 if graded else None)
    files = write_files(table, tmp_path)
    expected, _ = counted(watch, files, None, LABELS[labels])
    if engine == "sqlite":
        found, work = counted(watch, *put_sqlite(table, tmp_path), LABELS[labels])
    elif engine == "postgres":
        connection = request.getfixturevalue("server")
        place = put_postgres(connection, table)
        try:
            found, work = counted(watch, *place, LABELS[labels])
        finally:
            connection.execute("DROP TABLE live")
    else:
        found, work = counted(watch, files, None, LABELS[labels], engine)
        assert {p: found.part(p) for p in found.counts} == {
            p: expected.part(p) for p in expected.counts
        }
    same_counts(found, expected)
    assert (work.engine, work.passes, work.fetched) == (engine, 2, table.num_rows)
    looked_at = [np.sort(np.concatenate(one.looked_at), axis=0) for one in (found, expected)]
    assert np.array_equal(*looked_at, equal_nan=True)
    by_name = {row["image"]: row for row in table.to_pylist()}
    for row in found.examples:
        told = [by_name[row.key][name] for name in NAMES]
        told = [np.nan if value is None else value for value in told]
        assert np.array_equal(row.scores, told, equal_nan=True)


@pytest.mark.parametrize("labels", ["loss and groups", "names of classes"])
def test_spark_counts_what_files_are_read_for(labels, tmp_path):
    need_java()
    spark_session()
    table = live_table(np.random.default_rng(5), "dates")
    watch = Watch(RULES["half-plane"], expect=BOUNDS)
    files = write_files(table, tmp_path)
    expected, _ = counted(watch, files, None, LABELS[labels])
    found, work = counted(watch, files, None, LABELS[labels], "spark")
    same_counts(found, expected)
    assert (work.engine, work.passes, work.fetched) == ("spark", 2, 400)


SPELLED = {
    "01": ["01", "02", "03", "04"],
    "1.50": ["1.50", "2.50", "3.50", "4.50"],
    "2026-03-01": ["2026-03-01", "2026-03-02", "2026-04-01", "2026-05-01"],
    "true": ["true", "false", "true", "false"],
    "1": ["1", "2", "10", "11"],
    "a 1": ["a 1", "b", "c", "d"],
}


@pytest.mark.parametrize("spelled", SPELLED)
@pytest.mark.parametrize("engine", ["duckdb", "dask"])
def test_periods_of_csv_files_are_called_as_they_are_written(engine, spelled, tmp_path):
    table = live_table(np.random.default_rng(7), "numbers")
    days = np.array(SPELLED[spelled], object)[table["day"].to_numpy() - 1]
    table = table.set_column(table.column_names.index("day"), "day", pa.array(days.tolist()))
    roles = {"loss": "loss", "ood": "mark"}
    watch = Watch(RULES["half-plane"], expect=BOUNDS)
    files = write_files(table, tmp_path, "csv")
    expected, _ = counted(watch, files, None, roles)
    found, _ = counted(watch, files, None, roles, engine)
    same_counts(found, expected)


@pytest.mark.parametrize("engine", ["auto", "duckdb", "dask"])
def test_text_beside_numbers_has_no_order(engine, tmp_path):
    (tmp_path / "a.csv").write_text("msp,knn,day,image\n0,0,1,x\n1,1,first,y\n")
    with pytest.raises(dm.InvalidInputError, match="'first' cannot be ordered with 1"):
        counted(Watch(RULES["half-plane"]), (str(tmp_path / "a.csv"),), None, {}, engine)


def test_periods_spelled_in_two_ways_are_refused(tmp_path):
    for name, day in (("a", "1"), ("b", "01")):
        (tmp_path / f"{name}.csv").write_text(f"msp,knn,day,image\n0,0,{day},x\n1,1,{day},y\n")
    watch = Watch(RULES["half-plane"])
    with pytest.raises(dm.InvalidInputError, match="in several ways: leave out --engine"):
        counted(watch, (str(tmp_path / "*.csv"),), None, {}, "duckdb")


WRONG = {
    "a loss of 0.5": (
        {"loss": [0.0, 0.5, 1.0]},
        {"loss": "loss"},
        "loss: .* in 1 rows neither 0 nor",
    ),
    "an infinite loss": ({"loss": [0.0, np.inf, None]}, {"loss": "loss"}, "neither 0 nor 1"),
    "a flag of 2": ({"ood": [0, 1, 2]}, {"ood": "ood"}, "a flag that is not 0 or 1"),
    "flags as text": ({"ood": ["0", "1", "0"]}, {"ood": "ood"}, "holds '0', '1' as text"),
    "no period": ({"day": [1, None, 2]}, {}, "--by: column 'day' is empty in some rows"),
    "an empty period": ({"day": ["a", " ", "b"]}, {}, "--by: column 'day' is empty in some rows"),
    "text for a score": ({"knn": ["1", "2", "x"]}, {}, "knn.* holds .*, not numbers"),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("engine", ["duckdb", "dask", "sqlite"])
def test_what_files_are_refused_for_is_refused(engine, wrong, tmp_path):
    columns, roles, words = WRONG[wrong]
    plain = {"msp": [0.0, 1.0, 2.0], "knn": [0.0, 1.0, 2.0], "day": [1, 1, 2], "image": [*"abc"]}
    table = pa.table(plain | columns)
    watch = Watch(RULES["half-plane"])
    place = (write_files(table, tmp_path), None)
    if engine == "sqlite":
        place = put_sqlite(table, tmp_path)
    with pytest.raises(dm.InvalidInputError, match=words):
        counted(watch, *place, roles, "auto" if engine == "sqlite" else engine)


def test_no_rows_are_no_rows(tmp_path):
    table = live_table(np.random.default_rng(1), "dates").slice(0, 0)
    watch = Watch(RULES["half-plane"])
    files = write_files(table, tmp_path)
    for place, engine in (((files, None), "duckdb"), (put_sqlite(table, tmp_path), "auto")):
        found, _ = counted(watch, *place, {"loss": "loss", "ood": "set"}, engine)
        assert (found.rows, found.counts, found.examples) == (0, {}, [])


def opened(table, folder, kind):
    """Return the rows as an opened source."""
    if kind == "sqlite":
        (url,), name = put_sqlite(table, folder)
        return dm.open_source(url, NAMES, table=name, labelled=False)
    if kind == "polars":
        import polars

        return dm.open_source(polars.from_arrow(table).lazy(), NAMES, labelled=False)
    return dm.open_source(list(write_files(table, folder)), NAMES, labelled=False, engine=kind)


@pytest.mark.parametrize("kind", ["duckdb", "dask", "polars", "sqlite"])
def test_an_opened_source_is_counted_as_rows_are(kind, tmp_path):
    table = live_table(np.random.default_rng(11), "numbers")
    audited = np.random.default_rng(1).random(table.num_rows) < 0.5
    table = table.append_column("audited", pa.array(audited))
    rows, counts = (Watch(RULES["half-plane"], expect=BOUNDS) for _ in range(2))
    frame = table.to_pandas()
    without_pandas_warning(
        lambda: rows.count(frame, by="day", loss="loss", ood="set", audited="audited", group="site")
    )
    source = opened(table, tmp_path, kind)
    for _ in range(2):  # what is counted again is not counted twice
        without_pandas_warning(
            lambda: counts.count(
                source, by="day", loss="loss", ood="set", audited="audited", group="site"
            )
        )
    assert np.array_equal(rows.timeline.sums(), counts.timeline.sums())
    assert rows.waiting == counts.waiting == 1
    assert source.work.passes == 2


@pytest.mark.parametrize("kind", ["duckdb", "dask", "polars", "sqlite"])
@pytest.mark.parametrize("role", ["loss", "audited"])
def test_text_is_no_number(kind, role, tmp_path):
    table = live_table(np.random.default_rng(11), "numbers")
    source = opened(table, tmp_path, kind)
    with pytest.raises(dm.InvalidInputError, match=f"{role}: column 'told' holds .*, not numbers"):
        Watch(RULES["half-plane"]).count(source, by="day", **{role: "told"})


@pytest.mark.parametrize("kind", ["files", "duckdb", "dask", "sqlite"])
def test_large_classes_are_compared_to_the_last_digit(kind, tmp_path):
    label = np.arange(8) + 2**60
    columns = {"msp": np.zeros(8), "knn": np.zeros(8), "day": np.ones(8), "label": label}
    table = pa.table(columns | {"class": label + (np.arange(8) < 3), "image": [*"abcdefgh"]})
    place = (
        put_sqlite(table, tmp_path) if kind == "sqlite" else (write_files(table, tmp_path), None)
    )
    engine = kind if kind in ("duckdb", "dask") else "auto"
    watch = Watch(RULES["half-plane"], expect=BOUNDS[:1])
    found, _ = counted(watch, *place, {"label": "label", "prediction": "class"}, engine)
    (counts,) = found.counts.values()
    assert counts.labelled().losses.tolist() == [8, 3, 3]


def test_a_part_of_a_source_is_not_all_rows(tmp_path):
    table = live_table(np.random.default_rng(11), "numbers").drop_null()
    watch = Watch(RULES["half-plane"])
    pq.write_table(table, tmp_path / "a.parquet")
    kept = dm.open_source(str(tmp_path / "a.parquet"), NAMES, loss="wrong", missing="drop")
    with pytest.raises(dm.InvalidInputError, match="opened without missing"):
        watch.count(kept, by="day")
    with pytest.raises(dm.InvalidInputError, match="data is a int: give a frame"):
        watch.count(3, by="day")
    with pytest.raises(dm.InvalidInputError, match="by: the frame has no column 'dya'"):
        watch.count(dm.open_source(str(tmp_path / "a.parquet"), NAMES, loss="wrong"), by="dya")
