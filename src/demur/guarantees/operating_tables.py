"""Saved operating points: tuning again, for another prior say, without the rows.

`operating_table` counts what rules accept of a sample; an `OperatingTable` is saved in place of its
rows, and tunes.

A source is counted where it is. Of one score, all rows are looked at that may share a bin with
others, as long as memory holds them; of more rows, thresholds are the ends of bins. Of two scores,
rows that memory holds are brought here; of more rows, those drawn by a hash say which directions
matter, and one pass over all rows counts along these, at thresholds that the drawn rows space
evenly. Whatever is in a table is counted exactly.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from demur._arrays import FloatArray, IntArray, check_kind, takes
from demur._files import read_text, strict_json, write_atomically
from demur._kernels import reference
from demur._kernels.engines import midway
from demur.core.bins import Bins, axis_for
from demur.core.card import Card
from demur.core.columns import ScoreColumns, combine
from demur.core.fingerprint import sides_of
from demur.core.models import RejectionModel, TprFprModel
from demur.core.points import Points
from demur.core.program import Program, Totals
from demur.core.rates import operating_point
from demur.core.row_draws import bring
from demur.core.rule import BoxRule, Rule
from demur.core.sample import Sample
from demur.core.source import FRONTIER_ROW_BYTES, Measure, ScoreSource, Strip
from demur.errors import InfeasibleError, InvalidInputError
from demur.guarantees.splits import sorted_rows
from demur.tuning.frontier import Frontier, frontier
from demur.tuning.prepared import LinearParts, goal_of
from demur.tuning.result import (
    DIRECTION_SETS,
    Directions,
    Exact,
    Grid,
    SearchCertificate,
    Tuning,
    infeasible_error,
)
from demur.tuning.streamed.cells import ID, LOSS, OOD
from demur.tuning.streamed.plan import bins_for
from demur.tuning.streamed.tune import Streamed, counted_totals, points_of_one

FORMAT = "demur.operating_points"
VERSION = 1

LARGEST = 2**28
"""No file of counts has more bytes than this; what has is something else."""

DRAWN_ROWS = 100_000
"""By which directions and thresholds are chosen where more rows are than memory holds."""
DIRECTIONS_COUNTED = 32
THRESHOLDS = 512
"""Of each of these directions, about."""
_TOTALS_ROWS = 1000

# Masses are counted on a grid so fine that the total stays below this, see `core.points`.
_LARGEST_MASS = 2**53
_EXPONENTS = (-1000, 1200)
# What is about masses by name, which a table does not have.
_NAMED = ("groups", "sets", "pooled")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class OperatingTable:
    """Rules and what each accepts of a sample: counts only, no rows.

    Masses are integers in the units of `totals`. Made by `operating_table`.

    Examples
    --------
    >>> import demur as dm
    >>> table = dm.guarantees.operating_table(dm.Sample([1, 2, 3, 4], [0, 0, 0, 1], [3, 5, 6]))
    >>> table.complete, table.tune(dm.TprFprModel(0.5, 0.4)).rule.threshold
    (True, 3.5)
    """

    directions: FloatArray
    """Shape (n, k)."""
    thresholds: FloatArray
    accepted_id: IntArray
    accepted_ood: IntArray
    accepted_loss: IntArray
    totals: Totals
    complete: bool
    """Whether every rule that can be optimal is here; False for two scores."""
    score_names: tuple[str, ...] | None = None
    confidence: tuple[str, ...] = ()
    """Those of the scores that are confidences; rules are about the columns as they are."""
    card: Card | None = None
    """What is known of the rows, for the cards of rules."""

    def __repr__(self) -> str:
        return f"OperatingTable({len(self.thresholds)} rules, complete={self.complete})"

    def tune(self, model: RejectionModel) -> Tuning:
        """Return the best of the saved rules under `model`.

        For one score this is the rule that `demur.tune` finds on the rows themselves.

        Raises
        ------
        InfeasibleError
            No saved rule meets the bounds; carries the nearest attainable ones.
        """
        row = self._best(model.program(self.totals))
        if row is None:
            raise self._unable(infeasible_error(model, self._no_rows(), self._attained))
        point = operating_point(
            id_mass=int(self.accepted_id[row]),
            ood_masses=[int(self.accepted_ood[row])],
            loss_mass=int(self.accepted_loss[row]),
            totals=self.totals,
            model=model,
        )
        rule = Rule(
            tuple(self.directions[row]),
            float(self.thresholds[row]),
            score_names=self.score_names,
            confidence=self.confidence,
            card=None if self.card is None else self.card.tuned_for(model, point),
        )
        certificate = SearchCertificate("optimal" if self.complete else "grid")
        return Tuning(rule, point, model, self.totals, certificate)

    def _unable(self, error: InfeasibleError) -> InfeasibleError:
        """Say that only saved rules were tried, where the rows may give others."""
        if self.complete:
            return error
        saved = f"of the {len(self.thresholds)} rules saved; the rows may give others"
        return InfeasibleError(f"{error} ({saved})", model=error.model, attainable=error.attainable)

    def _best(self, program: Program) -> int | None:
        goal = goal_of(program, LinearParts.of(program, self._no_rows()).linear)
        nI, nO, L = self.accepted_id, self.accepted_ood, self.accepted_loss
        rows = np.flatnonzero(goal.met(nI, nO[None], L))
        kept = goal.best(nI[rows], nO[rows], L[rows])
        return int(rows[kept[0]]) if len(kept) else None

    def _attained(self, program: Program) -> tuple[int, int, int] | None:
        row = self._best(program)
        if row is None:
            return None
        masses = self.accepted_id[row], self.accepted_ood[row], self.accepted_loss[row]
        return int(masses[0]), int(masses[1]), int(masses[2])

    def _no_rows(self) -> Points:
        none = np.empty(0, np.int64)
        scores = np.empty((0, self.directions.shape[1]))
        return Points(scores, none, none[None], none, self.totals)

    def to_json(self) -> str:
        """Return the table as strict JSON; numbers round-trip exactly."""
        return json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "directions": self.directions.tolist(),
                # JSON has no infinities.
                "thresholds": ["-inf" if t == -math.inf else t for t in self.thresholds.tolist()],
                "accepted_id": self.accepted_id.tolist(),
                "accepted_ood": self.accepted_ood.tolist(),
                "accepted_loss": self.accepted_loss.tolist(),
                "totals": {n: m for n, m in asdict(self.totals).items() if n not in _NAMED},
                "complete": self.complete,
                "score_names": self.score_names,
                "confidence": self.confidence,
                "card": None if self.card is None else self.card.saved_data(),
            },
            allow_nan=False,
        )

    @classmethod
    def from_json(cls, text: str) -> OperatingTable:
        """Read a table written by `to_json`."""
        if not isinstance(text, str):
            raise InvalidInputError(f"counts must be JSON text, got {type(text).__name__}")
        if len(text) > LARGEST:
            raise InvalidInputError(f"larger than {LARGEST} bytes: this is no file of counts")
        try:
            data = strict_json(text)
            if not isinstance(data, dict):
                raise InvalidInputError(f"this is not {FORMAT} of version {VERSION}")
            if data["format"] != FORMAT or _whole(data["version"]) != VERSION:
                raise InvalidInputError(f"this is not {FORMAT} of version {VERSION}")
            masses = ("accepted_id", "accepted_ood", "accepted_loss")
            names = data["score_names"]
            table = cls(
                directions=np.array(data["directions"], np.float64),
                thresholds=np.array([float(t) for t in data["thresholds"]]),
                **{name: _masses(data[name]) for name in masses},
                totals=_totals(data["totals"]),
                complete=_flag(data["complete"]),
                score_names=None if names is None else _texts(names),
                confidence=_texts(data.get("confidence", ())),
                card=None if data.get("card") is None else Card.from_data(data["card"]),
            )
        except InvalidInputError:
            raise
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else error
            raise InvalidInputError(
                f"the saved operating points cannot be read: {reason}"
            ) from None
        table._refuse_damage()
        return table

    def _refuse_damage(self) -> None:
        """Raise unless every rule has a direction, a threshold and counts within the totals."""
        rules = self.thresholds.shape
        accepted = (self.accepted_id, self.accepted_ood, self.accepted_loss)
        totals = (self.totals.id, sum(self.totals.ood), self.totals.loss)
        sound = (
            len(rules) == 1
            and self.directions.shape in ((*rules, 1), (*rules, 2))
            and len(self.thresholds) > 0
            and (self.thresholds < math.inf).all()
            and self._names_fit()
            and np.isfinite(self.directions).all()
            and all(
                masses.shape == rules and ((masses >= 0) & (masses <= total)).all()
                for masses, total in zip(accepted, totals, strict=True)
            )
        )
        if not sound:
            raise InvalidInputError(
                "the saved operating points are damaged: their lists do not fit together; write "
                "them anew, with demur tune --counts or OperatingTable.save"
            )

    def _names_fit(self) -> bool:
        """Return whether there is a name for each score, and every confidence is one of them."""
        names = self.score_names
        if names is None:
            return not self.confidence
        known = len(set(names)) == len(names) == self.directions.shape[1]
        return known and set(self.confidence) <= set(names)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to `path`; an interrupted write leaves the old file as it was."""
        write_atomically(path, self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> OperatingTable:
        """Read a table written by `save`."""
        return cls.from_json(read_text(path, "the counts", LARGEST))


def _totals(data: Any) -> Totals:
    """Read the totals; refuse numbers that no sample has."""
    if not isinstance(data, dict):
        raise ValueError("totals are not an object")
    ood = tuple(_whole(mass) for mass in data["ood"])
    others: dict[str, Any] = {n: _whole(value) for n, value in data.items() if n != "ood"}
    for name, value in [*others.items(), *(("ood", mass) for mass in ood)]:
        low, high = _EXPONENTS if name.endswith("exponent") else (0, _LARGEST_MASS)
        if not low <= value <= high:
            raise ValueError(f"{name} is {str(value)[:30]}, not between {low} and {high}")
    if others["id"] == 0:
        raise ValueError("id is 0: no sample is without ID rows")
    return Totals(ood=ood, **others)


def _masses(values: Any) -> IntArray:
    if not isinstance(values, list):
        raise ValueError("a list of counts is something else")
    return np.array([_whole(value) for value in values], np.int64)


def _whole(value: Any) -> int:
    if type(value) is not int:
        raise ValueError(f"{value!r:.30} is not a whole number")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"complete is {value!r:.30}, not true or false")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, (list, tuple)) or not all(isinstance(v, str) for v in values):
        raise ValueError("names of columns are not a list of texts")
    return tuple(values)


@takes(sample=(Sample, ScoreSource))
def operating_table(
    sample: Sample | ScoreSource,
    *,
    rules: Iterable[Rule] | None = None,
    directions: Directions = "nonneg",
    search: Exact | Grid | None = None,
) -> OperatingTable:
    """Return operating points of `sample` from which any model can be tuned later.

    One score: every threshold that is optimal under some model. Two scores: the rules of
    `frontier`, best at bounds on TPR and FPR in steps of one percent, or the `rules` given.

    A source of more rows than its memory holds, about 1000 bytes each, has exact counts of fewer
    rules: of one score at the ends of 65,536 bins, of two along 32 directions. `rules` take a pass
    over a source each.

    Examples
    --------
    >>> from demur import PrecisionRecallModel
    >>> sample = Sample([0.1, 0.2, 0.3, 0.9], [0, 0, 1, 1], ood_scores=[0.25, 0.8])
    >>> table = OperatingTable.from_json(operating_table(sample).to_json())
    >>> for prior in (0.1, 0.5):
    ...     table.tune(PrecisionRecallModel(0.9, 0.5, ood_prior=prior)).rule.threshold
    0.225
    0.225
    """
    if not isinstance(sample, Sample):
        return _of_source(sample, rules, directions, search)
    table = _counted_table(sample, rules, directions, search)
    return replace(table, card=Card.of_rows(sample))


def _counted_table(
    sample: Sample,
    rules: Iterable[Rule] | None,
    directions: Directions,
    search: Exact | Grid | None,
) -> OperatingTable:
    points = Points.of(sample)
    if rules is None and sample.n_scores == 1:
        return _swept(points, sample.columns)
    if rules is None:
        # Engines bring rows in any order, and rules that tie must not depend on it.
        surface = frontier(sorted_rows(sample), directions=directions, search=search)
        found = np.concatenate([surface.directions, surface.thresholds[..., None]], axis=2)
        lines = found[~np.isnan(surface.thresholds)]
    else:
        doubts = _half_planes(rules, sample.columns)
        lines = np.array([[*rule.direction, rule.threshold] for rule in doubts])
    lines = np.unique(lines.reshape(-1, sample.n_scores + 1), axis=0)
    masses = np.array([_accepted(points, line) for line in lines], np.int64).reshape(-1, 3)
    return _table(lines, masses, points.totals, complete=False, columns=sample.columns)


def _half_planes(rules: Iterable[Rule], columns: ScoreColumns) -> list[Rule]:
    """Return rules as rules on doubts; refuse what is not one that weighs scores."""
    check_kind("rules", rules, Iterable)
    given = list(rules)
    for rule in given:
        check_kind("rules", rule, Rule)
    doubts = [rule.for_doubts(columns) for rule in given]
    if any(isinstance(rule, BoxRule) for rule in doubts):
        raise InvalidInputError("rules: a table holds rules that weigh scores, no boxes")
    return doubts


def _swept(points: Points, columns: ScoreColumns) -> OperatingTable:
    swept = reference.sweep(points.scores[:, 0], points.id, points.ood, points.loss)
    upper = np.append(swept.value[1:], np.inf)[: len(swept.value)]
    masses = np.column_stack([swept.id, swept.ood[0], swept.loss])
    return _of_one_score(
        midway(swept.value, upper), masses, points.totals, complete=True, columns=columns
    )


def _of_one_score(
    thresholds: FloatArray,
    masses: IntArray,
    totals: Totals,
    *,
    complete: bool,
    columns: ScoreColumns,
) -> OperatingTable:
    """Return the table of ascending thresholds, without those that are never optimal."""
    id_, ood, loss = masses.T
    # A threshold is never optimal if the next one accepts more ID at no more loss and OOD,
    # or if the one before accepts as much ID and less OOD.
    following = np.append((np.diff(loss) > 0) | (np.diff(ood) > 0), True)[: len(ood)]
    before = np.append(True, np.diff(id_) > 0)[: len(ood)]
    kept = np.flatnonzero(following & before)
    lines = np.column_stack([np.ones(len(ood)), thresholds])[kept]
    return _table(lines, masses[kept], totals, complete=complete, columns=columns)


def _table(
    lines: FloatArray,
    masses: IntArray,
    totals: Totals,
    *,
    complete: bool,
    columns: ScoreColumns,
) -> OperatingTable:
    """Put the rule that rejects everything in front: it competes where costs are minimised."""
    nothing = np.zeros(columns.count + 1)
    nothing[0], nothing[-1] = 1.0, -np.inf
    lines = np.vstack([nothing, lines])
    accepted = np.vstack([np.zeros(3, np.int64), masses])
    return OperatingTable(
        directions=columns.as_doubts(lines[:, :-1]) + 0.0,
        thresholds=lines[:, -1],
        accepted_id=accepted[:, 0],
        accepted_ood=accepted[:, 1],
        accepted_loss=accepted[:, 2],
        # Counts of groups and sets are not in the table, so no bound can be about them.
        totals=replace(totals, groups=(), sets=()),
        complete=complete,
        score_names=columns.names,
        confidence=columns.confidence,
    )


def _of_source(
    source: ScoreSource,
    rules: Iterable[Rule] | None,
    directions: Directions,
    search: Exact | Grid | None,
) -> OperatingTable:
    """Return a table of rows that stay where they are."""
    if rules is not None:
        return _tallied(source, _half_planes(rules, source.columns))
    if len(source.score_names) == 1:
        return _binned(source)
    most = source.memory // FRONTIER_ROW_BYTES
    if source.overview().rows <= most:
        return operating_table(bring(source, most), directions=directions, search=search)
    few = sorted_rows(bring(source, min(DRAWN_ROWS, most)))
    return _along_directions(source, few, frontier(few, directions=directions, search=search))


def _tallied(source: ScoreSource, rules: Sequence[Rule]) -> OperatingTable:
    """Count rules on doubts, one after the other."""
    overview = source.overview()
    measure = Measure.of(overview, apart=False)
    # A few cells tell the totals.
    counted = source.histogram(bins_for(source.sample(_TOTALS_ROWS, seed=0), 1), measure)
    tallies = [source.tally(rule, measure)[None] for rule in rules]
    lines = np.array([[*rule.direction, rule.threshold] for rule in rules])
    masses = np.array([[one.id, one.ood[0], one.loss] for one in tallies], np.int64)
    table = _table(
        lines.reshape(-1, len(source.score_names) + 1),
        masses.reshape(-1, 3),
        counted_totals(counted, overview, measure),
        complete=False,
        columns=source.columns,
    )
    return replace(table, card=Card.of_source(overview, source.columns))


def _binned(source: ScoreSource) -> OperatingTable:
    """Count one score: every threshold, or those between bins if rows that share one are many."""
    stream = Streamed(source, [TprFprModel(0, 1)], DIRECTION_SETS["nonneg"])
    grid, totals, columns = stream.grid, stream.totals, source.columns
    shared = (grid.low < grid.high)[:, 0]
    if int(grid.rows[shared].sum()) <= stream.plan.fetched:
        rows = stream.layers.fetch(grid, shared)
        table = _swept(points_of_one(grid, shared, rows, totals), columns)
    else:
        order = np.argsort(grid.low[:, 0])
        low, high = grid.low[order, 0], grid.high[order, 0]
        masses = np.cumsum(grid.mass[:, order], axis=1)[[ID, OOD, LOSS]].T
        ends = midway(high, np.append(low[1:], np.inf))
        table = _of_one_score(ends, masses, totals, complete=False, columns=columns)
    drawn = None if stream.sample is None else sides_of(stream.sample)
    return replace(table, card=Card.of_source(stream.overview, columns, drawn=drawn))


def _along_directions(source: ScoreSource, few: Sample, surface: Frontier) -> OperatingTable:
    """Count all rows along the directions of some of the rules that are best for drawn rows."""
    overview, columns = source.overview(), source.columns
    measure = Measure.of(overview, apart=False)
    scores = Points.of(few).scores
    scores = scores[np.isfinite(scores).all(axis=1)]
    axes = {
        direction: axis_for(combine(direction, scores), THRESHOLDS)
        for direction in _directions(surface)
    }
    strips = [Strip.along(weights, axis) for weights, axis in axes.items() if axis.bins > 1]
    # A few cells will do: what matters are the strips.
    bins = Bins(tuple(axis_for(column, 1) for column in scores.T))
    counted = source.histogram(bins, measure, strips=strips)
    totals = counted_totals(counted, overview, measure)
    overview.check_counted(measure, totals.id, sum(totals.ood), totals.loss)
    everything = [int(counted.id.sum()), int(counted.ood.sum()), int(counted.loss.sum())]
    lines, masses = [], []
    for strip, profile in zip(strips, counted.profiles, strict=True):
        corner = np.where(np.array(strip.weights) > 0, overview.high, overview.low)
        thresholds = np.append(profile.threshold, combine(strip.weights, corner[None]))
        found = np.column_stack([profile.id, profile.ood[0], profile.loss])
        usable = thresholds < math.inf
        weights = np.tile(np.array(strip.weights), (len(thresholds), 1))
        lines.append(np.column_stack([weights, thresholds])[usable])
        masses.append(np.vstack([found, everything])[usable])
    table = _table(
        np.vstack([np.empty((0, 3)), *lines]),
        np.vstack([np.empty((0, 3), np.int64), *masses]),
        totals,
        complete=False,
        columns=columns,
    )
    drawn = columns.as_doubts(few.id_scores), columns.as_doubts(few.ood_scores)
    return replace(table, card=Card.of_source(overview, columns, drawn=drawn))


def _directions(surface: Frontier) -> list[tuple[float, ...]]:
    """Return directions of a frontier's rules, in equal steps of their rank by angle.

    Rules count once, not by the number of bounds they are best for: directions are close together
    where they must be, which is where bounds bind.
    """
    found = surface.directions[~np.isnan(surface.thresholds)].reshape(-1, 2)
    distinct = np.unique(found, axis=0)
    ordered = distinct[np.argsort(np.arctan2(distinct[:, 1], distinct[:, 0]), kind="stable")]
    places = np.linspace(0, max(0, len(ordered) - 1), DIRECTIONS_COUNTED)
    kept = ordered[np.unique(np.rint(places).astype(np.int64))] if len(ordered) else ordered
    return [tuple(direction) for direction in kept.tolist()]


def _accepted(points: Points, line: FloatArray) -> tuple[int, int, int]:
    taken = Rule(tuple(line[:-1]), float(line[-1])).accept(points.scores)
    return (
        int(points.id[taken].sum()),
        int(points.ood[0, taken].sum()),
        int(points.loss[taken].sum()),
    )
