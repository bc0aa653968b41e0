"""Every cell of a frontier is what `tune` finds at its bounds."""

import math

import numpy as np
import pytest

from demur import (
    Grid,
    InfeasibleError,
    InvalidInputError,
    Sample,
    TprFprModel,
    evaluate,
    tune,
)
from demur.tuning.frontier import frontier

LEVELS = [0, 0.1, 0.3, 0.5, 0.75, 0.9, 1]


def masses(point):
    return point.accepted_id, point.accepted_ood, point.accepted_loss


def assert_is_tuned(surface, sample, levels=LEVELS, **options):
    for i, min_tpr in enumerate(levels):
        for j, max_fpr in enumerate(levels):
            found = tuple(
                grid[i, j]
                for grid in (surface.accepted_id, surface.accepted_ood, surface.accepted_loss)
            )
            try:
                # Without OOD rows any FPR bound is met, but `tune` refuses to be asked for one.
                asked = TprFprModel(min_tpr, max_fpr if sample.n_ood else 1)
                tuned = tune(sample, asked, **options)
            except InfeasibleError:
                assert np.isnan([*found, surface.selective_risk[i, j]]).all()
                with pytest.raises(InfeasibleError, match="no rule reaches"):
                    surface.rule(i, j)
                continue
            assert surface.selective_risk[i, j] == tuned.point.selective_risk
            assert found == masses(tuned.point)
            assert masses(evaluate(surface.rule(i, j), sample)) == found


def random_sample(seed, scores):
    rng = np.random.default_rng(seed)
    n_id, n_ood = int(rng.integers(1, 14)), int(rng.integers(0, 10))
    id_scores, ood_scores = rng.normal(size=(n_id, scores)), rng.normal(0.7, size=(n_ood, scores))
    if seed % 3:
        # Decimals make collinear points that differ by rounding only.
        id_scores, ood_scores = id_scores.round(seed % 3 - 1), ood_scores.round(seed % 3 - 1)
    if seed % 5 == 0:
        id_scores[rng.random((n_id, scores)) < 0.2] = math.inf
    weighted = seed % 4 == 0
    return Sample(
        id_scores,
        rng.random(n_id) if seed % 7 == 0 else rng.random(n_id) < 0.4,
        ood_scores=ood_scores,
        id_weight=rng.random(n_id) + 0.1 if weighted else None,
        ood_weight=rng.random(n_ood) if weighted else None,
    )


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("scores", [1, 2])
def test_cells_are_what_tune_finds(seed, scores):
    sample = random_sample(seed, scores)
    assert_is_tuned(frontier(sample, min_tpr=LEVELS, max_fpr=LEVELS), sample)


@pytest.mark.parametrize("directions", ["nonneg", "real", "paper", "circle"])
@pytest.mark.parametrize("search", [None, Grid(9)])
def test_direction_sets_and_grids(directions, search):
    rng = np.random.default_rng(1)
    sample = Sample(
        rng.normal(size=(15, 2)), rng.random(15) < 0.4, ood_scores=rng.normal(0.3, size=(12, 2))
    )
    options = {"directions": directions, "search": search}
    surface = frontier(sample, min_tpr=LEVELS, max_fpr=LEVELS, **options)
    assert_is_tuned(surface, sample, **options)


@pytest.mark.parametrize("scores", [1, 2])
def test_worst_set_bounds_every_set(scores):
    rng = np.random.default_rng(2)
    sample = Sample(
        rng.normal(size=(15, scores)),
        rng.random(15) < 0.4,
        ood_scores={
            "near": rng.normal(0.3, size=(9, scores)),
            "far": rng.normal(1, size=(5, scores)),
        },
    )
    surface = frontier(sample, min_tpr=LEVELS, max_fpr=LEVELS, ood="worst")
    assert_is_tuned(surface, sample, ood="worst")
    pooled = frontier(sample, min_tpr=LEVELS, max_fpr=LEVELS)
    assert not np.array_equal(surface.accepted_ood, pooled.accepted_ood, equal_nan=True)


def test_default_levels_are_exact_percents():
    sample = Sample(np.arange(100), np.arange(100) >= 7, ood_scores=np.arange(100) + 0.5)
    surface = frontier(sample)
    assert surface.selective_risk.shape == (101, 101)
    assert surface.min_tpr[7] == surface.max_fpr[7] == 0.07
    # 0.07 * 100 > 7 in floats, but 7 rows are enough, and 6 OOD rows are under them.
    assert surface.selective_risk[7, 6] == 0
    assert surface.accepted_id[7, 6] == 7
    assert np.isnan(surface.selective_risk[8, 6])
    assert repr(surface) == "Frontier(101 x 101 bounds, 5251 attainable)"
    expected = sum(1 for i in range(101) for j in range(101) if max(i, 1) <= j + 1)
    assert (~np.isnan(surface.selective_risk)).sum() == expected == 5251


@pytest.mark.parametrize("scores", [1, 2])
def test_looser_bounds_never_hurt(scores):
    rng = np.random.default_rng(3)
    sample = Sample(
        rng.normal(size=(120, scores)),
        rng.random(120) < 0.3,
        ood_scores=rng.normal(0.5, size=(90, scores)),
    )
    risk = np.nan_to_num(frontier(sample).selective_risk, nan=np.inf)
    assert (risk[:-1] <= risk[1:]).all()
    assert (risk[:, 1:] <= risk[:, :-1]).all()


def test_two_scores_are_never_worse_than_one():
    rng = np.random.default_rng(4)
    sample = Sample(
        rng.normal(size=(80, 2)).round(1),
        rng.random(80) < 0.3,
        ood_scores=rng.normal(0.5, size=(60, 2)).round(1),
    )
    double = np.nan_to_num(frontier(sample).selective_risk, nan=np.inf)
    for column in (0, 1):
        single = np.nan_to_num(frontier(sample.score(column)).selective_risk, nan=np.inf)
        assert (double <= single).all()


def test_quotients_that_floats_cannot_tell_apart():
    for seed in range(10):
        rng = np.random.default_rng(seed)
        n = 12
        sample = Sample(
            rng.integers(0, 5, (n, 2)),
            np.full(n, 1 / 3) + rng.integers(-1, 2, n) * 2.0**-52,
            ood_scores=rng.integers(0, 6, (8, 2)),
            id_weight=1 + rng.integers(0, 3, n) * 2.0**-44,
        )
        assert_is_tuned(frontier(sample, min_tpr=LEVELS, max_fpr=LEVELS), sample)


def test_scores_a_few_ulps_apart_give_rules_that_do_what_they_say():
    rng = np.random.default_rng(5)
    step = np.finfo(float).eps
    for _ in range(10):
        sample = Sample(
            1 + step * rng.integers(0, 6, (8, 2)),
            rng.random(8) < 0.4,
            ood_scores=1 + step * rng.integers(1, 7, (6, 2)),
        )
        surface = frontier(sample, min_tpr=LEVELS, max_fpr=LEVELS)
        for i, j in np.argwhere(~np.isnan(surface.selective_risk)):
            point = evaluate(surface.rule(i, j), sample)
            assert point.selective_risk == surface.selective_risk[i, j]
            assert point.tpr >= LEVELS[i]
            assert point.fpr <= LEVELS[j]


def test_infeasible_cells_name_the_nearest_levels():
    sample = Sample([0.1, 0.2, 0.3, 0.9], [0, 0, 1, 1], ood_scores=[0.25, 0.8])
    surface = frontier(sample, min_tpr=[0.5, 0.75, 1], max_fpr=[0, 0.5, 1])
    with pytest.raises(InfeasibleError, match=r"tpr >= 1.0 with fpr <= 0.0") as caught:
        surface.rule(2, 0)
    assert caught.value.attainable == {"max_tpr": 0.5, "min_fpr": 1.0}
    assert caught.value.model == TprFprModel(1.0, 0.0)
    lost = frontier(Sample([math.inf], [0], ood_scores=[1.0]), min_tpr=[0.5], max_fpr=[1])
    with pytest.raises(InfeasibleError) as caught:
        lost.rule(0, 0)
    assert np.isnan(list(caught.value.attainable.values())).all()


def test_names_are_carried_into_the_rule():
    sample = Sample([[0, 1], [1, 0]], [0, 1], ood_scores=[[2, 2]], score_names=("msp", "knn"))
    assert frontier(sample, min_tpr=[0.5], max_fpr=[0]).rule(0, 0).score_names == ("msp", "knn")


@pytest.mark.parametrize(
    ("levels", "message"),
    [
        ([], "ascending"),
        (0.5, "list of ascending levels"),
        ([0.2, 0.1], "ascending"),
        ([0.2, 0.2], "ascending"),
        ([0.5, 1.5], r"in \[0, 1\]"),
        (["a"], "must be a number"),
    ],
)
def test_bad_levels(levels, message):
    sample = Sample([0.1], [0], ood_scores=[0.2])
    for name in ("min_tpr", "max_fpr"):
        with pytest.raises(InvalidInputError, match=message):
            frontier(sample, **{name: levels})
    with pytest.raises(InvalidInputError, match="search must be"):
        frontier(sample, search="grid")
