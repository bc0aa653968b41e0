"""Rules that weigh k scores, and what is learned from live traffic."""

import numpy as np
import pytest
from five_scores import five_scores

import demur as dm
from demur.errors import InfeasibleError, InvalidInputError

MODEL = dm.TprFprModel(0.7, 0.25)


def errors(own, foreign, **options):
    """Return the errors of the best linear classifier found: ID rejected, OOD accepted."""
    model = dm.CostModel(
        reject_id=1, accept_ood=1, ood_prior=len(foreign) / (len(own) + len(foreign))
    )
    sample = dm.Sample(own, np.zeros(len(own)), foreign)
    found = dm.learn.tune_linear(sample, model, directions="circle", **options)
    accepted = found.rule.accept(own), found.rule.accept(foreign)
    return int((~accepted[0]).sum() + accepted[1].sum())


def test_planes_are_not_worse_than_any_pair_or_many_random_directions():
    rng = np.random.default_rng(0)
    sample = five_scores(rng, 400, 200)
    found = dm.learn.tune_linear(sample, MODEL, starts=2)
    assert found.point == dm.evaluate(found.rule, sample, model=MODEL)
    assert found.point.tpr >= 0.7 and found.point.fpr <= 0.25
    assert all(weight >= 0 for weight in found.rule.direction)
    for i in range(5):
        for j in range(i):
            pair = dm.Sample(
                sample.id_scores[:, [i, j]], sample.id_loss, sample.ood_scores[:, [i, j]]
            )
            try:
                best = dm.tune(pair, MODEL).point.selective_risk
            except InfeasibleError:
                continue
            assert found.point.selective_risk <= best
    for weights in np.abs(rng.normal(size=(300, 5))):
        one = dm.Sample(sample.id_scores @ weights, sample.id_loss, sample.ood_scores @ weights)
        try:
            best = dm.tune(one, MODEL).point.selective_risk
        except InfeasibleError:
            continue
        assert found.point.selective_risk <= best


def test_the_rule_is_the_best_in_its_certified_planes():
    rng = np.random.default_rng(1)
    sample = five_scores(rng, 200, 100)
    found = dm.learn.tune_linear(sample, MODEL, starts=1, failures=12)
    assert len(found.certified) >= 12
    weights = np.array(found.rule.direction)
    for across in found.certified:
        # Non-negative weights of the plane, on a fine arc.
        for angle in np.linspace(-np.pi / 2, np.pi / 2, 101):
            tried = np.cos(angle) * weights + np.sin(angle) * across * np.abs(weights).max()
            if (tried < 0).any() or not tried.any():
                continue
            one = dm.Sample(sample.id_scores @ tried, sample.id_loss, sample.ood_scores @ tried)
            try:
                best = dm.tune(one, MODEL).point.selective_risk
            except InfeasibleError:
                continue
            assert found.point.selective_risk <= best + 1e-12


def test_errors_of_linear_classifiers_are_those_of_a_search_over_all_triples():
    """Three scores and few rows: an optimal plane can be moved until it touches three rows."""
    rng = np.random.default_rng(2)
    for _ in range(5):
        own, foreign = rng.normal(size=(9, 3)), rng.normal(0.8, 1, size=(9, 3))
        rows, foreign_row = np.concatenate([own, foreign]), np.repeat([False, True], 9)
        best = 9
        for a in range(18):
            for b in range(a):
                for c in range(b):
                    normal = np.cross(rows[a] - rows[c], rows[b] - rows[c])
                    side = (rows - rows[c]) @ normal
                    side[[a, b, c]] = 0
                    wrong = ((side > 0) & ~foreign_row).sum() + ((side < 0) & foreign_row).sum()
                    # The three touched rows can be put on either side each.
                    other = ((side < 0) & ~foreign_row).sum() + ((side > 0) & foreign_row).sum()
                    best = min(best, wrong, other)
        assert errors(own, foreign, starts=6) == best


def test_planes_say_what_is_out_of_reach_and_refuse_pairs():
    sample = five_scores(np.random.default_rng(3), 100, 100)
    with pytest.raises(InfeasibleError, match="in none of"):
        dm.learn.tune_linear(sample, dm.TprFprModel(0.99, 0.01), starts=1)
    pair = dm.Sample(sample.id_scores[:, :2], sample.id_loss, sample.ood_scores[:, :2])
    with pytest.raises(InvalidInputError, match="finds the best rule"):
        dm.learn.tune_linear(pair, MODEL)


def test_the_share_of_ood_is_found_in_live_traffic():
    covered, gaps = 0, []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        own, live = rng.normal(size=(800, 2)), rng.normal(size=(1000, 2))
        foreign = rng.random(1000) < 0.25
        live[foreign] += [2, 1]
        found = dm.learn.from_traffic(own, live, folds=2)
        covered += found.low <= 0.25 <= found.high
        truth = 2 * live[:, 0] + live[:, 1]
        ratio = found.learned.transform(live)[:, 0]
        assert np.corrcoef(np.log(ratio), truth)[0, 1] > 0.9
        risk = rng.random(800), rng.random(1000)
        sample = found.sample(risk[0], rng.random(800) < risk[0] / 3, risk[1])
        tuned = dm.tune(sample, dm.TprFprModel(0.5, 0.2))
        strange = rng.normal([2, 1], 1, size=(5000, 2))
        pair = np.column_stack([rng.random(5000), found.learned.transform(strange)[:, 0]])
        gaps.append(tuned.rule.accept(pair).mean() - tuned.point.fpr)
    assert covered >= 6
    # The estimate errs on the safe side: rows that may be OOD are counted as such in part.
    assert -0.1 < np.mean(gaps) < 0.02


def test_traffic_refuses_what_it_cannot_take_apart():
    rows = np.random.default_rng(0).normal(size=(60, 2))
    with pytest.raises(InvalidInputError, match="has 10 rows"):
        dm.learn.from_traffic(rows, rows[:10])
    with pytest.raises(InvalidInputError, match="columns"):
        dm.learn.from_traffic(rows, rows[:, :1])
