"""Cross-validation, bootstrap and paired comparisons, against plain loops."""

import subprocess
import sys
import threading

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import demur as dm
from demur.guarantees import auroc_interval, bootstrap, compare, compare_auroc, cross_tune
from demur.guarantees.cross_tuning import draw
from demur.guarantees.splits import fold_numbers, group_strata, split

MODEL = dm.TprFprModel(0.6, 0.3)


def make(n, seed, *, scores=1, sets=False, weighted=False):
    rng = np.random.default_rng(seed)
    id_, ood = rng.normal(0, 1, (n, scores)), rng.normal(1.5, 1, (n - 10, scores))
    named = {"a": ood[: n // 3], "b": ood[n // 3 :]}
    weight = rng.integers(1, 4, n) if weighted else None
    return dm.Sample(
        id_,
        rng.random(n) < 1 / (1 + np.exp(1 - id_[:, 0])),
        ood_scores=named if sets else ood,
        id_weight=weight,
    )


def rows(sample, id_rows, ood_rows):
    """The sample of these rows, repeated as often as they are listed."""
    return dm.Sample(
        sample.id_scores[id_rows],
        sample.id_loss[id_rows],
        ood_scores=sample.ood_scores[ood_rows],
        id_weight=None if sample.id_weight is None else sample.id_weight[id_rows],
    )


def test_splits_are_stratified_and_complete():
    sample = make(50, 0, sets=True)
    first, rest = split(sample, 0.3, 1)
    assert (first.n_id, rest.n_id) == (15, 35)
    sizes = {k: v.stop - v.start for k, v in first.ood_sets.items()}
    assert abs(sizes["a"] - 0.3 * 16) < 1 and abs(sizes["b"] - 0.3 * 24) < 1
    joined = np.concatenate([first.id_scores, rest.id_scores])
    assert np.array_equal(np.sort(joined, axis=0), np.sort(sample.id_scores, axis=0))
    numbers, ood_numbers = fold_numbers(sample, 4, 2)
    assert sorted(np.bincount(numbers)) == [12, 12, 13, 13]
    assert sorted(np.bincount(ood_numbers[:16])) == [4, 4, 4, 4]
    part = sample.subset(np.array([3, 7]), np.array([0, 20, 39]))
    assert part.for_ood("b").ood_scores.tolist() == sample.ood_scores[[20, 39]].tolist()
    for count in (1, 51, True, 2.0):
        with pytest.raises(dm.InvalidInputError, match="folds"):
            fold_numbers(sample, count, 0)


def test_sets_of_one_row_keep_their_share_of_a_split():
    # Half of the OOD rows are sets of their own.
    sets = {f"one{i}": [1.0 + i] for i in range(40)} | {"many": np.arange(100.0, 140.0)}
    sample = dm.Sample(np.arange(50.0), np.zeros(50), ood_scores=sets)
    held = np.zeros(80)
    for seed in range(400):
        first, _ = split(sample, 0.3, seed)
        assert 23 <= first.n_ood <= 25
        singles = sum(v.stop - v.start for k, v in first.ood_sets.items() if k != "many")
        assert abs(singles - 12) <= 1
        held += np.isin(sample.ood_scores[:, 0], first.ood_scores[:, 0])
    # Every row has the same chance.
    assert abs(held / 400 - 0.3).max() < 4 * np.sqrt(0.3 * 0.7 / 400)
    few = dm.Sample([1, 2], [0, 0], ood_scores=[1, 2])
    for seed in range(20):
        first, rest = split(few, 0.1, seed)
        assert (first.n_id, rest.n_id, first.n_ood, rest.n_ood) == (1, 1, 1, 1)


@pytest.mark.parametrize("weighted", [False, True])
def test_cross_tuning_is_a_loop_over_folds(weighted):
    sample = make(80, 3, weighted=weighted)
    seen = []
    found = cross_tune(
        sample, MODEL, folds=4, rng=9, workers=2, progress=lambda *at: seen.append(at)
    )
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert found.tuned.point == dm.tune(sample, MODEL).point
    numbers, ood_numbers = fold_numbers(sample, 4, 9)
    weight = np.ones(80) if sample.id_weight is None else sample.id_weight
    accepted = loss = accepted_ood = 0.0
    for k, fold in enumerate(found.folds):
        rest = rows(sample, numbers != k, ood_numbers != k)
        part = rows(sample, numbers == k, ood_numbers == k)
        tuned = dm.tune(rest, MODEL)
        assert fold.rule == tuned.rule
        assert fold.tuned.selective_risk == tuned.point.selective_risk
        point = dm.evaluate(tuned.rule, part)
        assert fold.held_out.tpr == point.tpr
        assert fold.held_out.fpr == point.fpr
        assert fold.held_out.selective_risk == point.selective_risk
        accepted += point.accepted_id
        loss += point.accepted_loss
        accepted_ood += point.accepted_ood
    assert found.held_out.tpr == pytest.approx(accepted / weight.sum())
    assert found.held_out.fpr == accepted_ood / sample.n_ood
    assert found.held_out.selective_risk == pytest.approx(loss / accepted)
    assert (weight * found.accepted_id).sum() == accepted
    assert found.accepted_ood.sum() == accepted_ood
    assert found.unable == 0


def test_groups_stay_in_one_fold():
    sample = make(60, 4, sets=True)
    rng = np.random.default_rng(0)
    # Some patients have ID rows only, some rows of both kinds, some OOD rows only.
    groups = rng.permutation(60) % 20, rng.integers(10, 30, 50)
    numbers = fold_numbers(sample, 4, 7, groups)
    folds = {}
    for patient, fold in zip(np.concatenate(groups), np.concatenate(numbers), strict=True):
        assert folds.setdefault(patient, fold) == fold
    familiar = set(groups[0].tolist())
    assert np.bincount([folds[p] for p in familiar]).tolist() == [5, 5, 5, 5]
    only_a = set(groups[1][:20].tolist()) - familiar
    assert np.ptp(np.bincount([folds[p] for p in only_a], minlength=4)) <= 1
    found = cross_tune(sample, MODEL, folds=4, rng=7, groups=groups)
    for k, fold in enumerate(found.folds):
        assert fold.rule == dm.tune(rows(sample, numbers[0] != k, numbers[1] != k), MODEL).rule
    # Names that sort like the rows, each its own: the folds are those of the rows.
    own = [f"{i:03d}" for i in range(110)]
    plain, named = fold_numbers(sample, 4, 7), fold_numbers(sample, 4, 7, (own[:60], own[60:]))
    assert all(np.array_equal(a, b) for a, b in zip(plain, named, strict=True))


def test_copies_of_a_row_do_not_judge_it():
    # Scores that say nothing about the loss: the true risk of every rule is 0.5.
    errors = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        score, wrong = rng.normal(0, 1, (40, 2)), rng.random(40) < 0.5
        copies = dm.Sample(np.repeat(score, 5, axis=0), np.repeat(wrong, 5))
        patients = np.repeat(np.arange(40), 5)
        model = dm.TprFprModel(0.2)
        by_row = cross_tune(copies, model, rng=seed)
        by_patient = cross_tune(copies, model, rng=seed, groups=(patients, []))
        errors.append([found.held_out.selective_risk - 0.5 for found in (by_row, by_patient)])
    means, spread = np.mean(errors, axis=0), np.std(errors, axis=0, ddof=1) / np.sqrt(20)
    assert means[0] < -4 * spread[0]
    assert abs(means[1]) < 3 * spread[1] < 0.2


@pytest.mark.parametrize(
    ("folds", "groups", "message"),
    [
        (5, ([0, 0, 1, 1, 2, 2, 3, 3], [9, 8]), "only 4 groups of ID rows"),
        (2, ([0, 1], [9, 8]), r"the 8 ID rows .* got arrays of shape \(2,\) and \(2,\)"),
    ],
)
def test_groups_that_do_not_fit_are_refused(folds, groups, message):
    sample = dm.Sample(np.arange(8), np.zeros(8), ood_scores=[3, 9])
    with pytest.raises(dm.InvalidInputError, match=message):
        cross_tune(sample, dm.TprFprModel(0.5), folds=folds, groups=groups)


def test_folds_without_a_rule_are_left_out():
    # Removing either easy pair of rows makes the bounds infeasible on what is left.
    sample = dm.Sample([0, 1, 5, 6], [0, 0, 1, 1], ood_scores=[0.5, 4, 4, 4])
    model = dm.TprFprModel(0.5, 0.25)
    found = cross_tune(sample, model, folds=4, rng=0)
    assert 0 < found.unable < 4
    able = [fold for fold in found.folds if fold.rule is not None]
    accepted = sum(fold.held_out.accepted_id for fold in able)
    assert found.held_out.tpr == accepted / len(able)


def test_replicates_tune_on_the_rows_drawn():
    sample = make(40, 5, sets=True)
    found = bootstrap(sample, MODEL, replicates=12, rng=3)
    for b, generator in enumerate(np.random.default_rng(3).spawn(12)):
        times, ood_times = draw(sample, generator)
        assert times.sum() == 40
        assert (ood_times[:13].sum(), ood_times[13:].sum()) == (13, 17)
        drawn = rows(sample, np.repeat(np.arange(40), times), np.repeat(np.arange(30), ood_times))
        left = rows(sample, times == 0, ood_times == 0)
        tuned = dm.tune(drawn, MODEL)
        for name, measure in found.measures.items():
            assert measure.in_bag[b] == getattr(tuned.point, name)
            assert measure.on_sample[b] == getattr(dm.evaluate(tuned.rule, sample), name)
            assert measure.out_of_bag[b] == pytest.approx(
                getattr(dm.evaluate(tuned.rule, left), name), nan_ok=True
            )


def test_bootstrap_interval_is_the_basic_one():
    sample = make(60, 6)
    found = bootstrap(sample, MODEL, replicates=80, confidence=0.9, rng=1)
    assert set(found.measures) == {"tpr", "fpr", "selective_risk"}
    point = dm.tune(sample, MODEL).point
    for name, measure in found.measures.items():
        shift = measure.on_sample - measure.in_bag
        angles = [np.arcsin(np.sqrt(view)) for view in (measure.on_sample, measure.in_bag)]
        turn = angles[0] - angles[1]
        # Ranks k of B are the k / (B + 1) quantiles.
        ordered = np.sort(turn[~np.isnan(turn)])
        ranks = np.arange(1, len(ordered) + 1) / (len(ordered) + 1)
        low, high = np.interp([0.05, 0.95], ranks, ordered)
        apparent = getattr(point, name)
        assert measure.apparent == apparent
        ends = [max(0, np.arcsin(np.sqrt(apparent)) + end) for end in (low, high)]
        assert measure.interval.low == pytest.approx(np.sin(ends[0]) ** 2)
        assert measure.interval.high == pytest.approx(np.sin(ends[1]) ** 2)
        assert measure.estimate == pytest.approx(apparent + np.nanmean(shift))
        assert measure.held_out == pytest.approx(np.nanmean(measure.out_of_bag))


def test_tuning_looks_better_on_its_own_rows_than_elsewhere():
    found = bootstrap(make(60, 6, scores=2), MODEL, replicates=60, rng=1)
    risk = found.measures["selective_risk"]
    assert risk.optimism > 0.02
    assert risk.held_out > np.nanmean(risk.in_bag) + 0.04


def test_bootstrap_does_not_depend_on_the_workers():
    sample, seen = make(30, 7), []
    model = dm.CostModel(0.3, 1, 0, ood_prior=0.3)
    one = bootstrap(sample, model, replicates=9, rng=np.random.default_rng(5))
    two = bootstrap(
        sample,
        model,
        replicates=9,
        rng=np.random.default_rng(5),
        workers=2,
        progress=lambda done, of: seen.append((done, of, threading.current_thread())),
    )
    assert set(one.measures) == {"tpr", "fpr", "selective_risk", "precision", "expected_cost"}
    for name in one.measures:
        assert np.array_equal(one.measures[name].in_bag, two.measures[name].in_bag, equal_nan=True)
    assert [(done, of) for done, of, _ in seen] == [(k, 9) for k in range(1, 10)]
    assert {thread for *_, thread in seen} == {threading.main_thread()}
    with pytest.raises(dm.InvalidInputError, match="replicates"):
        bootstrap(sample, model, replicates=0)
    with pytest.raises(dm.InvalidInputError, match="workers"):
        bootstrap(sample, model, replicates=5, workers=0)


def test_importing_guarantees_does_not_import_scipy():
    code = "import sys, demur.guarantees; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_replicates_without_a_rule_keep_the_tuned_one():
    sample, model = make(40, 5), dm.TprFprModel(0.8, 0.1)
    found = bootstrap(sample, model, replicates=40, rng=0)
    kept = 0
    for b, generator in enumerate(np.random.default_rng(0).spawn(40)):
        times, ood_times = draw(sample, generator)
        drawn = rows(sample, np.repeat(np.arange(40), times), np.repeat(np.arange(30), ood_times))
        rule = found.tuned.rule
        try:
            rule = dm.tune(drawn, model).rule
        except dm.InfeasibleError:
            kept += 1
            assert np.isnan(found.measures["tpr"].out_of_bag[b])
        for name, measure in found.measures.items():
            assert measure.in_bag[b] == getattr(dm.evaluate(rule, drawn), name)
            assert measure.on_sample[b] == getattr(dm.evaluate(rule, sample), name)
    assert found.unable == kept and 0 < kept < 40


def test_paired_differences_use_the_same_draws():
    first, second = make(60, 8), make(60, 9)
    found = compare(first, second, MODEL, replicates=15, rng=4)
    alone = [bootstrap(s, MODEL, replicates=15, rng=4) for s in (first, second)]
    for name, measure in found.differences.items():
        one, two = (a.measures[name] for a in alone)
        assert measure.apparent == pytest.approx(one.apparent - two.apparent)
        assert np.allclose(measure.in_bag, one.in_bag - two.in_bag)
        assert np.allclose(measure.out_of_bag, one.out_of_bag - two.out_of_bag)
    same = compare(first, first, MODEL, replicates=5).differences["selective_risk"]
    assert (same.interval.low, same.interval.high, same.estimate) == (0, 0, 0)
    assert found.first.rule == alone[0].tuned.rule


def test_paired_samples_must_have_the_same_rows():
    with pytest.raises(dm.InvalidInputError, match="same rows"):
        compare(make(60, 8), make(61, 8), MODEL)
    with pytest.raises(dm.InvalidInputError, match="same rows"):
        compare(make(60, 8), make(60, 8, sets=True), MODEL)
    with pytest.raises(dm.InvalidInputError, match="same id_weight"):
        compare(make(60, 8), make(60, 8, weighted=True), MODEL)
    with pytest.raises(dm.InvalidInputError, match="same rows"):
        compare_auroc(make(60, 8), make(61, 8))


def wins(x, y):
    return 1.0 if x < y else 0.5 if x == y else 0.0


def delong_by_loops(samples):
    """AUROCs and their covariance matrix straight from DeLong's structural components."""
    by_id, by_ood = [], []
    for sample in samples:
        x, y = sample.id_scores[:, 0], sample.ood_scores[:, 0]
        by_id.append([sum(wins(a, b) for b in y) / len(y) for a in x])
        by_ood.append([sum(wins(a, b) for a in x) / len(x) for b in y])
    areas = [sum(v) / len(v) for v in by_id]
    m, n = len(by_id[0]), len(by_ood[0])
    cov = np.zeros((len(samples), len(samples)))
    for i in range(len(samples)):
        for j in range(len(samples)):
            s10 = sum(
                (a - areas[i]) * (b - areas[j]) for a, b in zip(by_id[i], by_id[j], strict=True)
            )
            s01 = sum(
                (a - areas[i]) * (b - areas[j]) for a, b in zip(by_ood[i], by_ood[j], strict=True)
            )
            cov[i, j] = s10 / (m - 1) / m + s01 / (n - 1) / n
    return areas, cov


def test_delong_is_that_of_its_definition():
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 6, (25, 2)), rng.integers(2, 9, (18, 2))
    samples = [dm.Sample(x[:, i], np.zeros(25), ood_scores=y[:, i]) for i in (0, 1)]
    areas, cov = delong_by_loops(samples)
    for sample, area, variance in zip(samples, areas, np.diag(cov), strict=True):
        found = auroc_interval(sample)
        labels = np.repeat([0, 1], [25, 18])
        scores = np.concatenate([sample.id_scores, sample.ood_scores])[:, 0]
        assert found.auroc == pytest.approx(roc_auc_score(labels, scores))
        assert found.auroc == pytest.approx(area)
        assert found.standard_error == pytest.approx(np.sqrt(variance))
        assert found.interval.low == pytest.approx(area - 1.959964 * np.sqrt(variance))
    found = compare_auroc(*samples, confidence=0.9)
    error = np.sqrt(cov[0, 0] + cov[1, 1] - 2 * cov[0, 1])
    assert found.difference == pytest.approx(areas[0] - areas[1])
    assert found.standard_error == pytest.approx(error)
    assert found.interval.high == pytest.approx(found.difference + 1.644854 * error)
    from scipy.stats import norm

    assert found.p_value == pytest.approx(2 * norm.sf(abs(found.difference) / error))


def test_delong_knows_no_doubt_where_nothing_overlaps():
    apart = dm.Sample([0, 1, 2], [0, 0, 0], ood_scores=[3, 4, 5])
    found = auroc_interval(apart)
    assert (found.auroc, found.standard_error) == (1, 0)
    assert (found.interval.low, found.interval.high) == (1, 1)
    reverse = dm.Sample([5, 4, 3], [0, 0, 0], ood_scores=[2, 1, 0])
    compared = compare_auroc(apart, reverse)
    assert (compared.interval.low, compared.interval.high, compared.p_value) == (1, 1, 0)


def test_delong_refuses_what_it_cannot_do():
    same = compare_auroc(make(20, 1), make(20, 1))
    assert (same.difference, same.standard_error, same.p_value) == (0, 0, 1)
    with pytest.raises(dm.InvalidInputError, match="two scores"):
        auroc_interval(make(20, 1, scores=2))
    with pytest.raises(dm.InvalidInputError, match="at least two"):
        auroc_interval(dm.Sample([1, 2], [0, 0], ood_scores=[1]))
    with pytest.raises(dm.InvalidInputError, match="weights"):
        auroc_interval(make(20, 1, weighted=True))


def test_groups_are_drawn_with_all_their_rows():
    sample = make(50, 0, sets=True)
    groups = np.repeat(np.arange(10), 5), np.repeat(np.arange(100, 110), 4)
    strata = group_strata(sample, groups)
    for seed in range(20):
        own, foreign = draw(sample, np.random.default_rng(seed), strata)
        assert (own.reshape(10, 5) == own[::5, None]).all() and own.sum() == 50
        assert (foreign.reshape(10, 4) == foreign[::4, None]).all()
        # Of each set as many groups as it has: four of the first, six of the second.
        assert (foreign[:16].sum(), foreign[16:].sum()) == (16, 24)


def test_intervals_of_groups_are_as_wide_as_the_groups_vary():
    rng = np.random.default_rng(0)
    own, foreign = rng.normal(0, 1, 30), rng.normal(2, 1, 30)
    wrong = rng.random(30) < 0.2
    once = dm.Sample(own, wrong, ood_scores=foreign)
    often = dm.Sample(own.repeat(20), wrong.repeat(20), ood_scores=foreign.repeat(20))
    groups = np.arange(30).repeat(20), np.arange(30, 60).repeat(20)
    names = "tpr", "fpr", "selective_risk"

    def widths(found):
        ends = [found.measures[name].interval for name in names]
        return np.array([end.high - end.low for end in ends])

    model = dm.TprFprModel(0.6, 0.4)
    honest = widths(bootstrap(once, model, replicates=300))
    grouped = widths(bootstrap(often, model, replicates=300, groups=groups))
    single = widths(bootstrap(often, model, replicates=300))
    assert grouped == pytest.approx(honest, rel=0.35)
    assert (single < honest / 2).all()


def test_hold_out_keeps_the_share_of_sets_of_one_row_and_ids_together():
    from fractions import Fraction

    from demur.cli.tuning_options import held_out

    # Forty ID rows, forty sets of one row, one set of forty.
    strata = np.r_[np.zeros(40), np.arange(1, 41), np.full(40, 41)].astype(int)
    counts = np.zeros(120)
    for seed in range(300):
        held = held_out(strata, Fraction(3, 10), seed=seed)
        assert held[:40].sum() == 12
        assert abs(held[40:80].sum() - 12) <= 1 and abs(held[80:].sum() - 12) <= 1
        counts += held
    assert abs(counts / 300 - 0.3).max() < 4.5 * np.sqrt(0.3 * 0.7 / 300)
    ids = np.arange(120) // 4
    held = held_out(strata, Fraction(3, 10), seed=1, groups=ids)
    assert (held.reshape(30, 4) == held[::4, None]).all() and 5 <= held[::4].sum() <= 13
