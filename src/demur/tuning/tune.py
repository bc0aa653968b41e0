"""`tune`: the rule a rejection model asks for, found on a sample."""

from __future__ import annotations

from typing import Literal

from demur.core.models import RejectionModel
from demur.core.points import Points
from demur.core.program import Program
from demur.core.rates import evaluate
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.tuning import double, single
from demur.tuning.charts import Directions, DirectionSet, direction_set
from demur.tuning.infeasible import infeasible_error
from demur.tuning.line import Line
from demur.tuning.result import Certificate, Exact, Grid, Tuning


def tune(
    sample: Sample,
    model: RejectionModel,
    *,
    directions: Directions | None = None,
    search: Exact | Grid | None = None,
    ood: Literal["pooled", "worst"] = "pooled",
) -> Tuning:
    """Return the optimal rule for `sample` under `model`.

    One score: all thresholds. Two scores: all thresholds in all directions. Equal scores are
    accepted together; ties between optimal rules go to the larger TPR, then the smaller FPR,
    then the widest gap around the boundary.

    Parameters
    ----------
    model
        `CostModel`, `TprFprModel` or `PrecisionRecallModel`.
    directions
        Weights allowed on (s_r, s_g): ``"nonneg"`` (default: more doubt never helps),
        ``"real"`` (any weight on s_g), ``"paper"`` (angles [0, pi], the default of `Grid`) or
        ``"circle"``.
    search
        `Exact()` (default) or `Grid(360)`, the paper's algorithm.
    ood
        ``"pooled"`` bounds the FPR of all OOD rows together, ``"worst"`` that of every named
        set.

    Raises
    ------
    InfeasibleError
        No rule meets the bounds; carries the nearest attainable ones.

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
    points = Points.of(sample, ood)
    program = model.program(points.totals)
    allowed = direction_set(directions or ("paper" if isinstance(search, Grid) else "nonneg"))
    line, unresolved = _find(points, program, allowed, search)
    if line is None:
        find = lambda p: _accepted(_find(points, p, allowed, search)[0])  # noqa: E731
        raise infeasible_error(model, points, find)
    rule = Rule(line.direction, line.threshold, score_names=sample.score_names)
    return Tuning(
        rule=rule,
        point=evaluate(rule, sample, model=model),
        model=model,
        totals=points.totals,
        certificate=Certificate(
            "grid" if isinstance(search, Grid) and sample.n_scores == 2 else "optimal", unresolved
        ),
    )


def _find(
    points: Points, program: Program, allowed: DirectionSet, search: Exact | Grid
) -> tuple[Line | None, int]:
    """Return the best line and the number of accepted sets out of float64's reach."""
    if points.scores.shape[1] == 1:
        return single.search(points, program), 0
    if isinstance(search, Grid):
        return double.search_grid(points, program, allowed, search.angles), 0
    return double.search_exact(points, program, allowed)


def _accepted(line: Line | None) -> tuple[int, int] | None:
    return None if line is None else (line.id, line.ood)
