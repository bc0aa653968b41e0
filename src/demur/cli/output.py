"""Where results go: files that are never replaced unasked, and remarks beside the data.

Folders of results are whole or not there. A result is written under a name of its own and moved to
its place when it is complete; whoever is killed meanwhile, here or on another machine, leaves
nothing that looks like one. Where a later run may go on, each result is then noted in a log, so
that what the log says is done was done, whatever happened next. The first line of the log tells
what was asked; another question does not go on with it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import click

from demur._files import check_target, replacing, write_atomically
from demur.cli.options import Command, gathered, option
from demur.core.source import Work
from demur.errors import DemurError, InvalidInputError

if TYPE_CHECKING:
    from concurrent.futures import Executor, Future

STDOUT = "-"
"""What -o says for standard output."""

PATIENCE = 2.0
"""Seconds before any progress is shown."""

_EVERY = 0.5


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """The file to write, if any, and whether scripts read what is printed."""

    output: str | None
    force: bool
    as_json: bool

    @property
    def on_stdout(self) -> bool:
        """Whether the file itself goes to standard output, and what is said beside it."""
        return self.output == STDOUT

    @property
    def path(self) -> str | None:
        """The file to write; None for standard output as well."""
        return None if self.on_stdout else self.output

    def check(
        self, more: Mapping[str, str | None] | None = None, *, inputs: Sequence[str] = ()
    ) -> None:
        """Refuse files that cannot or must not be written, before the work begins.

        `more` are files of other options, which --force is about as well; `inputs` are read, and
        never replaced.
        """
        if self.on_stdout and self.as_json:
            raise click.UsageError("--json and -o - both write to standard output: leave out one")
        taken: dict[Path, str] = {}
        for name, path in {"-o": self.path, **(more or {})}.items():
            if path is None:
                continue
            if path == STDOUT:
                raise click.UsageError(f"{name}: only -o may be - (standard output)")
            check_target(path)
            refuse_input(name, path, inputs)
            place = Path(path).resolve()
            if place in taken:
                raise InvalidInputError(f"{taken[place]} and {name} are the same file {path!r}")
            taken[place] = name
            refuse_existing(path, force=self.force)

    def write(self, text: str) -> None:
        """Write text to the file, without colours, or print it."""
        if self.path is None:
            click.echo(text)
        else:
            write_atomically(self.path, click.unstyle(text) + "\n", new=not self.force)

    def save(self, text: Callable[[], str]) -> None:
        """Write a file that has no other place: to the one given, if any, or standard output."""
        if self.output is not None:
            self.write(text())

    @contextmanager
    def opened(self) -> Iterator[BinaryIO]:
        """Open the file, which appears when all is written, or standard output."""
        if self.path is None:
            # A file of its own: what Python buffers for standard output would fail again at exit.
            with open(sys.stdout.fileno(), "wb", closefd=False) as file:
                yield file
        else:
            with replacing(self.path, new=not self.force) as file:
                yield file


def output_options(what: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of the output as `out`."""
    add = option("Output")
    return gathered(
        "out",
        OutputOptions,
        [
            add(
                "-o",
                "--output",
                type=click.Path(),
                metavar="FILE",
                help=f"{what} -: standard output.",
            ),
            add("--force", is_flag=True, help="Replace FILE if it exists."),
            add("--json", "as_json", is_flag=True, help="Print JSON for scripts."),
        ],
    )


def json_option() -> Callable[[Command], Command]:
    """Return the option of commands that write no file."""
    return option("Output")("--json", "as_json", is_flag=True, help="Print JSON for scripts.")


def refuse_existing(path: str | Path, *, force: bool) -> None:
    """Refuse to replace a file or folder unasked."""
    if Path(path).exists() and not force:
        raise InvalidInputError(f"{str(path)!r} exists; add --force to replace it")


def refuse_input(name: str, path: str | Path, inputs: Sequence[str]) -> None:
    """Refuse to write over what is read, whatever --force says."""
    for source in inputs:
        if Path(path).resolve() in _files_of(source):
            raise InvalidInputError(
                f"{name}: {str(path)!r} is read by this command and would be lost: choose another "
                "file"
            )


def _files_of(source: str) -> set[Path]:
    from demur.sources.files import find_partitions, is_partitioned

    try:
        files = find_partitions(source).files if is_partitioned(source) else (Path(source),)
    except DemurError:
        # Told by its reader.
        return set()
    return {file.resolve() for file in files}


def save_file(path: str | None, write: Callable[[str], object], remark: str = "") -> None:
    """Have a file written, if one was asked for; a remark such as "the counts are" says where."""
    if path is None:
        return
    write(path)
    if remark:
        note(f"{remark} in {path}")


def note(text: str) -> None:
    """Print a remark where it does not mix with the data."""
    click.echo(f"demur: {text}", err=True)


def caution(text: str) -> None:
    """Print a warning: what was asked is done all the same."""
    click.echo(f"{click.style('demur: warning:', fg='yellow')} {text}", err=True)


class Progress:
    """Shows, on a terminal only, what is going on, how far it is, since when and how long still.

    With --json nothing is shown.
    """

    def __init__(self, label: str, total: int | None = None, *, unit: str = "rows") -> None:
        self._label, self._total, self._unit = label, total, unit
        self._done = 0
        self._work: Work | None = None
        self._pass, self._about = 0, 0
        self._stage, self._left = "", math.nan
        self._start = self._told = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)

    def advance(self, count: int) -> None:
        """Count so many more as done."""
        self._done += count

    def at(self, done: int, total: int) -> None:
        """Say how far it is now."""
        self._done, self._total = done, total
        self._pass = 0 if self._work is None else self._work.passes

    def passes_of(self, work: Work | None, about: int) -> None:
        """Tell of the passes of an engine, of which there will be about so many."""
        self._work, self._about = work, about

    def stage(self, name: str, share: float) -> None:
        """Say what comes now, after this share of the time that all of it takes."""
        self._stage, self._told = name, time.monotonic()
        if share > 0:
            self._left = (self._told - self._start) * (1 - share) / share

    def __enter__(self) -> Progress:
        context = click.get_current_context(silent=True)
        for_scripts = context is not None and bool(context.params.get("as_json"))
        if sys.stderr.isatty() and not for_scripts:
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _show(self) -> None:
        wait = PATIENCE
        while not self._ended.wait(wait):
            sys.stderr.write(f"\r\x1b[K{self._text()}")
            sys.stderr.flush()
            wait = _EVERY
        if wait == _EVERY:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def _text(self) -> str:
        now = time.monotonic()
        what = f"{self._label}: {self._stage}" if self._stage else self._label
        seconds = f"{now - self._start:.0f} s"
        if self._work is not None:
            return f"{what}{self._passes(self._work)}, {seconds}"
        if self._done:
            of = f" of {self._total:,} ({self._done / self._total:.0%})" if self._total else ""
            what = f"{what}: {self._done:,}{of} {self._unit}"
        return f"{what}, {seconds}{self._remaining(now)}"

    def _passes(self, work: Work) -> str:
        """Return which engine is at which pass, and how far."""
        number = max(work.passes, 1)
        told = f" with {work.engine}, pass {number} of about {max(self._about, number)}"
        if self._done and self._total and self._pass == work.passes:
            told += f": {self._done:,} of {self._total:,} {self._unit}"
        return told + (f", {work.fetched:,} fetched" if work.fetched else "")

    def _remaining(self, now: float) -> str:
        left = self._left - (now - self._told)
        if self._done and self._total:
            left = (now - self._start) * (self._total - self._done) / self._done
        # What takes longer than was thought has no end that is known.
        return f", about {left:.0f} s left" if left >= 1 else ""


T = TypeVar("T")

_LOG, _LOCK, _RESULTS, _PARTS = "done.jsonl", "lock", "results", "parts"


def as_done(
    decide: Callable[[str], T], files: Sequence[str], executor: Executor, width: int
) -> Iterator[tuple[str, T]]:
    """Yield files as they are done, so many of them at work at a time."""
    from concurrent.futures import FIRST_COMPLETED, wait

    waiting = iter(files)
    running: dict[Future[T], str] = {}
    for file in islice(waiting, width):
        running[executor.submit(decide, file)] = file
    try:
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                done = running.pop(future), future.result()
                for file in islice(waiting, 1):
                    running[executor.submit(decide, file)] = file
                yield done
    except (Exception, GeneratorExit):
        # Nobody should write where a folder is about to be removed.
        wait(running)
        raise


class ResultFolder:
    """Results that wait in `results`; those half done are beside it."""

    def __init__(self, results: Path) -> None:
        self._results = results
        self._parts = results.parent / _PARTS
        self.done: dict[str, dict[str, int]] = {}
        """What was noted of the results that are there already."""

    def open(self) -> None:
        """Make room for results, and throw away what an earlier run has half done."""
        self._results.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(self._parts, ignore_errors=True)
        self._parts.mkdir()

    @property
    def parts(self) -> Path:
        """Where results are written, each under a name of its own, until they are complete."""
        return self._parts

    def keep(self, name: str, written: Path, counts: Mapping[str, int]) -> None:
        """Take a complete file as the result of this name."""
        result = self._results / name
        result.parent.mkdir(parents=True, exist_ok=True)
        with open(written, "rb") as file:
            os.fsync(file.fileno())
        os.replace(written, result)


class ResumedFolder(ResultFolder):
    """Results that become the folder `target` when all of them are there."""

    def __init__(self, target: Path, asked: Mapping[str, Any]) -> None:
        self._target = target
        self._place = target.parent / f".{target.name}.resume"
        super().__init__(self._place / _RESULTS)
        self._question = hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()
        self._lock: Any = None

    def open(self) -> None:
        """Begin, or find out what an earlier run has done."""
        self._hold()
        log = self._place / _LOG
        if not log.exists():
            super().open()
            self._note({"question": self._question})
            return
        lines = [_entry(line) for line in log.read_text(encoding="utf-8").splitlines()]
        if not lines or lines[0].get("question") != self._question:
            raise InvalidInputError(
                f"{str(self._place)!r} was begun with another rule, other options or files that "
                "have changed since: remove it to begin anew"
            )
        super().open()
        for line in lines[1:]:
            result = self._results / str(line.get("name"))
            # A line that was cut off, or a result that is not what was noted, does not count.
            if "size" in line and result.is_file() and result.stat().st_size == line["size"]:
                self.done[str(line["name"])] = line["counts"]
        # A line cut off by a kill must not run into the next one.
        with open(log, "a", encoding="utf-8") as file:
            file.write("\n")

    def keep(self, name: str, written: Path, counts: Mapping[str, int]) -> None:
        """Take a complete file as the result of this name, and note it."""
        super().keep(name, written, counts)
        size = (self._results / name).stat().st_size
        self._note({"name": name, "size": size, "counts": dict(counts)})

    def finish(self, names: Sequence[str]) -> None:
        """Make the results the target, in the place of an older one."""
        results, old = self._results, self._place / "old"
        found = {str(file.relative_to(results)) for file in results.rglob("*") if file.is_file()}
        if found != set(names):
            raise InvalidInputError(f"{str(self._place)!r} holds other files than this run writes")
        if self._target.exists():
            os.rename(self._target, old)
        try:
            os.rename(results, self._target)
        except OSError:
            if old.exists():
                os.rename(old, self._target)
            raise
        shutil.rmtree(self._place)

    def _hold(self) -> None:
        """Refuse to work beside another run; a killed one leaves no lock behind."""
        self._place.mkdir(parents=True, exist_ok=True)
        try:
            import fcntl
        except ImportError:  # pragma: no cover
            return
        self._lock = open(self._place / _LOCK, "w", encoding="utf-8")  # noqa: SIM115
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InvalidInputError(
                f"another run is at work on {str(self._place)!r}: wait until it ends"
            ) from None

    def _note(self, entry: Mapping[str, Any]) -> None:
        with open(self._place / _LOG, "a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())


def _entry(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
