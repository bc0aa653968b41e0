"""`demur apply`: a rule at work on files, batch by batch."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click
import numpy as np

from demur._arrays import BoolArray, FloatArray
from demur._files import check_parent, replacing_folder
from demur.cli.options import SectionCommand, complete_column, option, scores_option
from demur.cli.output import (
    OutputOptions,
    Progress,
    ResultFolder,
    ResumedFolder,
    as_done,
    caution,
    note,
    output_options,
    refuse_existing,
)
from demur.cli.printing import Result, Section
from demur.cli.saved import SavedRule, dask_cluster, work_data
from demur.core.card import SeenRanges
from demur.core.columns import check_names, floats, match_name
from demur.core.rule import Rule
from demur.core.source import Work
from demur.errors import InvalidInputError
from demur.sources.archives import npz_columns, write_npz
from demur.sources.files import (
    FileStamps,
    file_format,
    find_partitions,
    is_partitioned,
    lake_format,
    output_format,
)
from demur.sources.record_batches import (
    batch_numbers,
    decision_schema,
    is_number,
    open_writer,
    with_decision,
)
from demur.sources.tables import column_names, open_stream

if TYPE_CHECKING:
    from demur.sources.engines.spark import FileDecision

_EXAMPLES = """\b
Examples:
  demur apply rule.json today.parquet -o decided.parquet
  demur apply rule.json today.csv --id image --missing reject > decided.csv
  demur apply rule.json 'scores/day=*/*.parquet' -o decided
  demur apply rule.json lake -o decided --resume
  demur apply rule.json lake -o decided --engine spark --resume
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
    # As in Python; "error" is an older spelling of "raise".
    type=click.Choice(["raise", "reject", "error"]),
    metavar="[raise|reject]",
    default="raise",
    show_default=True,
    help="What to do when a row lacks a score: stop, or reject the row.",
)
@option("Large data")(
    "--engine",
    type=click.Choice(["auto", "spark", "dask"]),
    default="auto",
    show_default=True,
    help="What decides many files. auto: this process, one after the other. Spark: the session of "
    "SPARK_REMOTE or the default one, by SQL, Parquet only. Dask: the cluster of "
    "DASK_SCHEDULER_ADDRESS, or threads. Both read and write in folders that all machines share.",
)
@option("Output")(
    "--resume",
    is_flag=True,
    help="Many files: keep what is done if the run is stopped or killed, and go on with it when "
    "the same command is given again.",
)
@output_options(
    "Write to this file, in the format of its ending, or to this folder if DATA is many files; "
    "else CSV to standard output."
)
def command(
    rule: str,
    data: str,
    scores: tuple[str, ...],
    key: str | None,
    column: str,
    missing: str,
    engine: str,
    resume: bool,
    out: OutputOptions,
) -> None:
    """Add a column to DATA that tells the rows a saved RULE accepts.

    DATA is a file, or many: a folder, or a pattern in quotes. Rows are read, decided and written
    in batches, so files may be larger than memory. Of many files each is written under its own
    name and in its own format; the folder appears when all of them are done, and not before.
    With --resume a run that was killed goes on where it was. With --engine the files are decided
    where a cluster reads them, many at a time; the rows do not come here.
    Columns of a CSV file are passed on as the text they are.
    """
    if out.as_json and out.path is None:
        raise click.UsageError("--json needs -o: the rows themselves go to standard output")
    many = is_partitioned(data)
    for name, given in {"--resume": resume, f"--engine {engine}": engine != "auto"}.items():
        if given and not many:
            raise click.UsageError(f"{name} is about many files: DATA is one")
    if not many:
        out.check(inputs=[data, rule])
    saved = SavedRule.load(rule, scores)
    refuse = missing != "reject"
    decider = Decider(saved, column, key, refuse, saved.ranges())
    if many:
        _apply_many(data, decider, out, engine, rule if resume else None)
    else:
        kind = "CSV" if out.path is None else output_format(out.path)
        decider.kept(data)
        total = open_stream(data).rows if file_format(data) == "Parquet" else None
        with Progress("applying", total) as progress, out.opened() as file:
            decider.apply(data, file, kind, progress.advance)
    for text in decider.ranges.warnings():
        caution(text)
    result = _result(decider, out, engine)
    if out.as_json:
        result.show(as_json=True)
    else:
        # The rows themselves may be on standard output.
        note(result.render("text"))


def _apply_many(
    data: str, decider: Decider, out: OutputOptions, engine: str, resumed: str | None
) -> None:
    """Decide many files; `resumed` is the file of the rule where runs go on."""
    if out.path is None:
        raise click.UsageError("many files need -o: the folder to write them to")
    if (lake := lake_format(data)) is not None:
        raise InvalidInputError(
            f"{data!r} is a table of {lake}, whose files hold deleted rows, too: decide its rows "
            "in SQL, by the predicate of Rule.to_sql"
        )
    partitions = find_partitions(data)
    target = Path(out.path)
    names = [file.relative_to(partitions.root) for file in partitions.files]
    _check_folder(target, partitions.root, names, out.force)
    if _would_match(data, target, names):
        raise InvalidInputError(
            f"{str(target)!r} lies in DATA, which would hold the results next time: write to "
            "another folder"
        )
    # What works elsewhere may do so in another folder.
    paths = [str(file if engine == "auto" else file.absolute()) for file in partitions.files]
    stamps = {file: FileStamps([file]) for file in paths}
    # A column that the tenth file lacks is known before the first is written.
    for file in stamps:
        decider.kept(file)
        if engine == "spark":
            decider.check_types(file)
    results = dict(zip(stamps, map(str, names), strict=True))
    with _folder(target, decider, list(stamps), list(results.values()), engine, resumed) as folder:
        left = [file for file in stamps if results[file] not in folder.done]
        for known in folder.done.values():
            decider.count(known)
        if folder.done:
            note(f"{len(folder.done)} of {len(names)} files were decided before: going on")
        with (
            Progress("applying", len(names), unit="files") as progress,
            _each_decided(left, decider, folder.parts.absolute(), engine) as each,
        ):
            progress.advance(len(folder.done))
            for file, decided in each:
                # What was decided must be the file that was looked at in the beginning.
                stamps[file].check()
                folder.keep(results[file], decided.written, decided.counts)
                decider.count(decided.counts)
                decider.ranges.merge(decided.ranges)
                progress.advance(1)


@contextmanager
def _folder(
    target: Path,
    decider: Decider,
    files: Sequence[str],
    names: list[str],
    engine: str,
    rule: str | None,
) -> Iterator[ResultFolder]:
    """Yield the folder of the results, which becomes `target`; with a rule, runs go on."""
    if rule is None:
        with replacing_folder(target) as fresh:
            folder = ResultFolder(fresh)
            folder.open()
            yield folder
        return
    found = [os.stat(file) for file in files]
    asked = {
        "rule": hashlib.sha256(Path(rule).read_bytes()).hexdigest(),
        "files": [
            (os.path.abspath(file), now.st_size, now.st_mtime_ns)
            for file, now in zip(files, found, strict=True)
        ],
        "options": [decider.names, decider.column, decider.key, decider.refuse_missing],
        # Spark has types of its own, which files of one folder should not have in part.
        "types": "spark" if engine == "spark" else "file",
    }
    resumed = ResumedFolder(target, asked)
    resumed.open()
    yield resumed
    resumed.finish(names)


@contextmanager
def _each_decided(
    files: Sequence[str], decider: Decider, parts: Path, engine: str
) -> Iterator[Iterator[tuple[str, Decided]]]:
    """Yield what decides one file after the other, or many at a time by an engine."""
    if engine == "auto":
        yield ((file, decide_here(decider, parts, file)) for file in files)
    elif engine == "dask":
        from demur.sources.engines.dask import workers

        with dask_cluster(engine) as client, workers(client) as (executor, width):
            yield as_done(partial(decide_here, decider, parts), files, executor, width)
    else:
        from concurrent.futures import ThreadPoolExecutor

        from demur.sources.engines.spark import writing

        with writing() as (write, width), ThreadPoolExecutor(width) as executor:
            yield as_done(partial(_decide_by_spark, write, decider, parts), files, executor, width)


@dataclass(frozen=True, slots=True)
class Decided:
    """A file that was decided: what was written, and what was counted."""

    written: Path
    counts: dict[str, int]
    ranges: SeenRanges


def decide_here(decider: Decider, parts: Path, file: str) -> Decided:
    """Decide a file, in this process or on a worker of Dask.

    A worker that was thought lost may still be writing: every attempt has a name of its own.
    """
    own, part = decider.anew(), parts / secrets.token_hex(8)
    with open(part, "wb") as written:
        own.apply(file, written, output_format(file), lambda _: None)
        written.flush()
        os.fsync(written.fileno())
    return Decided(part, own.counts, own.ranges)


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
    refuse_existing(target, force=force)
    ours = {target / name for name in names}
    other = next((f for f in sorted(target.rglob("*")) if not f.is_dir() and f not in ours), None)
    if other is not None:
        raise InvalidInputError(
            f"{str(target)!r} holds {other.name!r}, which this run would not write: "
            "choose another folder"
        )


def _would_match(data: str, target: Path, names: list[Path]) -> bool:
    """Return whether DATA would mean the results as well, once they are written."""
    place = target.absolute()
    if Path(data).is_dir():
        return Path(data).resolve() in target.resolve().parents
    pattern = str(Path(data).absolute())
    start = pattern.partition("**")[0]
    if "**" in pattern:
        return str(place).startswith(start)
    return any((place / name).match(pattern) for name in names)


def _result(decider: Decider, out: OutputOptions, engine: str) -> Result:
    share = f" ({decider.accepted / decider.rows:.1%})" if decider.rows else ""
    lacking = f"; {decider.missing:,} rows lack a score" if decider.missing else ""
    facts = [f"accepted {decider.accepted:,} of {decider.rows:,} rows{share}{lacking}"]
    counts = decider.counts
    warned = decider.ranges.warnings()
    seen = {"output": out.output} | ({"warnings": warned} if warned else {})
    here = engine == "auto"
    work = Work("memory" if here else engine, passes=1, fetched=decider.rows if here else 0)
    return Result([Section(facts)], counts | seen | work_data(work))


@dataclass(slots=True)
class Decider:
    """Applies a rule to one file after the other and keeps count."""

    saved: SavedRule
    column: str
    """Name of the new column."""
    key: str | None
    """The only column to keep; None keeps all."""
    refuse_missing: bool
    ranges: SeenRanges
    """Where the scores were in tuning."""
    rows: int = 0
    accepted: int = 0
    missing: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """Columns of the scores."""
        return self.saved.names

    @property
    def needed(self) -> list[bool]:
        """Which of the scores are weighed; of those that others are learned from, all."""
        if self.saved.learned is not None:
            return [True] * len(self.names)
        return [weight != 0 for weight in self.saved.rule.direction]

    @property
    def counts(self) -> dict[str, int]:
        """What was decided so far."""
        return {"rows": self.rows, "accepted": self.accepted, "missing": self.missing}

    def count(self, known: dict[str, int]) -> None:
        """Add what an earlier run has decided."""
        self.rows += known["rows"]
        self.accepted += known["accepted"]
        self.missing += known["missing"]

    def kept(self, path: str) -> list[str]:
        """Return the columns of a file that are passed on; refuse a file that lacks one."""
        available = column_names(path)
        check_names(available, [("--scores", name) for name in self._read(path)], repr(path))
        keep = available if self.key is None else [self.key]
        check_names(available, [("--id", name) for name in keep], repr(path))
        if self.column in keep:
            raise InvalidInputError(
                f"{path!r} has a column {self.column!r} already: choose another name with --column"
            )
        return keep

    def _read(self, path: str) -> list[str]:
        """Return the columns of scores that are read: one of weight 0 need not be in the file."""
        available = column_names(path)
        return [
            name
            for name, needed in zip(self.names, self.needed, strict=True)
            if needed or match_name(name, available) in available
        ]

    def apply(self, path: str, file: BinaryIO, kind: str, advance: Callable[[int], None]) -> None:
        """Write the rows of a file with the decisions on them, in the format `kind`.

        `advance` is told of every batch that is done.
        """
        keep = self.kept(path)
        with _naming(path):
            if kind == "NPZ":
                self._apply_npz(path, keep, file)
            else:
                self._apply_stream(path, keep, file, kind, advance)

    def anew(self) -> Decider:
        """Return one that has counted nothing."""
        return replace(self, ranges=self.saved.ranges(), rows=0, accepted=0, missing=0)

    def check_types(self, path: str) -> None:
        """Refuse a file that is not Parquet, or has scores that are no numbers."""
        if file_format(path) != "Parquet":
            raise InvalidInputError(
                f"{path!r} is {file_format(path)}: Spark decides Parquet files here; leave out "
                "--engine, or give --engine dask"
            )
        schema = open_stream(path).schema
        for name in self._read(path):
            found = match_name(name, schema.names)
            if not is_number(kind := schema.field(found).type):
                raise InvalidInputError(f"{path!r}: column {found!r} holds {kind}, not numbers")

    def columns_of(self, path: str) -> dict[str, str]:
        """Return what the scores that are read are called in a file."""
        return {name: match_name(name, column_names(path)) for name in self._read(path)}

    def _apply_stream(
        self, path: str, keep: list[str], file: BinaryIO, kind: str, advance: Callable[[int], None]
    ) -> None:
        read = self._read(path)
        stream = open_stream(path, list(dict.fromkeys([*keep, *read])))
        schema = decision_schema(stream.schema, keep, self.column)
        done = 0
        with open_writer(file, kind, schema) as write:
            for batch in stream.batches:
                columns = {
                    name: batch_numbers(batch, name, text=stream.text, first_row=done)
                    for name in read
                }
                write(with_decision(batch, schema, self._accept(self._matrix(columns), done)))
                done += batch.num_rows
                advance(batch.num_rows)

    def _apply_npz(self, path: str, keep: list[str], file: BinaryIO) -> None:
        if file_format(path) != "NPZ":
            raise InvalidInputError("only an NPZ file can be written as NPZ")
        read = self._read(path)
        columns = npz_columns(path, list(dict.fromkeys([*keep, *read])))
        raw = {name: floats(columns, "--scores", name) for name in read}
        accept = self._accept(self._matrix(raw), 0)
        write_npz(file, {name: columns[name] for name in keep} | {self.column: accept})

    def _matrix(self, columns: dict[str, FloatArray]) -> FloatArray:
        """Return the scores in the order of the rule, NaN where a column is not needed."""
        rows = max(map(len, columns.values()))
        return np.column_stack(
            [columns[name] if name in columns else np.full(rows, np.nan) for name in self.names]
        )

    def _accept(self, scores: FloatArray, first_row: int) -> BoolArray:
        """Return the decisions on the next rows; a missing score is refused or rejected."""
        # A score that the rule does not weigh is not missed.
        bad = (np.isnan(scores) | np.isneginf(scores)) & np.array(self.needed)
        if bad.any() and self.refuse_missing:
            row, column = (int(i) for i in np.argwhere(bad)[0])
            raise InvalidInputError(
                f"column {self.names[column]!r}, row {first_row + row} is {scores[row, column]}, "
                "not a score; add --missing reject to reject such rows"
            )
        self.ranges.add(scores)
        lacking = bad.any(axis=1)
        accept = self.saved.accept(scores)
        self.rows += len(scores)
        self.accepted += int(accept.sum())
        self.missing += int(lacking.sum())
        return accept


def _decide_by_spark(
    write: Callable[..., Mapping[str, Any]], decider: Decider, parts: Path, file: str
) -> Decided:
    """Have a file decided by Spark."""
    folder, own = parts / secrets.token_hex(8), decider.anew()
    decision = _spark_decision(decider, file)
    counts = write(file, folder, decision)
    number = {name: k for k, name in enumerate(decision.scores)}
    found = decider.columns_of(file)
    for name in decision.needed:
        if decider.refuse_missing and (lacking := counts[f"missing {number[name]}"]):
            raise InvalidInputError(
                f"{file!r}: column {name!r} is missing, NaN or -inf in {lacking:,} rows; add "
                "--missing reject to reject such rows"
            )
    for k, name in enumerate(decider.names):
        column = found.get(name)
        if column is not None and column in decision.limits:
            place = number[column]
            own.ranges.count(
                k,
                far=counts[f"far {place}"],
                unusual=counts[f"unusual {place}"],
                rows=counts[f"finite {place}"],
                largest=counts[f"largest {place}"] or 0.0,
            )
    (written,) = folder.glob("*.parquet")
    return Decided(written, {name: counts[name] for name in own.counts}, own.ranges)


def _spark_decision(decider: Decider, file: str) -> FileDecision:
    """Return the rule as Spark is to apply it to a file."""
    from demur.sources.engines.spark import FileDecision

    found = decider.columns_of(file)
    names = [found.get(name) for name in decider.names]
    whole = decider.saved.whole
    steps: tuple[Mapping[str, str], ...] = ()
    if isinstance(whole, Rule):
        accept = whole.to_sql(names, dialect="spark")
    else:
        *steps_, accept = whole.sql_steps(list(found.values()), dialect="spark")
        steps = tuple(step for step in steps_ if step)
    needed = [name for name, used in zip(names, decider.needed, strict=True) if used]
    limits = zip(names, decider.ranges.limits, strict=True)
    return FileDecision(
        steps,
        accept,
        decider.column,
        tuple(decider.kept(file)),
        tuple(name for name in needed if name is not None),
        {name: ends for name, ends in limits if name is not None and ends is not None},
    )


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Say in which file the trouble is."""
    try:
        yield
    except InvalidInputError as error:
        if repr(path) in str(error):
            raise
        raise InvalidInputError(f"{path!r}: {error}") from None
