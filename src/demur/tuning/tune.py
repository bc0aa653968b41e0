"""`tune`: the rule a rejection model asks for, found on a sample.

One score: all thresholds. Two scores: all thresholds in all directions, or in the directions of
the paper's grid of angles.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur._kernels import exact, reference
from demur.core.card import Card
from demur.core.mistakes import likely_mistakes, warn_of_mistakes
from demur.core.models import RejectionModel, check_model
from demur.core.points import Points
from demur.core.program import Program
from demur.core.rates import OperatingPoint, accepted_points, evaluate, operating_point
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.scores import combine, midway
from demur.core.source import ScoreSource
from demur.errors import DemurError, InvalidInputError
from demur.tuning.directions import (
    DIRECTION_SETS,
    Direction,
    Directions,
    DirectionSet,
    grid_directions,
    warn_of_units,
)
from demur.tuning.infeasible import infeasible_error
from demur.tuning.operating_points import Line
from demur.tuning.prepared import Prepared, as_prepared, kernel_arguments
from demur.tuning.result import Certificate, Exact, Grid, Tuning

_EXACT = Exact()


def tune(
    source: Sample | Prepared | ScoreSource,
    model: RejectionModel,
    *,
    directions: Directions | None = None,
    search: Exact | Grid | None = None,
    ood: Literal["pooled", "worst"] | None = None,
) -> Tuning:
    """Return the optimal rule for a sample under `model`.

    One score: all thresholds. Two scores: all thresholds in all directions. Equal scores are
    accepted together; ties between optimal rules go to the larger TPR, then the smaller FPR,
    then the widest gap around the boundary.

    Parameters
    ----------
    source
        A `Sample`, or what `prepare` made of one, which is sorted once for many calls; or a
        `ScoreSource`, whose rows stay where they are: the same optimum in a few passes.
    model
        `CostModel`, `TprFprModel` or `PrecisionRecallModel`.
    directions
        Weights allowed on (s_r, s_g): ``"nonneg"`` (default: more doubt never helps),
        ``"real"`` (any weight on s_g), ``"paper"`` (angles [0, pi], the default of `Grid`) or
        ``"circle"``.
    search
        `Exact()` (default) or `Grid(360)`, the paper's algorithm.
    ood
        ``"pooled"`` (default) bounds the FPR of all OOD rows together, ``"worst"`` that of
        every named set.

    Raises
    ------
    InfeasibleError
        No rule meets the bounds; carries the nearest attainable ones.

    Warns
    -----
    ScoreUnitsWarning
        A grid of angles is searched, and the units of the two scores differ much.

    Examples
    --------
    >>> from demur import Sample, TprFprModel, tune
    >>> sample = Sample([0.1, 0.2, 0.3, 0.9], [0, 0, 1, 1], ood_scores=[0.25, 0.8])
    >>> tuned = tune(sample, TprFprModel(min_tpr=0.5, max_fpr=0.5))
    >>> tuned.rule.threshold, tuned.point.selective_risk
    (0.225, 0.0)
    """
    search = _EXACT if search is None else search
    if not isinstance(search, (Exact, Grid)):
        raise InvalidInputError(f"search must be Exact() or Grid(angles), got {search!r}")
    check_model(model)
    if not isinstance(source, (Sample, Prepared)):
        return _tune_source(source, model, directions, search, ood)
    if ood is None and model.every_set:
        ood = "worst"
    prepared = as_prepared(source, ood)
    totals = prepared.points.totals
    model.check_rows(totals)
    program = model.program(totals)
    allowed = DIRECTION_SETS[str(directions or ("paper" if isinstance(search, Grid) else "nonneg"))]
    scores = prepared.points.scores
    if isinstance(search, Grid) and scores.shape[1] == 2:
        swept = grid_directions(allowed, search.angles)
        warn_of_units(scores, prepared.spread, swept, stacklevel=2)
    line, certificate = _find(prepared, program, allowed, search)
    if line is None:
        find = lambda p: _accepted(_find(prepared, p, allowed, _without_limits(search))[0])  # noqa: E731
        causes = [mistake.text for mistake in likely_mistakes(prepared.sample)]
        raise infeasible_error(model, prepared.points, find, causes=causes)
    warn_of_mistakes(prepared.sample, stacklevel=3)
    columns = prepared.sample.columns
    rule = Rule.of_doubts(line.direction, line.threshold, columns)
    point = _point(prepared, rule, line, model)
    card = Card.of_tuning(prepared.sample, model, point, ood=prepared.ood)
    return Tuning(replace(rule, card=card), point, model, totals, certificate)


def _tune_source(
    source: ScoreSource,
    model: RejectionModel,
    directions: Directions | None,
    search: Exact | Grid,
    ood: Literal["pooled", "worst"] | None,
) -> Tuning:
    # Imported here, since most calls have no use for it.
    from demur.tuning.streamed.tune import tune_source

    if not isinstance(source, ScoreSource):
        raise InvalidInputError(
            f"source must be a Sample or a ScoreSource, got {type(source).__name__}"
        )
    if isinstance(search, Grid):
        raise InvalidInputError("search: Grid needs a Sample; a source is searched by Exact()")
    allowed = DIRECTION_SETS[str(directions or "nonneg")]
    return tune_source(source, model, allowed, search, ood=ood or "pooled")


def _find(
    prepared: Prepared, program: Program, allowed: DirectionSet, search: Exact | Grid
) -> tuple[Line | None, Certificate]:
    if prepared.points.scores.shape[1] == 1:
        line = search_one_score(prepared.points, program)
        bound = math.nan
        if line is not None:
            bound = program.scale * program.value(line.id, line.ood, line.loss) + program.offset
        return line, Certificate("optimal", bound)
    if isinstance(search, Grid):
        line = search_grid(prepared, program, allowed, search.angles)
        return line, Certificate("grid")
    return search_exact(prepared, program, allowed, search)


def _without_limits(search: Exact | Grid) -> Exact | Grid:
    # What an infeasible model could have instead is stated exactly.
    return _EXACT if isinstance(search, Exact) else search


def _accepted(line: Line | None) -> tuple[int, int] | None:
    return None if line is None else (line.id, line.ood)


def _point(prepared: Prepared, rule: Rule, line: Line, model: RejectionModel) -> OperatingPoint:
    """Return the rates of `rule` as evaluated, which must accept what the search said.

    A search that is wrong about its own line would hand out a rule that breaks its bounds with a
    certificate: that is an error, whatever its cause.
    """
    points = prepared.points
    # As numbers of rows: a mask would be gone through for every sum.
    accepted = np.flatnonzero(accepted_points(rule, points, prepared.sample.columns))
    id_mass, loss_mass = int(points.id[accepted].sum()), int(points.loss[accepted].sum())
    ood_masses = [int(column[accepted].sum()) for column in points.ood]
    if (id_mass, sum(ood_masses), loss_mass) != (line.id, line.ood, line.loss):
        raise DemurError(
            f"the search found {line} but the rule accepts ID, OOD and loss mass "
            f"{id_mass}, {sum(ood_masses)}, {loss_mass}: a defect of demur, please report it with "
            "the data; DEMUR_ENGINE=numpy may help until it is mended"
        )
    names = tuple(prepared.sample.ood_sets)
    if len(names) != len(ood_masses):
        return evaluate(rule, prepared.sample, model=model)
    return operating_point(
        id_mass=id_mass,
        ood_masses=ood_masses,
        loss_mass=loss_mass,
        totals=points.totals,
        model=model,
        set_names=names,
    )


def search_one_score(points: Points, program: Program) -> Line | None:
    """Return the best threshold, or None if none meets the bounds."""
    swept = reference.sweep(points.scores[:, 0], points.id, points.ood, points.loss)
    row = _best_of_sweep(swept, program)
    lines = reject_all(program, 1)
    if row is not None:
        last, following = np.append(swept.value[row : row + 2], math.inf)[:2].tolist()
        lines.append(
            Line((1.0,), float(midway(last, following)), *_masses_at(swept, row), math.inf)
        )
    return preferred(lines, program)


def _best_of_sweep(swept: reference.Sweep, program: Program) -> int | None:
    """Return the row of the best operating point of one sweep, or None if none is feasible."""
    objective, per_id, min_id, max_ood, ratio = kernel_arguments(program)
    rows = np.flatnonzero(exact.feasible(swept.id, swept.ood, min_id, max_ood, ratio))
    nO = swept.ood.sum(axis=0)[rows]
    kept = exact.best(swept.id[rows], nO, swept.loss[rows], objective, per_id)
    return int(rows[kept[0]]) if len(kept) else None


def _masses_at(swept: reference.Sweep, row: int) -> tuple[int, int, int]:
    """Return the ID, OOD and loss mass accepted at one row of a sweep."""
    return int(swept.id[row]), int(swept.ood[:, row].sum()), int(swept.loss[row])


def search_exact(
    prepared: Prepared,
    program: Program,
    allowed: DirectionSet,
    search: Exact,
    *,
    start: FloatArray | None = None,
) -> tuple[Line | None, Certificate]:
    """Return the best line over all allowed directions, and how sure that is.

    None means that no half-plane meets the bounds. `start` are directions to try first.
    """
    # A gap is stated in the model's objective, engines work in that of the program.
    gap = search.gap / program.scale
    outcome = prepared.search(program, allowed, gap=gap, budget=search.budget, start=start)
    if outcome.status == "budget" and len(outcome.v) == 0 and not program.reject_all:
        raise InvalidInputError(
            f"the budget of {search.budget} boxes ended before any rule that meets the bounds "
            "was found or their infeasibility proven; raise budget"
        )
    masses = (outcome.id, outcome.ood, outcome.loss)
    lines = [
        robust_line(prepared, (float(p), float(q)), float(v), masses, allowed)
        for (p, q), v in zip(outcome.weights, outcome.v, strict=True)
    ]
    best = preferred(lines + reject_all(program, 2), program)
    status = "optimal" if outcome.status == "infeasible" else outcome.status
    bound = min(outcome.lower_bound, 0.0) if program.reject_all else outcome.lower_bound
    lower_bound = program.scale * bound + program.offset
    return best, Certificate(status, lower_bound, outcome.boxes, outcome.unresolved)


def search_grid(
    prepared: Prepared, program: Program, allowed: DirectionSet, angles: int
) -> Line | None:
    """Return the best line over equidistant angles (the paper's algorithm).

    The engine says which directions attain the optimum; these are swept for their thresholds.
    """
    points = prepared.points.present()
    lines: list[Line] = []
    directions = grid_directions(allowed, angles)
    optima = prepared.directions(program, np.array(directions))
    attained = np.flatnonzero(optima[:, 0] > 0)
    for k in attained[_tied_best(optima[attained], program)]:
        direction = directions[k]
        values = combine(direction, points.scores)
        swept = reference.sweep(values, points.id, points.ood, points.loss)
        row = _best_of_sweep(swept, program)
        if row is not None:
            lines.append(_line_at(swept, row, direction, prepared.spread))
    return preferred(lines + reject_all(program, 2), program)


def robust_line(
    prepared: Prepared,
    direction: Direction,
    threshold: float,
    masses: tuple[int, int, int],
    allowed: DirectionSet,
) -> Line:
    """Return the widest line with the accepted set of a half-plane.

    Where float64 cannot evaluate that one to the same masses, the unit vector along the
    half-plane's own direction is tried, and as a last resort the half-plane stays as it is.
    """
    wide, width = prepared.widest_line(direction, threshold, allowed)
    for tried in (wide, direction):
        length = math.hypot(*tried)
        unit = (tried[0] / length, tried[1] / length)
        last, following = prepared.sides(direction, threshold, unit)
        if last < following:
            return Line(unit, float(midway(last, following)), *masses, width)
    return Line(direction, threshold, *masses, width)


def _line_at(swept: reference.Sweep, row: int, direction: Direction, scale: FloatArray) -> Line:
    last = float(swept.value[row])
    following = float(swept.value[row + 1]) if row + 1 < len(swept.value) else np.inf
    return Line(
        direction,
        float(midway(last, following)),
        *_masses_at(swept, row),
        (following - last) / float(np.hypot(*(np.array(direction) * scale))),
    )


def reject_all(program: Program, scores: int) -> list[Line]:
    """Return the line that accepts nothing, where the program lets it compete."""
    direction = (1.0,) if scores == 1 else (1.0, 0.0)
    return [Line(direction, -math.inf, 0, 0, 0, math.inf)] if program.reject_all else []


def preferred(lines: list[Line], program: Program) -> Line | None:
    """Return the best line; among equals the widest, then the one nearest to s_r alone."""
    masses = [(line.id, line.ood, line.loss) for line in lines]
    # What one search returns is tied already.
    tied = lines
    if len(set(masses)) > 1:
        tied = [lines[i] for i in _tied_best(np.array(masses), program)]
    return min(tied, key=lambda line: (-line.width, line.direction[::-1]), default=None)


def _tied_best(masses: IntArray, program: Program) -> IntArray:
    """Return the rows of masses (ID, OOD, loss), shape (n, 3), that none of the others beats."""
    objective, per_id, *_ = kernel_arguments(program)
    return exact.best(masses[:, 0], masses[:, 1], masses[:, 2], objective, per_id)
