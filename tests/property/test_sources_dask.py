"""What only Dask can do: work without a cluster, and lose a worker."""

import os
import signal

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
