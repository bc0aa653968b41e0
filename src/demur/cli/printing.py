"""What a command found out, described once, and shown as text, Markdown, LaTeX, JSON or a page."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import click

from demur.cli.output import Progress, save_file
from demur.core.rates import OperatingPoint
from demur.core.rule import Rule
from demur.core.sample import POOLED_NAME, Sample
from demur.core.source import Overview, Sizes
from demur.core.wording import formula, number, strict
from demur.errors import InfeasibleError

if TYPE_CHECKING:
    from demur.cli.inputs import DataOptions
    from demur.cli.tuning_options import HoldoutOptions, SearchOptions
    from demur.core.models import RejectionModel
    from demur.core.program import Number as Bound
    from demur.guarantees.splits import Groups
    from demur.learn.doubts import Learned
    from demur.report import Report
    from demur.report.promises import PromiseEvidence
    from demur.report.summary import WholeRows
    from demur.tuning.result import Tuning

FORMATS = ("text", "markdown", "latex")
FEW_ROWS = 30
"""A rate of fewer rows comes with a word of caution."""

ONLY_THESE_OOD = "FPR holds for the OOD data supplied, and only for them."

_LATEX = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"$<$",
    ">": r"$>$",
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "↓": r"$\downarrow$",
    "↑": r"$\uparrow$",
}


@dataclass(frozen=True, slots=True)
class Cell:
    """One entry; `best` ones stand out."""

    text: str
    best: bool = False


@dataclass(frozen=True, slots=True)
class Heading:
    """The name of a column, and which of its values are better."""

    name: str
    better: Literal["lower", "higher"] | None = None

    @property
    def with_arrow(self) -> str:
        """The name behind an arrow to the better values."""
        return {"lower": "↓ ", "higher": "↑ ", None: ""}[self.better] + self.name


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows under a common title, which may be empty."""

    title: str
    rows: Sequence[Sequence[Cell]]


@dataclass(frozen=True, slots=True)
class ResultTable:
    """A small table, its rows in groups."""

    header: Sequence[Heading]
    groups: Sequence[RowGroup]

    @classmethod
    def of(cls, header: Sequence[str], rows: Sequence[Sequence[str]]) -> ResultTable:
        """Return a table of plain texts in one group."""
        cells = [[Cell(text) for text in row] for row in rows]
        return cls([Heading(name) for name in header], [RowGroup("", cells)])


@dataclass(frozen=True, slots=True)
class Section:
    """Facts in sentences, perhaps a table, and notes on it."""

    facts: Sequence[str] = ()
    table: ResultTable | None = None
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """What a command found out: for people in sections, for scripts as data."""

    sections: Sequence[Section]
    data: Mapping[str, Any]

    def render(self, kind: str) -> str:
        """Return the result in one of `FORMATS` or as JSON, without a newline at the end."""
        if kind == "json":
            return json_text(self.data)
        draw = {"text": _text, "markdown": _markdown, "latex": _latex}[kind]
        comment, between = ("% ", "\n") if kind == "latex" else ("", "\n\n")
        sections = []
        for section in self.sections:
            parts = ["\n".join(comment + line for line in section.facts)]
            parts += [] if section.table is None else [draw(section.table)]
            parts += ["\n".join(comment + line for line in section.notes)]
            sections.append(between.join(part for part in parts if part))
        return "\n\n".join(sections)

    def show(self, *, as_json: bool, beside: bool = False) -> None:
        """Print the result; on standard error if it is `beside` a file on standard output."""
        click.echo(self.render("json" if as_json else "text"), err=beside)


def json_text(data: Mapping[str, Any]) -> str:
    """Return strict JSON: what is undefined is null."""
    return json.dumps(strict(data), indent=2, allow_nan=False)


@contextmanager
def infeasible_as_json(as_json: bool) -> Iterator[None]:
    """Tell scripts which bounds are attainable, beside the message."""
    try:
        yield
    except InfeasibleError as error:
        if as_json:
            click.echo(json_text({"infeasible": str(error), "attainable": error.attainable}))
        raise


def _text(table: ResultTable) -> str:
    header = [heading.name for heading in table.header]
    rows = [row for group in table.groups for row in group.rows]
    widths = [
        max([len(title), *(len(row[i].text) + row[i].best for row in rows)])
        for i, title in enumerate(header)
    ]

    def line(texts: Sequence[str], best: Sequence[bool]) -> str:
        padded = [
            # The mark keeps the digits of a column under each other.
            text.ljust(width) if i == 0 else f"{text}{'*' if mark else ' '}".rjust(width + 1)
            for i, (text, width, mark) in enumerate(zip(texts, widths, best, strict=True))
        ]
        styled = [click.style(p, bold=True) if m else p for p, m in zip(padded, best, strict=True)]
        return "  ".join(styled).rstrip()

    drawn = [line(header, [False] * len(header))]
    drawn.append("-" * max(len(drawn[0]), sum(widths) + 3 * len(widths) - 3))
    for group in table.groups:
        if group.title:
            drawn += ([""] if len(drawn) > 2 else []) + [group.title]
        drawn += [line([c.text for c in row], [c.best for c in row]) for row in group.rows]
    return "\n".join(drawn)


def _markdown(table: ResultTable) -> str:
    def line(texts: Sequence[str]) -> str:
        return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"

    header = line([heading.with_arrow for heading in table.header])
    rule = "|---|" + "---:|" * (len(table.header) - 1)
    parts = []
    for group in table.groups:
        rows = [[f"**{c.text}**" if c.best else c.text for c in row] for row in group.rows]
        drawn = "\n".join([header, rule, *map(line, rows)])
        parts.append(f"**{group.title}**\n\n{drawn}" if group.title else drawn)
    return "\n\n".join(parts)


def _latex(table: ResultTable) -> str:
    def line(cells: Sequence[str]) -> str:
        return " & ".join(cells) + r" \\"

    width = len(table.header)
    drawn = [
        "% needs \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{l{'r' * (width - 1)}}}",
        "\\toprule",
        line([_latex_escape(heading.with_arrow) for heading in table.header]),
    ]
    for group in table.groups:
        drawn.append("\\midrule")
        if group.title:
            drawn.append(f"\\multicolumn{{{width}}}{{l}}{{{_latex_escape(group.title)}}} \\\\")
        for row in group.rows:
            texts = [_latex_escape(cell.text) for cell in row]
            drawn.append(
                line([f"\\textbf{{{t}}}" if c.best else t for t, c in zip(texts, row, strict=True)])
            )
    return "\n".join([*drawn, "\\bottomrule", "\\end{tabular}"])


def _latex_escape(text: str) -> str:
    """Return text that LaTeX prints as it is."""
    return "".join(_LATEX.get(character, character) for character in text)


def decision(rule: Rule, point: OperatingPoint) -> str:
    """Return what the rule does, in one sentence."""
    if rule.threshold == -math.inf:
        return "Reject every input: accepting any would cost more."
    ood = "" if math.isnan(point.fpr) else f" and {point.fpr:.2%} of OOD"
    return (
        f"Accept an input when {formula(rule)}: that accepts {point.tpr:.2%} of ID{ood} inputs, "
        f"with selective risk {number(point.selective_risk, 5)}."
    )


def verdict(bound: str, good: bool, word: str) -> str:
    """Return whether a bound is met, certified or the like; if not, it stands out."""
    return f"{bound}: {word if good else click.style(f'not {word}', fg='red')}"


class RowCounts(NamedTuple):
    """Rows and weights that rates are shares of."""

    id: int
    sets: dict[str, int]
    """Rows of each OOD set."""
    id_weight: float
    ood_weight: float

    @classmethod
    def of(cls, data: Sample | Sizes) -> RowCounts:
        """Count the rows of a sample, or of a source."""
        if not isinstance(data, Sample):
            sets = dict(zip(data.sets, data.ood_rows, strict=True))
            if isinstance(data, Overview):
                return cls(data.id_rows, sets, data.id.total, data.ood.total)
            return cls(data.id_rows, sets, data.id_rows, sum(data.ood_rows))
        return cls(
            data.n_id,
            {name: rows.stop - rows.start for name, rows in data.ood_sets.items()},
            data.n_id if data.id_weight is None else float(data.id_weight.sum()),
            data.n_ood if data.ood_weight is None else float(data.ood_weight.sum()),
        )

    @property
    def ood(self) -> int:
        """OOD rows of all sets."""
        return sum(self.sets.values())


Points = Mapping[str, tuple[OperatingPoint, Sample | Sizes]]
"""Operating points by their titles, and the rows they were seen on."""


def point_table(points: Points) -> ResultTable:
    """Return operating points side by side, under the headings that are their keys."""
    columns = [_point_rows(point, RowCounts.of(data)) for point, data in points.values()]
    names = list(dict.fromkeys(name for column in columns for name in column))
    rows = [[name, *(column.get(name, "") for column in columns)] for name in names]
    return ResultTable.of(["", *points], rows)


def _point_rows(point: OperatingPoint, counts: RowCounts) -> dict[str, str]:
    rows = {
        "TPR": number(point.tpr),
        "FPR": _of_few(point.fpr, counts.ood) if counts.ood else "no OOD rows",
        "selective risk": number(point.selective_risk, 5),
    }
    if list(counts.sets) != [POOLED_NAME]:
        rows |= {
            f"FPR of {name}": _of_few(value, counts.sets.get(name, FEW_ROWS))
            for name, value in point.fpr_by_set.items()
        }
    rows |= {f"TPR of {name}": number(value) for name, value in point.tpr_by_group.items()}
    rows |= {
        f"selective risk of {name}": number(value, 5)
        for name, value in point.selective_risk_by_group.items()
    }
    if point.precision is not None:
        rows[f"precision at prior {point.ood_prior:g}"] = number(point.precision)
    if point.expected_cost is not None:
        rows["expected cost"] = number(point.expected_cost, 5)
    rows["accepted ID"] = f"{_count(point.accepted_id)} of {_count(counts.id_weight)}"
    if counts.ood:
        rows["accepted OOD"] = f"{_count(point.accepted_ood)} of {_count(counts.ood_weight)}"
    return rows


def _of_few(value: float, rows: int) -> str:
    return number(value) if rows >= FEW_ROWS else f"{number(value)} ({rows} rows)"


def cautions(points: Points) -> list[str]:
    """Return what to beware of: an FPR that rests on a handful of rows."""
    found = []
    for title, (_, data) in points.items():
        counts = RowCounts.of(data)
        where = f" ({title})" if len(points) > 1 else ""
        whole = {"": counts.ood} if list(counts.sets) == [POOLED_NAME] else counts.sets
        if 0 < counts.ood < FEW_ROWS:
            whole = {"": counts.ood}
        few = {name: rows for name, rows in whole.items() if 0 < rows < FEW_ROWS}
        found += [
            f"Caution{where}: the FPR{f' of {name}' if name else ''} rests on {rows} OOD "
            f"{'row' if rows == 1 else 'rows'}, each of which is {1 / rows:.0%} of it."
            for name, rows in few.items()
        ]
    return found


def _count(weight: float) -> str:
    return f"{int(weight):,}" if float(weight).is_integer() else f"{weight:,.4f}"


def rows_data(data: Sample | Sizes) -> dict[str, Any]:
    """Return the sizes of a sample or a source for JSON."""
    counts = RowCounts.of(data)
    return {"id": counts.id, "ood": counts.ood, "ood_sets": counts.sets}


def seen_data(point: OperatingPoint, data: Sample | Sizes) -> dict[str, Any]:
    """Return an operating point and the rows it was seen on for JSON."""
    return asdict(point) | {"rows": rows_data(data)}


Methods = Mapping[str, Sample | tuple[Sample, Sample]]


@dataclass(frozen=True, slots=True)
class PageContents:
    """What the page shows beside the rule; by default nothing."""

    title: str | None = None
    level: float = 0.95
    max_loss: Bound | None = None
    evidence: PromiseEvidence | None = None
    methods: Methods | None = None
    ids: Groups | None = None
    held_out_ids: Groups | None = None
    command: str | None = None
    rule: Rule | None = None
    """The rule that is saved, where it is another than the tuned one."""
    unmet: InfeasibleError | None = None
    """Why the page is about a rule near the bounds, not one that meets them."""
    learned: Learned | None = None
    """What makes the scores, if they are learned."""
    whole: WholeRows | None = None
    """All rows, where those at hand are a part of them."""


def page_title(data: DataOptions) -> str:
    """Return a title that tells the pages of different files apart."""
    from demur.report.report import TITLE

    # Of a database it is the table.
    named = (data.data or data.openood_id or "").rpartition("#")[2]
    stem = Path(named).name.split(".")[0]
    return f"{TITLE}: {stem}" if stem.strip("-") else TITLE


def write_page(
    train: Sample,
    test: Sample | None,
    tuning: Tuning,
    *,
    search: SearchOptions,
    contents: PageContents,
    path: str | None,
) -> Report:
    """Report on a rule tuned on rows, with those held out; write it if there is a `path`."""
    from demur.report import Report
    from demur.report.promises import PromiseEvidence
    from demur.report.report import TITLE

    evidence = contents.evidence or PromiseEvidence()
    with Progress("writing the report") as progress:
        report = Report.of(
            train,
            tuning,
            held_out=test,
            methods=contents.methods,
            ids=contents.ids,
            held_out_ids=contents.held_out_ids,
            title=contents.title or TITLE,
            confidence=contents.level,
            max_loss=contents.max_loss,
            directions=search.allowed,
            search=search.search,
            command=contents.command,
            cross=evidence.cross,
            bootstrap=evidence.bootstrap,
            guaranteed=evidence.guaranteed,
            prior_range=evidence.prior_range,
            prior_estimate=evidence.prior_estimate,
            rule=contents.rule,
            unmet=contents.unmet,
            learned=contents.learned,
            whole=contents.whole,
            progress=progress.stage,
        )
        progress.stage("drawing", 0.95)
        save_file(path, report.to_html)
    return report


def tune_or_nearest(
    sample: Sample, model: RejectionModel, search: SearchOptions, *, as_json: bool
) -> tuple[Tuning, InfeasibleError | None]:
    """Return the tuned rule; if none meets the bounds, the nearest one and why."""
    from demur.report.verdict import nearest_tuning
    from demur.tuning.tune import tune

    options: dict[str, Any] = {
        "directions": None if search.is_box else search.allowed,
        "shape": search.shape,
        "search": search.search,
        "ood": search.fpr_of,
    }
    with Progress(f"tuning on {sample.n_id + sample.n_ood:,} rows"), infeasible_as_json(as_json):
        try:
            return tune(sample, model, **options), None
        except InfeasibleError as error:
            nearest = nearest_tuning(sample, error, **options)
            if nearest is None:
                raise
            return nearest, error


def command_line(
    data: DataOptions,
    names: Sequence[str],
    confidence: Sequence[str],
    split: HoldoutOptions,
    learn: str | None = None,
) -> str:
    """Return the command that tunes on the same rows, up to the bounds."""
    from demur.sources.files import shown

    given = {
        "--scores": ",".join(names),
        "--confidence": ",".join(confidence),
        "--learn": learn,
        "--loss": data.loss,
        "--correct": data.correct,
        "--label": data.label,
        "--prediction": data.prediction,
        "--loss-function": None if data.loss_function == "zero_one" else data.loss_function,
        "--ood": data.ood,
        "--weight": data.weight,
        "--group": data.id_group,
        "--openood-id": data.openood_id,
        "--openood-ood": ",".join(data.openood_ood or ()),
        "--holdout": None if split.holdout is None else str(split.holdout),
        "--holdout-by": split.holdout_by,
        "--seed": str(split.seed) if split.holdout is not None and split.seed else None,
        "--id": split.group if split.holdout is not None else None,
    }
    # A page may be shown to many: no password is in it.
    words = ["demur", "tune", *([shown(data.data)] if data.data else [])]
    for path in data.openood:
        words += ["--openood", path]
    for name, value in given.items():
        words += [name, value] if value else []
    return shlex.join(words)
