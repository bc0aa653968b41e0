"""Answers about all rows from answers about disjoint parts of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from demur.core.source import Histogram, Profile, Tally
from demur.sources.counting import merged


def merged_histograms(parts: Sequence[Histogram]) -> Histogram:
    """Return the histogram of all parts, with profiles; the thresholds of these are the same."""
    profiles = tuple(
        Profile(
            strip[0].threshold,
            sum(profile.id for profile in strip),
            sum(profile.ood for profile in strip),
            sum(profile.loss for profile in strip),
        )
        for strip in zip(*(part.profiles for part in parts), strict=True)
    )
    return replace(merged(parts), profiles=profiles)


def merged_tallies(parts: Sequence[Mapping[Any, Tally]]) -> dict[Any, Tally]:
    """Return the tallies of all parts, group by group."""
    found: dict[Any, Tally] = {}
    for part in parts:
        for group, tally in part.items():
            found[group] = _added(found[group], tally) if group in found else tally
    return found


def _added(a: Tally, b: Tally) -> Tally:
    ood = [
        tuple(x + y for x, y in zip(*pair, strict=True))
        for pair in ((a.ood, b.ood), (a.total_ood, b.total_ood))
    ]
    return Tally(
        *(a.id + b.id, ood[0], a.loss + b.loss),
        *(a.total_id + b.total_id, ood[1], a.total_loss + b.total_loss),
    )
