"""A sample as one cloud of weighted points, the form all searches work on.

A *mass* is an integer standing for ``mass * 2**-exponent``. Counts and integer weights are
their own masses (exponent 0). Other weights are put on a grid fine enough that the total is
just below 2**52: every partial sum is then exact both in int64 and in float64, whatever the
order of the rows or the number of partitions they are summed in.

Scores that are decimals are searched as the whole numbers they stand for (`frame_of`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from demur._arrays import BoolArray, FloatArray, IntArray
from demur._kernels.engines import BLOCK, PLAIN, Frame, Ranges, engine
from demur._kernels.exact import products_ordered
from demur.core.program import Part, Totals
from demur.core.sample import Sample
from demur.errors import InvalidInputError

LIMIT = 2**52

# Steps that a column of whole numbers may span, and how far from zero it may be. The gap of any
# accepted set, in steps, is then several times the rounding errors of rules about the scores.
_STEPS, _FARTHEST = 2.0**22, 2.0**25
_DECIMALS = tuple(10.0**digits for digits in range(13))
# Rows looked at before all of them are.
_SAMPLE = 256
# An offset is taken out from this many times the spread on; x - offset is then exact.
_OFFSET = 4.0


@dataclass(frozen=True, slots=True)
class Masses:
    """Integers standing for ``values * 2**exponent``."""

    values: IntArray
    exponent: int = 0
    rounding: int = 0
    """By how many units a partial sum may be off: 0 when every value was representable."""

    @classmethod
    def ones(cls, rows: int) -> Masses:
        """Return a mass of 1 for each row, which takes no memory."""
        return cls(np.broadcast_to(np.ones((), np.int64), (rows,)))

    @classmethod
    def of(cls, values: FloatArray, *, spare: int = 0) -> Masses:
        """Put non-negative finite `values` on the grid, with `spare` bits left for repetitions."""
        whole = bool((values == np.floor(values)).all())
        total = float(values.sum())
        fits = whole and total < LIMIT >> spare
        exponent = 0 if fits else exponent_of(total, whole=False) - spare
        if whole and exponent == 0:
            return cls(values.astype(np.int64), 0, 0)
        masses, inexact = on_grid(values, exponent)
        return cls(masses, exponent, len(values) if inexact else 0)

    @property
    def total(self) -> int:
        """Return the sum of all values."""
        return self.total_of(slice(None))

    def total_of(self, rows: slice) -> int:
        """Return the sum of some of the values."""
        values = self.values[rows]
        if values.strides == (0,):
            return len(values) * int(values[:1].sum())
        return int(values.sum())


def exponent_of(total: float, whole: bool) -> int:
    """Return the exponent for values with this sum, all of them whole numbers or not.

    A sum just below a power of two counts as one, so that the order of summation, and with it
    the last bits of the sum, makes no difference.
    """
    if whole and total < LIMIT:
        return 0
    mantissa, exponent = np.frexp(total)
    return 51 - int(exponent) - bool(mantissa * (1 + 2.0**-30) >= 1)


def on_grid(values: FloatArray, exponent: int) -> tuple[IntArray, bool]:
    """Return the masses of values, and whether any of them had to be rounded."""
    scaled = np.ldexp(values, exponent)
    # Halves go up, not to even numbers: that is what every engine can compute.
    rounded = np.floor(scaled + 0.5)
    return rounded.astype(np.int64), bool((rounded != scaled).any())


@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """Which rows of a sample are in which group, or OOD set; looked up when a bound asks."""

    sample: Sample
    rows: IntArray | None = None
    """Those of the sample's rows that matter, ID rows first; None for all."""

    def members(self, part: Part) -> BoolArray:
        """Return which of the rows a part is made of."""
        sample, n_id = self.sample, len(self.sample.id_scores)
        member = np.zeros(n_id + len(sample.ood_scores), bool)
        if part.mass == "ood":
            place = sample.ood_sets[str(part.of)]
            member[n_id + place.start : n_id + place.stop] = True
        elif sample.group_code is not None:
            member[:n_id] = sample.group_code == sample.groups.index(str(part.of))
        return member if self.rows is None else member[self.rows]

    def totals(self, id_mass: IntArray, ood_mass: Masses) -> dict[str, Any]:
        """Return the masses of groups and sets, as `Totals` have them, from those of all rows.

        `id_mass` is of all rows, `ood_mass` of the OOD rows.
        """
        sample, n_id = self.sample, len(self.sample.id_scores)
        groups: tuple[tuple[str, int], ...] = ()
        if sample.group_code is not None:
            # Sums of integers below 2**52 are exact in float64.
            sums = np.bincount(sample.group_code, id_mass[:n_id], len(sample.groups))
            groups = tuple(zip(sample.groups, map(int, sums), strict=True))
        sets = tuple((name, ood_mass.total_of(rows)) for name, rows in sample.ood_sets.items())
        return {"groups": groups, "sets": sets}


@dataclass(frozen=True, slots=True, eq=False)
class RowMasses:
    """Integer masses of all rows of a sample, ID rows first."""

    id: IntArray
    ood: IntArray
    """Shape (sets, n): OOD mass, a row per OOD set that is bounded by itself."""
    loss: IntArray
    totals: Totals
    labels: Labels

    @classmethod
    def of(cls, sample: Sample, ood: str = "pooled", *, spare: int = 0) -> RowMasses:
        """Lower weights and losses; `ood` is ``"pooled"`` or ``"worst"``.

        With `spare` bits all rows can count 2**spare times.
        """
        n_id, n_ood = len(sample.id_scores), len(sample.ood_scores)
        id_mass = _masses(sample.id_weight, n_id, spare)
        ood_mass = _masses(sample.ood_weight, n_ood, spare)
        loss = sample.id_loss if sample.id_weight is None else sample.id_weight * sample.id_loss
        if not np.isfinite(loss.sum()):
            raise InvalidInputError("id_loss adds up to more than a float can hold")
        loss_mass = Masses.of(loss, spare=spare)
        groups = _groups(sample, ood)
        masses = np.zeros((2 + len(groups), n_id + n_ood), np.int64)
        masses[0, :n_id], masses[1, :n_id] = id_mass.values, loss_mass.values
        for row, rows in zip(masses[2:, n_id:], groups, strict=True):
            row[rows] = ood_mass.values[rows]
        labels = Labels(sample)
        totals = Totals(
            id=id_mass.total,
            ood=tuple(ood_mass.total_of(rows) for rows in groups),
            loss=loss_mass.total,
            id_exponent=id_mass.exponent,
            ood_exponent=ood_mass.exponent,
            loss_exponent=loss_mass.exponent,
            id_rounding=id_mass.rounding,
            ood_rounding=ood_mass.rounding,
            loss_rounding=n_id if loss_mass.exponent else 0,
            **labels.totals(masses[0], ood_mass),
        )
        return cls(masses[0], masses[2:], masses[1], totals, labels)

    def repeated(self, times: IntArray) -> RowMasses:
        """Return the masses when row i counts `times[i]` times, which must be spared for."""
        n_id = len(self.labels.sample.id_scores)
        id_, loss = np.zeros_like(self.id), np.zeros_like(self.loss)
        # OOD rows have no ID mass, and no loss.
        np.multiply(self.id[:n_id], times[:n_id], out=id_[:n_id])
        np.multiply(self.loss[:n_id], times[:n_id], out=loss[:n_id])
        ood = self.ood * times
        pooled = ood[0] if len(ood) == 1 else ood.sum(axis=0)
        totals = replace(
            self.totals,
            id=int(id_[:n_id].sum()),
            ood=tuple(int(total) for total in ood.sum(axis=1)),
            loss=int(loss[:n_id].sum()),
            **self.labels.totals(id_, Masses(pooled[n_id:])),
        )
        return RowMasses(id_, ood, loss, totals, self.labels)


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """Rows that some rule can accept, ID rows first, with integer masses.

    Rows with a score of +inf are left out (no rule accepts them) but stay in `totals`; so are
    rows without weight.
    """

    scores: FloatArray
    """Shape (n, k)."""
    id: IntArray
    ood: IntArray
    """Shape (sets, n): OOD mass, a row per OOD set that is bounded by itself."""
    loss: IntArray
    totals: Totals
    rows: IntArray | None = None
    """Which rows of the sample these are, ID rows first; None for all of them."""
    labels: Labels | None = None
    of_groups: IntArray | None = None
    """Shape (2 * groups, n): ID mass of each group, then loss mass of each, where points stand for
    rows of several and so have no labels."""
    ranges: Ranges | None = None
    """The smallest and the largest of each score, where they are known."""

    @classmethod
    def of(cls, sample: Sample, ood: str = "pooled") -> Points:
        """Lower `sample`; `ood` is ``"pooled"`` or ``"worst"`` (every set bounded by itself)."""
        masses = RowMasses.of(sample, ood)
        scores, ranges = all_scores(sample)
        unweighted = sample.id_weight is None and sample.ood_weight is None
        if unweighted and ranges is not None:
            taken = masses.id, masses.ood, masses.loss
            return cls(scores, *taken, masses.totals, labels=masses.labels, ranges=ranges)
        kept = np.isfinite(scores).all(axis=1)
        kept &= (masses.id > 0) | (masses.ood > 0).any(axis=0)
        rows = np.flatnonzero(kept)
        labels = replace(masses.labels, rows=rows)
        return cls(scores[rows], *_of_rows(masses, rows), masses.totals, rows, labels)

    def weighted(self, masses: RowMasses) -> Points:
        """Return the same points with other masses of the sample's rows."""
        taken = (masses.id, masses.ood, masses.loss)
        if self.rows is not None:
            taken = _of_rows(masses, self.rows)
        return Points(self.scores, *taken, masses.totals, self.rows, self.labels)

    def present(self) -> Points:
        """Return the points that have any mass."""
        # Corners of cells have losses apart from ID mass.
        has_mass = (self.id > 0) | (self.loss > 0) | (self.ood > 0).any(axis=0)
        if has_mass.all():
            return self
        some = np.flatnonzero(has_mass)
        rows = some if self.rows is None else self.rows[some]
        masses = self.id[some], self.ood[:, some], self.loss[some]
        labels = None if self.labels is None else replace(self.labels, rows=rows)
        of_groups = None if self.of_groups is None else self.of_groups[:, some]
        return Points(self.scores[some], *masses, self.totals, rows, labels, of_groups)

    def parts(self, parts: tuple[Part, ...]) -> IntArray | None:
        """Return the masses that each point has of some parts, shape (parts, n); None of none."""
        if not parts:
            return None
        found = np.empty((len(parts), len(self.id)), np.int64)
        for mass, part in zip(found, parts, strict=True):
            mass[:] = self.part(part)
        return found

    def part(self, part: Part) -> IntArray:
        """Return the mass that each point has of a part of all rows."""
        if part.below is not None:
            a, b = part.below
            id_, loss = (self.part(Part(mass, part.of)) for mass in ("id", "loss"))
            welcome = products_ordered(b, loss, a, id_)
            return np.where(welcome, loss if part.mass == "loss" else id_, 0)
        if part.of is not None:
            return self._named(part)
        if part.mass == "ood":
            return np.asarray(self.ood[0] if len(self.ood) == 1 else self.ood.sum(axis=0))
        return self.id if part.mass == "id" else self.loss

    def _named(self, part: Part) -> IntArray:
        """Return the mass that each point has of one group or set."""
        if part.mass == "ood" and len(self.ood) == len(self.totals.sets):
            names = [name for name, _ in self.totals.sets]
            return np.asarray(self.ood[names.index(str(part.of))])
        if self.labels is not None:
            return self.part(Part(part.mass)) * self.labels.members(part)
        names = [name for name, _ in self.totals.groups]
        place = names.index(str(part.of)) + (len(names) if part.mass == "loss" else 0)
        assert self.of_groups is not None, "points of a source that is bounded by group have these"
        return np.asarray(self.of_groups[place])

    def group_code(self) -> npt.NDArray[np.int32] | None:
        """Return the place of each ID point's group among all; None if there are no groups."""
        if self.labels is None or self.labels.sample.group_code is None:
            return None
        code = self.labels.sample.group_code
        return code if self.rows is None else code[self.rows[self.rows < len(code)]]

    def is_zero_one(self) -> bool:
        """Return whether the loss of every point is none, or as large as its ID mass."""
        return bool(((self.loss == 0) | (self.loss == self.id)).all())


def all_scores(sample: Sample) -> tuple[FloatArray, Ranges | None]:
    """Return the scores of all rows as doubts, ID rows first, and their ranges if all are finite.

    What is -0.0 in the sample is 0.0 here: they must compare and merge as the same score.
    """
    n_id, (n_ood, count) = len(sample.id_scores), sample.ood_scores.shape
    scores = np.empty((n_id + n_ood, count))
    passes = engine().passes
    sides = (sample.id_scores, scores[:n_id]), (sample.ood_scores, scores[n_id:])
    if passes is not None and count == 2:
        signs = sample.columns.signs
        found = [passes.copy_scores(raw, signs, into) for raw, into in sides if len(raw)]
        known = [ranges for ranges in found if ranges is not None]
        return scores, _together(known) if len(known) == len(found) else None
    for raw, into in sides:
        np.add(sample.columns.as_doubts(raw), 0.0, out=into)
    return scores, ranges_of(scores) if np.isfinite(scores).all() else None


def _together(ranges: list[Ranges]) -> Ranges:
    """Return the ranges of columns from those of their parts."""
    return [
        (min(low for low, _ in parts), max(high for _, high in parts))
        for parts in zip(*ranges, strict=True)
    ]


def ranges_of(scores: FloatArray) -> Ranges:
    """Return the ranges of columns; none without rows."""
    # Column by column: reductions over the short axis of pairs are slow.
    return [(float(column.min()), float(column.max())) for column in scores.T if len(column)]


def frame_of(scores: FloatArray, ranges: Ranges | None = None) -> Frame:
    """Return the frame for scores, finite, of shape (n, 2), whose ranges may be known."""
    if len(scores) == 0:
        return PLAIN
    ranges = ranges_of(scores) if ranges is None else ranges
    lattices = [_lattice(x, *ends) for x, ends in zip(scores.T, ranges, strict=True)]
    first, second = lattices
    if first is not None and second is not None:
        return Frame((first[0], second[0]), (first[1], second[1]), True)
    shifts = [_offset(*ends) for ends in ranges]
    return Frame((shifts[0], shifts[1]))


def _lattice(values: FloatArray, low: float, high: float) -> tuple[float, float] | None:
    """Return shift and divisor that make all values whole numbers, of not too many steps."""
    if low == high:
        # A column that never changes is a single step, wherever it is.
        return low, 1.0
    if not (high - low <= _STEPS and max(-low, high) <= _FARTHEST):
        return None
    sample = values[:: max(1, len(values) // _SAMPLE)]
    reach, size = high - low, max(-low, high)
    decimals = [d for d in _DECIMALS if reach * d <= _STEPS and size * d <= _FARTHEST]
    for divisors in (decimals, [_finest_dyadic(reach, size)]):
        # What is no multiple of the finest step is none of any other.
        if divisors and _are_steps(sample, divisors[-1]):
            for divisor in divisors:
                if _are_steps(sample, divisor) and _are_steps(values, divisor):
                    return float(np.rint((low + high) / 2 * divisor)), divisor
    return None


def _are_steps(values: FloatArray, divisor: float) -> bool:
    for start in range(0, len(values), BLOCK):
        part = values[start : start + BLOCK]
        steps = part * divisor
        np.rint(steps, out=steps)
        # Division rounds correctly, as reading a decimal does.
        steps /= divisor
        if not (steps == part).all():
            return False
    return True


def _finest_dyadic(reach: float, size: float) -> float:
    """Return the largest power of two that leaves a column within its limits."""
    _, exponent = math.frexp(min(_STEPS / reach, _FARTHEST / size))
    return 2.0 ** min(max(exponent - 1, 0), 1000)


def _offset(low: float, high: float) -> float:
    middle = low / 2 + high / 2
    return middle if abs(middle) >= _OFFSET * (high - low) else 0.0


def _of_rows(masses: RowMasses, rows: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    return masses.id[rows], masses.ood[:, rows], masses.loss[rows]


def _masses(weight: FloatArray | None, rows: int, spare: int) -> Masses:
    if weight is None:
        return Masses.ones(rows)
    return Masses.of(weight, spare=spare)


def _groups(sample: Sample, ood: str) -> list[slice]:
    if ood == "pooled":
        return [slice(0, len(sample.ood_scores))]
    if ood == "worst":
        return list(sample.ood_sets.values())
    raise InvalidInputError(f'ood must be "pooled" or "worst", got {ood!r}')
