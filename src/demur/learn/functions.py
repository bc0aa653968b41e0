"""Functions of scores that NumPy, SQL, torch and ONNX evaluate to the same bit.

They are made of comparisons, products and sums of doubles in a fixed order, and of nothing else:
an exponential is not the same number in every library. So a logistic fit is a sum of polylines,
one a score, a boosted one a sum of trees, and what turns the sum into a risk or a ratio is a
polyline again. All are constant beyond their ends: a score that exceeds all that were seen counts
as the largest of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.errors import InvalidInputError

GRID = 2.0**-32
"""Leaves are multiples of this, so that the sum of trees is exact in any order."""

_BLOCK = 8192
_MOST_TREES = 2000
_MOST_NODES = 4096
_MOST_KNOTS = 4096
# So far sums of multiples of the grid are exact in float64.
_LARGEST_SUM = 2.0**20

Write = Callable[[float], str]
"""How a double is written in some language."""


@dataclass(frozen=True)
class Polyline:
    """A function through the points (x, y), straight between them and constant beyond.

    Examples
    --------
    >>> Polyline((0.0, 1.0, 3.0), (0.0, 2.0, 2.5))(np.array([-1.0, 0.5, 2.0, 9.0]))
    array([0.  , 1.  , 2.25, 2.5 ])
    """

    x: tuple[float, ...]
    y: tuple[float, ...]

    def __post_init__(self) -> None:
        if not 0 < len(self.x) == len(self.y) <= _MOST_KNOTS:
            raise InvalidInputError("a polyline needs as many x as y, and not too many")
        if not np.isfinite([*self.x, *self.y]).all() or (np.diff(self.x) <= 0).any():
            raise InvalidInputError("a polyline needs finite numbers, x ascending")
        if not np.isfinite(self.slopes).all():
            raise InvalidInputError("a polyline is too steep for float64")

    @cached_property
    def slopes(self) -> FloatArray:
        """The slope from each point to the next; 0 from the last."""
        with np.errstate(over="ignore", divide="ignore"):
            return np.append(np.diff(self.y) / np.diff(self.x), 0.0)

    def __call__(self, values: FloatArray) -> FloatArray:
        """Evaluate it; NaN is taken for a value below all."""
        x, y = np.array(self.x), np.array(self.y)
        known = np.where(values >= x[0], values, x[0])
        at = np.searchsorted(x, known, side="right") - 1
        # Beyond the last point the slope is 0, and the distance must not overflow.
        known = np.minimum(known, x[-1])
        return np.asarray(y[at] + self.slopes[at] * (known - x[at]))

    def to_sql(self, value: str, write: Write) -> str:
        """Return the function of an SQL expression, which is repeated."""
        cases = [f"WHEN {value} < {write(self.x[0])} THEN {write(self.y[0])}"]
        for k, slope in enumerate(self.slopes[:-1].tolist()):
            line = f"{write(self.y[k])} + {write(slope)} * ({value} - {write(self.x[k])})"
            cases.append(f"WHEN {value} < {write(self.x[k + 1])} THEN {line}")
        return f"CASE {' '.join(cases)} ELSE {write(self.y[-1])} END"

    def to_data(self) -> dict[str, Any]:
        """Return plain data."""
        return {"x": list(self.x), "y": list(self.y)}

    @classmethod
    def from_data(cls, data: Any) -> Polyline:
        """Read what `to_data` returned."""
        return cls(_floats(data["x"]), _floats(data["y"]))


@dataclass(frozen=True, eq=False)
class PolylineSum:
    """A number plus a polyline of every score, added up in their order."""

    base: float
    parts: tuple[Polyline, ...]
    kind = "polylines"

    @property
    def count(self) -> int:
        """Number of scores."""
        return len(self.parts)

    def __call__(self, doubts: FloatArray) -> FloatArray:
        """Return the sum of each row of doubts, shape (n, k)."""
        total = np.full(len(doubts), self.base)
        for column, part in enumerate(self.parts):
            total = total + part(doubts[:, column])
        return total

    def to_sql(self, doubts: Sequence[str], write: Write) -> str:
        """Return the sum as an SQL expression of these columns."""
        terms = [part.to_sql(name, write) for part, name in zip(self.parts, doubts, strict=True)]
        return " + ".join([write(self.base), *terms])

    def to_data(self) -> dict[str, Any]:
        """Return plain data."""
        parts = [part.to_data() for part in self.parts]
        return {"kind": self.kind, "base": self.base, "parts": parts}

    @classmethod
    def from_data(cls, data: Any) -> PolylineSum:
        """Read what `to_data` returned."""
        return cls(_floats([data["base"]])[0], tuple(map(Polyline.from_data, data["parts"])))


@dataclass(frozen=True, eq=False)
class TreeSum:
    """A number plus the leaves that a row reaches in every tree.

    Nodes of all trees are numbered through; `roots` are the first of each. A leaf has feature -1,
    any other node leads to `left` where its score is at most its threshold.
    """

    base: float
    count: int
    roots: IntArray
    feature: IntArray
    threshold: FloatArray
    left: IntArray
    right: IntArray
    value: FloatArray
    kind = "trees"

    def __post_init__(self) -> None:
        nodes = len(self.feature)
        own = np.arange(nodes)
        inner = self.feature >= 0
        sound = (
            0 < len(self.roots) <= _MOST_TREES
            and nodes <= _MOST_TREES * _MOST_NODES
            and all(len(a) == nodes for a in (self.threshold, self.left, self.right, self.value))
            and bool(((self.roots >= 0) & (self.roots < nodes)).all())
            and bool(((self.feature >= -1) & (self.feature < self.count)).all())
            # A child comes after its parent, so that every walk ends.
            and all(bool(((c > own) & (c < nodes))[inner].all()) for c in (self.left, self.right))
            and np.isfinite([*self.threshold, self.base]).all()
        )
        if not sound:
            raise InvalidInputError("the trees are damaged: a node leads nowhere, or in a circle")
        leaves = np.append(self.value, self.base)
        if not np.abs(leaves).sum() <= _LARGEST_SUM or (leaves != on_grid(leaves)).any():
            raise InvalidInputError("the trees are damaged: a leaf is not on the grid of leaves")

    @cached_property
    def depth(self) -> int:
        """Steps of the longest walk."""
        depth = np.zeros(len(self.feature), np.int64)
        for node in range(len(self.feature)):
            if self.feature[node] >= 0:
                for child in (self.left[node], self.right[node]):
                    depth[child] = max(depth[child], depth[node] + 1)
        return int(depth.max())

    @cached_property
    def walk(self) -> tuple[IntArray, FloatArray, IntArray, IntArray]:
        """Feature, threshold, left and right of every node; leaves lead to themselves."""
        own = np.arange(len(self.feature))
        leaf = self.feature < 0
        return (
            np.where(leaf, 0, self.feature),
            self.threshold,
            np.where(leaf, own, self.left),
            np.where(leaf, own, self.right),
        )

    def __call__(self, doubts: FloatArray) -> FloatArray:
        """Return the sum of each row of doubts, shape (n, k)."""
        feature, threshold, left, right = self.walk
        total = np.empty(len(doubts))
        for start in range(0, len(doubts), _BLOCK):
            part = np.ascontiguousarray(doubts[start : start + _BLOCK])
            first = (np.arange(len(part)) * self.count)[:, None]
            node = np.broadcast_to(self.roots, (len(part), len(self.roots)))
            for _ in range(self.depth):
                below = part.ravel()[first + feature[node]] <= threshold[node]
                node = np.where(below, left[node], right[node])
            total[start : start + len(part)] = self.base + self.value[node].sum(axis=1)
        return total

    def to_sql(self, doubts: Sequence[str], write: Write) -> str:
        """Return the sum as an SQL expression of these columns."""

        def told(node: int) -> str:
            feature = int(self.feature[node])
            if feature < 0:
                return write(float(self.value[node]))
            split = f"{doubts[feature]} <= {write(float(self.threshold[node]))}"
            left, right = told(int(self.left[node])), told(int(self.right[node]))
            return f"CASE WHEN {split} THEN {left} ELSE {right} END"

        # In pairs of pairs: engines limit how deep expressions may be nested.
        return _added([write(self.base), *(told(int(root)) for root in self.roots)])

    def to_data(self) -> dict[str, Any]:
        """Return plain data."""
        arrays = ("roots", "feature", "threshold", "left", "right", "value")
        listed = {name: getattr(self, name).tolist() for name in arrays}
        return {"kind": self.kind, "base": self.base, "count": self.count} | listed

    @classmethod
    def from_data(cls, data: Any) -> TreeSum:
        """Read what `to_data` returned."""
        arrays: dict[str, Any] = {
            name: _wholes(data[name]) for name in ("roots", "feature", "left", "right")
        }
        arrays |= {name: np.array(_floats(data[name])) for name in ("threshold", "value")}
        return cls(_floats([data["base"]])[0], int(data["count"]), **arrays)


@dataclass(frozen=True, eq=False)
class MeanSum:
    """The mean of two sums, halved before they are added."""

    first: PolylineSum | TreeSum
    second: PolylineSum | TreeSum
    kind = "mean"

    @property
    def count(self) -> int:
        """Number of scores."""
        return self.first.count

    def __call__(self, doubts: FloatArray) -> FloatArray:
        """Return the mean at each row of doubts, shape (n, k)."""
        return 0.5 * self.first(doubts) + 0.5 * self.second(doubts)

    def to_sql(self, doubts: Sequence[str], write: Write) -> str:
        """Return the mean as an SQL expression of these columns."""
        half, both = write(0.5), (one.to_sql(doubts, write) for one in (self.first, self.second))
        return " + ".join(f"{half} * ({one})" for one in both)

    def to_data(self) -> dict[str, Any]:
        """Return plain data."""
        return {"kind": self.kind, "of": [self.first.to_data(), self.second.to_data()]}

    @classmethod
    def from_data(cls, data: Any) -> MeanSum:
        """Read what `to_data` returned."""
        first, second = map(_sum_from_data, data["of"])
        if MeanSum in (type(first), type(second)) or first.count != second.count:
            raise ValueError("a mean of two sums over the same scores was expected")
        return cls(first, second)


@dataclass(frozen=True, eq=False)
class ScoreFunction:
    """One learned doubt: a sum over the scores, and the polyline that makes it what it means."""

    total: PolylineSum | TreeSum | MeanSum
    link: Polyline

    def __call__(self, doubts: FloatArray) -> FloatArray:
        """Return the doubt of each row of doubts, shape (n, k)."""
        return self.link(self.total(doubts))

    def to_data(self) -> dict[str, Any]:
        """Return plain data."""
        return {"total": self.total.to_data(), "link": self.link.to_data()}

    @classmethod
    def from_data(cls, data: Any) -> ScoreFunction:
        """Read what `to_data` returned; damaged data are refused."""
        try:
            total = _sum_from_data(data["total"])
            return cls(total, Polyline.from_data(data["link"]))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise InvalidInputError(f"a learned score is damaged: {error!r}") from None


def on_grid(values: FloatArray) -> FloatArray:
    """Round to multiples of `GRID`."""
    return np.round(values / GRID) * GRID


def _sum_from_data(data: Any) -> Any:
    kinds: dict[str, Any] = {one.kind: one for one in (PolylineSum, TreeSum, MeanSum)}
    return kinds[data["kind"]].from_data(data)


def _added(terms: list[str]) -> str:
    if len(terms) == 1:
        return terms[0]
    half = len(terms) // 2
    return f"({_added(terms[:half])} + {_added(terms[half:])})"


def _floats(items: Any) -> tuple[float, ...]:
    if not isinstance(items, list) or any(
        isinstance(item, bool) or not isinstance(item, (int, float)) for item in items
    ):
        raise TypeError("a list of numbers was expected")
    return tuple(map(float, items))


def _wholes(items: Any) -> IntArray:
    if not isinstance(items, list) or any(type(item) is not int for item in items):
        raise TypeError("a list of whole numbers was expected")
    return np.array(items, np.int64)
