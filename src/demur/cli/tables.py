"""Small tables as text, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

FORMATS = ("text", "markdown", "latex")

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
class Block:
    """Rows under a common title, which may be empty."""

    title: str
    rows: Sequence[Sequence[Cell]]


def render(kind: str, header: Sequence[str], blocks: Sequence[Block]) -> str:
    """Return the table in one of `FORMATS`, without a newline at the end."""
    draw = {"text": _text, "markdown": _markdown, "latex": _latex}[kind]
    return draw(header, blocks)


def _text(header: Sequence[str], blocks: Sequence[Block]) -> str:
    rows = [row for block in blocks for row in block.rows]
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
    for block in blocks:
        if block.title:
            drawn += ([""] if len(drawn) > 2 else []) + [block.title]
        drawn += [line([c.text for c in row], [c.best for c in row]) for row in block.rows]
    return "\n".join(drawn)


def _markdown(header: Sequence[str], blocks: Sequence[Block]) -> str:
    def line(texts: Sequence[str]) -> str:
        return "| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |"

    rule = "|---|" + "---:|" * (len(header) - 1)
    parts = []
    for block in blocks:
        rows = [[f"**{c.text}**" if c.best else c.text for c in row] for row in block.rows]
        table = "\n".join([line(header), rule, *map(line, rows)])
        parts.append(f"**{block.title}**\n\n{table}" if block.title else table)
    return "\n\n".join(parts)


def _latex(header: Sequence[str], blocks: Sequence[Block]) -> str:
    def line(cells: Sequence[str]) -> str:
        return " & ".join(cells) + r" \\"

    drawn = [
        "% needs \\usepackage{booktabs}",
        f"\\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        "\\toprule",
        line([latex_escape(title) for title in header]),
    ]
    for block in blocks:
        drawn.append("\\midrule")
        if block.title:
            drawn.append(f"\\multicolumn{{{len(header)}}}{{l}}{{{latex_escape(block.title)}}} \\\\")
        for row in block.rows:
            texts = [latex_escape(cell.text) for cell in row]
            drawn.append(
                line([f"\\textbf{{{t}}}" if c.best else t for t, c in zip(texts, row, strict=True)])
            )
    return "\n".join([*drawn, "\\bottomrule", "\\end{tabular}"])


def latex_escape(text: str) -> str:
    """Return text that LaTeX prints as it is."""
    return "".join(_LATEX.get(character, character) for character in text)
