"""`demur demo`."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from demur.cli.output import Progress, refuse_existing
from demur.cli.printing import (
    ONLY_THESE_OOD,
    Cell,
    Heading,
    Result,
    ResultTable,
    RowGroup,
    Section,
)
from demur.core.rates import OperatingPoint
from demur.core.rule import rule_data

if TYPE_CHECKING:
    from demur.reproduce.demo import Demo, DemoOutcome

UNABLE = "unable"


@click.command()
@click.option(
    "-o",
    "--output",
    default="demur-demo",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder to write to.",
)
@click.option("--seed", default=0, show_default=True, type=click.IntRange(0), help="Seed.")
@click.option("--force", is_flag=True, help="Replace the files of an earlier run.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON for scripts.")
def command(output: Path, seed: int, force: bool, as_json: bool) -> None:
    """Train, tune and report on a small built-in example, without any download.

    A classifier of the handwritten digits 0 to 6 has to reject 7, 8 and 9, which it was not
    taught. Writes a report, the tuned rule and the scores, which all other commands read.
    """
    from demur.reproduce.demo import FILES, run, write

    for name in FILES:
        refuse_existing(output / name, force=force)
    output.mkdir(parents=True, exist_ok=True)
    with Progress("training and tuning"):
        demo = run(seed)
    with Progress("writing the report"):
        report = write(demo, output)
    halves = 'Tuned on one half of the images; "held out" is the other half.'
    sections = [
        Section(_story(demo), table=_table(demo), notes=[halves, ONLY_THESE_OOD]),
        Section([report.decision]),
        Section(_next(output)),
    ]
    Result(sections, _data(demo, output)).show(as_json=as_json)


def _story(demo: Demo) -> list[str]:
    sizes = [
        f"{int((~part.is_ood).sum())} ID and {int(part.is_ood.sum())} OOD"
        for part in (demo.tune, demo.test)
    ]
    return [
        f"A classifier of the digits 0 to 6 is right on {demo.accuracy:.1%} of new images; "
        "7, 8 and 9 are OOD.",
        f"Images to tune on: {sizes[0]}; held out: {sizes[1]}.",
    ]


def _table(demo: Demo) -> ResultTable:
    header = ["", "tuned", "held out", "TPR held out", "FPR held out"]
    groups = []
    for name in dict.fromkeys(outcome.model for outcome in demo.outcomes):
        outcomes = [outcome for outcome in demo.outcomes if outcome.model == name]
        texts = [_texts(outcome) for outcome in outcomes]
        # Of the objective, the least is best; texts of equal length compare as numbers.
        best = [min(column) for column in list(zip(*texts, strict=True))[:2]]
        rows = [
            [
                Cell(" + ".join(outcome.method)),
                *(
                    Cell(text, text == least != UNABLE)
                    for text, least in zip(row, best, strict=False)
                ),
                *map(Cell, row[2:]),
            ]
            for outcome, row in zip(outcomes, texts, strict=True)
        ]
        objective = "expected cost" if name == "cost" else f"selective risk at {name}"
        groups.append(RowGroup(objective, rows))
    return ResultTable([Heading(name) for name in header], groups)


def _texts(outcome: DemoOutcome) -> list[str]:
    if outcome.tuned is None or outcome.held_out is None:
        return [UNABLE] * 4
    values = [_objective(outcome.tuned), _objective(outcome.held_out)]
    values += [outcome.held_out.tpr, outcome.held_out.fpr]
    return [f"{value:.4f}" for value in values]


def _objective(point: OperatingPoint) -> float:
    """Return what the model of the point minimises."""
    return point.selective_risk if point.expected_cost is None else point.expected_cost


def _next(output: Path) -> list[str]:
    from demur.reproduce.demo import tune_command

    def quoted(name: str) -> str:
        return shlex.quote(str(output / name))

    return [
        f"Open {output / 'report.html'} in a browser. Then try",
        f"  {tune_command(output)} --min-tpr .8 --max-fpr .25",
        f"  demur evaluate {quoted('rule.json')} {quoted('test.csv')} --loss is_wrong --ood set",
    ]


def _data(demo: Demo, output: Path) -> dict[str, Any]:
    return {
        "accuracy": demo.accuracy,
        "outcomes": [
            {
                "scores": list(outcome.method),
                "model": outcome.model,
                "rule": None if outcome.rule is None else rule_data(outcome.rule),
                "tuned": None if outcome.tuned is None else asdict(outcome.tuned),
                "held_out": None if outcome.held_out is None else asdict(outcome.held_out),
            }
            for outcome in demo.outcomes
        ],
        "output": str(output),
    }
