"""Options for estimates that tune the rule again and again, and how to run them with progress."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import click

from demur.cli.options import Chance, Command, gathered, option
from demur.cli.progress import Progress
from demur.cli.search import SearchOptions
from demur.core.models import RejectionModel
from demur.core.program import Number as Bound
from demur.core.sample import Sample
from demur.guarantees.resampling.bootstrap import Bootstrap, bootstrap
from demur.guarantees.resampling.cross import CrossTuning, cross_tune
from demur.guarantees.resampling.replicates import Progress as Report
from demur.guarantees.splits import Groups


@dataclass(frozen=True, slots=True)
class ResamplingOptions:
    """How often to tune anew, and with what."""

    replicates: int
    level: Bound
    workers: int | None

    def cross(
        self,
        sample: Sample,
        model: RejectionModel,
        *,
        folds: int,
        search: SearchOptions,
        seed: int,
        groups: Groups | None = None,
    ) -> CrossTuning | None:
        """Return the cross-validated tuning, if one was asked for."""
        if not folds:
            return None
        with counted("cross-validating", folds, unit="folds") as done:
            return cross_tune(
                sample,
                model,
                folds=folds,
                groups=groups,
                rng=seed,
                workers=self.threads,
                progress=done,
                directions=search.directions,
                search=search.search,
            )

    def bootstrap(
        self, sample: Sample, model: RejectionModel, *, search: SearchOptions, seed: int
    ) -> Bootstrap | None:
        """Return the bootstrap, if one was asked for."""
        if not self.replicates:
            return None
        with counted("tuning anew", self.replicates, unit="replicates") as done:
            return bootstrap(
                sample,
                model,
                replicates=self.replicates,
                confidence=float(self.level),
                rng=seed,
                workers=self.threads,
                progress=done,
                directions=search.directions,
                search=search.search,
            )

    @property
    def threads(self) -> int:
        """The number of threads; by default one for each processor."""
        return self.workers or os.cpu_count() or 1


_add = option("Honest numbers")
folds_option = _add(
    "--folds",
    type=click.IntRange(0),
    default=5,
    show_default=True,
    help="Cross-validate with so many folds; 0: do not.",
)


def resampling_options(replicates: int, what: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the options as `resampling`."""
    return gathered(
        "resampling",
        ResamplingOptions,
        [
            _add(
                "--replicates",
                type=click.IntRange(0),
                default=replicates,
                show_default=True,
                help=what,
            ),
            _add(
                "--level",
                type=Chance(),
                default="0.95",
                show_default=True,
                help="Confidence of intervals and promises.",
            ),
            _add(
                "--workers",
                type=click.IntRange(1),
                help="Threads to tune in; the numbers do not depend on it. "
                "By default one for each processor.",
            ),
        ],
    )


@contextmanager
def counted(label: str, total: int, *, unit: str) -> Iterator[Report]:
    """Show how many of `total` are done; yields what is to be called after each."""
    with Progress(label, total, unit=unit) as progress:
        yield lambda done, of: progress.advance(1)
