"""What only Spark can do: lose a task, read files, decide in SQL, and be asked from afar."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from engines import need_java, spark_session, without_pandas_warning
from scored_tables import table_of
from sql_rules import RULES, expected, names_of
from sql_rules import table as sql_table
from streams import check_against_memory, random_sample

import demur as dm
from demur.sources.engines.spark import SparkSource


@pytest.fixture(scope="module")
def spark():
    return spark_session()


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


def test_connect():
    """A process of its own: one process has either a classic or a Connect session."""
    need_java()
    pytest.importorskip("grpc")
    tests = [
        "test_answers[1]",
        "test_tuning_is_that_of_memory[0]",
        "test_points_by_day",
        "test_rows_that_cannot_be_used",
    ]
    module = Path(__file__).with_name("test_sources.py")
    done = subprocess.run(
        # Warnings of the client are none of demur's.
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-W", "ignore"]
        + [f"{module}::TestSpark::{test}" for test in tests],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "SPARK_REMOTE": "local[2]"},
        capture_output=True,
        text=True,
    )
    assert f"{len(tests)} passed" in done.stdout, done.stdout + done.stderr


def test_small_partitions_share_tasks():
    rng = np.random.default_rng(12)
    sample = random_sample(rng, most=300)
    table, roles = table_of(sample, rng)
    frame = spark_session().createDataFrame(table).repartition(60)
    source = SparkSource(frame, roles)
    model = dm.TprFprModel(0.5, 1)
    assert dm.tune(source, model).point == dm.tune(sample, model).point
    if "connect" not in type(frame).__module__:
        # Two cores, each with some tasks; what is large keeps its partitions.
        assert source._native.rdd.getNumPartitions() == 8
        few = SparkSource(frame.repartition(3), roles)
        few.overview()
        assert few._native.rdd.getNumPartitions() == 3
