"""Scores of the logits against loops in 60-digit decimals, where rounding cannot hide."""

from decimal import Decimal, getcontext, localcontext

import numpy as np
import pytest

from demur import detectors as dt

getcontext().prec = 60
GAMMA = Decimal("0.1")


def probabilities(row):
    terms = [Decimal(float(z)).exp() for z in row]
    return [t / sum(terms) for t in terms]


def slow_msp(row):
    p = probabilities(row)
    return sum(p) - max(p)


def slow_energy(row, temperature):
    t = Decimal(temperature)
    return -t * sum((Decimal(float(z)) / t).exp() for z in row).ln()


def slow_entropy(row):
    return -sum(p * p.ln() for p in probabilities(row))


def slow_gen(row, gamma, top):
    kept = sorted(probabilities(row))[-top:]
    return sum((p * (1 - p)) ** gamma for p in kept)


@pytest.fixture(scope="module", params=[0.1, 1.0, 6.0, 60.0])
def logits(request):
    rng = np.random.default_rng(int(request.param * 10))
    return rng.normal(scale=request.param, size=(25, 7)) + rng.normal(scale=3, size=(25, 1))


def check(scores, slow, *, rtol=1e-12):
    assert scores.dtype == np.float64
    for score, exact in zip(scores, slow, strict=True):
        assert float(abs(Decimal(float(score)) - exact)) <= rtol * float(abs(exact))


def test_msp(logits):
    check(dt.msp(logits), [slow_msp(row) for row in logits])


def test_mls(logits):
    assert dt.mls(logits).tolist() == [-max(row) for row in logits.tolist()]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1000.0])
def test_energy(logits, temperature):
    slow = [slow_energy(row, temperature) for row in logits]
    # The energy itself may pass through zero, so its error counts against the logits.
    error = np.abs(dt.energy(logits, temperature) - np.array(slow, dtype=float))
    assert error.max() <= 1e-14 * (temperature * 2 + np.abs(logits).max())


def test_entropy(logits):
    check(dt.entropy(logits), [slow_entropy(row) for row in logits])


@pytest.mark.parametrize("top", [1, 3, 7, 100])
def test_gen(logits, top):
    check(dt.gen(logits, top=top), [slow_gen(row, GAMMA, top) for row in logits])
    check(dt.gen(logits, gamma=2, top=top), [slow_gen(row, 2, top) for row in logits])


def test_gradnorm_is_the_norm_of_the_numerical_gradient():
    rng = np.random.default_rng(3)
    weight, bias, feature = rng.normal(size=(4, 3)), rng.normal(size=4), rng.normal(size=3)

    def divergence(w):
        p = probabilities(w @ feature + bias)
        return -sum((4 * q).ln() for q in p) / 4

    total = 0.0
    for i in range(4):
        for j in range(3):
            ahead, behind = weight.copy(), weight.copy()
            ahead[i, j] += 1e-5
            behind[i, j] -= 1e-5
            total += abs(float(divergence(ahead) - divergence(behind))) / 2e-5
    score = dt.gradnorm([weight @ feature + bias], [feature])
    assert score[0] == pytest.approx(-total, rel=1e-7)


def test_gradnorm_loops(logits):
    features = np.random.default_rng(5).normal(size=(len(logits), 4))
    slow = [
        -sum(abs(p - Decimal(1) / 7) for p in probabilities(row)) * sum(map(Decimal, map(abs, h)))
        for row, h in zip(logits, features.tolist(), strict=True)
    ]
    check(dt.gradnorm(logits, features), slow)


def test_confident_rows_keep_their_order_down_to_the_smallest_numbers():
    gap = np.array([16.0, 20.0, 40.0, 100.0, 400.0, 690.0])
    logits = np.column_stack([gap, np.zeros_like(gap)]).astype(np.float32)
    for score in (dt.msp(logits), dt.entropy(logits)):
        assert (np.diff(score) < 0).all()
        assert score[-1] > 0
    assert dt.msp(logits)[-1] == pytest.approx(float(slow_msp(logits[-1])), rel=1e-12)
    assert dt.msp(logits)[-1] < 1e-299


def test_gen_sees_probabilities_that_underflow():
    logits = [[0.0, -1000.0], [0.0, -2000.0]]
    scores = dt.gen(logits)
    assert scores[0] > scores[1] > 0
    with localcontext(prec=900):
        check(scores, [slow_gen(row, GAMMA, 2) for row in logits])


def test_equal_largest_logits():
    assert dt.msp([[5.0, 5.0, 5.0, 5.0]])[0] == 0.75
    assert dt.entropy([[5.0, 5.0, 5.0, 5.0]])[0] == pytest.approx(np.log(4), rel=1e-15)


def test_half_precision_logits_are_widened_first():
    logits = np.random.default_rng(0).normal(scale=4, size=(50, 300)).astype(np.float16)
    assert np.array_equal(dt.msp(logits), dt.msp(logits.astype(np.float64)))
    assert np.array_equal(dt.energy(logits), dt.energy(logits.astype(np.float64)))
