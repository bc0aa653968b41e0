"""`demur retune`."""

from __future__ import annotations

from dataclasses import asdict

import click

from demur.cli.options import ModelOptions, SectionCommand, model_options
from demur.cli.output import OutputOptions, output_options, save_file
from demur.cli.printing import ONLY_THESE_OOD, Result, Section, decision, infeasible_as_json
from demur.core.rule import rule_data
from demur.guarantees.operating_tables import OperatingTable

_EXAMPLES = """\b
Examples:
  demur tune scores.parquet --scores msp,knn --loss is_wrong --ood is_ood \\
      --min-tpr .8 --max-fpr .1 --counts counts.json
  demur retune counts.json --min-precision .95 --min-recall .7 --prior .08 -o rule.json
"""


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@click.argument("counts", type=click.Path(), metavar="COUNTS")
@model_options("Rejection model (one of three)")
@output_options("Write the rule to this JSON file.")
def command(counts: str, model: ModelOptions, out: OutputOptions) -> None:
    """Tune for other bounds, costs or another prior from saved COUNTS, without the rows.

    COUNTS is what ``demur tune --counts`` wrote. From one score the rule is the one that the rows
    themselves give; from two scores it is the best of those saved, which were best at bounds on
    TPR and FPR in steps of one percent.
    """
    asked = model.one_model()
    out.check()
    table = OperatingTable.load(counts)
    with infeasible_as_json(out.as_json):
        tuned = table.tune(asked)
    save_file(out.output, tuned.rule.save)
    known = "all that can be optimal" if table.complete else "a selection, so it may not be optimal"
    notes = [
        f"The best of {len(table.thresholds):,} saved rules ({known}).",
        "The numbers are those of the rows it was tuned on, so they are optimistic.",
        ONLY_THESE_OOD,
    ]
    if out.output is not None:
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
    Result([section], data).show(as_json=out.as_json)
