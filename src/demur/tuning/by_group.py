"""A rule for each group: the best overall under common bounds.

Every group has its own rule, chosen so that the bounds hold for all groups together: one group may
accept more OOD rows where that costs others least. Of each group only the operating points matter
that no other of its rules beats in ID, OOD and loss mass at once; sums of these are compared
exactly. Sums that cannot belong to anything better than the best known are dropped by a bound: for
any prices of OOD mass accepted and of ID mass that is lacking, the least priced loss of each group.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray, check_kind
from demur.core.models import RejectionModel, check_model
from demur.core.points import Points
from demur.core.program import Program
from demur.core.rates import AcceptedMasses, OperatingPoint, evaluate, operating_point
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.errors import DemurError, InvalidInputError
from demur.tuning.operating_points import Rules, operating_points, settle
from demur.tuning.prepared import LinearParts, goal_of
from demur.tuning.result import Directions, infeasible_error

MOST_ROWS = 3000
"""So many rows of two scores a group may have: all their half-planes are looked at."""
_MOST_SUMS = 1 << 24
# Prices tried, in loss per mass.
_PRICES = np.concatenate([[0.0], np.geomspace(1e-3, 30, 24)])
_DOUBT = 1e-9


@dataclass(frozen=True, slots=True)
class GroupTuning:
    """A rule for each group, and what they do together."""

    rules: Mapping[str, Rule]
    point: OperatingPoint
    """Of all groups together; optimistic, as that of any tuning."""
    points: Mapping[str, OperatingPoint]
    """Of each group by itself."""
    model: RejectionModel

    def accept(self, scores: Any, groups: Sequence[str]) -> BoolArray:
        """Return True for the rows to accept, each by the rule of its group."""
        labels = np.asarray(groups, dtype=str)
        unknown = sorted(set(labels.tolist()) - set(self.rules))
        if unknown:
            raise InvalidInputError(f"groups: there is no rule for {unknown[0]!r}")
        accepted = np.zeros(len(labels), np.bool_)
        for name, rule in self.rules.items():
            rows = labels == name
            if rows.any():
                accepted[rows] = rule.accept(scores)[rows]
        return accepted


def tune_by_group(
    samples: Mapping[str, Sample], model: RejectionModel, *, directions: Directions = "nonneg"
) -> GroupTuning:
    """Return a rule for each group, the best overall with the model's bounds on all of them.

    Parameters
    ----------
    samples
        The rows of each group, ID and OOD: a group has to be known of every input, such as the
        predicted class. Scores must be the same ones.
    model
        Bounds are on all groups together; the FPR is that of all OOD rows.
    directions
        As of `tune`. Groups of two scores have at most 3,000 rows each.

    Examples
    --------
    >>> from demur import TprFprModel
    >>> cat = Sample([0.1, 0.2, 0.9], [0, 0, 1], ood_scores=[0.5])
    >>> dog = Sample([0.6, 0.7, 0.8], [0, 0, 1], ood_scores=[0.95])
    >>> tuned = tune_by_group({"cat": cat, "dog": dog}, TprFprModel(0.6, 0))
    >>> tuned.point.tpr, tuned.point.selective_risk
    (0.6666666666666666, 0.0)
    """
    check_model(model)
    whole, points = _joined(samples)
    _check(model, points, whole)
    program = model.program(whole.totals)
    fronts = [_front(part, directions) for part in points]
    chosen = _best(fronts, program, whole)
    if chosen is None:

        def find(other: Program) -> tuple[int, int, int] | None:
            rows = _best(fronts, other, whole)
            return None if rows is None else _sums(fronts, rows)

        raise infeasible_error(model, whole, find, kind="rule for each group")
    rules = {
        name: _rule(front, row, part, sample, directions)
        for (name, sample), front, row, part in zip(
            samples.items(), fronts, chosen, points, strict=True
        )
    }
    nI, nO, L = _sums(fronts, chosen)
    return GroupTuning(
        rules,
        operating_point(id_mass=nI, ood_masses=[nO], loss_mass=L, totals=whole.totals, model=model),
        {name: evaluate(rules[name], sample, model=model) for name, sample in samples.items()},
        model,
    )


def _joined(samples: Mapping[str, Sample]) -> tuple[Points, list[Points]]:
    """Return the points of all rows, and those of each group in the same units."""
    check_kind("samples", samples, Mapping)
    for name, sample in samples.items():
        check_kind(f"samples[{name!r}]", sample, Sample)
    parts = list(samples.values())
    if not parts or len({part.columns for part in parts}) > 1:
        raise InvalidInputError("samples must be of one or more groups with the same scores")
    joint = Sample(
        np.vstack([part.id_scores for part in parts]),
        np.concatenate([part.id_loss for part in parts]),
        np.vstack([part.ood_scores for part in parts]),
        id_weight=_weights([(part.id_weight, part.n_id) for part in parts]),
        ood_weight=_weights([(part.ood_weight, part.n_ood) for part in parts]),
        score_names=parts[0].columns.names,
        confidence=parts[0].columns.confidence,
    )
    whole = Points.of(joint)
    numbers = np.arange(len(parts))
    sizes = [part.n_id for part in parts], [part.n_ood for part in parts]
    group = np.concatenate([np.repeat(numbers, side) for side in sizes])
    if whole.rows is not None:
        group = group[whole.rows]
    found = []
    for k in range(len(parts)):
        rows = np.flatnonzero(group == k)
        masses = whole.id[rows], whole.ood[:, rows], whole.loss[rows]
        found.append(Points(whole.scores[rows], *masses, whole.totals))
    return whole, found


def _weights(parts: list[tuple[FloatArray | None, int]]) -> FloatArray | None:
    if all(weight is None for weight, _ in parts):
        return None
    return np.concatenate([np.ones(rows) if w is None else w for w, rows in parts])


def _check(model: RejectionModel, points: list[Points], whole: Points) -> None:
    model.check_rows(whole.totals)
    if any(bound.is_of_part for bound in model.bounds) or model.every_set:
        raise InvalidInputError(
            "model: bounds of single groups or sets are for one rule; a rule for each group keeps "
            "bounds on all rows together"
        )
    largest = max(len(part.scores) for part in points)
    if whole.scores.shape[1] == 2 and largest > MOST_ROWS:
        raise InvalidInputError(
            f"a group has {largest:,} rows of two scores, more than the {MOST_ROWS:,} whose "
            "half-planes can all be looked at: give one score, or a sample of the rows"
        )


def _front(points: Points, directions: Directions) -> Rules:
    """Return the rules of one group that none beats in ID, OOD and loss mass at once."""
    zero = np.zeros(1, np.int64)
    nothing = np.zeros((1, points.scores.shape[1] + 1))
    nothing[0, 0], nothing[0, -1] = 1.0, -math.inf
    best = Rules(zero, zero, zero, nothing)
    if len(points.scores) == 0:
        return best
    for batch in operating_points(points, directions, None):
        kept = _unbeaten(batch.id, batch.ood.sum(axis=0), batch.loss)
        rules = Rules(
            batch.id[kept], batch.ood.sum(axis=0)[kept], batch.loss[kept], batch.lines(kept)
        )
        best = Rules.joined(best, rules)
        best = best.take(_unbeaten(best.id, best.ood, best.loss))
    return best


def _unbeaten(nI: IntArray, nO: IntArray, L: IntArray) -> IntArray:
    """Return the rows that no other has at least the ID and at most the OOD and loss mass of."""
    order = np.lexsort((L, nO, -nI))
    kept: list[int] = []
    # Loss masses fall as OOD masses rise: what has come before has as much ID mass or more.
    ood: list[int] = []
    loss: list[int] = []
    for row, o, lost in zip(order.tolist(), nO[order].tolist(), L[order].tolist(), strict=True):
        place = bisect_right(ood, o)
        if place and loss[place - 1] <= lost:
            continue
        kept.append(row)
        end = place
        while end < len(ood) and loss[end] >= lost:
            end += 1
        if place and ood[place - 1] == o:
            place -= 1
        ood[place:end], loss[place:end] = [o], [lost]
    return np.array(sorted(kept), np.int64)


class _State(NamedTuple):
    """Sums of the masses of some groups, and the row that each of these contributes."""

    masses: FloatArray
    """Shape (3, n): ID, OOD and loss mass; sums below 2**53 are exact."""
    rows: IntArray
    """Shape (groups, n)."""


def _best(fronts: list[Rules], program: Program, whole: Points) -> list[int] | None:
    """Return the row of each front whose sum is best, None if none is feasible."""
    masses = [np.array([f.id, f.ood, f.loss], np.float64) for f in fronts]
    best: list[int] | None = None
    kept = [np.arange(m.shape[1]) for m in masses]
    prices: list[tuple[float, float]] = []
    for _ in range(3):
        known = None if best is None else _sums(fronts, best)
        priced, prices = _priced(masses, program, known)
        for rows in priced:
            best = _better(best, rows, fronts, program, whole)
    known = None if best is None else _sums(fronts, best)
    bounds = [_GroupBound.of(masses, program, known, price) for price in prices]
    for bound in bounds:
        kept = [rows[bound.open(k, masses[k][:, rows])] for k, rows in enumerate(kept)]
    order = sorted(range(len(fronts)), key=lambda k: len(kept[k]))
    state = _State(np.zeros((3, 1)), np.zeros((len(fronts), 1), np.int64))
    for place, k in enumerate(order):
        state = _added(state, masses[k], kept[k], k)
        state = _still_possible(state, order[place + 1 :], masses, kept, program, bounds)
    for rows in state.rows[:, _tied_best(state, program, whole)].T.tolist()[:1]:
        best = _better(best, rows, fronts, program, whole)
    return best


def _added(state: _State, masses: FloatArray, kept: IntArray, group: int) -> _State:
    n, m = state.masses.shape[1], len(kept)
    if n * m > _MOST_SUMS:
        raise InvalidInputError(
            f"a rule for each group: {n:,} x {m:,} sums of operating points would have to be "
            "compared; give fewer groups, or fewer or rounded scores"
        )
    total = (state.masses[:, :, None] + masses[:, None, kept]).reshape(3, -1)
    rows = np.repeat(state.rows, m, axis=1)
    rows[group] = np.tile(kept, n)
    return _State(total, rows)


def _still_possible(
    state: _State,
    left: list[int],
    masses: list[FloatArray],
    kept: list[IntArray],
    program: Program,
    bounds: list[_GroupBound],
) -> _State:
    """Drop sums that cannot be feasible, or better than the best known, or are beaten."""
    most = sum(float(masses[k][0, kept[k]].max(initial=0)) for k in left)
    nI, nO, _ = state.masses
    open_ = (nI + most >= program.min_id) & (nO <= program.max_ood[0])
    for bound in bounds:
        open_ &= bound.value(state.masses) + sum(bound.least[k] for k in left) <= bound.room
    found = _State(state.masses[:, open_], state.rows[:, open_])
    rows = _unbeaten(*found.masses.astype(np.int64))
    return _State(found.masses[:, rows], found.rows[:, rows])


class _GroupBound(NamedTuple):
    """What no sum better than the best known exceeds: its loss, ID and OOD mass at some prices."""

    weights: FloatArray
    """Of ID, OOD and loss mass."""
    least: list[float]
    """Of each group."""
    room: float

    @classmethod
    def of(
        cls,
        masses: list[FloatArray],
        program: Program,
        best: tuple[int, int, int] | None,
        price: tuple[float, float],
    ) -> _GroupBound:
        weights, limit = _objective(program, best)
        lacking, accepted = price
        weights = weights + np.array([-lacking, accepted, 0.0])
        least = [float((weights @ m).min()) for m in masses]
        room = limit - lacking * program.min_id + accepted * program.max_ood[0]
        size = sum(float(np.abs(weights) @ m.max(axis=1)) for m in masses) + abs(room)
        return cls(weights, least, room + _DOUBT * size)

    def value(self, masses: FloatArray) -> FloatArray:
        return np.asarray(self.weights @ masses)

    def open(self, group: int, masses: FloatArray) -> BoolArray:
        """Return which rows of one group may belong to something better."""
        rest = sum(self.least) - self.least[group]
        return np.asarray(self.value(masses) + rest <= self.room)


def _objective(program: Program, best: tuple[int, int, int] | None) -> tuple[FloatArray, float]:
    """Return weights of ID, OOD and loss mass, and what no better sum of them is above."""
    weights = np.array([program.id, program.ood, program.loss], np.float64)
    if best is None:
        return weights * 0.0, math.inf
    nI, nO, L = best
    total = program.id * nI + program.ood * nO + program.loss * L
    if not program.per_id:
        return weights, float(total)
    return weights - np.array([total / nI, 0.0, 0.0]), 0.0


def _priced(
    masses: list[FloatArray], program: Program, best: tuple[int, int, int] | None
) -> tuple[list[list[int]], list[tuple[float, float]]]:
    """Return sums that are best at some prices, and the prices that bound the optimum best."""
    weights, _ = _objective(program, best)
    if best is None:
        weights = np.array([program.id, program.ood, program.loss], np.float64)
    unit = max(float(np.abs(weights).max()), 1e-300)
    found, bounds = [], []
    for lacking in _PRICES * unit:
        for accepted in _PRICES * unit:
            at = weights + np.array([-lacking, accepted, 0.0])
            values = [at @ m for m in masses]
            found.append([int(v.argmin()) for v in values])
            least = sum(float(v.min()) for v in values)
            bound = least + lacking * program.min_id - accepted * program.max_ood[0]
            bounds.append((bound, (float(lacking), float(accepted))))
    bounds.sort(reverse=True)
    distinct = [list(rows) for rows in dict.fromkeys(map(tuple, found))]
    return distinct, [price for _, price in bounds[:8]]


def _better(
    best: list[int] | None,
    rows: list[int],
    fronts: list[Rules],
    program: Program,
    whole: Points,
) -> list[int] | None:
    """Return the better of two choices, of which the second may not be feasible."""
    tried = [rows] if best is None else [best, rows]
    masses = np.array([_sums(fronts, choice) for choice in tried], np.float64).T
    state = _State(masses, np.zeros((0, len(tried)), np.int64))
    found = _tied_best(state, program, whole)
    return tried[int(found[0])] if len(found) else best


def _tied_best(state: _State, program: Program, whole: Points) -> IntArray:
    """Return the feasible sums that none beats."""
    nI, nO, L = state.masses.astype(np.int64)
    linear = LinearParts.of(program, whole).linear
    extra = np.zeros((0 if linear is None else linear.extra, len(nI)), np.int64)
    goal = goal_of(program, linear)
    met = goal.met(nI, nO[None], L, extra)
    if not program.reject_all:
        met &= nI > 0
    rows = np.flatnonzero(met)
    tied: IntArray = rows[goal.best(nI[rows], nO[rows], L[rows])]
    return tied


def _sums(fronts: list[Rules], rows: Sequence[int]) -> tuple[int, int, int]:
    pairs = list(zip(fronts, rows, strict=True))
    return (
        sum(int(front.id[row]) for front, row in pairs),
        sum(int(front.ood[row]) for front, row in pairs),
        sum(int(front.loss[row]) for front, row in pairs),
    )


def _rule(front: Rules, row: int, points: Points, sample: Sample, directions: Directions) -> Rule:
    """Return the rule of a group, midway between accepted and rejected rows."""
    chosen = front.take(np.array([row]))
    if points.scores.shape[1] == 2 and chosen.lines[0, -1] > -math.inf:
        chosen, _ = settle(points, chosen, directions)
    *direction, threshold = chosen.lines[0].tolist()
    rule = Rule.of_doubts(direction, threshold, sample.columns)
    accepted = AcceptedMasses.of(rule, points, sample.columns)
    masses = int(front.id[row]), int(front.ood[row]), int(front.loss[row])
    if (accepted.id, sum(accepted.ood), accepted.loss) != masses:
        raise DemurError(
            f"the rule of a group accepts {accepted}, not {masses} as it should: a defect of "
            "demur, please report it with the data"
        )
    return rule
