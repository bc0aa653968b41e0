"""`tune`: the rule a rejection model asks for, found on a sample.

One score: all thresholds. Two scores: all thresholds in all directions, or in the directions of
the paper's grid of angles.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur._kernels import reference
from demur._kernels.engines import Outcome, Trail, midway
from demur.core.card import Card
from demur.core.columns import combine
from demur.core.models import RejectionModel, check_model
from demur.core.points import Points
from demur.core.program import Program
from demur.core.rates import AcceptedMasses, OperatingPoint, evaluate, operating_point
from demur.core.rule import BoxRule, Rule
from demur.core.sample import Sample, likely_mistakes, warn_of_mistakes
from demur.core.source import ScoreSource
from demur.errors import DemurError, InvalidInputError
from demur.tuning.operating_points import Line
from demur.tuning.prepared import (
    MANY,
    Box,
    BoxFinder,
    LinearParts,
    Prepared,
    as_prepared,
    goal_of,
)
from demur.tuning.result import (
    DIRECTION_SETS,
    Direction,
    Directions,
    DirectionSet,
    Exact,
    Grid,
    SearchCertificate,
    Shape,
    Status,
    Tuning,
    grid_directions,
    infeasible_error,
    warn_of_units,
)

_EXACT = Exact()
_TOO_THIN = (
    "some half-planes that meet these bounds are so thin that no float64 rule for them was found: "
    "take large offsets out of the scores, or round them"
)


def tune(
    source: Sample | Prepared | ScoreSource,
    model: RejectionModel,
    *,
    directions: Directions | None = None,
    search: Exact | Grid | None = None,
    ood: Literal["pooled", "worst"] | None = None,
    shape: Shape = "half-plane",
) -> Tuning:
    """Return the optimal rule for a sample under `model`.

    One score: all thresholds. Two scores: all thresholds in all directions. Equal scores are
    accepted together; ties between optimal rules go to the larger TPR, then the smaller FPR, then
    the smaller selective risk, then the widest gap around the boundary.

    Parameters
    ----------
    source
        A `Sample`, or what `prepare` made of one, which is sorted once for many calls; or a
        `ScoreSource`, whose rows stay where they are: the same optimum in a few passes.
    model
        `CostModel`, `TprFprModel`, `PrecisionRecallModel`, `RiskFprModel`, or any
        `RejectionModel`, also with bounds on groups of ID rows and on single OOD sets.
    directions
        Weights allowed on (s_r, s_g): ``"nonneg"`` (default: more doubt never helps),
        ``"real"`` (any weight on s_g), ``"paper"`` (angles [0, pi], the default of `Grid`) or
        ``"circle"``.
    search
        `Exact()` (default) or `Grid(360)`, the paper's algorithm.
    ood
        ``"pooled"`` (default) bounds the FPR of all OOD rows together, ``"worst"`` that of
        every named set.
    shape
        ``"half-plane"`` (default) weighs the scores; ``"box"`` accepts when each score is within
        its own limit, and returns a `BoxRule`.

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
    search = _checked(search)
    check_model(model)
    check_shape(shape, directions, search)
    if not isinstance(source, (Sample, Prepared)):
        return _tune_source(source, model, directions, search, ood, shape)
    if ood is None and model.every_set:
        ood = "worst"
    prepared = as_prepared(source, ood, for_one_call=True)
    totals = prepared.points.totals
    model.check_rows(totals)
    program = model.program(totals)
    found = _found(prepared, program, directions, search, shape)
    if found.rule is None:
        causes = [mistake.text for mistake in likely_mistakes(prepared.sample)]
        if found.certificate.unresolved:
            causes.append(_TOO_THIN)
        raise infeasible_error(
            model,
            prepared.points,
            lambda p: found.again(p, _without_limits(search)),
            causes=causes,
            any_rule=lambda p: found.again(p, _anything(search)),
            kind="rule" if shape == "half-plane" else "box",
        )
    warn_of_mistakes(prepared.sample, model, stacklevel=3)
    point = _point(prepared, found.rule, found.masses, model)
    card = Card.of_tuning(prepared.sample, model, point, ood=prepared.ood)
    card = card.with_reference(prepared.sample, found.rule)
    return Tuning(replace(found.rule, card=card), point, model, totals, found.certificate)


class _Found(NamedTuple):
    """What a search found, and how to search for something else."""

    rule: Rule | None
    masses: tuple[int, int, int]
    certificate: SearchCertificate
    again: Callable[[Program, Exact | Grid], tuple[int, int, int] | None]


def _found(
    prepared: Prepared,
    program: Program,
    directions: Directions | None,
    search: Exact | Grid,
    shape: str,
) -> _Found:
    columns = prepared.sample.columns
    if shape == "box":
        finder = BoxFinder(prepared)
        box, certificate = finder.find(program, as_exact(search))
        again = lambda p, how: finder.masses(p, as_exact(how))  # noqa: E731
        boxed = None if box is None else BoxRule.of_limits(box.limits, columns)
        return _Found(boxed, _accepted(box) or (0, 0, 0), certificate, again)
    prepared.check_sizes()
    allowed = _allowed(directions, search)
    warn_of_grid(prepared, directions, search, stacklevel=4)
    line, certificate = _find(prepared, program, allowed, search)
    rule = None if line is None else Rule.of_doubts(line.direction, line.threshold, columns)
    return _Found(
        rule,
        _accepted(line) or (0, 0, 0),
        certificate,
        lambda p, how: _accepted(_find(prepared, p, allowed, how)[0]),
    )


def check_shape(shape: str, directions: Directions | None, search: Exact | Grid | None) -> None:
    """Refuse a shape that is none, and what is about half-planes beside boxes."""
    if shape not in ("half-plane", "box"):
        raise InvalidInputError(f'shape must be "half-plane" or "box", got {shape!r}')
    if shape == "half-plane":
        return
    if directions is not None:
        raise InvalidInputError(
            f'directions={directions!r} is about weights, and shape="box" has none'
        )
    if isinstance(search, Grid):
        raise InvalidInputError(
            'search: a Grid is one of angles; shape="box" is searched by Exact()'
        )


def find_rule(
    prepared: Prepared,
    model: RejectionModel,
    *,
    directions: Directions | None = None,
    search: Exact | Grid | None = None,
    shape: Shape = "half-plane",
) -> Rule | None:
    """Return the rule of `tune` without a word about it: no card, no warnings; None if infeasible.

    For the many tunings of one sample of which only the rules matter.
    """
    search, totals = _checked(search), prepared.points.totals
    model.check_rows(totals)
    program = model.program(totals)
    if shape == "box":
        box, _ = BoxFinder(prepared).find(program, as_exact(search))
        return None if box is None else BoxRule.of_limits(box.limits, prepared.sample.columns)
    line, _ = _find(prepared, program, _allowed(directions, search), search)
    if line is None:
        return None
    return Rule.of_doubts(line.direction, line.threshold, prepared.sample.columns)


def warn_of_grid(
    prepared: Prepared,
    directions: Directions | None,
    search: Exact | Grid | None,
    *,
    stacklevel: int,
) -> None:
    """Warn where a grid of angles is searched, and the units of the two scores differ much."""
    scores = prepared.points.scores
    if isinstance(search, Grid) and scores.shape[1] == 2:
        swept = grid_directions(_allowed(directions, search), search.angles)
        warn_of_units(scores, prepared.spread, swept, stacklevel=stacklevel)


def _checked(search: Exact | Grid | None) -> Exact | Grid:
    search = _EXACT if search is None else search
    if not isinstance(search, (Exact, Grid)):
        raise InvalidInputError(f"search must be Exact() or Grid(angles), got {search!r}")
    return search


def _allowed(directions: Directions | None, search: Exact | Grid) -> DirectionSet:
    return DIRECTION_SETS[str(directions or ("paper" if isinstance(search, Grid) else "nonneg"))]


def _tune_source(
    source: ScoreSource,
    model: RejectionModel,
    directions: Directions | None,
    search: Exact | Grid,
    ood: Literal["pooled", "worst"] | None,
    shape: Shape,
) -> Tuning:
    # Imported here, since most calls have no use for it.
    from demur.tuning.streamed.tune import tune_source

    if not isinstance(source, ScoreSource):
        raise InvalidInputError(
            f"source must be a Sample or a ScoreSource, got {type(source).__name__}"
        )
    if len(source.score_names) == 1:
        # There is but one angle.
        search = as_exact(search)
    allowed = _allowed(directions, search)
    return tune_source(source, model, allowed, search, ood=ood or "pooled", shape=shape)


def _find(
    prepared: Prepared, program: Program, allowed: DirectionSet, search: Exact | Grid
) -> tuple[Line | None, SearchCertificate]:
    axes = _only_axes(prepared.points.scores, allowed)
    if axes and (len(axes[0]) == 1 or isinstance(search, Exact)):
        return _search_axes(prepared.points, program, axes)
    if isinstance(search, Grid):
        line = search_grid(prepared, program, allowed, search.angles)
        return line, SearchCertificate("grid")
    return search_exact(prepared, program, allowed, search)


def _only_axes(scores: FloatArray, allowed: DirectionSet) -> list[tuple[float, ...]]:
    """Return the directions that are enough, if only one score is not the same in all rows.

    Beside a constant a score is compared with a threshold, from below or from above; its weight 0
    takes all rows or none, as thresholds at its ends do.
    """
    if scores.shape[1] == 1:
        return [(1.0,)]
    varies = [column for column in (0, 1) if not _is_constant(scores[:, column])]
    if len(varies) != 1:
        return []
    signs = (1.0,) if allowed.nonneg[varies[0]] else (1.0, -1.0)
    return [(sign, 0.0) if varies[0] == 0 else (0.0, sign) for sign in signs]


def _is_constant(values: FloatArray) -> bool:
    # Nearly all columns are told from a constant by two of their rows.
    return len(values) == 0 or bool(values[0] == values[-1] and (values == values[0]).all())


def _search_axes(
    points: Points, program: Program, axes: list[tuple[float, ...]]
) -> tuple[Line | None, SearchCertificate]:
    found = [search_one_score(points, program, axis) for axis in axes]
    line = preferred([line for line in found if line is not None], program)
    bound = math.nan
    if line is not None:
        bound = program.scale * program.value(line.id, line.ood, line.loss) + program.offset
    return line, SearchCertificate("optimal", bound)


def as_exact(search: Exact | Grid) -> Exact:
    """Return how all directions are searched, or all limits."""
    # Boxes are not searched by angles, which was refused.
    return search if isinstance(search, Exact) else _EXACT


def _without_limits(search: Exact | Grid) -> Exact | Grid:
    # What an infeasible model could have instead is stated exactly.
    return _EXACT if isinstance(search, Exact) else search


def _anything(search: Exact | Grid) -> Exact | Grid:
    # Whatever is found first will do.
    return Exact(gap=1e300) if isinstance(search, Exact) else search


def _accepted(line: Line | Box | None) -> tuple[int, int, int] | None:
    return None if line is None else (line.id, line.ood, line.loss)


def _point(
    prepared: Prepared, rule: Rule, masses: tuple[int, int, int], model: RejectionModel
) -> OperatingPoint:
    """Return the rates of `rule` as evaluated, which must accept what the search said.

    A search that is wrong about its own rule would hand out a rule that breaks its bounds with a
    certificate: that is an error, whatever its cause.
    """
    points = prepared.points
    accepted = AcceptedMasses.of(rule, points, prepared.sample.columns)
    if (accepted.id, sum(accepted.ood), accepted.loss) != masses:
        raise DemurError(
            f"the search found {masses} but the rule accepts ID, OOD and loss mass {accepted}: a "
            "defect of demur, please report it with the data; DEMUR_ENGINE=numpy may help until "
            "it is mended"
        )
    names = tuple(prepared.sample.ood_sets)
    if len(names) != len(accepted.ood):
        return evaluate(rule, prepared.sample, model=model)
    return operating_point(
        id_mass=accepted.id,
        ood_masses=accepted.ood,
        loss_mass=accepted.loss,
        totals=points.totals,
        model=model,
        set_names=names,
        groups=accepted.groups,
    )


def search_one_score(
    points: Points, program: Program, axis: tuple[float, ...] = (1.0,)
) -> Line | None:
    """Return the best threshold along an axis, or None if none meets the bounds."""
    bounds = LinearParts.of(program, points)
    swept = _sweep(points, combine(axis, points.scores), bounds)
    row = reference.best_of_sweep(swept, goal_of(program, bounds.linear))
    lines = reject_all(program, len(axis))
    if row is not None:
        last, following = np.append(swept.value[row : row + 2], math.inf)[:2].tolist()
        lines.append(Line(axis, float(midway(last, following)), *swept.masses(row), math.inf))
    return preferred(lines, program)


def _sweep(points: Points, values: FloatArray, bounds: LinearParts) -> reference.Sweep:
    masses = points.id, points.ood, points.loss
    return reference.sweep(values, *masses, points.parts(bounds.parts))


def search_exact(
    prepared: Prepared,
    program: Program,
    allowed: DirectionSet,
    search: Exact,
    *,
    start: FloatArray | None = None,
    trail: Trail | None = None,
) -> tuple[Line | None, SearchCertificate]:
    """Return the best line over all allowed directions, and how sure that is.

    None means that no half-plane meets the bounds. `start` are directions to try first, and a
    `trail` is what a search of the same rows with other masses looked at.
    """
    line, outcome = best_line(prepared, program, allowed, search, start=start, trail=trail)
    return line, how_sure(program, line, [outcome])


def best_line(
    prepared: Prepared,
    program: Program,
    allowed: DirectionSet,
    search: Exact,
    *,
    start: FloatArray | None = None,
    trail: Trail | None = None,
) -> tuple[Line | None, Outcome]:
    """Return the best line, as `search_exact`, and what the engine said."""
    # A gap is stated in the model's objective, engines work in that of the program.
    gap = search.gap / program.scale
    near = None
    many = len(prepared.points.scores) >= MANY and not prepared.engine.grows_lazily
    if search == _EXACT and start is None and many:
        # Imported here, since most calls have no use for it.
        from demur.tuning.merged_rows import narrowed

        near = narrowed(prepared, program, allowed)
    if near is not None:
        prepared, outcome = near.prepared, near.outcome
    else:
        outcome = prepared.search(
            program, allowed, gap=gap, budget=search.budget, start=start, trail=trail
        )
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
    return preferred(lines + reject_all(program, 2), program), outcome


def how_sure(program: Program, best: Line | None, outcomes: list[Outcome]) -> SearchCertificate:
    """Return how sure searches are that nothing is better than the best of what they found."""
    bound = min(outcome.lower_bound for outcome in outcomes)
    lost = {masses for outcome in outcomes for masses in outcome.lost}
    if best is not None:
        # Another search, or rejecting everything, may be better than what one of them lost.
        known = best.id, best.ood, best.loss
        bound = min(bound, program.value(*known))
        lost = {masses for masses in lost if _beats(masses, known, program)}
    unresolved = sum(outcome.unresolved for outcome in outcomes) + len(lost)
    status: Status = "optimal"
    if any(outcome.status in ("gap", "budget") for outcome in outcomes):
        status = "budget" if any(outcome.status == "budget" for outcome in outcomes) else "gap"
    elif unresolved and best is not None and bound < program.value(*known):
        status = "unresolved"
    boxes = sum(outcome.boxes for outcome in outcomes)
    return SearchCertificate(status, program.scale * bound + program.offset, boxes, unresolved)


def _beats(masses: tuple[int, int, int], known: tuple[int, int, int], program: Program) -> bool:
    return 1 not in _tied_best(np.array([masses, known]), program)


def search_grid(
    prepared: Prepared, program: Program, allowed: DirectionSet, angles: int
) -> Line | None:
    """Return the best line over equidistant angles (the paper's algorithm)."""
    return search_directions(prepared, program, grid_directions(allowed, angles))


def search_directions(
    prepared: Prepared, program: Program, directions: Sequence[Direction]
) -> Line | None:
    """Return the best line over some directions.

    The engine says which directions attain the optimum; these are swept for their thresholds.
    """
    points = prepared.points.present()
    bounds = LinearParts.of(program, points)
    lines: list[Line] = []
    found = prepared.directions(program, np.array(directions))
    optima = np.column_stack([found.id, found.ood, found.loss])
    attained = np.flatnonzero(optima[:, 0] > 0)
    for k in attained[_tied_best(optima[attained], program)]:
        direction = directions[k]
        values = combine(direction, points.scores)
        swept = _sweep(points, values, bounds)
        row = reference.best_of_sweep(swept, goal_of(program, bounds.linear))
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
    last, following = prepared.sides(direction, threshold, direction)
    return Line(direction, float(midway(last, following)), *masses, width)


def _line_at(swept: reference.Sweep, row: int, direction: Direction, scale: FloatArray) -> Line:
    last = float(swept.value[row])
    following = float(swept.value[row + 1]) if row + 1 < len(swept.value) else np.inf
    return Line(
        direction,
        float(midway(last, following)),
        *swept.masses(row),
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
    return goal_of(program).best(masses[:, 0], masses[:, 1], masses[:, 2])
