"""Table 2 of the paper: single and double scores on real data, printed values beside ours.

Its areas, AUROC and both OSCRs, come together, sorted once for many weightings of the same rows;
the formulas are those of `demur.metrics`, with a grid of directions for two scores.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, NamedTuple, Self

import numpy as np

from demur import metrics
from demur._arrays import FloatArray, IntArray
from demur.core.models import TprFprModel
from demur.core.program import Totals
from demur.core.sample import Sample
from demur.errors import InfeasibleError
from demur.guarantees import Interval, bootstrap
from demur.metrics.areas import Groups, Rates, area_under_ccr, area_under_roc, area_under_steps
from demur.reproduce.cache import Arrays, Cache, Notify
from demur.reproduce.networks import NETWORKS
from demur.reproduce.table2_scores import Scores
from demur.reproduce.table2_text import MIN_TPR, PAIRS, SINGLES, TITLES
from demur.tuning.tune import tune

ANGLES = 180
"""Directions for the areas of double scores; exact areas take time quadratic in the rows."""
_ANGLES_RESAMPLED = 31


@dataclass(frozen=True, slots=True)
class MethodResult:
    """One method on one OOD set."""

    selective_risk: float
    """At the target of this run; NaN if unable."""
    accepted: int
    """ID rows behind it."""
    selective_risk_interval: Interval
    unable_share: float
    """Of the resamples; they are left out of the interval."""
    selective_risk_at_printed: float
    """At the target the paper prints."""
    areas: Areas
    area_intervals: tuple[Interval, Interval, Interval]


@dataclass(frozen=True, slots=True)
class OodSetResult:
    """All methods on one OOD set."""

    n_ood: int
    target: float
    """The largest FPR any single score needs for TPR 0.8."""
    needed: Mapping[str, float]
    """The FPR each single score needs."""
    rows: Mapping[str, MethodResult]

    def claim(self) -> dict[str, bool]:
        """Tell of each double score whether its risk is at most that of both its parts."""
        return {
            pair: all(
                not self.rows[pair].selective_risk > self.rows[part].selective_risk
                for part in parts
            )
            for pair, parts in PAIRS.items()
        }


@dataclass(frozen=True, slots=True)
class Table2:
    """One half of the table with one network."""

    scores: Scores
    blocks: Mapping[str, OodSetResult]
    replicates: int

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, NaN (unable) as None."""
        scores = self.scores
        return {
            "id": scores.setup.id,
            "network": NETWORKS[scores.network].title,
            "bank": scores.bank,
            "test_accuracy": scores.accuracy,
            "published_accuracy": NETWORKS[scores.network].accuracy,
            "n_id": len(scores.id_loss),
            "odin": {"temperature": scores.odin.temperature, "eps": scores.odin.eps},
            "replicates": self.replicates,
            "ood": {name: self._block(name, block) for name, block in self.blocks.items()},
        }

    def _block(self, name: str, block: OodSetResult) -> dict[str, Any]:
        setup = self.scores.setup
        return {
            "n_ood": block.n_ood,
            "target_fpr": block.target,
            "printed_target_fpr": setup.targets[name],
            "needed_fpr": dict(block.needed),
            "never_worse_than_parts": block.claim(),
            "methods": {
                TITLES[method]: _plain(
                    {**asdict(row), "printed": asdict(setup.printed[name][method])}
                )
                for method, row in block.rows.items()
            },
        }

    def __str__(self) -> str:
        from demur.reproduce.table2_text import render_table2

        return render_table2(self)


def table2(scores: Scores, cache: Cache, *, replicates: int = 200, seed: int = 0) -> Table2:
    """Evaluate all methods of the table.

    Parameters
    ----------
    scores
        From `demur.reproduce.table2_scores.compute_scores`.
    cache
        Rows that are done are kept here.
    replicates, seed
        Of the bootstrap.
    """
    blocks = {}
    for ood in scores.setup.ood:
        target, needed = fpr_target({name: scores.sample(name, ood) for name in SINGLES})
        rows = {}
        for method in TITLES:
            sample = scores.sample(method, ood)
            rows[method] = _row(
                sample,
                target,
                scores.setup.targets[ood],
                label=f"{ood} {method}",
                cache=cache,
                replicates=replicates,
                seed=seed,
            )
        n_ood = scores.sample("msp", ood).n_ood
        blocks[ood] = OodSetResult(n_ood, float(target), needed, rows)
    return Table2(scores, blocks, replicates)


def fpr_target(samples: Mapping[str, Sample]) -> tuple[Fraction, dict[str, float]]:
    """Return the largest FPR that any of the samples needs for TPR 0.8, and what each needs."""
    needed = {name: metrics.fpr_at_tpr(sample, MIN_TPR) for name, sample in samples.items()}
    n_ood = next(iter(samples.values())).n_ood
    # As a fraction, so that the bound is met exactly by the method that sets it.
    return max(Fraction(round(fpr * n_ood), n_ood) for fpr in needed.values()), needed


def _row(
    sample: Sample,
    target: Fraction,
    printed_target: float,
    *,
    label: str,
    cache: Cache,
    replicates: int,
    seed: int,
) -> MethodResult:
    inputs = {
        "sample": _digest(sample),
        "target": str(target),
        "printed": printed_target,
        "replicates": replicates,
        "seed": seed,
    }

    def compute() -> Arrays:
        risk = _risk(sample, target, replicates, seed, cache.notify, label)
        areas = _areas(sample, replicates, seed, cache.notify, label)
        printed = metrics.selective_risk_at(sample, TprFprModel(MIN_TPR, printed_target))
        return {"risk": np.array(risk), "printed": np.array(printed), "areas": areas}

    found = cache.whole(label.replace(" ", "-"), inputs, compute)
    risk, accepted, low, high, unable = found["risk"].tolist()
    return MethodResult(
        selective_risk=risk,
        accepted=int(accepted),
        selective_risk_interval=Interval(low, high),
        unable_share=unable,
        selective_risk_at_printed=float(found["printed"]),
        areas=Areas(*found["areas"][:, 0].tolist()),
        area_intervals=tuple(Interval(*ends) for ends in found["areas"][:, 1:].tolist()),  # type: ignore[arg-type]
    )


def _risk(
    sample: Sample, target: Fraction, replicates: int, seed: int, notify: Notify | None, label: str
) -> list[float]:
    """Return risk, accepted ID rows, the interval's ends and the share of unable resamples."""
    model = TprFprModel(MIN_TPR, target)
    try:
        point = tune(sample, model).point
    except InfeasibleError:
        return [math.nan, 0, math.nan, math.nan, 1.0]
    ends, unable = (math.nan, math.nan), math.nan
    if replicates:
        found = bootstrap(
            sample,
            model,
            replicates=replicates,
            rng=seed,
            progress=None if notify is None else (lambda i, n: notify(f"bootstrap {label}", i, n)),
        )
        interval = found.measures["selective_risk"].interval
        ends, unable = (interval.low, interval.high), found.unable / replicates
    return [point.selective_risk, round(point.tpr * sample.n_id), *ends, unable]


def _areas(
    sample: Sample, replicates: int, seed: int, notify: Notify | None, label: str
) -> FloatArray:
    """Return the areas and the ends of their intervals, shape (3, 3)."""
    ones = np.ones(sample.n_id, np.int64), np.ones(sample.n_ood, np.int64)
    areas = np.array(SortedAreas.of(sample, angles=ANGLES).values(*ones))
    if not replicates:
        return np.column_stack([areas, np.full((3, 2), math.nan)])
    coarse = SortedAreas.of(sample, angles=_ANGLES_RESAMPLED)
    drawn = []
    for i, rng in enumerate(np.random.default_rng(seed).spawn(replicates)):
        times = (np.bincount(rng.integers(0, n, n), minlength=n) for n in map(len, ones))
        drawn.append(coarse.values(*times))
        if notify is not None:
            notify(f"areas {label}", i + 1, replicates)
    # Few directions will do for the spread of the areas, but not for their height.
    shifts = np.array(drawn) - np.array(coarse.values(*ones))
    ends = areas[:, None] + np.quantile(shifts, [0.025, 0.975], axis=0).T
    return np.column_stack([areas, np.clip(ends, 0.0, 1.0)])


def _digest(sample: Sample) -> str:
    digest = hashlib.sha256()
    for array in (sample.id_scores, sample.id_loss, sample.ood_scores):
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _plain(item: Any) -> Any:
    if isinstance(item, dict):
        return {key: _plain(value) for key, value in item.items()}
    if isinstance(item, (list, tuple)):
        return [_plain(value) for value in item]
    return None if isinstance(item, float) and math.isnan(item) else item


class Areas(NamedTuple):
    """The three areas of the table."""

    auroc: float
    oscr_accepted: float
    """1 - selective risk over FPR, the paper's OSCR."""
    oscr_all: float
    """Correct and accepted among all ID over FPR."""


class _Order(NamedTuple):
    rows: IntArray
    """All rows, ID first, by rising score."""
    ends: IntArray
    """Where groups of equal scores end."""


class SortedAreas(NamedTuple):
    """Rows of a sample in the order of each direction."""

    orders: tuple[_Order, ...]
    loss: FloatArray
    double: bool

    @classmethod
    def of(cls, sample: Sample, *, angles: int) -> Self:
        """Sort along `angles` equidistant directions with mu >= 0; along the score if single."""
        scores = np.concatenate([sample.id_scores, sample.ood_scores])
        double = sample.n_scores == 2
        turns = np.linspace(0, math.pi / 2, angles) if double else np.zeros(1)
        orders = []
        for turn in turns:
            weights = np.array([math.cos(turn), math.sin(turn)][: sample.n_scores])
            # cos(pi/2) is 6e-17 in floats, which would break the ties of the other score.
            combined = scores @ np.where(weights < 1e-15, 0.0, weights)
            rows = np.argsort(combined, kind="stable")
            ends = np.flatnonzero(np.append(np.diff(combined[rows]) > 0, True))
            orders.append(_Order(rows, ends))
        return cls(tuple(orders), sample.id_loss, double)

    def values(self, id_times: IntArray, ood_times: IntArray) -> Areas:
        """Return the areas with row i counted ``times[i]`` times."""
        no_id, no_ood = np.zeros_like(ood_times), np.zeros_like(id_times)
        wrong = id_times * self.loss.astype(np.int64)
        masses = (
            np.concatenate([id_times, no_id]),
            np.concatenate([no_ood, ood_times]),
            np.concatenate([wrong, no_id]),
        )
        totals = Totals(int(id_times.sum()), (int(ood_times.sum()),), int(wrong.sum()))
        groups = [
            Groups(*(np.append(0, np.cumsum(mass[order.rows])[order.ends]) for mass in masses))
            for order in self.orders
        ]
        return (_best_of if self.double else _of_one)(groups, Rates(totals))


def _of_one(groups: list[Groups], rates: Rates) -> Areas:
    return Areas(
        area_under_roc(groups[0], rates.totals),
        area_under_ccr(groups[0], rates, "accepted"),
        area_under_ccr(groups[0], rates, "all"),
    )


def _best_of(groups: list[Groups], rates: Rates) -> Areas:
    """Return the areas under the largest rates of all directions at each OOD mass."""
    tops = np.full((3, rates.ood), np.nan)
    for each in groups:
        length = np.diff(np.append(each.ood, rates.ood))
        curves = (
            rates.tpr(each.id),
            rates.ccr(each.id, each.loss, "accepted"),
            rates.ccr(each.id, each.loss, "all"),
        )
        for top, curve in zip(tops, curves, strict=True):
            np.fmax(top, np.repeat(curve, length), out=top)
    # Where no ID row is accepted yet, the rate is taken to be the first one there is.
    some = np.flatnonzero(~np.isnan(tops[1]))
    if len(some):
        tops[1][: some[0]] = tops[1][some[0]]
    edges = np.arange(rates.ood + 1)
    return Areas(*(area_under_steps(edges, top, rates.ood) for top in tops))
