"""Reports, and results of `demur.guarantees`, as plain data for scripts and pages."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import demur
from demur.core.rule import Rule
from demur.core.wording import rule_text
from demur.guarantees.certified_tuning import CertifiedTuning
from demur.guarantees.prior import PriorEstimate
from demur.guarantees.resampling.bootstrap import Bootstrap, ResampledRate
from demur.guarantees.resampling.cross import CrossTuning
from demur.report.explorer import Counts, Explorer
from demur.report.page_data import strict

if TYPE_CHECKING:
    from demur.report.report import Report


def report_data(report: Report) -> dict[str, Any]:
    """Return a report as nested dicts, lists, numbers and texts."""
    data: dict[str, Any] = {
        "demur": demur.__version__,
        "title": report.title,
        "decision": report.decision,
        "evidence": report.evidence,
        "rule": rule_data(report.rule) | {"text": rule_text(report.rule)},
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
        "accepted_share": found.accepted_share,
        "confidence": found.confidence,
        "consistent": found.consistent,
    }


def rule_data(rule: Rule) -> dict[str, Any]:
    """Return a rule as `Rule.save` writes it."""
    data: dict[str, Any] = json.loads(rule.to_json())
    return data
