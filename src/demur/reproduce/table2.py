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
from demur.reproduce.image_sets import Notify
from demur.reproduce.networks import NETWORKS, Arrays, Cache
from demur.reproduce.table2_scores import MIN_TPR, PAIRS, SINGLES, TITLES, Printed, Scores
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


_TABLE_HEADER = (
    f"{'method':<8}  {'selective risk [95 %]':<27}{'paper':>8}{'diff':>9}  {'at paper FPR':>12}  "
    f"{'AUROC [95 %]':<20}{'paper':>6}{'diff':>8}  {'OSCR/accepted [95 %]':<20}{'paper':>6}"
    f"{'diff':>8}  {'OSCR/all ID [95 %]':<20}"
)
_CLAIM = "On the data it was tuned on, a double score is never above its parts in selective risk"


def render_table2(table: Table2) -> str:
    """Return the table with its notes."""
    scores = table.scores
    network = NETWORKS[scores.network]
    trained = scores.trained_epochs
    title = (
        f"Table 2, ID: {scores.setup.id}, {len(scores.id_loss):,} test images; "
        + (f"LeNet trained here for {trained} epochs" if trained else network.title)
        + f", accuracy {scores.accuracy:.2%} on all test images "
        f"(published {network.accuracy:.2%})"
    )
    blocks = [_block(table, name, block) for name, block in table.blocks.items()]
    return "\n\n".join([title, *blocks, "\n".join(_table_notes(table))])


def _block(table: Table2, name: str, block: OodSetResult) -> str:
    setup = table.scores.setup
    head = (
        f"OOD: {name}, {block.n_ood:,} images; TPR >= {MIN_TPR}, FPR <= {block.target:.4f} "
        f"(paper: {setup.targets[name]:.2f})"
    )
    rows = [
        _table_line(TITLES[method], row, setup.printed[name][method])
        for method, row in block.rows.items()
    ]
    return "\n".join([head, _TABLE_HEADER, *rows])


def _table_line(title: str, row: MethodResult, printed: Printed) -> str:
    auroc, accepted, every = row.areas
    spans = row.area_intervals
    risk = (
        f"{_number(row.selective_risk, 5):<8}{_span(row.selective_risk_interval, 5):<19}"
        f"{printed.selective_risk:>8.5f}"
        f"{_minus(row.selective_risk, printed.selective_risk, 5)}"
    )
    return (
        f"{title:<8}  {risk:<44}  {_number(row.selective_risk_at_printed, 5):>12}  "
        f"{auroc:.4f} {_span(spans[0], 3):<13}{printed.auroc:>6.3f}"
        f"{_minus(auroc, printed.auroc, 4)}  "
        f"{accepted:.4f} {_span(spans[1], 3):<13}{printed.oscr:>6.3f}"
        f"{_minus(accepted, printed.oscr, 4)}  "
        f"{every:.4f} {_span(spans[2], 3)}"
    ).rstrip()


def _number(value: float, digits: int) -> str:
    return "unable" if math.isnan(value) else f"{value:.{digits}f}"


def _minus(ours: float, printed: float, digits: int) -> str:
    return f"{'-' if math.isnan(ours) else f'{ours - printed:+.{digits}f}':>{digits + 4}}"


def _span(interval: Interval, digits: int) -> str:
    if math.isnan(interval.low):
        return ""
    low, high = (f"{end:.{digits}f}".lstrip("0") for end in (interval.low, interval.high))
    return f"[{low},{high}]"


def _table_notes(table: Table2) -> list[str]:
    scores = table.scores
    claims = [held for block in table.blocks.values() for held in block.claim().values()]
    lines = [
        f"{_CLAIM}: it holds in {sum(claims)} of {len(claims)} cases. "
        "`demur reproduce heldout` shows what happens on other data.",
        "The FPR bound is the largest FPR that any single score needs for TPR 0.8 (the paper's "
        "rule). The paper prints its bounds to two digits: at those, the method that sets the "
        "bound can be unable.",
    ]
    if scores.setup.id == "cifar10":
        lines.append(
            "The network is not the paper's: its ResNet-18 weights are not public, so the "
            "values, and the order of the methods, need not be the paper's."
        )
    if scores.bank == "augmented":
        lines.append(
            "KNN and ViM learn from mirrored and randomly cut training images, as OpenOOD v1.0 "
            "does; --bank plain, the sound choice, takes them as they are."
        )
    else:
        lines.append(
            "KNN and ViM learn from the training images as they are; the paper's values follow "
            "from augmented ones (--bank augmented), as OpenOOD v1.0 has them."
        )
    how = "chosen on validation images" if scores.odin_searched else "its defaults"
    lines.append(f"ODIN: T = {scores.odin.temperature:g}, eps = {scores.odin.eps:g}, {how}.")
    if scores.whole_sets:
        lines.append(f"No list of test images, so all are used: {', '.join(scores.whole_sets)}.")
    lines.append(
        f"Areas of double scores: best of {ANGLES} directions at each FPR, tuned on the data shown "
        f"(optimistic). Intervals: {table.replicates} resamples, double scores tuned anew in each."
    )
    unable = max(row.unable_share for block in table.blocks.values() for row in block.rows.values())
    if unable > 0:
        lines.append(
            f"Resamples in which a method cannot meet the bounds (up to {unable:.0%}: the method "
            "that sets the bound) are left out of its interval."
        )
    return lines
