"""Standard errors of rates, and the intervals formed of them, against plain loops."""

import numpy as np
import pytest

import demur as dm
from demur.guarantees import bootstrap, compare
from demur.guarantees.cross_tuning import draw
from demur.guarantees.standard_errors import Spread, standard_errors


def make(n, seed, *, id_weight=None, id_loss=None):
    rng = np.random.default_rng(seed)
    id_scores = rng.normal(0, 1, n)
    wrong = rng.random(n) < 1 / (1 + np.exp(1 - id_scores))
    ood = rng.normal(1.5, 1, n - 10)
    return dm.Sample(
        id_scores, wrong if id_loss is None else id_loss, ood_scores=ood, id_weight=id_weight
    )


def errors_by_hand(samples, model, *, rng, replicates):
    """The errors of the rules tuned on the samples, and of those tuned on each draw."""

    def errors(rules, times):
        moves = [
            Spread.of(s, model).moves((r.accept(s.id_scores), r.accept(s.ood_scores)), times)
            for s, r in zip(samples, rules, strict=True)
        ]
        return standard_errors(moves, times)

    once = np.ones(samples[0].n_id, int), np.ones(samples[0].n_ood, int)
    in_bag = []
    for generator in np.random.default_rng(rng).spawn(replicates):
        times = draw(samples[0], generator)
        ids, oods = (np.repeat(np.arange(len(t)), t) for t in times)
        drawn = [
            dm.Sample(s.id_scores[ids], s.id_loss[ids], ood_scores=s.ood_scores[oods])
            for s in samples
        ]
        in_bag.append(errors([dm.tune(s, model).rule for s in drawn], times))
    return errors([dm.tune(s, model).rule for s in samples], once), np.array(in_bag)


def check(measure, error, in_bag):
    """The 90 % interval is the quantiles of the shifts in units of their own errors."""
    ratio = np.sort((measure.on_sample - measure.in_bag) / in_bag)
    count = len(ratio)
    low, high = np.interp([0.05, 0.95], np.arange(1, count + 1) / (count + 1), ratio)
    assert measure.interval.low == pytest.approx(measure.apparent + error * low)
    assert measure.interval.high == pytest.approx(measure.apparent + error * high)


def moved_variance(parts, times):
    """Variances of all rates, or their differences, by moving each row's count a little."""

    def rates(sample, rule, id_times, ood_times):
        accept, accept_ood = rule.accept(sample.id_scores), rule.accept(sample.ood_scores)
        weight = np.ones(sample.n_id) if sample.id_weight is None else sample.id_weight
        tpr = (id_times * weight * accept).sum() / (id_times * weight).sum()
        loss = (id_times * weight * accept * sample.id_loss).sum() / (id_times * weight).sum()
        fpr = (ood_times * accept_ood).sum() / ood_times.sum()
        pi, both = 0.3, 0.7 * tpr + 0.3 * fpr
        cost = 0.7 * (loss + 0.4 * (1 - tpr)) + pi * (2 * fpr + 0.5 * (1 - fpr))
        return np.array([tpr, fpr, loss / tpr, 0.7 * tpr / both, cost])

    def signed(id_times, ood_times):
        return sum(s * rates(*part, id_times, ood_times) for s, part in parts)

    variance, step = np.zeros(5), 1e-6
    for side, counts in enumerate(times):
        for i in np.flatnonzero(counts):
            up = [c.astype(float) for c in times]
            down = [c.astype(float) for c in times]
            up[side][i] += step
            down[side][i] -= step
            variance += counts[i] * ((signed(*up) - signed(*down)) / (2 * step)) ** 2
    return variance


@pytest.mark.parametrize("two", [False, True])
def test_standard_errors_are_those_of_moving_each_row(two):
    model = dm.CostModel(0.4, 2, 0.5, ood_prior=0.3)
    rng = np.random.default_rng(3)
    first = make(60, 8, id_weight=rng.integers(1, 4, 60))
    graded = dm.Sample(
        first.id_scores + rng.normal(0, 0.3, (60, 1)),
        rng.gamma(0.5, 2, 60),
        ood_scores=first.ood_scores,
        id_weight=first.id_weight,
    )
    parts = [(1, (graded, dm.Rule((1.0,), 0.4))), (-1, (first, dm.Rule((1.0,), 0.1)))]
    parts = parts if two else parts[:1]
    times = draw(first, rng)
    moves, extra = [], []
    for _, (sample, rule) in parts:
        spread = Spread.of(sample, model)
        accepted = rule.accept(sample.id_scores), rule.accept(sample.ood_scores)
        moves.append(spread.moves(accepted, times))
        # One more row of the typical weight and loss moves the TPR and the FPR by itself.
        weight, count = sample.id_weight, (times[0] * sample.id_weight).sum()
        typical = (weight**2).sum() / weight.sum() / count
        assert moves[-1].one_more[0] == pytest.approx(typical**2)
        assert moves[-1].one_more[1] == pytest.approx((1 / times[1].sum()) ** 2)
        tpr = (times[0] * weight * accepted[0]).sum() / count
        loss = weight * sample.id_loss
        size = (loss**2).sum() / loss.sum() / count
        risk = (times[0] * loss * accepted[0]).sum() / count / tpr
        assert moves[-1].one_more[2] == pytest.approx(
            (size / tpr) ** 2 + (typical * risk / tpr) ** 2
        )
        extra.append(moves[-1].one_more)
    variance = moved_variance(parts, times) + np.mean(extra, axis=0)
    assert np.allclose(standard_errors(moves, times), np.sqrt(variance), rtol=1e-5)


def test_intervals_of_graded_losses_and_costs_are_studentised():
    rng = np.random.default_rng(0)
    sample = make(50, 2, id_loss=rng.gamma(0.5, 1, 50))
    model = dm.CostModel(0.8, 1, 0, ood_prior=0.3)
    found = bootstrap(sample, model, replicates=60, rng=4, confidence=0.9)
    error, in_bag = errors_by_hand([sample], model, rng=4, replicates=60)
    for column, name in ((2, "selective_risk"), (4, "expected_cost")):
        check(found.measures[name], error[column], in_bag[:, column])


def test_intervals_of_differences_are_studentised():
    first, second, model = make(50, 2), make(50, 3), dm.TprFprModel(0.5, 0.4)
    found = compare(first, second, model, replicates=60, rng=4, confidence=0.9)
    error, in_bag = errors_by_hand([first, second], model, rng=4, replicates=60)
    assert found.unable == 0
    for column, measure in enumerate(found.differences.values()):
        check(measure, error[column], in_bag[:, column])


def test_rules_that_agree_on_all_rows_may_differ_on_the_next():
    sample = make(50, 2)
    rule = dm.Rule((1.0,), 0.4)
    once = np.ones(50, int), np.ones(40, int)
    accepted = rule.accept(sample.id_scores), rule.accept(sample.ood_scores)
    moves = Spread.of(sample, dm.TprFprModel(0.5, 0.4)).moves(accepted, once)
    error = standard_errors([moves, moves], once)
    share, risk = accepted[0].mean(), sample.id_loss[accepted[0]].mean()
    assert error[:2] == pytest.approx([1 / 50, 1 / 40])
    assert error[2] == pytest.approx(np.sqrt(1 + risk**2) / (50 * share))
