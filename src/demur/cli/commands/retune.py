"""`demur retune`: other bounds, costs or another prior, from counts that `demur tune` saved."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from demur.cli.options import (
    SectionCommand,
)
from demur.cli.output import OutputOptions, output_options
from demur.cli.printing import (
    ONLY_THESE_OOD,
    Result,
    Section,
    decision,
    infeasible_as_json,
)
from demur.cli.tuning_options import (
    ModelOptions,
    model_options,
)
from demur.core.rule import rule_data

if TYPE_CHECKING:
    from demur.guarantees.operating_tables import OperatingTable

_EXAMPLES = """\b
Examples:
  demur tune scores.parquet --scores msp,knn --loss is_wrong --ood is_ood \\
      --min-tpr .8 --max-fpr .1 --counts counts.json
  demur retune counts.json --min-precision .95 --min-recall .7 --prior .08 -o rule.json
"""


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@click.argument("counts", type=click.Path(), metavar="COUNTS")
@model_options("Rejection model (one of four)")
@output_options("Write the rule to this JSON file.")
def command(counts: str, model: ModelOptions, out: OutputOptions) -> None:
    """Tune for other bounds, costs or another prior from saved COUNTS, without the rows.

    COUNTS is what ``demur tune --counts`` wrote. From one score the rule is the one that the rows
    themselves give; from two scores it is the best of those saved, which were best at bounds on
    TPR and FPR in steps of one percent.
    """
    asked = model.one_model()
    out.check(inputs=[counts])
    table = _read(counts)
    with infeasible_as_json(out.as_json):
        tuned = table.tune(asked)
    out.save(tuned.rule.to_json)
    known = "all that can be optimal" if table.complete else "a selection, so it may not be optimal"
    notes = [
        f"The best of {len(table.thresholds):,} saved rules ({known}).",
        "The numbers are those of the rows it was tuned on, so they are optimistic.",
        ONLY_THESE_OOD,
    ]
    if out.path is not None:
        notes.append(f"The rule is in {out.output}.")
    data = {
        "rule": rule_data(tuned.rule),
        "model": asked.to_data(),
        "tuned": asdict(tuned.point),
        "complete": table.complete,
        "saved_rules": len(table.thresholds),
        "output": out.output,
    }
    section = Section([decision(tuned.rule, tuned.point)], notes=notes)
    Result([section], data).show(as_json=out.as_json, beside=out.on_stdout)


def _read(counts: str) -> OperatingTable:
    from demur.guarantees.operating_tables import OperatingTable
    from demur.sources.files import STANDARD_INPUT, input_text

    if counts == STANDARD_INPUT:
        return OperatingTable.from_json(input_text("the counts"))
    return OperatingTable.load(counts)
