"""Rows of databases mean what they mean in memory: PostgreSQL, SQLite, and SQL of others."""

import math
import sqlite3
from decimal import Decimal

import databases
import duckdb
import numpy as np
import pyarrow as pa
import pytest
import sqlalchemy
import sqlglot
from databases import put
from scored_tables import check_answers, table_of
from streams import informative_sample, random_sample

import demur as dm
from demur.core.bins import axis_for
from demur.core.row_draws import RowDraw, bring, repeats_key, split
from demur.guarantees import bootstrap, certify, cross_tune
from demur.sources.engines.connections import Database
from demur.sources.engines.sql import SqlSource
from demur.sources.engines.sql_rows import DIALECTS, written
from demur.sources.engines.sql_rows import place as piece_of
from demur.sources.open import Roles

MODEL = dm.TprFprModel(0.6, 0.5)


@pytest.fixture(scope="module")
def url():
    return databases.postgres_url()


@pytest.fixture
def connection():
    with databases.postgres() as connection:
        yield connection


@pytest.fixture
def sqlite():
    connection = sqlite3.connect(":memory:")
    yield connection
    connection.close()


def scored(n=300):
    rng = np.random.default_rng(4)
    wrong, ood = rng.random(n) < 0.2, rng.random(n) < 0.3
    return pa.table(
        {
            "iso": rng.normal(size=n) + 1.5 * ood,
            "conf": np.round(rng.random(n) * (1 - 0.5 * (wrong | ood)), 3),
            "wrong": wrong.astype(int),
            "right": ~wrong,
            "set": [
                ["far", "near"][i % 2] if o else ["id", " ID ", None, ""][i % 4]
                for i, o in enumerate(ood.tolist())
            ],
            "ood": ood,
            "g": (np.arange(n) % 3).astype(float),
            "w": rng.integers(1, 4, n) / 4,
        }
    )


ROLES = [
    {"loss": "wrong", "ood": "ood"},
    {"correct": "right", "ood": "set"},
    {"loss": "w", "ood": "set", "weight": "w"},
    {"label": "wrong", "prediction": "right", "ood": "ood"},
    {"label": "wrong", "prediction": "g", "loss_function": "absolute"},
]


@pytest.mark.parametrize("dialect", ["postgres", "sqlite", "duckdb"])
@pytest.mark.parametrize("roles", ROLES)
def test_every_role_means_the_same(dialect, roles, request):
    table = scored()
    if dialect == "duckdb":
        connection = duckdb.connect()
    else:
        connection = request.getfixturevalue("sqlite" if dialect == "sqlite" else "connection")
    name = put(connection, table, dialect)
    names = {"scores": ["conf", "iso"], "confidence": "conf"}
    source = dm.open_source(connection, table=name, **names, **roles)
    here = dm.Sample.from_frame(table, **names, **roles)
    model = MODEL if "ood" in roles else dm.TprFprModel(0.6)
    expected, found = dm.tune(here, model), dm.tune(source, model)
    assert (found.rule, found.point) == (expected.rule, expected.point)
    assert dm.evaluate(found.rule, source) == dm.evaluate(found.rule, here)


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
@pytest.mark.parametrize("group", ["g", "set", "right"])
def test_groups(dialect, group, request):
    table = scored().set_column(4, "set", [[["a b", "c'd"][i % 2] for i in range(300)]])
    connection = request.getfixturevalue("sqlite" if dialect == "sqlite" else "connection")
    roles = {"loss": "wrong", "ood": "ood", "group": group}
    name = put(connection, table, dialect)
    source = dm.open_source(connection, ["iso"], table=name, **roles)
    here = dm.Sample.from_frame(table, ["iso"], **roles)
    groups = source.overview().groups
    # Flags are called 0 and 1; SQLite has none.
    assert groups == here.groups

    def model(name):
        bound = dm.Bound("tpr", at_least=0.5, group=name)
        return dm.RejectionModel(objective="selective_risk", bounds=[bound])

    found, expected = dm.tune(source, model(groups[0])), dm.tune(here, model(here.groups[0]))
    assert found.point.selective_risk == expected.point.selective_risk
    assert found.rule == expected.rule


def test_numbers_of_postgres(connection):
    """Every type of number, NaN, infinities and NULL; NaN equals itself there and is largest."""
    connection.execute(
        "CREATE TABLE n (d double precision, r real, n numeric, b bigint, i smallint, t text)"
    )
    rows = [
        (0.1, 0.1, Decimal("0.1"), 2**53 + 1, 1, "a"),
        (math.inf, math.inf, Decimal("Infinity"), 2**62 + 1, 2, "b"),
        (-0.0, 1e-40, Decimal("1.00000000000000011102230246251565"), -(2**60) - 1, 3, "c"),
        (5e-324, 0.25, Decimal("123456789012345678901234567890.5"), 0, 4, "d"),
        (1.7976931348623157e308, 3.4e38, Decimal("-0.1"), 7, 5, "e"),
    ]
    with connection.cursor().copy("COPY n FROM STDIN") as copy:
        for row in rows:
            copy.write_row(row)
    for place, name in enumerate("drnbi"):
        source = dm.open_source(connection, name, table="n", loss="i", missing="drop")
        values = [float(row[place]) for row in rows]
        if name == "r":
            values = [float(np.float32(value)) for value in values]
        finite = [value for value in values if math.isfinite(value)]
        seen = source.overview()
        assert (seen.low[0], seen.high[0]) == (min(finite), max(finite))
        for threshold in finite:
            point = dm.evaluate(dm.Rule((1.0,), threshold), source)
            assert point.accepted_id == sum(value <= threshold for value in finite)
        drawn = source.sample(100, seed=0).scores[:, 0].tolist()
        assert sorted(drawn) == sorted(values)
    connection.execute(
        "INSERT INTO n (d, r, n, i) VALUES ('NaN', 'NaN', 'NaN', 1), (NULL, 0, 0, 1)"
    )
    for name, count in (("d", 2), ("r", 1), ("n", 1)):
        with pytest.raises(
            dm.InvalidInputError, match=f"'{name}' is missing or NaN in {count} row"
        ):
            dm.open_source(connection, name, table="n", loss="i").overview()
        kept = dm.open_source(connection, name, table="n", loss="i", missing="drop").overview()
        assert kept.rows == 7 - count
    # Two classes that are both NaN are missing, not equal.
    with pytest.raises(dm.InvalidInputError, match="'d, n' is missing or NaN in 2 rows"):
        dm.open_source(connection, "i", table="n", label="d", prediction="n").overview()
    with pytest.raises(dm.InvalidInputError, match="column 't' holds text, not numbers"):
        dm.open_source(connection, "t", table="n", loss="i")
    with pytest.raises(dm.InvalidInputError, match=r"'b' holds numbers, .*'t' holds text: labels"):
        dm.open_source(connection, "i", table="n", label="b", prediction="t")
    connection.execute("UPDATE n SET d = '-Infinity' WHERE i = 1")
    with pytest.raises(dm.InvalidInputError, match="'d' is -inf in 3 rows"):
        dm.open_source(connection, "d", table="n", loss="i", missing="drop").overview()


def test_whole_classes_are_compared_to_the_last_digit(connection, sqlite):
    for dialect, there in (("postgres", connection), ("sqlite", sqlite)):
        table = pa.table({"s": [0.1, 0.2], "y": [2**60, 2**60], "h": [2**60 + 1, 2**60]})
        source = dm.open_source(
            there, "s", table=put(there, table, dialect), label="y", prediction="h"
        )
        assert dm.evaluate(dm.Rule((1.0,), 1.0), source).selective_risk == 0.5


@pytest.mark.parametrize("dialect", ["postgres", "sqlite"])
def test_names_are_quoted(dialect, request):
    connection = request.getfixturevalue("sqlite" if dialect == "sqlite" else "connection")
    cursor = connection.cursor()
    columns = '"my ""score""" double precision, "SELECT" integer, "o%s;--" boolean'
    for name in ('"My Table"', '"a.b"', '"it\'s"', '"order"'):
        cursor.execute(f"CREATE TABLE {name} ({columns})")
        cursor.execute(f"INSERT INTO {name} VALUES (0.5, 0, FALSE), (0.75, 1, TRUE)")
        given = name if "." in name else name.strip('"')
        source = dm.open_source(connection, 'my "score"', table=given, loss="SELECT", ood="o%s;--")
        point = dm.evaluate(dm.Rule((1.0,), 0.6), source, by="SELECT")
        assert point[0].tpr == 1 and point[1].fpr == 0
    for bad in ("", ".", 'a"', 3, "a.b.c.d", "a\0"):
        with pytest.raises(dm.InvalidInputError, match="table must be the name of a table"):
            dm.open_source(connection, "s", table=bad, loss="l")
    with pytest.raises(dm.InvalidInputError, match="table is needed"):
        dm.open_source(connection, "s", loss="l")
    with pytest.raises(dm.InvalidInputError, match=r"the table order has no column 's'"):
        dm.open_source(connection, "s", table="order", loss="SELECT")


@pytest.fixture
def kept_table(url):
    """Yield the name of a table that other connections see as well."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute('CREATE SCHEMA "Lake"')
        put(connection, scored(), "postgres", "Lake.scores")
        connection.execute('CREATE VIEW "Lake".seen AS SELECT * FROM "Lake".scores')
        yield "Lake.scores"
        connection.execute('DROP SCHEMA "Lake" CASCADE')
        connection.execute("DROP ROLE IF EXISTS reader")


def ways(url):
    import adbc_driver_postgresql.dbapi as adbc
    import psycopg

    engine = sqlalchemy.create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    yield url
    yield engine
    for connection in (psycopg.connect(url), adbc.connect(url), engine.connect()):
        yield connection
        connection.close()
    engine.dispose()


def test_every_way_to_connect(url, kept_table):
    here = dm.tune(dm.Sample.from_frame(scored(), ["iso", "w"], loss="wrong", ood="set"), MODEL)
    for data in ways(url):
        for table in (kept_table, "Lake.seen"):
            source = dm.open_source(data, ["iso", "w"], table=table, loss="wrong", ood="set")
            assert dm.tune(source, MODEL).point == here.point
            assert source.work.engine == "postgres" and source.work.passes >= 4
            days = dm.evaluate(here.rule, source, by="ood")
            assert set(days) == {False, True}
            source.close()


def test_readers_need_no_other_right(url, kept_table):
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE ROLE reader LOGIN")
        named = url.replace("tester@", "reader@")
        with pytest.raises(dm.InvalidInputError, match="PostgreSQL: permission denied"):
            dm.open_source(named, "iso", table=kept_table, loss="wrong")
        connection.execute('GRANT USAGE ON SCHEMA "Lake" TO reader')
        connection.execute('GRANT SELECT ON ALL TABLES IN SCHEMA "Lake" TO reader')
        connection.execute("ALTER ROLE reader SET default_transaction_read_only = on")
        source = dm.open_source(named, ["iso", "w"], table=kept_table, loss="wrong", ood="set")
        here = dm.Sample.from_frame(scored(), ["iso", "w"], loss="wrong", ood="set")
        assert dm.tune(source, MODEL).point == dm.tune(here, MODEL).point
        source.close()
        connection.execute("DROP OWNED BY reader")


def test_a_url_sees_the_rows_of_one_moment(url, kept_table):
    import psycopg

    source = dm.open_source(url, "iso", table=kept_table, loss="wrong", ood="ood")
    first = source.overview()
    with psycopg.connect(url, autocommit=True) as other:
        other.execute('INSERT INTO "Lake".scores (iso, wrong, ood) VALUES (0, 1, FALSE)')
        tuned = dm.tune(source, MODEL)
        here = dm.Sample.from_frame(scored(), "iso", loss="wrong", ood="ood")
        assert tuned.point == dm.tune(here, MODEL).point and first.rows == 300
        source.close()
        # A connection that sees every change is told from one that does not.
        theirs = psycopg.connect(url, autocommit=True)
        changed = dm.open_source(theirs, "iso", table=kept_table, loss="wrong", ood="ood")
        assert changed.overview().rows == 301
        other.execute('INSERT INTO "Lake".scores (iso, wrong, ood) VALUES (0, 1, FALSE)')
        with pytest.raises(dm.InvalidInputError, match="the data changed while they were read"):
            dm.tune(changed, MODEL)
        theirs.close()


def test_transactions_of_others_are_left_alone(connection):
    """Rows that are not committed count, and a query that fails ends nothing."""
    connection.execute("CREATE TEMP TABLE mine (s double precision, l integer)")
    connection.execute("INSERT INTO mine VALUES (0.5, 0), (0.75, 1)")
    assert dm.open_source(connection, "s", table="mine", loss="l").overview().rows == 2
    for table, words in (("nowhere", "does not exist"), ("pg_class", "has no column 's'")):
        with pytest.raises(dm.InvalidInputError, match=words):
            dm.open_source(connection, "s", table=table, loss="l")
    assert connection.execute("SELECT count(*) FROM mine").fetchone() == (2,)


def test_failures_are_told_in_one_line(url, connection, tmp_path):
    connection.execute("CREATE TABLE far (s numeric, l integer)")
    connection.execute("INSERT INTO far VALUES (1e400, 0)")
    with pytest.raises(dm.InvalidInputError, match=r"PostgreSQL: .*out of range"):
        dm.open_source(connection, "s", table="far", loss="l").overview()
    connection.execute("SET extra_float_digits = 0")
    with pytest.raises(dm.InvalidInputError, match="SET extra_float_digits = 1"):
        dm.open_source(connection, "s", table="far", loss="l")
    connection.execute("SET extra_float_digits = 1")
    closed = sqlite3.connect(":memory:")
    closed.close()
    with pytest.raises(dm.InvalidInputError, match="SQLite: Cannot operate on a closed"):
        dm.open_source(closed, "s", table="t", loss="l")
    (tmp_path / "no.db").write_bytes(b"no database at all" * 100)
    cases = {
        "postgresql://nobody@/none?host=/nowhere": "PostgreSQL: ",
        "postgresql+nodriver://host/x": "the URL ",
        f"sqlite:///{tmp_path}/gone.db": "there is no file",
        f"sqlite:///{tmp_path}/no.db": "SQLite: file is not a database",
        "sqlite://": "there is no file",
        "trino://host/catalog": "load plugin",
    }
    for data, words in cases.items():
        with pytest.raises(dm.DemurError, match=words) as caught:
            dm.open_source(data, "s", table="t", loss="l")
        assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == [tmp_path / "no.db"]
    with pytest.raises(dm.DemurError) as caught:
        dm.open_source("postgresql+no://me:secret@host/x", "s", table="t", loss="l")
    assert "secret" not in str(caught.value)
    with pytest.raises(dm.InvalidInputError, match="the URL names the table 'a'"):
        dm.open_source("sqlite:///x.db#a", "s", table="b", loss="l")
    with pytest.raises(dm.InvalidInputError, match="table is about databases"):
        dm.open_source("x.parquet", "s", table="b", loss="l")


def test_tables_that_are_not_there(url, kept_table, tmp_path):
    """What was asked, what there is, what to change; by every way to connect."""
    wanted = {
        "Lake.score": "table 'Lake.score' does not exist there.*did you mean 'Lake.scores'",
        "scores": "did you mean 'Lake.scores'.*tables and views are 'Lake.scores', 'Lake.seen'",
        "LAKE.SCORES": "did you mean 'Lake.scores'",
        "SELECT * FROM x": "a query cannot be given as the table: make a view of it",
    }
    for data in ways(url):
        for table, words in wanted.items():
            # ADBC is in a transaction that the failure ended, and tells nothing more.
            if type(data).__module__.startswith("adbc"):
                words = "does not exist.*; (give the name of a table or view|a query cannot)"
            with pytest.raises(dm.InvalidInputError, match=words) as caught:
                dm.open_source(data, "iso", table=table, loss="wrong")
            assert "\n" not in str(caught.value)
            if type(data).__module__.startswith("adbc"):
                data.rollback()
    with sqlite3.connect(tmp_path / "a.db") as other:
        put(other, scored(), "sqlite", "scores")
        other.execute("CREATE TABLE none (iso REAL, wrong INTEGER)")
    other.close()
    place = f"sqlite:///{tmp_path}/a.db"
    with pytest.raises(dm.InvalidInputError, match=r"did you mean 'scores'\? .*'none', 'scores'"):
        dm.open_source(place, "iso", table="score", loss="wrong")
    with pytest.raises(dm.InvalidInputError, match="the table none has no rows"):
        dm.open_source(place, "iso", table="none", loss="wrong").overview()
    with pytest.raises(dm.InvalidInputError, match="not one of 'mysql', which demur does not"):
        dm.open_source("mysql://me@host/db", "iso", table="scores", loss="wrong")


def test_a_wrong_password_is_told_and_kept():
    right = databases.postgres_url("right")
    for given, words in {":wrong": "password authentication failed", "": "no password"}.items():
        wrong = right.replace("tester@", f"tester{given}@")
        with pytest.raises(dm.InvalidInputError, match=rf"PostgreSQL: .*{words}") as caught:
            dm.open_source(wrong, "s", table="t", loss="l")
        assert ":wrong" not in str(caught.value)
    with pytest.raises(dm.InvalidInputError, match="table 't' does not exist there"):
        dm.open_source(right.replace("tester@", "tester:right@"), "s", table="t", loss="l")


def test_a_view_that_changes_is_refused(connection, sqlite):
    """Its rows are others in every pass."""
    for there, dialect, chance in (
        (connection, "postgres", "random()"),
        (sqlite, "sqlite", "(random() / 9223372036854775808.0)"),
    ):
        name = put(there, scored(), dialect)
        query = f"CREATE VIEW drawn AS SELECT iso * {chance} AS iso, w, wrong, ood FROM {name}"
        there.cursor().execute(query)
        with pytest.raises(dm.InvalidInputError, match=r"the data changed while|no longer"):
            source = dm.open_source(there, ["iso", "w"], table="drawn", loss="wrong", ood="ood")
            dm.tune(source, MODEL)


def test_other_databases_are_refused():
    class Connection:
        def cursor(self):
            raise AssertionError("never asked")

    with pytest.raises(dm.InvalidInputError, match="demur knows PostgreSQL, SQLite"):
        dm.open_source(Connection(), "s", table="t", loss="l")
    with pytest.raises(dm.InvalidInputError, match=r"not asynchronous|demur knows"):
        engine = sqlalchemy.create_mock_engine("mysql://", lambda *_: None)
        dm.open_source(engine, "s", table="t", loss="l")


def test_values_of_sqlite_have_types_of_their_own(sqlite):
    sqlite.execute("CREATE TABLE t (s REAL, l INTEGER, y, o)")
    rows = [(0.5, 0, 1, "id"), (2**60 + 1, 1, 2, "far"), (float("inf"), 0, 1, None)]
    sqlite.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", rows)
    seen = dm.open_source(sqlite, "s", table="t", loss="l", ood="o").overview()
    assert seen.high[0] == float(2**60 + 1) and seen.sets == ("far",) and seen.id_rows == 2
    # Stored as text, which a cast would take for 0.
    sqlite.execute("INSERT INTO t VALUES ('abc', 0, 'x', '')")
    with pytest.raises(dm.InvalidInputError, match="'s' holds real and text, not numbers"):
        dm.open_source(sqlite, "s", table="t", loss="l")
    with pytest.raises(dm.InvalidInputError, match="'y' holds integer and text"):
        dm.open_source(sqlite, "l", table="t", label="y", prediction="l")


def test_adbc_of_sqlite(tmp_path):
    import adbc_driver_sqlite.dbapi as adbc

    path = tmp_path / "a.db"
    with sqlite3.connect(path) as other:
        put(other, scored(), "sqlite", "scores")
    other.close()
    here = dm.tune(dm.Sample.from_frame(scored(), "iso", loss="wrong", ood="set"), MODEL)
    with adbc.connect(str(path)) as connection:
        source = dm.open_source(connection, "iso", table="scores", loss="wrong", ood="set")
        assert dm.tune(source, MODEL).point == here.point


def test_rules_decide_in_postgres_as_here(connection):
    """`Rule.to_sql` on the real server: next to the boundary, NaN, infinities and NULL."""
    rng = np.random.default_rng(3)
    scores = np.round(rng.normal(size=(200, 2)), 1)
    scores[:3, 0], scores[3:6, 1] = [np.nan, np.inf, -np.inf], [np.nan, np.inf, -np.inf]
    rule = dm.Rule(
        (0.6, 0.8), float(0.6 * scores[9, 0] + 0.8 * scores[9, 1]), score_names=("a", "b")
    )
    table = pa.table({"n": np.arange(200), "a": scores[:, 0], "b": scores[:, 1]})
    for kind in ("double precision", "numeric"):
        name = put(connection, table, "postgres", types={"a": kind, "b": kind})
        query = f"SELECT {rule.to_sql(dialect='postgres')} FROM {name} ORDER BY n"
        found = [row[0] for row in connection.execute(query).fetchall()]
        assert found == rule.accept(scores, missing="reject").tolist()
    connection.execute(f"UPDATE {name} SET a = NULL")
    assert not any(row[0] for row in connection.execute(query).fetchall())


class Translated(Database):
    """A database that speaks another dialect: its SQL is parsed, and run by DuckDB."""

    def columns(self, query):
        return super().columns(self._run(query))

    def select(self, query):
        return super().select(self._run(query))

    def _run(self, query):
        (tree,) = sqlglot.parse(query, read=self.dialect)
        text = tree.sql("duckdb")
        return text.replace("SYSTEM$TYPEOF", "TYPEOF").replace(
            "UNIFORM(CAST(0 AS DOUBLE), CAST(1 AS DOUBLE), RANDOM())", "RANDOM()"
        )


@pytest.mark.parametrize("dialect", ["snowflake", "bigquery", "trino"])
def test_dialects_that_have_no_server_here(dialect):
    """What is written for them is parsed as theirs, translated, and counts the same rows."""
    rng = np.random.default_rng(0)
    with duckdb.connect() as connection:
        for scores in (1, 2):
            sample = random_sample(rng, scores=scores)
            table, roles = table_of(sample, rng)
            name = (
                put(connection, table, "duckdb").upper()
                if dialect == "snowflake"
                else put(connection, table, "duckdb")
            )
            source = SqlSource(Translated(connection, dialect), name, roles)
            check_answers(source, sample, rng)
        table, roles = table_of(informative_sample(rng, 400), rng)
        source = SqlSource(Translated(connection, dialect), put(connection, table, "duckdb"), roles)
        names = {"loss": roles.loss, "ood": roles.ood}
        here = dm.tune(dm.Sample.from_frame(table, roles.scores, **names), MODEL)
        assert dm.tune(source, MODEL).point == here.point
    assert set(DIALECTS) == {"postgres", "sqlite", "duckdb", "snowflake", "bigquery", "trino"}


@pytest.mark.parametrize("dialect", ["snowflake", "bigquery", "trino"])
def test_statements_of_every_command_in_dialects_without_a_server(dialect):
    """Draws, single sets, groups, keys, boxes, grids: all are parsed, and answer as in memory."""
    rng = np.random.default_rng(3)
    n = 300
    foreign = rng.random(n) < 0.4
    score = np.round(rng.normal(size=(n, 2)) + foreign[:, None], 1)
    table = pa.table(
        {
            "a": score[:, 0],
            "b": score[:, 1],
            "loss": (rng.random(n) < 0.3).astype(int),
            "set": np.where(foreign, np.where(rng.random(n) < 0.5, "far", "near"), "id"),
            "group": np.where(rng.random(n) < 0.5, "g", "h"),
            "day": np.where(np.arange(n) % 2, "mon", "tue"),
            "key": np.arange(n),
        }
    )
    columns = {"loss": "loss", "ood": "set", "group": "group"}
    sample = dm.Sample.from_frame(table, ["a", "b"], **columns)
    model = dm.TprFprModel(0.6, 0.5)
    with duckdb.connect() as connection:
        name = put(connection, table, "duckdb")
        there = [
            SqlSource(Translated(connection, one), name, Roles(("a", "b"), **columns, key="key"))
            for one in (dialect, "duckdb")
        ]
        here = dm.open_source(table, ["a", "b"], **columns, key="key")
        rule = dm.Rule((0.6, 0.8), 0.5)
        for options in ({}, {"shape": "box"}, {"search": dm.Grid(12)}, {"ood": "worst"}):
            expected = dm.tune(sample, model, **options).point
            assert dm.tune(there[0], model, **options).point == expected
        by_day = [dm.evaluate(rule, source, by="day") for source in (here, there[0])]
        assert by_day[0] == by_day[1] and set(by_day[1]) == {"mon", "tue"}
        promised = [certify(rule, rows, model=model) for rows in (sample, there[0])]
        assert promised[0].point == promised[1].point
        assert (
            there[0].for_ood("far").overview().ood_rows == here.for_ood("far").overview().ood_rows
        )
        assert not repeats_key(there[0], "key")
        found = [cross_tune(source, model, folds=2, rng=1) for source in (here, *there)]
        assert found[0].held_out == found[1].held_out == found[2].held_out
        found = [bootstrap(source, model, replicates=1, rng=1) for source in (here, there[0])]
        assert found[0].measures["tpr"].in_bag == found[1].measures["tpr"].in_bag
        # A fold of what is not held out, as estimates of a held-out part need it.
        parts = [split(source, 0.5)[0].drawn(RowDraw.fold(0, 2, 3)) for source in (here, there[0])]
        assert dm.tune(parts[0], model).point == dm.tune(parts[1], model).point
        drawn = [bring(source, 100) for source in (here, there[0])]
        assert sorted(drawn[0].id_scores.tolist()) == sorted(drawn[1].id_scores.tolist())


def test_many_marked_cells_are_asked_for_in_parts(monkeypatch, sqlite):
    monkeypatch.setattr("demur.sources.engines.sql._KEYS", 3)
    rng = np.random.default_rng(5)
    sample = random_sample(rng)
    table, roles = table_of(sample, rng)
    source = SqlSource(Database.of(sqlite), put(sqlite, table, "sqlite"), roles)
    check_answers(source, sample, rng)


def test_thousands_of_pieces_are_found_in_sqlite():
    """SQLite's parser takes some CASEs within each other only, and queries are nested, too."""
    rng = np.random.default_rng(8)
    atoms = np.round(rng.normal(size=900), 3)
    axis = axis_for(np.repeat(atoms, 3), 4096, atoms=1000)
    assert len(axis.start) > 1000
    scores = np.concatenate([atoms, rng.normal(size=900), np.nextafter(atoms, np.inf)])
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (k INTEGER, v REAL)")
    connection.executemany("INSERT INTO t VALUES (?, ?)", enumerate(scores.tolist()))
    key, inner = piece_of(axis, "v"), "t"
    for _ in range(9):
        key, inner = f"CASE WHEN v IS NULL THEN 0 ELSE ({key}) END", f"(SELECT * FROM {inner}) AS r"
    query = written(f"SELECT {key} AS found FROM {inner} ORDER BY k", "sqlite")
    found = connection.execute(query).fetchall()
    np.testing.assert_array_equal(np.ravel(found), axis.bin(scores))
    connection.close()
