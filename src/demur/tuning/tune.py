"""`tune`: the rule a rejection model asks for, found on a sample."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

from demur.core.card import Card
from demur.core.mistakes import warn_of_mistakes
from demur.core.models import RejectionModel
from demur.core.program import Program
from demur.core.rates import OperatingPoint, accepted_points, evaluate, operating_point
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.source import ScoreSource
from demur.errors import DemurError, InvalidInputError
from demur.tuning import double, single
from demur.tuning.charts import Directions, DirectionSet, direction_set
from demur.tuning.infeasible import infeasible_error
from demur.tuning.line import Line
from demur.tuning.prepared import Prepared, as_prepared
from demur.tuning.result import Certificate, Exact, Grid, Tuning
from demur.tuning.units import warn_of_units


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
    search = Exact() if search is None else search
    if not isinstance(search, (Exact, Grid)):
        raise InvalidInputError(f"search must be Exact() or Grid(angles), got {search!r}")
    if not isinstance(model, RejectionModel):
        raise InvalidInputError(
            f"model must be a rejection model such as TprFprModel(0.8, 0.1), got {model!r}"
        )
    if not isinstance(source, (Sample, Prepared)):
        return _tune_source(source, model, directions, search, ood)
    if ood is None and model.every_set:
        ood = "worst"
    prepared = as_prepared(source, ood)
    warn_of_mistakes(prepared.sample, stacklevel=3)
    totals = prepared.points.totals
    model.check_rows(totals)
    program = model.program(totals)
    allowed = direction_set(directions or ("paper" if isinstance(search, Grid) else "nonneg"))
    if isinstance(search, Grid) and prepared.sample.n_scores == 2:
        warn_of_units(prepared, double.grid_directions(allowed, search.angles), stacklevel=2)
    line, certificate = _find(prepared, program, allowed, search)
    if line is None:
        find = lambda p: _accepted(_find(prepared, p, allowed, _without_limits(search))[0])  # noqa: E731
        raise infeasible_error(model, prepared.points, find)
    columns = prepared.sample.columns
    rule = Rule(
        columns.raw_direction(line.direction),
        line.threshold,
        score_names=columns.names,
        confidence=columns.confidence,
    )
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
    allowed = direction_set(directions or "nonneg")
    return tune_source(source, model, allowed, search, ood=ood or "pooled")


def _find(
    prepared: Prepared, program: Program, allowed: DirectionSet, search: Exact | Grid
) -> tuple[Line | None, Certificate]:
    if prepared.points.scores.shape[1] == 1:
        line = single.search(prepared.points, program)
        bound = math.nan
        if line is not None:
            bound = program.scale * program.value(line.id, line.ood, line.loss) + program.offset
        return line, Certificate("optimal", bound)
    if isinstance(search, Grid):
        line = double.search_grid(prepared, program, allowed, search.angles)
        return line, Certificate("grid")
    return double.search_exact(prepared, program, allowed, search)


def _without_limits(search: Exact | Grid) -> Exact | Grid:
    # What an infeasible model could have instead is stated exactly.
    return Exact() if isinstance(search, Exact) else search


def _accepted(line: Line | None) -> tuple[int, int] | None:
    return None if line is None else (line.id, line.ood)


def _point(prepared: Prepared, rule: Rule, line: Line, model: RejectionModel) -> OperatingPoint:
    """Return the rates of `rule` as evaluated, which must accept what the search said.

    A search that is wrong about its own line would hand out a rule that breaks its bounds with a
    certificate: that is an error, whatever its cause.
    """
    points = prepared.points
    accepted = accepted_points(rule, points, prepared.sample.columns)
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
