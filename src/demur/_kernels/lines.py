"""Points as lines of the dual plane.

In a *chart* one score has weight +1 or -1 and the other +t or -t, 0 <= t <= 1. A point is then
the line ``u + t*w``, a half-plane is a point (t, v), and it accepts the lines at or below it.
Two charts make a quarter of all directions. The larger weight being 1, a chart needs no
scaling, and t has its full relative precision however different the units are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from demur._kernels.tree import Tree

_Floats = npt.NDArray[np.float64]
_Bools = npt.NDArray[np.bool_]

EPS = float(np.finfo(np.float64).eps)
_SIGNS = ((1, 1), (-1, 1), (-1, -1), (1, -1))
_HALVES = 2.0**27 + 1


class Chart(NamedTuple):
    """Bounding boxes of all items as ranges of lines, from ``u0 + t*w0`` to ``u1 + t*w1``."""

    points: int
    """Number of items that are points."""
    unit: int
    """The score with weight +1 or -1."""
    signs: tuple[int, int]
    u0: _Floats
    u1: _Floats
    w0: _Floats
    w1: _Floats

    @property
    def corners(self) -> tuple[_Floats, _Floats, _Floats, _Floats]:
        """Return u0, u1, w0, w1."""
        return self.u0, self.u1, self.w0, self.w1

    @property
    def sizes(self) -> _Floats:
        """Return upper bounds on the sizes of u and w, shape (2, 1)."""
        ends = np.abs([[self.u0[-1], self.u1[-1]], [self.w0[-1], self.w1[-1]]])
        return np.asarray(ends.max(axis=1, keepdims=True))

    def weights(self, t: float) -> _Floats:
        """Return the weights of the two scores."""
        return np.array(self.signs) * ((1.0, t) if self.unit == 0 else (t, 1.0))


def charts(tree: Tree, quarter: int) -> tuple[Chart, Chart]:
    """Return the two charts of a quarter: 0 is (+, +), 1 is (-, +), 2 is (-, -), 3 is (+, -)."""
    signs = _SIGNS[quarter]
    x, y = (
        tree.corner[2 * k : 2 * k + 2] if sign > 0 else -tree.corner[2 * k : 2 * k + 2][::-1]
        for k, sign in enumerate(signs)
    )
    return Chart(tree.points, 0, signs, *x, *y), Chart(tree.points, 1, signs, *y, *x)


def at_most(u: _Floats, w: _Floats, t: _Floats, v: _Floats) -> _Bools:
    """Return where ``u + t*w <= v``, exactly."""
    product, product_rest = _product(t, w)
    difference, difference_rest = _difference(v, u)
    # Both are rounded sums plus the rest, so the rounded sums decide unless they are equal.
    equal = (product == difference) & (product_rest <= difference_rest)
    return np.asarray((product < difference) | equal)


def _product(a: _Floats, b: _Floats) -> tuple[_Floats, _Floats]:
    """Return a*b rounded, and what rounding lost."""
    product = a * b
    a_high, a_low = _halves(a)
    b_high, b_low = _halves(b)
    rest = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product, rest


def _halves(a: _Floats) -> tuple[_Floats, _Floats]:
    scaled = _HALVES * a
    high = scaled - (scaled - a)
    return high, a - high


def _difference(a: _Floats, b: _Floats) -> tuple[_Floats, _Floats]:
    """Return a-b rounded, and what rounding lost."""
    difference = a - b
    gone = difference - a
    return difference, (a - (difference - gone)) - (b + gone)
