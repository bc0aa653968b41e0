"""Bootstrap intervals with the rule tuned anew in every replicate, of a method or of two compared.

They are formed on scales on which the spread does not depend on the rate. Two methods are compared
on the same rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from demur._arrays import FloatArray, data_frame, takes
from demur.core.models import RejectionModel
from demur.core.rates import OperatingPoint, evaluate
from demur.core.row_draws import DrawableSource, RowDraw, drawable
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.core.source import Overview, ScoreSource
from demur.errors import InvalidInputError
from demur.guarantees.cross_tuning import (
    Progress,
    Retuning,
    check_options,
    replicate,
    tuned_if_any,
    values,
)
from demur.guarantees.intervals import Interval, miss
from demur.guarantees.splits import Groups, Seed
from demur.guarantees.standard_errors import measures
from demur.tuning.result import Directions, Exact, Grid, Tuning
from demur.tuning.tune import tune

_RATES = ("tpr", "fpr", "precision")


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ResampledRate:
    """One rate of a tuned rule, as it looks and as it probably is.

    Examples
    --------
    >>> import demur as dm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> wrong = rng.random(400) < 0.1
    >>> sample = dm.Sample(rng.gamma(1 + 2 * wrong), wrong, rng.normal(4, 1, 200))
    >>> found = dm.guarantees.bootstrap(sample, dm.TprFprModel(0.8, 0.1), replicates=50, rng=0)
    >>> tpr = found.measures["tpr"]
    >>> tpr.interval.low < tpr.apparent < tpr.interval.high
    True
    """

    apparent: float
    """On the data the rule was tuned on."""
    interval: Interval
    """For the true rate of the tuned rule; corrected for the optimism of tuning."""
    in_bag: FloatArray
    """Of each replicate's rule on the rows it was tuned on."""
    on_sample: FloatArray
    """Of each replicate's rule on the whole sample."""
    out_of_bag: FloatArray
    """Of each replicate's rule on the rows not drawn."""

    def __repr__(self) -> str:
        low, high = self.interval.low, self.interval.high
        return f"ResampledRate({self.apparent:.4g}, interval [{low:.4g}, {high:.4g}])"

    @property
    def optimism(self) -> float:
        """How much higher the rate comes out beyond the rows tuned on, on average."""
        return float(_mean(self.on_sample - self.in_bag))

    @property
    def estimate(self) -> float:
        """The apparent rate plus the optimism."""
        return self.apparent + self.optimism

    @property
    def held_out(self) -> float:
        """The average out-of-bag rate: of rules tuned on fewer different rows."""
        return float(_mean(self.out_of_bag))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Bootstrap:
    """A rule tuned on the whole sample and what resampling says of it.

    Examples
    --------
    >>> import demur as dm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> wrong = rng.random(400) < 0.1
    >>> sample = dm.Sample(rng.gamma(1 + 2 * wrong), wrong, rng.normal(4, 1, 200))
    >>> found = dm.guarantees.bootstrap(sample, dm.TprFprModel(0.8, 0.1), replicates=50, rng=0)
    >>> found.measures["selective_risk"].apparent < found.measures["selective_risk"].interval.high
    True
    """

    tuned: Tuning
    measures: Mapping[str, ResampledRate]
    """By name: tpr, fpr, selective_risk; precision and expected_cost where declared."""
    confidence: float
    replicates: int
    unable: int
    """Replicates in which no rule met the bounds: the tuned rule stayed."""

    def plot(self, ax: Any = None) -> Any:
        """Draw the intervals with matplotlib, on `ax` or on new axes; return the axes."""
        what = f"estimate and {self.confidence:.0%} interval"
        return _drawn(self.measures, what, zero=False, ax=ax)

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame of pandas or Polars with a row per rate."""
        return _framed(self.measures, backend)

    def __repr__(self) -> str:
        return f"Bootstrap({_ranges(self.measures)}; {self.replicates} replicates)"


def bootstrap(
    sample: Sample | ScoreSource,
    model: RejectionModel,
    *,
    replicates: int = 1000,
    confidence: float = 0.95,
    groups: Groups | None = None,
    directions: Directions | None = None,
    search: Exact | Grid | None = None,
    rng: Seed = 0,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Bootstrap:
    """Tune on `sample` and say how much of the result is the optimism of tuning.

    In every replicate ID rows and OOD rows are drawn anew, each side (and each OOD set) by
    itself, and the rule is tuned anew; where no rule meets the bounds on the rows drawn, the
    rule tuned on the sample stays. The replicate's rule on the rows drawn, against the same
    rule on the whole sample, plays the part of the tuned rule on the sample against the truth;
    the quantiles of that difference, put on the apparent rate, are the interval (the basic
    bootstrap). Shares are compared as angles (the arcsine of the root), other rates as multiples
    of their standard errors: on these scales the spread does not depend on the rate. Intervals
    hold one at a time and approximately: they cannot see losses that never happened in the
    sample. For a promise use `certify` or `tune_certified`.

    Of a source, rows are drawn by a hash of its key or of the scores, with `rng` as the seed; every
    replicate takes about seven passes.

    Parameters
    ----------
    groups
        What the ID rows and the OOD rows belong to, such as (patients of the ID rows, patients of
        the OOD rows): these are drawn, each with all its rows. Single rows of them would make the
        intervals too short.
    directions, search
        As in `tune`.
    workers
        Threads to tune in; the result is the same for any number.
    progress
        Called with the replicates done and the replicates in all.

    Examples
    --------
    >>> from demur import TprFprModel
    >>> rng = np.random.default_rng(0)
    >>> score = rng.random(200)
    >>> sample = Sample(score, rng.random(200) < score / 2, ood_scores=rng.random(200) + 0.5)
    >>> found = bootstrap(sample, TprFprModel(0.5, 0.2), replicates=100)
    >>> risk = found.measures["selective_risk"]
    >>> round(risk.apparent, 3), round(risk.optimism, 3), round(risk.interval.high, 3)
    (0.119, 0.006, 0.22)
    """
    if isinstance(sample, ScoreSource):
        return bootstrap_source(
            sample,
            model,
            replicates=replicates,
            confidence=confidence,
            directions=directions,
            search=search,
            seed=check_options(rng, groups),
            progress=progress,
        )
    tail = miss(confidence) / 2
    tuned = tune(sample, model, directions=directions, search=search)
    names = measures(model)
    # Under the 0/1 loss the selective risk is a share like the other rates.
    shares = (*_RATES, *(("selective_risk",) if np.isin(sample.id_loss, (0, 1)).all() else ()))
    found = replicate(
        [(sample, tuned.rule)],
        Retuning(model, directions, search),
        with_errors=not set(names) <= set(shares),
        replicates=replicates,
        rng=rng,
        workers=workers,
        progress=progress,
        groups=groups,
    )
    apparent = values(tuned.point, names)

    def measure(i: int, name: str) -> ResampledRate:
        in_bag, on_sample, out_of_bag = found.rates[:, 0, :, i].T
        if name in shares:
            interval = angle_interval(apparent[i], in_bag, on_sample, tail)
        else:
            error, errors = float(found.error[i]), found.errors[:, i]
            interval = student_interval(
                apparent[i], error, in_bag, on_sample, errors, tail, least=0.0
            )
        return ResampledRate(apparent[i], interval, in_bag, on_sample, out_of_bag)

    return Bootstrap(
        tuned=tuned,
        measures={name: measure(i, name) for i, name in enumerate(names)},
        confidence=confidence,
        replicates=replicates,
        unable=int(found.unable.sum()),
    )


def _mean(rates: FloatArray) -> float:
    known = rates[~np.isnan(rates)]
    return float(known.mean()) if len(known) else np.nan


def angle_interval(
    apparent: float, in_bag: FloatArray, on_sample: FloatArray, tail: float
) -> Interval:
    """Return the interval of a share, formed of angles (the arcsine of the root).

    The spread of shares shrinks towards 0 and 1, that of the angles does not, so what was seen
    around one share can be put on another.
    """
    low, high = _quantiles(_angle(on_sample) - _angle(in_bag), tail)
    ends = _share(_angle(np.array(apparent)) + np.array([low, high]))
    return Interval(*ends.tolist())


def student_interval(
    apparent: float,
    error: float,
    in_bag: FloatArray,
    on_sample: FloatArray,
    errors: FloatArray,
    tail: float,
    *,
    least: float = -np.inf,
) -> Interval:
    """Return the interval of a mean or difference, formed of multiples of the standard error.

    Where losses are few, or two rules differ in few rows, a rate that came out low also looks
    more certain than it is. Each replicate is measured by its own standard error, and what was
    seen is put on that of the sample (the bootstrap-t of Efron): so intervals reach further on
    the side on which the truth is further away.
    """
    shift = on_sample - in_bag
    # Without losses, or for one rule twice, both are zero.
    ratio = np.divide(shift, errors, out=np.zeros_like(shift), where=shift != 0)
    low, high = _quantiles(ratio, tail)
    return Interval(max(least, apparent + error * low), max(least, apparent + error * high))


def _quantiles(shift: FloatArray, tail: float) -> tuple[float, float]:
    shift = shift[~np.isnan(shift)]
    if not len(shift):
        return np.nan, np.nan
    # Of so many replicates and the truth, each is equally likely to be beyond these.
    low, high = np.quantile(shift, [tail, 1 - tail], method="weibull").tolist()
    return low, high


def _angle(share: FloatArray) -> FloatArray:
    return np.arcsin(np.sqrt(share))


def _share(angle: FloatArray) -> FloatArray:
    return np.asarray(np.sin(np.clip(angle, 0, np.pi / 2)) ** 2)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Comparison:
    """The first method's rates minus the second's, at the same bounds.

    Examples
    --------
    >>> import demur as dm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> wrong = rng.random(400) < 0.1
    >>> a = dm.Sample(rng.gamma(1 + 2 * wrong), wrong, rng.normal(4, 1, 200))
    >>> b = dm.Sample(rng.gamma(1 + wrong), wrong, rng.normal(4, 1, 200))
    >>> found = dm.guarantees.compare(a, b, dm.TprFprModel(0.8, 0.1), replicates=50, rng=0)
    >>> sorted(found.differences)
    ['fpr', 'selective_risk', 'tpr']
    """

    first: Tuning
    second: Tuning
    differences: Mapping[str, ResampledRate]
    """By name, as in `Bootstrap.measures`; ``interval`` is for the true difference."""
    confidence: float
    replicates: int
    unable: int
    """Replicates in which one of the two met no rule: its tuned rule stayed."""

    def plot(self, ax: Any = None) -> Any:
        """Draw the differences with matplotlib, on `ax` or on new axes; return the axes."""
        what = f"first minus second, and {self.confidence:.0%} interval"
        return _drawn(self.differences, what, zero=True, ax=ax)

    def to_frame(self, backend: str | None = None) -> Any:
        """Return a data frame of pandas or Polars with a row per rate."""
        return _framed(self.differences, backend)

    def __repr__(self) -> str:
        return f"Comparison({_ranges(self.differences)}; {self.replicates} replicates)"


def _drawn(rates: Mapping[str, ResampledRate], what: str, *, zero: bool, ax: Any) -> Any:
    from demur import plots

    named = {
        name: (rate.interval.low, rate.estimate, rate.interval.high) for name, rate in rates.items()
    }
    return plots.intervals(named, what, zero=zero, ax=ax)


def _framed(rates: Mapping[str, ResampledRate], backend: str | None) -> Any:
    columns: dict[str, list[Any]] = {"rate": list(rates)}
    for name in ("apparent", "optimism", "estimate", "held_out"):
        columns[name] = [getattr(rate, name) for rate in rates.values()]
    for end in ("low", "high"):
        columns[end] = [getattr(rate.interval, end) for rate in rates.values()]
    return data_frame(columns, backend)


def _ranges(rates: Mapping[str, ResampledRate]) -> str:
    return ", ".join(
        f"{name} [{rate.interval.low:.4g}, {rate.interval.high:.4g}]"
        for name, rate in rates.items()
    )


@takes(first=(Sample, ScoreSource), second=(Sample, ScoreSource), model=RejectionModel)
def compare(
    first: Sample | ScoreSource,
    second: Sample | ScoreSource,
    model: RejectionModel,
    *,
    replicates: int = 1000,
    confidence: float = 0.95,
    groups: Groups | None = None,
    directions: Directions | None = None,
    search: Exact | Grid | None = None,
    rng: Seed = 0,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two methods, each tuned under `model`, on the same rows in the same order.

    The bootstrap of `bootstrap`, with the same rows drawn for both: what the methods share,
    easy and hard inputs, cancels in the difference. Differences are compared as multiples of
    their standard errors, from the rows on which the methods differ and one row more.

    Of two sources of the same rows, opened with the same `key`, rows are drawn by a hash of that
    key with `rng` as the seed, the same for both, and differences are compared as they are. Every
    replicate takes about a dozen passes.

    Parameters
    ----------
    first, second
        Scores (one or two) and losses of either method; row i is the same input in both. Or two
        sources of the same rows.
    groups
        As in `bootstrap`.

    Examples
    --------
    >>> from demur import TprFprModel
    >>> rng = np.random.default_rng(0)
    >>> risk, far = rng.random(300), rng.random(300)
    >>> wrong, ood = rng.random(300) < risk / 2, rng.random((300, 2)) + [0, 0.7]
    >>> one = Sample(far, wrong, ood_scores=ood[:, 1])
    >>> two = Sample(np.column_stack([risk, far]), wrong, ood_scores=ood)
    >>> found = compare(one, two, TprFprModel(0.5, 0.2), replicates=20, search=Grid(45))
    >>> found.differences["selective_risk"].interval.low > 0
    True
    """
    if isinstance(first, ScoreSource) or isinstance(second, ScoreSource):
        return _compare_sources(
            first,
            second,
            model,
            replicates=replicates,
            confidence=confidence,
            directions=directions,
            search=search,
            seed=check_options(rng, groups),
            progress=progress,
        )
    _check_same_rows(first, second)
    tail = miss(confidence) / 2
    tuned = [tune(s, model, directions=directions, search=search) for s in (first, second)]
    found = replicate(
        [(first, tuned[0].rule), (second, tuned[1].rule)],
        Retuning(model, directions, search),
        with_errors=True,
        replicates=replicates,
        rng=rng,
        workers=workers,
        progress=progress,
        groups=groups,
    )
    names = measures(model)
    apparent = np.array(values(tuned[0].point, names)) - values(tuned[1].point, names)
    differences = found.rates[:, 0] - found.rates[:, 1]

    def measure(i: int) -> ResampledRate:
        in_bag, on_sample, out_of_bag = differences[..., i].T
        interval = student_interval(
            float(apparent[i]), float(found.error[i]), in_bag, on_sample, found.errors[:, i], tail
        )
        return ResampledRate(float(apparent[i]), interval, in_bag, on_sample, out_of_bag)

    return Comparison(
        first=tuned[0],
        second=tuned[1],
        differences={name: measure(i) for i, name in enumerate(names)},
        confidence=confidence,
        replicates=replicates,
        unable=int(found.unable.sum()),
    )


def _check_same_rows(first: Sample, second: Sample) -> None:
    sizes = [
        (s.n_id, {name: rows.stop - rows.start for name, rows in s.ood_sets.items()})
        for s in (first, second)
    ]
    if sizes[0] != sizes[1]:
        raise InvalidInputError(
            f"first and second must have the same rows, got {first} and {second}"
        )
    for name in ("id_weight", "ood_weight"):
        one, two = getattr(first, name), getattr(second, name)
        if (one is None) != (two is None) or (one is not None and not np.array_equal(one, two)):
            raise InvalidInputError(f"first and second must have the same {name}")


def bootstrap_source(
    source: ScoreSource,
    model: RejectionModel,
    *,
    replicates: int = 100,
    confidence: float = 0.95,
    directions: Directions | None = None,
    search: Exact | Grid | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Bootstrap:
    """Return what `bootstrap` says, of rows drawn by a hash: the same draws on every engine.

    A replicate draws each row a number of times that has the Poisson distribution of mean 1, which
    is what drawing as many rows as there are with replacement comes to for many rows.

    Every replicate is a tuning and two counts, about seven passes over the rows. Losses must be 0
    and 1; other losses, and costs, need the rows in memory.

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
    _check_shares(source, model, replicates)
    tail = miss(confidence) / 2
    rows, names = drawable(source), measures(model)
    tuned = tune(source, model, directions=directions, search=search)
    rates, unable = np.empty((replicates, 3, len(names))), 0
    anew = Retuning(model, directions, search)
    for number in range(replicates):
        found = _replicate(rows, RowDraw.replicate(number, seed), tuned.rule, anew)
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
    rows: DrawableSource, draw: RowDraw, rule: Rule, retuning: Retuning
) -> tuple[OperatingPoint, OperatingPoint, OperatingPoint | None]:
    """Return what a rule tuned anew does on the rows drawn, on all, and on those never drawn.

    Where none meets the bounds the tuned rule stays, which has seen all rows.
    """
    drawn, model = rows.drawn(draw), retuning.model
    anew = tuned_if_any(drawn, retuning)
    if anew is None:
        in_bag = evaluate(rule, drawn, model=model)
        return in_bag, evaluate(rule, rows, model=model), None
    left_out = evaluate(anew.rule, rows.drawn(draw.others), model=model)
    return anew.point, evaluate(anew.rule, rows, model=model), left_out


def _check_shares(source: ScoreSource, model: RejectionModel, replicates: int) -> None:
    if isinstance(replicates, bool) or not isinstance(replicates, int) or replicates < 1:
        raise InvalidInputError(f"replicates must be a positive whole number, got {replicates!r}")
    if model.cost is not None or source.overview().graded:
        raise InvalidInputError(
            "the bootstrap of a source is about shares: losses of 0 and 1, no costs; others need "
            "the rows in memory, a Sample (--engine memory)"
        )


def _compare_sources(
    first: Sample | ScoreSource,
    second: Sample | ScoreSource,
    model: RejectionModel,
    *,
    replicates: int,
    confidence: float,
    directions: Directions | None,
    search: Exact | Grid | None,
    seed: int,
    progress: Progress | None,
) -> Comparison:
    """Return what `compare` says, of rows drawn by a hash of their key."""
    if not isinstance(first, ScoreSource) or not isinstance(second, ScoreSource):
        raise InvalidInputError("first and second must both be samples, or both be sources")
    for source in (first, second):
        _check_shares(source, model, replicates)
    tail, names = miss(confidence) / 2, measures(model)
    rows = drawable(first), drawable(second)
    _check_drawn_alike(rows, seed)
    anew = Retuning(model, directions, search)
    tuned = [tune(one, model, directions=directions, search=search) for one in (first, second)]
    rates, unable = np.empty((replicates, 2, 3, len(names))), 0
    for number in range(replicates):
        draw = RowDraw.replicate(number, seed)
        found = [_replicate(rows[k], draw, tuned[k].rule, anew) for k in (0, 1)]
        unable += any(points[2] is None for points in found)
        rates[number] = [[values(point, names) for point in points] for points in found]
        if progress is not None:
            progress(number + 1, replicates)
    apparent = np.array(values(tuned[0].point, names)) - values(tuned[1].point, names)
    differences = {}
    for i, name in enumerate(names):
        in_bag, on_sample, out_of_bag = (rates[:, 0, :, i] - rates[:, 1, :, i]).T
        low, high = _quantiles(on_sample - in_bag, tail)
        interval = Interval(float(apparent[i]) + low, float(apparent[i]) + high)
        differences[name] = ResampledRate(
            float(apparent[i]), interval, in_bag, on_sample, out_of_bag
        )
    return Comparison(tuned[0], tuned[1], differences, confidence, replicates, unable)


def _check_drawn_alike(rows: tuple[DrawableSource, DrawableSource], seed: int) -> None:
    """Refuse sources of other rows, or whose rows are not drawn alike."""
    whole = [_counts(one.overview()) for one in rows]
    if whole[0] != whole[1]:
        raise InvalidInputError(
            f"first and second must have the same rows, got {whole[0]} and {whole[1]} (ID, OOD)"
        )
    # Two hashes would hardly ever leave as many rows of each side.
    drawn = [_counts(one.drawn(RowDraw.holdout(0.5, seed)).overview()) for one in rows]
    if drawn[0] != drawn[1]:
        raise InvalidInputError(
            "first and second are compared on the same rows, which a hash of their key draws: "
            "open both with the same key=, a column that tells rows apart"
        )


def _counts(seen: Overview) -> tuple[int, dict[str, int]]:
    return seen.id_rows, dict(zip(seen.sets, seen.ood_rows, strict=True))
