"""The share of OOD inputs, and plans, from rows that stay where they are."""

import engines
import numpy as np
import pyarrow as pa
import pytest

import demur as dm
from demur.guarantees import estimate_prior, plan_tuning
from demur.guarantees.splits import sorted_rows
from demur.sources.engines.frames import ArraySource
from demur.sources.open import Roles

ENGINES = engines.EVERY
RULE = dm.Rule((0.6, 0.8), 0.9, score_names=("a", "b"))


def mixture(rng, n, share):
    ood = rng.random(n) < share
    return rng.normal(size=(n, 2)) + np.outer(ood, [1.0, 2.0]), ood


def tables(seed, *, known=900, used=500, share=0.3):
    """Return labelled rows and rows in use, of which this share is OOD."""
    rng = np.random.default_rng(seed)
    (scores, ood), (live, _) = mixture(rng, known, 0.4), mixture(rng, used, share)
    wrong = (rng.random(known) < 0.1).astype(np.int64)
    labelled = {"a": scores[:, 0], "b": scores[:, 1], "loss": wrong, "ood": ood}
    return pa.table(labelled), pa.table({"a": live[:, 0], "b": live[:, 1]})


def arrays(labelled, live, **options):
    """Return both as sources of rows in memory."""
    sample = dm.Sample.from_frame(labelled, ["a", "b"], loss="loss", ood="ood")
    raw = np.column_stack([live["a"], live["b"]])
    used = dm.Sample(raw, np.zeros(len(raw)), score_names=("a", "b"))
    return sample, raw, ArraySource(sample, **options), ArraySource(used, **options)


@pytest.mark.parametrize("engine", ENGINES)
def test_priors_and_plans_are_those_of_memory(engine):
    labelled, live = tables(1)
    sample, raw, known, used = arrays(labelled, live)
    few = arrays(labelled, live, memory=100_000)
    model = dm.TprFprModel(0.7, 0.3)
    here = estimate_prior(RULE, used, validation=known, rng=3)
    counted = estimate_prior(RULE, few[3], validation=few[2], rng=3)
    planned = plan_tuning(sample, model, [(200, 100)], draws=3, rng=1)
    with ENGINES[engine]() as source_of:
        there = source_of(labelled, Roles(("a", "b"), loss="loss", ood="ood"))
        in_use = source_of(live, Roles(("a", "b"), labelled=False))
        assert estimate_prior(RULE, in_use, validation=there, rng=3) == here
        assert estimate_prior(RULE, raw, validation=there, rng=3) == here
        assert plan_tuning(there, model, [(200, 100)], draws=3, rng=1) == planned
        if engine not in ("spark", "pushdown"):
            # Too few bytes to hold the rows: numbers of rows in cells tell.
            for source in (there, in_use):
                source._memory = 100_000
            assert estimate_prior(RULE, in_use, validation=there, rng=3) == counted
    assert 0.3 in counted.interval
    assert 0.3 in here.interval


def test_what_memory_holds_is_estimated_as_a_sample():
    sample, raw, known, used = arrays(*tables(2))
    here = estimate_prior(RULE, raw, validation=sample, rng=7)
    assert estimate_prior(RULE, used, validation=known, rng=7) == here
    # Whatever the order of the rows.
    assert estimate_prior(RULE, raw[::-1], validation=sorted_rows(sample), rng=7) == here


@pytest.mark.parametrize("share", [0.05, 0.5])
def test_counted_intervals_are_as_short_as_those_of_rows(share):
    labelled, live = tables(5, known=40_000, used=30_000, share=share)
    sample, raw, known, used = arrays(labelled, live, memory=1_600_000)
    rows = estimate_prior(RULE, raw, validation=sample)
    counted = estimate_prior(RULE, used, validation=known)
    assert share in counted.interval
    width = [found.interval.high - found.interval.low for found in (rows, counted)]
    assert width[1] < 1.15 * width[0]
    assert counted.estimate == pytest.approx(rows.estimate, abs=0.01)
    assert counted.accepted_share == rows.accepted_share


def test_the_promise_of_counts_holds():
    missed = 0
    for seed in range(40):
        *_, known, used = arrays(*tables(100 + seed, known=1500, used=800), memory=100_000)
        missed += 0.3 not in estimate_prior(RULE, used, validation=known, confidence=0.8).interval
    # At most one in five on average; twice that would be bad luck of one in a thousand.
    assert missed <= 16


def test_a_score_of_no_weight_and_confidences():
    labelled, live = tables(3, known=3000, used=2000)
    *_, known, used = arrays(labelled, live, memory=100_000)
    alone = dm.Rule((0.0, 1.0), 1.0, score_names=("a", "b"))
    assert 0.3 in estimate_prior(alone, used, validation=known).interval
    # The same scores as confidences.
    turned = [
        table.set_column(1, "b", pa.array(-table["b"].to_numpy())) for table in (labelled, live)
    ]
    sample = dm.Sample.from_frame(turned[0], ["a", "b"], loss="loss", ood="ood", confidence="b")
    raw = np.column_stack([turned[1]["a"], turned[1]["b"]])
    in_use = dm.Sample(raw, np.zeros(len(raw)), score_names=("a", "b"), confidence=("b",))
    rule = dm.Rule((0.6, -0.8), 0.9, score_names=("a", "b"), confidence=("b",))
    sources = [ArraySource(one, memory=100_000) for one in (in_use, sample)]
    found = estimate_prior(rule, sources[0], validation=sources[1])
    assert found.accepted_share == estimate_prior(RULE, used, validation=known).accepted_share
    assert 0.3 in found.interval


def test_what_cannot_be_estimated_is_refused():
    labelled, live = tables(4)
    rounded = [
        table.set_column(0, "a", pa.array(np.round(table["a"].to_numpy()))).set_column(
            1, "b", pa.array(np.round(table["b"].to_numpy()))
        )
        for table in (labelled, live)
    ]
    sample, raw, known, used = arrays(*rounded, memory=100_000)
    with pytest.raises(dm.InvalidInputError, match="share the scores of one"):
        estimate_prior(RULE, used, validation=known)
    keys = np.arange(sample.n_id), np.arange(sample.n_ood) + sample.n_id
    keyed = ArraySource(sample, keys=keys, memory=100_000)
    assert 0.3 in estimate_prior(RULE, used, validation=keyed).interval
    with pytest.raises(dm.InvalidInputError, match="whole number, a seed"):
        estimate_prior(RULE, used, validation=known, rng=np.random.default_rng(0))
    only_id = ArraySource(dm.Sample(raw, np.zeros(len(raw)), score_names=("a", "b")))
    with pytest.raises(dm.InvalidInputError, match="no OOD rows"):
        estimate_prior(RULE, used, validation=only_id)
    weighted = dm.Sample(raw, np.zeros(len(raw)), raw, id_weight=np.ones(len(raw)))
    with pytest.raises(dm.InvalidInputError, match="weights"):
        estimate_prior(RULE, used, validation=ArraySource(weighted))
    with pytest.raises(dm.InvalidInputError, match="labelled=False"):
        Roles(("a",), loss="loss", labelled=False)
