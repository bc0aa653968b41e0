"""`demur watch`: a rule in use, from cron or by hand."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from demur._files import check_target, write_atomically
from demur.cli import ALARM
from demur.cli.inputs import EngineOptions, engine_options, with_table
from demur.cli.options import (
    Chance,
    Command,
    Number,
    SectionCommand,
    Share,
    complete_column,
    gathered,
    option,
    scores_option,
)
from demur.cli.output import STDOUT, Progress, json_option, note, refuse_input
from demur.cli.printing import Result, ResultTable, Section
from demur.cli.saved import SavedRule, dask_cluster, work_data
from demur.core.columns import check_names
from demur.core.fingerprint import share_text
from demur.core.models import Bound, Quantity
from demur.core.program import Number as Value
from demur.core.source import Work
from demur.core.wording import formula
from demur.errors import InvalidInputError, LikelyMistakeWarning
from demur.sources.files import FileStamps, hive_columns, is_database_url, is_lake, shown
from demur.sources.tables import column_names, table_columns
from demur.watch.files import (
    AuditLabels,
    FileColumns,
    FileCounts,
    PeriodNames,
    count_files,
    data_files,
)
from demur.watch.monitor import MEAN_TIME, Watch
from demur.watch.state import load, locked
from demur.watch.status import Status, Watched
from demur.watch.timeline import in_order_of_time, period_text

_EXAMPLES = """\b
Examples:
  demur watch rule.json live/day=*/*.parquet --by day --state watch.json
  demur watch rule.json live/day=*/*.parquet --labels audits.csv --on image_id --by day \\
      --state watch.json --report watch.html --prometheus watch.prom
  demur watch rule.json today.csv --max-selective-risk .06 --max-fpr .1 --prior-range .02 .08
  demur watch rule.json 'live/day=*/*.parquet' --by day --engine duckdb --state watch.json
  demur watch rule.json postgresql://me@host/db --table live --by day --loss is_wrong
  demur watch rule.json today.csv --state watch.json --reset 'the camera was repaired'
"""
_column, _expect, _add = option("Columns"), option("What to expect"), option("Output")


@dataclass(frozen=True, slots=True)
class ExpectOptions:
    """What is expected, and how alarms are controlled."""

    min_tpr: Value | None
    max_fpr: Value | None
    max_selective_risk: Value | None
    min_precision: Value | None
    alpha: Value
    mean_time: Value
    prior_range: tuple[Value, Value] | None
    audit_rates: tuple[Value, Value] | None
    max_loss: Value | None

    def bounds(self) -> list[Bound] | None:
        """Return the bounds asked for; None leaves it to the rule's card."""
        least: list[tuple[Quantity, Value | None]] = [
            ("tpr", self.min_tpr),
            ("precision", self.min_precision),
        ]
        most: list[tuple[Quantity, Value | None]] = [
            ("fpr", self.max_fpr),
            ("selective_risk", self.max_selective_risk),
        ]
        found = [Bound(name, at_least=value) for name, value in least if value is not None]
        found += [Bound(name, at_most=value) for name, value in most if value is not None]
        return found or None

    def watch(self, saved: SavedRule) -> Watch:
        """Return a new watch."""
        mean_time, prior, audit = float(self.mean_time), self.prior_range, self.audit_rates
        return Watch(
            saved.whole,
            expect=self.bounds(),
            alpha=float(self.alpha),
            mean_time=mean_time if mean_time > 0 else None,
            audit=None if audit is None else (float(audit[0]), float(audit[1])),
            max_loss=None if self.max_loss is None else float(self.max_loss),
            ood_prior=None if prior is None else (float(prior[0]), float(prior[1])),
        )


def _expect_options() -> Callable[[Command], Command]:
    share = Share()
    return gathered(
        "expected",
        ExpectOptions,
        [
            _expect("--min-tpr", type=share, help="Least share of accepted ID rows."),
            _expect("--max-fpr", type=share, help="Largest share of accepted OOD rows."),
            _expect("--max-selective-risk", type=Number(), help="Largest mean loss when accepted."),
            _expect("--min-precision", type=share, help="Least share of ID among the accepted."),
            _expect(
                "--alpha",
                type=Chance(),
                default="0.05",
                show_default=True,
                help="Largest chance of any false alarm, however often this runs.",
            ),
            _expect(
                "--mean-time",
                type=Number(),
                default=str(int(MEAN_TIME)),
                show_default=True,
                help="Beside it, least mean number of periods between false alarms; 0: none such.",
            ),
            _expect(
                "--prior-range",
                type=share,
                nargs=2,
                metavar="LOW HIGH",
                help="Share of OOD inputs to expect, for what is checked without labels.",
            ),
            _expect(
                "--audit-rates",
                type=share,
                nargs=2,
                metavar="ACCEPTED REJECTED",
                help="Chances that an accepted and a rejected row is audited, if they differ.",
            ),
            _expect("--max-loss", type=Number(), help="Largest possible loss, if not 0 and 1."),
        ],
    )


def _columns_options() -> list[Any]:
    def named(flag: str, words: str) -> Any:
        return _column(flag, metavar="COLUMN", shell_complete=complete_column, help=words)

    return [
        _column(
            "--labels",
            type=click.Path(),
            metavar="FILE",
            help="Labels of audited rows; one that is empty is still to come.",
        ),
        named("--on", "Names a row, in DATA and in the labels."),
        named("--by", "Names the period, such as a day; without it every file is one."),
        named("--loss", "Loss of a labelled ID row."),
        named("--ood", "Marks OOD rows, or names their set."),
        named("--label", "True class, which DATA's --prediction is compared with."),
        named("--prediction", "Class that the classifier predicted, in DATA."),
        named("--group", "Group of a row, where the card bounds groups."),
        _column(
            "--table",
            metavar="NAME",
            help="Table or view of a database, where DATA is a URL such as "
            "postgresql://host/database or sqlite:///file.db.",
        ),
    ]


def _all_columns(command: Command) -> Command:
    for add in reversed(_columns_options()):
        command = add(command)
    return command


@click.command(cls=SectionCommand, epilog=_EXAMPLES)
@click.argument("rule", type=click.Path(), metavar="RULE")
@click.argument("data", type=click.Path(), nargs=-1, required=True, metavar="DATA...")
@scores_option(help="Columns to read in place of those that the rule names.")
@_all_columns
@_expect_options()
@_add("--state", type=click.Path(), metavar="FILE", help="Counts so far; made if it is not there.")
@_add("--reset", metavar="REASON", help="Begin anew before counting; the history is kept.")
@_add("--report", type=click.Path(), metavar="FILE", help="Write a page, over an older one.")
@_add("--prometheus", type=click.Path(), metavar="FILE", help="Write metrics; -: standard output.")
@engine_options("auto and memory: part by part here, in the order of the rows.")
@json_option()
def command(
    rule: str,
    data: tuple[str, ...],
    scores: tuple[str, ...],
    labels: str | None,
    table: str | None,
    expected: ExpectOptions,
    engine: EngineOptions,
    state: str | None,
    reset: str | None,
    report: str | None,
    prometheus: str | None,
    as_json: bool,
    **columns: str | None,
) -> None:
    """Follow a saved RULE in use, and say whether it still does what was promised.

    DATA are files with the scores of live rows, or a table of a database, which counts them
    itself, as --engine does. Bounds and what scores should look like are those of the rule's card,
    unless options say otherwise. A period that was counted before is counted anew from the same
    files or table, so this may run twice on one day, or be killed: nothing is counted twice or
    lost. Alarms stay until --reset. Exit code 4: there is an alarm.
    """
    _check(state, report, prometheus, as_json, [rule, *data, *([labels] if labels else [])])
    saved = SavedRule.load(rule, scores)
    fresh = expected.watch(saved)
    place = LivePlace.of(data, table, engine)
    place.check(saved, labels, columns["by"])
    roles = _roles(saved, columns, place.columns, labels)
    audits = None if labels is None else AuditLabels(labels, roles, fresh.setup.max_loss)
    before = _existing(state, fresh, saved, reset)
    if before is None:
        before = fresh
    with Progress("counting rows") as progress:
        found, work = place.count(before, roles, audits, progress)
    with nullcontext() if state is None else locked(state):
        watch = _existing(state, fresh, saved, reset) or fresh
        closed = _take(watch, found)
        status = watch.status()
        if state is not None:
            watch.save(state)
    for text in (*_remarks(found, closed, watch), *place.remarks(watch, found)):
        note(text)
    share = _share_of_tuning_rows(saved, found)
    _write(watch, status, found, report, prometheus, title=os.path.basename(rule))
    if prometheus != STDOUT:
        _result(watch, status, found, share, work).show(as_json=as_json)
    if status.alarms:
        raise SystemExit(ALARM)


@dataclass(frozen=True, slots=True)
class LivePlace:
    """Where the live rows are, and what counts them."""

    paths: tuple[str, ...]
    """Files, or a single table."""
    engine: EngineOptions
    there: bool
    """Whether they are counted where they are, in groups."""

    @classmethod
    def of(cls, data: tuple[str, ...], table: str | None, engine: EngineOptions) -> LivePlace:
        """Find the rows: files, or a table of a database or a lake."""
        elsewhere = [path for path in data if is_database_url(path) or is_lake(path)]
        if not elsewhere:
            if table is not None:
                _ = with_table(data[0], table)
            there = engine.engine not in ("auto", "memory")
            return cls(tuple(data_files(data)), engine, there)
        if len(data) > 1:
            raise click.UsageError(
                f"{shown(elsewhere[0])} is watched by itself: give a command for each table"
            )
        path = data[0] if table is None else with_table(data[0], table)
        if engine.engine == "memory":
            raise click.UsageError(
                "--engine memory reads files part by part: leave it out, and the rows are counted "
                "where they are"
            )
        if is_database_url(path) and engine.engine != "auto":
            raise click.UsageError(
                f"--engine {engine.engine}: the rows of a database are counted there; leave it out"
            )
        return cls((path,), engine, there=True)

    @property
    def _is_table(self) -> bool:
        return is_database_url(self.paths[0]) or is_lake(self.paths[0])

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        path = self.paths[0]
        return table_columns(path) if self._is_table else column_names(path)

    def check(self, saved: SavedRule, labels: str | None, by: str | None) -> None:
        """Refuse what cannot be counted in groups."""
        if not self.there:
            return
        what = "these rows" if self._is_table else f"--engine {self.engine.engine}"
        todo = "write them to files" if self._is_table else "leave out --engine"
        if saved.learned is not None:
            raise click.UsageError(
                f"{what}: learned scores are made in memory; {todo}, which are read part by part"
            )
        if labels is not None:
            raise click.UsageError(
                f"{what}: --labels are matched with rows in their order, which a count in groups "
                f"does not know; {todo}, or join the labels to the rows and name their columns "
                "(--loss, --ood), empty where there is no label"
            )
        if by is None:
            raise click.UsageError(f"{what}: --by is needed, the column that names the period")

    def count(
        self, watch: Watch, roles: FileColumns, audits: AuditLabels | None, progress: Progress
    ) -> tuple[FileCounts, Work]:
        """Count the rows, and say what was done for it."""
        if self.there:
            return self._count_there(watch, roles, progress)
        found = count_files(
            watch.setup,
            self.paths,
            roles,
            audits,
            held=watch.waiting,
            closed=watch.timeline.is_closed,
            advance=progress.advance,
        )
        # Files are gone through once, here.
        return found, Work("memory", passes=1, fetched=found.rows)

    def _count_there(
        self, watch: Watch, roles: FileColumns, progress: Progress
    ) -> tuple[FileCounts, Work]:
        from demur.watch.grouped import count_source

        names = PeriodNames(str(roles.by))
        self._check_names(roles)
        # From the look at the periods on, files must stay as they are.
        stamps = FileStamps([] if self._is_table else self.paths)
        if not self._is_table:
            names = PeriodNames.of_files(self.paths, str(roles.by))
        with self._opened(roles, progress) as source:
            found = count_source(watch.setup, source, roles, names)
        stamps.check()
        if self._is_table:
            found.files = {period: list(self.paths) for period in found.counts}
        held, closed = watch.waiting, watch.timeline.is_closed
        left = held is not None and held not in found.counts and not closed(held)
        found.withhold([held] if left and held is not None else [])
        return found, source.work

    def _check_names(self, roles: FileColumns) -> None:
        """Refuse columns that are not there, of which engines would speak by other names."""
        told = [("--by", roles.by), ("--on", roles.on)]
        hive = [] if self._is_table else hive_columns(self.paths[0])
        where = "the table" if self._is_table else repr(self.paths[0])
        asked = [(option, name) for option, name in told if name is not None]
        check_names(list(dict.fromkeys([*self.columns, *hive])), asked, where)

    @contextmanager
    def _opened(self, roles: FileColumns, progress: Progress) -> Iterator[Any]:
        from demur.sources.open import open_source

        classes = roles.label is not None and roles.prediction is not None
        engine: Any = "duckdb" if self.engine.engine in ("auto", "memory") else self.engine.engine
        with dask_cluster(engine):
            source: Any = open_source(
                self.paths[0] if self._is_table else list(self.paths),
                roles.scores,
                loss=None if classes else roles.loss,
                label=roles.label if classes else None,
                prediction=roles.prediction if classes else None,
                ood=roles.ood,
                group=roles.group,
                # As every column in use, it is looked at in all files before.
                key=roles.by,
                labelled=classes or roles.loss is not None,
                memory=self.engine.memory,
                engine=engine,
                progress=progress.at,
            )
            progress.passes_of(source.work, 2)
            with source:
                yield source

    def remarks(self, watch: Watch, found: FileCounts) -> list[str]:
        """Say what is not as it is where files are read."""
        if not self.there or not found.rows:
            return []
        said = []
        if found.examined is not None:
            said.append(
                f"{found.examined:,} of {found.rows:,} rows were looked at one by one: rows to "
                "look at, and whether any made the rule, are told of these"
            )
        beside = [p for p in found.counts if watch.timeline.parts(p) - {found.part(p)}]
        if self._is_table and beside:
            named = ", ".join(map(period_text, beside[:3])) + (" and more" * (len(beside) > 3))
            said.append(
                f"periods also counted from elsewhere: {named}; if these are the same rows, they "
                "count twice: go on with one place, or begin another --state"
            )
        return said


def _check(
    state: str | None, report: str | None, metrics: str | None, as_json: bool, inputs: list[str]
) -> None:
    """Refuse files that cannot be written, before the work begins."""
    if metrics == STDOUT and as_json:
        raise click.UsageError("--json and --prometheus - both write to standard output")
    outputs = {"--state": state, "--report": report, "--prometheus": metrics}
    taken: dict[Path, str] = {}
    for name, path in outputs.items():
        if path is None or (path == STDOUT and name == "--prometheus"):
            continue
        if path == STDOUT:
            raise InvalidInputError(f"{name} needs a file: {path!r} is standard output")
        check_target(path)
        refuse_input(name, path, inputs)
        place = Path(path).resolve()
        if place in taken:
            raise InvalidInputError(f"{taken[place]} and {name} are the same file {path!r}")
        taken[place] = name


def _existing(state: str | None, fresh: Watch, saved: SavedRule, reset: str | None) -> Watch | None:
    """Read the state, if there is one, and reset it; refuse it if it expects something else."""
    if state is None or not Path(state).exists():
        return None
    watch = load(state, saved.whole)
    if reset is not None:
        watch.reset(reset, audit=fresh.setup.audit)
    asked, known = fresh.setup.identity(), watch.setup.identity()
    for what, value in known.items():
        if asked[what] != value:
            raise InvalidInputError(
                f"the state {state!r} was made with {what} = {value}, now it is {asked[what]}: "
                "give the same options, or another --state"
            )
    return watch


def _roles(
    saved: SavedRule, given: dict[str, str | None], there: list[str], labels: str | None
) -> FileColumns:
    """Return the columns: those given, or else of the card where the files have them."""
    known = {} if saved.rule.card is None else saved.rule.card.columns
    audited = [] if labels is None else column_names(labels)
    roles = dict(given)
    told = any(given[role] for role in ("loss", "label", "ood"))
    for role in () if told else ("loss", "ood", "label", "prediction"):
        name = known.get(role)
        where = there if role == "prediction" else audited if labels is not None else there
        if roles[role] is None and name in where:
            roles[role] = name
    half = (roles["label"] is None) != (roles["prediction"] is None)
    if labels is None and not told and half:
        # Half of a pair tells nothing.
        roles["label"] = roles["prediction"] = None
    return FileColumns(saved.names, **roles)


def _take(watch: Watch, found: FileCounts) -> list[str]:
    """Give the counts to the watch; return the periods that are closed."""
    closed = []
    for period in in_order_of_time(found.counts):
        if not watch.replace(period, found.part(period), found.counts[period]):
            closed.append(period_text(period))
    watch.waiting = found.waiting
    return closed


def _remarks(found: FileCounts, closed: list[str], watch: Watch) -> list[str]:
    said = []
    if closed:
        named = ", ".join(closed[:3]) + (" and more" if len(closed) > 3 else "")
        said.append(f"not counted again, since too long ago or before a reset: {named}")
    if found.waiting is not None:
        said.append(
            f"labels since {period_text(found.waiting)} wait for an audited row that has none yet: "
            "give these files again when it has"
        )
    if not found.rows:
        said.append("DATA has no rows")
    elif found.unmatched and not found.matched:
        said.append(
            f"none of the {found.unmatched:,} labels is of a row in DATA: does --on name the same "
            "rows in both?"
        )
    elif found.unmatched:
        said.append(f"{found.unmatched:,} labels are of no row in DATA")
    setup = watch.setup
    if not setup.bounds:
        said.append("the rule's card names no bounds: state some, such as --max-selective-risk .05")
    if setup.reference is None:
        said.append(
            "the rule's card does not say where scores lie, so drift cannot be tested"
            if setup.made_by is None
            else "the rule's card knows learned scores of the rows they were learned on only, so "
            "drift cannot be tested: tune with --holdout or --guarantee"
        )
    elif setup.rates is None or setup.rates.accepted is None:
        said.append("without --prior-range the share of accepted rows is not tested")
    return said


def _share_of_tuning_rows(saved: SavedRule, found: FileCounts) -> float:
    """Return which share of the rows made the rule, and warn: of new inputs these tell nothing."""
    if not found.looked_at:
        return 0.0
    share = saved.share_of_live_rows(np.concatenate(found.looked_at))
    if share:
        warnings.warn(
            f"{share_text(share)} made the rule, so they tell nothing of inputs in use: watch rows "
            "that came later",
            LikelyMistakeWarning,
            stacklevel=2,
        )
    return share


def _write(
    watch: Watch,
    status: Status,
    found: FileCounts,
    report: str | None,
    metrics: str | None,
    *,
    title: str,
) -> None:
    if report is not None:
        from demur.report.watch_page import watch_page

        page = watch_page(watch, status, title=title, rows=found.examples, of=found.examined)
        write_atomically(report, page)
        note(f"the page is in {report}")
    if metrics == STDOUT:
        click.echo(status.to_prometheus({"rule": title}), nl=False)
    elif metrics is not None:
        write_atomically(metrics, status.to_prometheus({"rule": title}))


def _result(watch: Watch, status: Status, found: FileCounts, share: float, work: Work) -> Result:
    facts = [
        f"Rule: accept when {formula(watch.rule)}.",
        f"{status.rows:,} rows, {status.accepted:,} accepted; latest period "
        f"{period_text(status.period)}.",
        status.message,
    ]
    table = ResultTable.of(
        ["", "seen", "between", "rows", "evidence", "alarm at", ""],
        [_row(item, status) for item in status.watched],
    )
    notes = [
        f"Any false alarm has probability at most {status.alpha:g}, however often one looks"
        + (
            ""
            if status.mean_time is None
            else f"; beside it, one in {status.mean_time:g} periods or fewer."
        ),
    ]
    if status.prior is not None and status.prior.estimate == status.prior.estimate:
        ends = status.prior.interval
        notes.append(
            f"Share of OOD inputs, as far as acceptance tells: {status.prior.estimate:.3f} "
            f"({ends.low:.3f} to {ends.high:.3f})."
        )
    if status.estimated_risk == status.estimated_risk:
        notes.append(f"Estimated selective risk, no promise: {status.estimated_risk:.4f}.")
    held = None if watch.waiting is None else period_text(watch.waiting)
    more = {
        "setup": watch.setup.identity(),
        "waiting": held,
        "tuning_rows": share,
        "examples": [asdict(row) for row in found.examples],
        **work_data(work),
    }
    return Result([Section(facts, table=table, notes=notes)], status.to_data() | more)


def _row(item: Watched, status: Status) -> list[str]:
    seen = "" if item.estimate != item.estimate else f"{item.estimate:.4f}"
    ends = item.interval
    between = "" if ends.low != ends.low else f"{ends.low:.4f} .. {ends.high:.4f}"
    line = 1 / (status.alpha * item.weight)
    kinds = dict.fromkeys(a.kind for a in status.alarms if a.expectation == item.name)
    mark = f"ALARM ({', '.join(kinds)})" if kinds else ""
    return [item.name, seen, between, f"{item.rows:,}", f"{item.evidence:.3g}", f"{line:.3g}", mark]
