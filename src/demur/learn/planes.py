"""Plane descent: a rule that weighs k scores, found plane by plane.

Through the weights w reached so far and a direction d goes a plane of weights; the best rule whose
weights lie in it is found exactly, by the search for two scores. Its weights are the next w, and
so on until no plane helps. No step makes it worse; that it is the best of all is not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from demur._arrays import BoolArray, FloatArray, check_kind, seeded
from demur._kernels.engines import midway
from demur.core.card import Card
from demur.core.columns import combine
from demur.core.models import RejectionModel, check_model
from demur.core.points import Points
from demur.core.program import Program
from demur.core.rates import OperatingPoint, evaluate
from demur.core.rule import Rule
from demur.core.sample import Sample, warn_of_mistakes
from demur.core.wording import point_text, rule_text
from demur.errors import InfeasibleError, InvalidInputError
from demur.guarantees.splits import Seed
from demur.learn.doubts import with_doubts
from demur.tuning.prepared import prepare, spread
from demur.tuning.result import DIRECTION_SETS, Exact
from demur.tuning.tune import search_exact, tune

Key = tuple[Fraction, int, int, int]
"""What is better is smaller: the objective, then more ID, less OOD, less loss."""

_NAMES = ("along", "across")


@dataclass(frozen=True, slots=True, eq=False)
class LinearTuning:
    """A rule over k scores, what it does on the rows it was tuned on, and what is known of it.

    Examples
    --------
    >>> import demur as dm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> wrong = rng.random(60) < 0.2
    >>> sample = dm.Sample(rng.normal(wrong[:, None], 1, (60, 3)), wrong, rng.normal(2, 1, (30, 3)))
    >>> found = dm.learn.tune_linear(sample, dm.TprFprModel(0.7, 0.3))
    >>> len(found.rule.direction), found.point.tpr >= 0.7
    (3, True)
    """

    rule: Rule
    point: OperatingPoint
    model: RejectionModel
    certified: FloatArray
    """Directions d, shape (m, k), such that the rule is the best with weights a w + b d."""
    planes: int
    """Planes searched in all."""
    starts: int

    @property
    def caveat(self) -> str:
        """What is certified, and what is not."""
        return (
            f"The rule is the best of all rules in each of {len(self.certified)} planes of weights "
            "that go through its own, those of the single scores among them. Over all weights it "
            f"is the best that {self.starts} starts and {self.planes:,} planes led to, and no more "
            "than that is certified."
        )

    def __repr__(self) -> str:
        found = point_text(self.point)
        return f"LinearTuning({rule_text(self.rule)}; {found}; {len(self.certified)} planes)"


@dataclass(frozen=True, slots=True, eq=False)
class _FoundPlane:
    """Weights, a threshold, and how good they are."""

    weights: FloatArray
    threshold: float
    key: Key


def tune_linear(
    sample: Sample,
    model: RejectionModel,
    *,
    directions: Literal["nonneg", "circle"] = "nonneg",
    starts: int = 4,
    failures: int = 60,
    rng: Seed = 0,
) -> LinearTuning:
    """Return a rule that weighs all scores of a sample, by exact searches in planes of weights.

    Parameters
    ----------
    directions
        ``"nonneg"``: more doubt never helps; ``"circle"``: weights of any sign.
    starts
        How often to begin anew; the best outcome counts.
    failures
        After so many planes in turn that do not help, at least two a score, a start has ended.

    Raises
    ------
    InfeasibleError
        In no plane that was searched a rule meets the bounds.

    Examples
    --------
    >>> from demur import TprFprModel
    >>> rng = np.random.default_rng(0)
    >>> own, foreign = rng.normal(size=(200, 3)), rng.normal(1, 1, size=(100, 3))
    >>> sample = Sample(own, rng.random(200) < 0.2, foreign)
    >>> found = tune_linear(sample, TprFprModel(0.7, 0.3), starts=1, failures=10)
    >>> found.point.tpr >= 0.7, found.point.fpr <= 0.3, len(found.rule.direction)
    (True, True, 3)
    """
    check_kind("sample", sample, Sample)
    check_model(model)
    if directions not in ("nonneg", "circle"):
        raise InvalidInputError(f"directions must be 'nonneg' or 'circle', got {directions!r}")
    for name, value in (("starts", starts), ("failures", failures)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise InvalidInputError(f"{name} must be a whole number of at least 1, got {value!r}")
    if sample.n_scores < 3:
        raise InvalidInputError(
            f"the sample has {sample.n_scores} scores: tune(sample, model) finds the best rule"
        )
    generator = seeded(rng)
    descent = _Descent.of(sample, model, directions)
    first = list(_starts(sample.n_scores, starts, directions, generator))
    # So many in turn have every single score among them.
    failures = max(failures, 2 * sample.n_scores)
    ended = [descent.run(start, failures, generator) for start in first]
    able = [one for one in ended if one[0] is not None]
    if not able:
        raise _infeasible(descent, first[0], model)
    best, certified = min(able, key=lambda one: one[0].key)  # type: ignore[union-attr]
    assert best is not None
    weights, scale = best.weights * descent.scale, descent.scale
    if directions == "nonneg":
        warn_of_mistakes(sample, model, stacklevel=2)
    rule = Rule.of_doubts(weights.tolist(), best.threshold, sample.columns)
    point = evaluate(rule, sample, model=model)
    card = Card.of_tuning(sample, model, point).with_reference(sample, rule)
    linear = {"planes": descent.planes, "certified_planes": len(certified)}
    rule = replace(rule, card=card.with_entries(linear=linear))
    return LinearTuning(rule, point, model, certified * scale, descent.planes, starts)


@dataclass(slots=True, eq=False)
class _Descent:
    """The rows as doubts of about the same size, and the search in a plane of weights."""

    sample: Sample
    own: FloatArray
    foreign: FloatArray
    scale: FloatArray
    """Powers of two, which change no bit of a product."""
    rejected: tuple[BoolArray, BoolArray]
    program: Program
    directions: str
    planes: int = 0

    @classmethod
    def of(cls, sample: Sample, model: RejectionModel, directions: str) -> _Descent:
        points = Points.of(sample, "worst" if model.every_set else "pooled")
        model.check_rows(points.totals)
        rejected = (
            np.asarray(np.isinf(sample.id_doubts).any(axis=1)),
            np.asarray(np.isinf(sample.ood_doubts).any(axis=1)),
        )
        finite = np.where(rejected[0][:, None], 0.0, sample.id_doubts)
        width = spread(finite, np.ones(sample.n_id, np.int64))
        width = np.clip(np.where(width > 0, width, 1.0), 1e-300, 1e300)
        scale = np.exp2(-np.round(np.log2(width))).astype(np.float64)
        foreign = np.where(rejected[1][:, None], 0.0, sample.ood_doubts)
        program = model.program(points.totals)
        return cls(
            sample,
            finite * scale,
            foreign * scale,
            scale,
            rejected,
            program,
            directions,
        )

    def plane(self, first: FloatArray, second: FloatArray) -> Sample:
        """Return the rows as points of a plane; what is always rejected stays so."""
        sides = []
        for rows, lost in zip((self.own, self.foreign), self.rejected, strict=True):
            pair = np.column_stack([combine(first, rows), combine(second, rows)])
            pair[lost] = np.inf
            sides.append(pair)
        return with_doubts(self.sample, sides[0], sides[1], _NAMES)

    def best_in(self, weights: FloatArray, across: FloatArray) -> _FoundPlane | None:
        """Return the best rule with weights in the plane of these two, if one meets the bounds."""
        self.planes += 1
        first, second = self._rays(weights, across)
        whole = "worst" if len(self.program.max_ood) > 1 else "pooled"
        prepared = prepare(self.plane(first, second), ood=whole)  # type: ignore[arg-type]
        allowed = DIRECTION_SETS[self.directions]
        line, _ = search_exact(prepared, self.program, allowed, Exact())
        if line is None:
            return None
        p, q = line.direction
        joined = p * first + q * second
        key = _key(self.program, line.id, line.ood, line.loss)
        if line.threshold == -math.inf:
            return _FoundPlane(joined, line.threshold, key)
        return self._settled(joined, prepared.sample, line.direction, line.threshold, key)

    def _settled(
        self, weights: FloatArray, plane: Sample, direction: Any, threshold: float, key: Key
    ) -> _FoundPlane | None:
        """Return the rule in terms of all scores, if float64 can tell the same rows apart."""
        length = float(np.abs(weights).max())
        if length == 0:
            return None
        weights = weights / length
        accepted, others = [-math.inf], [math.inf]
        for rows, points, lost in zip(
            (self.own, self.foreign),
            (plane.id_scores, plane.ood_scores),
            self.rejected,
            strict=True,
        ):
            within = combine(direction, points) <= threshold
            values = combine(weights, rows)
            accepted.append(float(values[within & ~lost].max(initial=-math.inf)))
            others.append(float(values[~within & ~lost].min(initial=math.inf)))
        last, following = max(accepted), min(others)
        if not last < following or last == -math.inf:
            return None
        return _FoundPlane(weights, float(midway(last, following)), key)

    def _rays(self, weights: FloatArray, across: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return two weights that span the plane; of non-negative ones those on its edges."""
        if self.directions == "circle":
            return weights, across
        rays = []
        for turn in (across, -across):
            falling = turn < 0
            if not falling.any():
                rays.append(turn)
                continue
            reach = float((weights[falling] / -turn[falling]).min())
            edge = weights + reach * turn
            edge[falling & (weights / -np.where(falling, turn, -1.0) <= reach)] = 0.0
            rays.append(np.maximum(edge, 0.0))
        return rays[0], rays[1]

    def run(
        self, start: FloatArray, failures: int, generator: np.random.Generator
    ) -> tuple[_FoundPlane | None, FloatArray]:
        """Descend from a start; return where it ended, and the planes in which that is the best.

        Where a plane does not help, its best rule is mostly as good as the present one, and lies in
        other planes: it is gone to, `failures` times in turn, before planes are certified.
        """
        now: _FoundPlane | None = None
        weights = start
        certified: list[FloatArray] = []
        aside = 0
        for across in _turns(len(start), generator):
            found = self.best_in(weights, across)
            better = found is not None and (now is None or found.key < now.key)
            level = found is not None and now is not None and found.key == now.key
            if found is not None and (better or (level and aside < failures)):
                aside = 0 if better else aside + 1
                now, weights, certified = found, found.weights, []
            else:
                certified.append(across)
            if len(certified) >= failures:
                return now, np.array(certified)
        raise AssertionError("there is always another direction")


def _key(program: Program, id_mass: int, ood_mass: int, loss_mass: int) -> Key:
    total = program.loss * loss_mass + program.id * id_mass + program.ood * ood_mass
    value = Fraction(total, max(id_mass, 1)) if program.per_id else Fraction(total)
    return value, -id_mass, ood_mass, loss_mass


def _turns(count: int, generator: np.random.Generator) -> Iterator[FloatArray]:
    """Yield directions without end: the single scores in turn, and as many at random between."""
    while True:
        for column in generator.permutation(count):
            yield np.eye(count)[column]
        for _ in range(count):
            yield generator.normal(size=count)


def _starts(
    count: int, starts: int, directions: str, generator: np.random.Generator
) -> Iterator[FloatArray]:
    yield np.ones(count)
    for _ in range(starts - 1):
        drawn = generator.normal(size=count)
        yield np.abs(drawn) if directions == "nonneg" else drawn


def _infeasible(descent: _Descent, start: FloatArray, model: RejectionModel) -> InfeasibleError:
    pair = descent.plane(*descent._rays(start, np.eye(len(start))[0]))
    try:
        tune(pair, model)
    except InfeasibleError as error:
        said = f"in none of {descent.planes} planes of weights; in the first of them: {error}"
        return InfeasibleError(said, model=model, attainable=error.attainable)
    raise AssertionError("a plane that had no rule has one")
