"""Spark DataFrames as sources: the answers, and the tuned rule, are those of memory.

All tests of Spark are here, so that a test process starts it once.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engines import need_java, spark_session, without_pandas_warning
from scored_tables import SETS, check_answers, table_of
from sql_rules import RULES, expected, names_of
from sql_rules import table as sql_table
from streams import DIRECTIONS, check_against_memory, random_model, random_sample

import demur as dm
from demur.sources.roles import Roles
from demur.sources.spark import SparkSource


@pytest.fixture(scope="module")
def spark():
    session = spark_session()
    yield session
    session.stop()


def source_of(spark, table, roles, **options):
    return SparkSource(spark.createDataFrame(table).repartition(3), roles, **options)


@pytest.mark.parametrize("seed", range(2))
def test_answers(spark, seed):
    rng = np.random.default_rng(seed)
    sample = random_sample(rng, scores=1 + seed % 2)
    table, roles = table_of(sample, rng)
    check_answers(source_of(spark, table, roles), sample, rng)


@pytest.mark.parametrize("seed", range(SETS or 2))
def test_tuning_is_that_of_memory(spark, seed):
    rng = np.random.default_rng(2000 + seed)
    sample = random_sample(rng, scores=1 if seed % 5 == 4 else 2)
    model, directions = random_model(rng, sample), str(rng.choice(DIRECTIONS))
    ood = str(rng.choice(["pooled", "worst"]))
    source = source_of(spark, *table_of(sample, rng))
    check_against_memory(
        sample,
        lambda: dm.tune(source, model, directions=directions, ood=ood),
        model,
        directions=directions,
        ood=ood,
    )


def test_a_task_that_dies_does_not_change_the_answer(spark, tmp_path):
    """Every pass has a partition whose first attempt kills its Python worker."""
    rng = np.random.default_rng(5)
    sample = random_sample(rng, most=300)
    table, roles = table_of(sample, rng)
    frame = spark.createDataFrame(table).repartition(4)
    deaths = str(tmp_path)

    def dying(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        if context.partitionId() == 1 and context.attemptNumber() == 0:
            open(os.path.join(deaths, str(context.taskAttemptId())), "w").close()
            os._exit(1)
        yield from batches

    shaky = without_pandas_warning(frame.mapInArrow, dying, frame.schema)
    model = dm.TprFprModel(0.3, 0.5)
    source = SparkSource(shaky, roles)
    outcome = check_against_memory(
        sample, lambda: dm.tune(source, model), model, directions=None, ood="pooled"
    )
    assert outcome == "optimal"
    # An overview, a sample, a histogram, rows and a tally: each of them lost a task.
    assert len(os.listdir(deaths)) >= 4


def test_points_by_day(spark):
    rng = np.random.default_rng(6)
    sample = random_sample(rng)
    table, roles = table_of(sample, rng, day=True)
    source = source_of(spark, table, roles)
    rule = dm.Rule((0.6, 0.8), 0.5)
    points = dm.evaluate(rule, source, by="day")
    rows = table.to_pylist()
    assert sorted(points) == sorted({row["day"] for row in rows})
    for day, point in points.items():
        there = [row for row in rows if row["day"] == day and row["loss"] is not None]
        taken = sum(
            (0.6 * row["score 0"] + 0.8 * row["score 1"] <= 0.5) * row.get("weight", 1.0)
            for row in there
        )
        total = sum(row.get("weight", 1.0) for row in there)
        assert point.tpr == pytest.approx(taken / total)


def test_rows_that_cannot_be_used(spark):
    table = pa.table({"s": [0.1, None, float("nan"), 0.3], "l": [0, 1, 0, 1]})
    roles = Roles(("s",), loss="l")
    with pytest.raises(dm.InvalidInputError, match=r"'s' is missing or NaN in 2 rows"):
        source_of(spark, table, roles).overview()
    kept = source_of(spark, table, roles, missing="drop")
    assert kept.overview().rows == 2
    with pytest.raises(dm.InvalidInputError, match="no column 'x'"):
        source_of(spark, table, Roles(("x",), loss="l"))


def test_files_and_frames(spark, tmp_path):
    rng = np.random.default_rng(8)
    sample = random_sample(rng)
    table, roles = table_of(sample, rng)
    pq.write_table(table, tmp_path / "scored.parquet")
    columns = {"loss": roles.loss, "ood": roles.ood, "weight": roles.weight}
    seen = [
        dm.open_source(str(tmp_path), roles.scores, **columns, engine="spark").overview(),
        dm.open_source(spark.createDataFrame(table), roles.scores, **columns).overview(),
    ]
    assert [one.rows for one in seen] == [table.num_rows] * 2
    assert seen[0].ood_rows == seen[1].ood_rows and (seen[0].high == seen[1].high).all()
    # Long enough that only Spark itself finds the damage in the middle.
    whole = bytearray((tmp_path / "scored.parquet").read_bytes())
    whole[4:200] = bytes(196)
    (tmp_path / "scored.parquet").write_bytes(whole)
    with pytest.raises(dm.InvalidInputError, match=r"Spark: .*scored\.parquet"):
        dm.open_source(str(tmp_path), roles.scores, **columns, engine="spark").overview()
    with pytest.raises(dm.InvalidInputError, match="there is no file"):
        dm.open_source(str(tmp_path / "none.parquet"), roles.scores, **columns, engine="spark")


@pytest.mark.parametrize("legacy", ["true", "false"])
def test_sql_decides_as_the_rule_does(spark, legacy):
    spark.conf.set("spark.sql.legacy.exponentLiteralAsDecimal.enabled", legacy)
    predicates = [rule.to_sql(names_of(rule), dialect="spark") for rule in RULES]
    frame = spark.createDataFrame(sql_table())
    found = frame.selectExpr("id", *(f"{p} AS r{i}" for i, p in enumerate(predicates))).toArrow()
    found = found.sort_by("id")
    for i, rule in enumerate(RULES):
        assert found[f"r{i}"].to_pylist() == expected(rule)


CONNECT = """
import os, sys
os.environ["PYSPARK_PYTHON"], os.environ["SPARK_LOCAL_IP"] = sys.executable, "127.0.0.1"
import numpy as np
from pyspark.sql import SparkSession
from scored_tables import check_answers, table_of
from streams import check_against_memory, random_sample
import demur as dm
from demur.sources.spark import SparkSource
spark = SparkSession.builder.remote("local[2]").getOrCreate()
rng = np.random.default_rng(0)
sample = random_sample(rng)
source = SparkSource(spark.createDataFrame(table_of(sample, rng)[0]), table_of(sample, rng)[1])
assert "connect" in type(source._native).__module__
check_answers(source, sample, rng)
model = dm.TprFprModel(0.3, 0.5)
tuned = lambda: dm.tune(source, model)
print(check_against_memory(sample, tuned, model, directions=None, ood="pooled"))
spark.stop()
"""


def test_connect():
    """A process of its own: one process has either a classic or a Connect session."""
    need_java()
    pytest.importorskip("grpc")
    path = os.pathsep.join([str(Path(__file__).parents[1] / "support"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", CONNECT],
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.stdout.split()[-1:] == ["optimal"], done.stderr
