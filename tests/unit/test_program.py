"""Lowering to integers: masses, coefficients and bounds."""

from fractions import Fraction

import numpy as np
import pytest

import demur as dm
from demur.core.points import Masses, Points
from demur.core.program import integer_coefficients, quotient_bound
from demur.core.wording import bounds_met


def test_whole_and_dyadic_weights_are_exact():
    assert Masses.of(np.array([3.0, 0, 5])).exponent == 0
    dyadic = Masses.of(np.array([0.5, 0.25, 3]))
    assert dyadic.rounding == 0
    assert [Fraction(int(m)) / 2**dyadic.exponent for m in dyadic.values] == [
        Fraction(1, 2),
        Fraction(1, 4),
        3,
    ]


@pytest.mark.parametrize("scale", [1e-300, 1e-9, 1.0, 1e9, 1e300])
def test_other_weights_keep_fifty_bits(scale):
    weights = np.random.default_rng(0).random(1000) * scale
    masses = Masses.of(weights)
    assert 2**50 < masses.total < 2**52
    back = np.ldexp(masses.values.astype(float), -masses.exponent)
    assert np.abs(back - weights).max() <= weights.sum() * 2.0**-51
    assert masses.rounding == 1000


def test_equal_decimal_weights_meet_a_decimal_bound():
    # Ten weights of 0.1: seven of them are 0.7 of the total although 7 * 0.1 < 0.7 in floats.
    sample = dm.Sample(np.arange(10), np.arange(10), id_weight=np.full(10, 0.1))
    assert dm.tune(sample, dm.TprFprModel(0.7)).point.accepted_id == pytest.approx(0.7)
    table = dm.Sample([1, 2, 3, 4], [0, 1, 2, 3], id_weight=[0.1, 0.2, 0.3, 0.4])
    assert dm.tune(table, dm.TprFprModel(0.3)).point.tpr == pytest.approx(0.3)


def test_decimal_weights_and_losses_meet_a_bound_on_risk():
    # 0.1 * 0.3 is 0.3 of 0.1, although the floats of these are not.
    sample = dm.Sample([0, 1, 2], [0.3, 1, 1], [5, 6], id_weight=[0.1, 0.3, 0.7])
    assert dm.tune(sample, dm.RiskFprModel(0.3, 1)).point.accepted_id == pytest.approx(0.1)
    with pytest.raises(dm.InfeasibleError):
        dm.tune(sample, dm.RiskFprModel(0.3 - 1e-12, 1))
    # A bound of 0 spares nothing.
    tiny = dm.Sample([0, 1], [1e-13, 1], id_weight=[0.1, 0.3])
    with pytest.raises(dm.InfeasibleError):
        dm.tune(tiny, dm.RiskFprModel(0, 1))


@pytest.mark.parametrize("scores", [1, 2])
def test_bounds_on_risk_at_equality_against_fractions(scores):
    rng = np.random.default_rng(scores)
    for _ in range(150):
        n, x = 8, rng.integers(0, 5, 8)
        weight = [Fraction(int(v), 1000) for v in rng.choice([1, 100, 1000000], n)]
        weight = [w * int(k) for w, k in zip(weight, rng.integers(1, 10, n), strict=True)]
        loss = [Fraction(int(v), 10) for v in rng.integers(0, 11, n)]
        accepted = {}
        for cut in set(x.tolist()):
            rows = [i for i in range(n) if x[i] <= cut]
            mass = sum(weight[i] for i in rows)
            accepted[cut] = mass, sum(weight[i] * loss[i] for i in rows) / mass
        bound = accepted[int(rng.choice(x))][1]
        best = max(mass for mass, risk in accepted.values() if risk <= bound)
        columns = x if scores == 1 else np.column_stack([x, np.zeros(n)])
        sample = dm.Sample(columns, [float(v) for v in loss], id_weight=[float(w) for w in weight])
        point = dm.tune(sample, dm.RiskFprModel(bound, 1)).point
        assert point.accepted_id == pytest.approx(float(best), abs=1e-9)


def test_coefficients_keep_their_proportion():
    exact = (Fraction(3, 7), Fraction(-2, 5), Fraction(0))
    whole, unit = integer_coefficients(*exact)
    assert whole == (15, -14, 0)
    assert unit == pytest.approx(1 / 35)
    huge = (Fraction(1, 3**50), Fraction(-1, 7**40))
    whole, unit = integer_coefficients(*huge)
    assert max(map(abs, whole)) < 2**62
    assert whole[0] * unit == pytest.approx(float(huge[0]), rel=1e-15)
    assert integer_coefficients(Fraction(0), Fraction(0)) == ((0, 0), 1.0)


def test_quotient_bound_against_all_fractions():
    rng = np.random.default_rng(1)
    for _ in range(2000):
        p_max, q_max = (int(v) for v in rng.integers(1, 15, 2))
        bound = Fraction(int(rng.integers(0, 400)), int(rng.integers(1, 97)))
        a, b = quotient_bound(bound, p_max, q_max)
        assert a <= p_max and b <= q_max
        for p in range(p_max + 1):
            for q in range(1, q_max + 1):
                assert (Fraction(p, q) <= bound) == (b * p <= a * q)


@pytest.mark.parametrize(
    "model",
    [
        dm.TprFprModel(0.4, 0.7),
        dm.PrecisionRecallModel(0.6, 0.4, 0.3),
        dm.CostModel(0.3, 2, 0.25, 0.15),
    ],
)
@pytest.mark.parametrize("weighted", [False, True])
def test_program_value_is_the_model_objective(model, weighted):
    rng = np.random.default_rng(2)
    sample = dm.Sample(
        rng.normal(size=40),
        rng.exponential(size=40),
        rng.normal(size=20),
        id_weight=rng.random(40) if weighted else None,
    )
    tuned = dm.tune(sample, model)
    program = model.program(tuned.totals)
    points = Points.of(sample)
    taken = tuned.rule.accept(points.scores)
    value = program.value(
        int(points.id[taken].sum()), int(points.ood[:, taken].sum()), int(points.loss[taken].sum())
    )
    point = tuned.point
    expected = point.selective_risk if point.expected_cost is None else point.expected_cost
    assert program.scale * value + program.offset == pytest.approx(expected, rel=1e-12)


def test_a_bound_that_weights_meet_exactly_is_met():
    # 0.3 of 1.2 is a quarter, of which floats lack some 1e-15.
    sample = dm.Sample(range(5), [0, 0, 0, 1, 1], id_weight=[0.1, 0.1, 0.1, 0.2, 0.7])
    model = dm.TprFprModel(0.25)
    point = dm.evaluate(dm.tune(sample, model).rule, sample)
    assert point.tpr < 0.25
    assert bounds_met(model, point) == {"tpr >= 0.25": True}
    assert not bounds_met(dm.TprFprModel(0.2500001), point)["tpr >= 0.2500001"]
