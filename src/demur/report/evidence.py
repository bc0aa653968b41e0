"""Results of `demur.guarantees` as plain data, for pages and scripts."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from demur.core.rule import Rule
from demur.guarantees.certified_tuning import CertifiedTuning
from demur.guarantees.prior import PriorEstimate
from demur.guarantees.resampling.bootstrap import Bootstrap, ResampledRate
from demur.guarantees.resampling.cross import CrossTuning


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
