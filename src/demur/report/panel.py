"""The still parts of the explorer: sliders, the table to fill, frames of the plots."""

from __future__ import annotations

from string import Template
from typing import TYPE_CHECKING, NamedTuple

from demur.core.sample import POOLED_NAME
from demur.report.markup import escape, name
from demur.report.pagedata import COST_STEPS, MOST_COST_STEPS, mode, start

if TYPE_CHECKING:
    from demur.report.report import Report


class Slider(NamedTuple):
    """A range input in whole steps."""

    name: str
    label: str
    most: int


_PRIOR = "Share of OOD inputs in use (prior)"
SLIDERS = {
    "tprfpr": (
        Slider("tpr", "Accept at least this share of ID (min TPR)", 100),
        Slider("fpr", "Accept at most this share of OOD (max FPR)", 100),
    ),
    "pr": (
        Slider("precision", "Least share of ID among accepted (min precision)", 1000),
        Slider("recall", "Accept at least this share of ID (min recall)", 100),
        Slider("prior", _PRIOR, 990),
    ),
    "cost": (
        Slider("rejectId", "Cost of rejecting an ID input", COST_STEPS),
        Slider("acceptOod", "Cost of accepting an OOD input", MOST_COST_STEPS),
        Slider("rejectOod", "Cost of rejecting an OOD input", MOST_COST_STEPS),
        Slider("costPrior", _PRIOR, 990),
    ),
}
MODES = {"tprfpr": "TPR, FPR", "pr": "Precision, recall", "cost": "Costs"}
_WITHOUT_OOD = {"tprfpr": "TPR", "cost": "Costs"}
_NEED_OOD = ("fpr", "acceptOod", "rejectOod", "costPrior")


def explorer(report: Report, template: Template) -> str:
    """Return the section of the explorer."""
    has_ood = sum(report.explorer.tuned.totals.ood) > 0
    first = mode(report)
    modes = [key for key in MODES if has_ood or key != "pr"]
    held = report.explorer.held_out is not None
    return template.substitute(
        advice="the held-out column is there to check that choice, and no longer honest once you "
        "choose by it."
        if held
        else "without held-out rows the numbers are optimistic.",
        modes="".join(
            f'<label><input type="radio" name="mode" value="{key}"'
            f"{' checked' if key == first else ''}> {MODES[key] if has_ood else _WITHOUT_OOD[key]}"
            "</label>"
            for key in modes
        ),
        sliders="".join(_sliders(key, report, has_ood, shown=key == first) for key in modes),
        held_head='<th scope="col">held-out rows</th>' if held else "",
        number_rows=_number_rows(report, has_ood, held),
        plots="".join(_plots(report, has_ood)),
    )


def _sliders(key: str, report: Report, has_ood: bool, *, shown: bool) -> str:
    places = start(report)
    hint = ""
    if key == "pr":
        hint = '<p class="hint">The prior is yours to state: it cannot be read off these rows.</p>'
    inputs = "".join(
        f'<div class="slider"><label for="in-{s.name}">{s.label}</label>'
        f'<output id="out-{s.name}" for="in-{s.name}"></output>'
        f'<input type="range" id="in-{s.name}" name="{s.name}" min="0" max="{s.most}" step="1" '
        f'value="{places[s.name]}"></div>'
        for s in SLIDERS[key]
        if has_ood or s.name not in _NEED_OOD
    )
    return (
        f'<div class="sliders" data-mode="{key}"{"" if shown else " hidden"}>{inputs}{hint}</div>'
    )


def _number_rows(report: Report, has_ood: bool, held: bool) -> str:
    loss = "wrong among accepted ID" if report.zero_one else "loss of accepted ID"
    rows = {"tpr": "TPR", "fpr": "FPR"}
    named = report.ood_sets != (POOLED_NAME,)
    if named and report.explorer.held_out is not None:
        # Held-out rows may come from other sets, which have no common row in the table.
        named = len(report.explorer.held_out.totals.ood) == len(report.ood_sets)
    if named:
        rows |= {f"set{i}": f"FPR of {name(s)}" for i, s in enumerate(report.ood_sets)}
    rows |= {
        "risk": "selective risk",
        "precision": "precision",
        "cost": "expected cost",
        "accepted-id": "ID accepted",
        "rejected-id": "ID rejected",
        "accepted-ood": "OOD accepted",
        "rejected-ood": "OOD rejected",
        "accepted-loss": loss,
    }
    if not has_ood:
        rows = {k: v for k, v in rows.items() if "ood" not in k and k not in ("fpr", "set0")}
    columns = ["tuned", "held"] if held else ["tuned"]
    return "\n".join(
        f'<tr id="row-{key}"><th scope="row">{label}</th>'
        + "".join(f'<td id="{key}-{column}"></td>' for column in columns)
        + "</tr>"
        for key, label in rows.items()
    )


def _plots(report: Report, has_ood: bool) -> list[str]:
    two = len(report.rule.direction) == 2
    sizes = report.scatter.sizes
    titles = ("ID, correct", "ID, wrong")
    if not report.zero_one:
        titles = ("ID, loss up to the median", "ID, loss above it")
    groups = [*titles, "OOD"] if has_ood else [*titles]
    symbols = _MARKS if report.scatter.points else _AREAS
    legend = "".join(
        _legend(symbols[g], f"{title} ({sizes[g]:,})") for g, title in enumerate(groups)
    )
    seen = _legend('<path class="curve" d="M0 6h16"/>', "tuning rows")
    if report.explorer.held_out is not None:
        seen += _legend('<path class="curve held" d="M0 6h16"/>', "same rules, held-out rows")
    plane = "The scores, and what the rule accepts" if two else "The score, and what is accepted"
    of_set = " of the worst set" if report.explorer.worst else ""
    plots = [
        _figure("plane", plane, legend, wide=True),
        _figure("roc", "ROC", f"Largest TPR for each FPR{of_set}. {seen}"),
        _figure("pr", "Precision and recall", "Largest precision for each recall, at the prior."),
        _figure(
            "risk",
            "Risk and coverage",
            "Least selective risk for each coverage at the FPR bound, or at the FPR of the rule."
            if has_ood
            else "Least selective risk for each coverage.",
        ),
    ]
    if has_ood:
        surface = _figure(
            "surface",
            "Selective risk for every pair of bounds",
            "Hatched: no rule meets the bounds. Click or drag to choose; the sliders do the same.",
            wide=True,
        )
        return [surface, *plots]
    return [plots[0], plots[3].replace("<figure>", '<figure class="wide">')]


def _figure(key: str, title: str, text: str, *, wide: bool = False) -> str:
    kind = ' class="wide"' if wide else ""
    return (
        f'<figure{kind}><p class="plot-title">{title}</p><div class="frame">'
        f'<svg id="plot-{key}" role="img" aria-label="{escape(title)}. The numbers of the shown '
        f'rule are in the table."></svg></div><figcaption>{text}</figcaption></figure>'
    )


def _legend(symbol: str, text: str) -> str:
    return f'<span class="legend"><svg viewBox="0 0 16 12">{symbol}</svg>{text}</span>'


_MARKS = (
    '<path class="points g0" d="M8 6h0"/>',
    '<path class="points g1" d="M5.4 3.4l5.2 5.2m0-5.2l-5.2 5.2"/>',
    '<path class="points g2" d="M8 3l2.7 4.8h-5.4z"/>',
)
_AREAS = tuple(
    f'<rect class="histogram g{g}" x="1" y="2" width="14" height="8"/>' for g in range(3)
)
