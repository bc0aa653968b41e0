"""Parts of a sample, and rows that belong together, such as those of a patient.

Parts are drawn separately from the ID rows and from every OOD set.

Rows of one id are not independent, so no count of rows is a proof. Ids are independent, and two
things can be said of them: of one row of each id, drawn at random, all that is said of independent
rows; and of the averages over the rows of each id, what bounded means allow. Both are about the
same rates: those of a row drawn at random from an id drawn at random, where every id counts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from demur._arrays import BoolArray, FloatArray, IntArray, seeded
from demur.core.sample import Sample, members
from demur.errors import InvalidInputError
from demur.guarantees.intervals import (
    Interval,
    mean_lower,
    mean_upper,
    ratio_upper,
)

Seed = np.random.Generator | int | None
Groups = tuple[npt.ArrayLike, npt.ArrayLike]
"""Names of what the ID rows and the OOD rows belong to, such as patients."""


def split(sample: Sample, share: float | tuple[float, float], rng: Seed) -> tuple[Sample, Sample]:
    """Return a random part with `share` of the ID rows and of every OOD set, and the rest.

    A pair is a share for either side.
    """
    shares = share if isinstance(share, tuple) else (share, share)
    for one in shares:
        if not 0 < one < 1:
            raise InvalidInputError(f"share must be between 0 and 1, got {one}")
    if sample.n_id < 2:
        raise InvalidInputError("a sample with one ID row cannot be split")
    generator = seeded(rng)
    sets = np.zeros(sample.n_ood, np.int64)
    for number, rows in enumerate(sample.ood_sets.values()):
        sets[rows] = number
    parts = [
        systematic_part(strata, one, generator)
        for strata, one in zip((np.zeros(sample.n_id), sets), shares, strict=True)
    ]
    return sample.subset(*parts), sample.subset(*(~part for part in parts))


def systematic_part(
    strata: npt.NDArray[Any], share: float, generator: np.random.Generator
) -> BoolArray:
    """Return a random part of rows that has `share` of every stratum, as nearly as possible.

    Rows are shuffled and put together by stratum; then one in every 1/share is taken, from a
    random start. So every row has the same chance, and strata of a few rows, or of one, keep
    their share of the part together. Of two rows or more, some are in the part and some are not.
    """
    order = generator.permutation(len(strata))
    order = order[np.argsort(strata[order], kind="stable")]
    steps = np.floor(share * np.arange(len(order) + 1) + generator.random())
    part = np.zeros(len(strata), np.bool_)
    part[order[np.diff(steps) > 0]] = True
    if len(part) > 1 and part.all() != part.any():
        return part
    if len(part) > 1:
        part[order[0]] = not part[order[0]]
    return part


def fold_numbers(
    sample: Sample, count: int, rng: Seed, groups: Groups | None = None
) -> tuple[IntArray, IntArray]:
    """Return the fold number of each ID and each OOD row, as even as possible.

    Rows of a group get the same number; without groups every row is its own. A group belongs to
    the first of ID and the OOD sets that it has rows in.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 2:
        raise InvalidInputError(f"folds must be a whole number of at least 2, got {count!r}")
    found = group_strata(sample, groups)
    able = len(found.strata[0])
    if count > able:
        what = "ID rows" if groups is None else "groups of ID rows"
        raise InvalidInputError(f"folds is {count}, but there are only {able} {what}")
    generator = seeded(rng)
    numbers = np.empty(found.count, np.int64)
    for stratum in found.strata:
        numbers[stratum] = generator.permutation(np.arange(len(stratum)) % count)
    of_rows = numbers[found.of_rows]
    return of_rows[: sample.n_id], of_rows[sample.n_id :]


@dataclass(frozen=True, slots=True, eq=False)
class GroupStrata:
    """Groups of rows, each in the first of ID and the OOD sets that it has rows in."""

    of_rows: IntArray
    """The group of every row, ID rows before OOD rows."""
    strata: tuple[IntArray, ...]
    """The groups of ID, and of every OOD set."""
    count: int


def group_strata(sample: Sample, groups: Groups | None) -> GroupStrata:
    """Return the groups of a sample; without them every row is its own."""
    first, codes = _grouped(sample, groups)
    strata = tuple(
        np.flatnonzero(np.isin(first, rows + side * sample.n_id)) for side, rows in _strata(sample)
    )
    return GroupStrata(codes, strata, len(first))


def _grouped(sample: Sample, groups: Groups | None) -> tuple[IntArray, IntArray]:
    """Return the first row of every group, and the group of every row, ID rows before OOD rows."""
    if groups is None:
        rows = np.arange(sample.n_id + sample.n_ood)
        return rows, rows
    names = np.concatenate(checked_groups(sample, groups))
    _, first, codes = np.unique(names, return_index=True, return_inverse=True)
    return first, codes


def checked_groups(sample: Sample, groups: Groups) -> tuple[IntArray, IntArray]:
    """Return numbers of what the ID rows and the OOD rows belong to; equal names, equal numbers."""
    if not isinstance(groups, (tuple, list)) or len(groups) != 2:
        raise InvalidInputError(
            "groups must be a pair, the names for the ID rows and those for the OOD rows, got "
            f"{type(groups).__name__}"
        )
    id_names, ood_names = map(np.asarray, groups)
    if (id_names.shape, ood_names.shape) != ((sample.n_id,), (sample.n_ood,)):
        raise InvalidInputError(
            f"groups must be a name for each of the {sample.n_id} ID rows and of the "
            f"{sample.n_ood} OOD rows, got arrays of shape {id_names.shape} and {ood_names.shape}"
        )
    names = np.concatenate([id_names.astype(str), ood_names.astype(str)])
    codes = np.unique(names, return_inverse=True)[1]
    return codes[: sample.n_id], codes[sample.n_id :]


def _strata(sample: Sample) -> list[tuple[int, IntArray]]:
    """Return (0, ID rows) and (1, rows) of every OOD set."""
    sets = [(1, np.arange(rows.start, rows.stop)) for rows in sample.ood_sets.values()]
    return [(0, np.arange(sample.n_id)), *sets]


EVERY_ID_ONCE = (
    "Every id counts once: the rates are those of a row drawn at random from an id drawn at random."
)


def repeated(sample: Sample, groups: Groups) -> tuple[int, int]:
    """Return the numbers of rows and of different ids, an id counted once on each side."""
    sides = checked_groups(sample, groups)
    return sample.n_id + sample.n_ood, sum(len(np.unique(side)) for side in sides)


def repeats_ids(sample: Sample, groups: Groups) -> bool:
    """Return whether rows of a side share an id."""
    rows, ids = repeated(sample, groups)
    return ids < rows


def refuse_repeated(sample: Sample, groups: Groups, instead: str) -> None:
    """Raise if rows share an id; `instead` says what can be done."""
    rows, ids = repeated(sample, groups)
    if ids < rows:
        raise InvalidInputError(
            f"exact bounds count independent rows, but the {rows:,} rows have {ids:,} ids: "
            f"{instead}"
        )


def one_of_each(sample: Sample, groups: Groups, rng: Seed) -> Sample:
    """Return one row of every id, drawn at random, of the ID rows and of the OOD rows.

    An id must have rows of one OOD set only: which of its sets a row is of would be a draw, too,
    and no set would be represented by the rows drawn.
    """
    generator = seeded(rng)
    id_names, ood_names = checked_groups(sample, groups)
    parts = [ood_names[rows] for rows in sample.ood_sets.values()]
    if sum(len(np.unique(part)) for part in parts) > len(np.unique(ood_names)):
        raise InvalidInputError(
            "some ids have rows of several OOD sets, so that one row of each id represents none "
            "of the sets: keep each id in one set, or put the sets together"
        )
    return sample.subset(_drawn(id_names, generator), _drawn(ood_names, generator))


def in_several_groups(sample: Sample, groups: Groups) -> bool:
    """Return whether some id has ID rows of several groups of the sample."""
    if sample.group_code is None:
        return False
    names = checked_groups(sample, groups)[0]
    pairs = np.unique(np.column_stack([names, sample.group_code]), axis=0)
    return len(pairs) > len(np.unique(names))


def on_both_sides(sample: Sample, groups: Groups) -> bool:
    """Return whether some id has ID and OOD rows, or rows of several OOD sets."""
    id_names, ood_names = checked_groups(sample, groups)
    parts = [id_names, *(ood_names[rows] for rows in sample.ood_sets.values())]
    different = sum(len(np.unique(part)) for part in parts)
    return different > len(np.unique(np.concatenate(parts)))


def _drawn(names: IntArray, generator: np.random.Generator) -> IntArray:
    order = generator.permutation(len(names))
    return np.sort(order[np.unique(names[order], return_index=True)[1]])


@dataclass(frozen=True, slots=True, eq=False)
class IdMeans:
    """Averages over the rows of each id, to be bounded by betting."""

    sample: Sample
    accepted: tuple[BoolArray, BoolArray]
    names: tuple[IntArray, IntArray]
    max_loss: float
    rng: Seed

    @classmethod
    def of(
        cls,
        sample: Sample,
        accepted: tuple[BoolArray, BoolArray],
        groups: Groups,
        max_loss: float,
        rng: Seed,
    ) -> IdMeans:
        """Take which ID and OOD rows are accepted, and what they belong to."""
        return cls(sample, accepted, checked_groups(sample, groups), max_loss, rng)

    def tpr(self, level: float, *, low: bool, high: bool, group: str | None = None) -> Interval:
        """Bound the TPR."""
        own = members(self.sample, group)
        return self._share(self.accepted[0][own], self.names[0][own], level, low=low, high=high)

    def fpr(self, part: slice, level: float, *, low: bool, high: bool) -> Interval:
        """Bound the FPR of some OOD rows."""
        return self._share(self.accepted[1][part], self.names[1][part], level, low=low, high=high)

    def risk(self, level: float, *, both: bool, group: str | None = None) -> Interval:
        """Bound the selective risk, a ratio of two means."""
        own = members(self.sample, group)
        accepted, names = self.accepted[0][own].astype(float), self.names[0][own]
        taken = self._shuffled(_means(accepted, names))
        lost = self._shuffled(_means(accepted * self.sample.id_loss[own], names))
        each, most = level / 2 if both else level, self.max_loss
        high = ratio_upper(lost, taken, each, max_value=most)
        if not both:
            return Interval(0.0, high)
        return Interval(most - ratio_upper(most * taken - lost, taken, each, max_value=most), high)

    def _share(
        self, accepted: BoolArray, names: IntArray, level: float, *, low: bool, high: bool
    ) -> Interval:
        means = self._shuffled(_means(accepted.astype(float), names))
        level = level / 2 if low and high else level
        return Interval(
            mean_lower(means, level) if low else 0.0, mean_upper(means, level) if high else 1.0
        )

    def _shuffled(self, means: FloatArray) -> FloatArray:
        # The same order each time, so that means of one id stay together.
        return seeded(self.rng).permutation(means) if len(means) else means


def _means(values: FloatArray, names: IntArray) -> FloatArray:
    _, codes = np.unique(names, return_inverse=True)
    return np.bincount(codes, values) / np.bincount(codes) if len(codes) else np.empty(0)


def sorted_rows(sample: Sample) -> Sample:
    """Return the rows in an order that depends neither on theirs nor on that of the columns.

    Examples
    --------
    >>> sorted_rows(Sample([0.3, 0.1], [0, 1], ood_scores=[0.9, 0.5])).id_loss.tolist()
    [1.0, 0.0]
    """
    names = sample.columns.names or tuple(map(str, range(sample.n_scores)))
    columns = np.argsort(names)
    groups = () if sample.group_code is None else (sample.group_code,)
    own_weight = () if sample.id_weight is None else (sample.id_weight,)
    own = np.lexsort((*own_weight, *groups, sample.id_loss, *sample.id_scores.T[columns]))
    ood = [np.arange(0)]
    for rows in sample.ood_sets.values():
        weight = () if sample.ood_weight is None else (sample.ood_weight[rows],)
        ood.append(rows.start + np.lexsort((*weight, *sample.ood_scores[rows].T[columns])))
    return sample.subset(own, np.concatenate(ood))
