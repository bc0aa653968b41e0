"""The long tables of the page: methods compared, and rows nearest to the boundary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from demur.report.comparison import Block, Comparison, Metric
from demur.report.markup import escape, name, table
from demur.report.ranks import rank_chart
from demur.report.rows import Row
from demur.report.wording import DASH, MINUS, number, score_names

if TYPE_CHECKING:
    from demur.report.report import Report


def comparison(found: Comparison | None) -> str:
    """Return the methods side by side, per OOD set."""
    if found is None:
        return ""
    blocks = "".join(_block(found.metrics, block, len(found.blocks)) for block in found.blocks)
    return (
        '<section aria-labelledby="methods-title"><h2 id="methods-title">Methods compared</h2>'
        '<p class="lead">The best of each column is marked. ↓ lower is better, ↑ higher is better. '
        "Two scores are tuned on the rows they are shown for, so their areas are optimistic; the "
        f"held-out columns are not.</p>{blocks}</section>"
    )


def _block(metrics: Sequence[Metric], block: Block, count: int) -> str:
    arrows = {"lower": "&nbsp;↓", "higher": "&nbsp;↑", "neither": ""}
    head = "".join(
        f'<th scope="col">{m.name.replace("/", "/<wbr>")}{arrows[m.better]}</th>' for m in metrics
    )
    several = len(block.values) > 1
    body = ""
    for method, values in block.values.items():
        body += f'<tr><th scope="row">{name(method)}</th>'
        for metric in metrics:
            text = number(values[metric.name], metric.digits).replace("undefined", "unable")
            best = several and block.ranks[method].get(metric.name) == 1
            mark = '<span class="hidden">best: </span>' if best else ""
            body += f"<td{' class=best' if best else ''}><span>{mark}{text}</span></td>"
        body += "</tr>"
    title = f"<h3>OOD: {name(block.ood)}</h3>" if count > 1 else ""
    values_table = table(f"Metrics on {block.ood}", f"<tr><td></td>{head}</tr>", body)
    notes = "".join(f'<p class="caution note">{escape(text)}</p>' for text in block.disagreements)
    chart = rank_chart(metrics, block) if several else ""
    body = f'<div class="block-body"><div>{values_table}{notes}</div>{chart}</div>'
    return f'<div class="block">{title}{body}</div>'


def rows(report: Report) -> str:
    """Return the rows nearest to the boundary."""
    if report.doubtful is None:
        return ""
    labels = score_names(report.rule)
    accepted = _rows("Most doubtful accepted rows", report.doubtful.accepted, labels)
    rejected = _rows("Most trusted rejected rows", report.doubtful.rejected, labels)
    return (
        '<section aria-labelledby="rows-title"><h2 id="rows-title">Rows nearest to the boundary'
        '</h2><p class="lead">Tuning rows, nearest first: look at these to see what the rule turns '
        "on.</p>"
        f'<div class="two even"><div>{accepted}</div><div>{rejected}</div></div></section>'
    )


def _rows(title: str, found: Sequence[Row], labels: Sequence[str]) -> str:
    if not found:
        return f'<p class="hint">{title}: none.</p>'
    head = '<th scope="col">id</th><th scope="col" class="text">kind</th><th scope="col">loss</th>'
    head += "".join(f'<th scope="col">{name(label)}</th>' for label in labels)
    head += '<th scope="col">to threshold</th>'
    body = ""
    for row in found:
        loss = DASH if row.loss is None else f"{row.loss:g}"
        scores = "".join(f"<td>{_minus(f'{score:.4g}')}</td>" for score in row.scores)
        body += (
            f'<tr><th scope="row">{name(row.id)}</th><td class="text">{name(row.kind)}</td>'
            f"<td>{loss}</td>{scores}<td>{_signed(row.margin)}</td></tr>"
        )
    return table(title, f"<tr>{head}</tr>", body)


def _signed(value: float) -> str:
    return _minus(f"{value:+.2g}")


def _minus(text: str) -> str:
    return text.replace("-", MINUS)
