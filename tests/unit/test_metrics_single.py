"""Single-score metrics against plain loops over rows."""

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import auc, average_precision_score, roc_auc_score
from sklearn.metrics import precision_recall_curve as sklearn_precision_recall_curve

from demur import InvalidInputError, Prepared, Sample, TprFprModel, metrics, prepare, tune

INF = math.inf


def random_sample(seed, *, infinite=False, weighted=False, distinct=6):
    rng = np.random.default_rng(seed)
    n_id, n_ood = rng.integers(1, 15, 2)
    id_scores = rng.integers(0, distinct, n_id) / 4
    ood_scores = rng.integers(0, distinct, n_ood) / 4 + rng.choice([0, 0.25])
    if infinite:
        id_scores[rng.random(n_id) < 0.3] = INF
        ood_scores[rng.random(n_ood) < 0.3] = INF
    return Sample(
        id_scores,
        rng.random(n_id) < 0.4,
        ood_scores=ood_scores,
        id_weight=rng.integers(1, 9, n_id) / 4 if weighted else None,
        ood_weight=rng.integers(1, 9, n_ood) / 4 if weighted else None,
    )


SAMPLES = [
    random_sample(seed, infinite=seed % 3 == 1, weighted=seed % 2 == 1, distinct=3 + seed % 17)
    for seed in range(30)
]


def rows(sample):
    """ID rows (score, loss, weight) and OOD rows (score, weight)."""
    ones = np.ones(sample.n_id), np.ones(sample.n_ood)
    id_weight = ones[0] if sample.id_weight is None else sample.id_weight
    ood_weight = ones[1] if sample.ood_weight is None else sample.ood_weight
    id_rows = list(zip(sample.id_scores[:, 0], sample.id_loss, id_weight, strict=True))
    return id_rows, list(zip(sample.ood_scores[:, 0], ood_weight, strict=True))


def path(sample, with_infinite=True):
    """(accepted ID, OOD, loss weight) after each distinct score, from nothing accepted on."""
    id_rows, ood_rows = rows(sample)
    scores = sorted({r[0] for r in id_rows} | {r[0] for r in ood_rows})
    points = [(0.0, 0.0, 0.0)]
    for t in scores:
        if t < INF or with_infinite:
            points.append(
                (
                    sum(w for s, _, w in id_rows if s <= t),
                    sum(w for s, w in ood_rows if s <= t),
                    sum(w * loss for s, loss, w in id_rows if s <= t),
                )
            )
    return points


def totals(sample):
    id_rows, ood_rows = rows(sample)
    return sum(w for *_, w in id_rows), sum(w for _, w in ood_rows)


def trapezoid(points):
    return sum((x1 - x0) * (y0 + y1) / 2 for (x0, y0), (x1, y1) in pairwise(points))


def precision_at(nI, nO, total_id, total_ood, prior):
    if nI + nO == 0:
        return 1.0
    id_, ood = (1 - prior) * nI / total_id, prior * nO / total_ood
    return id_ / (id_ + ood)


@pytest.mark.parametrize("sample", SAMPLES)
def test_auroc_counts_pairs(sample):
    id_rows, ood_rows = rows(sample)
    won = sum(
        w * v * (1 if s < t else 0.5 if s == t else 0) for s, _, w in id_rows for t, v in ood_rows
    )
    total_id, total_ood = totals(sample)
    assert metrics.auroc(sample) == pytest.approx(won / (total_id * total_ood), abs=1e-14)


def test_auroc_with_huge_masses_and_with_counts_agree():
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 50, 300), rng.integers(10, 60, 200)
    plain = Sample(a, np.zeros(300), ood_scores=b)
    weighted = Sample(
        a, np.zeros(300), ood_scores=b, id_weight=np.full(300, 0.1), ood_weight=np.full(200, 0.3)
    )
    assert metrics.auroc(weighted) == pytest.approx(metrics.auroc(plain), abs=1e-13)


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("prior", [None, 0.25, 0])
def test_aupr(sample, prior):
    total_id, total_ood = totals(sample)
    pi = total_ood / (total_id + total_ood) if prior is None else prior
    curve = [
        (nI / total_id, precision_at(nI, nO, total_id, total_ood, pi))
        for nI, nO, _ in path(sample)
        if pi > 0 or nI > 0 or nO == 0
    ]
    steps = sum((x1 - x0) * y1 for (x0, _), (x1, y1) in pairwise(curve))
    assert metrics.aupr(sample, ood_prior=prior) == pytest.approx(trapezoid(curve), abs=1e-13)
    average = metrics.aupr(sample, method="average_precision", ood_prior=prior)
    assert average == pytest.approx(steps, abs=1e-13)


@pytest.mark.parametrize("sample", SAMPLES)
def test_oscr_over_all_id_counts_correct_pairs(sample):
    id_rows, ood_rows = rows(sample)
    won = sum(
        w * v * (1 - loss) * (1 if s < t else 0.5 if s == t else 0)
        for s, loss, w in id_rows
        for t, v in ood_rows
    )
    total_id, total_ood = totals(sample)
    expected = won / (total_id * total_ood)
    assert metrics.oscr(sample, per="all") == pytest.approx(expected, abs=1e-13)


@pytest.mark.parametrize("sample", SAMPLES)
def test_oscr_over_accepted_id(sample):
    _, total_ood = totals(sample)
    points = [(nO / total_ood, 1 - L / nI if nI else None) for nI, nO, L in path(sample)]
    first = next(y for _, y in points if y is not None)
    filled = [(x, first if y is None else y) for x, y in points]
    assert metrics.oscr(sample) == pytest.approx(trapezoid(filled), abs=1e-13)


@pytest.mark.parametrize("sample", SAMPLES)
def test_aurc_and_augrc(sample):
    id_rows, _ = rows(sample)
    total = sum(w for *_, w in id_rows)

    def risk_up_to(t):
        accepted = [(loss, w) for s, loss, w in id_rows if s <= t]
        return sum(loss * w for loss, w in accepted) / sum(w for _, w in accepted)

    mean_risk = sum(w * risk_up_to(s) for s, _, w in id_rows) / total
    assert metrics.aurc(sample) == pytest.approx(mean_risk, abs=1e-13)
    # Each loss counts for the coverage that lies behind it, half for ties and for itself.
    behind = sum(
        w * loss * v * (1 if s < t else 0.5 if s == t else 0)
        for s, loss, w in id_rows
        for t, _, v in id_rows
    )
    assert metrics.augrc(sample) == pytest.approx(behind / total**2, abs=1e-13)


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("target", [0, 0.3, 0.5, 0.95, 1])
def test_fpr_at_tpr_takes_the_first_threshold(sample, target):
    total_id, total_ood = totals(sample)
    asked = Fraction(str(target)) * Fraction(total_id)
    reached = [nO for nI, nO, _ in path(sample, with_infinite=False) if Fraction(nI) >= asked]
    fpr = metrics.fpr_at_tpr(sample, target)
    if reached:
        assert fpr == pytest.approx(reached[0] / total_ood, abs=1e-15)
        assert metrics.tnr_at_tpr(sample, target) == 1 - fpr
    else:
        assert math.isnan(fpr)
        assert math.isnan(metrics.tnr_at_tpr(sample, target))


def test_bounds_are_decimals():
    sample = Sample(np.arange(100), np.zeros(100), ood_scores=np.arange(100) + 0.5)
    # 0.07 * 100 > 7 and 0.29 * 100 < 29 in floats.
    assert metrics.fpr_at_tpr(sample, 0.07) == 0.06
    assert metrics.ccr_at_fpr(sample, 0.29, per="all") == 0.3


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("target", [0, 0.2, 0.5, 1])
def test_ccr_at_fpr_takes_the_largest_threshold(sample, target):
    total_id, total_ood = totals(sample)
    bound = Fraction(str(target)) * Fraction(total_ood)
    within = [p for p in path(sample, with_infinite=False) if Fraction(p[1]) <= bound]
    nI, _, L = within[-1]
    ccr = metrics.ccr_at_fpr(sample, target)
    assert ccr == pytest.approx(1 - L / nI, abs=1e-14) if nI else math.isnan(ccr)
    per_all = metrics.ccr_at_fpr(sample, target, per="all")
    assert per_all == pytest.approx((nI - L) / total_id, abs=1e-14)


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("prior", [None, 0.25, 0])
def test_f1(sample, prior):
    total_id, total_ood = totals(sample)
    pi = total_ood / (total_id + total_ood) if prior is None else prior
    best = 0.0
    for nI, nO, _ in path(sample, with_infinite=False)[1:]:
        if nI:
            p, r = precision_at(nI, nO, total_id, total_ood, pi), nI / total_id
            best = max(best, 2 * p * r / (p + r))
    assert metrics.f1(sample, ood_prior=prior) == pytest.approx(best, abs=1e-14)


@pytest.mark.parametrize("sample", SAMPLES)
def test_id_accuracy_and_ood_share(sample):
    id_rows, _ = rows(sample)
    total_id, total_ood = totals(sample)
    correct = sum(w for _, loss, w in id_rows if loss == 0)
    assert metrics.id_accuracy(sample) == pytest.approx(correct / total_id, abs=1e-15)
    assert metrics.ood_share(sample) == pytest.approx(total_ood / (total_id + total_ood))


@pytest.mark.parametrize("seed", range(40))
def test_scikit_learn_agrees(seed):
    rng = np.random.default_rng(seed)
    n_id, n_ood = rng.integers(1, 200, 2)
    a, b = rng.normal(size=n_id), rng.normal(0.5, size=n_ood)
    if seed % 2:
        a, b = a.round(1), b.round(1)
    u, v = (rng.random(n_id), rng.random(n_ood)) if seed % 3 == 0 else (None, None)
    sample = Sample(a, np.zeros(n_id), ood_scores=b, id_weight=u, ood_weight=v)
    y, s = np.r_[np.ones(n_id), np.zeros(n_ood)], -np.r_[a, b]
    w = None if u is None else np.r_[u, v]
    assert metrics.auroc(sample) == pytest.approx(roc_auc_score(y, s, sample_weight=w), abs=1e-12)
    average = metrics.aupr(sample, method="average_precision")
    expected = average_precision_score(y, s, sample_weight=w)
    assert average == pytest.approx(expected, abs=1e-12)
    precision, recall, _ = sklearn_precision_recall_curve(y, s, sample_weight=w)
    assert metrics.aupr(sample) == pytest.approx(auc(recall, precision), abs=1e-12)


@pytest.mark.parametrize("weight", [None, []])
def test_without_ood_rows_numbers_are_nan(weight):
    sample = Sample([0.1, 0.2, 0.3], [0, 1, 0], ood_scores=None, ood_weight=weight)
    assert math.isnan(metrics.auroc(sample))
    assert math.isnan(metrics.aupr(sample))
    assert math.isnan(metrics.aupr(sample, ood_prior=0.25))
    assert math.isnan(metrics.oscr(sample))
    assert math.isnan(metrics.oscr(sample, per="all"))
    assert math.isnan(metrics.fpr_at_tpr(sample, 0.5))
    assert math.isnan(metrics.tnr_at_tpr(sample, 0))
    assert math.isnan(metrics.ccr_at_fpr(sample, 0.5))
    assert math.isnan(metrics.f1(sample))
    assert metrics.id_accuracy(sample) == pytest.approx(2 / 3)
    assert metrics.aurc(sample) == pytest.approx((0 + 1 / 2 + 1 / 3) / 3)
    assert metrics.ood_share(sample) == 0


def test_ood_rows_without_weight_are_none():
    sample = Sample([0.1, 0.2], [0, 1], ood_scores=[0.3], ood_weight=[0])
    assert math.isnan(metrics.auroc(sample))


def test_constant_scores_cannot_rank():
    sample = Sample([1, 1, 1, 1], [0, 1, 0, 0], ood_scores=[1, 1])
    assert metrics.auroc(sample) == 0.5
    assert metrics.aupr(sample, method="average_precision") == pytest.approx(4 / 6)
    assert metrics.oscr(sample) == 0.75
    assert metrics.oscr(sample, per="all") == 0.375
    assert metrics.fpr_at_tpr(sample, 0.01) == 1
    assert math.isnan(metrics.ccr_at_fpr(sample, 0.5))
    assert metrics.aurc(sample) == 0.25
    assert metrics.augrc(sample) == 0.125


def test_only_infinite_scores():
    sample = Sample([INF, INF], [0, 1], ood_scores=[INF, 1.0])
    assert metrics.auroc(sample) == 0.25
    assert math.isnan(metrics.fpr_at_tpr(sample, 0.5))
    assert metrics.f1(sample) == 0
    assert math.isnan(metrics.ccr_at_fpr(sample, 1))
    assert metrics.ccr_at_fpr(sample, 1, per="all") == 0


def test_selective_risk_at_is_what_tune_finds():
    sample = Sample([0.1, 0.2, 0.3, 0.9], [0, 3, 0, 1], ood_scores=[0.25, 0.8])
    model = TprFprModel(min_tpr=0.75, max_fpr=0.5)
    assert metrics.selective_risk_at(sample, model) == tune(sample, model).point.selective_risk == 1
    assert math.isnan(metrics.selective_risk_at(sample, TprFprModel(1, 0.5)))


def test_named_ood_sets_by_themselves_and_pooled():
    near, far = [0.15, 0.25, 0.35], [0.3, 0.9]
    sample = Sample([0.1, 0.2, 0.4], [0, 1, 0], ood_scores={"near": near, "far": far})
    for name, scores in {"near": near, "far": far}.items():
        alone = Sample([0.1, 0.2, 0.4], [0, 1, 0], ood_scores=scores)
        for metric in (metrics.auroc, metrics.aupr, metrics.oscr, metrics.f1):
            assert metric(sample.for_ood(name)) == metric(alone)
    pooled = 3 * metrics.auroc(sample.for_ood("near")) + 2 * metrics.auroc(sample.for_ood("far"))
    assert metrics.auroc(sample) == pytest.approx(pooled / 5)


def test_losses_other_than_0_and_1_have_no_accuracy():
    sample = Sample([0.1, 0.2], [0, 2.5], ood_scores=[0.3])
    for metric in (metrics.id_accuracy, metrics.oscr, metrics.ccr_fpr_curve):
        with pytest.raises(InvalidInputError, match=r"id_loss\[1\] is 2\.5"):
            metric(sample)
    assert metrics.aurc(sample) == pytest.approx(1.25 / 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda s: metrics.aupr(s, method="step"), "method must be"),
        (lambda s: metrics.aupr(s, ood_prior=1), "ood_prior must be in"),
        (lambda s: metrics.f1(s, ood_prior=-0.1), "ood_prior must be in"),
        (lambda s: metrics.oscr(s, per="id"), "per must be"),
        (lambda s: metrics.fpr_at_tpr(s, 1.2), "min_tpr must be in"),
        (lambda s: metrics.ccr_at_fpr(s, math.nan), "max_fpr must be"),
        (lambda s: metrics.risk_coverage_curve(s, max_fpr=2), "max_fpr must be in"),
        (lambda s: metrics.fpr_at_tpr(s, 0.5, search=360), "search must be"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call(Sample([0.1, 0.2], [0, 1], ood_scores=[0.3]))


@pytest.mark.parametrize("metric", [metrics.aurc, metrics.augrc])
def test_areas_of_one_score_refuse_two(metric):
    with pytest.raises(InvalidInputError, match="needs one score"):
        metric(Sample([[0.1, 0.2]], [0], ood_scores=[[0.3, 0.4]]))


SINGLE = [
    metrics.auroc,
    metrics.aupr,
    metrics.oscr,
    metrics.aurc,
    metrics.augrc,
    metrics.f1,
    metrics.summary,
    metrics.id_accuracy,
    metrics.ood_share,
    lambda sample: metrics.oscr(sample, per="all"),
    lambda sample: metrics.fpr_at_tpr(sample, 0.8),
    lambda sample: metrics.tnr_at_tpr(sample, 0.8),
    lambda sample: metrics.ccr_at_fpr(sample, 0.4),
    lambda sample: metrics.ccr_at_fpr(sample, 0.4, per="all"),
    metrics.roc_curve,
    metrics.precision_recall_curve,
    metrics.ccr_fpr_curve,
    metrics.risk_coverage_curve,
    lambda sample: metrics.roc_curve(sample, evaluate_on=sample),
]


@pytest.mark.parametrize("metric", SINGLE)
def test_one_score_is_sorted_and_not_prepared_for_searches(metric, monkeypatch):
    sample = Sample([0.1, 0.3, 0.2, 0.7], [0, 0, 1, 0], [0.2, 0.6, 0.9])

    def prepared(*arguments, **options):
        raise AssertionError("prepared for searches")

    monkeypatch.setattr(Prepared, "__init__", prepared)
    metric(sample)
    with pytest.raises(AssertionError, match="prepared"):
        metrics.auroc(Sample(np.eye(2), [0, 1], np.eye(2)))


def test_one_score_may_be_prepared_all_the_same():
    sample = Sample([0.1, 0.3, 0.2, 0.7], [0, 0, 1, 0], [0.2, 0.6, 0.9])
    ready = prepare(sample)
    for metric in (metrics.auroc, metrics.aupr, metrics.oscr, metrics.f1):
        assert metric(ready) == metric(sample)
    assert (metrics.roc_curve(ready).y == metrics.roc_curve(sample).y).all()


def test_a_wrong_search_is_told_of_one_score_too():
    sample = Sample([0.1, 0.3], [0, 0], [0.2])
    for metric in (metrics.f1, lambda s, search: metrics.fpr_at_tpr(s, 0.5, search=search)):
        with pytest.raises(InvalidInputError, match="search must be"):
            metric(sample, search=7)


def test_the_room_shows_its_public_names_only():
    assert dir(metrics) == sorted(metrics.__all__)
