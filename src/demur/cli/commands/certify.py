"""`demur certify`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import click

from demur.cli.app import UNMET
from demur.cli.inputs import DataOptions, data_options, read_rows, rule_on, scores_option
from demur.cli.options import Chance, ModelOptions, Number, SectionCommand, model_options, option
from demur.cli.output import Progress, json_option
from demur.cli.printing import Result, ResultTable, Section, rate, rows_data, verdict
from demur.core.program import Number as Bound
from demur.core.rule import Rule, rule_data
from demur.core.wording import at_least_text, at_most_text, formula
from demur.guarantees.certified_rule import Certified, certify
from demur.guarantees.intervals import Interval

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
@json_option()
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
    asked = model.at_most_one("certify")
    if None not in (given, prior_range) and (asked is None or asked.ood_prior is None):
        raise click.UsageError(
            "beside --prior-range, --prior says where precision or cost was seen, and neither "
            "--min-precision nor --cost-reject-id is given: leave out one of the two"
        )
    loaded = Rule.load(rule)
    loaded, names = rule_on(loaded, scores)
    rows = read_rows(data, [names], confidence=loaded.confidence)
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
    described = {
        "rule": rule_data(loaded),
        "model": None if asked is None else asked.to_data(),
        "rows": rows_data(sample),
        "holds": promise.holds,
        "ood_prior": [float(prior) for prior in prior_range or (model.prior,) if prior is not None],
    }
    _result(loaded, promise, described).show(as_json=as_json)
    if not promise.holds:
        raise SystemExit(UNMET)


def _result(rule: Rule, promise: Certified, described: dict[str, Any]) -> Result:
    meaning = [
        f"All of these bounds hold together with probability {promise.confidence:g} over "
        "the choice of rows,",
        "if the rows are fresh and independent.",
    ]
    verdicts = [verdict(bound, good, "certified") for bound, good in promise.met.items()]
    return Result(
        [
            Section(
                [f"Rule: accept when {formula(rule)}."],
                table=_promise_table(promise),
                notes=[*meaning, *verdicts, promise.caveat],
            )
        ],
        asdict(promise) | described,
    )


def _promise_table(promise: Certified) -> ResultTable:
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
        [name, "" if value is None else rate(value, 5), *_ends(interval)]
        for name, (interval, value) in seen.items()
        if interval is not None
    ]
    return ResultTable.of(["", "seen", "at least", "at most"], rows)


def _ends(interval: Interval) -> list[str]:
    # An end that is not promised is the trivial one.
    low = "" if interval.low == 0 else _end(interval.low, at_least_text)
    return [low, "" if interval.high == 1 else _end(interval.high, at_most_text)]


def _end(bound: float, text: Callable[[float, int], str]) -> str:
    return "undefined" if math.isnan(bound) else text(bound, 5)
