"""The report as plain data."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from demur.report.counts import Counts
from demur.report.explorer import Explorer
from demur.report.wording import model_data, rule_text, strict
from demur.versions import versions

if TYPE_CHECKING:
    from demur.report.report import Report


def plain(report: Report) -> dict[str, Any]:
    """Return nested dicts, lists, numbers and texts."""
    data: dict[str, Any] = {
        "demur": versions()["demur"],
        "title": report.title,
        "decision": report.decision,
        "evidence": report.evidence,
        "rule": json.loads(report.rule.to_json()) | {"text": rule_text(report.rule)},
        "model": model_data(report.model),
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
        "explorer": _explorer(report.explorer),
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
    }


def _counts(counts: Counts) -> dict[str, Any]:
    totals = counts.totals
    return {
        "accepted_id": [totals.id_weight(mass) for mass in counts.id.tolist()],
        "accepted_ood": [totals.ood_weight(mass) for mass in counts.ood.tolist()],
        "accepted_loss": [totals.loss_sum(mass) for mass in counts.loss.tolist()],
    }
