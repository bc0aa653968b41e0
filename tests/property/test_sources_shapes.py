"""Shapes that are hard to count in cells: a constant score, extreme tails, many decades."""

from dataclasses import replace

import engines
import numpy as np
import pytest
from scipy.special import ndtr
from scored_tables import table_of
from streams import DIRECTIONS, check_against_memory, random_model, random_sample

import demur as dm
from demur.sources.engines.frames import ArraySource
from demur.tuning.result import DIRECTION_SETS
from demur.tuning.streamed.constant_score import varying_score
from demur.tuning.streamed.plan import StreamPlan
from demur.tuning.streamed.tune import tune_source

N = 60_000


def rows(seed, shape, n=N):
    rng = np.random.default_rng(seed)
    ood = rng.random(n) < 0.4
    wrong = (rng.random(n) < 0.15) & ~ood
    noise = {
        "cauchy": lambda: rng.standard_cauchy(n),
        "normal": lambda: rng.normal(size=n),
        "decades": lambda: rng.normal(size=n),
        "tangents": lambda: rng.normal(size=n),
        "atoms": lambda: rng.normal(size=n),
        "flat": lambda: rng.normal(size=n),
    }[shape]
    scores = np.column_stack([noise() + wrong + 0.5 * ood, noise() + 1.5 * ood])
    if shape == "decades":
        scores = np.exp(6 * scores)
    if shape == "tangents":
        scores = np.tan(np.pi * (np.clip(ndtr(scores), 1e-12, 1 - 1e-12) - 0.5))
    if shape == "atoms":
        # Saturated scores: an atom at the least value, and a tail.
        far = np.maximum(scores[:, 1], -0.5)
        scores = np.column_stack([np.expm1(4 * np.maximum(scores[:, 0], 0.2)), far])
    if shape == "flat":
        # Atoms that tell nothing: many rules are nearly as good as the best.
        risk = np.where(rng.random(n) < 0.6, 0.0, np.exp(3 * scores[:, 0]))
        far = np.where(rng.random(n) < 0.3 - 0.2 * ood, -1.0, scores[:, 1])
        scores = np.column_stack([risk, far])
    return dm.Sample(scores[~ood], wrong[~ood].astype(float), scores[ood])


@pytest.mark.parametrize("shape", ["normal", "cauchy", "tangents", "decades"])
@pytest.mark.parametrize("bounds", [(0.7, 0.6), (0.99, 0.01)])
def test_tails_fetch_no_more_than_other_rows(shape, bounds):
    sample, model = rows(0, shape), dm.TprFprModel(*bounds)
    source = ArraySource(sample)
    check_against_memory(
        sample, lambda: dm.tune(source, model), model, directions=None, ood="pooled"
    )
    # So few rows make few bins, and a boundary crosses many of these.
    assert source.work.fetched < 0.4 * N


@pytest.mark.parametrize("shape", ["atoms", "flat"])
@pytest.mark.parametrize("bounds", [(0.7, 0.6), (0.7, 0.42), (0.99, 0.01)])
def test_atoms_are_accepted_or_not(shape, bounds):
    """A point that many rows share is no doubt of a search, whichever side it is on."""
    sample, model = rows(0, shape), dm.TprFprModel(*bounds)
    source = ArraySource(sample)
    check_against_memory(
        sample, lambda: dm.tune(source, model), model, directions=None, ood="pooled"
    )
    # Where no boundary is much better than others, many are looked at.
    assert source.work.fetched < 0.7 * N


@pytest.mark.parametrize("shape", ["cauchy", "decades"])
def test_a_twentieth_of_many_rows_is_fetched(shape):
    n = 4_000_000
    sample, model = rows(0, shape, n), dm.TprFprModel(0.7, 0.42)
    source = ArraySource(sample)
    assert dm.tune(source, model).point == dm.tune(sample, model).point
    assert source.work.fetched <= 0.05 * n


def constant(seed, *, scores=2):
    rng = np.random.default_rng(seed)
    sample = random_sample(rng, scores=scores)
    column = int(rng.integers(2))
    sides = [np.array(side) for side in (sample.id_scores, sample.ood_scores)]
    for side in sides:
        finite = np.isfinite(side[:, column])
        side[finite, column] = rng.choice([0.0, -3.0, 7.5]) if seed % 5 else 0.25
    value = sides[0][np.isfinite(sides[0][:, column]), column][:1]
    for side in sides:
        side[np.isfinite(side[:, column]), column] = value[0] if len(value) else 0.0
    ood = {name: sides[1][places] for name, places in sample.ood_sets.items()}
    weights = None
    if sample.ood_weight is not None:
        weights = {name: sample.ood_weight[places] for name, places in sample.ood_sets.items()}
    return dm.Sample(sides[0], sample.id_loss, ood, id_weight=sample.id_weight, ood_weight=weights)


@pytest.mark.parametrize("seed", range(40))
def test_a_constant_score_is_dropped(seed):
    rng, sample = np.random.default_rng(1000 + seed), constant(seed)
    model, directions = random_model(rng, sample), str(rng.choice(DIRECTIONS))
    ood = str(rng.choice(["pooled", "worst"]))
    source = ArraySource(sample, batch=97)
    check_against_memory(
        sample,
        lambda: dm.tune(source, model, directions=directions, ood=ood),
        model,
        directions=directions,
        ood=ood,
    )


@pytest.mark.parametrize("start", [engines.duckdb, engines.polars, engines.pushdown])
def test_a_constant_score_on_engines(start):
    with start() as source_of:
        for seed in range(3):
            rng, sample = np.random.default_rng(seed), constant(seed)
            model = random_model(rng, sample)
            source = source_of(*table_of(sample, rng))
            check_against_memory(
                sample,
                lambda source=source, model=model: dm.tune(source, model, directions="circle"),
                model,
                directions="circle",
                ood="pooled",
            )


def test_a_constant_score_fetches_almost_nothing():
    sample = rows(1, "normal")
    flat = dm.Sample(
        np.column_stack([sample.id_scores[:, 0], np.full(sample.n_id, 3.0)]),
        sample.id_loss,
        np.column_stack([sample.ood_scores[:, 0], np.full(sample.n_ood, 3.0)]),
    )
    source, model = ArraySource(flat), dm.TprFprModel(0.7, 0.7)
    assert varying_score(source.overview()) == 0
    tuned = dm.tune(source, model)
    assert tuned.rule.direction == dm.tune(flat, model).rule.direction == (1.0, 0.0)
    assert source.work.fetched < 0.01 * N


@pytest.mark.parametrize("shape", ["normal", "cauchy", "tangents"])
def test_an_infeasible_model_fetches_once(shape):
    sample, fetched = rows(2, shape), []
    source = ArraySource(sample)
    ask = source.rows

    def told(cells):
        fetched.append(set(cells.key.tolist()))
        return ask(cells)

    source.rows = told
    model = dm.TprFprModel(0.8, 0.1)
    check_against_memory(
        sample, lambda: dm.tune(source, model), model, directions=None, ood="pooled"
    )
    assert len(fetched) == 1
    # A search that ran out of boxes to look at had to fetch all rows.
    assert source.work.fetched < 0.6 * N


def test_what_would_take_many_rows_is_told_about():
    sample, model = rows(3, "tangents"), dm.TprFprModel(0.8, 0.1)
    source = ArraySource(sample)
    plan = replace(StreamPlan.of(N, 2, source.memory), rough=0)
    with pytest.raises(dm.InfeasibleError, match="is about 0") as found:
        tune_source(source, model, DIRECTION_SETS["nonneg"], dm.Exact(), plan=plan)
    with pytest.raises(dm.InfeasibleError) as exact:
        dm.tune(sample, model, directions="nonneg")
    assert source.work.fetched == 0
    told, best = found.value.attainable, exact.value.attainable
    # Attainable, and next to the best.
    assert best["max_tpr"] - 0.005 < told["max_tpr"] <= best["max_tpr"]
    assert best["min_fpr"] <= told["min_fpr"] < best["min_fpr"] + 0.005
