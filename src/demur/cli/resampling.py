"""Rows kept apart and drawn anew: hold-out, folds, replicates, and the split behind a guarantee.

`TuningRows` are those to tune on and those held out, with their scores learned if that was asked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import click
import numpy as np
import numpy.typing as npt

from demur._arrays import BoolArray, IntArray
from demur.cli.inputs import ScoreTable
from demur.cli.model_options import SearchOptions
from demur.cli.options import (
    Chance,
    Command,
    Number,
    complete_column,
    gathered,
    option,
    seed_option,
)
from demur.cli.output import Progress, caution
from demur.core.columns import ood_rows
from demur.core.drawing import RowDraw, share_drawn_together, split
from demur.core.models import RejectionModel
from demur.core.program import Number as Bound
from demur.core.program import exact
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.source import ScoreSource
from demur.errors import InfeasibleError, InvalidInputError
from demur.tuning.result import Grid

if TYPE_CHECKING:
    from demur.guarantees.bootstrapping import Bootstrap, Comparison
    from demur.guarantees.certified_tuning import CertifiedTuning
    from demur.guarantees.retuning import CrossTuning
    from demur.guarantees.splits import Groups


# Share of rows with the scores of others from which on a hash of scores makes a poor split.
_MANY_ALIKE = 0.1


@dataclass(frozen=True, slots=True)
class HoldoutOptions:
    """Which rows are kept for an honest estimate."""

    holdout: Bound | None
    seed: int
    group: str | None
    holdout_by: Literal["chance", "hash"] | None = None

    @property
    def share(self) -> Fraction | None:
        """The share to hold out; None when none is."""
        if self.holdout is None:
            if self.holdout_by is not None:
                raise click.UsageError("--holdout-by is about --holdout")
            return None
        share = exact("--holdout", self.holdout)
        if not 0 < share < 1:
            raise InvalidInputError(f"--holdout must be between 0 and 1, got {self.holdout}")
        return share

    def held(self, rows: ScoreTable) -> BoolArray | None:
        """Return which rows are held out; None when none are."""
        share = self.share
        if share is None:
            return None
        self._check_share(share, rows)
        if self.holdout_by == "hash":
            draw = RowDraw.holdout(share, self.seed)
            length = len(rows.columns[rows.scores[0][0]])
            is_ood = ood_rows(rows.columns, rows.options.ood, length)[0]
            return _not_one_sided(draw.keeps(rows.hashed(self.group), is_ood))
        groups = None if self.group is None else rows.columns[self.group]
        return _not_one_sided(held_out(_strata(rows), share, seed=self.seed, groups=groups))

    def parts(self, source: ScoreSource) -> tuple[ScoreSource, ScoreSource | None]:
        """Return the rows of a source to tune on, and those held out if any are."""
        share = self.share
        if share is None:
            return source, None
        if self.holdout_by == "chance":
            raise click.UsageError(
                "--holdout-by chance deals rows in memory: leave it out, or add --engine memory"
            )
        alike = 0.0 if self.group is not None else share_drawn_together(source)
        if alike > _MANY_ALIKE:
            caution(
                f"about {alike:.0%} of the rows have the scores of another one and stay on its "
                "side of the split: give --id, a column of ids"
            )
        return split(source, share, seed=self.seed)

    def half(self, rows: ScoreTable, among: BoolArray) -> BoolArray:
        """Return a random half of some rows, ID and OOD alike; rows of one id stay together."""
        groups = None if self.group is None else rows.columns[self.group][among]
        chosen = np.zeros(len(among), np.bool_)
        chosen[among] = held_out(
            _strata(rows)[among], Fraction(1, 2), seed=self.seed, groups=groups
        )
        return chosen

    def _check_share(self, share: Fraction, rows: ScoreTable) -> None:
        """Refuse a share that leaves less than one row, or id, on a side."""
        whole = rows.columns[rows.scores[0][0] if self.group is None else self.group]
        count = len(whole) if self.group is None else len(np.unique(whole.astype(str)))
        what = "rows" if self.group is None else "ids"
        for part, verb in ((share, "holds out"), (1 - share, "tunes on")):
            if part * count < 1:
                raise InvalidInputError(
                    f"--holdout {self.holdout} of {count:,} {what} {verb} less than one: give a "
                    "share such as .3"
                )


def _not_one_sided(held: BoolArray) -> BoolArray:
    if held.all() or not held.any():
        raise InvalidInputError("--holdout leaves one side without rows: too few rows or ids")
    return held


def _strata(rows: ScoreTable) -> IntArray:
    """Return 0 for every ID row, and the number of its set for every OOD row."""
    length = len(rows.columns[rows.scores[0][0]])
    strata = np.zeros(length, np.int64)
    for number, members in enumerate(ood_rows(rows.columns, rows.options.ood, length)[1].values()):
        strata[members] = 1 + number
    return strata


def holdout_options(group_help: str) -> Callable[[Command], Command]:
    """Return a decorator that adds the options of the split as `split`."""
    add = option("Held-out rows")
    column: dict[str, Any] = {"metavar": "COLUMN", "shell_complete": complete_column}
    return gathered(
        "split",
        HoldoutOptions,
        [
            add("--holdout", type=Number(), help="Tune on the rest, evaluate on this share."),
            seed_option("Held-out rows", "Seed of the split."),
            add("--id", "group", **column, help=group_help),
            add(
                "--holdout-by",
                type=click.Choice(["chance", "hash"]),
                help="chance: this very share of ID rows and of every OOD set; in memory the "
                "default. hash, of --id or else of the scores: the same rows on every --engine.",
            ),
        ],
    )


def held_out(
    strata: IntArray, share: Fraction, *, seed: int, groups: npt.NDArray[Any] | None = None
) -> BoolArray:
    """Return which rows are held out: `share` of the groups of every stratum, at random.

    Stratum 0 are the ID rows, others are OOD sets; both sides are sampled by themselves, so that
    each has rows in both parts where it can. Rows of a group stay together; without groups every
    row is its own. Sets of a few rows keep their share of all OOD rows together.
    """
    from demur.guarantees.splits import systematic_part

    # Not the stream of the seed itself: what else takes the seed shuffles with that.
    rng = np.random.default_rng((seed, 1))
    if groups is None:
        first = codes = np.arange(len(strata))
    else:
        _, first, codes = np.unique(groups.astype(str), return_index=True, return_inverse=True)
    stratum = strata[first]
    held = np.zeros(len(first), np.bool_)
    for members in (np.flatnonzero(stratum == 0), np.flatnonzero(stratum > 0)):
        held[members] = systematic_part(stratum[members], float(share), rng)
    return np.asarray(held[codes])


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
        from demur.guarantees.retuning import cross_tune

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
        first: Sample,
        second: Sample,
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
