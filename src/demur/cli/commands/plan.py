"""`demur plan`: how many rows prove bounds; with `--watch`, how many audits a day find a break."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

import click

from demur.cli.inputs import (
    DataOptions,
    EngineOptions,
    data_options,
    engine_options,
    read_rows,
)
from demur.cli.options import (
    Chance,
    Command,
    LevelOption,
    Number,
    SectionCommand,
    Share,
    level_option,
    names_or_level_option,
    option,
    scores_option,
    seed_option,
)
from demur.cli.output import Progress, json_option, note
from demur.cli.printing import Result, ResultTable, Section
from demur.cli.streamed import PROMISE_ROW_BYTES, bring_rows
from demur.cli.tuning_options import BoundText, ModelOptions
from demur.core.models import Bound, RejectionModel
from demur.core.program import Number as ExactNumber
from demur.core.rule import Rule
from demur.errors import InvalidInputError
from demur.guarantees.bound_tests import asked_text
from demur.guarantees.certified_tuning import plan_tuning
from demur.guarantees.planning import Plan, plan
from demur.watch.audit import AuditPlan
from demur.watch.monitor import Watch

_audit = option("Audits of a rule in use")

# Of a source, rows that stand for the population: trials draw from these.
_PILOT_ROWS = 100_000
# What is planned for by default at most: trials of more rows take minutes.
_TUNED_ROWS = 5_000


def watch_plan_options(command: Command) -> Command:
    """Add the options of --watch to the command."""
    options = [
        _audit(
            "--watch", type=click.Path(), metavar="RULE", help="Plan audits of this rule in use."
        ),
        _audit(
            "--expect",
            "expected",
            metavar="QUANTITY=VALUE",
            help="What is expected, such as selective_risk=.06; by default the card's bounds.",
        ),
        _audit(
            "--broken",
            metavar="QUANTITY=VALUE",
            help="A break to be found, such as selective_risk=.12; by default half as bad again.",
        ),
        _audit("--rows-per-day", type=click.IntRange(1), default=1000, show_default=True),
        _audit("--within", type=click.IntRange(1, 365), default=7, show_default=True, help="Days."),
        _audit("--alpha", type=Chance(), default="0.05", show_default=True, help="Of the watch."),
        _audit("--prior", type=Share(), help="Share of OOD inputs in use."),
    ]
    for add in reversed(options):
        command = add(command)
    return command


def show_watch_plan(given: dict[str, Any], *, power: float, as_json: bool) -> None:
    """Print the plan."""
    rule = Rule.load(given["watch"])
    expect = None if given["expected"] is None else [_bound_of("--expect", given["expected"])]
    watch = Watch(rule, expect=expect, alpha=float(given["alpha"]))
    broken = None if given["broken"] is None else _bound_of("--broken", given["broken"])
    prior = given["prior"]
    planned = watch.plan(
        broken,
        rows_per_day=given["rows_per_day"],
        within=given["within"],
        power=power,
        ood_prior=None if prior is None else float(prior),
    )
    _result(planned).show(as_json=as_json)


def _bound_of(flag: str, text: str) -> Bound:
    """Read a bound such as fpr=.2, in the sense in which the quantity is bounded."""
    name, equals, value = text.partition("=")
    try:
        number = float(value)
    except ValueError:
        equals = ""
    if not equals:
        raise InvalidInputError(f"{flag}: {text!r} is not of the form selective_risk=0.12")
    quantity: Any = name.strip().replace("-", "_")
    if quantity in ("tpr", "precision"):
        return Bound(quantity, at_least=number)
    return Bound(quantity, at_most=number)


def _result(planned: AuditPlan) -> Result:
    world = planned.world
    facts = [
        f"To find that {planned.expectation} is broken, at {planned.broken:g}, within "
        f"{planned.within} days with a chance of {planned.power:g}:",
    ]
    numbers = list(planned.places[0].days) if planned.places else []
    header = ["audits of", "audits a day", *(f"{n} a day: median day" for n in numbers)]
    rows = [
        [
            place.where,
            "no number" if place.audits_per_day is None else f"{place.audits_per_day:,}",
            *(_day(place.days[n][0]) for n in numbers),
        ]
        for place in planned.places
    ]
    best = planned.best
    advice = "No number of audits finds it in time."
    if best is not None:
        advice = f"Audit {best.where}: {best.audits_per_day:,} a day."
    notes = [
        advice,
        f"By simulation with the evidence of demur watch (its part of alpha is "
        f"{planned.alpha:.4g}), of a rule with TPR {world.tpr:.3g}, FPR {world.fpr:.3g}, "
        f"{world.ood_prior:.3g} OOD inputs and {world.rows_per_day:,} rows a day, broken from the "
        "first day.",
    ]
    return Result(
        [Section(facts, table=ResultTable.of(header, rows), notes=notes)], asdict(planned)
    )


def _day(day: float) -> str:
    return f"{day:g}" if math.isfinite(day) else "later"


_EXAMPLES = """\b
Examples:
  demur plan --min-tpr .8 --max-fpr .1 --level .95
  demur plan --min-tpr .9 --max-fpr .05 --margin .01 --margin .03 --power .8
  demur plan --min-tpr .8 --max-fpr .1 --sets 3
  demur plan --min-tpr .8 --bound 'tpr of rare >= .6' --bound 'fpr of svhn <= .05'
  demur plan pilot.csv --scores msp,knn --loss is_wrong --ood set \\
      --min-tpr .8 --max-fpr .1 --rows 800 400 --rows 3000 1500
  demur plan --watch rule.json --broken selective_risk=.12 --rows-per-day 5000 --within 7
"""
_bound, _add = option("Bounds to certify"), option("Certificate")
_tuning = option("Tuning with a guarantee, planned from the rows of DATA")


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@_bound("--min-tpr", type=Share(), help="Accept at least this share of ID inputs.")
@_bound("--max-fpr", type=Share(), help="Accept at most this share of OOD inputs.")
@_bound("--max-risk", type=Number(), help="Mean loss of the accepted ID inputs at most this.")
@_bound(
    "--bound",
    type=BoundText(),
    multiple=True,
    metavar="'Q of NAME >= X'",
    help="One more bound, on tpr, fpr or selective_risk, of all rows, of a group or an OOD set; "
    "repeat for more.",
)
@level_option("Certificate", "Chance it holds.")
@_add("--power", type=Chance(), default="0.9", show_default=True, help="Chance to get it.")
@_add(
    "--margin",
    "margins",
    type=Number(),
    multiple=True,
    default=["0.01", "0.02", "0.05"],
    show_default=True,
    help="By how much the rule is truly better than the bounds; may be repeated.",
)
@_add(
    "--sets",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="OOD sets that have to keep the FPR, each by itself; OOD rows are then those of each.",
)
@_tuning(
    "--rows",
    "tuned_rows",
    type=click.IntRange(2),
    nargs=2,
    multiple=True,
    metavar="ID OOD",
    help="How many rows to tune on with a guarantee; may be repeated. By default as many as DATA "
    "has, or 5,000 if it has more, and four times as many.",
)
@_tuning("--draws", type=click.IntRange(1), default=50, show_default=True, help="Trials of each.")
@_tuning(
    "--fpr-of",
    type=click.Choice(["pooled", "worst"]),
    default="pooled",
    show_default=True,
    help="Bound the FPR of all OOD rows together, or of every OOD set.",
)
@_tuning("--max-loss", type=Number(), help="Largest possible loss, if losses are not 0 and 1.")
@seed_option("Tuning with a guarantee, planned from the rows of DATA", "Seed of the trials.")
@scores_option()
@names_or_level_option()
@data_options()
@watch_plan_options
@engine_options()
@json_option()
def command(
    data: DataOptions,
    scores: tuple[str, ...],
    min_tpr: ExactNumber | None,
    max_fpr: ExactNumber | None,
    max_risk: ExactNumber | None,
    bound: tuple[Bound, ...],
    level: ExactNumber | None,
    confidence: tuple[Any, ...],
    power: ExactNumber,
    margins: tuple[ExactNumber, ...],
    sets: int,
    tuned_rows: tuple[tuple[int, int], ...],
    draws: int,
    fpr_of: str,
    max_loss: ExactNumber | None,
    seed: int,
    engine: EngineOptions,
    as_json: bool,
    **watched: Any,
) -> None:
    """Show how many fresh ID and OOD rows it takes to certify bounds.

    With DATA, a pilot sample, also how often demur tune --guarantee finds a rule with so many
    rows, and how good it is: an estimate, in which the rows of DATA stand for the population.

    With --watch: how many audited rows a day find a break of a rule in use, and where to audit.
    """
    if watched["watch"] is not None:
        show_watch_plan(watched, power=float(power), as_json=as_json)
        return
    if min_tpr is max_risk is None and not bound:
        raise click.UsageError("Missing option '--min-tpr', or --watch with a rule.")
    told = LevelOption.of(level, confidence, note)
    if any(one.quantity == "precision" for one in bound):
        raise click.UsageError(
            "--bound: rows are planned for bounds on tpr, fpr and selective_risk; precision "
            "depends on both sides: bound the fpr in its place"
        )
    asked = _asked(min_tpr, max_fpr, max_risk, bound)
    planned = plan(
        asked,
        margins=[float(margin) for margin in margins],
        confidence=float(told.level),
        power=float(power),
        sets=sets,
    )
    asks = [
        f"To certify {asked_text(asked)} with confidence {planned.confidence:g}",
        f"and a chance of {planned.power:g} to succeed"
        + (f", OOD rows of each of {sets} sets:" if sets > 1 else ":"),
    ]
    sections = [
        Section(asks, table=_sizes(planned), notes=_about_parts(planned)),
    ]
    if planned.fewest_id != 0 or planned.fewest_ood != 0:
        curve = Section(["Chance that a number of rows certifies a bound:"], table=_power(planned))
        sections += [curve, Section([_fewest(planned)])]
    described = asdict(planned) | {"model": asked.to_data(), "sets": sets}
    if data.data is not None or data.openood:
        if engine.streams(data, folders=False):
            brought = bring_rows(
                engine, data, scores, told.confidence, what="the plan", most=_PILOT_ROWS
            )
            rows = brought.rows
            described |= brought.work
        else:
            rows = read_rows(data, [scores] if scores else [], confidence=told.confidence)
        model = asked.of_every_set() if fpr_of == "worst" else asked
        pilot = rows.sample(rows.tuned_scores)
        sizes = tuned_rows or _default_sizes(pilot.n_id, pilot.n_ood)
        _check_sizes(sizes, engine.memory)
        with Progress("tuning with a guarantee"):
            tunings = plan_tuning(
                pilot,
                model,
                sizes,
                confidence=float(told.level),
                draws=draws,
                max_loss=max_loss,
                rng=seed,
            )
        said = [one.sentence(model) for one in tunings]
        sections.append(Section(["Tuning with a guarantee:", *said]))
        described |= {"tuning": [asdict(one) for one in tunings]}
    elif tuned_rows:
        raise click.UsageError("--rows needs DATA, a pilot sample of rows with scores and losses")
    Result(sections, described).show(as_json=as_json)


def _default_sizes(n_id: int, n_ood: int) -> tuple[tuple[int, int], ...]:
    """Return as many rows as there are, and four times as many; of many, some thousand."""
    share = min(1.0, _TUNED_ROWS / (n_id + n_ood))
    here = max(2, round(share * n_id)), max(2, round(share * n_ood)) if n_ood else 0
    return here, (4 * here[0], 4 * here[1])


def _check_sizes(sizes: tuple[tuple[int, int], ...], memory: int) -> None:
    """Refuse sizes that would not fit, before anything is drawn."""
    for n_id, n_ood in sizes:
        fitting = memory // PROMISE_ROW_BYTES
        if n_id + n_ood > fitting:
            raise click.UsageError(
                f"--rows {n_id} {n_ood}: rows of each trial are held in memory, "
                f"{PROMISE_ROW_BYTES} bytes each, and --memory allows {fitting:,}: ask for fewer, "
                "or allow more"
            )


def _asked(
    min_tpr: ExactNumber | None,
    max_fpr: ExactNumber | None,
    max_risk: ExactNumber | None,
    bounds: tuple[Bound, ...],
) -> RejectionModel:
    """Return the model of the options, as demur tune reads them."""
    return ModelOptions(
        min_tpr=min_tpr,
        max_fpr=max_fpr,
        max_risk=max_risk,
        bound=bounds,
        min_precision=None,
        min_recall=None,
        cost_reject_id=None,
        cost_accept_ood=None,
        cost_reject_ood=None,
        prior=None,
    ).one_model()


def _sizes(planned: Plan) -> ResultTable:
    rows = []
    for row in planned.rows:
        columns = {"margin": f"{row.margin:g}"}
        # Where nothing is asked of a side, no rows of it are needed.
        if planned.fewest_id != 0:
            columns |= {"true TPR": f"{row.tpr:g}", "ID rows": _rows(row.n_id)}
        if planned.fewest_ood != 0:
            columns |= {"true FPR": f"{row.fpr:g}", "OOD rows": _rows(row.n_ood)}
        columns |= {f"for {text}": _rows(count) for text, count in row.parts.items()}
        rows.append(columns)
    return ResultTable.of(list(rows[0]), [list(row.values()) for row in rows])


def _about_parts(planned: Plan) -> list[str]:
    """Say which rows are meant, where bounds are not on the TPR and FPR of all rows."""
    bounds = planned.model.bounds
    said = []
    if any(bound.is_of_part for bound in bounds):
        said.append("Rows for a bound on a group or an OOD set are rows of it.")
    if any(bound.quantity == "selective_risk" for bound in bounds):
        said.append(
            "Rows for a bound on a selective risk are accepted ones, with losses of 0 and 1."
        )
    return said


def _power(planned: Plan) -> ResultTable:
    rows = [
        [
            f"{point.margin:g}",
            f"{point.rows:,}",
            f"{point.tpr_power:.3f}",
            f"{point.fpr_power:.3f}",
        ]
        for point in planned.curve
    ]
    return ResultTable.of(["margin", "rows", "TPR (ID rows)", "FPR (OOD rows)"], rows)


def _fewest(planned: Plan) -> str:
    if planned.fewest_id is None or planned.fewest_ood is None:
        return "No number of rows certifies a bound of exactly 0 or 1: relax it."
    ood = f" or {planned.fewest_ood:,} OOD" if planned.fewest_ood else ""
    return f"Fewer than {planned.fewest_id:,} ID{ood} rows never certify these bounds."


def _rows(count: int | None) -> str:
    return "no number" if count is None else f"{count:,}"
