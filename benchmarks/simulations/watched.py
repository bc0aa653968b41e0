"""Streams of live rows whose truth is known, and the alarms they give."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator

import numpy as np

from demur import Bound, Rule, Sample, TprFprModel, tune
from demur.watch import Watch
from demur.watch.evidence import above, audited_share, below, mean_above, outside
from demur.watch.hypotheses import LiveSums
from demur.watch.state import to_json

ALPHA = 0.05
ROWS, EVERY = 10_000, 10
_LOOKS = np.arange(EVERY, ROWS + 1, EVERY)
_LINE = -math.log(ALPHA)
_AT_ONCE = 100

Alarms = Callable[[int, np.random.Generator], np.ndarray]


def _coins(share: float, streams: int, rng: np.random.Generator, rows: int = ROWS) -> np.ndarray:
    """Return successes up to each look."""
    return (rng.random((streams, rows)) < share).cumsum(axis=1)[:, EVERY - 1 :: EVERY]


def _blocks(make: Callable[[int, np.random.Generator], np.ndarray]) -> Alarms:
    """Return alarms of many streams, a hundred at a time; `make` gives log evidence."""

    def alarms(streams: int, rng: np.random.Generator) -> np.ndarray:
        sizes = [min(_AT_ONCE, streams - start) for start in range(0, streams, _AT_ONCE)]
        return np.concatenate([(make(size, rng) >= _LINE).any(axis=1) for size in sizes])

    return alarms


def _share_above(bound: float) -> Alarms:
    return _blocks(lambda n, rng: above(_coins(bound, n, rng), _LOOKS, bound))


def _share_below(bound: float) -> Alarms:
    return _blocks(lambda n, rng: below(_coins(bound, n, rng), _LOOKS, bound))


def _audited(bound: float, rates: tuple[float, float], lower: bool) -> Alarms:
    """Audit accepted rows more or less often than rejected ones."""

    def evidence(streams: int, rng: np.random.Generator) -> np.ndarray:
        accepted = rng.random((streams, ROWS)) < bound
        audited = rng.random((streams, ROWS)) < np.where(accepted, *rates)
        k = (accepted & audited).cumsum(axis=1)[:, EVERY - 1 :: EVERY]
        n = audited.cumsum(axis=1)[:, EVERY - 1 :: EVERY]
        test = below if lower else above
        return test(k, n, audited_share(bound, rates))

    return _blocks(evidence)


def _late(streams: int, rng: np.random.Generator) -> np.ndarray:
    """Wrong answers are labelled later: labels count up to the first that is missing."""
    return above(*_labelled_late(streams, rng, np.arange(ROWS), (200.0, 20.0)), 0.06)


def _late_shards(streams: int, rng: np.random.Generator) -> np.ndarray:
    """Two shards, each with labels of its own that wait; here right answers are labelled later."""
    times = np.arange(0, ROWS, 2)
    one, two = (_labelled_late(streams, rng, times, (20.0, 200.0)) for _ in range(2))
    return above(one[0] + two[0], one[1] + two[1], 0.06)


def _labelled_late(
    streams: int, rng: np.random.Generator, times: np.ndarray, delays: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Return wrong answers and rows at each look; mean delays are of wrong and right answers."""
    wrong = rng.random((streams, len(times))) < 0.06
    delay = rng.exponential(np.where(wrong, *delays))
    arrived = np.maximum.accumulate(times + delay, axis=1)
    k = np.concatenate([np.zeros((streams, 1), int), wrong.cumsum(axis=1)], axis=1)
    n = np.stack([np.searchsorted(row, _LOOKS) for row in arrived])
    return np.take_along_axis(k, n, axis=1), n


def _merged(streams: int, rng: np.random.Generator) -> np.ndarray:
    """Two shards, merged again and again, now the one ahead and now the other."""
    none = np.zeros((streams, 1), int)
    one, two = (
        np.concatenate([none, (rng.random((streams, ROWS)) < 0.06).cumsum(axis=1)], axis=1)
        for _ in range(2)
    )
    # A shard is silent for some hundred rows, then catches up.
    ahead = np.repeat(rng.random((streams, 1 + len(_LOOKS) // 25)), 25, axis=1)[:, : len(_LOOKS)]
    first = rng.binomial(EVERY, ahead).cumsum(axis=1)
    counts = [np.take_along_axis(k, n, 1) for k, n in ((one, first), (two, _LOOKS - first))]
    return above(counts[0] + counts[1], _LOOKS, 0.06)


def _each_set(streams: int, rng: np.random.Generator) -> np.ndarray:
    """Five OOD sets of different size that share the part of one bound."""
    accepted = rng.random((streams, ROWS)) < 0.1
    sets = rng.choice(5, (streams, ROWS), p=[0.4, 0.3, 0.15, 0.1, 0.05])
    found = np.full((streams, len(_LOOKS)), -np.inf)
    for number in range(5):
        of_set = sets == number
        k, n = (x.cumsum(axis=1)[:, EVERY - 1 :: EVERY] for x in (accepted & of_set, of_set))
        found = np.logaddexp(found, above(k, n, 0.1) - math.log((number + 1) * (number + 2)))
    return found


def _graded(streams: int, rng: np.random.Generator) -> np.ndarray:
    loss = rng.beta(0.3, 0.3 / 0.06 - 0.3, (streams, ROWS))
    n = np.broadcast_to(_LOOKS, (streams, len(_LOOKS)))
    sums = [(loss**p).cumsum(axis=1)[:, EVERY - 1 :: EVERY] for p in (1, 2)]
    return mean_above(np.stack([n, *sums], axis=-1), 0.06)


def _acceptance(streams: int, rng: np.random.Generator) -> np.ndarray:
    return outside(_coins(0.78, streams, rng), _LOOKS, 0.70, 0.78)


FALSE_ALARMS: dict[str, Alarms] = {
    "selective risk at most .06": _share_above(0.06),
    "selective risk at most .06, graded losses": _blocks(_graded),
    "TPR at least .8": _share_below(0.8),
    "FPR at most .1": _share_above(0.1),
    "FPR at most .1 of each of five sets": _blocks(_each_set),
    "precision at least .9": _share_below(0.9),
    "missing scores at most .3 %": _share_above(0.003),
    "TPR at least .8, audits of 10 % accepted and 50 % rejected": _audited(0.8, (0.1, 0.5), True),
    "FPR at most .1, audits of 50 % accepted and 5 % rejected": _audited(0.1, (0.5, 0.05), False),
    "selective risk at most .06, late labels": _blocks(_late),
    "selective risk at most .06, merged shards": _blocks(_merged),
    "selective risk at most .06, merged shards with late labels": _blocks(_late_shards),
    "accepted share between .70 and .78": _blocks(_acceptance),
}


def _population(rng: np.random.Generator, n_id: int, n_ood: int) -> Sample:
    scores = rng.normal(0, 1, (n_id, 2))
    wrong = rng.random(n_id) < 1 / (1 + np.exp(3 - scores[:, 0]))
    foreign = rng.normal([1, 2.5], 1, (n_ood, 2))
    return Sample(scores, wrong, foreign, score_names=("msp", "knn"))


def _live(rng: np.random.Generator, rows: int, prior: float) -> tuple[np.ndarray, np.ndarray]:
    foreign = rng.random(rows) < prior
    scores = rng.normal(0, 1, (rows, 2)) + np.where(foreign[:, None], [1, 2.5], 0)
    return scores, foreign


def _paths(watch: Watch, seen: LiveSums, checks: bool) -> np.ndarray:
    """Return the weighted mean of the evidence at each look."""
    found = np.full(len(seen.sums), -np.inf)
    for one in watch.setup.hypotheses(()):
        if checks and one.kind != "check":
            continue
        found = np.logaddexp(found, one.evidence(seen) + math.log(one.weight))
    return found


def _cumulative(watch: Watch, rng: np.random.Generator, every: int, labels: bool) -> LiveSums:
    """Feed a stream to the watch's own counting, and return its sums at each look."""
    steps = []
    layout = watch.setup.layout
    for _ in range(ROWS // every):
        scores, foreign = _live(rng, every, 0.1)
        counts = watch.setup.rows(scores).counts(layout)
        if labels:
            from demur.watch.counts import LabelledRows

            accepted = watch.rule.accept(scores)
            wrong = (rng.random(every) < 1 / (1 + np.exp(3 - scores[:, 0]))).astype(float)
            names = np.where(foreign, "ood", "").astype(object)
            counts.add_labelled(LabelledRows(accepted, foreign, wrong, names))
        steps.append(counts.sums)
    return LiveSums(layout, np.cumsum(steps, axis=0), {})


def drift_alarms(streams: int, every: int) -> float:
    """Return the share of streams with an alarm of any check, though nothing moved."""
    alarms = []
    for number in range(streams):
        rng = np.random.default_rng([2, number])
        rule = Rule((0.8, 0.6), 1.5, score_names=("msp", "knn"))
        reference = _population(rng, 1000, 500)
        watch = Watch(rule, expect=[], reference=reference, ood_prior=(0.05, 0.15))
        path = _paths(watch, _cumulative(watch, rng, every, labels=False), checks=True)
        alarms.append(bool((path >= _LINE).any()))
    return float(np.mean(alarms))


def everything(streams: int, every: int, n_id: int, n_ood: int) -> float:
    """Return the share of false alarms of a watch as people make it, with bounds that hold.

    What live rows are held to are the rows that the rule was tuned on, so that chance made the rule
    look better than it is.
    """
    alarms = []
    big = _population(np.random.default_rng(3), 200_000, 100_000)
    for number in range(streams):
        rng = np.random.default_rng([4, number])
        tuned = tune(_population(rng, n_id, n_ood), TprFprModel(0.75, 0.2)).rule
        truth = _rates(tuned, big)
        expect = [
            Bound("tpr", at_least=truth[0]),
            Bound("fpr", at_most=truth[1]),
            Bound("selective_risk", at_most=truth[2]),
        ]
        watch = Watch(tuned, expect=expect, ood_prior=(0.05, 0.15))
        path = _paths(watch, _cumulative(watch, rng, every, labels=True), checks=False)
        alarms.append(bool((path >= _LINE).any()))
    return float(np.mean(alarms))


def _rates(rule: Rule, sample: Sample) -> tuple[float, float, float]:
    inside, outside_ = rule.accept(sample.id_scores), rule.accept(sample.ood_scores)
    return float(inside.mean()), float(outside_.mean()), float(sample.id_loss[inside].mean())


def mean_time(streams: int, wanted: float = 100.0, rows: int = 40) -> tuple[float, float]:
    """Return the least mean number of periods to a false alarm, and what was seen.

    Streams end after ten times as many periods, so that what was seen is too small, if anything.
    """
    most = int(10 * wanted)
    found = []
    for number in range(min(streams, 200)):
        rng = np.random.default_rng([5, number])
        wrong = rng.binomial(rows, 0.06, most)
        found.append(_first_detection(wrong, rows, math.log(wanted)))
    return wanted, float(np.mean(found))


def _first_detection(wrong: np.ndarray, rows: int, line: float) -> int:
    for period in range(1, len(wrong) + 1):
        # Evidence of more than 200 periods ago is as good as none, and only adds to the detector.
        recent = wrong[max(0, period - 200) : period]
        since = recent[::-1].cumsum()
        sizes = rows * np.arange(1, len(recent) + 1)
        if np.logaddexp.reduce(above(since, sizes, 0.06)) >= line:
            return period
    return len(wrong)


def our_delays(risk: float, streams: int) -> tuple[float, float]:
    """Return the median row of the alarm, with all of alpha and with half of it."""
    k = _coins(risk, streams, np.random.default_rng([6, int(100 * risk)]), 4000)
    evidence = above(k, _LOOKS[: k.shape[1]], 0.06)
    return tuple(_median(evidence >= _LINE + part) for part in (0.0, math.log(2)))  # type: ignore[return-value]


def _median(hit: np.ndarray) -> float:
    return float(np.median(np.where(hit.any(axis=1), EVERY * (hit.argmax(axis=1) + 1), np.inf)))


def mapie_delays(risk: float, streams: int) -> float:
    """Return the same of MAPIE, whose online part of the level is set to alpha."""
    from mapie.exchangeability_testing import RiskMonitoring

    rng = np.random.default_rng([6, int(100 * risk)])
    hits = []
    for wrong in rng.random((streams, 4000)) < risk:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            monitor = RiskMonitoring("accuracy", test_level=2 * ALPHA, threshold=0.06, warn=False)
            monitor.update(np.zeros(len(wrong), int), wrong.astype(int))
        lower = np.asarray(monitor.online_risk_lower_bound_sequence_history)
        hits.append(lower[EVERY - 1 :: EVERY] > 0.06)
    return _median(np.array(hits))


def costs(*, mapie: bool) -> Iterator[tuple[str, str, str, bool | None]]:
    """Yield what is measured, the number, the goal and whether it is met."""
    rng = np.random.default_rng(7)
    rule = tune(_population(rng, 1000, 500), TprFprModel(0.75, 0.2)).rule
    scores, foreign = _live(rng, 1_000_000, 0.1)
    loss = np.where(foreign, np.nan, rng.random(len(foreign)) < 0.05)

    def fresh() -> Watch:
        return Watch(rule, expect=[Bound("selective_risk", at_most=0.06)], ood_prior=(0.05, 0.15))

    for words, labels in (("without labels", ()), ("all labelled", (loss, foreign))):
        watch = fresh()
        speed = len(scores) / _seconds(lambda: watch.update(scores, *labels))  # noqa: B023
        yield f"rows a second, {words}", f"{speed / 1e6:.1f} million", "2 million", speed >= 2e6
    watch = fresh()
    one = scores[:1].tolist()
    each = _seconds(lambda: [watch.update(one) for _ in range(2000)]) / 2000
    yield "update of a single row", f"{1e6 * each:.0f} microseconds", "", None
    watch, day = fresh(), iter(range(100_000))

    def batches(count: int) -> float:
        return float(
            np.median(
                [
                    _seconds(lambda: watch.update(scores[:1000], time=next(day)))
                    for _ in range(count)
                ]
            )
        )

    early = batches(10)
    batches(9_980)
    late = batches(10)
    yield "batch of 1,000 rows, among the first ten", f"{1e6 * early:.0f} microseconds", "", None
    words = f"{1e6 * late:.0f} microseconds"
    yield "the same after 10,000 batches", words, "the same", late <= 1.5 * early
    for words in ("reading the status then, for the first time", "and again"):
        yield words, f"{1e3 * _seconds(watch.status):.0f} ms", "", None
    size = len(to_json(watch))
    yield "state then", f"{size / 1000:.0f} kB", "100 kB", size < 100_000
    batch = scores[:100], np.zeros(100), np.zeros(100, bool)
    watch = fresh()
    ours = _seconds(lambda: [watch.update(*batch, time=k).alarms for k in range(30)])
    yield "30 batches of 100 rows, status read after each", f"{ours:.2f} s", "", None
    if mapie:
        theirs = _seconds(_thirty_of_mapie)
        yield "the same with MAPIE RiskMonitoring, one risk", f"{theirs:.2f} s", "", None


def _thirty_of_mapie() -> None:
    from mapie.exchangeability_testing import RiskMonitoring

    monitor = RiskMonitoring("accuracy", test_level=ALPHA, threshold=0.06, warn=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(30):
            monitor.update(np.zeros(100, int), np.zeros(100, int))


def _seconds(work: Callable[[], object]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start
