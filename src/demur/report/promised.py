"""The panel "What you can promise" of the page: a table whose cells are drawn to scale."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from demur.report.markup import escape
from demur.report.promises import Promises, prior_text
from demur.report.statements import Statement
from demur.report.wording import Range, range_parts

if TYPE_CHECKING:
    from demur.report.report import Report

_WIDTH, _HEIGHT, _EDGE = 120.0, 14.0, 5.0
_LEAD = (
    "A rule looks better on the rows it was chosen on than it is. To say what to expect, quote an "
    "estimate. To sign for something, quote a promise, and nothing else."
)


def promises(report: Report) -> str:
    """Return the section."""
    found = report.promises
    columns = found.columns
    scales = {name: _Scale.of(name, report) for name in columns}
    head = "".join(
        f'<th scope="col" role="columnheader">{escape(found.column_title(name))}</th>'
        for name in columns
    )
    body = "".join(_row(statement, columns, scales) for statement in found.statements)
    return (
        '<section aria-labelledby="promise-title"><h2 id="promise-title">What you can promise</h2>'
        f'<p class="lead">{_LEAD}</p><table class="promises" role="table">'
        '<caption class="hidden">What may be said of the rule, the weakest statement first'
        f'</caption><thead role="rowgroup"><tr role="row"><td></td>{head}</tr></thead>'
        f'<tbody role="rowgroup">{body}</tbody></table>{_notes(report, found)}</section>'
    )


def _notes(report: Report, found: Promises) -> str:
    texts = []
    if found.prior is not None:
        texts.append(f'<p class="caution note">{escape(prior_text(found.prior))}</p>')
    hints = []
    if _limits(report):
        hints.append("Dashed: the bound that was asked for.")
    if "FPR" in found.columns:
        hints.append("All about OOD holds for inputs like the OOD rows supplied.")
    if hints:
        texts.append(f'<p class="hint">{" ".join(hints)}</p>')
    if found.missing:
        texts.append(f'<p class="hint">Not asked for here: {escape("; ".join(found.missing))}.</p>')
    return "".join(texts)


def _row(statement: Statement, columns: list[str], scales: dict[str, _Scale]) -> str:
    cells = ""
    for name in columns:
        rate = statement.rates.get(name)
        if rate is not None:
            value, ends = range_parts(rate, name)
            interval = f'<span class="interval">{ends}</span>' if ends else ""
            cells += (
                f'<td role="cell" data-rate="{escape(name)}"><span>{value}</span>{interval}'
                f"{scales[name].draw(rate)}</td>"
            )
        elif statement.rates:
            cells += '<td role="cell" class="none"><span class="hidden">not stated</span></td>'
    if not statement.rates:
        cells = f'<td role="cell" colspan="{len(columns)}" class="text">nothing</td>'
    kind = statement.kind
    return (
        f'<tr role="row" class="{kind}" data-statement="{statement.key}"><th scope="row" '
        f'role="rowheader"><span class="kind">{kind}</span>'
        f"<strong>{escape(statement.title)}</strong>"
        f'<span class="source"><bdi>{escape(statement.source)}</bdi></span></th>{cells}</tr>'
    )


def _limits(report: Report) -> dict[str, float]:
    """Return the bounds of the model by the name of their rate."""
    return {
        "precision" if bound.rate.startswith("precision") else bound.rate: bound.limit
        for bound in report.bounds
    }


class _Scale:
    """From rates of one column to places in a small drawing."""

    def __init__(self, low: float, high: float, bound: float | None) -> None:
        self._low, self._high, self._bound = low, high, bound

    @classmethod
    def of(cls, name: str, report: Report) -> _Scale:
        """Return a scale that holds all rates of the column and the bound."""
        limit = _limits(report).get(name)
        values = [] if limit is None else [limit]
        for statement in report.promises.statements:
            rate = statement.rates.get(name)
            ends = () if rate is None else (rate.value, rate.low, rate.high)
            values += [end for end in ends if end is not None and math.isfinite(end)]
        low, high = min(values, default=0.0), max(values, default=1.0)
        room = 0.08 * (high - low) or 0.05
        return cls(low - room, high + room, limit)

    def draw(self, rate: Range) -> str:
        """Return a drawing: a dot, a bar, or a bar that is open on one side."""
        value, middle = rate.value, _HEIGHT / 2
        parts = [f'<path class="grid" d="M{_EDGE} {middle}H{_WIDTH - _EDGE}"/>']
        if self._bound is not None:
            parts.append(f'<path class="limit" d="M{self._at(self._bound)} 0V{_HEIGHT}"/>')
        low, high = (self._place(end) for end in (rate.low, rate.high))
        if low is not None or high is not None:
            start = _EDGE if low is None else low
            end = _WIDTH - _EDGE if high is None else high
            parts.append(f'<path class="span" d="M{start} {middle}H{end}"/>')
            # Without a value the ends are what is stated.
            ends = [place for place in (low, high) if place is not None and value is None]
            parts += [f'<path class="end" d="M{place} 2V{_HEIGHT - 2}"/>' for place in ends]
        dot = self._place(value)
        if dot is not None:
            parts.append(f'<circle class="dot" cx="{dot}" cy="{middle}" r="3.4"/>')
        return (
            f'<svg viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" aria-hidden="true">{"".join(parts)}</svg>'
        )

    def _place(self, value: float | None) -> float | None:
        return None if value is None or math.isnan(value) else self._at(value)

    def _at(self, value: float) -> float:
        share = (value - self._low) / (self._high - self._low)
        return round(_EDGE + share * (_WIDTH - 2 * _EDGE), 2)
