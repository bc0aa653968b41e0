"""Curves of two scores on a source are those of its rows in memory, at the levels asked for."""

import duckdb
import numpy as np
import pytest
from scored_tables import SETS, table_of
from streams import random_sample

import demur as dm
from demur import metrics
from demur.sources.engines.duckdb import DuckDBSource
from demur.sources.engines.frames import ArraySource

LEVELS = [0, 0.03, 0.1, 0.25, 0.5, 0.77, 1]


def read(curve, level):
    """The value of a staircase at a level; NaN where no rule attains it."""
    if curve.interpolation == "previous":
        below = np.flatnonzero(curve.x <= level + 1e-12)
        return curve.y[below[-1]] if len(below) else np.nan
    above = np.flatnonzero(curve.x >= level - 1e-12)
    return curve.y[above[0]] if len(above) else np.nan


def check(source, sample):
    """Compare all three curves at the levels, and what their rules accept."""
    n_ood = sum(rows.stop - rows.start for rows in sample.ood_sets.values())
    weight = n_ood if sample.ood_weight is None else sample.ood_weight.sum()
    drawn = [(metrics.risk_coverage_curve, {}), (metrics.risk_coverage_curve, {"max_fpr": 0.2})]
    if weight:
        drawn += [(metrics.roc_curve, {}), (metrics.precision_recall_curve, {"ood_prior": 0.3})]
    for draw, options in drawn:
        there, here = draw(source, levels=LEVELS, **options), draw(sample, **options)
        assert there.interpolation == here.interpolation
        for level in LEVELS:
            assert read(there, level) == pytest.approx(read(here, level), nan_ok=True), draw
        for i in range(len(there)):
            point = dm.evaluate(there.rule(i), sample, ood_prior=options.get("ood_prior"))
            name = {"TPR": "tpr", "precision": "precision"}.get(there.y_label, "selective_risk")
            assert getattr(point, name) == pytest.approx(there.y[i], nan_ok=True)


@pytest.mark.parametrize("seed", range(SETS or 8))
def test_arrays(seed):
    sample = random_sample(np.random.default_rng(5000 + seed), most=120)
    check(ArraySource(sample), sample)


def test_duckdb():
    rng = np.random.default_rng(5)
    sample = random_sample(rng, most=200)
    table, roles = table_of(sample, rng)
    with duckdb.connect() as connection:
        source = DuckDBSource(connection.from_arrow(table), roles)
        check(source, sample)
        there, here = (dm.frontier(s, min_tpr=LEVELS, max_fpr=LEVELS) for s in (source, sample))
        np.testing.assert_array_equal(there.accepted_id, here.accepted_id)
        np.testing.assert_array_equal(there.selective_risk, here.selective_risk)


def test_percent_levels_by_default():
    rng = np.random.default_rng(3)
    sample = dm.Sample(rng.normal(size=(400, 2)), rng.random(400) < 0.2, rng.normal(1, 1, (300, 2)))
    there, here = (metrics.roc_curve(s) for s in (ArraySource(sample), sample))
    assert 50 < len(there) <= 102
    for percent in range(101):
        assert read(there, percent / 100) == read(here, percent / 100)


def test_what_a_source_cannot_do():
    sample = dm.Sample([[0, 1], [1, 0]], [0, 1], [[2, 2], [0, 3]])
    source = ArraySource(sample)
    with pytest.raises(dm.InvalidInputError, match="levels are for a source"):
        metrics.roc_curve(sample, levels=[0.5])
    with pytest.raises(dm.InvalidInputError, match="need a Sample"):
        metrics.roc_curve(source, evaluate_on=sample)
    with pytest.raises(dm.InvalidInputError, match="need a Sample"):
        metrics.risk_coverage_curve(source, search=dm.Grid(5))
    with pytest.raises(dm.InvalidInputError, match="ascending"):
        metrics.precision_recall_curve(source, levels=[0.5, 0.1])
    with pytest.raises(dm.InvalidInputError, match="distinct_rows"):
        metrics.roc_curve(ArraySource(sample.score(0)))
    with pytest.raises(dm.InvalidInputError, match="no OOD rows"):
        metrics.roc_curve(ArraySource(dm.Sample([[0, 1], [1, 0]], [0, 1])))
