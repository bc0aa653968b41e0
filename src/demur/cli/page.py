"""The page that `demur tune --report` writes."""

from __future__ import annotations

from dataclasses import replace

from demur._arrays import BoolArray
from demur.cli.holdout import samples
from demur.cli.inputs import Rows
from demur.cli.progress import Progress
from demur.cli.search import SearchOptions
from demur.core.program import Number
from demur.errors import InfeasibleError
from demur.guarantees.certified_tuning import CertifiedTuning
from demur.report.report import Report
from demur.tuning.result import Tuning


def page_of(
    rows: Rows,
    held: BoolArray | None,
    tuned: Tuning,
    *,
    promised: CertifiedTuning | InfeasibleError | None,
    max_loss: Number | None,
    search: SearchOptions,
) -> Report:
    """Return the report on the tuned rule, with the promise of another one if asked for."""
    doubts = rows.as_doubts()
    names = doubts.scores[0]
    train, test = samples(doubts, names, held)
    # The rules were tuned on flipped confidences; on the page those have names of their own.
    rule = replace(tuned.rule, score_names=names)
    if isinstance(promised, CertifiedTuning):
        promised = replace(promised, rule=replace(promised.rule, score_names=names))
    with Progress("writing the report"):
        return Report.of(
            train,
            replace(tuned, rule=rule),
            held_out=test,
            max_loss=max_loss,
            directions=search.allowed,
            search=search.search,
            guaranteed=promised,
        )
