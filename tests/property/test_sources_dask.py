"""Dask DataFrames as sources, on two worker processes: the answers are those of memory."""

import os
import signal

import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from engines import dask_client
from scored_tables import SETS, check_answers, table_of
from streams import DIRECTIONS, check_against_memory, random_model, random_sample

import demur as dm
from demur.sources.dask import DaskSource
from demur.sources.roles import Roles


@pytest.fixture(scope="module")
def client():
    with dask_client() as client:
        yield client


def frame_of(table, partitions=5):
    return dd.from_pandas(table.to_pandas(), npartitions=partitions, sort=False)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("given", [False, True])
def test_answers(client, seed, given):
    rng = np.random.default_rng(seed)
    sample = random_sample(rng, scores=1 + seed % 2)
    table, roles = table_of(sample, rng)
    source = DaskSource(frame_of(table, 11), roles, client=client if given else None)
    check_answers(source, sample, rng)


def test_answers_without_a_cluster():
    rng = np.random.default_rng(7)
    sample = random_sample(rng)
    table, roles = table_of(sample, rng)
    check_answers(DaskSource(frame_of(table), roles), sample, rng)


@pytest.mark.parametrize("seed", range(SETS or 4))
def test_tuning_is_that_of_memory(client, seed):
    rng = np.random.default_rng(3000 + seed)
    sample = random_sample(rng, scores=1 if seed % 5 == 4 else 2)
    model, directions = random_model(rng, sample), str(rng.choice(DIRECTIONS))
    ood = str(rng.choice(["pooled", "worst"]))
    table, roles = table_of(sample, rng)
    source = DaskSource(frame_of(table), roles)
    check_against_memory(
        sample,
        lambda: dm.tune(source, model, directions=directions, ood=ood),
        model,
        directions=directions,
        ood=ood,
    )


def test_a_killed_worker_does_not_change_the_answer(client, tmp_path):
    rng = np.random.default_rng(5)
    sample = random_sample(rng, most=300)
    table, roles = table_of(sample, rng)
    calls = str(tmp_path / "calls")

    def killing(frame):
        """Kill the worker in the first pass, and again in the one after the next attempt."""
        if frame["mark"].any():
            with open(calls, "a+") as file:
                file.seek(0)
                count = len(file.read())
                file.write("x")
            if count in (0, 2):
                os.kill(os.getpid(), signal.SIGKILL)
        return frame

    frame = table.to_pandas()
    frame["mark"] = np.arange(len(frame)) == len(frame) // 2
    parts = dd.from_pandas(frame, npartitions=5, sort=False)
    shaky = parts.map_partitions(killing, meta=frame.iloc[:0])
    before = {worker["pid"] for worker in client.run(lambda: {"pid": os.getpid()}).values()}
    model = dm.TprFprModel(0.3, 0.5)
    source = DaskSource(shaky, roles, client=client)
    outcome = check_against_memory(
        sample, lambda: dm.tune(source, model), model, directions=None, ood="pooled"
    )
    assert outcome == "optimal"
    # Two deaths, and an overview, a sample, a histogram, rows and a tally that came to their end.
    assert (tmp_path / "calls").stat().st_size >= 6
    client.wait_for_workers(2)
    after = {worker["pid"] for worker in client.run(lambda: {"pid": os.getpid()}).values()}
    assert before != after


def test_points_by_day(client):
    frame = pd.DataFrame(
        {
            "s": [0.1, 0.9, 0.2, 0.8, 0.3, 0.7],
            "l": [0.0, 1.0, 0.0, 1.0, None, None],
            "set": ["id", None, "", "id", "far", "near"],
            "day": ["mon", "mon", "tue", "tue", "mon", None],
        }
    )
    source = DaskSource(
        dd.from_pandas(frame, npartitions=3, sort=False), Roles(("s",), loss="l", ood="set")
    )
    points = dm.evaluate(dm.Rule((1.0,), 0.5), source, by="day")
    assert set(points) == {"mon", "tue", None}
    assert points["mon"].tpr == 0.5 and points["mon"].fpr_by_set["far"] == 1
    assert points["tue"].accepted_id == 1 and points["tue"].selective_risk == 0
    assert np.isnan(points[None].tpr) and points[None].fpr == 0


def test_rows_that_cannot_be_used():
    frame = pd.DataFrame({"s": [0.1, np.nan, 0.2, 0.3], "l": [0, 1, 0, 1], "t": list("abcd")})
    parts = dd.from_pandas(frame, npartitions=2)
    roles = Roles(("s",), loss="l")
    with pytest.raises(dm.InvalidInputError, match="'s' is missing or NaN in 1 rows"):
        DaskSource(parts, roles).overview()
    assert DaskSource(parts, roles, missing="drop").overview().rows == 3
    with pytest.raises(dm.InvalidInputError, match="column 't' holds String, not numbers"):
        DaskSource(parts, Roles(("t",), loss="l"))
