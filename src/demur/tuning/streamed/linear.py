"""Linear bounds on the masses of cells: whether they hold, and whether they can in a box.

What crosses a box can add so much to a bound at best:

- ID mass of all rows, or of a group, where more of it is better;
- under a bound ``b * L <= a * nI`` on risk the rows whose loss per ID mass is below a/b. With 0/1
  losses these are the rows without loss. Otherwise it is known which rows are *cheap*, below a
  price p: cheap rows above a/b cost no more than (b*p - a) a unit, other rows below a/b gain no
  more than (a - b*p). Of groups only the ID mass is known, as if it came without loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray
from demur._kernels import exact
from demur._kernels.exact import Linear
from demur.core.program import LinearBound, Part, Program
from demur.core.source import Measure
from demur.tuning.streamed.cells import CHEAP_ID, CHEAP_LOSS, ID, LOSS, OOD

# Sums of a few float64 products are off by less than this, relative to their terms.
_ROUNDING = 2.0**-46


@dataclass(frozen=True, slots=True)
class Layout:
    """Where in the rows of `CellGrid.mass` the masses of sets and groups are."""

    sets: tuple[str, ...]
    groups: tuple[str, ...]
    zero_one: bool
    """Whether all masses are 0 or 1."""

    @classmethod
    def of(cls, measure: Measure) -> Layout:
        """Return the layout of what a source counts."""
        return cls(measure.sets, measure.groups, measure.plain)

    @property
    def rows(self) -> int:
        """Number of rows."""
        return OOD + max(1, len(self.sets)) + 2 * len(self.groups)

    @property
    def gains(self) -> BoolArray:
        """Which rows are of ID mass, of which more is better."""
        first = OOD + max(1, len(self.sets))
        of_groups = range(first, first + len(self.groups))
        return np.isin(np.arange(self.rows), [ID, *of_groups])

    def coefficients(self, terms: tuple[tuple[Part, int], ...]) -> FloatArray:
        """Return what each row counts in a sum of parts, none of which is of cheap rows."""
        found = np.zeros(self.rows)
        for part, coefficient in terms:
            found[self._places(part)] += float(coefficient)
        return found

    def _places(self, part: Part) -> Any:
        first = OOD + max(1, len(self.sets))
        if part.mass == "ood":
            return slice(OOD, first) if part.of is None else OOD + self.sets.index(part.of)
        if part.of is None:
            return ID if part.mass == "id" else LOSS
        later = len(self.groups) if part.mass == "loss" else 0
        return first + later + self.groups.index(part.of)

    def met(self, program: Program, mass: IntArray) -> BoolArray:
        """Return at which operating points the linear bounds of a program hold, exactly."""
        exactly = np.array(
            [[int(c) for c in self._whole(bound)] for bound in program.linear], object
        )
        least = np.array([bound.least for bound in program.linear], np.int64)
        # Every row of the masses is one of its own here.
        none = np.zeros((len(least), 2 + self.rows - 3), np.int64)
        return exact.linear_met(Linear(exactly.astype(np.int64), least, none), mass)

    def _whole(self, bound: LinearBound) -> list[int]:
        found = [0] * self.rows
        for part, coefficient in bound.terms:
            places = self._places(part)
            for place in range(self.rows)[places] if isinstance(places, slice) else (places,):
                found[place] += coefficient
        return found


class LinearJudge:
    """Tells in which boxes all linear bounds of a program can hold."""

    def __init__(self, program: Program, price: float, layout: Layout) -> None:
        self._least = np.array([float(bound.least) for bound in program.linear])
        self._certain = np.array([layout.coefficients(bound.terms) for bound in program.linear])
        hopes = [_hopes(bound, price, layout) for bound in program.linear]
        self._crossing = [np.array(way) for way in zip(*hopes, strict=True)]

    def hopeful(self, accepted: IntArray, crossing: IntArray) -> Any:
        """Return whether a box, or each of many, can meet the bounds, rounding aside."""
        least = self._least if accepted.ndim == 1 else self._least[:, None]
        value = self._certain @ accepted - least
        size = np.abs(self._certain) @ accepted + np.abs(least)
        value = value + np.minimum(*(way @ crossing for way in self._crossing))
        size = size + np.maximum(*(np.abs(way) @ crossing for way in self._crossing))
        return (value >= -_ROUNDING * size).all(axis=0)


def _hopes(bound: LinearBound, price: float, layout: Layout) -> tuple[FloatArray, FloatArray]:
    """Return two upper bounds on what crossing masses add, as coefficients of their rows."""
    plain = tuple((part, c) for part, c in bound.hope if part.below is None)
    first, second = layout.coefficients(plain), layout.coefficients(plain)
    for part, coefficient in bound.hope:
        if part.below is None or part.mass == "loss":
            continue
        a, b = (float(number) for number in part.below)
        if layout.zero_one or part.of is not None:
            # Without losses, unless all of them are welcome or none is known.
            lossless = layout.zero_one and a < b
            terms = [(Part("id", part.of), coefficient)]
            terms += [(Part("loss", part.of), -coefficient)] if lossless else []
            first += layout.coefficients(tuple(terms))
            second += layout.coefficients(tuple(terms))
            continue
        dearer = max(0.0, a - b * price)
        for way in (first, second):
            way[ID] += dearer
            way[CHEAP_ID] += a - dearer
        second[CHEAP_LOSS] -= b
        second[CHEAP_ID] += max(0.0, b * price - a)
    return first, second
