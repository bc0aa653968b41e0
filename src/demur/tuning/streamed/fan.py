"""Where in a cone to look for a better half-plane, and what counting there tells.

Cells of scores, taken as if all their rows were in the middle, tell about how good the best
threshold of a direction is. That is smooth in the direction where many rows are counted, so the
lowest point of a parabola is a good guess. Strips there are counted exactly.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur.core.program import Program
from demur.core.source import Profile, Strip
from demur.tuning.streamed.bound import Incumbent, best_of
from demur.tuning.streamed.cells import ID, LOSS, OOD, Grid
from demur.tuning.streamed.cloud import corners
from demur.tuning.streamed.cone import Cone
from demur.tuning.streamed.zones import Zone

_DIRECTIONS = 13
_STEPS = 1024


def strips_in(
    cone: Cone, zones: Sequence[Zone], marked: Grid, rest: Grid, program: Program
) -> list[Strip]:
    """Return strips in the directions that promise most."""
    ends = np.array([zone.t for zone in zones])
    directions = np.linspace(ends.min(), ends.max(), _DIRECTIONS)
    value = np.full(_DIRECTIONS, np.nan)
    for place, t in enumerate(directions):
        best = _about(cone, float(t), _reach(zones, float(t)), marked, rest, program)
        if best is not None:
            value[place] = program.value(best.id, best.ood, best.loss)
    known = np.flatnonzero(np.isfinite(value))
    if len(known) == 0:
        return []
    promising = {float(directions[known[np.argmin(value[known])]])}
    promising.add(_lowest(directions[known], value[known]))
    return [Strip(cone.direction(t), *_reach(zones, t), _STEPS) for t in sorted(promising)]


def _reach(zones: Sequence[Zone], t: float) -> tuple[float, float]:
    """Return the least and the largest threshold of the zones in a direction, or near it."""
    apart = [max(zone.t[0] - t, t - zone.t[1], 0.0) for zone in zones]
    near = [zone for zone, far in zip(zones, apart, strict=True) if far <= min(apart)]
    return min(min(zone.low) for zone in near), max(max(zone.high) for zone in near)


def _about(
    cone: Cone,
    t: float,
    reach: tuple[float, float],
    marked: Grid,
    rest: Grid,
    program: Program,
) -> Incumbent | None:
    """Return about what the best threshold of a direction accepts."""
    weights = np.array(cone.direction(t))
    middle, others = ((grid.low + grid.high) / 2 @ weights for grid in (marked, rest))
    order = np.argsort(middle)
    below = rest.mass[:, others <= sum(reach) / 2].sum(axis=1, keepdims=True)
    total = below + np.cumsum(marked.mass.take(order, axis=1), axis=1)
    return best_of(program, total[ID], total[OOD:], total[LOSS])


def _lowest(directions: FloatArray, value: FloatArray) -> float:
    """Return the lowest point of the parabola through the best values."""
    best = float(directions[np.argmin(value)])
    width, depth = float(np.ptp(directions)), float(np.ptp(value))
    if len(value) < 5 or not width > 0 or not depth > 0:
        return best
    place = (directions - directions[0]) / width
    square, linear, _ = np.polyfit(place, (value - value.min()) / depth, 2)
    if square <= 0:
        return best
    return float(directions[0] + width * np.clip(-linear / (2 * square), 0, 1))


def best_on(
    strips: Sequence[Strip],
    profiles: Sequence[Profile],
    rest: Grid,
    cone: Cone,
    program: Program,
) -> Incumbent | None:
    """Return the best that is known along strips, of which rows of marked cells were counted.

    The rows of other cells count where they look worst, as in `cloud`.
    """
    first, last = corners(rest.low.T, rest.high.T, cone.signs)
    found = []
    for strip, profile in zip(strips, profiles, strict=True):
        # Products and sums as in rules, which round monotonically.
        p, q = (sign * w for sign, w in zip(cone.signs, strip.weights, strict=True))
        early, late = (p * corner[0] + q * corner[1] for corner in (first, last))
        nI = profile.id + _below(rest.mass[[ID]], late, profile.threshold)[0]
        paid = _below(rest.mass[[LOSS, *range(OOD, len(rest.mass))]], early, profile.threshold)
        found.append(best_of(program, nI, profile.ood + paid[1:], profile.loss + paid[0]))
    known = [one for one in found if one is not None]
    return min(known, key=lambda one: one.rank(program), default=None)


def _below(mass: IntArray, value: FloatArray, thresholds: FloatArray) -> IntArray:
    """Return the masses with values at or below each threshold."""
    slot = np.searchsorted(thresholds, value)
    sums = np.zeros((len(mass), len(thresholds) + 1), np.int64)
    for total, column in zip(sums, mass, strict=True):
        np.add.at(total, slot, column)
    return np.asarray(np.cumsum(sums[:, :-1], axis=1))
