"""What only Dask can do: work without a cluster, and lose a worker."""

import os
import signal
from collections import Counter

import dask.dataframe as dd
import numpy as np
from engines import dask_client, dask_frame
from scored_tables import check_answers, table_of
from streams import check_against_memory, random_sample

import demur as dm
from demur.sources.engines.dask import DaskSource


def test_answers_without_a_cluster():
    rng = np.random.default_rng(7)
    sample = random_sample(rng)
    table, roles = table_of(sample, rng)
    check_answers(DaskSource(dask_frame(table), roles), sample, rng)


def test_a_killed_worker_does_not_change_the_answer(tmp_path):
    with dask_client() as client:
        check_killed_worker(client, tmp_path)


def check_killed_worker(client, tmp_path):
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


def test_tiny_partitions_share_tasks(monkeypatch):
    """A task takes hundredths of a second whatever its rows: 300 of them would take most of it."""
    from demur.sources.engines import dask as engine

    rng = np.random.default_rng(12)
    sample = random_sample(rng, most=400)
    table, roles = table_of(sample, rng)
    tasks = Counter()
    look, count = engine._look, engine._count
    monkeypatch.setattr(engine, "_look", lambda *one: tasks.update(["look"]) or look(*one))
    monkeypatch.setattr(engine, "_count", lambda *one: tasks.update(["count"]) or count(*one))
    found = []
    for parts in (1, 90):
        source = engine.DaskSource(dask_frame(table, parts), roles)
        model = dm.TprFprModel(0.5, 1)
        found.append(dm.tune(source, model).point)
        assert dm.evaluate(dm.Rule((1.0, 1.0), 0.5), source) == dm.evaluate(
            dm.Rule((1.0, 1.0), 0.5), sample
        )
    assert found[0] == found[1] == dm.tune(sample, model).point
    # Sixteen at a time until their sizes are known, and then all in one.
    assert tasks["look"] == 1 + 6 and tasks["count"] <= 6


def test_partitions_of_many_rows_keep_a_task_each(monkeypatch):
    from demur.sources.engines import dask as engine

    table, roles = table_of(
        random_sample(np.random.default_rng(1), most=600), np.random.default_rng(2)
    )
    monkeypatch.setattr(engine, "_TASK_ROWS", 40)
    source = engine.DaskSource(dask_frame(table, 70), roles)
    source.overview()
    held = source._partition_rows
    assert len(held) == 70 and sum(held) == table.num_rows
    tasks = source._gathered(roles.scores)
    assert sum(map(len, tasks)) == 70
    ends = np.cumsum([len(parts) for parts in tasks])
    rows = np.diff(np.append(0, np.cumsum(held)[ends - 1]))
    assert rows.max() <= 40 + max(held) and len(tasks) < 70
