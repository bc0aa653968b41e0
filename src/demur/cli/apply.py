"""`demur apply`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import click
import numpy as np

from demur._arrays import BoolArray, FloatArray
from demur._files import replacing
from demur.cli.evaluate import score_columns
from demur.cli.inputs import scores_option
from demur.cli.options import SectionCommand, complete_column, option
from demur.cli.output import OutputOptions, note, output_options
from demur.cli.progress import Progress
from demur.cli.texts import echo_json
from demur.core.columns import check_names, floats
from demur.core.rule import Rule
from demur.errors import InvalidInputError
from demur.sources.batches import batch_numbers, decision_schema, open_writer, with_decision
from demur.sources.files import column_names, file_format, open_stream
from demur.sources.npz import npz_columns, write_npz


@dataclass(slots=True)
class Decider:
    """Applies a rule batch by batch and keeps count."""

    rule: Rule
    names: tuple[str, ...]
    refuse_missing: bool
    rows: int = 0
    accepted: int = 0
    missing: int = 0

    def accept(self, scores: FloatArray) -> BoolArray:
        """Return the decisions on the next rows; a missing score is refused or rejected."""
        bad = np.isnan(scores) | np.isneginf(scores)
        if bad.any() and self.refuse_missing:
            row, column = (int(i) for i in np.argwhere(bad)[0])
            raise InvalidInputError(
                f"column {self.names[column]!r}, row {self.rows + row} is {scores[row, column]}, "
                "not a score; add --missing reject to reject such rows"
            )
        lacking = bad.any(axis=1)
        scores[lacking] = np.inf
        accept = self.rule.accept(scores)
        self.rows += len(scores)
        self.accepted += int(accept.sum())
        self.missing += int(lacking.sum())
        return accept


_EXAMPLES = """\b
Examples:
  demur apply rule.json today.parquet -o decided.parquet
  demur apply rule.json today.csv --id image --missing reject > decided.csv
"""


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@click.argument("rule", type=click.Path(), metavar="RULE")
@click.argument("data", type=click.Path(), metavar="DATA")
@scores_option(help="Columns to read in place of those that the rule names.")
@option("Columns")(
    "--id",
    "key",
    metavar="COLUMN",
    shell_complete=complete_column,
    help="Write only this column beside the decision; all columns by default.",
)
@option("Columns")(
    "--column",
    default="accept",
    show_default=True,
    metavar="NAME",
    help="Name of the new column.",
)
@option("Columns")(
    "--missing",
    type=click.Choice(["error", "reject"]),
    default="error",
    show_default=True,
    help="What to do when a row lacks a score: stop, or reject the row.",
)
@output_options("Write to this file, in the format of its ending; else CSV to standard output.")
def command(
    rule: str,
    data: str,
    scores: tuple[str, ...] | None,
    key: str | None,
    column: str,
    missing: str,
    out: OutputOptions,
) -> None:
    """Add a column to DATA that tells the rows a saved RULE accepts.

    Rows are read, decided and written in batches, so files may be larger than memory. Columns
    of a CSV file are passed on as the text they are.
    """
    if out.as_json and out.output is None:
        raise click.UsageError("--json needs -o: the rows themselves go to standard output")
    out.check()
    kind = "CSV" if out.output is None else file_format(out.output)
    loaded = Rule.load(rule)
    decider = Decider(loaded, score_columns(loaded, scores), missing == "error")
    available = column_names(data)
    used = [("--scores", name) for name in decider.names]
    check_names(available, used, repr(data))
    keep = available if key is None else [key]
    check_names(available, [("--id", name) for name in keep], repr(data))
    if column in keep:
        raise InvalidInputError(
            f"{data!r} has a column {column!r} already: choose another name with --column"
        )
    with _target(out.output) as file:
        if kind == "NPZ":
            _apply_npz(data, keep, column, decider, file)
        else:
            _apply_stream(data, keep, column, decider, file, kind)
    _report(decider, out)


def _apply_stream(
    path: str, keep: list[str], column: str, decider: Decider, file: BinaryIO, kind: str
) -> None:
    every = list(dict.fromkeys([*keep, *decider.names]))
    stream = open_stream(path, every)
    schema = decision_schema(stream.schema, keep, column)
    with (
        open_writer(file, kind, schema) as write,
        Progress("applying", stream.rows) as progress,
    ):
        for batch in stream.batches:
            scores = np.column_stack(
                [
                    batch_numbers(batch, name, text=stream.text, first_row=decider.rows)
                    for name in decider.names
                ]
            )
            write(with_decision(batch, schema, decider.accept(scores)))
            progress.advance(len(scores))


def _apply_npz(path: str, keep: list[str], column: str, decider: Decider, file: BinaryIO) -> None:
    if file_format(path) != "NPZ":
        raise InvalidInputError("only an NPZ file can be written as NPZ")
    columns = npz_columns(path, list(dict.fromkeys([*keep, *decider.names])))
    raw = [floats(columns, "--scores", name) for name in decider.names]
    accept = decider.accept(np.column_stack(raw))
    write_npz(file, {name: columns[name] for name in keep} | {column: accept})


@contextmanager
def _target(path: str | None) -> Iterator[BinaryIO]:
    if path is None:
        # A file of its own: what Python buffers for standard output would fail once more at exit.
        with open(sys.stdout.fileno(), "wb", closefd=False) as file:
            yield file
    else:
        with replacing(path) as file:
            yield file


def _report(decider: Decider, out: OutputOptions) -> None:
    if out.as_json:
        echo_json(
            {
                "rows": decider.rows,
                "accepted": decider.accepted,
                "missing": decider.missing,
                "output": out.output,
            }
        )
        return
    share = f" ({decider.accepted / decider.rows:.1%})" if decider.rows else ""
    lacking = f"; {decider.missing:,} rows lack a score" if decider.missing else ""
    note(f"accepted {decider.accepted:,} of {decider.rows:,} rows{share}{lacking}")
