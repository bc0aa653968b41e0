"""What must not change a tuned operating point, and in which way bounds change it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import demur as dm

SETTINGS = settings(max_examples=60, deadline=None, derandomize=True)


def cloud(seed, n=60, ties=False):
    rng = np.random.default_rng(seed)
    id_scores = rng.normal(size=(n, 2))
    ood = rng.normal((0.5, 1.0), size=(n // 2, 2))
    if ties:
        id_scores, ood = np.round(id_scores, 0), np.round(ood, 0)
    loss = (rng.random(n) < 1 / (1 + np.exp(1 - 2 * id_scores[:, 0]))).astype(float)
    return id_scores, loss, ood


MODELS = [
    dm.TprFprModel(0.6, 0.4),
    dm.PrecisionRecallModel(0.8, 0.6, 0.3),
    dm.CostModel(0.2, 1.0, 0.1, 0.25),
]


def outcome(sample, model, **options):
    try:
        return dm.tune(sample, model, **options).point
    except dm.InfeasibleError as error:
        return str(error)


@SETTINGS
@given(
    seed=st.integers(0, 10**6),
    ties=st.booleans(),
    powers=st.tuples(st.integers(-40, 40), st.integers(-40, 40)),
    model=st.sampled_from(MODELS),
)
def test_units_do_not_matter(seed, ties, powers, model):
    id_scores, loss, ood = cloud(seed, ties=ties)
    factors = np.ldexp(1.0, powers)
    plain = dm.tune(dm.Sample(id_scores, loss, ood), model)
    scaled = dm.tune(dm.Sample(id_scores * factors, loss, ood * factors), model)
    np.testing.assert_equal(plain.point, scaled.point)
    accepted = plain.rule.accept(id_scores)
    assert (accepted == scaled.rule.accept(id_scores * factors)).all()


@SETTINGS
@given(
    seed=st.integers(0, 10**6),
    factor=st.floats(1e-6, 1e6),
    column=st.integers(0, 1),
    model=st.sampled_from(MODELS),
)
def test_any_unit_keeps_the_risk(seed, factor, column, model):
    id_scores, loss, ood = cloud(seed)
    factors = np.ones(2)
    factors[column] = factor
    plain = dm.tune(dm.Sample(id_scores, loss, ood), model).point
    scaled = dm.tune(dm.Sample(id_scores * factors, loss, ood * factors), model).point
    assert scaled.selective_risk == plain.selective_risk
    assert scaled.expected_cost == plain.expected_cost


@SETTINGS
@given(seed=st.integers(0, 10**6), ties=st.booleans(), model=st.sampled_from(MODELS))
def test_row_order_does_not_matter(seed, ties, model):
    id_scores, loss, ood = cloud(seed, ties=ties)
    rng = np.random.default_rng(seed)
    i, o = rng.permutation(len(id_scores)), rng.permutation(len(ood))
    weight = rng.exponential(size=len(loss))
    plain = dm.Sample(id_scores, loss, ood, id_weight=weight)
    shuffled = dm.Sample(id_scores[i], loss[i], ood[o], id_weight=weight[i])
    np.testing.assert_equal(outcome(plain, model), outcome(shuffled, model))
    if not isinstance(outcome(plain, model), str):
        rules = [dm.tune(s, model).rule for s in (plain, shuffled)]
        assert rules[0].direction == pytest.approx(rules[1].direction, abs=1e-12)
        assert rules[0].threshold == pytest.approx(rules[1].threshold, abs=1e-12)


@SETTINGS
@given(seed=st.integers(0, 10**6), ties=st.booleans(), model=st.sampled_from(MODELS))
def test_whole_weights_are_repetitions(seed, ties, model):
    id_scores, loss, ood = cloud(seed, n=30, ties=ties)
    rng = np.random.default_rng(seed)
    wi, wo = rng.integers(0, 4, len(loss)), rng.integers(1, 4, len(ood))
    wi[0] = 1
    weighted = dm.Sample(id_scores, loss, ood, id_weight=wi, ood_weight=wo)
    repeated = dm.Sample(
        np.repeat(id_scores, wi, axis=0), np.repeat(loss, wi), np.repeat(ood, wo, axis=0)
    )
    np.testing.assert_equal(outcome(weighted, model), outcome(repeated, model))


@SETTINGS
@given(
    seed=st.integers(0, 10**6),
    bounds=st.tuples(*[st.integers(0, 20)] * 4),
    scores=st.sampled_from([1, 2]),
)
def test_looser_bounds_never_raise_the_risk(seed, bounds, scores):
    id_scores, loss, ood = cloud(seed)
    sample = dm.Sample(id_scores[:, :scores], loss, ood[:, :scores])
    (t1, t2), (f1, f2) = sorted(bounds[:2]), sorted(bounds[2:])
    tight = dm.TprFprModel(t2 / 20, f1 / 20)
    loose = dm.TprFprModel(t1 / 20, f2 / 20)
    try:
        strict = dm.tune(sample, tight).point.selective_risk
    except dm.InfeasibleError:
        return
    assert dm.tune(sample, loose).point.selective_risk <= strict


@SETTINGS
@given(
    seed=st.integers(0, 10**6),
    ties=st.booleans(),
    model=st.sampled_from([*MODELS, dm.TprFprModel(0.9, 0.5), dm.TprFprModel(0.3, 0.05)]),
)
def test_larger_families_are_never_worse(seed, ties, model):
    sample = dm.Sample(*cloud(seed, ties=ties))
    value = lambda s, **options: (  # noqa: E731
        np.inf
        if isinstance(point := outcome(s, model, **options), str)
        else point.selective_risk
        if point.expected_cost is None
        else point.expected_cost
    )
    double = value(sample)
    assert double <= min(value(sample.score(0)), value(sample.score(1))) + 1e-15
    assert double <= value(sample, directions="nonneg", search=dm.Grid(50)) + 1e-15
    real, paper = value(sample, directions="real"), value(sample, directions="paper")
    assert max(real, paper) <= double + 1e-15
    assert value(sample, directions="circle") <= min(real, paper) + 1e-15


@SETTINGS
@given(seed=st.integers(0, 10**6), min_tpr=st.sampled_from([0.2, 0.5, 0.8, 1.0]))
def test_bounded_abstention_is_the_model_without_ood(seed, min_tpr):
    id_scores, loss, ood = cloud(seed)
    with_ood = dm.tune(dm.Sample(id_scores, loss, ood), dm.TprFprModel(min_tpr, 1)).point
    without = dm.tune(dm.Sample(id_scores, loss), dm.TprFprModel(min_tpr)).point
    no_prior = dm.tune(
        dm.Sample(id_scores, loss, ood), dm.PrecisionRecallModel(0.99, min_tpr, 0)
    ).point
    assert with_ood.selective_risk == without.selective_risk == no_prior.selective_risk
    assert with_ood.tpr == without.tpr == no_prior.tpr


@SETTINGS
@given(seed=st.integers(0, 10**6), reject=st.sampled_from([0, 0.125, 0.25, 0.5, 0.9, 1.5]))
def test_chow_rule_is_the_cost_model_without_prior(seed, reject):
    """With prior 0 the threshold on the true risk is the cost of rejection itself."""
    rng = np.random.default_rng(seed)
    risk = rng.integers(0, 9, 40) / 8
    sample = dm.Sample(risk, risk, rng.random(10))
    tuned = dm.tune(sample, dm.CostModel(reject))
    np.testing.assert_array_equal(tuned.rule.accept(risk), risk <= reject)
    assert tuned.point.expected_cost == pytest.approx(np.minimum(risk, reject).mean())


@pytest.mark.parametrize("units", [(1e140, 1e-140), (1e-280, 1), (1, 1e280), (1e250, 1e250)])
def test_enormous_and_tiny_units_change_nothing(units):
    rng = np.random.default_rng(8)
    rows = rng.normal(size=(150, 2)), rng.random(150) < 0.2, rng.normal(1, size=(80, 2))
    model = dm.TprFprModel(0.8, 0.5)
    plain = dm.tune(dm.Sample(*rows), model).point
    scaled = dm.Sample(rows[0] * units, rows[1], rows[2] * units)
    point = dm.tune(scaled, model, search=dm.Exact(budget=200_000)).point
    assert point.selective_risk == plain.selective_risk


@pytest.mark.parametrize("units", [(1e-310, 1), (1e300, 1e-300)])
def test_units_beyond_float64_are_refused(units):
    rng = np.random.default_rng(8)
    sample = dm.Sample(rng.normal(size=(20, 2)) * units, np.zeros(20))
    with pytest.raises(dm.InvalidInputError, match="multiply the scores by powers of two"):
        dm.tune(sample, dm.TprFprModel(0.5))
    dm.tune(sample.score(0), dm.TprFprModel(0.5))


def test_scores_whose_sums_overflow_are_refused():
    """Their range is infinite: a search would not end, or find nothing."""
    shape = np.array([[1, 1], [-1, 1], [0.125, 0.25]]), np.array([[0.2, -1]])
    model = dm.TprFprModel(0.5, 0.1)
    enormous = dm.Sample(shape[0] * 1e308, [0, 1, 0], shape[1] * 1e308)
    for search in (None, dm.Grid(12)):
        with pytest.raises(dm.InvalidInputError, match="multiply the scores by powers of two"):
            dm.tune(enormous, model, search=search)
    plain = dm.Sample(shape[0], [0, 1, 0], shape[1])
    largest = dm.Sample(shape[0] * 2.0**1022, [0, 1, 0], shape[1] * 2.0**1022)
    assert dm.tune(largest, model).point == dm.tune(plain, model).point
    boxes = [dm.tune(sample, model, shape="box") for sample in (enormous, plain)]
    assert boxes[0].point == boxes[1].point
