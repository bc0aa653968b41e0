"""The rows to tune on and those held out, with their scores learned if that was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from demur._arrays import BoolArray
from demur.cli.inputs import ScoreTable
from demur.cli.output import Progress
from demur.cli.resampling import HoldoutOptions
from demur.core.models import RejectionModel
from demur.core.rule import Rule
from demur.core.sample import Sample

if TYPE_CHECKING:
    from demur.guarantees.splits import Groups
    from demur.learn import Learned


@dataclass(frozen=True, slots=True)
class TuningRows:
    """Rows to tune on and rows held out, with the scores that the rule will be about."""

    names: tuple[str, ...]
    """Columns of the scores in the file."""
    train: Sample
    test: Sample | None
    ids: Groups | None
    """Of the rows to tune on."""
    test_ids: Groups | None
    learned: Learned | None = None
    """What made the scores of these rows, if they are learned."""

    def file(self, rule: Rule) -> str:
        """Return the text of the file that holds the rule, with its scores if they are learned."""
        if self.learned is None:
            return rule.to_json()
        return self.learned.rule(rule, fresh=self.test).to_json()

    def described(self) -> dict[str, Any]:
        """Return, for --json, how the scores were learned."""
        if self.learned is None:
            return {}
        return {"learned": {"method": self.learned.method, "scores": list(self.names)}}


def learned_rows(
    rows: ScoreTable,
    held: BoolArray | None,
    split: HoldoutOptions,
    method: str,
    model: RejectionModel,
    *,
    apart: bool,
) -> TuningRows:
    """Learn two scores from many.

    Rows are tuned on with out-of-fold scores; with `apart`, scores are learned on a half of the
    rows, and the other half, which is as new to them as any later row, is there to tune and prove.
    """
    from demur.learn import fit

    names = rows.scores[0]
    if len(names) < 2:
        raise click.UsageError("--learn makes one rule of several scores: name them with --scores")
    every = np.ones(len(rows.columns[names[0]]), np.bool_)
    seen = every if held is None else ~held
    taught = split.half(rows, seen) if apart else seen
    raw = rows.raw_sample(names, taught)
    with Progress(f"learning from {len(names)} scores of {raw.n_id + raw.n_ood:,} rows"):
        learned = fit(
            raw,
            method,  # type: ignore[arg-type]
            model=model,
            groups=rows.ids(split.group, ~taught),
            rng=split.seed,
        )
    tuned = seen & ~taught if apart else seen
    return TuningRows(
        names,
        learned.sample_of(rows.raw_sample(names, tuned)) if apart else learned.sample,
        None if held is None else learned.sample_of(rows.raw_sample(names, held)),
        rows.ids(split.group, ~tuned),
        None if held is None else rows.ids(split.group, ~held),
        learned,
    )
