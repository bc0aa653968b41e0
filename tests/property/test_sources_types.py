"""Every type of column on every engine: the same doubles, or a refusal that names the column."""

import sqlite3
from decimal import Decimal

import dask.dataframe as dd
import databases
import duckdb
import engines
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import demur as dm
from demur.core.columns import sample_from_columns
from demur.core.row_draws import split
from demur.sources.tables import read_table

# Of pandas, about what Dask calls.
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword")

N = 24
X = np.random.default_rng(0).normal(size=N)
GAPS = (3, 10)


def gaps(items, gap):
    return [gap if row in GAPS else item for row, item in enumerate(items)]


def decimals(digits, kind):
    return pa.array([Decimal(f"{x:.{digits}f}") for x in X], kind)


NUMBERS = {
    "double": pa.array(X),
    "single": pa.array(X.astype(np.float32)),
    "half": pa.array(X.astype(np.float16)),
    "infinite": pa.array(gaps(X, np.inf)),
    "byte": pa.array((40 * X).astype(np.int8)),
    "whole": pa.array([2**53 + 1 + 2 * i for i in range(N - 2)] + [2**63 - 1, -(2**63)]),
    "unsigned": pa.array([2**64 - 1 - 2048 * i for i in range(N)], pa.uint64()),
    "flag": pa.array(X > 0),
    "decimal": decimals(6, pa.decimal128(18, 6)),
    "decimal of 32 bits": decimals(6, pa.decimal32(9, 6)),
    "decimal of 64 bits": decimals(6, pa.decimal64(18, 6)),
    "decimal of 256 bits": decimals(6, pa.decimal256(18, 6)),
    "38 digits": decimals(30, pa.decimal128(38, 30)),
    "60 digits": decimals(40, pa.decimal256(60, 40)),
    "negative scale": pa.array([100 * Decimal(int(1000 * x)) for x in X], pa.decimal128(10, -2)),
    "dictionary": pa.array(np.round(X, 1)).dictionary_encode(),
    "whole dictionary": pa.array((10 * X).astype(int)).dictionary_encode(),
}
LACKING = {
    "nan": pa.array(gaps(X, np.nan)),
    "null": pa.array(gaps(X, None)),
    "half nan": pa.array(np.array(gaps(X, np.nan)).astype(np.float16)),
    "whole null": pa.array(gaps(range(N), None), pa.int64()),
    "unsigned null": pa.array(gaps(range(N), None), pa.uint64()),
    "flag null": pa.array(gaps((X > 0).tolist(), None)),
    "decimal null": pa.array(gaps(decimals(6, None).to_pylist(), None), pa.decimal128(18, 6)),
    "dictionary null": pa.array(gaps(np.round(X, 1), None)).dictionary_encode(),
}
NO_NUMBERS = {
    "duration": pa.array(range(N), pa.duration("us")),
    "instant": pa.array(range(N), pa.timestamp("us")),
    "instant of a zone": pa.array(range(N), pa.timestamp("us", "UTC")),
    "date": pa.array(range(N), pa.date32()),
    "time": pa.array(range(N), pa.time64("us")),
    "text": pa.array([str(x) for x in X]),
    "named": pa.array([str(x) for x in X]).dictionary_encode(),
    "bytes": pa.array([b"1"] * N),
    "list": pa.array([[x] for x in X]),
    "pair": pa.array([[x, x] for x in X]),
    "struct": pa.array([{"a": x} for x in X]),
}
KINDS = NUMBERS | LACKING | NO_NUMBERS
WRONG = np.arange(N) % 2


def table_of(column):
    return pa.table({"s": column, "l": WRONG, "t": np.arange(N) / 4})


def meant(kind):
    return np.array(
        [np.nan if value is None else float(value) for value in KINDS[kind].to_pylist()]
    )


def held(frame, roles):
    return dm.Sample.from_frame(frame, [roles["scores"]], **_others(roles))


def _others(roles):
    return {role: name for role, name in roles.items() if role != "scores"}


def source(data, roles, **options):
    return dm.open_source(data, roles["scores"], **_others(roles), **options)


def nullable(table):
    return table.to_pandas().convert_dtypes()


def with_arrow(table):
    return table.to_pandas(types_mapper=pd.ArrowDtype)


def parted(frame):
    return dd.from_pandas(frame, npartitions=2, sort=False)


class Ways:
    """How a table can become rows that demur reads."""

    def __init__(self, folder):
        self._folder = folder

    def file(self, table):
        path = str(self._folder / "a.parquet")
        pq.write_table(table, path)
        return path

    def read(self, way, table, roles):
        return getattr(self, way.replace(" ", "_"))(table, roles)

    def memory_of_pyarrow(self, table, roles):
        return held(table, roles)

    def memory_of_pandas(self, table, roles):
        return held(table.to_pandas(), roles)

    def memory_of_nullable_pandas(self, table, roles):
        return held(nullable(table), roles)

    def memory_of_pandas_with_Arrow(self, table, roles):
        return held(with_arrow(table), roles)

    def memory_of_Polars(self, table, roles):
        return held(pl.from_arrow(table), roles)

    def memory_of_a_file(self, table, roles):
        columns = read_table(self.file(table), list(roles.values()))
        return sample_from_columns(columns, [roles["scores"]], **_others(roles))

    def pyarrow(self, table, roles):
        return source(table, roles)

    def pandas(self, table, roles):
        return source(table.to_pandas(), roles)

    def nullable_pandas(self, table, roles):
        return source(nullable(table), roles)

    def pandas_with_Arrow(self, table, roles):
        return source(with_arrow(table), roles)

    def Polars(self, table, roles):
        return source(pl.from_arrow(table), roles)

    def lazy_Polars(self, table, roles):
        return source(pl.from_arrow(table).lazy(), roles)

    def Polars_of_a_file(self, table, roles):
        return source(pl.scan_parquet(self.file(table)), roles)

    def DuckDB_of_a_file(self, table, roles):
        return source(self.file(table), roles)

    def relation(self, table, roles):
        return source(duckdb.from_arrow(table), roles)

    def Dask_of_a_file(self, table, roles):
        return source(self.file(table), roles, engine="dask")

    def Dask(self, table, roles):
        return source(parted(table.to_pandas()), roles)

    def nullable_Dask(self, table, roles):
        return source(parted(nullable(table)), roles)

    def Dask_with_Arrow(self, table, roles):
        return source(parted(with_arrow(table)), roles)

    def DuckDB_table(self, table, roles):
        connection = duckdb.connect()
        connection.register("given", table)
        connection.execute("CREATE TABLE stored AS SELECT * FROM given")
        return source(connection, roles, table="stored")

    def SQLite(self, table, roles):
        connection = sqlite3.connect(":memory:")
        return source(connection, roles, table=databases.put(connection, _plain(table), "sqlite"))

    def PostgreSQL(self, table, roles):
        kind = str(_plain(table).schema.field("s").type)
        types = {"s": _POSTGRES[kind]} if kind in _POSTGRES else None
        name = databases.put(self.postgres, _plain(table), "postgres", types=types)
        return source(self.postgres, roles, table=name)

    def Spark_of_a_file(self, table, roles):
        return source(self.file(table), roles, engine="spark")


def _plain(table):
    """Return a table without dictionaries, which databases do not have."""
    if pa.types.is_dictionary(table["s"].type):
        return table.set_column(0, "s", table["s"].combine_chunks().dictionary_decode())
    return table


_POSTGRES = {
    "halffloat": "real",
    "duration[us]": "interval",
    "timestamp[us]": "timestamp",
    "timestamp[us, tz=UTC]": "timestamptz",
    "date32[day]": "date",
    "time64[us]": "time",
    "binary": "bytea",
    "list<item: double>": "double precision[]",
}
_WIDE = {"decimal of 256 bits", "60 digits", "negative scale"}
_IN_NO_FILE = {"negative scale"}
HOLES = {
    "memory of Polars": _WIDE,
    "Polars": _WIDE,
    "lazy Polars": _WIDE,
    "relation": {"half", "half nan"} | _WIDE,
    "DuckDB table": {"half", "half nan"} | _WIDE,
    "memory of a file": _IN_NO_FILE,
    "Polars of a file": _IN_NO_FILE,
    "DuckDB of a file": _IN_NO_FILE,
    "Dask of a file": _IN_NO_FILE,
    "SQLite": {"unsigned", "duration", "time", "list", "pair", "struct"},
    "PostgreSQL": {"struct", "nothing"},
}
"""What the library itself does not take, before any row comes to demur."""
_AS_TEXT = {kind for kind in KINDS if "decimal" in kind or "digits" in kind}
REFUSED = {
    "DuckDB of a file": {"60 digits": "decimals of 60 digits, of which DuckDB keeps 38"},
    "Polars of a file": {"60 digits": "precision must be"},
    # Dask makes text of what pandas holds as objects.
    "Dask": dict.fromkeys(_AS_TEXT | {"flag null", "negative scale"}, "holds String, not numbers"),
    "nullable Dask": dict.fromkeys(_AS_TEXT | {"negative scale"}, "holds String, not numbers"),
}
"""Numbers that an engine cannot hold, and what is said of them."""
WAYS = [
    name.replace("_", " ")
    for name in vars(Ways)
    if not name.startswith("_") and name not in ("file", "read", "Spark_of_a_file")
]
SCORES = {"scores": "s", "loss": "l"}


@pytest.fixture
def ways(tmp_path):
    return Ways(tmp_path)


def cause(way, kind):
    """Return why a column cannot be a score; None if it can."""
    told = REFUSED.get(way, {}).get(kind)
    if told is not None or kind in NUMBERS:
        return told
    if kind in LACKING:
        return r"column 's'(, row 3 is nan| is missing or NaN in 2 rows)"
    return r"column 's'.* holds .*(not numbers|not one value a row)"


def check_scores(ways, way, kind):
    told = cause(way, kind)
    if told is not None:
        with pytest.raises(dm.InvalidInputError, match=told):
            dm.evaluate(dm.Rule((1.0,), 0.0), ways.read(way, table_of(KINDS[kind]), SCORES))
        return
    rows, values = ways.read(way, table_of(KINDS[kind]), SCORES), meant(kind)
    for threshold in np.sort(values[np.isfinite(values)])[[2, 11]]:
        # Sources count it in one pass, which looks at no value twice.
        point = dm.evaluate(dm.Rule((1.0,), threshold), rows)
        assert point.accepted_id == (values <= threshold).sum(), kind
        assert point.accepted_loss == WRONG[values <= threshold].sum(), kind
    read = rows.id_scores if isinstance(rows, dm.Sample) else rows.sample(1000, seed=0).scores
    assert sorted(read[:, 0].tolist()) == sorted(values.tolist()), kind


@pytest.mark.parametrize("way", WAYS)
def test_scores_of_every_type(way, ways):
    if way == "PostgreSQL":
        databases.postgres_url()
    with databases.postgres() if way == "PostgreSQL" else duckdb.connect() as connection:
        ways.postgres = connection
        for kind in KINDS:
            if kind not in HOLES.get(way, ()):
                check_scores(ways, way, kind)


def test_scores_of_every_type_by_spark(ways):
    engines.need_java()
    engines.spark_session()
    for kind in ("whole", "unsigned", "decimal", "38 digits", "flag", "dictionary", "flag null"):
        check_scores(ways, "Spark of a file", kind)
    for kind in ("duration", "instant", "text", "list"):
        check_scores(ways, "Spark of a file", kind)
    for kind in ("half", "60 digits"):
        with pytest.raises(dm.InvalidInputError, match="which Spark does not read: write it as"):
            ways.read("Spark of a file", table_of(KINDS[kind]), SCORES)


FLAGS = {
    "flag": pa.array(X > 0),
    "whole": pa.array((X > 0).astype(np.int64)),
    "double": pa.array((X > 0).astype(float)),
    "decimal": pa.array([Decimal(int(x > 0)) for x in X], pa.decimal128(5, 2)),
    "dictionary": pa.array((X > 0).astype(np.int64)).dictionary_encode(),
    "named": pa.array(np.where(X > 0, "ood", "ID").tolist()).dictionary_encode(),
    "unnamed": pa.array(gaps(np.where(X > 0, "far", "ID").tolist(), None)),
}
NO_FLAGS = {
    "flag null": pa.array(gaps((X > 0).tolist(), None)),
    "whole null": pa.array(gaps((X > 0).astype(int).tolist(), None)),
    "decimal null": pa.array(gaps([Decimal(int(x > 0)) for x in X], None), pa.decimal128(5, 2)),
    "dictionary null": pa.array(gaps((X > 0).astype(int).tolist(), None)).dictionary_encode(),
    "nan": pa.array(gaps((X > 0).astype(float), np.nan)),
    "text": pa.array(gaps([str(x > 0) for x in X], None)),
    "digits": pa.array(gaps([str(int(x > 0)) for x in X], None)),
    # Of these Dask makes text that says nothing, or only yes.
    "yes": pa.array(gaps([Decimal("1.00")] * N, None), pa.decimal128(5, 2)),
    "yes as text": pa.array(["1.0" if x > 0 else None for x in X]),
    "flag nothing": pa.nulls(N, pa.bool_()),
    "whole nothing": pa.nulls(N, pa.int64()),
    "nan nothing": pa.array([np.nan] * N),
    "named nothing": pa.nulls(N, pa.string()),
    "blank": pa.array([" ", "", None] * (N // 3)),
    "nothing": pa.nulls(N),
    "half": pa.array(np.where(X > 0, 0.5, 0.0)),
    "duration": pa.array(gaps(range(N), None), pa.duration("us")),
    "bytes": pa.array(gaps([b"id"] * N, None)),
    "list": pa.array(gaps([[x] for x in X], None)),
}
_TOLD = "row 3 is nan|missing flag|as text, which|(be|not) 0 or 1|neither flags|not one value"
_SILENT = f"column 's' is empty in all {N} rows, so it says of none whether it is OOD"


@pytest.mark.parametrize("way", WAYS)
def test_flags_of_every_type(way, ways):
    """A missing flag, or one that is written as text, never makes a row ID or OOD."""
    roles = {"scores": "t", "loss": "l", "ood": "s"}
    objects = way in ("Dask", "nullable Dask", "pandas", "nullable pandas", "Dask of a file")
    with databases.postgres() if way == "PostgreSQL" else duckdb.connect() as connection:
        ways.postgres = connection
        for kind, column in FLAGS.items():
            if kind == "decimal" and way in ("Dask", "nullable Dask"):
                continue
            rows = ways.read(way, table_of(column), roles)
            point = dm.evaluate(dm.Rule((1.0,), 2.0, score_names=("t",)), rows)
            seen = rows if isinstance(rows, dm.Sample) else rows.overview()
            foreign = X > 0
            foreign[list(GAPS)] &= kind != "unnamed"
            count = seen.n_ood if isinstance(seen, dm.Sample) else sum(seen.ood_rows)
            assert count == foreign.sum(), kind
            assert point.accepted_id == (~foreign[:9]).sum()
        for kind, column in NO_FLAGS.items():
            if kind in HOLES.get(way, ()) or (objects and kind in ("bytes", "list")):
                continue
            told = _SILENT if kind == "blank" or "nothing" in kind else _TOLD
            with pytest.raises(dm.InvalidInputError, match=told):
                dm.evaluate(dm.Rule((1.0,), 2.0), ways.read(way, table_of(column), roles))


def test_flags_of_every_type_by_spark(ways):
    engines.need_java()
    engines.spark_session()
    roles = {"scores": "t", "loss": "l", "ood": "s"}
    for kind in ("flag nothing", "named nothing", "nothing", "yes as text", "flag null"):
        told = _SILENT if "nothing" in kind else _TOLD
        with pytest.raises(dm.InvalidInputError, match=told):
            ways.read("Spark of a file", table_of(NO_FLAGS[kind]), roles).overview()


def test_parts_of_unnamed_rows_are_rows():
    """What says nothing of the rows that a draw leaves may say something of others."""
    names = pa.array(["far"] + [None] * 99)
    table = pa.table({"t": np.arange(100) / 7, "l": np.arange(100) % 2, "s": names})
    for data in (
        table,
        pl.from_arrow(table).lazy(),
        duckdb.from_arrow(table),
        parted(table.to_pandas()),
    ):
        rows = dm.open_source(data, "t", loss="l", ood="s")
        parts = split(rows, 0.5)
        assert sorted(sum(part.overview().ood_rows) for part in parts) == [0, 1]
        assert sum(part.overview().rows for part in parts) == 100


def test_numbers_too_large_for_whole_ones():
    """Spark has no floor for them; infinite losses are refused as everywhere."""
    engines.need_java()
    session = engines.spark_session()
    for loss, told in (([1e300, 0.5], None), ([np.inf, 0.5], "negative or infinite in 1 rows")):
        table = pa.table({"s": [0.25, 0.75], "l": loss, "g": [1e300, 1.0]})
        frame = engines.without_pandas_warning(session.createDataFrame, table)
        for data in (frame, table):
            if told is None:
                rows = dm.open_source(data, "s", loss="l")
                assert dm.evaluate(dm.Rule((1.0,), 0.5), rows).accepted_loss == 1e300
                with pytest.raises(dm.InvalidInputError, match="a number that is not whole in 1"):
                    dm.open_source(data, "s", loss="s", group="g").overview()
            else:
                with pytest.raises(dm.InvalidInputError, match=told):
                    dm.open_source(data, "s", loss="l").overview()


def test_names_within_columns_are_no_columns(tmp_path):
    """A list in Parquet has a part that is called "element", as a score may be."""
    path = tmp_path / "a.parquet"
    table = pa.table({"v": [[1.0], [2.0]], "element": [0.25, 0.75], "l": [0, 1]})
    pq.write_table(table, path)
    assert dm.open_source(path, "element", loss="l").overview().high.tolist() == [0.75]
    pq.write_table(table.drop_columns(["element"]), path)
    with pytest.raises(dm.InvalidInputError, match="the columns are 'v', 'l'"):
        dm.open_source(path, "element", loss="l")


RULE = dm.Rule((1.0,), 0.125, score_names=("s",))


def decided(kind):
    values = meant(kind)
    return (values <= RULE.threshold).tolist()


@pytest.mark.parametrize("kind", [k for k in NUMBERS | LACKING if k not in _IN_NO_FILE])
def test_sql_decides_on_every_type(kind, tmp_path):
    """`to_sql` on files by DuckDB and on tables by PostgreSQL, `accept` on frames."""
    table = table_of(KINDS[kind])
    accept = RULE.to_sql(dialect="duckdb")
    path = tmp_path / "a.parquet"
    pq.write_table(table, path)
    if kind != "60 digits":
        query = f"SELECT t, {accept} AS a FROM '{path}' ORDER BY t"
        assert [row[1] for row in duckdb.sql(query).fetchall()] == decided(kind)
    frames = [table, table.to_pandas(), nullable(table), with_arrow(table)]
    if kind not in _WIDE:
        frames.append(pl.from_arrow(table))
        query = f"SELECT {RULE.to_sql(dialect='trino')} AS a FROM self"
        assert pl.from_arrow(table).sql(query)["a"].to_list() == decided(kind)
    for frame in frames:
        assert RULE.accept(frame, missing="reject").tolist() == decided(kind)
    if "flag" in kind:
        # PostgreSQL casts no flags to doubles, and says so.
        return
    with databases.postgres() as connection:
        stored = _plain(table)
        types = {"s": "real"} if "half" in kind else None
        name = databases.put(connection, stored, "postgres", types=types)
        query = f"SELECT {RULE.to_sql(dialect='postgres')} FROM {name} ORDER BY t"
        assert [row[0] for row in connection.execute(query).fetchall()] == decided(kind)


def test_spark_decides_on_every_type(tmp_path):
    engines.need_java()
    session = engines.spark_session()
    for kind in ("nan", "null", "infinite", "whole", "unsigned", "decimal", "38 digits", "flag"):
        path = str(tmp_path / f"{kind}.parquet")
        pq.write_table(table_of(KINDS[kind]), path)
        accept = RULE.to_sql(dialect="spark")
        rows = session.read.parquet(path).orderBy("t").selectExpr(f"{accept} AS a").collect()
        assert [row["a"] for row in rows] == decided(kind), kind
