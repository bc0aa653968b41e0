"""`demur certify`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, replace

import click

from demur.cli.evaluate import score_columns
from demur.cli.inputs import DataOptions, data_options, read_rows, scores_option
from demur.cli.models import ModelOptions, model_options
from demur.cli.options import Chance, Number, SectionCommand, option
from demur.cli.progress import Progress
from demur.cli.tables import Block, Cell, render
from demur.cli.texts import echo_json, model_data, rate, rule_data, rule_text, sample_data
from demur.core.paper_models import CostModel, PrecisionRecallModel
from demur.core.program import Number as Bound
from demur.core.rule import Rule
from demur.guarantees.certified_rule import Certified, certify
from demur.guarantees.intervals import Interval, at_least_text, at_most_text

_EXAMPLES = """\b
Examples:
  demur certify rule.json fresh.parquet --loss is_wrong --ood is_ood --confidence .95
  demur certify rule.json fresh.csv --label y --prediction yhat --ood set \\
      --min-tpr .8 --max-fpr .1
  demur certify rule.json fresh.csv --loss is_wrong --ood set --prior-range .01 .05
"""
_promise = option("Promise")


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@click.argument("rule", type=click.Path(), metavar="RULE")
@scores_option(help="Columns to read in place of those that the rule names.")
@data_options()
@model_options("Bounds to certify, or costs (optional)")
@_promise(
    "--confidence", type=Chance(), default="0.95", show_default=True, help="Chance that all hold."
)
@_promise(
    "--prior-range",
    type=Number(),
    nargs=2,
    metavar="LOW HIGH",
    help="Bound precision and cost over all shares of OOD inputs between these; what was seen is "
    "stated at --prior, or else at HIGH.",
)
@_promise("--max-loss", type=Number(), help="Largest possible loss, if losses are not 0 and 1.")
@_promise("--two-sided", is_flag=True, help="Bound every rate from both sides.")
@option("Output")("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def command(
    rule: str,
    data: DataOptions,
    scores: tuple[str, ...] | None,
    model: ModelOptions,
    confidence: Bound,
    prior_range: tuple[Bound, Bound] | None,
    max_loss: Bound | None,
    two_sided: bool,
    as_json: bool,
) -> None:
    """State what can be promised of a saved RULE, from fresh rows.

    DATA must be rows that the rule was not tuned or chosen on. All bounds hold together with
    the chance --confidence. Exit code 3: a bound that was asked for is not certified.
    """
    given = model.prior
    if prior_range is not None and given is None:
        # What was seen is shown at the worse end.
        model = replace(model, prior=prior_range[1])
    models = model.models()
    if len(models) > 1:
        raise click.UsageError("the options mix models: certify one at a time")
    asked = models[0] if models else None
    if None not in (given, prior_range) and not isinstance(
        asked, (CostModel, PrecisionRecallModel)
    ):
        raise click.UsageError(
            "beside --prior-range, --prior says where precision or cost was seen, and neither "
            "--min-precision nor --cost-reject-id is given: leave out one of the two"
        )
    loaded = Rule.load(rule)
    names = score_columns(loaded, scores)
    rows = read_rows(data, [names], flip=False)
    with Progress("certifying"):
        sample = rows.sample(names)
        promise = certify(
            loaded,
            sample,
            confidence=float(confidence),
            model=asked,
            ood_prior=prior_range or model.prior,
            max_loss=max_loss,
            sides="two" if two_sided else "one",
        )
    if as_json:
        data_out = asdict(promise) | {
            "rule": rule_data(loaded),
            "model": None if asked is None else model_data(asked),
            "rows": sample_data(sample),
            "holds": promise.holds,
            "ood_prior": [
                float(prior) for prior in prior_range or (model.prior,) if prior is not None
            ],
        }
        echo_json(data_out)
    else:
        click.echo(f"Rule: accept when {rule_text(loaded)}.\n")
        click.echo(promise_table(promise))
        click.echo(
            f"\nAll of these bounds hold together with probability {promise.confidence:g} over "
            "the choice of rows,\nif the rows are fresh and independent."
        )
        for bound, certified in promise.met.items():
            word = "certified" if certified else click.style("not certified", fg="red")
            click.echo(f"{bound}: {word}")
        click.echo(promise.caveat)
    if not promise.holds:
        raise SystemExit(3)


def promise_table(promise: Certified) -> str:
    """Return the certified bounds beside what was seen."""
    point = promise.point
    seen = {
        "TPR": (promise.tpr, point.tpr),
        "FPR": (promise.fpr, point.fpr),
        "selective risk": (promise.selective_risk, point.selective_risk),
        "precision": (promise.precision, point.precision),
        "expected cost": (promise.expected_cost, point.expected_cost),
    }
    rows = [
        [Cell(name), Cell("" if value is None else rate(value, 5)), *_ends(interval)]
        for name, (interval, value) in seen.items()
        if interval is not None
    ]
    return render("text", ["", "seen", "at least", "at most"], [Block("", rows)])


def _ends(interval: Interval) -> list[Cell]:
    # An end that is not promised is the trivial one.
    low = "" if interval.low == 0 else _end(interval.low, at_least_text)
    return [Cell(low), Cell("" if interval.high == 1 else _end(interval.high, at_most_text))]


def _end(bound: float, text: Callable[[float, int], str]) -> str:
    return "undefined" if math.isnan(bound) else text(bound, 5)
