"""What the script of the page needs: rules and counts, what to start with, and the rows drawn."""

from __future__ import annotations

import base64
import json
import shlex
from decimal import Decimal, Inexact, localcontext
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from demur.core.models import Quantity, RejectionModel
from demur.core.program import Number, exact
from demur.core.rule import FORMAT, VERSION, Rule
from demur.core.sql import Dialect, predicate
from demur.core.wording import command_options, score_titles, strict
from demur.errors import InvalidInputError
from demur.report.choices import DrawnRows
from demur.report.explorer import Counts

if TYPE_CHECKING:
    from demur.report.report import Report

# Inside a script element only "<" could end or comment it; the others cost little.
_INERT = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026"}


class Control(NamedTuple):
    """A box to type a number into, and a slider beside it."""

    name: str
    label: str
    is_share: bool = True


_CONTROLS = {
    ("tprfpr",): (Control("tpr", "Accept at least this share of ID (min TPR)"),),
    ("risk",): (Control("risk", "Accept as much ID as this allows (max selective risk)"),),
    ("tprfpr", "risk"): (Control("fpr", "Accept at most this share of OOD (max FPR)"),),
    ("pr",): (
        Control("precision", "Least share of ID among accepted (min precision)"),
        Control("recall", "Accept at least this share of ID (min recall)"),
    ),
    ("cost",): (
        Control("reject_id", "Cost of rejecting an ID input", False),
        Control("accept_ood", "Cost of accepting an OOD input", False),
        Control("reject_ood", "Cost of rejecting an OOD input", False),
    ),
    ("tprfpr", "risk", "pr", "cost"): (Control("prior", "Share of OOD inputs in use (prior)"),),
}
"""What can be typed, by the kinds of bounds that it belongs to."""
_QUANTITIES: dict[str, Quantity] = {
    "tpr": "tpr",
    "recall": "tpr",
    "fpr": "fpr",
    "precision": "precision",
    "risk": "selective_risk",
}
_MODES = {"tprfpr": "TPR, FPR", "risk": "Risk, FPR", "pr": "Precision, recall", "cost": "Costs"}
_NEED_OOD = ("fpr", "accept_ood", "reject_ood", "prior")
DIALECTS: dict[Dialect, str] = {
    "duckdb": "DuckDB",
    "spark": "Spark",
    "postgres": "Postgres",
    "bigquery": "BigQuery",
    "snowflake": "Snowflake",
    "trino": "Trino",
}
"""Titles of the dialects of SQL."""
# Numbers that no rule has: the script puts those of a rule in their place.
_WEIGHTS, _THRESHOLD = (1.5e101, 1.5e102), 1.5e103


def page_data(report: Report) -> dict[str, Any]:
    """Return plain data, arrays packed."""
    explorer, rule = report.explorer, report.rule
    return {
        "scores": list(score_titles(rule)),
        "named": rule.score_names is not None,
        "confidence": list(rule.confidence),
        "zeroOne": report.zero_one,
        "hasOod": explorer.has_ood,
        "exact": explorer.exact,
        "complete": explorer.complete,
        "bracketed": explorer.binned is None,
        "widest": explorer.widest,
        "unmet": report.unmet is not None,
        "about": _about(report),
        "guarantee": report.guarantee,
        "mode": first_mode(report),
        "modes": list(modes(report)),
        "asked": _asked_texts(report),
        "start": start(report),
        "fine": Decimal(start(report).get("fpr", "1")) < Decimal("0.05"),
        "largestCost": explorer.max_reject_cost,
        "command": report.command,
        "arguments": report.arguments,
        "file": {"format": FORMAT, "version": VERSION},
        "card": _card(report),
        "sql": None if report.learned is not None else sql_templates(rule),
        "learned": None if report.learned is None else report.learned.beside_rule(),
        "rules": {
            "lines": [packed(column) for column in explorer.lines.T],
            "digits": packed(explorer.digits.astype(np.uint8)),
            "tuned": _counts(explorer.tuned),
            "held": None if explorer.held_out is None else _counts(explorer.held_out),
            "start": explorer.start,
            "optimum": report.is_choice,
            "worst": explorer.worst,
        },
        "rows": _rows(report.rows),
    }


def _card(report: Report) -> dict[str, Any] | None:
    """Return the rule's card; when it was made, those who download it say."""
    card = report.rule.card
    if card is None or not report.is_optimum:
        return None
    return {name: entry for name, entry in card.to_data().items() if name != "created"}


def _rows(rows: DrawnRows) -> dict[str, Any]:
    return {
        "view": rows.view.tolist(),
        "knots": [knots.tolist() for knots in rows.knots],
        "crowded": rows.crowded,
        "points": [packed(group) for group in rows.points],
        "names": [list(names) for names in rows.names],
        "groups": list(rows.groups),
        "sizes": list(rows.sizes),
        "density": _packed_all(rows.density),
        "histogram": _packed_all(rows.histogram),
    }


def _packed_all(counts: Any) -> dict[str, Any] | None:
    if counts is None:
        return None
    return {kind: [packed(group) for group in groups] for kind, groups in counts.items()}


def _about(report: Report) -> str:
    if report.unmet is not None:
        return "It comes nearest to the bounds asked for, which no rule meets."
    if not report.is_optimum:
        return "It was tuned with a guarantee, so it keeps a distance from its bounds."
    return f"Asked for: {report.asked}."


def sql_templates(rule: Rule) -> dict[str, Any] | None:
    """Return the rule's predicate in each dialect, with marks in the place of its numbers."""
    names, count = rule.score_names, len(rule.direction)
    if names is None:
        return None
    patterns = {"1": (1,)} if count == 1 else {"11": (1, 1), "10": (1, 0), "01": (0, 1)}
    found: dict[str, Any] = {}
    for dialect in DIALECTS:
        try:
            texts = {
                pattern: predicate(
                    names,
                    [w * used for w, used in zip(_WEIGHTS[:count], uses, strict=True)],
                    _THRESHOLD,
                    accept_boundary=True,
                    dialect=dialect,
                )
                for pattern, uses in patterns.items()
            }
        except InvalidInputError:
            return None
        weights = [f"{weight:.1e}" for weight in _WEIGHTS[:count]]
        found[dialect] = {"texts": texts, "weights": weights, "threshold": f"{_THRESHOLD:.1e}"}
    return found


def modes(report: Report) -> dict[str, str]:
    """Return the kinds of bounds that the page offers, with their titles."""
    if not report.explorer.has_ood:
        return {"tprfpr": "TPR", "risk": "Risk", "cost": "Costs"}
    if report.explorer.worst:
        # A cost weighs all OOD rows together.
        return {mode: title for mode, title in _MODES.items() if mode != "cost"}
    return _MODES


def controls(report: Report) -> dict[tuple[str, ...], list[Control]]:
    """Return what can be typed, by the kinds of bounds that it belongs to."""
    has_ood, offered = report.explorer.has_ood, modes(report)
    found = {}
    for used, group in _CONTROLS.items():
        shown = [_worded(one, report) for one in group if has_ood or one.name not in _NEED_OOD]
        if shown and any(mode in offered for mode in used):
            found[used] = shown
    return found


def _worded(one: Control, report: Report) -> Control:
    """Return a control in the words of the rows: whose OOD rows, which kind of loss."""
    if one.name == "risk":
        return one._replace(is_share=report.zero_one)
    if not report.explorer.worst:
        return one
    label = one.label.replace("this share of OOD (", "this share of every OOD set (")
    label = label.replace(" (min precision", ", against every OOD set (min precision")
    return one._replace(label=label)


def stated_mode(model: RejectionModel) -> str | None:
    """Return the kind of bounds in which a model can be stated, None if there is none."""
    bounds = model.asked
    asked = sorted(bound.quantity for bound in bounds)
    if any(bound.is_of_part for bound in bounds) or len(set(asked)) < len(asked):
        return None
    if model.cost is not None:
        return None if asked else "cost"
    kinds = {
        ("selective_risk", ("fpr", "tpr")): "tprfpr",
        ("selective_risk", ("tpr",)): "tprfpr",
        ("selective_risk", ("precision", "tpr")): "pr",
        ("tpr", ("fpr", "selective_risk")): "risk",
        ("tpr", ("selective_risk",)): "risk",
    }
    return kinds.get((str(model.objective), tuple(asked)))


def first_mode(report: Report) -> str:
    """Return which kind of bounds the page starts with."""
    found = stated_mode(report.model)
    if found in modes(report):
        return str(found)
    if report.model.cost is not None:
        return "cost"
    precise = report.model.bound("precision") is not None and report.explorer.has_ood
    return "pr" if precise else "tprfpr"


def beside(report: Report) -> str | None:
    """Return what to say where the other rules of the page are not asked all that this one is."""
    if stated_mode(report.model) in modes(report):
        return None
    return (
        f"The rule of this page was asked for {report.asked}; the other rules shown here are "
        "asked only for what the sliders say."
    )


def _asked_texts(report: Report) -> list[str] | None:
    """Return the model as options and as Python, where no sliders can say it."""
    if beside(report) is None:
        return None
    return [shlex.join(command_options(report.model)), _model_code(report.model)]


def _model_code(model: RejectionModel) -> str:
    """Return a model as Python code of those who have demur as dm."""
    bounds = ", ".join(f"dm.{bound!r}" for bound in model.bounds)
    objective = repr(model.objective) if model.cost is None else f"dm.{model.cost!r}"
    prior = "" if model.ood_prior is None else f", ood_prior={model.ood_prior!r}"
    return f"dm.RejectionModel({objective}, [{bounds}]{prior})"


def start(report: Report) -> dict[str, str]:
    """Return what the page starts with, as decimals: what the model asks for, where it does."""
    model, largest = report.model, report.explorer.max_reject_cost
    recall = f"{np.floor(100 * report.tuned.point.tpr) / 100:.2f}"
    if recall == "0.00":
        recall = "0.80"
    found = {
        "tpr": recall,
        "fpr": "0.1",
        "precision": "0.9",
        "recall": recall,
        "risk": _round_risk(report),
        "reject_id": decimal_text(0.1 * largest),
        "accept_ood": decimal_text(largest),
        "reject_ood": "0",
        "prior": f"{_share_of_ood(report):.4f}",
    }
    asked = {bound.quantity: bound for bound in reversed(model.bounds) if not bound.is_of_part}
    for name, quantity in _QUANTITIES.items():
        if quantity in asked:
            found[name] = decimal_text(asked[quantity].value)
    if model.cost is not None:
        for name in ("reject_id", "accept_ood", "reject_ood"):
            found[name] = decimal_text(getattr(model.cost, name))
    if model.ood_prior is not None:
        found["prior"] = decimal_text(model.ood_prior)
    if not report.explorer.has_ood:
        found = {name: text for name, text in found.items() if name not in _NEED_OOD}
    return found


def _round_risk(report: Report) -> str:
    """Return a risk a little above that of the rule, with two digits."""
    risk = report.tuned.point.selective_risk
    if not risk > 0:
        return decimal_text(0.1 * report.explorer.max_reject_cost)
    unit = 10.0 ** (np.floor(np.log10(risk)) - 1)
    return decimal_text(float(f"{np.ceil(risk / unit) * unit:.2g}"))


def decimal_text(value: Number) -> str:
    """Return a number as the decimal it stands for, without an exponent.

    Examples
    --------
    >>> decimal_text(0.005), decimal_text(1e-05), decimal_text(20)
    ('0.005', '0.00001', '20')
    """
    share = exact("value", value)
    with localcontext(prec=60) as context:
        context.clear_flags()
        number = Decimal(share.numerator) / share.denominator
        if context.flags[Inexact]:
            number = Decimal(repr(float(share)))
    text = f"{number:f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def _share_of_ood(report: Report) -> float:
    totals = report.explorer.tuned.totals
    id_, ood = totals.id_weight(totals.id), totals.ood_weight(sum(totals.ood))
    return min(0.9999, ood / (id_ + ood))


def _counts(counts: Counts) -> dict[str, Any]:
    """Return masses in whole units, and what a unit weighs."""
    totals = counts.totals
    return {
        "id": packed(counts.id),
        "loss": packed(counts.loss),
        "sets": [packed(row) for row in counts.ood_sets],
        "totals": {"id": totals.id, "loss": totals.loss, "sets": list(totals.ood)},
        "exponents": {
            "id": totals.id_exponent,
            "ood": totals.ood_exponent,
            "loss": totals.loss_exponent,
        },
        "rounding": {
            "id": totals.id_rounding,
            "ood": totals.ood_rounding,
            "loss": totals.loss_rounding,
        },
    }


def page_json(data: dict[str, Any]) -> str:
    """Return JSON for a script element of type application/json."""
    text = json.dumps(strict(data), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    for character, escape in _INERT.items():
        text = text.replace(character, escape)
    return text


def packed(array: npt.ArrayLike) -> dict[str, str]:
    """Return an array as base64: bytes, whole numbers in 32 bits where they fit, else floats."""
    values = np.asarray(array).ravel()
    with np.errstate(invalid="ignore"):
        whole = bool(np.isfinite(values).all() and (values == np.floor(values)).all())
    if values.dtype == np.uint8:
        kind, stored = "u1", values
    elif whole and (len(values) == 0 or -(2**31) <= values.min() <= values.max() < 2**31):
        kind, stored = "i4", values.astype("<i4")
    else:
        kind, stored = "f8", values.astype("<f8")
    return {"type": kind, "data": base64.b64encode(stored.tobytes()).decode("ascii")}
