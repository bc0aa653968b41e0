"""Bins: monotone, exact edges, and the quick look-up that must agree with the definition."""

import numpy as np
import pytest

from demur.core.bins import BinFinder, Bins, axis_for
from demur.core.points import Masses, exponent_of

SHAPES = {
    "normal": lambda rng, n: rng.normal(size=n),
    "decades": lambda rng, n: 10.0 ** rng.uniform(-300, 300, n) * rng.choice([-1, 1], n),
    "small": lambda rng, n: 10.0 ** rng.uniform(-20, 0, n),
    "few": lambda rng, n: rng.integers(0, 5, n) * 1.0,
    "atom": lambda rng, n: np.concatenate([np.zeros(n), rng.random(n) * 1e-300]),
    "constant": lambda rng, n: np.full(n, 0.1),
    "largest": lambda rng, n: rng.choice([-1.7e308, 0.0, 1.7e308], n),
    "none": lambda rng, n: np.empty(0),
}


def difficult(axis, rng):
    """Return the edges and their neighbours, extremes, and ordinary scores."""
    edges = axis.edges()
    special = [1.7e308, -1.7e308, 0.0, -0.0, 5e-324, -5e-324]
    return np.concatenate([edges, np.nextafter(edges, -np.inf), special, rng.normal(size=100)])


@pytest.mark.parametrize("bins", [1, 8, 200])
@pytest.mark.parametrize("shape", SHAPES)
def test_bins_are_intervals_with_exact_edges(shape, bins):
    rng = np.random.default_rng(bins)
    drawn = SHAPES[shape](rng, 700)
    axis = axis_for(drawn, bins)
    scores = np.concatenate([drawn, difficult(axis, rng)])
    found = axis.bin(scores)
    assert (np.diff(found[np.argsort(scores)]) >= 0).all()
    assert found.min() >= 0 and found.max() < axis.bins
    np.testing.assert_array_equal(found, np.searchsorted(axis.edges(), scores, side="right"))
    np.testing.assert_array_equal(BinFinder(axis).bin(scores), found)


@pytest.mark.parametrize("shape", SHAPES)
def test_refined_bins_are_parts_of_the_bins(shape):
    rng = np.random.default_rng(1)
    drawn = SHAPES[shape](rng, 700)
    bins = Bins((axis_for(drawn, 16), axis_for(rng.normal(size=50), 8)))
    finer = bins.refined(4)
    first = np.concatenate([drawn, difficult(bins.axes[0], rng)])
    scores = np.column_stack([first, rng.normal(size=len(first))])
    np.testing.assert_array_equal(bins.coarse(finer, finer.key(scores)), bins.key(scores))
    assert finer.cells >= bins.cells


def test_shared_values_get_a_bin_of_their_own():
    rng = np.random.default_rng(2)
    drawn = np.concatenate([np.full(300, 0.25), rng.random(700)])
    axis = axis_for(drawn, 50)
    alone = int(axis.bin(np.array([0.25]))[0])
    edges = axis.edges()
    assert edges[alone - 1] == 0.25 and edges[alone] == np.nextafter(0.25, 1)
    assert axis.refined(8).bins - axis.bins == 7 * (axis.bins - 1)


def test_rows_spread_evenly_whatever_their_distribution():
    rng = np.random.default_rng(3)
    scores = np.exp(6 * rng.normal(size=50_000))
    held = np.bincount(axis_for(scores[:5000], 256).bin(scores), minlength=256)
    assert held.max() < 0.02 * len(scores)


@pytest.mark.parametrize("seed", range(20))
def test_masses_do_not_depend_on_the_order_of_summation(seed):
    rng = np.random.default_rng(seed)
    # Sums next to a power of two, on which side of it rounding decides.
    weights = rng.random(1000)
    weights /= weights.sum() * float(2 ** rng.integers(0, 3))
    exponents = {
        exponent_of(float(total), whole=False)
        for total in (
            weights.sum(),
            weights[::-1].sum(),
            sum(weights.tolist()),
            np.sort(weights).sum(),
        )
    }
    assert exponents == {Masses.of(weights).exponent}
    assert Masses.of(weights).total < 2**52
