"""`Rule.to_sql`: the decisions of `Rule.accept`, on engines that run and by parsing."""

import math
import sqlite3

import duckdb
import polars as pl
import pytest
import sqlglot
from sql_rules import MISSING, NAMES, RULES, expected, names_of, scored, table
from sqlglot import expressions

import demur as dm


def test_the_boundary_is_among_the_scores():
    combined = RULES[3].combine(scored()[: -len(MISSING)])
    assert (combined == RULES[3].threshold).sum() > 20
    assert ((combined > RULES[3].threshold) & (combined < RULES[3].threshold + 1e-15)).any()
    for rule in RULES:
        assert any(expected(rule)) == (rule.threshold > -math.inf) and not all(expected(rule))


@pytest.mark.parametrize("rule", RULES)
def test_duckdb_decides_the_same(rule):
    predicate = rule.to_sql(names_of(rule), dialect="duckdb")
    with duckdb.connect() as connection:
        connection.register("scored", table())
        query = f"SELECT {predicate}, NOT {predicate} FROM scored ORDER BY id"
        found = connection.execute(query).fetchall()
    assert found == [(accept, not accept) for accept in expected(rule)]


@pytest.mark.parametrize("rule", RULES)
def test_polars_decides_the_same(rule):
    predicate = rule.to_sql(names_of(rule), dialect="trino")
    query = f"SELECT {predicate} AS accept FROM self ORDER BY id"
    assert pl.from_arrow(table()).sql(query)["accept"].to_list() == expected(rule)


@pytest.mark.parametrize("rule", RULES[:2])
def test_sqlite_decides_the_same(rule):
    # SQLite promises to read only numbers of ordinary size exactly, and has no NaN.
    connection = sqlite3.connect(":memory:")
    connection.execute(f'CREATE TABLE scored (id INTEGER, "{NAMES[0]}" DOUBLE)')
    rows = list(enumerate(scored()[:, 0].tolist()))
    connection.executemany("INSERT INTO scored VALUES (?, ?)", rows)
    predicate = rule.to_sql(names_of(rule), dialect="trino")
    query = f"SELECT {predicate} FROM scored ORDER BY id"
    assert [bool(accept) for (accept,) in connection.execute(query)] == expected(rule)
    connection.close()


def test_sqlite_takes_no_text_for_infinity():
    # There CAST('Infinity' AS DOUBLE) is 0.0, a common value of a score that is not weighed.
    rule = dm.Rule((1.0, 0.0), 0.3)
    rows = [(0.1, 0.0), (0.1, 5.0), (0.1, None), (0.1, math.inf), (0.5, 0.0)]
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE scored (a DOUBLE, b DOUBLE)")
    connection.executemany("INSERT INTO scored VALUES (?, ?)", rows)
    query = f"SELECT {rule.to_sql(['a', 'b'], dialect='trino')} FROM scored ORDER BY rowid"
    found = [bool(accept) for (accept,) in connection.execute(query)]
    connection.close()
    scores = {name: [row[k] for row in rows] for k, name in enumerate("ab")}
    named = dm.Rule((1.0, 0.0), 0.3, score_names=("a", "b"))
    assert found == named.accept(scores, missing="reject").tolist() == [True] * 3 + [False] * 2


@pytest.mark.parametrize(
    "dialect", ["postgres", "bigquery", "spark", "duckdb", "snowflake", "trino"]
)
@pytest.mark.parametrize("rule", RULES)
def test_every_dialect_parses_to_the_same_decisions(rule, dialect):
    predicate = rule.to_sql(names_of(rule), dialect=dialect)
    tree = sqlglot.parse_one(predicate, read=dialect)
    named = {column.name for column in tree.find_all(expressions.Column)}
    assert named == (set() if rule.threshold == -math.inf else set(names_of(rule)))
    with duckdb.connect() as connection:
        connection.register("scored", table())
        translated = tree.sql(dialect="duckdb")
        found = connection.execute(f"SELECT {translated} FROM scored ORDER BY id").fetchall()
    assert [accept for (accept,) in found] == expected(rule)


@pytest.mark.parametrize("kind", ["DECIMAL(9, 3)", "FLOAT", "INTEGER"])
def test_columns_of_other_types_are_weighed_as_doubles(kind):
    rule = dm.Rule((0.1, 0.7), 0.1 * 3 + 0.7 * 1)
    values = [(3, 1), (3, 2), (2, 1)]
    predicate = rule.to_sql(["a", "b"])
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE scored (a {kind}, b {kind})")
        connection.executemany("INSERT INTO scored VALUES (?, ?)", values)
        found = connection.execute(f"SELECT {predicate} FROM scored").fetchall()
    assert [accept for (accept,) in found] == rule.accept(values).tolist() == [True, False, True]


def test_a_rule_that_rejects_its_boundary_says_so_in_every_form():
    rule = dm.Rule((1.0,), 0.5, tau=0.0)
    assert rule.accept([0.25, 0.5, 0.75]).tolist() == [True, False, False]
    assert rule.accept_probability([0.25, 0.5, 0.75]).tolist() == [1, 0, 0]


def test_what_cannot_be_written_is_refused():
    with pytest.raises(dm.InvalidInputError, match="dialect must be one of duckdb, spark"):
        RULES[0].to_sql(["a"], dialect="oracle")
    with pytest.raises(dm.InvalidInputError, match="not the name of a column"):
        RULES[0].to_sql(["a\0b"])
    with pytest.raises(dm.InvalidInputError, match="2 column names"):
        RULES[3].to_sql("ab")
    with pytest.raises(dm.InvalidInputError, match="random on its boundary"):
        dm.Rule((1.0,), 0.5, tau=0.25).to_sql(["a"])
