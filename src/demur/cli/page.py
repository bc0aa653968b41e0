"""The page about a tuned rule, which `demur report` and `demur tune --report` write."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import click

from demur._arrays import BoolArray
from demur.cli.inputs import DataOptions, ScoreTable, read_deployed
from demur.cli.options import Chance, Command, Number, SearchOptions, gathered, option
from demur.cli.output import Progress, save_file
from demur.cli.resampling import HoldoutOptions, ResamplingOptions, folds_option, tune_promised
from demur.core.program import Number as Bound
from demur.core.sample import Sample
from demur.guarantees.prior import PriorEstimate, estimate_prior
from demur.guarantees.splits import Groups
from demur.report import Report
from demur.report.promises import PromiseEvidence
from demur.tuning.result import Tuning

Methods = Mapping[str, Sample | tuple[Sample, Sample]]


@dataclass(frozen=True, slots=True)
class PageContents:
    """What the page shows beside the rule; by default nothing."""

    title: str = "When to answer"
    level: float = 0.95
    max_loss: Bound | None = None
    evidence: PromiseEvidence | None = None
    methods: Methods | None = None
    ids: Groups | None = None
    command: str | None = None


def write_page(
    rows: ScoreTable,
    held: BoolArray | None,
    tuning: Tuning,
    *,
    search: SearchOptions,
    contents: PageContents,
    path: str | None,
) -> Report:
    """Report on a rule tuned on the rows not held out; write the page if there is a `path`."""
    train, test = rows.split(rows.tuned_scores, held)
    evidence = contents.evidence or PromiseEvidence()
    with Progress("writing the report"):
        report = Report.of(
            train,
            tuning,
            held_out=test,
            methods=contents.methods,
            ids=contents.ids,
            title=contents.title,
            confidence=contents.level,
            max_loss=contents.max_loss,
            directions=search.allowed,
            search=search.search,
            command=contents.command,
            cross=evidence.cross,
            bootstrap=evidence.bootstrap,
            guaranteed=evidence.guaranteed,
            prior_range=evidence.prior_range,
            prior_estimate=evidence.prior_estimate,
        )
        save_file(path, report.to_html)
    return report


def methods(rows: ScoreTable, held: BoolArray | None) -> Methods | None:
    """Return the tuned score or pair, its parts, and what else is to be compared."""
    first = rows.scores[0]
    wanted = dict.fromkeys([*((name,) for name in first), first, *rows.scores[1:]])
    found: dict[str, Sample | tuple[Sample, Sample]] = {}
    for names in wanted:
        train, test = rows.split(names, held)
        found[" + ".join(names)] = train if test is None else (train, test)
    return found if len(found) > 1 else None


def command_line(
    data: DataOptions, names: Sequence[str], confidence: Sequence[str], split: HoldoutOptions
) -> str:
    """Return the command that tunes on the same rows, up to the bounds."""
    given = {
        "--scores": ",".join(names),
        "--confidence": ",".join(confidence),
        "--loss": data.loss,
        "--correct": data.correct,
        "--label": data.label,
        "--prediction": data.prediction,
        "--loss-function": None if data.loss_function == "zero_one" else data.loss_function,
        "--ood": data.ood,
        "--weight": data.weight,
        "--openood-id": data.openood_id,
        "--openood-ood": ",".join(data.openood_ood or ()),
        "--holdout": None if split.holdout is None else str(split.holdout),
        "--seed": str(split.seed) if split.holdout is not None and split.seed else None,
        "--id": split.group if split.holdout is not None else None,
    }
    words = ["demur", "tune", *([data.data] if data.data else [])]
    for path in data.openood:
        words += ["--openood", path]
    for name, value in given.items():
        words += [name, value] if value else []
    return shlex.join(words)


@dataclass(frozen=True, slots=True)
class PromiseOptions:
    """What is to be found out about a rule beyond looking at it."""

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
        names: Sequence[str],
        groups: Groups | None = None,
    ) -> PromiseEvidence:
        """Return what was asked for.

        `names` are the scores in a file, `groups` the ids of `train`.
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
            prior_estimate=self._prior(tuning, test, names, float(resampling.level)),
        )

    def _prior(
        self,
        tuning: Tuning,
        test: Sample | None,
        names: Sequence[str],
        confidence: float,
    ) -> PriorEstimate | None:
        if self.deployed is None or test is None:
            return None
        scores = read_deployed(self.deployed, names)
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
