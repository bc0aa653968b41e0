"""`demur report`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import click
import numpy as np

from demur._arrays import BoolArray
from demur.cli.holdout import held_out
from demur.cli.inputs import (
    DataOptions,
    Rows,
    confidence_option,
    data_options,
    read_rows,
    scores_option,
)
from demur.cli.models import ModelOptions, model_options
from demur.cli.options import Names, Number, SectionCommand, complete_column, gathered, option
from demur.cli.output import OutputOptions, output_options
from demur.cli.progress import Progress
from demur.cli.texts import echo_json
from demur.core.columns import ood_rows
from demur.core.program import Number as Bound
from demur.core.program import exact
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.report.report import Report
from demur.report.rows import Ids
from demur.tuning.charts import Directions
from demur.tuning.result import Grid
from demur.tuning.tune import tune

_EXAMPLES = """\b
Examples:
  demur report scores.parquet --scores msp,knn --loss is_wrong --ood set \\
      --min-tpr .8 --max-fpr .1 --holdout .3 --id image -o report.html
  demur report scores.csv --scores msp,knn --compare energy --loss is_wrong --ood set \\
      --min-precision .95 --min-recall .7 --prior .1 -o report.html
"""


@dataclass(frozen=True, slots=True)
class ReportOptions:
    """Which rules compete, on which rows, and what is shown beside them."""

    fpr_of: Literal["pooled", "worst"]
    directions: Directions | None
    grid: int | None
    holdout: Bound | None
    seed: int
    key: str | None
    compare: tuple[tuple[str, ...], ...]
    title: str
    max_loss: Bound | None

    @property
    def allowed(self) -> Directions:
        """The directions, as `tune` would choose them."""
        return self.directions or ("nonneg" if self.grid is None else "paper")


_search, _split, _shown = option("Search"), option("Held-out rows"), option("Report")


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@scores_option()
@confidence_option()
@data_options()
@model_options("Rejection model (one of three)")
@gathered(
    "options",
    ReportOptions,
    [
        _search(
            "--fpr-of",
            type=click.Choice(["pooled", "worst"]),
            default="pooled",
            show_default=True,
            help="Bound the FPR of all OOD rows together, or of every OOD set.",
        ),
        _search(
            "--directions",
            type=click.Choice(["nonneg", "real", "paper", "circle"]),
            help="Weights a pair may get; nonneg: more doubt never helps (default).",
        ),
        _search("--grid", type=click.IntRange(1), help="Try this many angles, not all of them."),
        _split("--holdout", type=Number(), help="Tune on the rest, evaluate on this share."),
        _split("--seed", type=int, default=0, show_default=True, help="Seed of the split."),
        _shown(
            "--id",
            "key",
            metavar="COLUMN",
            shell_complete=complete_column,
            help="Name rows by this column and list those nearest to the boundary; rows with "
            "the same id stay on one side of the split.",
        ),
        _shown(
            "--compare",
            multiple=True,
            type=Names(),
            metavar="A[,B]",
            shell_complete=complete_column,
            help="One more score or pair to compare with; repeat for several. The parts of a "
            "pair are always compared with it.",
        ),
        _shown("--title", default="When to answer", show_default=True, help="Title of the page."),
        _shown("--max-loss", type=Number(), help="Largest possible loss, if it is not 0/1."),
    ],
)
@output_options("Write the page to this HTML file; without it, print the report as text.")
def command(
    data: DataOptions,
    scores: tuple[str, ...] | None,
    confidence: tuple[str, ...],
    model: ModelOptions,
    options: ReportOptions,
    out: OutputOptions,
) -> None:
    """Tune a rule for the rows of DATA and report on it.

    The page is one file that works offline: the decision, its numbers with intervals, what to
    beware of, and an explorer of all other bounds.
    """
    asked = model.one_model()
    if model.needs_ood and data.ood is None and not data.openood:
        raise click.UsageError("--max-fpr and --prior need OOD rows: name their column with --ood")
    out.check()
    wanted = [scores, *options.compare] if scores else []
    rows = read_rows(data, wanted, confidence=confidence, group=options.key)
    names = rows.scores[0]
    if len(names) > 2:
        raise click.UsageError("--scores is needed: choose one or two of the --openood scores")
    rows.sample(names)
    text = _command_line(data, names, confidence, options)
    rows = _as_doubts(rows)
    held = _held(rows, options)
    train, test = _samples(rows, rows.scores[0], held)
    if model.needs_ood and train.n_ood == 0:
        raise InvalidInputError(f"column {rows.options.ood!r} marks no row as OOD")
    search = None if options.grid is None else Grid(options.grid)
    with Progress(f"tuning on {train.n_id + train.n_ood:,} rows"), out.infeasible_as_json():
        tuning = tune(train, asked, directions=options.allowed, search=search, ood=options.fpr_of)
    with Progress("writing the report"):
        report = Report.of(
            train,
            tuning,
            held_out=test,
            methods=_methods(rows, held),
            ids=_ids(rows, held, options.key),
            title=options.title,
            max_loss=options.max_loss,
            directions=options.allowed,
            search=search,
            command=text,
        )
        if out.output is not None:
            report.to_html(out.output)
    _print(report, out)


def _as_doubts(rows: Rows) -> Rows:
    """Return the rows with flipped confidences as columns of their own, called ``-name``."""
    flipped = {name: f"-{name}" for name in rows.confidence}
    columns = rows.columns | {new: -rows.columns[old] for old, new in flipped.items()}
    scores = tuple(tuple(flipped.get(name, name) for name in names) for names in rows.scores)
    return replace(rows, columns=columns, scores=scores, confidence=())


def _held(rows: Rows, options: ReportOptions) -> BoolArray | None:
    """Return which rows are held out, as `demur tune` would choose them."""
    if options.holdout is None:
        return None
    share = exact("--holdout", options.holdout)
    if not 0 < share < 1:
        raise InvalidInputError(f"--holdout must be between 0 and 1, got {options.holdout}")
    ood = rows.options.ood
    length = len(rows.columns[rows.scores[0][0]])
    strata = np.zeros(length) if ood is None else rows.columns[ood].astype(str)
    groups = None if options.key is None else rows.columns[options.key]
    held = held_out(strata, share, seed=options.seed, groups=groups)
    if held.all() or not held.any():
        raise InvalidInputError("--holdout leaves one side without rows: too few rows or ids")
    return held


def _samples(
    rows: Rows, names: Sequence[str], held: BoolArray | None
) -> tuple[Sample, Sample | None]:
    if held is None:
        return rows.sample(names), None
    return rows.sample(names, ~held), rows.sample(names, held)


def _methods(rows: Rows, held: BoolArray | None) -> dict[str, Sample | tuple[Sample, Sample]]:
    """Return the tuned score or pair, its parts, and what else is to be compared."""
    first = rows.scores[0]
    wanted = dict.fromkeys([*((name,) for name in first), first, *rows.scores[1:]])
    methods: dict[str, Sample | tuple[Sample, Sample]] = {}
    for names in wanted:
        train, test = _samples(rows, names, held)
        methods[" + ".join(names)] = train if test is None else (train, test)
    return methods if len(methods) > 1 else {}


def _ids(rows: Rows, held: BoolArray | None, key: str | None) -> Ids | None:
    """Return the ids in the order of the sample: ID rows, then set by set."""
    if key is None:
        return None
    kept = slice(None) if held is None else ~held
    columns = {name: column[kept] for name, column in rows.columns.items()}
    ids = columns[key]
    is_ood, sets = ood_rows(columns, rows.options.ood, len(ids))
    return ids[~is_ood], np.concatenate([ids[members] for members in sets.values()])


def _command_line(
    data: DataOptions, names: Sequence[str], confidence: Sequence[str], options: ReportOptions
) -> str:
    """Return the command that tunes on the same rows, up to the bounds."""
    given = {
        "--scores": ",".join(names),
        "--confidence": ",".join(confidence),
        "--loss": data.loss,
        "--label": data.label,
        "--prediction": data.prediction,
        "--loss-function": None if data.loss_function == "zero_one" else data.loss_function,
        "--ood": data.ood,
        "--weight": data.weight,
        "--openood-id": data.openood_id,
        "--openood-ood": ",".join(data.openood_ood or ()),
        "--holdout": None if options.holdout is None else str(options.holdout),
        "--seed": str(options.seed) if options.holdout is not None and options.seed else None,
        "--id": options.key if options.holdout is not None else None,
    }
    words = ["demur", "tune", *([data.data] if data.data else [])]
    for path in data.openood:
        words += ["--openood", path]
    for name, value in given.items():
        words += [name, value] if value else []
    return shlex.join(words)


def _print(report: Report, out: OutputOptions) -> None:
    if out.as_json:
        echo_json(report.to_dict() | {"output": out.output})
    elif out.output is None:
        click.echo(report.to_text(), nl=False)
    else:
        click.echo(report.decision)
        for caution in report.cautions:
            click.echo(f"{caution.level.capitalize()}: {caution.text}")
        click.echo(f"The report is in {out.output}.")
