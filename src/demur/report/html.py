"""The report as one HTML file that needs nothing else.

Markup is in the templates, which escape all that they show; here is what they are given.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, NamedTuple

from demur.core import wording
from demur.core.rule import BoxRule
from demur.core.sample import POOLED_NAME
from demur.core.wording import Range
from demur.errors import MissingExtraError
from demur.report.comparison import ComparedMetric, ComparedSet
from demur.report.drawings import drawings
from demur.report.page_data import (
    DIALECTS,
    beside,
    controls,
    first_mode,
    modes,
    page_data,
    page_json,
    sql_templates,
    start,
)
from demur.report.promises import prior_text
from demur.report.summary import WORST_FPR, Seen, rate_title
from demur.report.verdict import bound_state

if TYPE_CHECKING:
    from jinja2 import Environment

    from demur.report.report import Report

SCRIPTS = (
    "decimals.js",
    "rules.js",
    "program.js",
    "wording.js",
    "chart.js",
    "plane.js",
    "plots.js",
    "state.js",
    "controls.js",
    "downloads.js",
    "explorer.js",
)


def render(report: Report) -> str:
    """Return the page."""
    from importlib.metadata import version

    columns = _columns(report)
    page = environment().get_template("page.html")
    css = asset("page.css")
    # Wrapped, so that no name of ours meets one of the browser's. A box needs no script.
    scripts = () if report.is_box else SCRIPTS
    js = "\n".join(asset(f"scripts/{name}") for name in scripts)
    js = f'"use strict";\n(() => {{\n{js}\n}})();\n'
    return page.render(
        report=report,
        policy=policy(css, js),
        version=version("demur"),
        css=css,
        js=js,
        data="null" if report.is_box else page_json(page_data(report)),
        asked=report.asked,
        asked_briefly=wording.paper_text(report.model),
        columns=columns,
        rate_keys=list(dict.fromkeys(key for _, seen in columns for key in seen.rates)),
        figures=_key_figures(report),
        facts=_facts(report),
        interval_note=_interval_note(report),
        limits=_limits(report),
        scales=_scales(report),
        modes=modes(report),
        controls=controls(report),
        beside=beside(report),
        first_mode=first_mode(report),
        start=start(report),
        number_rows=_number_rows(report),
        contents=_contents(report),
        states=_states(report),
        drawings=drawings(report),
        dialects=DIALECTS,
        has_sql=report.learned is None and sql_templates(report.rule) is not None,
        digits=int(report.explorer.digits[report.explorer.start]),
    )


def in_frame(report: Report) -> str:
    """Return the page in a frame of its own, which shares no styles with what is around it."""
    frame = environment().get_template("frame.html")
    return frame.render(page=render(report), title=report.title)


@cache
def environment() -> Environment:
    """Return what fills in the templates, of this page and of the one of a watch."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError:
        raise MissingExtraError("jinja2", "report") from None
    found = Environment(
        loader=PackageLoader("demur.report", "templates"),
        # Names of columns, sets, methods and rows are whatever a user's file holds.
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    words = ("amount", "digits_of", "number", "outwards", "percent", "range_parts", "rule_parts")
    found.globals |= {name: getattr(wording, name) for name in (*words, "score_titles")}
    found.globals |= {
        "prior_text": prior_text,
        "rank_chart": RankChart.of,
        "bound_state": bound_state,
        "rate_title": rate_title,
    }
    found.filters["minus"] = lambda text: text.replace("-", wording.MINUS)
    return found


@cache
def asset(name: str) -> str:
    """Return a style or script, which no template engine looks at."""
    folder = resources.files("demur.report") / "templates"
    return (folder / name).read_text(encoding="utf-8")


def policy(css: str, js: str = "") -> str:
    """Allow our own style and script, told by their hashes, and nothing else at all."""
    script = f"script-src {_hash(js)}; " if js else ""
    return (
        f"default-src 'none'; style-src {_hash(css)}; {script}img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _columns(report: Report) -> list[tuple[str, Seen]]:
    """Return the tuning rows and the held-out rows, with their titles."""
    columns = [("tuning rows", report.tuned)]
    if report.held_out is not None:
        columns.append(("held-out rows", report.held_out))
    return columns


def _key_figures(report: Report) -> list[tuple[str, str, bool]]:
    """Return the numbers that matter: title, name of the rate, whether it is shown in per cent."""
    rates, share = report.judged.rates, report.zero_one
    cards = [("ID inputs accepted (TPR)", "TPR", True)]
    if WORST_FPR in rates:
        cards.append(("OOD accepted, worst set (FPR)", WORST_FPR, True))
    elif "FPR" in rates:
        cards.append(("OOD inputs accepted (FPR)", "FPR", True))
    risk = "Wrong among accepted ID" if share else "Selective risk"
    cards.append((risk, "selective risk", share))
    further = [name for name in rates if name.startswith(("precision", "expected cost"))]
    return cards + [(name.capitalize(), name, name != "expected cost") for name in further]


def _facts(report: Report) -> dict[str, str]:
    """Return the rule in full precision, and how it was found."""
    rule = report.rule
    facts = {"Asked for": report.asked}
    what = "thresholds"
    if isinstance(rule, BoxRule):
        for name, limit in zip(wording.score_titles(rule), rule.limits, strict=True):
            facts[f"limit of {name}"] = repr(limit)
        what = "boxes"
    else:
        for name, weight in zip(wording.score_titles(rule), rule.direction, strict=True):
            facts[f"weight of {name}"] = repr(weight)
        facts["threshold"] = repr(rule.threshold)
        what += " and directions searched" if len(rule.direction) == 2 else ""
    proven = {
        "optimal": f"proven best of all {what}",
        "grid": "best on a grid of angles",
        "unresolved": "best that float64 was seen to tell apart; thinner half-planes are better",
    }
    search = proven.get(report.certificate.status, "stopped early")
    if report.unmet is not None:
        search = "no rule meets the bounds; this one comes nearest"
    elif not report.is_optimum:
        search = "tuned with a guarantee"
    return facts | {"search": search}


def _states(report: Report) -> dict[str, str]:
    """Return of each bound whether it is proven, seen to be met, or missed."""
    if report.verdict.state == "proven" and not report.is_optimum:
        return {bound.text: "proven" for bound in report.bounds}
    fresh = report.held_out is not None
    return {b.text: bound_state(b, report.judged, fresh=fresh) or "unknown" for b in report.bounds}


def _contents(report: Report) -> dict[str, str]:
    """Return the sections of the page by their places."""
    sections = {
        "decision": "Decision",
        "explorer": "The scores" if report.is_box else "Explore other bounds",
        "promises": "What you can promise",
        "rule": "The rule in full",
    }
    if report.comparison is not None:
        sections["methods"] = "Methods compared"
    if report.doubtful is not None:
        sections["rows"] = "Rows nearest to the boundary"
    return sections | {"words": "Words used here"}


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


def _limits(report: Report) -> dict[str, float]:
    """Return the bounds of the model by the name of the column of promises they belong to."""
    columns = {bound: bound.rate for bound in report.bounds if not bound.bound.is_of_part}
    named = {WORST_FPR: "FPR"}
    return {
        "precision" if rate.startswith("precision") else named.get(rate, rate): bound.limit
        for bound, rate in columns.items()
    }


def _scales(report: Report) -> dict[str, RateScale]:
    """Return how each column of promises is drawn."""
    found, limits = report.promises, _limits(report)
    rates = {
        name: [said.rates[name] for said in found.statements if name in said.rates]
        for name in found.columns
    }
    return {name: RateScale.of(rates[name], limits.get(name)) for name in rates}


def _number_rows(report: Report) -> list[tuple[str, str, str | None]]:
    """Return the rows of the explorer's table: key, title, and the name of a user behind it."""
    explorer = report.explorer
    pooled = " of all OOD together" if explorer.worst else ""
    rows: list[tuple[str, str, str | None]] = [("tpr", "TPR", None), ("fpr", f"FPR{pooled}", None)]
    if explorer.worst:
        rows.insert(1, ("worst", WORST_FPR, None))
    named = report.ood_sets != (POOLED_NAME,)
    if named and explorer.held_out is not None:
        # Held-out rows may come from other sets, which have no common row in the table.
        named = len(explorer.held_out.totals.ood) == len(report.ood_sets)
    if named:
        rows += [(f"set{i}", "FPR of ", name) for i, name in enumerate(report.ood_sets)]
    titles = {
        "risk": "selective risk",
        "precision": "precision at prior ",
        "cost": "expected cost",
        "accepted-id": "ID accepted",
        "rejected-id": "ID rejected",
        "accepted-ood": "OOD accepted",
        "rejected-ood": "OOD rejected",
        "accepted-loss": "wrong among accepted ID" if report.zero_one else "loss of accepted ID",
    }
    rows += [(key, title, None) for key, title in titles.items()]
    if explorer.has_ood:
        return rows
    lacking = ("fpr", "set0", "precision")
    return [row for row in rows if "ood" not in row[0] and row[0] not in lacking]


class RateMarks(NamedTuple):
    """Where a rate is drawn: a dot, a bar, or a bar that is open on one side."""

    span: tuple[float, float] | None
    ends: list[float]
    dot: float | None


class RateScale:
    """From rates of one column of promises to places in a small drawing."""

    width, height, left, right, middle = 120.0, 14.0, 5.0, 115.0, 7.0

    def __init__(self, low: float, high: float, limit: float | None) -> None:
        self._low, self._high = low, high
        self.limit = self._place(limit)

    @classmethod
    def of(cls, rates: Sequence[Range], limit: float | None) -> RateScale:
        """Return a scale that holds all rates of the column and the bound."""
        stated = [limit, *(end for rate in rates for end in rate.ends)]
        values = [value for value in stated if value is not None and math.isfinite(value)]
        low, high = min(values, default=0.0), max(values, default=1.0)
        room = 0.08 * (high - low) or 0.05
        return cls(low - room, high + room, limit)

    def marks(self, rate: Range) -> RateMarks:
        """Return where to draw a rate."""
        low, high, dot = (self._place(end) for end in (rate.low, rate.high, rate.value))
        ends = [end for end in (low, high) if end is not None]
        span = (
            self.left if low is None else low,
            self.right if high is None else high,
        )
        # Without a value the ends are what is stated.
        return RateMarks(span if ends else None, ends if rate.value is None else [], dot)

    def _place(self, value: float | None) -> float | None:
        if value is None or math.isnan(value):
            return None
        share = (value - self._low) / (self._high - self._low)
        return round(self.left + share * (self.right - self.left), 2)


class RankLine(NamedTuple):
    """A method in a chart of ranks."""

    method: str
    color: int
    places: list[tuple[int, int]]
    """Column of the metric and row, for each metric that ranks it."""


class RankChart(NamedTuple):
    """Ranks of methods under several metrics: lines that cross where the metrics disagree."""

    metrics: list[ComparedMetric]
    lines: list[RankLine]
    label: str
    """The same in words."""

    @classmethod
    def of(cls, metrics: Sequence[ComparedMetric], found: ComparedSet) -> RankChart | None:
        """Return a chart with a line per method, None where there is nothing to compare."""
        shown = [metric for metric in metrics if _is_ranked(metric)]
        if len(shown) < 2 or len(found.values) < 2:
            return None
        names = [metric.name for metric in shown]
        lines = [
            RankLine(method, i % 6, _places(method, names, found))
            for i, method in enumerate(found.ranks)
        ]
        label = "; ".join(
            f"{method}: " + ", ".join(f"{name} {row.get(name) or 'unable'}" for name in names)
            for method, row in found.ranks.items()
        )
        return cls(shown, lines, f"Ranks. {label}")


def _is_ranked(metric: ComparedMetric) -> bool:
    wanted = metric.name in ("AUROC", "OSCR/accepted", "OSCR/all")
    return metric.better != "neither" and (wanted or metric.name.endswith(("risk", "cost")))


def _places(method: str, metrics: list[str], found: ComparedSet) -> list[tuple[int, int]]:
    places = []
    for column, metric in enumerate(metrics):
        rank = found.ranks[method].get(metric)
        if rank is not None:
            tied = [m for m in found.ranks if found.ranks[m].get(metric) == rank]
            # Equal methods share the places they take up together.
            places.append((column, rank - 1 + tied.index(method)))
    return places
