"""Cross-validation and bootstrap of rules tuned on rows that stay where they are.

Folds and replicates are drawn by a hash (`demur.core.drawing`): every engine draws the same rows.
A replicate draws each row a number of times that has the Poisson distribution of mean 1, which is
what drawing as many rows as there are with replacement comes to for many rows.
"""

from __future__ import annotations

import numpy as np

from demur.core.drawing import DrawableSource, RowDraw, drawable
from demur.core.models import RejectionModel
from demur.core.rates import OperatingPoint, evaluate, tally_point
from demur.core.source import Measure, ScoreSource, Tally
from demur.errors import InfeasibleError, InvalidInputError
from demur.guarantees.bootstrapping import Bootstrap, ResampledRate, angle_interval
from demur.guarantees.intervals import miss
from demur.guarantees.retuning import CrossTuning, Fold, Progress, values
from demur.guarantees.splits import Groups, Seed
from demur.guarantees.standard_errors import measures
from demur.sources.engines.group_sums import merged_tallies
from demur.tuning.result import Directions, Exact, Grid, Tuning
from demur.tuning.tune import tune


def check_options(rng: Seed, groups: Groups | None, search: Exact | Grid | None) -> int:
    """Return the seed; refuse what needs a sample."""
    if groups is not None or not isinstance(search, Exact | None):
        raise InvalidInputError(
            "groups and search=Grid(...) need a Sample; a source draws by its key: "
            "open_source(..., key=...)"
        )
    if isinstance(rng, bool) or not isinstance(rng, int) or rng < 0:
        raise InvalidInputError(f"rng of a source must be a whole number, a seed, got {rng!r}")
    return rng


def cross_tune_source(
    source: ScoreSource,
    model: RejectionModel,
    *,
    folds: int = 5,
    directions: Directions | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> CrossTuning:
    """Return what `cross_tune` says, of folds drawn by a hash of the key or of the scores.

    About a tuning and a count for each fold. The decisions on single rows stay where the rows are.

    Examples
    --------
    >>> from demur import Sample, TprFprModel
    >>> from demur.sources.engines.frames import ArraySource
    >>> rng = np.random.default_rng(0)
    >>> score = rng.random(500)
    >>> sample = Sample(score, rng.random(500) < score / 2, ood_scores=rng.random(400) + 0.5)
    >>> found = cross_tune_source(ArraySource(sample), TprFprModel(0.5, 0.2))
    >>> len(found.folds), round(found.tuned.point.tpr, 2), round(found.held_out.tpr, 2)
    (5, 0.5, 0.52)
    """
    if isinstance(folds, bool) or not isinstance(folds, int) or folds < 2:
        raise InvalidInputError(f"folds must be a whole number, at least 2, got {folds!r}")
    rows, tuned = drawable(source), tune(source, model, directions=directions)
    seen = source.overview()
    measure = Measure.of(seen, apart=True, grouped=True)
    found, tallies = [], list[dict[None, Tally]]()
    for number in range(folds):
        draw = RowDraw.fold(number, folds, seed)
        part = _tuned(rows.drawn(draw.others), model, directions)
        if part is None:
            found.append(Fold(None, None, None))
        else:
            left_out = rows.drawn(draw)
            tally = left_out.tally(part.rule.for_doubts(left_out.columns), measure)[None]
            tallies.append({None: tally})
            found.append(Fold(part.rule, part.point, _point(tally, measure, model)))
        if progress is not None:
            progress(number + 1, folds)
    held_out = _point(merged_tallies(tallies)[None], measure, model) if tallies else None
    unknown = np.zeros(0, np.bool_)
    return CrossTuning(tuned, held_out, tuple(found), unknown, unknown)


def _point(tally: Tally, measure: Measure, model: RejectionModel) -> OperatingPoint:
    return tally_point(tally, measure, measure.sets, model=model)


def _tuned(
    source: ScoreSource, model: RejectionModel, directions: Directions | None
) -> Tuning | None:
    try:
        return tune(source, model, directions=directions)
    except InfeasibleError:
        return None


def bootstrap_source(
    source: ScoreSource,
    model: RejectionModel,
    *,
    replicates: int = 100,
    confidence: float = 0.95,
    directions: Directions | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Bootstrap:
    """Return what `bootstrap` says, of rows drawn by a hash: the same draws on every engine.

    Every replicate is a tuning and two counts, about seven passes over the rows. Losses must be 0
    and 1 and rows without weights; costs need the rows in memory.

    Examples
    --------
    >>> from demur import Sample, TprFprModel
    >>> from demur.sources.engines.frames import ArraySource
    >>> rng = np.random.default_rng(0)
    >>> score = rng.random(500)
    >>> sample = Sample(score, rng.random(500) < score / 2, ood_scores=rng.random(400) + 0.5)
    >>> found = bootstrap_source(ArraySource(sample), TprFprModel(0.5, 0.2), replicates=20)
    >>> found.measures["tpr"].apparent, len(found.measures["tpr"].in_bag)
    (0.5, 20)
    """
    if isinstance(replicates, bool) or not isinstance(replicates, int) or replicates < 1:
        raise InvalidInputError(f"replicates must be a positive whole number, got {replicates!r}")
    tail = miss(confidence) / 2
    if model.cost is not None or not source.overview().plain:
        raise InvalidInputError(
            "the bootstrap of a source is about shares: losses of 0 and 1, rows without weights, "
            "no costs; others need a Sample"
        )
    rows, names = drawable(source), measures(model)
    tuned = tune(source, model, directions=directions)
    rates, unable = np.empty((replicates, 3, len(names))), 0
    for number in range(replicates):
        found = _replicate(rows, RowDraw.replicate(number, seed), tuned, directions)
        unable += found[2] is None
        rates[number] = [values(point, names) for point in found]
        if progress is not None:
            progress(number + 1, replicates)
    apparent = values(tuned.point, names)
    found_rates = {}
    for i, name in enumerate(names):
        in_bag, on_sample, out_of_bag = rates[:, :, i].T
        interval = angle_interval(apparent[i], in_bag, on_sample, tail)
        found_rates[name] = ResampledRate(apparent[i], interval, in_bag, on_sample, out_of_bag)
    return Bootstrap(tuned, found_rates, confidence, replicates, unable)


def _replicate(
    rows: DrawableSource, draw: RowDraw, tuned: Tuning, directions: Directions | None
) -> tuple[OperatingPoint, OperatingPoint, OperatingPoint | None]:
    """Return what a rule tuned anew does on the rows drawn, on all, and on those never drawn.

    Where none meets the bounds the tuned rule stays, which has seen all rows.
    """
    drawn, model = rows.drawn(draw), tuned.model
    anew = _tuned(drawn, model, directions)
    if anew is None:
        in_bag = evaluate(tuned.rule, drawn, model=model)
        return in_bag, evaluate(tuned.rule, rows, model=model), None
    left_out = evaluate(anew.rule, rows.drawn(draw.others), model=model)
    return anew.point, evaluate(anew.rule, rows, model=model), left_out
