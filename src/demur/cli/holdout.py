"""Keeping a part of the rows for an honest estimate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import numpy.typing as npt

from demur._arrays import BoolArray
from demur.cli.inputs import Rows
from demur.cli.options import Command, Number, complete_column, gathered, option
from demur.core.columns import ood_rows
from demur.core.program import Number as Bound
from demur.core.program import exact
from demur.core.sample import Sample
from demur.errors import InvalidInputError


@dataclass(frozen=True, slots=True)
class HoldoutOptions:
    """Which rows are kept for an honest estimate."""

    holdout: Bound | None
    seed: int
    group: str | None

    def held(self, rows: Rows) -> BoolArray | None:
        """Return which rows are held out; None when none are."""
        if self.holdout is None:
            return None
        share = exact("--holdout", self.holdout)
        if not 0 < share < 1:
            raise InvalidInputError(f"--holdout must be between 0 and 1, got {self.holdout}")
        ood = rows.options.ood
        length = len(rows.columns[rows.scores[0][0]])
        strata = np.zeros(length) if ood is None else rows.columns[ood].astype(str)
        groups = None if self.group is None else rows.columns[self.group]
        held = held_out(strata, share, seed=self.seed, groups=groups)
        if held.all() or not held.any():
            raise InvalidInputError("--holdout leaves one side without rows: too few rows or ids")
        return held


def holdout_options(group_help: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of the split as `split`."""
    add = option("Held-out rows")
    return gathered(
        "split",
        HoldoutOptions,
        [
            add("--holdout", type=Number(), help="Tune on the rest, evaluate on this share."),
            add("--seed", type=int, default=0, show_default=True, help="Seed of the split."),
            add(
                "--id",
                "group",
                metavar="COLUMN",
                shell_complete=complete_column,
                help=group_help,
            ),
        ],
    )


def samples(
    rows: Rows, names: Sequence[str], held: BoolArray | None
) -> tuple[Sample, Sample | None]:
    """Return the rows to tune on and the rows held out, if any are."""
    if held is None:
        return rows.sample(names), None
    return rows.sample(names, ~held), rows.sample(names, held)


def row_ids(
    rows: Rows, column: str | None, held: BoolArray | None = None
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]] | None:
    """Return the ids of the ID rows and of the OOD rows to tune on, in the order of the sample."""
    if column is None:
        return None
    kept = slice(None) if held is None else ~held
    columns = {name: values[kept] for name, values in rows.columns.items()}
    ids = columns[column]
    is_ood, sets = ood_rows(columns, rows.options.ood, len(ids))
    return ids[~is_ood], np.concatenate([ids[members] for members in sets.values()])


def held_out(
    strata: npt.NDArray[Any], share: Fraction, *, seed: int, groups: npt.NDArray[Any] | None = None
) -> BoolArray:
    """Return which rows are held out: `share` of the groups of every stratum, at random.

    Rows of a group stay together; without groups every row is its own. A stratum of two or
    more groups has some on both sides.
    """
    rng = np.random.default_rng(seed)
    if groups is None:
        first = codes = np.arange(len(strata))
    else:
        _, first, codes = np.unique(groups.astype(str), return_index=True, return_inverse=True)
    stratum = strata[first]
    held = np.zeros(len(first), np.bool_)
    for value in np.unique(stratum):
        members = rng.permutation(np.flatnonzero(stratum == value))
        count = floor(share * len(members) + Fraction(1, 2))
        held[members[: min(max(count, 1), len(members) - 1)]] = True
    return np.asarray(held[codes])
