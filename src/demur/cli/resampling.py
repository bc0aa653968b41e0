"""Rows drawn anew: folds, replicates, and the split behind a guarantee."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import click
import numpy as np

from demur.cli.inputs import ScoreTable
from demur.cli.options import (
    Chance,
    Command,
    gathered,
    option,
)
from demur.cli.output import Progress
from demur.cli.tuning_options import SearchOptions
from demur.core.models import RejectionModel
from demur.core.program import Number as Bound
from demur.core.sample import Sample
from demur.core.source import ScoreSource
from demur.errors import InfeasibleError, InvalidInputError
from demur.tuning.result import Grid

if TYPE_CHECKING:
    from demur.guarantees.bootstrapping import Bootstrap, Comparison
    from demur.guarantees.certified_tuning import CertifiedTuning
    from demur.guarantees.cross_tuning import CrossTuning
    from demur.guarantees.splits import Groups


@dataclass(frozen=True, slots=True)
class ResamplingOptions:
    """How often to tune anew, and with what."""

    replicates: int
    level: Bound
    workers: int | None

    def cross(
        self,
        sample: Sample | ScoreSource,
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
        from demur.guarantees.cross_tuning import cross_tune

        with counted("cross-validating", folds, unit="folds") as done:
            return cross_tune(
                sample,
                model,
                folds=folds,
                groups=groups,
                rng=seed,
                workers=self._threads,
                progress=done,
                directions=search.directions,
                search=search.search,
            )

    def bootstrap(
        self,
        sample: Sample | ScoreSource,
        model: RejectionModel,
        *,
        search: SearchOptions,
        seed: int,
        groups: Groups | None = None,
    ) -> Bootstrap | None:
        """Return the bootstrap, if one was asked for."""
        if not self.replicates:
            return None
        from demur.guarantees.bootstrapping import bootstrap

        with counted("tuning anew", self.replicates, unit="replicates") as done:
            return bootstrap(
                sample,
                model,
                replicates=self.replicates,
                confidence=float(self.level),
                groups=groups,
                rng=seed,
                workers=self._threads,
                progress=done,
                directions=search.directions,
                search=search.search,
            )

    def compare(
        self,
        first: Sample | ScoreSource,
        second: Sample | ScoreSource,
        model: RejectionModel,
        *,
        label: str,
        search: Grid | None,
        seed: int,
        groups: Groups | None = None,
    ) -> Comparison | None:
        """Compare two methods on the same rows; None if no rule of one meets the bounds."""
        from demur.guarantees.bootstrapping import compare

        with counted(label, self.replicates, unit="replicates") as done:
            try:
                return compare(
                    first,
                    second,
                    model,
                    replicates=self.replicates,
                    confidence=float(self.level),
                    directions="nonneg",
                    search=search,
                    groups=groups,
                    rng=seed,
                    workers=self._threads,
                    progress=done,
                )
            except InfeasibleError:
                return None

    @property
    def _threads(self) -> int:
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
def counted(label: str, total: int, *, unit: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many of `total` are done; yields what is to be called after each."""
    with Progress(label, total, unit=unit) as progress:
        yield lambda done, of: progress.advance(1)


def tune_promised(
    sample: Sample,
    model: RejectionModel,
    confidence: Bound,
    *,
    search: SearchOptions,
    seed: int,
    max_loss: Bound | None,
    groups: Groups | None = None,
) -> CertifiedTuning | InfeasibleError:
    """Return the rule with its promise, or the error that says why there is none.

    With `groups`, one row of each is drawn at random.
    """
    from demur.guarantees.certified_tuning import tune_certified

    if search.fpr_of == "worst":
        model = model.of_every_set()
    with Progress("tuning with a guarantee"):
        try:
            return tune_certified(
                sample,
                model,
                confidence=float(confidence),
                max_loss=max_loss,
                directions=search.directions,
                search=search.search,
                shape=search.shape,
                groups=groups,
                per_id="draw",
                rng=seed,
            )
        except InfeasibleError as error:
            return error


PerId = Literal["draw", "mean"]


def per_id_option(section: str, ways: Sequence[str]) -> Callable[[Command], Command]:
    """Return the option that says what to promise of rows that share an id."""
    said = {"draw": "draw: of one row of each id, at random", "mean": "mean: of the mean over ids"}
    return option(section)(
        "--per-id",
        type=click.Choice(list(ways)),
        help="What to promise where rows share an --id; without it they are refused. "
        f"{'; '.join(said[way] for way in ways)}. Every id then counts once.",
    )


def refuse_repeated_ids(rows: ScoreTable, column: str | None, per_id: str | None = None) -> None:
    """Raise when several rows have one id: they are not independent, so no count is a proof."""
    if column is None:
        if per_id is not None:
            raise click.UsageError("--per-id needs --id, the column of ids")
        return
    ids = rows.columns[column].astype(str)
    different = len(np.unique(ids))
    if different < len(ids) and per_id is None:
        raise InvalidInputError(
            f"a promise counts independent rows, but column {column!r} has {different:,} ids in "
            f"{len(ids):,} rows: keep one row of each id, or say with --per-id what to promise"
        )
