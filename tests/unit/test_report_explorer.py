"""The rules embedded in the page against `tune` and plain loops."""

from dataclasses import replace

import numpy as np
import pytest
from reports import accepted, make_sample

import demur as dm
from demur.report.explorer import _few_enough, explore
from demur.report.summary import Case


def explored(sample, model=None, *, held_out=None, ood="pooled", directions="nonneg", search=None):
    model = model or dm.TprFprModel(0.5, 0.5 if sample.n_ood else 1)
    tuning = dm.tune(sample, model, ood=ood, directions=directions, search=search)
    return explore(Case(sample, tuning, held_out, directions, search)), tuning


def best(explorer, sample, model):
    """Return the point of the best embedded rule by its counts, None if none meets the bounds."""
    counts = explorer.tuned
    tpr, fpr = counts.id / sample.n_id, counts.ood / sample.n_ood
    prior = model.ood_prior
    with np.errstate(invalid="ignore"):
        risk = counts.loss / counts.id
        # As integers: precision is compared without rounding.
        p, k = round(1000 * prior), round(1000 * getattr(model, "min_precision", 0))
        precise = (1000 - p) * (1000 - k) * counts.id * sample.n_ood >= (
            p * k * counts.ood * sample.n_id
        )
    if isinstance(model, dm.CostModel):
        id_cost = counts.loss / sample.n_id + model.reject_id * (1 - tpr)
        ood_cost = model.accept_ood * fpr + model.reject_ood * (1 - fpr)
        number = int(np.argmin((1 - prior) * id_cost + prior * ood_cost))
        return dm.evaluate(explorer.rule(number), sample, model=model)
    met = np.flatnonzero(
        precise & (counts.id > 0) & (counts.id * 100 >= round(100 * model.min_recall) * sample.n_id)
    )
    if len(met) == 0:
        return None
    number = met[np.lexsort((fpr[met], -tpr[met], risk[met]))[0]]
    return dm.evaluate(explorer.rule(number), sample, model=model)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["pair", "one", "worst", "weighted", "real"])
def test_every_cell_is_what_tune_returns(seed, kind):
    sample = make_sample(seed, 60, 31)
    rng = np.random.default_rng(seed)
    ood, directions = "worst" if kind == "worst" else "pooled", "nonneg"
    if kind == "one":
        sample = sample.score(1)
    if kind == "weighted":
        sample = dm.Sample(
            sample.id_scores,
            rng.random(60),
            sample.ood_scores,
            id_weight=rng.random(60),
            ood_weight=rng.random(31),
        )
    if kind == "real":
        directions = "real"
    explorer, _ = explored(sample, ood=ood, directions=directions)
    assert explorer.cells.shape == (101, 101)
    for _ in range(25):
        tpr, fpr = (int(k) for k in rng.integers(0, 101, 2))
        number = explorer.cells[tpr, fpr]
        model = dm.TprFprModel(tpr / 100, fpr / 100)
        if number < 0:
            with pytest.raises(dm.InfeasibleError):
                dm.tune(sample, model, ood=ood, directions=directions)
            continue
        expected = dm.tune(sample, model, ood=ood, directions=directions).point
        point = dm.evaluate(explorer.rule(number), sample, model=model)
        # Rules that tie may accept rows of different sets.
        assert replace(point, fpr_by_set={}) == replace(expected, fpr_by_set={})
        assert ood == "pooled" or max(point.fpr_by_set.values()) <= fpr / 100


def test_counts_are_those_of_a_plain_loop():
    sample, other = make_sample(0, 80, 40), make_sample(1, 90, 30)
    explorer, _ = explored(sample, held_out=other)
    for number in range(0, len(explorer.lines), 7):
        rule = explorer.rule(number)
        for counts, rows in ((explorer.tuned, sample), (explorer.held_out, other)):
            seen = counts.id[number], counts.ood[number], counts.loss[number]
            assert seen == accepted(rule, rows)


def test_the_tuned_rule_stands_for_its_masses():
    sample = make_sample(2)
    explorer, tuning = explored(sample, dm.TprFprModel(0.7, 0.2))
    assert explorer.rule(explorer.start, sample.score_names) == tuning.rule
    assert explorer.cells[70, 20] == explorer.start
    masses = np.vstack([explorer.tuned.id, explorer.tuned.loss, explorer.tuned.ood_sets])
    assert (masses == masses[:, [explorer.start]]).all(axis=0).sum() == 1


@pytest.mark.parametrize("seed", range(3))
def test_precision_and_costs_lose_nothing_on_small_samples(seed):
    sample = make_sample(seed, 90, 50)
    explorer, _ = explored(sample)
    rng = np.random.default_rng(seed)
    for _ in range(12):
        prior = int(rng.integers(0, 951)) / 1000
        model = dm.PrecisionRecallModel(
            int(rng.integers(500, 1001)) / 1000, int(rng.integers(0, 101)) / 100, prior
        )
        found = best(explorer, sample, model)
        try:
            expected = dm.tune(sample, model).point
        except dm.InfeasibleError:
            assert found is None
        else:
            assert replace(found, fpr_by_set={}) == replace(expected, fpr_by_set={})
        low, high = sorted(int(c) / 100 for c in rng.integers(0, 1001, 2))
        model = dm.CostModel(int(rng.integers(0, 101)) / 100, high, low, prior)
        cost = dm.tune(sample, model).point.expected_cost
        assert best(explorer, sample, model).expected_cost == pytest.approx(cost, abs=1e-12)


def test_precision_and_costs_come_close_on_larger_samples():
    sample = make_sample(5, 900, 650)
    explorer, _ = explored(sample)
    assert len(explorer.lines) < 20_000
    rng = np.random.default_rng(0)
    risks = []
    for _ in range(8):
        prior = int(rng.integers(20, 500)) / 1000
        model = dm.PrecisionRecallModel(
            int(rng.integers(700, 990)) / 1000, int(rng.integers(20, 80)) / 100, prior
        )
        try:
            optimum = dm.tune(sample, model).point.selective_risk
        except dm.InfeasibleError:
            continue
        risks.append(optimum)
        assert best(explorer, sample, model).selective_risk <= 1.02 * optimum
        model = dm.CostModel(int(rng.integers(1, 60)) / 100, 1, 0, prior)
        optimum = dm.tune(sample, model).point.expected_cost
        assert best(explorer, sample, model).expected_cost <= 1.02 * optimum
    assert sum(risk > 0 for risk in risks) >= 3


def test_samples_at_the_edge():
    no_ood = dm.Sample([[0.1, 1], [0.2, 3], [0.3, 2]], [0, 1, 0])
    explorer, _ = explored(no_ood)
    assert (explorer.cells >= 0).all()
    lonely = dm.Sample([0.5], [1], ood_scores=[0.5])
    explorer, _ = explored(lonely, dm.CostModel(0, 1, 0, 0.5))
    # A row of each kind with the same score: accept both or, as here is best, neither.
    assert explorer.rule(explorer.start).threshold == -np.inf
    assert explorer.cells[1, 99] == -1 and explorer.cells[0, 100] >= 0
    never = dm.Sample([0.1, 0.2, np.inf], [0, 0, 0], ood_scores=[np.inf, 0.3])
    explorer, _ = explored(never)
    assert (explorer.cells[67:] == -1).all() and (explorer.cells[:67] >= 0).all()


def test_rejecting_everything_is_among_the_rules():
    explorer, _ = explored(make_sample(0, 40, 20))
    nothing = np.flatnonzero(np.isneginf(explorer.lines[:, -1]))
    assert len(nothing) == 1 and explorer.tuned.id[nothing[0]] == 0
    assert nothing[0] not in explorer.cells


def test_many_sets_leave_room_for_fewer_rules():
    """Every rule has a count per OOD set; a page has a size."""
    rng = np.random.default_rng(0)
    rules, needed = np.arange(1000), rng.choice(1000, 100, replace=False)
    kept = _few_enough(rules, needed, 300)
    assert np.isin(needed, kept).all() and 290 <= len(kept) <= 300
    assert np.diff(kept).max() < 12
    np.testing.assert_array_equal(_few_enough(rules, needed, 2000), rules)
    np.testing.assert_array_equal(_few_enough(rules, needed, 50), np.sort(needed))
