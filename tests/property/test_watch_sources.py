"""A grouped count of any engine gives what `Watch.update` counts, row by row."""

import numpy as np
import pytest
from engines import need_java, spark_session, without_pandas_warning
from watched import live_rows, tuned_rule

import demur as dm
from demur.watch import Watch

pd = pytest.importorskip("pandas")
RULE = tuned_rule()
EXPECT = [
    dm.Bound("selective_risk", at_most=0.06),
    dm.Bound("tpr", at_least=0.7, group="a"),
    dm.Bound("fpr", at_most=0.1, ood_set="each"),
]


def table(seed, rows=600):
    rng = np.random.default_rng(seed)
    scores, loss, foreign = live_rows(rng, rows, prior=0.3)
    cuts = Watch(RULE).setup.cuts
    scores[rng.random(rows) < 0.05, 0] = np.nan
    scores[rng.random(rows) < 0.05, 1] = np.inf
    scores[rng.random(rows) < 0.1, 1] = rng.choice(cuts[1])
    loss[rng.random(rows) < 0.5] = np.nan
    known = rng.random(rows) < 0.7
    names = np.where(foreign, rng.choice(["s1", "s2"], rows), rng.choice(["id", " ID "], rows))
    return pd.DataFrame(
        {
            "msp": scores[:, 0],
            "knn": scores[:, 1],
            "loss": loss,
            "set": np.where(known, names, None),
            "group": rng.choice(["a", "b"], rows),
            "day": np.sort(rng.integers(1, 5, rows)),
        }
    )


def polars_of(frame):
    return pytest.importorskip("polars").from_pandas(frame).lazy()


def duckdb_of(frame):
    return pytest.importorskip("duckdb").connect().from_df(frame)


def dask_of(frame):
    return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=3)


def spark_of(frame):
    need_java()
    import pyarrow

    return spark_session().createDataFrame(pyarrow.Table.from_pandas(frame))


ENGINES = {
    "pandas": lambda frame: frame,
    "polars": polars_of,
    "duckdb": duckdb_of,
    "dask": dask_of,
    "spark": spark_of,
}


@pytest.mark.parametrize("engine", ENGINES)
def test_a_frame_is_counted_where_it_is(engine):
    frame = table(1)
    rows = Watch(RULE, expect=EXPECT, ood_prior=(0.1, 0.4))
    rows.update(
        frame[["msp", "knn"]], frame.loss, frame.set, time=frame.day.to_numpy(), group=frame.group
    )
    counted = Watch(RULE, expect=EXPECT, ood_prior=(0.1, 0.4))
    given = ENGINES[engine](frame)
    for _ in range(1 if engine == "spark" else 2):  # what is counted again is not counted twice
        without_pandas_warning(
            lambda: counted.count(given, by="day", loss="loss", ood="set", group="group")
        )
    assert [s.first for s in counted.timeline.segments] == [1, 2, 3, 4]
    assert counted.timeline.sums() == pytest.approx(rows.timeline.sums())
    for name, numbers in rows.timeline.total.sets.items():
        assert counted.timeline.total.sets[name].tolist() == numbers.tolist()
    mine, theirs = rows.status(), counted.status()
    assert mine.rows == theirs.rows
    assert mine.evidence == pytest.approx(theirs.evidence)


def test_labels_behind_a_missing_one_wait():
    frame = table(2).assign(audited=True)
    frame["set"] = frame["set"].fillna("id")
    frame["loss"] = frame["loss"].fillna(0.0)
    late = frame.day == 3
    gap = frame.copy()
    accepted = RULE.accept(frame[["msp", "knn"]], missing="reject")
    first = np.flatnonzero(late & accepted & (frame.set.str.strip().str.lower() == "id"))[0]
    gap.loc[first, "loss"] = np.nan
    watch, whole = Watch(RULE, expect=EXPECT), Watch(RULE, expect=EXPECT)
    watch.count(gap, by="day", loss="loss", ood="set", audited="audited", group="group")
    assert watch.waiting == 3
    labelled = watch.setup.layout.labelled()
    assert watch.timeline.sums()[2:, labelled].sum() == 0
    # A later frame does not overtake what waits.
    later = frame[frame.day == 4]
    watch.count(later, by="day", loss="loss", ood="set", audited="audited", group="group")
    assert watch.timeline.sums()[3:, labelled].sum() == 0
    watch.count(frame, by="day", loss="loss", ood="set", audited="audited", group="group")
    whole.count(frame, by="day", loss="loss", ood="set", audited="audited", group="group")
    assert watch.waiting is None
    assert np.array_equal(watch.timeline.sums(), whole.timeline.sums())


def test_columns_that_are_not_there_are_named():
    with pytest.raises(dm.InvalidInputError, match="by: the frame has no column 'dy'"):
        Watch(RULE).count(table(3), by="dy")
