"""The parts of the page that stand still. All text of users goes through `escape`."""

from __future__ import annotations

import html
from collections.abc import Sequence
from typing import TYPE_CHECKING

from demur.report.cautions import Caution
from demur.report.summary import Bound, Rate, Seen
from demur.report.wording import (
    DASH,
    amount,
    model_text,
    number,
    outwards,
    percent,
    rule_text,
    score_names,
)

if TYPE_CHECKING:
    from demur.report.report import Report

WORDS = {
    "ID, OOD": "In-distribution inputs are of the kind the classifier was made for; "
    "out-of-distribution inputs are not.",
    "score": "A measure of doubt: the higher, the less an input is to be trusted.",
    "TPR": "Share of ID inputs that are accepted; also called recall and coverage.",
    "FPR": "Share of OOD inputs that are accepted.",
    "selective risk": "Mean loss of the accepted ID inputs: under the 0/1 loss, the share of "
    "wrong answers among the answers given to ID inputs.",
    "precision": "Share of ID among all accepted inputs, at a stated share of OOD inputs (the "
    "prior).",
    "tuning rows": "Rows the rule was chosen on. Their numbers are optimistic.",
    "held-out rows": "Rows the rule has not seen. Their numbers are honest.",
    "OSCR": "Area under the rate of correct answers over the FPR. OSCR/accepted counts the "
    "correct among accepted ID inputs, OSCR/all among all ID inputs.",
    "unable": "No rule of this method meets the bounds.",
}


def escape(text: str) -> str:
    """Return text that HTML shows and does not run."""
    return html.escape(text, quote=True)


def name(text: str) -> str:
    """Return a name given by a user, kept from turning the direction of the text around it."""
    return f"<bdi>{escape(text)}</bdi>"


def figures(report: Report) -> str:
    """Return the three numbers that matter, large."""
    seen = report.tuned if report.held_out is None else report.held_out
    share = report.zero_one
    cards = [("ID inputs accepted (TPR)", "TPR", True)]
    if "FPR" in seen.rates:
        cards.append(("OOD inputs accepted (FPR)", "FPR", True))
    risk = "Wrong among accepted ID" if share else "Selective risk"
    cards.append((risk, "selective risk", share))
    cards += [
        (k.capitalize(), k, k != "expected cost") for k in seen.rates if k[:4] in ("prec", "expe")
    ]
    return "".join(
        _figure(title, seen.rates[key], as_share, report, key) for title, key, as_share in cards
    )


def _figure(title: str, rate: Rate, share: bool, report: Report, key: str) -> str:
    value = percent(rate.value) if share else number(rate.value)
    extra = []
    if rate.interval is not None and report.held_out is not None:
        low, high = rate.interval.low, rate.interval.high
        ends = outwards(100 * low, 100 * high, 1) if share else outwards(low, high)
        extra.append(f"{escape(f'{ends[0]} to {ends[1]}')}{' %' if share else ''}")
    for bound in report.bounds:
        if bound.rate == key:
            extra.append(_badge(bound, rate.value))
    lines = "".join(f'<dd class="extra">{line}</dd>' for line in extra)
    return f'<div><dt>{escape(title)}</dt><dd class="value">{escape(value)}</dd>{lines}</div>'


def _badge(bound: Bound, value: float) -> str:
    met = bound.met(value)
    kind, word = ("met", "met") if met else ("missed", "missed")
    return f'<span class="{kind}">{escape(bound.text)}: {word}</span>'


def cautions(found: Sequence[Caution]) -> str:
    """Return the warnings and notes as a list."""
    items = "".join(
        f'<li class="caution {caution.level}"><strong>{caution.level.capitalize()}.</strong> '
        f"{escape(caution.text)}</li>"
        for caution in found
    )
    return f'<ul class="cautions" aria-label="Warnings and notes">{items}</ul>' if items else ""


def rule(report: Report) -> str:
    """Return the rule in words and in full precision."""
    tuned = report.rule
    facts = {"Asked for": model_text(report.model)}
    for label, weight in zip(score_names(tuned), tuned.direction, strict=True):
        facts[f"weight of {label}"] = repr(weight)
    facts["threshold"] = repr(tuned.threshold)
    proven = {
        "optimal": "proven best of all thresholds"
        + (" and directions searched" if len(tuned.direction) == 2 else ""),
        "grid": "best on a grid of angles",
    }
    facts["search"] = proven.get(report.certificate.status, "stopped early")
    items = "".join(
        f"<dt><bdi>{escape(k)}</bdi></dt><dd>{escape(v)}</dd>" for k, v in facts.items()
    )
    return (
        f'<p class="formula">accept when <bdi>{escape(rule_text(tuned))}</bdi></p>'
        f'<dl class="facts">{items}</dl>'
    )


def points(report: Report) -> str:
    """Return the operating point on the tuning rows and on the held-out rows."""
    columns = [("tuning rows", report.tuned)]
    if report.held_out is not None:
        columns.append(("held-out rows", report.held_out))
    head = "".join(f'<th scope="col">{title}</th>' for title, _ in columns)
    names = list(dict.fromkeys(key for _, seen in columns for key in seen.rates))
    body = "".join(
        f'<tr><th scope="row">{name(key)}</th>'
        + "".join(_rate(seen.rates.get(key), key) for _, seen in columns)
        + "</tr>"
        for key in names
    )
    body += _counts("accepted ID", [(s.point.accepted_id, s.id_total) for _, s in columns])
    if report.tuned.ood_total:
        body += _counts("accepted OOD", [(s.point.accepted_ood, s.ood_total) for _, s in columns])
    body += "".join(_bound_row(bound, report.held_out, columns) for bound in report.bounds)
    return table(
        _interval_note(report),
        f"<tr><td></td>{head}</tr>",
        body,
    )


def _interval_note(report: Report) -> str:
    if all(rate.interval is None for rate in report.tuned.rates.values()):
        return "Without intervals: exact ones count rows of equal weight."
    ends = f"With {100 * report.confidence:g} % intervals."
    if report.held_out is None:
        return f"{ends} They ignore that the rule was chosen on these rows, so are too favourable."
    return (
        f"{ends} On held-out rows those of TPR, FPR and selective risk hold together; on tuning "
        "rows they ignore that the rule was chosen on them."
    )


def _rate(rate: Rate | None, key: str) -> str:
    if rate is None:
        return f"<td>{DASH}</td>"
    digits = 5 if key in ("selective risk", "expected cost") else 4
    ends = ""
    if rate.interval is not None:
        low, high = outwards(rate.interval.low, rate.interval.high, digits - 1)
        ends = f'<span class="interval">{low} {DASH} {high}</span>'
    return f"<td>{escape(number(rate.value, digits))}{ends}</td>"


def _counts(title: str, pairs: list[tuple[float, float]]) -> str:
    cells = "".join(f"<td>{amount(part)} of {amount(total)}</td>" for part, total in pairs)
    return f'<tr><th scope="row">{title}</th>{cells}</tr>'


def _bound_row(bound: Bound, held_out: Seen | None, columns: list[tuple[str, Seen]]) -> str:
    cells = []
    for _, seen in columns:
        rate = seen.rates.get(bound.rate)
        text = DASH if rate is None else ("met" if bound.met(rate.value) else "missed")
        if seen is held_out and bound.text in seen.certified:
            text += ", certified" if seen.certified[bound.text] else ", not certified"
        cells.append(f"<td>{text}</td>")
    return f'<tr><th scope="row">{escape(bound.text)}</th>{"".join(cells)}</tr>'


def glossary() -> str:
    """Return the words that the page uses."""
    items = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in WORDS.items())
    return f'<dl class="words">{items}</dl>'


def table(caption: str, head: str, body: str) -> str:
    """Return a table that scrolls by itself when it is too wide; `caption` is plain text."""
    label = escape(caption)
    return (
        f'<div class="scroll" role="region" aria-label="{label}" tabindex="0"><table>'
        f"<caption>{label}</caption><thead>{head}</thead><tbody>{body}</tbody></table></div>"
    )
