"""Double-score envelopes against brute force over all half-planes with mu >= 0."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from demur import Exact, Grid, Sample, TprFprModel, evaluate, metrics, tune
from demur.metrics import ccr_fpr_curve, precision_recall_curve, risk_coverage_curve, roc_curve

INF = math.inf


def random_sample(seed):
    rng = np.random.default_rng(seed)
    n_id, n_ood, side = rng.integers(1, 7), rng.integers(1, 6), int(rng.integers(2, 9))
    weighted = seed % 3 == 0
    id_scores = rng.integers(0, side, (n_id, 2)).astype(float)
    ood_scores = rng.integers(0, side, (n_ood, 2)) + rng.choice([0.0, 1.0])
    if seed % 4 == 1:
        id_scores[rng.random((n_id, 2)) < 0.15] = INF
        ood_scores[rng.random((n_ood, 2)) < 0.15] = INF
    return Sample(
        id_scores,
        rng.random(n_id) < 0.4,
        ood_scores=ood_scores,
        id_weight=rng.integers(1, 9, n_id) / 4 if weighted else None,
        ood_weight=rng.integers(1, 9, n_ood) / 4 if weighted else None,
    )


SAMPLES = [random_sample(seed) for seed in range(28)]


def rows(sample):
    """Finite rows as (x, y, ID weight, OOD weight, loss weight), and the total weights."""
    u = np.ones(sample.n_id) if sample.id_weight is None else sample.id_weight
    v = np.ones(sample.n_ood) if sample.ood_weight is None else sample.ood_weight
    kept = [
        (*pair, w, 0.0, w * loss)
        for pair, w, loss in zip(sample.id_scores, u, sample.id_loss, strict=True)
    ]
    kept += [(*pair, 0.0, w, 0.0) for pair, w in zip(sample.ood_scores, v, strict=True)]
    finite = [row for row in kept if max(row[:2]) < INF]
    return [tuple(map(Fraction, row)) for row in finite], Fraction(u.sum()), Fraction(v.sum())


def directions(points):
    """One direction for every order of the points, the axes, and those that tie points."""
    critical = {
        (b[0] - a[0]) / (a[1] - b[1])
        for a in points
        for b in points
        if a[1] != b[1] and (b[0] - a[0]) / (a[1] - b[1]) > 0
    }
    edges = [Fraction(0), *sorted(critical)]
    between = [(a + b) / 2 for a, b in pairwise(edges)] + [edges[-1] + 1]
    mus = between + sorted(critical)
    return [(Fraction(1), mu) for mu in mus] + [(1, 0), (0, 1)]


def swept(points, direction):
    """(ID, OOD, loss) weight accepted at every threshold, from nothing accepted on."""
    p, q = direction
    values = [p * row[0] + q * row[1] for row in points]
    path = [(Fraction(0),) * 3]
    for t in sorted(set(values)):
        accepted = [row for row, v in zip(points, values, strict=True) if v <= t]
        path.append(tuple(sum(row[k] for row in accepted) for k in (2, 3, 4)))
    return path


def all_rules(sample):
    points, total_id, total_ood = rows(sample)
    rules = {rule for d in directions(points) for rule in swept(points, d)}
    return rules, total_id, total_ood


def value_at(curve, x):
    """Read a staircase, None where it has no value."""
    if curve.interpolation == "previous":
        below = np.flatnonzero(curve.x <= x + 1e-12)
        return curve.y[below[-1]] if len(below) else None
    assert curve.interpolation == "next"
    above = np.flatnonzero(curve.x >= x - 1e-12)
    return curve.y[above[0]] if len(above) else None


def area_under(levels, heights):
    return sum((b - a) * y for (a, b), y in zip(pairwise(levels), heights, strict=True))


def same(value, expected):
    return value is None if expected is None else value == pytest.approx(float(expected), abs=1e-12)


LEVELS = [Fraction(k, 24) for k in range(25)]


@pytest.mark.parametrize("seed", range(len(SAMPLES)))
def test_roc_curve_is_the_largest_tpr_at_each_fpr(seed):
    sample = SAMPLES[seed]
    rules, total_id, total_ood = all_rules(sample)
    curve = roc_curve(sample)
    for bound in LEVELS:
        best = max(nI for nI, nO, _ in rules if nO <= bound * total_ood) / total_id
        assert same(value_at(curve, float(bound)), best)
    levels = sorted({nO for _, nO, _ in rules} | {total_ood})
    best = [max(nI for nI, nO, _ in rules if nO <= level) for level in levels]
    area = area_under(levels, best[:-1])
    assert metrics.auroc(sample) == pytest.approx(float(area / total_id / total_ood), abs=1e-12)
    for i in range(len(curve)):
        point = evaluate(curve.rule(i), sample)
        assert (curve.x[i], curve.y[i]) == (point.fpr, point.tpr)


@pytest.mark.parametrize("seed", range(len(SAMPLES)))
@pytest.mark.parametrize("prior", [None, 0.25])
def test_precision_recall_curve_is_the_largest_precision_at_each_recall(seed, prior):
    sample = SAMPLES[seed]
    rules, total_id, total_ood = all_rules(sample)
    pi = total_ood / (total_id + total_ood) if prior is None else Fraction(1, 4)

    def precision(nI, nO):
        id_, ood = (1 - pi) * nI / total_id, pi * nO / total_ood
        return id_ / (id_ + ood)

    curve = precision_recall_curve(sample, ood_prior=prior)
    assert curve.ood_prior == pytest.approx(float(pi))
    known = [(nI, precision(nI, nO)) for nI, nO, _ in rules if nI]
    for bound in LEVELS:
        best = max((p for nI, p in known if nI >= bound * total_id), default=None)
        assert same(value_at(curve, float(bound)), best)
    levels = [0, *sorted({nI for nI, _ in known})]
    best = [max((p for nI, p in known if nI >= level), default=None) for level in levels]
    area = area_under(levels, best[1:])
    # Out of reach of all rules: everything is accepted.
    area += (total_id - levels[-1]) * precision(total_id, total_ood)
    for method in ("trapezoid", "average_precision"):
        aupr = metrics.aupr(sample, ood_prior=prior, method=method)
        assert aupr == pytest.approx(float(area / total_id), abs=1e-12)
    for i in range(len(curve)):
        point = evaluate(curve.rule(i), sample, ood_prior=float(pi))
        assert (curve.x[i], curve.y[i]) == pytest.approx((point.tpr, point.precision))


@pytest.mark.parametrize("seed", range(len(SAMPLES)))
@pytest.mark.parametrize("max_fpr", [0, 0.5, 1])
def test_risk_coverage_curve_is_the_smallest_risk_at_each_coverage(seed, max_fpr):
    sample = SAMPLES[seed]
    rules, total_id, total_ood = all_rules(sample)
    known = [(nI, L / nI) for nI, nO, L in rules if nI and nO <= Fraction(max_fpr) * total_ood]
    curve = risk_coverage_curve(sample, max_fpr=max_fpr)
    for bound in LEVELS:
        best = min((r for nI, r in known if nI >= bound * total_id), default=None)
        assert same(value_at(curve, float(bound)), best)
    if known:
        assert curve.attainable[1] == pytest.approx(float(max(known)[0] / total_id))
    for i in range(len(curve)):
        point = evaluate(curve.rule(i), sample)
        assert (curve.x[i], curve.y[i]) == (point.tpr, point.selective_risk)
        assert point.fpr <= max_fpr


@pytest.mark.parametrize("seed", range(len(SAMPLES)))
@pytest.mark.parametrize("per", ["accepted", "all"])
def test_ccr_fpr_curve_is_the_largest_rate_at_equal_fpr(seed, per):
    sample = SAMPLES[seed]
    points, total_id, total_ood = rows(sample)
    paths = [swept(points, d) for d in directions(points)]

    def rate(nI, L):
        if per == "all":
            return (nI - L) / total_id
        return 1 - L / nI if nI else None

    def best_at(level):
        spent = [[p for p in path if p[1] <= level][-1] for path in paths]
        rates = [r for nI, _, L in spent if (r := rate(nI, L)) is not None]
        return max(rates, default=None)

    curve = ccr_fpr_curve(sample, per=per)
    levels = sorted({nO for path in paths for _, nO, _ in path} | {total_ood})
    for level in levels:
        assert same(value_at(curve, float(level / total_ood)), best_at(level))
        ccr = metrics.ccr_at_fpr(sample, level / total_ood, per=per)
        assert same(None if math.isnan(ccr) else ccr, best_at(level))
    best = [best_at(level) for level in levels]
    first = next((y for y in best if y is not None), None)
    oscr = metrics.oscr(sample, per=per)
    if first is None:
        assert math.isnan(oscr)
    else:
        filled = [first if y is None else y for y in best]
        area = area_under(levels, filled[:-1]) / total_ood
        assert oscr == pytest.approx(float(area), abs=1e-12)
    for i in range(len(curve)):
        point = evaluate(curve.rule(i), sample)
        ccr = rate(Fraction(point.accepted_id), Fraction(point.accepted_loss))
        assert curve.y[i] == pytest.approx(float(ccr))
        assert point.fpr <= curve.x[i] + 1e-12


@pytest.mark.parametrize("seed", range(len(SAMPLES)))
def test_numbers_at_one_operating_point(seed):
    sample = SAMPLES[seed]
    rules, total_id, total_ood = all_rules(sample)
    for bound in (0, 0.3, 0.5, 0.95, 1):
        asked = Fraction(str(bound)) * total_id
        least = min((nO for nI, nO, _ in rules if nI >= asked), default=None)
        fpr = metrics.fpr_at_tpr(sample, bound)
        if least is None:
            assert math.isnan(fpr)
        else:
            assert fpr == pytest.approx(float(least / total_ood))
    best = max(2 * nI / (nI + nO + total_id) for nI, nO, _ in rules)
    assert metrics.f1(sample) == pytest.approx(float(best))


@pytest.mark.parametrize("seed", range(8))
def test_two_scores_are_never_worse_than_one_at_its_operating_points(seed):
    rng = np.random.default_rng(seed)
    discrete = seed % 2 == 0
    a, b = rng.normal(size=(25, 2)), rng.normal(0.7, size=(20, 2))
    sample = Sample(a.round(1) if discrete else a, rng.random(25) < 0.3, ood_scores=b.round(1))
    for column in (0, 1):
        one = sample.score(column)
        for curve_of, sign in (
            (roc_curve, 1),
            (precision_recall_curve, 1),
            (risk_coverage_curve, -1),
        ):
            single, double = curve_of(one), curve_of(sample)
            for x, y in zip(single.x, single.y, strict=True):
                assert sign * value_at(double, x) >= sign * y - 1e-12
        for per in ("accepted", "all"):
            for level in np.arange(0, 21, 4) / 20:
                ccr = metrics.ccr_at_fpr(one, level, per=per)
                assert not metrics.ccr_at_fpr(sample, level, per=per) < ccr
    if not discrete:
        one, other = sample.score(0), sample.score(1)
        assert metrics.auroc(sample) >= max(metrics.auroc(one), metrics.auroc(other)) - 1e-12
        single = max(metrics.oscr(one, per="all"), metrics.oscr(other, per="all"))
        assert metrics.oscr(sample, per="all") >= single - 1e-12


def test_a_constant_second_score_changes_nothing():
    rng = np.random.default_rng(1)
    a, b, loss = rng.normal(size=40), rng.normal(0.5, size=30), rng.random(40) < 0.3
    one = Sample(a, loss, ood_scores=b)
    two = Sample(
        np.column_stack([a, np.ones(40)]), loss, ood_scores=np.column_stack([b, np.ones(30)])
    )
    assert metrics.auroc(two) == pytest.approx(metrics.auroc(one))
    assert metrics.oscr(two) == pytest.approx(metrics.oscr(one))
    assert metrics.oscr(two, per="all") == pytest.approx(metrics.oscr(one, per="all"))
    assert metrics.fpr_at_tpr(two, 0.9) == metrics.fpr_at_tpr(one, 0.9)
    assert metrics.ccr_at_fpr(two, 0.2) == metrics.ccr_at_fpr(one, 0.2)
    assert metrics.f1(two) == pytest.approx(metrics.f1(one))


def test_risk_coverage_points_are_what_tune_finds():
    rng = np.random.default_rng(2)
    sample = Sample(
        rng.normal(size=(40, 2)), rng.random(40), ood_scores=rng.normal(1, size=(30, 2))
    )
    curve = risk_coverage_curve(sample, max_fpr=0.3)
    for tpr in (0.1, 0.35, 0.5, curve.attainable[1]):
        risk = metrics.selective_risk_at(sample, TprFprModel(tpr, 0.3))
        assert value_at(curve, tpr) == risk
    assert math.isnan(
        metrics.selective_risk_at(sample, TprFprModel(curve.attainable[1] + 0.01, 0.3))
    )


def test_a_grid_sweeps_its_directions_only():
    rng = np.random.default_rng(3)
    sample = Sample(
        rng.normal(size=(60, 2)), rng.random(60) < 0.3, ood_scores=rng.normal(1, size=(50, 2))
    )
    # Two angles are the two axes.
    for curve_of in (roc_curve, precision_recall_curve, risk_coverage_curve, ccr_fpr_curve):
        curve = curve_of(sample, search=Grid(2))
        assert {tuple(d) for d in curve.directions} <= {(1.0, 0.0), (0.0, 1.0)}
    exact, coarse, fine = (
        metrics.auroc(sample, search=search) for search in (Exact(), Grid(2), Grid(200))
    )
    assert exact >= fine > coarse
    best = max(metrics.ccr_at_fpr(sample.score(c), 0.4) for c in (0, 1))
    assert metrics.ccr_at_fpr(sample, 0.4, search=Grid(2)) == best
    curve = ccr_fpr_curve(sample, search=Grid(7))
    for i in range(len(curve)):
        point = evaluate(curve.rule(i), sample)
        assert (curve.x[i], curve.y[i]) == pytest.approx((point.fpr, 1 - point.selective_risk))


def test_evaluate_on_reads_the_same_rules_elsewhere():
    rng = np.random.default_rng(4)

    def draw():
        return Sample(
            rng.normal(size=(50, 2)).round(1),
            rng.random(50) < 0.3,
            ood_scores=rng.normal(1, size=(40, 2)).round(1),
        )

    sample, other = draw(), draw()
    for curve_of in (roc_curve, precision_recall_curve, risk_coverage_curve, ccr_fpr_curve):
        tuned, read = curve_of(sample), curve_of(sample, evaluate_on=other)
        np.testing.assert_array_equal(tuned.directions, read.directions)
        np.testing.assert_array_equal(tuned.thresholds, read.thresholds)
        assert read.interpolation == "none"
        for i in range(len(read)):
            point = evaluate(tuned.rule(i), other, ood_prior=4 / 9)
            x, y = {
                "TPR": (point.fpr, point.tpr),
                "precision": (point.tpr, point.precision),
                "selective risk": (point.tpr, point.selective_risk),
                "CCR per accepted ID": (point.fpr, 1 - point.selective_risk),
            }[read.y_label]
            assert (read.x[i], read.y[i]) == pytest.approx((x, y), nan_ok=True)


def test_scores_a_few_ulps_apart_still_get_attainable_points():
    rng = np.random.default_rng(7)
    step = np.finfo(float).eps
    for _ in range(20):
        sample = Sample(
            1 + step * rng.integers(0, 6, (8, 2)),
            rng.random(8) < 0.4,
            ood_scores=1 + step * rng.integers(1, 7, (6, 2)),
        )
        for curve_of in (roc_curve, risk_coverage_curve, ccr_fpr_curve):
            curve = curve_of(sample)
            for i in range(len(curve)):
                point = evaluate(curve.rule(i), sample)
                x, y = {
                    "TPR": (point.fpr, point.tpr),
                    "selective risk": (point.tpr, point.selective_risk),
                    "CCR per accepted ID": (point.fpr, 1 - point.selective_risk),
                }[curve.y_label]
                assert curve.y[i] == pytest.approx(y)
                assert x <= curve.x[i] + 1e-12


def test_empty_and_infinite():
    bare = Sample([[0.1, 0.2], [0.3, 0.1]], [0, 1])
    assert math.isnan(metrics.auroc(bare))
    assert math.isnan(metrics.oscr(bare))
    assert risk_coverage_curve(bare).x.tolist() == [0.5, 1]
    lost = Sample([[INF, 0.2], [0.3, INF]], [0, 1], ood_scores=[[0, 0]])
    assert metrics.auroc(lost) == 0
    assert math.isnan(metrics.oscr(lost))
    assert metrics.oscr(lost, per="all") == 0
    assert math.isnan(metrics.fpr_at_tpr(lost, 0.5))
    assert metrics.f1(lost) == 0


def test_named_sets():
    rng = np.random.default_rng(8)
    near, far = rng.normal(0.5, size=(10, 2)), rng.normal(2, size=(12, 2))
    a, loss = rng.normal(size=(20, 2)), rng.random(20) < 0.4
    sample = Sample(a, loss, ood_scores={"near": near, "far": far})
    for name, scores in {"near": near, "far": far}.items():
        assert metrics.auroc(sample.for_ood(name)) == metrics.auroc(Sample(a, loss, scores))
    pooled = Sample(a, loss, np.vstack([near, far]))
    assert metrics.auroc(sample) == metrics.auroc(pooled)
    model = TprFprModel(0.5, 0.4)
    worst = metrics.selective_risk_at(sample, model, ood="worst")
    assert worst == tune(sample, model, ood="worst").point.selective_risk
