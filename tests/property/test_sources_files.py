"""A row means the same whatever wrote its file and whatever reads it, to the last bit."""

import decimal
import os
import time

import duckdb
import engines
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import demur as dm
from demur.core.bins import Bins, axis_for
from demur.core.source import Cells
from demur.sources.tables import read_table

# Of pandas, about what Dask calls.
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")

N = 240
MISSING = (5, 150)


def values():
    """Return columns of every kind, and for each the doubles that it stands for."""
    rng = np.random.default_rng(1)
    scores = rng.normal(size=N)
    digits = [decimal.Decimal(f"{x:.6f}") for x in scores]
    many = [decimal.Decimal(f"{x:.30f}") for x in scores]
    large = rng.integers(-(2**62), 2**62, N)
    huge = rng.integers(0, 2**64, N, dtype=np.uint64)
    columns = {
        "double": pa.array(scores),
        "single": pa.array(scores.astype(np.float32)),
        "infinite": pa.array(np.where(np.arange(N) == 7, np.inf, scores)),
        "decimal": pa.array(digits, pa.decimal128(18, 6)),
        "digits": pa.array(many, pa.decimal128(38, 30)),
        "whole": pa.array(rng.integers(-100, 100, N).astype(np.int8)),
        "large": pa.array(large),
        "huge": pa.array(huge),
        "constant": pa.array(np.full(N, 0.5)),
        "nan": pa.array(with_gaps(scores, np.nan)),
        "constant with nan": pa.array(with_gaps(np.full(N, 0.5), np.nan)),
        "single nan": pa.array(with_gaps(scores.astype(np.float32), np.nan)),
        "null": pa.array(with_gaps(scores, None)),
        "whole null": pa.array(with_gaps(large, None), pa.int64()),
        "decimal null": pa.array(with_gaps(digits, None), pa.decimal128(18, 6)),
    }
    meant = {
        name: [np.nan if value is None else float(value) for value in column.to_pylist()]
        for name, column in columns.items()
    }
    return columns, meant


def with_gaps(column, gap):
    items = list(column)
    for row in MISSING:
        items[row] = gap
    return items


COLUMNS, MEANT = values()
WRONG = np.random.default_rng(2).random(N) < 0.3
OOD = np.random.default_rng(3).random(N) < 0.4
TABLE = pa.table({**COLUMNS, "wrong": WRONG.astype(np.float64), "ood": OOD})


def by_duckdb(path):
    with duckdb.connect() as connection:
        connection.from_arrow(TABLE).write_parquet(path)


def by_spark(path):
    frame = engines.spark_session().createDataFrame(TABLE.drop_columns(["huge"]))
    frame.coalesce(1).write.parquet(path)


WRITERS = {
    "pyarrow": lambda path: pq.write_table(TABLE, path, row_group_size=100),
    "polars": lambda path: pl.from_arrow(TABLE).write_parquet(path),
    "pandas": lambda path: TABLE.to_pandas(types_mapper=pd.ArrowDtype).to_parquet(path),
    "pandas with NumPy": lambda path: TABLE.to_pandas().to_parquet(path),
    "duckdb": by_duckdb,
}


HARD = ("nan", "constant with nan", "decimal null", "large")
ALL_COLUMNS = [("pyarrow", "duckdb"), ("polars", "polars"), ("duckdb", "pandas with Arrow")]


def relation(path):
    return duckdb.sql(f"SELECT * FROM read_parquet('{path}')")


READERS = {
    "duckdb": lambda path: path,
    "relation": relation,
    "polars": pl.scan_parquet,
    "polars here": pl.read_parquet,
    "pandas": pd.read_parquet,
    "pandas with Arrow": lambda path: pd.read_parquet(path, dtype_backend="pyarrow"),
    "pyarrow": pq.read_table,
    "dask": lambda path: path,
    "spark": lambda path: path,
}


def source_of(reader, path, column, **options):
    engine = reader if reader in ("dask", "spark") else "duckdb"
    return dm.open_source(
        READERS[reader](path), column, loss="wrong", ood="ood", engine=engine, **options
    )


def rows_of(source):
    """Return all rows with finite scores: score, side and loss, sorted."""
    drawn = source.sample(50, seed=0).scores[:, 0]
    bins = Bins((axis_for(drawn[np.isfinite(drawn)], 8),))
    rows = source.rows(Cells(bins, np.arange(bins.cells)))
    table = np.column_stack([rows.scores[:, 0], rows.group, rows.loss])
    return table[np.lexsort(table.T[::-1])]


def expected(column):
    meant = np.array(MEANT[column])
    table = np.column_stack([meant, np.where(OOD, 0, -1), np.where(OOD, 0, WRONG)])
    table = table[np.isfinite(meant)]
    return table[np.lexsort(table.T[::-1])]


def check(reader, path, columns):
    for column in columns:
        gaps = int(np.isnan(MEANT[column]).sum())
        if gaps:
            with pytest.raises(dm.InvalidInputError, match=f"missing or NaN in {gaps} rows"):
                dm.evaluate(dm.Rule((1.0,), 0.1), source_of(reader, path, column))
        source = source_of(reader, path, column, missing="drop" if gaps else "error")
        assert source.overview().rows == N - gaps
        np.testing.assert_array_equal(rows_of(source), expected(column))
        if hasattr(source, "close"):
            source.close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    for name, write in WRITERS.items():
        write(str(folder / f"{name}.parquet"))
    return folder


@pytest.mark.parametrize("reader", [name for name in READERS if name != "spark"])
@pytest.mark.parametrize("writer", WRITERS)
def test_rows_are_read_as_they_were_written(writer, reader, files):
    columns = COLUMNS if (writer, reader) in ALL_COLUMNS else HARD
    check(reader, str(files / f"{writer}.parquet"), columns)


def test_spark_reads_and_writes_the_same(files, tmp_path):
    engines.need_java()
    check("spark", str(files / "pyarrow.parquet"), ["decimal null", "nan"])
    engines.without_pandas_warning(by_spark, str(tmp_path / "spark"))
    (path,) = (tmp_path / "spark").glob("*.parquet")
    for reader in ("duckdb", "polars", "pandas"):
        check(reader, str(path), ["nan", "digits", "decimal null", "large", "single nan"])


@pytest.mark.parametrize("writer", WRITERS)
def test_memory_reads_the_same(writer, files):
    found = read_table(str(files / f"{writer}.parquet"), list(COLUMNS))
    for name, column in found.items():
        np.testing.assert_array_equal(column.astype(np.float64), MEANT[name], err_msg=name)


@pytest.mark.parametrize("writer", WRITERS)
def test_sql_on_files_rejects_what_is_no_number(writer, files):
    """Statistics of Parquet leave NaN out, by which DuckDB would settle comparisons."""
    path = files / f"{writer}.parquet"
    for column, threshold in (("nan", 99.0), ("constant with nan", 0.75), ("null", 99.0)):
        accept = dm.Rule((1.0,), threshold).to_sql([column], dialect="duckdb")
        query = f"SELECT count(*) FROM read_parquet('{path}') WHERE"
        assert duckdb.sql(f"{query} {accept}").fetchall() == [(N - len(MISSING),)]
        assert duckdb.sql(f"{query} NOT {accept}").fetchall() == [(len(MISSING),)]


def mixed_folder(folder):
    """Write files in which a score is whole, single, double and decimal."""
    rng, meant = np.random.default_rng(4), []
    folder.mkdir()
    kinds = {"a": pa.int32(), "b": pa.float64(), "c": pa.float32(), "d": pa.decimal128(9, 3)}
    for name, kind in kinds.items():
        scores = pa.array(np.round(rng.normal(size=40) * 9)).cast(kind)
        meant += [float(score) for score in scores.to_pylist()]
        table = pa.table({"s": scores, "wrong": pa.array(rng.integers(0, 2, 40)).cast("int32")})
        pq.write_table(table, folder / f"{name}.parquet")
    return sorted(meant)


@pytest.mark.parametrize("engine", ["duckdb", "dask", "spark"])
def test_types_of_files_in_a_folder_are_unified(engine, tmp_path):
    if engine == "spark":
        engines.need_java()
        engines.spark_session()
    meant = mixed_folder(tmp_path / "lake")
    source = dm.open_source(tmp_path / "lake", "s", loss="wrong", engine=engine)
    assert rows_of(source)[:, 0].tolist() == meant
    assert sorted(read_table(tmp_path / "lake", ["s"])["s"].tolist()) == meant


@pytest.mark.parametrize("engine", ["duckdb", "dask"])
def test_a_file_of_another_kind_is_named(engine, tmp_path):
    for name, column in {
        "a": pa.array([0.5, 0.25]),
        "b": pa.array([0, 1], pa.timestamp("us")),
    }.items():
        pq.write_table(pa.table({"s": column, "l": [0, 1]}), tmp_path / f"{name}.parquet")
    with pytest.raises(dm.InvalidInputError, match=r"'s'.*b\.parquet' holds (?i:timestamp)"):
        dm.open_source(tmp_path, "s", loss="l", engine=engine)


SCORES = np.random.default_rng(6).normal(size=60)
RARE = {
    "half": pa.array(SCORES.astype(np.float16)),
    "flag": pa.array(SCORES > 0),
    "extremes": pa.array([-(2**63), 2**63 - 1, *range(58)], pa.int64()),
    "unsigned": pa.array([2**64 - 1, 2**63, *range(58)], pa.uint64()),
    "dictionary": pa.array(np.round(SCORES, 1)).dictionary_encode(),
    "short decimal": pa.array([decimal.Decimal(f"{x:.3f}") for x in SCORES], pa.decimal128(7, 3)),
}
NO_SCORES = {
    "instant": pa.array(range(60), pa.timestamp("us")),
    "date": pa.array(range(60), pa.date32()),
    "text": pa.array([str(x) for x in SCORES]),
    "many digits": pa.array([decimal.Decimal(f"{x:.40f}") for x in SCORES], pa.decimal256(60, 40)),
}
FILE_READERS = ["duckdb", "polars", "pandas", "pyarrow", "dask"]


def rare_source(reader, column, path):
    pq.write_table(pa.table({"s": column, "l": np.arange(60) % 2}), path)
    engine = "dask" if reader == "dask" else "duckdb"
    return dm.open_source(READERS[reader](path), "s", loss="l", engine=engine)


@pytest.mark.parametrize("reader", FILE_READERS)
@pytest.mark.parametrize("kind", RARE)
def test_rare_types_of_numbers(kind, reader, tmp_path):
    source = rare_source(reader, RARE[kind], str(tmp_path / "a.parquet"))
    meant = np.array([float(value) for value in RARE[kind].to_pylist()])
    seen = source.overview()
    assert (seen.low[0], seen.high[0]) == (meant.min(), meant.max())
    for threshold in meant[3:9]:
        point = dm.evaluate(dm.Rule((1.0,), threshold), source)
        assert point.accepted_id == (meant <= threshold).sum()


# Others have decimals of any number of digits, which Python reads as the nearest doubles.
FEW_DIGITS = ("duckdb", "polars")
REFUSED = [(k, r) for k in NO_SCORES for r in FILE_READERS if k != "many digits" or r in FEW_DIGITS]


@pytest.mark.parametrize(("kind", "reader"), REFUSED)
def test_what_is_no_number_is_refused(kind, reader, tmp_path):
    with pytest.raises(dm.InvalidInputError, match=r"not numbers|cannot be read"):
        rare_source(reader, NO_SCORES[kind], str(tmp_path / "a.parquet"))


LAKES = {
    "_delta_log/00000000000000000000.json": "Delta Lake",
    "metadata/v1.metadata.json": "Iceberg",
}


@pytest.mark.parametrize("note", LAKES)
def test_tables_with_deleted_files_are_refused(note, tmp_path):
    (tmp_path / "lake/day=1").mkdir(parents=True)
    pq.write_table(pa.table({"s": [0.1], "l": [0]}), tmp_path / "lake/day=1/a.parquet")
    log = tmp_path / "lake" / note
    log.parent.mkdir()
    log.write_text("{}")
    for path in ("lake", "lake/*/*.parquet", "lake/day=1", "lake/day=1/*.parquet"):
        with pytest.raises(dm.InvalidInputError, match=LAKES[note]):
            dm.open_source(tmp_path / path, "s", loss="l")
        with pytest.raises(dm.InvalidInputError, match=LAKES[note]):
            read_table(tmp_path / path, ["s"])


def scored(seed, n=400):
    rng = np.random.default_rng(seed)
    ood = rng.random(n) < 0.4
    return pa.table({"s": rng.normal(size=n) + ood, "l": rng.integers(0, 2, n), "o": ood})


def rewrite(path, table, *, stamp=None):
    pq.write_table(table, path)
    if stamp is not None:
        os.utime(path, ns=(stamp, stamp))


@pytest.mark.parametrize("engine", ["duckdb", "dask"])
def test_files_that_change_between_passes_are_refused(engine, tmp_path):
    path = tmp_path / "a.parquet"
    rewrite(path, scored(0))
    rule = dm.Rule((1.0,), 0.3)
    source = dm.open_source(path, "s", loss="l", ood="o", engine=engine)
    source.overview()
    time.sleep(0.01)
    rewrite(path, scored(1))
    with pytest.raises(dm.InvalidInputError, match=r"a\.parquet' changed while it was read"):
        dm.evaluate(rule, source)
    path.unlink()
    with pytest.raises(dm.InvalidInputError, match=r"a\.parquet' vanished"):
        dm.evaluate(rule, source)


@pytest.mark.parametrize("reader", ["polars", "relation"])
@pytest.mark.parametrize("ask", ["tune", "evaluate"])
def test_rows_that_change_between_passes_are_refused(reader, ask, tmp_path):
    """Where no file is known, the counts of the passes are compared."""
    path = str(tmp_path / "a.parquet")
    rewrite(path, scored(0))
    source = dm.open_source(READERS[reader](path), "s", loss="l", ood="o")
    source.overview()
    rewrite(path, scored(1, 390))
    # Polars may keep the places of the columns in mind, and find no page there.
    with pytest.raises(
        dm.InvalidInputError, match=r"changed while they were read|^Polars: parquet"
    ):
        if ask == "tune":
            dm.tune(source, dm.TprFprModel(0.5))
        else:
            dm.evaluate(dm.Rule((1.0,), 0.3), source)


@pytest.mark.parametrize("seed", range(3))
def test_damaged_pages_are_told(seed, tmp_path):
    """Or nobody can see the damage; a raw exception of an engine is neither."""
    rng = np.random.default_rng(seed)
    path = tmp_path / "a.parquet"
    pq.write_table(scored(0, 20_000), path, compression="snappy", use_dictionary=False)
    content = bytearray(path.read_bytes())
    for place in rng.integers(4, len(content) // 2, 1 + 200 * (seed % 2)):
        content[place] ^= 1 << int(rng.integers(8))
    path.write_bytes(content)
    told = []
    for reader in ("duckdb", "polars", "dask"):
        try:
            dm.tune(
                dm.open_source(
                    pl.scan_parquet(path) if reader == "polars" else path,
                    "s",
                    loss="l",
                    ood="o",
                    engine="dask" if reader == "dask" else "duckdb",
                ),
                dm.TprFprModel(0.5),
            )
        except dm.DemurError as error:
            told.append(str(error))
    assert len(told) in (0, 3), told
