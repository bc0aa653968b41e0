"""Spark DataFrames as sources: the answers, and the tuned rule, are those of memory.

All tests of Spark are here, so that a test process starts it once.
"""

import os

import numpy as np
import pyarrow as pa
import pytest
from engines import spark_session, without_pandas_warning
from scored_tables import SETS, check_answers, table_of
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


@pytest.mark.parametrize("seed", range(4))
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
