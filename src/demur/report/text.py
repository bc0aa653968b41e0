"""The report as plain text."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from demur.core.wording import amount, number, outwards, range_text, rule_text, sentence
from demur.report.comparison import MethodComparison
from demur.report.promises import Promises, prior_text

if TYPE_CHECKING:
    from demur.report.report import Report

_WIDTH = 98


def render(report: Report) -> str:
    """Return the decision, the numbers, the cautions and the comparison."""
    parts = [
        report.title,
        _wrapped(f"{report.decision} {report.evidence}"),
        f"Accept when {rule_text(report.rule)}\n({sentence(report.model)})",
        _point(report),
        _promises(report.promises),
        "\n".join(_wrapped(f"{c.level.upper()}: {c.text}") for c in report.cautions),
    ]
    if report.comparison is not None:
        parts.append(_comparison(report.comparison))
    return "\n\n".join(part for part in parts if part) + "\n"


def _point(report: Report) -> str:
    columns = [("tuning rows", report.tuned)]
    if report.held_out is not None:
        columns.append(("held-out rows", report.held_out))
    rows = [["", *(title for title, _ in columns)]]
    for key in dict.fromkeys(key for _, seen in columns for key in seen.rates):
        cells = []
        for _, seen in columns:
            rate = seen.rates.get(key)
            text = "-" if rate is None else number(rate.value, 5)
            # Only fresh rows have intervals that can be relied on.
            if rate is not None and rate.interval is not None and seen is report.held_out:
                text += f" [{', '.join(outwards(rate.interval.low, rate.interval.high))}]"
            cells.append(text)
        rows.append([key, *cells])
    found = [seen for _, seen in columns]
    id_counts = [(seen.point.accepted_id, seen.id_total) for seen in found]
    ood_counts = [(seen.point.accepted_ood, seen.ood_total) for seen in found]
    for title, counts in (("accepted ID", id_counts), ("accepted OOD", ood_counts)):
        rows.append([title, *(f"{amount(part)} of {amount(total)}" for part, total in counts)])
    return _aligned(rows)


def _promises(found: Promises) -> str:
    rows = [["What you can promise", *map(found.column_title, found.columns)]]
    for statement in found.statements:
        cells = [
            range_text(statement.rates[name], name) if name in statement.rates else "-"
            for name in found.columns
        ]
        rows.append([statement.title, *cells])
    sources = [
        _wrapped(f"{statement.title}: {statement.source}")
        for statement in found.statements
        if statement.key != "tuned"
    ]
    prior = [] if found.prior is None else [_wrapped(prior_text(found.prior))]
    return "\n".join([_aligned(rows), *sources, *prior])


def _comparison(found: MethodComparison) -> str:
    parts = []
    for block in found.blocks:
        rows = [["OOD: " + block.ood, *(metric.name for metric in found.metrics)]]
        for method, values in block.values.items():
            cells = []
            for metric in found.metrics:
                text = number(values[metric.name], metric.digits).replace("undefined", "unable")
                best = len(block.values) > 1 and block.ranks[method].get(metric.name) == 1
                cells.append(text + ("*" if best else " "))
            rows.append([method, *cells])
        parts.append("\n".join([_aligned(rows), *block.disagreements]))
    return "\n\n".join(parts)


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def _wrapped(text: str) -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent="  ")
