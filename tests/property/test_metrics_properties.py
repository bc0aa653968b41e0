"""What must not change a metric, and what must change it in a known way."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demur import Sample, metrics

SINGLE = {
    "auroc": metrics.auroc,
    "aupr": lambda s: metrics.aupr(s, ood_prior=0.3),
    "average precision": lambda s: metrics.aupr(s, method="average_precision"),
    "oscr": metrics.oscr,
    "oscr all": lambda s: metrics.oscr(s, per="all"),
    "fpr at tpr": lambda s: metrics.fpr_at_tpr(s, 0.8),
    "ccr at fpr": lambda s: metrics.ccr_at_fpr(s, 0.3),
    "ccr at fpr all": lambda s: metrics.ccr_at_fpr(s, 0.3, per="all"),
    "f1": metrics.f1,
    "aurc": metrics.aurc,
    "augrc": metrics.augrc,
}
DOUBLE = {name: metric for name, metric in SINGLE.items() if name not in ("aurc", "augrc")}

small = settings(max_examples=25, deadline=None)


@st.composite
def columns(draw, scores):
    """ID scores, losses, OOD scores and integer weights of a few rows."""
    value = st.integers(0, 6).map(float) | st.just(math.inf)
    row = st.lists(value, min_size=scores, max_size=scores)
    id_scores = draw(st.lists(row, min_size=1, max_size=8))
    ood_scores = draw(st.lists(row, min_size=1, max_size=7))
    loss = draw(st.lists(st.integers(0, 1), min_size=len(id_scores), max_size=len(id_scores)))
    weight = st.integers(1, 3)
    u = draw(st.lists(weight, min_size=len(id_scores), max_size=len(id_scores)))
    v = draw(st.lists(weight, min_size=len(ood_scores), max_size=len(ood_scores)))
    return np.array(id_scores), np.array(loss, float), np.array(ood_scores), u, v


def values(sample):
    chosen = SINGLE if sample.n_scores == 1 else DOUBLE
    return {name: metric(sample) for name, metric in chosen.items()}


def same(a, b):
    assert a == pytest.approx(b, abs=1e-12, nan_ok=True)


@pytest.mark.parametrize("scores", [1, 2])
@small
@given(data=st.data())
def test_a_weight_is_a_number_of_copies(scores, data):
    a, loss, b, u, v = data.draw(columns(scores))
    weighted = Sample(a, loss, ood_scores=b, id_weight=u, ood_weight=v)
    copied = Sample(np.repeat(a, u, axis=0), np.repeat(loss, u), np.repeat(b, v, axis=0))
    same(values(weighted), values(copied))


@pytest.mark.parametrize("scores", [1, 2])
@small
@given(data=st.data(), seed=st.integers(0, 99))
def test_neither_order_nor_units_nor_repetition_matter(scores, data, seed):
    a, loss, b, _, _ = data.draw(columns(scores))
    expected = values(Sample(a, loss, ood_scores=b))
    rng = np.random.default_rng(seed)
    i, j = rng.permutation(len(a)), rng.permutation(len(b))
    same(values(Sample(a[i], loss[i], ood_scores=b[j])), expected)
    scale, shift = np.array([1024.0, 3.0])[:scores], np.array([-7.0, 1.0])[:scores]
    same(values(Sample(a * scale + shift, loss, ood_scores=b * scale + shift)), expected)
    same(values(Sample(np.tile(a, (3, 1)), np.tile(loss, 3), np.tile(b, (3, 1)))), expected)


@small
@given(data=st.data())
def test_one_score_counts_by_rank_only(data):
    a, loss, b, _, _ = data.draw(columns(1))
    expected = values(Sample(a, loss, ood_scores=b))
    same(values(Sample(np.exp(a), loss, ood_scores=np.exp(b))), expected)


@small
@given(data=st.data())
def test_exchanging_id_and_ood_complements_auroc(data):
    a, loss, b, u, v = data.draw(columns(1))
    there = metrics.auroc(Sample(a, loss, ood_scores=b, id_weight=u, ood_weight=v))
    back = metrics.auroc(Sample(b, np.zeros(len(b)), ood_scores=a, id_weight=v, ood_weight=u))
    assert there + back == pytest.approx(1)


@small
@given(data=st.data())
def test_exchanging_the_scores_changes_nothing(data):
    a, loss, b, _, _ = data.draw(columns(2))
    one, other = Sample(a, loss, ood_scores=b), Sample(a[:, ::-1], loss, ood_scores=b[:, ::-1])
    same(values(one), values(other))


@pytest.mark.parametrize("scores", [1, 2])
@small
@given(data=st.data())
def test_correct_and_accepted_never_exceeds_correct_among_accepted(scores, data):
    a, loss, b, u, v = data.draw(columns(scores))
    sample = Sample(a, loss, ood_scores=b, id_weight=u, ood_weight=v)
    accepted, all_id = metrics.oscr(sample), metrics.oscr(sample, per="all")
    assert math.isnan(accepted) or all_id <= accepted + 1e-12
    assert all_id <= min(metrics.id_accuracy(sample), metrics.auroc(sample)) + 1e-12
