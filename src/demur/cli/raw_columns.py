"""Rules for columns as they are in the file, where confidences have not been flipped."""

from __future__ import annotations

from dataclasses import replace

from demur.cli.search import SearchOptions
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.guarantees.certified_tuning import CertifiedTuning
from demur.guarantees.operating_tables import OperatingTable, operating_table
from demur.guarantees.resampling.cross import CrossTuning


def on_raw_columns(rule: Rule, confidence: tuple[str, ...]) -> Rule:
    """Return the same rule for columns whose confidences have not been flipped."""
    signs = _signs(rule.score_names, confidence)
    # Adding zero turns -0.0 into 0.0.
    direction = tuple(
        sign * weight + 0.0 for weight, sign in zip(rule.direction, signs, strict=True)
    )
    return Rule(direction, rule.threshold, rule.tau, rule.score_names)


def promise_on_raw_columns(
    promised: CertifiedTuning, confidence: tuple[str, ...]
) -> CertifiedTuning:
    """Return the same promise with its rules for the columns as they are."""
    candidates = tuple(
        replace(candidate, rule=on_raw_columns(candidate.rule, confidence))
        for candidate in promised.candidates
    )
    rule = on_raw_columns(promised.rule, confidence)
    return replace(promised, rule=rule, candidates=candidates)


def folds_on_raw_columns(cross: CrossTuning, confidence: tuple[str, ...]) -> CrossTuning:
    """Return the same folds with their rules for the columns as they are."""
    folds = tuple(
        replace(fold, rule=None if fold.rule is None else on_raw_columns(fold.rule, confidence))
        for fold in cross.folds
    )
    return replace(cross, folds=folds)


def counts_on_raw_columns(
    sample: Sample, confidence: tuple[str, ...], search: SearchOptions
) -> OperatingTable:
    """Return operating points to tune from, with rules for the columns as they are."""
    table = operating_table(sample, directions=search.allowed, search=search.search)
    signs = _signs(table.score_names, confidence)
    return replace(table, directions=table.directions * signs + 0.0)


def _signs(names: tuple[str, ...] | None, confidence: tuple[str, ...]) -> list[float]:
    return [-1.0 if name in confidence else 1.0 for name in names or ()]
