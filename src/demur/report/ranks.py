"""Ranks of methods under several metrics, as lines that cross where the metrics disagree."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from demur.report.comparison import Block, Metric

_STEP = 26
_COLUMN = 62
_LEFT, _TOP = 36, 18


def rank_chart(metrics: Sequence[Metric], block: Block) -> str:
    """Return a figure with a line per method; equal ranks are drawn side by side."""
    shown = [metric for metric in metrics if metric.better != "neither"]
    shown = [m for m in shown if m.name in _WANTED or m.name.endswith(("risk", "cost"))]
    if len(shown) < 2:
        return ""
    methods = list(block.ranks)
    height = _TOP + _STEP * len(methods) + 44
    width = _LEFT + _COLUMN * (len(shown) - 1) + 110
    parts = [
        f'<text x="6" y="{_TOP + _STEP * rank + 4}">{rank + 1}</text>'
        for rank in range(len(methods))
    ]
    for column, metric in enumerate(shown):
        x = _LEFT + _COLUMN * column
        for line, word in enumerate(_SHORT.get(metric.name, metric.name).split(" ")):
            y = _TOP + _STEP * len(methods) + 8 + 13 * line
            parts.append(f'<text x="{x}" y="{y}" text-anchor="middle">{escape(word)}</text>')
    for number, method in enumerate(methods):
        parts.append(_line(number, method, block, shown))
    label = "; ".join(
        f"{method}: "
        + ", ".join(f"{m.name} {block.ranks[method].get(m.name) or 'unable'}" for m in shown)
        for method in methods
    )
    return (
        f'<figure class="ranks"><p class="plot-title">Rank by metric</p><svg viewBox="0 0 {width} '
        f'{height}" role="img" aria-label="{escape("Ranks. " + label)}">{"".join(parts)}</svg>'
        "<figcaption>Where lines cross, the metrics disagree.</figcaption></figure>"
    )


_WANTED = ("AUROC", "OSCR/accepted", "OSCR/all")
_SHORT = {"OSCR/accepted": "OSCR/ accepted", "OSCR/all": "OSCR/ all"}


def _line(number: int, method: str, block: Block, shown: Sequence[Metric]) -> str:
    places = []
    for column, metric in enumerate(shown):
        rank = block.ranks[method].get(metric.name)
        if rank is not None:
            tied = [m for m in block.ranks if block.ranks[m].get(metric.name) == rank]
            # Equal methods share the places they take up together.
            place = rank - 1 + tied.index(method)
            places.append((_LEFT + _COLUMN * column, _TOP + _STEP * place))
    if not places:
        return ""
    color = f"c{number % 6}"
    path = " ".join(f"{x},{y}" for x, y in places)
    dots = "".join(f'<circle class="{color}" cx="{x}" cy="{y}" r="4.5"/>' for x, y in places)
    x, y = places[-1]
    short = method if len(method) <= 16 else method[:15] + "…"
    return (
        f'<polyline class="line {color}" points="{path}"/>{dots}'
        f'<text x="{x + 9}" y="{y + 4}">{escape(short)}</text>'
    )
