"""`tune` on a source."""

from __future__ import annotations

from typing import Literal

from demur.core.models import RejectionModel
from demur.core.program import Program
from demur.core.rates import OperatingPoint, tally_point
from demur.core.rule import Rule
from demur.core.source import Measure, ScoreSource
from demur.errors import InvalidInputError
from demur.tuning.charts import DirectionSet
from demur.tuning.infeasible import infeasible_error
from demur.tuning.line import Line
from demur.tuning.result import Exact, Tuning
from demur.tuning.streamed.cloud import no_points
from demur.tuning.streamed.plan import Plan
from demur.tuning.streamed.solve import Streamed


def tune_source(
    source: ScoreSource,
    model: RejectionModel,
    allowed: DirectionSet,
    search: Exact,
    *,
    ood: Literal["pooled", "worst"] = "pooled",
    plan: Plan | None = None,
) -> Tuning:
    """Return what `demur.tune` returns for the same rows in memory."""
    stream = Streamed(source, [model], allowed, ood=ood, plan=plan)
    line, certificate = stream.find(model.program(stream.totals), allowed, search)
    if line is None:
        nothing = no_points(len(source.score_names), stream.measure.columns, stream.totals)

        def find(program: Program) -> tuple[int, int] | None:
            other, _ = stream.find(program, allowed, Exact())
            return None if other is None else (other.id, other.ood)

        raise infeasible_error(model, nothing, find)
    rule = Rule(line.direction, line.threshold, score_names=source.score_names)
    return Tuning(rule, _point(stream, rule, line, model), model, stream.totals, certificate)


def _point(stream: Streamed, rule: Rule, line: Line, model: RejectionModel) -> OperatingPoint:
    """Return the rates of `rule`, counted once more over all rows."""
    measure = Measure.of(stream.overview, apart=True)
    tally = stream.source.tally(rule, measure)[None]
    counted, known = (tally.id, sum(tally.ood), tally.loss), (line.id, line.ood, line.loss)
    if counted[:2] != known[:2] or (model.program(stream.totals).loss and counted != known):
        raise InvalidInputError(
            "source: the rule found accepts (ID, OOD, loss) masses of "
            f"{known} by the rows seen first and {counted} by a last count: the data changed "
            "while they were read; tune on data that stay as they are"
        )
    return tally_point(tally, measure, stream.overview.sets, model=model)
