"""What is tested, all in one form: evidence, an estimate and an interval from sums of rows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur._arrays import FloatArray
from demur.core.models import EACH_SET, Bound
from demur.guarantees.intervals import Interval
from demur.watch.counts import ACCEPTED, MISSING, ROWS, CountLayout, Labelled
from demur.watch.drift import ScoreDrift, acceptance_evidence, gap_evidence
from demur.watch.evidence import (
    ACCEPTANCE,
    GAPS,
    Expectation,
    above,
    audited_share,
    below,
    mean_above,
    mean_below,
    mean_sequence,
    share_sequence,
)

AuditRates = tuple[float, float]


@dataclass(frozen=True, slots=True)
class LiveSums:
    """Sums of rows, of all or of many spans of periods at once."""

    layout: CountLayout
    sums: FloatArray
    """Shape (..., size)."""
    sets: Mapping[str, FloatArray]
    """Labelled rows of each OOD set and accepted ones, shape (..., 2)."""

    def labelled(self, group: str | None = None) -> Labelled:
        """Return the labelled sums, of all rows or of a group."""
        return Labelled(self.sums[..., self.layout.labelled(group)])

    def of_set(self, name: str) -> FloatArray:
        """Return the rows of an OOD set, zeros if none occurred."""
        found = self.sets.get(name)
        return np.zeros((*self.sums.shape[:-1], 2)) if found is None else found


class Hypothesis(ABC):
    """Something that should hold, and what speaks against it."""

    kind: str
    """``"bound"`` or ``"check"``."""

    def __init__(self, name: str, weight: float, origin: str) -> None:
        self.name, self.weight, self.origin = name, weight, origin

    @abstractmethod
    def evidence(self, seen: LiveSums) -> FloatArray:
        """Return the log evidence against it, not yet weighted."""

    @abstractmethod
    def counted(self, seen: LiveSums) -> tuple[FloatArray, FloatArray]:
        """Return successes (or a sum of losses) and the rows they are of."""

    def interval(self, seen: LiveSums, alpha: float) -> tuple[FloatArray, FloatArray]:
        """Return the ends of a confidence sequence of what is bounded."""
        return share_sequence(*self.counted(seen), alpha)

    @property
    @abstractmethod
    def limit(self) -> Interval:
        """Where it should lie."""

    def estimate(self, seen: LiveSums) -> FloatArray:
        """Return what was seen, NaN where nothing was."""
        k, n = self.counted(seen)
        return np.where(n > 0, k / np.maximum(n, 1), np.nan)


class BoundHolds(Hypothesis):
    """A bound on selective risk, TPR, FPR or precision, from labelled rows."""

    kind = "bound"

    def __init__(self, expected: Expectation, audit: AuditRates, max_loss: float | None) -> None:
        super().__init__(expected.name, expected.weight, expected.origin)
        self.bound: Bound = expected.bound
        self._graded = expected.bound.quantity == "selective_risk" and max_loss is not None
        self._scale = float(max_loss) if self._graded and max_loss else 1.0
        # What is known of all accepted rows needs no rates; TPR and FPR compare the two kinds.
        self._rates = audit if expected.bound.quantity in ("tpr", "fpr") else (1.0, 1.0)

    @property
    def limit(self) -> Interval:
        """Where it should lie."""
        value = float(self.bound.value)
        return Interval(value, math.inf) if self.bound.is_lower else Interval(0.0, value)

    def counted(self, seen: LiveSums) -> tuple[FloatArray, FloatArray]:
        """Return successes, or a sum of losses, and the rows."""
        bound = self.bound
        if bound.quantity == "selective_risk":
            losses = seen.labelled(bound.group).losses
            return losses[..., 1], losses[..., 0]
        if bound.quantity == "tpr":
            return seen.labelled(bound.group).tpr
        foreign = np.stack(seen.labelled().fpr[::-1], axis=-1)
        if bound.ood_set not in (None, EACH_SET):
            foreign = seen.of_set(str(bound.ood_set))
        if bound.quantity == "fpr":
            return foreign[..., 1], foreign[..., 0]
        taken = seen.labelled().tpr[0]
        return taken, taken + foreign[..., 1]

    def _moments(self, seen: LiveSums) -> FloatArray:
        scale = np.array([1.0, self._scale, self._scale**2])
        moments: FloatArray = seen.labelled(self.bound.group).losses / scale
        return moments

    def evidence(self, seen: LiveSums) -> FloatArray:
        """Return the log evidence against it."""
        value = float(self.bound.value)
        if self._graded:
            test = mean_below if self.bound.is_lower else mean_above
            return test(self._moments(seen), value / self._scale)
        share = audited_share(min(value, 1.0), self._rates)
        counts = self.counted(seen)
        return below(*counts, share) if self.bound.is_lower else above(*counts, share)

    def interval(self, seen: LiveSums, alpha: float) -> tuple[FloatArray, FloatArray]:
        """Return the ends of a confidence sequence."""
        if self._graded:
            low, high = mean_sequence(self._moments(seen), alpha)
            return low * self._scale, high * self._scale
        around = float(np.clip(audited_share(min(float(self.bound.value), 1), self._rates), 0, 1))
        low, high = share_sequence(*self.counted(seen), alpha, around=around)
        back = self._rates[1], self._rates[0]
        return audited_share(low, back), audited_share(high, back)

    def estimate(self, seen: LiveSums) -> FloatArray:
        """Return what was seen among all rows, audited or not."""
        if 0 in self._rates:
            # Where one kind is never audited, the share of the other tells nothing.
            return np.full(np.shape(seen.sums)[:-1], np.nan)
        return audited_share(super().estimate(seen), (self._rates[1], self._rates[0]))


class AcceptanceHolds(Hypothesis):
    """The share of accepted rows lies where TPR, FPR and the prior allow."""

    kind = "check"

    def __init__(self, weight: float, allowed: Interval, origin: str) -> None:
        super().__init__(ACCEPTANCE, weight, origin)
        self._allowed = allowed

    @property
    def limit(self) -> Interval:
        """Where it should lie."""
        return self._allowed

    def counted(self, seen: LiveSums) -> tuple[FloatArray, FloatArray]:
        """Return successes, or a sum of losses, and the rows."""
        return seen.sums[..., ACCEPTED], seen.sums[..., ROWS]

    def evidence(self, seen: LiveSums) -> FloatArray:
        """Return the log evidence against it."""
        return acceptance_evidence(seen.sums, self._allowed)


class NoGaps(Hypothesis):
    """No more rows lack a score than the reference allows."""

    kind = "check"

    def __init__(self, weight: float, allowed: float) -> None:
        super().__init__(GAPS, weight, "rows of the reference, none of which lacked a score")
        self._allowed = allowed

    @property
    def limit(self) -> Interval:
        """Where it should lie."""
        return Interval(0.0, self._allowed)

    def counted(self, seen: LiveSums) -> tuple[FloatArray, FloatArray]:
        """Return successes, or a sum of losses, and the rows."""
        return seen.sums[..., MISSING], seen.sums[..., ROWS]

    def evidence(self, seen: LiveSums) -> FloatArray:
        """Return the log evidence against it."""
        return gap_evidence(seen.sums, self._allowed)


class ScoreStays(Hypothesis):
    """A score of accepted and of rejected rows is as in the reference."""

    kind = "check"

    def __init__(self, name: str, weight: float, drift: ScoreDrift, origin: str) -> None:
        super().__init__(name, weight, origin)
        self.drift = drift

    @property
    def limit(self) -> Interval:
        """Where it should lie."""
        return Interval(0.0, math.inf)

    def counted(self, seen: LiveSums) -> tuple[FloatArray, FloatArray]:
        """Return successes, or a sum of losses, and the rows."""
        rows = seen.sums[..., ROWS]
        return np.full(rows.shape, np.nan), rows

    def interval(self, seen: LiveSums, alpha: float) -> tuple[FloatArray, FloatArray]:
        """Return the ends of a confidence sequence."""
        nothing = np.full(seen.sums.shape[:-1], np.nan)
        return nothing, nothing

    def evidence(self, seen: LiveSums) -> FloatArray:
        """Return the log evidence against it."""
        return self.drift.evidence(seen.sums)


def spans(parts: Any, layout: CountLayout, *, since: bool = False) -> LiveSums:
    """Return the sums of the segments up to each one, or `since` each one to the end."""
    names = list(dict.fromkeys(name for part in parts for name in part.sets))
    sums = np.stack([part.sums for part in parts]) if parts else np.zeros((0, layout.size))
    none = np.zeros(2)
    sets = {name: np.array([part.sets.get(name, none) for part in parts]) for name in names}

    def along(values: FloatArray) -> FloatArray:
        if since:
            return np.cumsum(values[::-1], axis=0)[::-1]
        return np.cumsum(values, axis=0)

    return LiveSums(layout, along(sums), {name: along(values) for name, values in sets.items()})
