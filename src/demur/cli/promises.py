"""What `demur report` finds out about a rule beyond looking at it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import click

from demur.cli.deployed import read_scores
from demur.cli.guarantee import tune_promised
from demur.cli.options import Chance, Command, Number, gathered, option
from demur.cli.resampling import ResamplingOptions, folds_option
from demur.cli.search import SearchOptions
from demur.core.program import Number as Bound
from demur.core.sample import Sample
from demur.guarantees.prior import PriorEstimate, estimate_prior
from demur.guarantees.splits import Groups
from demur.report.promises import PromiseEvidence
from demur.tuning.result import Tuning


@dataclass(frozen=True, slots=True)
class PromiseOptions:
    """What is to be found out."""

    folds: int
    guarantee: Bound | None
    prior_range: tuple[Bound, Bound] | None
    deployed: str | None

    def check(self, search: SearchOptions, resampling: ResamplingOptions, *, held: bool) -> None:
        """Refuse what does not go together, before the work begins."""
        if self.deployed is not None and not held:
            raise click.UsageError("--deployed needs --holdout: rows that tell the TPR and FPR")
        if search.fpr_of == "worst" and (resampling.replicates or self.guarantee is not None):
            raise click.UsageError("--replicates and --guarantee are about all OOD rows together")

    def evidence(
        self,
        tuning: Tuning,
        train: Sample,
        test: Sample | None,
        *,
        resampling: ResamplingOptions,
        search: SearchOptions,
        seed: int,
        max_loss: Bound | None,
        columns: tuple[Sequence[str], Sequence[str]],
        groups: Groups | None = None,
    ) -> PromiseEvidence:
        """Return what was asked for.

        `columns` are the scores in a file and those to flip, `groups` the ids of `train`.
        """
        # A bound on every OOD set cannot be cross-validated as one on all of them.
        folds = 0 if search.fpr_of == "worst" else self.folds
        cross = resampling.cross(
            train, tuning.model, folds=folds, search=search, seed=seed, groups=groups
        )
        guaranteed = None
        if self.guarantee is not None:
            guaranteed = tune_promised(
                train, tuning.model, self.guarantee, search=search, seed=seed, max_loss=max_loss
            )
        return PromiseEvidence(
            cross=cross,
            bootstrap=resampling.bootstrap(train, tuning.model, search=search, seed=seed),
            guaranteed=guaranteed,
            prior_range=self.prior_range,
            prior_estimate=self._prior(tuning, test, columns, float(resampling.level)),
        )

    def _prior(
        self,
        tuning: Tuning,
        test: Sample | None,
        columns: tuple[Sequence[str], Sequence[str]],
        confidence: float,
    ) -> PriorEstimate | None:
        if self.deployed is None or test is None:
            return None
        scores = read_scores(self.deployed, *columns)
        return estimate_prior(tuning.rule, scores, validation=test, confidence=confidence)


def promise_options() -> Callable[[Command], Command]:
    """Return a decorator that adds the options as `promise`."""
    add = option("Honest numbers")
    return gathered(
        "promise",
        PromiseOptions,
        [
            folds_option,
            add(
                "--guarantee",
                type=Chance(),
                metavar="CONFIDENCE",
                help="Add a rule whose bounds hold in the population with this chance, such as "
                ".95, or how many rows that would take.",
            ),
            add(
                "--prior-range",
                type=Number(),
                nargs=2,
                metavar="LOW HIGH",
                help="State precision and cost over all shares of OOD inputs between these.",
            ),
            add(
                "--deployed",
                type=click.Path(),
                metavar="FILE",
                help="Scores of inputs in use, without labels: estimate the share of OOD among "
                "them; needs --holdout.",
            ),
        ],
    )
