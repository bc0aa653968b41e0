"""`demur apply`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import click

from demur._files import check_parent, replacing, replacing_folder
from demur.cli.decider import Decider
from demur.cli.evaluate import score_columns
from demur.cli.inputs import scores_option
from demur.cli.options import SectionCommand, complete_column, option
from demur.cli.output import OutputOptions, note, output_options
from demur.cli.progress import Progress
from demur.cli.texts import echo_json
from demur.core.rule import Rule
from demur.errors import InvalidInputError
from demur.sources.files import file_format, find_partitions, is_partitioned, open_stream

_EXAMPLES = """\b
Examples:
  demur apply rule.json today.parquet -o decided.parquet
  demur apply rule.json today.csv --id image --missing reject > decided.csv
  demur apply rule.json 'scores/day=*/*.parquet' -o decided
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
@output_options(
    "Write to this file, in the format of its ending, or to this folder if DATA is many files; "
    "else CSV to standard output."
)
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

    DATA is a file, or many: a folder, or a pattern in quotes. Rows are read, decided and written
    in batches, so files may be larger than memory. Of many files each is written under its own
    name and in its own format; the folder appears when all of them are done, and not before.
    Columns of a CSV file are passed on as the text they are.
    """
    if out.as_json and out.output is None:
        raise click.UsageError("--json needs -o: the rows themselves go to standard output")
    many = is_partitioned(data)
    if not many:
        out.check()
    loaded = Rule.load(rule)
    decider = Decider(loaded, score_columns(loaded, scores), column, key, missing == "error")
    if many:
        _apply_many(data, decider, out)
    else:
        kind = "CSV" if out.output is None else file_format(out.output)
        decider.kept(data)
        total = open_stream(data).rows if file_format(data) == "Parquet" else None
        with Progress("applying", total) as progress, _target(out.output) as file:
            decider.apply(data, file, kind, progress.advance)
    _report(decider, out)


def _apply_many(data: str, decider: Decider, out: OutputOptions) -> None:
    if out.output is None:
        raise click.UsageError("many files need -o: the folder to write them to")
    partitions = find_partitions(data)
    target = Path(out.output)
    names = [file.relative_to(partitions.root) for file in partitions.files]
    _check_folder(target, partitions.root, names, out.force)
    # A column that the tenth file lacks is known before the first is written.
    for file in partitions.files:
        decider.kept(str(file))
    with (
        Progress("applying", len(names), unit="files") as progress,
        replacing_folder(target) as folder,
    ):
        for file, name in zip(partitions.files, names, strict=True):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with open(folder / name, "wb") as written:
                decider.apply(str(file), written, file_format(file), lambda _: None)
            progress.advance(1)


def _check_folder(target: Path, root: Path, names: list[Path], force: bool) -> None:
    """Refuse a folder that must not be replaced: the rows themselves, or anything of others."""
    check_parent(target)
    place, rows = target.resolve(), root.resolve()
    if place == rows or place in rows.parents:
        raise InvalidInputError(f"{str(target)!r} holds DATA itself: write to another folder")
    if not target.exists():
        return
    if not target.is_dir():
        raise InvalidInputError(f"{str(target)!r} is a file: many files go to a folder")
    if not force:
        raise InvalidInputError(f"{str(target)!r} exists; add --force to replace it")
    ours = {target / name for name in names}
    other = next((f for f in sorted(target.rglob("*")) if not f.is_dir() and f not in ours), None)
    if other is not None:
        raise InvalidInputError(
            f"{str(target)!r} holds {other.name!r}, which this run would not write: "
            "choose another folder"
        )


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
