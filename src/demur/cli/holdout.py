"""Keeping a part of the rows for an honest estimate."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import Any

import numpy as np
import numpy.typing as npt

from demur._arrays import BoolArray


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
