"""Reports, and results of `demur.guarantees`, as plain text and as plain data."""

from __future__ import annotations

import textwrap
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from demur.core.rule import rule_data
from demur.core.wording import (
    PERCENT_SIGN,
    amount,
    number,
    outwards,
    percent,
    range_text,
    rule_text,
    strict,
)
from demur.guarantees.bootstrapping import Bootstrap, ResampledRate
from demur.guarantees.certified_tuning import CertifiedTuning
from demur.guarantees.prior import PriorEstimate
from demur.guarantees.retuning import CrossTuning
from demur.report.comparison import MethodComparison
from demur.report.explorer import Counts, Explorer
from demur.report.summary import rate_title

if TYPE_CHECKING:
    from demur.report.promises import Promises
    from demur.report.report import Report

_WIDTH = 98


def report_text(report: Report) -> str:
    """Return the decision, the numbers, the cautions and the comparison of a report."""
    digits = int(report.explorer.digits[report.explorer.start])
    parts = [
        report.title,
        _wrapped(f"{report.verdict.title}. {report.verdict.text}"),
        _wrapped(f"{report.decision} {report.evidence}"),
        f"Accept when {rule_text(report.rule, digits)}\n({report.asked})",
        _wrapped(report.about_scores),
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
        rows.append([rate_title(key, worst=report.explorer.worst), *cells])
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
                best = block.standing.best.get(metric.name) == method
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


def report_data(report: Report) -> dict[str, Any]:
    """Return a report as nested dicts, lists, numbers and texts."""
    from importlib.metadata import version

    digits = int(report.explorer.digits[report.explorer.start])
    data: dict[str, Any] = {
        "demur": version("demur"),
        "title": report.title,
        "verdict": {"state": report.verdict.state, "text": report.verdict.text},
        "decision": report.decision,
        "evidence": report.evidence,
        "rule": rule_data(report.rule) | {"text": rule_text(report.rule, digits)},
        "scores": report.about_scores or None,
        "model": report.model.to_data(),
        "certificate": asdict(report.certificate),
        "confidence": report.confidence,
        "tuned": report.tuned.as_dict(),
        "held_out": None if report.held_out is None else report.held_out.as_dict(),
        "promises": report.promises.as_dict(),
        "bounds": [bound.text for bound in report.bounds],
        "cautions": [asdict(caution) for caution in report.cautions],
        "comparison": None if report.comparison is None else report.comparison.as_dict(),
        "doubtful": None if report.doubtful is None else asdict(report.doubtful),
        "command": report.command,
        "explorer": None if report.is_box else _explorer(report.explorer),
    }
    result: dict[str, Any] = strict(data)
    return result


def _explorer(explorer: Explorer) -> dict[str, Any]:
    return {
        "rules": explorer.lines.tolist(),
        "tuned": _counts(explorer.tuned),
        "held_out": None if explorer.held_out is None else _counts(explorer.held_out),
        "cells": explorer.cells.tolist(),
        "start": explorer.start,
        "complete": explorer.complete,
    }


def _counts(counts: Counts) -> dict[str, Any]:
    totals = counts.totals
    return {
        "accepted_id": [totals.id_weight(mass) for mass in counts.id.tolist()],
        "accepted_ood": [totals.ood_weight(mass) for mass in counts.ood.tolist()],
        "accepted_loss": [totals.loss_sum(mass) for mass in counts.loss.tolist()],
    }


def cross_data(cross: CrossTuning) -> dict[str, Any]:
    """Return a cross-validated tuning as plain data."""
    return {
        "folds": [
            {
                "rule": None if fold.rule is None else rule_data(fold.rule),
                "tuned": None if fold.tuned is None else asdict(fold.tuned),
                "held_out": None if fold.held_out is None else asdict(fold.held_out),
            }
            for fold in cross.folds
        ],
        "held_out": None if cross.held_out is None else asdict(cross.held_out),
        "unable": cross.unable,
    }


def bootstrap_data(found: Bootstrap) -> dict[str, Any]:
    """Return a bootstrap as plain data, without the single replicates."""
    return {
        "replicates": found.replicates,
        "unable": found.unable,
        "confidence": found.confidence,
        "measures": {name: measure_data(measure) for name, measure in found.measures.items()},
    }


def measure_data(measure: ResampledRate) -> dict[str, float]:
    """Return one rate of a bootstrap as plain data."""
    return {
        "apparent": measure.apparent,
        "estimate": measure.estimate,
        "optimism": measure.optimism,
        "out_of_bag": measure.held_out,
        "low": measure.interval.low,
        "high": measure.interval.high,
    }


def guarantee_data(found: CertifiedTuning) -> dict[str, Any]:
    """Return a tuning with a guarantee as plain data."""
    return {
        "confidence": found.confidence,
        "selective_risk": found.selective_risk,
        "expected_cost": found.expected_cost,
        "objective": found.objective,
        "method": found.method,
        "rule": rule_data(found.rule),
        "rows": asdict(found.sizes),
        "tested": asdict(found.point),
        "candidates": [
            asdict(candidate) | {"rule": rule_data(candidate.rule)}
            for candidate in found.candidates
        ],
        "caveat": found.caveat,
    }


def prior_data(found: PriorEstimate) -> dict[str, Any]:
    """Return an estimate of the prior as plain data."""
    return {
        "estimate": found.estimate,
        "low": found.interval.low,
        "high": found.interval.high,
        "likely": None if found.likely is None else asdict(found.likely),
        "accepted_share": found.accepted_share,
        "confidence": found.confidence,
        "consistent": found.consistent,
    }


def prior_text(found: PriorEstimate) -> str:
    """Return what unlabelled inputs say about the share of OOD among them."""
    seen = f"Of the unlabelled inputs in use the rule accepted {percent(found.accepted_share)}."
    if not found.consistent:
        return (
            f"{seen} No share of OOD inputs explains that: the inputs are unlike the rows here, "
            "so nothing in this report is sure to hold for them."
        )
    low, high = outwards(100 * found.interval.low, 100 * found.interval.high, 1)
    likely = found.likely
    about = ""
    if likely is not None:
        about = f", approximately {percent(likely.low)} to {percent(likely.high)}"
    return (
        f"{seen} By their scores, between {low}{PERCENT_SIGN} and "
        f"{high}{PERCENT_SIGN} of them are OOD ({100 * found.confidence:g} % "
        f"confidence; best guess {percent(found.estimate)}{about})."
    )
