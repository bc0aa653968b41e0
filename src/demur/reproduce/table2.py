"""Table 2 of the paper: single and double scores on real data, printed values beside ours."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from demur import metrics
from demur._arrays import FloatArray
from demur.core.paper_models import TprFprModel
from demur.core.sample import Sample
from demur.errors import InfeasibleError
from demur.guarantees import Interval, bootstrap
from demur.reproduce.data_download import Notify
from demur.reproduce.networks import NETWORKS
from demur.reproduce.table2_areas import Areas, SortedAreas
from demur.reproduce.table2_cache import Arrays, Cache
from demur.reproduce.table2_scores import Scores
from demur.reproduce.table2_setups import MIN_TPR, PAIRS, SINGLES, TITLES
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
        from demur.reproduce.text import render_table2

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
