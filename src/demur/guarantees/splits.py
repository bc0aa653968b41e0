"""Parts of a sample, drawn separately from the ID rows and from every OOD set."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from demur._arrays import IntArray, seeded
from demur.core.sample import Sample
from demur.errors import InvalidInputError

Seed = np.random.Generator | int | None
Groups = tuple[npt.ArrayLike, npt.ArrayLike]
"""Names of what the ID rows and the OOD rows belong to, such as patients."""


def split(sample: Sample, share: float, rng: Seed) -> tuple[Sample, Sample]:
    """Return a random part with `share` of the ID rows and of every OOD set, and the rest."""
    if not 0 < share < 1:
        raise InvalidInputError(f"share must be between 0 and 1, got {share}")
    if sample.n_id < 2:
        raise InvalidInputError("a sample with one ID row cannot be split")
    generator = seeded(rng)
    first: list[list[IntArray]] = [[], []]
    rest: list[list[IntArray]] = [[], []]
    for side, rows in _strata(sample):
        order = generator.permutation(rows)
        # Both parts get a row of what has two; a single OOD row goes to the rest.
        count = min(max(round(share * len(order)), 1), len(order) - 1) if len(order) else 0
        first[side].append(np.sort(order[:count]))
        rest[side].append(np.sort(order[count:]))
    return sample.subset(*map(np.concatenate, first)), sample.subset(*map(np.concatenate, rest))


def fold_numbers(
    sample: Sample, count: int, rng: Seed, groups: Groups | None = None
) -> tuple[IntArray, IntArray]:
    """Return the fold number of each ID and each OOD row, as even as possible.

    Rows of a group get the same number; without groups every row is its own. A group belongs to
    the first of ID and the OOD sets that it has rows in.
    """
    if isinstance(count, bool) or not isinstance(count, int) or count < 2:
        raise InvalidInputError(f"folds must be a whole number of at least 2, got {count!r}")
    first, codes = _grouped(sample, groups)
    able = int((first < sample.n_id).sum())
    if count > able:
        what = "ID rows" if groups is None else "groups of ID rows"
        raise InvalidInputError(f"folds is {count}, but there are only {able} {what}")
    generator = seeded(rng)
    numbers = np.empty(len(first), np.int64)
    for side, rows in _strata(sample):
        members = np.flatnonzero(np.isin(first, rows + side * sample.n_id))
        numbers[members] = generator.permutation(np.arange(len(members)) % count)
    of_rows = numbers[codes]
    return of_rows[: sample.n_id], of_rows[sample.n_id :]


def _grouped(sample: Sample, groups: Groups | None) -> tuple[IntArray, IntArray]:
    """Return the first row of every group, and the group of every row, ID rows before OOD rows."""
    if groups is None:
        rows = np.arange(sample.n_id + sample.n_ood)
        return rows, rows
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
    names = np.concatenate([id_names, ood_names]).astype(str)
    _, first, codes = np.unique(names, return_index=True, return_inverse=True)
    return first, codes


def _strata(sample: Sample) -> list[tuple[int, IntArray]]:
    """Return (0, ID rows) and (1, rows) of every OOD set."""
    sets = [(1, np.arange(rows.start, rows.stop)) for rows in sample.ood_sets.values()]
    return [(0, np.arange(sample.n_id)), *sets]
