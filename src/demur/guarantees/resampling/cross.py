"""Cross-validated tuning: every row judged by a rule that has not seen it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from demur._arrays import BoolArray
from demur.core.models import RejectionModel
from demur.core.rates import OperatingPoint
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.errors import InfeasibleError
from demur.guarantees.resampling.rates import CountedRows
from demur.guarantees.resampling.replicates import Progress, in_order
from demur.guarantees.splits import Groups, Seed, fold_numbers
from demur.tuning.directions import Directions
from demur.tuning.result import Exact, Grid, Tuning
from demur.tuning.tune import tune


@dataclass(frozen=True, slots=True)
class Fold:
    """A rule tuned without one part of the rows."""

    rule: Rule | None
    """None when no rule meets the bounds on the other parts."""
    tuned: OperatingPoint | None
    """On the rows it was tuned on."""
    held_out: OperatingPoint | None
    """On the part left out."""


@dataclass(frozen=True, slots=True, eq=False)
class CrossTuning:
    """A rule tuned on all rows, and what rules tuned like it do on rows they have not seen."""

    tuned: Tuning
    """On all rows; its operating point is optimistic."""
    held_out: OperatingPoint | None
    """All rows together, each decided by the rule of its fold; None if no fold has a rule."""
    folds: tuple[Fold, ...]
    accepted_id: BoolArray
    """Out-of-fold decision of each ID row; False in folds without a rule."""
    accepted_ood: BoolArray

    @property
    def unable(self) -> int:
        """Number of folds in which no rule met the bounds; their rows are left out."""
        return sum(fold.rule is None for fold in self.folds)


def cross_tune(
    sample: Sample,
    model: RejectionModel,
    *,
    folds: int = 5,
    groups: Groups | None = None,
    directions: Directions | None = None,
    search: Exact | Grid | None = None,
    rng: Seed = 0,
    workers: int | None = None,
    progress: Progress | None = None,
) -> CrossTuning:
    """Tune on all rows, and estimate the outcome on rows not tuned on.

    The rows are dealt into folds, ID and every OOD set by itself; each fold is decided by a
    rule tuned on the others. The held-out point is that of rules tuned on fewer rows, so it is
    a little pessimistic; bounds met in tuning are met out of fold only on average.

    Parameters
    ----------
    groups
        What the ID rows and the OOD rows belong to, such as (patients of the ID rows, patients
        of the OOD rows): rows of a group stay in one fold. Rows that belong together and are
        dealt one by one make the estimate too good.
    directions, search
        As in `tune`.
    workers
        Threads to tune in; the result is the same for any number.
    progress
        Called with the folds done and the folds in all.

    Examples
    --------
    >>> from demur import TprFprModel
    >>> rng = np.random.default_rng(0)
    >>> score = rng.random(200)
    >>> sample = Sample(score, rng.random(200) < score / 2, ood_scores=rng.random(200) + 0.5)
    >>> found = cross_tune(sample, TprFprModel(0.5, 0.2))
    >>> round(found.tuned.point.selective_risk, 3), round(found.held_out.selective_risk, 3)
    (0.119, 0.12)
    """
    tuned = tune(sample, model, directions=directions, search=search)
    rows = CountedRows.of(sample)
    numbers = fold_numbers(sample, folds, rng, groups)

    def judge(fold: int) -> Fold:
        others = (np.flatnonzero(side != fold) for side in numbers)
        try:
            part = tune(sample.subset(*others), model, directions=directions, search=search)
        except InfeasibleError:
            return Fold(None, None, None)
        times = ((numbers[0] == fold).astype(np.int64), (numbers[1] == fold).astype(np.int64))
        return Fold(part.rule, part.point, rows.point(rows.decide(part.rule), times, model))

    found = in_order(judge, range(folds), workers=workers, progress=progress)
    decided = (np.zeros(sample.n_id, np.bool_), np.zeros(sample.n_ood, np.bool_))
    counted = (np.zeros(sample.n_id, np.int64), np.zeros(sample.n_ood, np.int64))
    for fold, judged in enumerate(found):
        if judged.rule is not None:
            for side, accepted in enumerate(rows.decide(judged.rule)):
                here = numbers[side] == fold
                counted[side][here] = 1
                decided[side][here] = accepted[here]
    return CrossTuning(tuned, rows.point(decided, counted, model), tuple(found), *decided)
