"""Planning audits: how many labels a day find a break of a given size, and of which rows.

Answered by simulation with the very evidence that a watch computes: days of audited rows are drawn
from a broken rule, and the first day counts on which the evidence gives alarm.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from demur._arrays import FloatArray
from demur.core.models import Bound
from demur.errors import InvalidInputError
from demur.watch.evidence import Expectation, above, audited_share, below, bound_name, mean_above
from demur.watch.setup import WatchSetup, seen_rates, usual_prior

RANDOM, ACCEPTED, REJECTED = "all rows alike", "accepted rows", "rejected rows"
EVENLY, NEAR = "half accepted, half rejected", "accepted rows near the boundary"
WHERE = (RANDOM, ACCEPTED, REJECTED, EVENLY, NEAR)
"""Where audits can be made."""

_STREAMS = 400
_NEARER = 4.0
"""How much more often the accepted rows nearest to the boundary are audited."""


@dataclass(frozen=True, slots=True)
class World:
    """What a rule does in use, and what comes in a day."""

    tpr: float
    fpr: float
    selective_risk: float
    ood_prior: float
    rows_per_day: int
    strata: tuple[tuple[float, float], ...] = ((1.0, 1.0),)
    """Accepted ID rows from the most trusted to those at the boundary: share, and risk relative to
    the mean."""

    @property
    def accepted(self) -> float:
        """Share of accepted rows."""
        return (1 - self.ood_prior) * self.tpr + self.ood_prior * self.fpr

    @property
    def precision(self) -> float:
        """Share of ID rows among the accepted."""
        return (1 - self.ood_prior) * self.tpr / self.accepted if self.accepted else math.nan


@dataclass(frozen=True, slots=True)
class PlannedAudits:
    """What audits in one place find."""

    where: str
    audits_per_day: int | None
    """Fewest that find the break in time with the chance asked for; None if no number does."""
    days: Mapping[int, tuple[float, float]]
    """For some numbers of audits a day: the median day of the alarm, and the chance in time."""


@dataclass(frozen=True, slots=True)
class AuditPlan:
    """How many audits a day find a break, and where they should be made."""

    expectation: str
    broken: float
    """What the bounded quantity is once the rule is broken."""
    within: int
    """Days."""
    power: float
    alpha: float
    """Part of alpha that the expectation has."""
    world: World
    places: tuple[PlannedAudits, ...]

    @property
    def best(self) -> PlannedAudits | None:
        """Where the fewest audits will do."""
        able = [place for place in self.places if place.audits_per_day is not None]
        return min(able, key=lambda place: place.audits_per_day or 0, default=None)


def plan_for(
    setup: WatchSetup,
    broken: Bound | None = None,
    *,
    rows_per_day: int = 1000,
    within: int = 7,
    power: float = 0.9,
    audits: Sequence[int] = (10, 30, 100),
    ood_prior: float | None = None,
    rng: np.random.Generator | int | None = 0,
) -> AuditPlan:
    """Plan audits for one of the bounds that a watch expects; see `plan_audits`.

    Without `broken` the first bound is taken, and a break by half of what it allows.
    """
    if not setup.expectations:
        raise InvalidInputError("the watch expects no bounds, so there is nothing to audit for")
    expected = setup.expectations[0]
    if broken is not None:
        fits = [e for e in setup.expectations if e.bound.quantity == broken.quantity]
        if not fits:
            known = ", ".join(e.name for e in setup.expectations)
            raise InvalidInputError(f"no {broken.quantity} is expected, only {known}")
        expected = fits[0]
    value = float(broken.value) if broken is not None else _half_worse(expected.bound)
    world = known_world(setup, rows_per_day, ood_prior)
    return plan_audits(
        expected,
        value,
        world,
        alpha=setup.alpha,
        within=within,
        power=power,
        audits=audits,
        rng=rng,
    )


def _half_worse(bound: Bound) -> float:
    value = float(bound.value)
    return 1 - 1.5 * (1 - value) if bound.is_lower else min(1.0, 1.5 * value)


def known_world(setup: WatchSetup, rows_per_day: int, ood_prior: float | None) -> World:
    """Return what the rule's card tells of the rule in use."""
    point = seen_rates(setup) or (0.8, 0.1)
    reference = setup.reference
    strata: tuple[tuple[float, float], ...] = ((1.0, 1.0),)
    risk = 0.05
    if reference is not None and reference.risk_rows.sum() and reference.risk_loss.sum():
        share = reference.risk_rows / reference.risk_rows.sum()
        risk = float(reference.risk_loss.sum() / reference.risk_rows.sum())
        each = reference.risk_loss / np.maximum(reference.risk_rows, 1) / risk
        strata = tuple(zip(share.tolist(), each.tolist(), strict=True))
    prior = usual_prior(setup) if ood_prior is None else ood_prior
    return World(point[0], point[1], risk, prior, rows_per_day, strata)


def plan_audits(
    expected: Expectation,
    broken: float,
    world: World,
    *,
    alpha: float = 0.05,
    within: int = 7,
    power: float = 0.9,
    audits: Sequence[int] = (10, 30, 100),
    rng: np.random.Generator | int | None = 0,
) -> AuditPlan:
    """Return how many audits a day find a break in time, for every place to audit.

    Parameters
    ----------
    broken
        Value of the bounded quantity once the rule is broken; it must break the bound.
    within, power
        Days within which the alarm must come, and the chance that it does.
    audits
        Numbers of audits a day of which delays are shown.

    Examples
    --------
    >>> bound = Expectation(Bound("selective_risk", at_most=0.06), 1.0, "given")
    >>> plan = plan_audits(bound, 0.12, World(0.8, 0.1, 0.05, 0.1, 1000))
    >>> plan.best.where
    'accepted rows'
    """
    bound = expected.bound
    if bound.met_by(broken):
        raise InvalidInputError(
            f"{bound_name(bound)} still holds at {broken:g}: name a worse value"
        )
    after = _broken_world(world, bound, broken)
    draw = np.random.default_rng(rng)
    line = -math.log(alpha * expected.weight)
    places = []
    for where in WHERE:
        sim = _Simulation(bound, after, where, line, max(within, 40), draw)
        if not sim.possible:
            continue
        counts = [n for n in audits if n <= world.rows_per_day]
        places.append(
            PlannedAudits(
                where,
                _fewest(sim, within, power, world.rows_per_day),
                {n: sim.delay(n, within) for n in counts},
            )
        )
    weight = alpha * expected.weight
    return AuditPlan(expected.name, broken, within, power, weight, after, tuple(places))


def _broken_world(world: World, bound: Bound, value: float) -> World:
    if bound.quantity == "precision":
        # More OOD inputs, at the same TPR and FPR.
        odds = world.tpr * (1 - value) / max(value, 1e-9)
        return replace(world, ood_prior=odds / (odds + world.fpr) if odds + world.fpr else 1.0)
    if bound.quantity == "tpr":
        return replace(world, tpr=value)
    if bound.quantity == "fpr":
        return replace(world, fpr=value)
    return replace(world, selective_risk=value)


def _fewest(sim: _Simulation, within: int, power: float, most: int) -> int | None:
    """Return the fewest audits a day that find the break in time, by bisection."""
    if sim.delay(most, within, days=within)[1] < power:
        return None
    low, high = 0, most
    while high - low > max(1, high // 50):
        middle = (low + high) // 2
        found = sim.delay(middle, within, days=within)[1] >= power
        low, high = (low, middle) if found else (middle, high)
    return high


class _Simulation:
    """Streams of audited days of a broken rule, audited in one place."""

    def __init__(
        self,
        bound: Bound,
        world: World,
        where: str,
        line: float,
        days: int,
        rng: np.random.Generator,
    ) -> None:
        self._bound, self._world, self._where = bound, world, where
        self._line, self._days, self._rng = line, days, rng

    @property
    def possible(self) -> bool:
        """Whether audits there can tell anything at all."""
        quantity, where = self._bound.quantity, self._where
        if where == NEAR:
            return quantity == "selective_risk" and len(self._world.strata) > 1
        if quantity in ("selective_risk", "precision"):
            return where != REJECTED
        # TPR and FPR compare accepted with rejected rows.
        return where not in (ACCEPTED, REJECTED)

    def delay(self, audits: int, within: int, *, days: int | None = None) -> tuple[float, float]:
        """Return the median day of the alarm, and the chance that it is in time."""
        size = (_STREAMS, days or self._days)
        simulate = self._near if self._where == NEAR else self._counted
        hit = simulate(audits, size) >= self._line
        day = np.where(hit.any(axis=1), hit.argmax(axis=1) + 1.0, np.inf)
        return float(np.median(day)), float((day <= within).mean())

    def _shares(self) -> tuple[float, float]:
        """Return which shares of the audits are of accepted and of rejected rows."""
        taken = self._world.accepted
        if self._where == RANDOM:
            return taken, 1 - taken
        return {ACCEPTED: (1.0, 0.0), REJECTED: (0.0, 1.0)}.get(self._where, (0.5, 0.5))

    def _counted(self, audits: int, size: tuple[int, int]) -> FloatArray:
        w, bound = self._world, self._bound
        of_accepted, of_rejected = self._shares()
        foreign = 1 - w.precision, w.ood_prior * (1 - w.fpr) / max(1 - w.accepted, 1e-12)
        if bound.quantity == "selective_risk":
            n = self._rng.binomial(audits, of_accepted * w.precision, size)
            k = self._rng.binomial(n, min(w.selective_risk, 1.0))
        elif bound.quantity == "precision":
            n = self._rng.binomial(audits, of_accepted, size)
            k = self._rng.binomial(n, w.precision)
        else:
            inside = bound.quantity == "tpr"
            kinds = [1 - share if inside else share for share in foreign]
            k = self._rng.binomial(audits, of_accepted * kinds[0], size)
            rest = of_rejected * kinds[1] / max(1 - of_accepted * kinds[0], 1e-12)
            n = k + self._rng.binomial(audits - k, min(rest, 1.0))
        value = min(float(bound.value), 1.0)
        if bound.quantity in ("tpr", "fpr"):
            rates = of_accepted / max(w.accepted, 1e-12), of_rejected / max(1 - w.accepted, 1e-12)
            value = float(audited_share(value, rates))
        test = below if bound.is_lower else above
        return test(k.cumsum(axis=1), n.cumsum(axis=1), value)

    def _near(self, audits: int, size: tuple[int, int]) -> FloatArray:
        """Audit rows near the boundary more often, and weigh their losses accordingly."""
        w = self._world
        share = np.array([s for s, _ in w.strata])
        risk = np.minimum(w.selective_risk * np.array([r for _, r in w.strata]), 1.0)
        often = np.ones(len(share))
        often[-max(1, len(share) // 3) :] = _NEARER
        drawn = share * often / (share * often).sum()
        weight = share / drawn
        scale = weight.max()
        n = self._rng.binomial(audits, w.precision, size)
        moments = np.zeros((*size, 3))
        moments[..., 0] = n
        left, rest = n, 1.0
        for k in range(len(share)):
            here = self._rng.binomial(left, min(drawn[k] / rest, 1.0) if rest > 1e-12 else 0.0)
            lost = self._rng.binomial(here, risk[k])
            moments[..., 1] += lost * weight[k] / scale
            moments[..., 2] += lost * (weight[k] / scale) ** 2
            left, rest = left - here, rest - drawn[k]
        return mean_above(moments.cumsum(axis=1), float(self._bound.value) / scale)
