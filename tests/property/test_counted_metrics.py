"""Metrics of one score on sources: exact on distinct rows, within the stated bound otherwise."""

import numpy as np
import pytest
from streams import random_sample

import demur as dm
from demur.metrics import auroc, roc_curve, summary
from demur.metrics.rules import auroc_within, distinct_rows
from demur.sources.engines.frames import ArraySource


def values(found):
    return [getattr(found, name) for name in type(found).__dataclass_fields__]


@pytest.mark.parametrize("seed", range(25))
def test_distinct_rows_have_all_metrics_of_the_rows(seed):
    sample = random_sample(np.random.default_rng(seed), scores=1)
    few = distinct_rows(ArraySource(sample))
    assert few.n_id <= sample.n_id and few.n_ood <= sample.n_ood
    assert values(summary(few)) == pytest.approx(values(summary(sample)), rel=1e-9, nan_ok=True)
    if sample.n_ood:
        one, other = roc_curve(few), roc_curve(sample)
        np.testing.assert_allclose(one.x, other.x, rtol=1e-12)
        np.testing.assert_allclose(one.y, other.y, rtol=1e-12)


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("bins", [2, 20])
def test_the_bound_on_auroc_holds(seed, bins):
    sample = random_sample(np.random.default_rng(seed), scores=1)
    found, exact = auroc_within(ArraySource(sample), bins=bins), auroc(sample)
    if np.isnan(exact):
        assert np.isnan(found.value) and np.isnan(found.error)
    else:
        assert abs(found.value - exact) <= found.error + 1e-12 <= 0.5 + 1e-12


def test_distinct_rows_must_fit():
    rng = np.random.default_rng(0)
    sample = dm.Sample(
        rng.normal(size=8000).round(2), np.zeros(8000), rng.normal(size=900).round(2)
    )
    source = ArraySource(sample, memory=2000 * 800)
    assert auroc(distinct_rows(source)) == pytest.approx(auroc(sample), abs=1e-15)
    crowded = dm.Sample(rng.normal(size=8000), np.zeros(8000), rng.normal(size=900))
    with pytest.raises(dm.InvalidInputError, match="more than 1,000 distinct rows"):
        distinct_rows(ArraySource(crowded, memory=1))


def test_one_score_only():
    with pytest.raises(dm.InvalidInputError, match="single score"):
        auroc_within(ArraySource(dm.Sample([[0, 1]], [0])))
