"""Rules tuned anew, on rows drawn anew and on folds, each judged by rows it has not seen.

The same rows are tuned again and again with other weights. Replicates of a bootstrap are judged
three ways; in cross-validated tuning every row is judged by a rule that has not seen it.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from demur._arrays import BoolArray, FloatArray, IntArray, seeded
from demur._kernels.engines import Trail
from demur.core.models import RejectionModel
from demur.core.points import RowMasses
from demur.core.rates import OperatingPoint, tally_point
from demur.core.row_draws import RowDraw, drawable
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.source import Measure, ScoreSource, Tally
from demur.core.wording import point_frame, point_text
from demur.errors import InfeasibleError, InvalidInputError
from demur.guarantees.splits import Groups, GroupStrata, Seed, fold_numbers, group_strata
from demur.guarantees.standard_errors import (
    CountedRows,
    Decided,
    Spread,
    Times,
    measures,
    standard_errors,
)
from demur.tuning.prepared import prepare
from demur.tuning.result import DIRECTION_SETS, Directions, Exact, Grid, Tuning
from demur.tuning.tune import search_exact, search_grid, search_one_score, tune

# No row is drawn 2**_SPARE times when rows are drawn at random.
_SPARE = 6
# Directions tried first lie this far, in radians, on either side of the one given.
_NEAR = 0.02


class Retuner:
    """Rows that were sorted once, ready to be tuned with any number of weights.

    Parameters
    ----------
    near
        A rule that the rules looked for will resemble, so that the search knows where to begin;
        it finds the same optimum without.

    Examples
    --------
    >>> from demur import TprFprModel
    >>> sample = Sample([[0, 1], [1, 0], [2, 2]], [0, 0, 1], [[3, 3]])
    >>> again = Retuner(sample, TprFprModel(0.6))
    >>> again.rule(np.array([0, 1, 2, 1])).accept(sample.id_scores)
    array([ True,  True,  True])
    """

    def __init__(
        self,
        sample: Sample,
        model: RejectionModel,
        *,
        directions: Directions | None = None,
        search: Exact | Grid | None = None,
        near: Rule | None = None,
    ) -> None:
        self._model, self._search = model, search or Exact()
        default = "paper" if isinstance(search, Grid) else "nonneg"
        self._allowed = DIRECTION_SETS[str(directions or default)]
        self._masses, self._prepared = RowMasses.of(sample, spare=_SPARE), prepare(sample)
        self._start = None if near is None else self._around(near)
        self._before = threading.local()
        self._trail = self._recorded() if near is not None else None

    def rule(self, times: IntArray) -> Rule | None:
        """Return the rule tuned with row i counted `times[i]` times, ID rows first.

        None if no rule meets the bounds.
        """
        masses = self._masses.repeated(times)
        if masses.totals.id == 0:
            return None
        points = self._prepared.points.weighted(masses)
        program = self._model.program(masses.totals)
        if points.scores.shape[1] == 1:
            line = search_one_score(points.present(), program)
        elif isinstance(self._search, Grid):
            prepared = self._prepared.reweighted(points)
            line = search_grid(prepared, program, self._allowed, self._search.angles)
        else:
            # Memory of this size comes from the system, and zeroed, whenever it is asked for.
            before = getattr(self._before, "prepared", None)
            prepared = self._before.prepared = self._prepared.reweighted(points, into=before)
            line, _ = search_exact(
                prepared, program, self._allowed, self._search, start=self._start, trail=self._trail
            )
        columns = self._prepared.sample.columns
        return None if line is None else Rule.of_doubts(line.direction, line.threshold, columns)

    def _recorded(self) -> Trail | None:
        """Return what a search of the rows as they are looks at."""
        points = self._prepared.points
        if points.scores.shape[1] == 1 or self._search != Exact():
            return None
        program = self._model.program(points.totals)
        return self._prepared.trail(program, self._allowed, self._start)

    def _around(self, rule: Rule) -> FloatArray | None:
        """Return the direction of a rule and one on either side, within those allowed."""
        if len(rule.direction) == 1:
            return None
        direction = rule.for_doubts(self._prepared.sample.columns).direction
        spread = self._prepared.spread
        risk, ood = np.array(direction) * spread
        angle = math.atan2(ood, risk) + np.array([-_NEAR, 0.0, _NEAR])
        weights = np.column_stack([np.cos(angle), np.sin(angle)])
        for column, is_nonneg in enumerate(self._allowed.nonneg):
            if is_nonneg:
                weights[:, column] = weights[:, column].clip(0)
        around: FloatArray = weights / spread
        around[1] = direction
        return around


Item = TypeVar("Item")
Result = TypeVar("Result")
Progress = Callable[[int, int], None]
"""Called with how many items are done and how many there are, in the caller's thread."""


@dataclass(frozen=True, slots=True)
class Retuning:
    """How the rule is tuned in every replicate."""

    model: RejectionModel
    directions: Directions | None = None
    search: Exact | Grid | None = None

    def of(self, sample: Sample, near: Rule) -> Retuner:
        """Return what tunes `sample` with other weights, to rules not far from `near`."""
        return Retuner(
            sample, self.model, directions=self.directions, search=self.search, near=near
        )


@dataclass(frozen=True, slots=True, eq=False)
class Replicates:
    """What the replicates say of one sample, or of two with the same rows."""

    rates: FloatArray
    """Shape (replicates, samples, views, measures)."""
    unable: BoolArray
    """Replicates in which no rule met the bounds, on one of the samples at least."""
    errors: FloatArray
    """In-bag standard errors of the rates, or of the differences of two samples' rates: shape
    (replicates, measures). Empty unless asked for."""
    error: FloatArray
    """The same for the rules tuned on the samples."""


def replicate(
    tuned: Sequence[tuple[Sample, Rule]],
    retuning: Retuning,
    *,
    with_errors: bool,
    replicates: int,
    rng: Seed,
    workers: int | None,
    progress: Progress | None,
    groups: Groups | None = None,
) -> Replicates:
    """Draw rows and tune rules anew.

    All samples, given with the rules tuned on them, have the same rows and are drawn alike, ID
    and every OOD set by itself. Each replicate has a random generator of its own, so the result
    does not depend on `workers`. With `groups` it is these that are drawn, with all their rows.

    Where no rule meets the bounds on the rows drawn, the rule tuned on the sample stays. Leaving
    such draws out would leave out the unluckiest: those in which the rates fall furthest below
    what they are. Out of bag they say nothing, NaN: that rule has seen all rows.
    """
    if isinstance(replicates, bool) or not isinstance(replicates, int) or replicates < 1:
        raise InvalidInputError(f"replicates must be a positive whole number, got {replicates!r}")
    generators = seeded(rng).spawn(replicates)
    members = None if groups is None else group_strata(tuned[0][0], groups)
    judges = [_Judge.of(sample, rule, retuning) for sample, rule in tuned]

    def errors(decided: Sequence[Decided], times: Times) -> FloatArray:
        if not with_errors:
            return np.empty(0)
        pairs = zip(judges, decided, strict=True)
        return standard_errors([judge.spread.moves(rows, times) for judge, rows in pairs], times)

    def run(generator: np.random.Generator) -> tuple[list[list[list[float]]], bool, FloatArray]:
        times = draw(tuned[0][0], generator, members)
        rules = [judge.retuner.rule(np.concatenate(times)) for judge in judges]
        pairs = list(zip(judges, rules, strict=True))
        rates = [judge.rates(rule, times) for judge, rule in pairs]
        decided = [judge.decide(rule) for judge, rule in pairs] if with_errors else []
        return rates, None in rules, errors(decided, times)

    found = in_order(run, generators, workers=workers, progress=progress)
    rates, unable, in_bag_errors = zip(*found, strict=True)
    return Replicates(
        rates=np.array(rates),
        unable=np.array(unable),
        errors=np.array(in_bag_errors),
        error=errors([judge.decide(None) for judge in judges], _once(tuned[0][0])),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Judge:
    """One sample, and what it takes to tune and judge on it."""

    tuned: Rule
    counted: CountedRows
    spread: Spread
    retuner: Retuner

    @classmethod
    def of(cls, sample: Sample, rule: Rule, retuning: Retuning) -> _Judge:
        spread = Spread.of(sample, retuning.model)
        return cls(rule, CountedRows.of(sample), spread, retuning.of(sample, rule))

    def decide(self, rule: Rule | None) -> Decided:
        """Return the rows that `rule` accepts, or for None the rule tuned on the sample."""
        return self.counted.decide(self.tuned if rule is None else rule)

    def rates(self, rule: Rule | None, times: Times) -> list[list[float]]:
        """Return the measures on the rows drawn, on the whole sample and on the rows not drawn.

        Of `rule`, tuned on the rows drawn; of None, that tuned on the sample, which has seen all.
        """
        names = measures(self.spread.model)
        views = (times, None, _never(times))
        points = self.counted.points_of(rule or self.tuned, views, self.spread.model)
        anew = rule is not None
        return [
            values(point if anew or view < 2 else None, names) for view, point in enumerate(points)
        ]


def _once(sample: Sample) -> Times:
    return np.ones(sample.n_id, np.int64), np.ones(sample.n_ood, np.int64)


def _never(times: Times) -> Times:
    return (times[0] == 0).astype(np.int64), (times[1] == 0).astype(np.int64)


def draw(
    sample: Sample, generator: np.random.Generator, groups: GroupStrata | None = None
) -> Times:
    """Return how often each row is drawn, with replacement, as many rows as there are.

    Of groups, as many as there are in each stratum, each with all its rows.
    """
    if groups is not None:
        drawn = np.zeros(groups.count, np.int64)
        for members in groups.strata:
            drawn[members] = _multinomial(len(members), generator)
        times = drawn[groups.of_rows]
        return times[: sample.n_id], times[sample.n_id :]
    ood = np.zeros(sample.n_ood, np.int64)
    for rows in sample.ood_sets.values():
        ood[rows] = _multinomial(rows.stop - rows.start, generator)
    return _multinomial(sample.n_id, generator), ood


def _multinomial(rows: int, generator: np.random.Generator) -> IntArray:
    return np.bincount(generator.integers(0, max(rows, 1), rows), minlength=rows)


def values(point: OperatingPoint | None, names: tuple[str, ...]) -> list[float]:
    """Return the named rates of a point; NaN without one."""
    return [math.nan if point is None else float(getattr(point, name)) for name in names]


def in_order(
    run: Callable[[Item], Result],
    items: Sequence[Item],
    *,
    workers: int | None,
    progress: Progress | None,
) -> list[Result]:
    """Return ``run(item)`` of all items, in their order whatever the number of threads."""
    if workers is not None and (type(workers) is not int or workers < 1):
        raise InvalidInputError(f"workers must be a positive whole number or None, got {workers!r}")
    found: list[Result] = []
    with ThreadPoolExecutor(workers or 1) as pool:
        for result in pool.map(run, items) if workers else map(run, items):
            found.append(result)
            if progress is not None:
                progress(len(found), len(items))
    return found


@dataclass(frozen=True, slots=True)
class Fold:
    """A rule tuned without one part of the rows.

    Examples
    --------
    >>> import demur as dm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> wrong = rng.random(400) < 0.1
    >>> sample = dm.Sample(rng.gamma(1 + 2 * wrong), wrong, rng.normal(4, 1, 200))
    >>> found = dm.guarantees.cross_tune(sample, dm.TprFprModel(0.8, 0.1), folds=2, rng=0)
    >>> [fold.tuned.tpr >= 0.8 for fold in found.folds]
    [True, True]
    """

    rule: Rule | None
    """None when no rule meets the bounds on the other parts."""
    tuned: OperatingPoint | None
    """On the rows it was tuned on."""
    held_out: OperatingPoint | None
    """On the part left out."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CrossTuning:
    """A rule tuned on all rows, and what rules tuned like it do on rows they have not seen.

    Examples
    --------
    >>> import demur as dm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> wrong = rng.random(400) < 0.1
    >>> sample = dm.Sample(rng.gamma(1 + 2 * wrong), wrong, rng.normal(4, 1, 200))
    >>> found = dm.guarantees.cross_tune(sample, dm.TprFprModel(0.8, 0.1), rng=0)
    >>> len(found.folds), found.tuned.point.tpr >= 0.8
    (5, True)
    >>> found.held_out.selective_risk > found.tuned.point.selective_risk
    True
    """

    tuned: Tuning
    """On all rows; its operating point is optimistic."""
    held_out: OperatingPoint | None
    """All rows together, each decided by the rule of its fold; None if no fold has a rule."""
    folds: tuple[Fold, ...]
    accepted_id: BoolArray
    """Out-of-fold decision of each ID row; False in folds without a rule."""
    accepted_ood: BoolArray

    @property
    def unable(self) -> int:
        """Number of folds in which no rule met the bounds; their rows are left out."""
        return sum(fold.rule is None for fold in self.folds)

    def plot(self, ax: Any = None) -> Any:
        """Draw the rates of all folds with matplotlib, on `ax` or on new axes; return these."""
        from demur import plots

        tuned = [fold.tuned for fold in self.folds]
        left_out = [fold.held_out for fold in self.folds]
        return plots.folds(tuned, left_out, self.held_out, ax=ax)

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame of pandas or Polars: a row per rate, a column per fold."""
        points = {"tuned": self.tuned.point, "held_out": self.held_out}
        for number, fold in enumerate(self.folds):
            points[f"fold_{number + 1}"] = fold.held_out
        return point_frame(points, backend)

    def __repr__(self) -> str:
        seen = "no fold has a rule" if self.held_out is None else point_text(self.held_out)
        return f"CrossTuning({len(self.folds)} folds, {self.unable} unable; held out: {seen})"


def cross_tune(
    sample: Sample | ScoreSource,
    model: RejectionModel,
    *,
    folds: int = 5,
    groups: Groups | None = None,
    directions: Directions | None = None,
    search: Exact | Grid | None = None,
    rng: Seed = 0,
    workers: int | None = None,
    progress: Progress | None = None,
) -> CrossTuning:
    """Tune on all rows, and estimate the outcome on rows not tuned on.

    Of a source, folds are drawn by a hash of its key or of the scores, with `rng` as the seed.

    The rows are dealt into folds, ID and every OOD set by itself; each fold is decided by a
    rule tuned on the others. The held-out point is that of rules tuned on fewer rows, so it is
    a little pessimistic; bounds met in tuning are met out of fold only on average.

    Parameters
    ----------
    groups
        What the ID rows and the OOD rows belong to, such as (patients of the ID rows, patients
        of the OOD rows): rows of a group stay in one fold. Rows that belong together and are
        dealt one by one make the estimate too good.
    directions, search
        As in `tune`.
    workers
        Threads to tune in; the result is the same for any number.
    progress
        Called with the folds done and the folds in all.

    Examples
    --------
    >>> from demur import TprFprModel
    >>> rng = np.random.default_rng(0)
    >>> score = rng.random(200)
    >>> sample = Sample(score, rng.random(200) < score / 2, ood_scores=rng.random(200) + 0.5)
    >>> found = cross_tune(sample, TprFprModel(0.5, 0.2))
    >>> round(found.tuned.point.selective_risk, 3), round(found.held_out.selective_risk, 3)
    (0.119, 0.12)
    """
    if isinstance(sample, ScoreSource):
        seed = check_options(rng, groups)
        options: dict[str, Any] = {"directions": directions, "search": search}
        options["progress"] = progress
        return cross_tune_source(sample, model, folds=folds, seed=seed, **options)
    tuned = tune(sample, model, directions=directions, search=search)
    rows = CountedRows.of(sample)
    numbers = fold_numbers(sample, folds, rng, groups)

    def judge(fold: int) -> Fold:
        others = (np.flatnonzero(side != fold) for side in numbers)
        try:
            part = tune(sample.subset(*others), model, directions=directions, search=search)
        except InfeasibleError:
            return Fold(None, None, None)
        times = ((numbers[0] == fold).astype(np.int64), (numbers[1] == fold).astype(np.int64))
        return Fold(part.rule, part.point, rows.point(rows.decide(part.rule), times, model))

    found = in_order(judge, range(folds), workers=workers, progress=progress)
    decided = (np.zeros(sample.n_id, np.bool_), np.zeros(sample.n_ood, np.bool_))
    counted = (np.zeros(sample.n_id, np.int64), np.zeros(sample.n_ood, np.int64))
    for fold, judged in enumerate(found):
        if judged.rule is not None:
            for side, accepted in enumerate(rows.decide(judged.rule)):
                here = numbers[side] == fold
                counted[side][here] = 1
                decided[side][here] = accepted[here]
    return CrossTuning(tuned, rows.point(decided, counted, model), tuple(found), *decided)


def check_options(rng: Seed, groups: Groups | None) -> int:
    """Return the seed; refuse what needs a sample."""
    if groups is not None:
        raise InvalidInputError(
            "groups need a Sample; a source draws by its key: open_source(..., key=...)"
        )
    if isinstance(rng, bool) or not isinstance(rng, int) or rng < 0:
        raise InvalidInputError(f"rng of a source must be a whole number, a seed, got {rng!r}")
    return rng


def cross_tune_source(
    source: ScoreSource,
    model: RejectionModel,
    *,
    folds: int = 5,
    directions: Directions | None = None,
    search: Exact | Grid | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> CrossTuning:
    """Return what `cross_tune` says, of folds drawn by a hash of the key or of the scores.

    About a tuning and a count for each fold. The decisions on single rows stay where the rows are.

    Examples
    --------
    >>> from demur import Sample, TprFprModel
    >>> from demur.sources.engines.frames import ArraySource
    >>> rng = np.random.default_rng(0)
    >>> score = rng.random(500)
    >>> sample = Sample(score, rng.random(500) < score / 2, ood_scores=rng.random(400) + 0.5)
    >>> found = cross_tune_source(ArraySource(sample), TprFprModel(0.5, 0.2))
    >>> len(found.folds), round(found.tuned.point.tpr, 2), round(found.held_out.tpr, 2)
    (5, 0.5, 0.52)
    """
    from demur.sources.engines.group_sums import merged_tallies

    if isinstance(folds, bool) or not isinstance(folds, int) or folds < 2:
        raise InvalidInputError(f"folds must be a whole number, at least 2, got {folds!r}")
    rows, tuned = drawable(source), tune(source, model, directions=directions, search=search)
    seen = source.overview()
    measure = Measure.of(seen, apart=True, grouped=True)
    found, tallies = [], list[dict[None, Tally]]()
    for number in range(folds):
        draw = RowDraw.fold(number, folds, seed)
        part = tuned_if_any(rows.drawn(draw.others), Retuning(model, directions, search))
        if part is None:
            found.append(Fold(None, None, None))
        else:
            tally = _left_out(rows.drawn(draw), part.rule, measure)
            tallies.append({None: tally})
            found.append(Fold(part.rule, part.point, _point(tally, measure, model)))
        if progress is not None:
            progress(number + 1, folds)
    held_out = _point(merged_tallies(tallies)[None], measure, model) if tallies else None
    unknown = np.zeros(0, np.bool_)
    return CrossTuning(tuned, held_out, tuple(found), unknown, unknown)


def _left_out(rows: ScoreSource, rule: Rule, measure: Measure) -> Tally:
    """Return what a rule accepts of a fold, in which some sets or groups may have no rows."""
    sides = rows.overview().sides
    own = replace(measure, sets=sides.sets, groups=sides.groups)
    tally = rows.tally(rule.for_doubts(rows.columns), own)[None]

    def placed(masses: Sequence[int], names: Sequence[str], every: Sequence[str]) -> list[int]:
        known = dict(zip(names, masses, strict=True))
        return [known.get(name, 0) for name in every]

    def of_groups(masses: Sequence[int]) -> tuple[int, ...]:
        half, names = len(sides.groups), (sides.groups, measure.groups)
        return (*placed(masses[:half], *names), *placed(masses[half:], *names))

    return replace(
        tally,
        ood=tuple(placed(tally.ood, sides.sets, measure.sets)),
        total_ood=tuple(placed(tally.total_ood, sides.sets, measure.sets)),
        groups=of_groups(tally.groups),
        total_groups=of_groups(tally.total_groups),
    )


def _point(tally: Tally, measure: Measure, model: RejectionModel) -> OperatingPoint:
    return tally_point(tally, measure, measure.sets, model=model)


def tuned_if_any(source: ScoreSource, anew: Retuning) -> Tuning | None:
    """Return what a source is tuned to; None if no rule meets the bounds."""
    try:
        return tune(source, anew.model, directions=anew.directions, search=anew.search)
    except InfeasibleError:
        return None
