"""One function a section: size and repetitions in, Markdown tables out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

import demur as dm
from benchmarks.agreement import agreement
from benchmarks.alternatives import detection_metrics, sweep_all_pairs
from benchmarks.datasets import HARD, MANY_DECADES, REALISTIC, Case, clouds, synthetic
from benchmarks.engines import engine, on_engine
from benchmarks.fresh_data import exact_against_grid
from benchmarks.paper_grid import tune_grid
from benchmarks.processes import first_call, imports, memory
from benchmarks.report_page import page, pairs
from benchmarks.timing import Ratio, compare, compare_all, table
from demur.guarantees import bootstrap


def paper_grid(case: Case) -> Callable[[], object]:
    """Return the baseline: the paper's 360 angles at the case's bounds."""
    return partial(
        tune_grid,
        case.sample.id_scores,
        case.sample.id_loss,
        case.sample.ood_scores,
        min_tpr=float(case.model.min_tpr),
        max_fpr=float(case.model.max_fpr),
    )


GOALS = {
    "compiled": {20_000: "60x", 200_000: "150x", 2_000_000: "300x"},
    "numpy": {20_000: "4x", 200_000: "10x", 2_000_000: "60x"},
    "grid": {2_000_000: "80x"},
}
TITLES = {
    "compiled": "Exact tuning, compiled engine",
    "numpy": "Exact tuning, NumPy engine",
    "grid": "Grid of 360 angles, compiled engine",
}


def tuning(n: int, repetitions: int) -> str:
    """Tune a sample, preparation included, against the paper's grid."""
    found: dict[str, list[Ratio]] = {name: [] for name in TITLES}
    for make in REALISTIC:
        case = make(n, 0)
        ours = {
            name: partial(on_engine, name, dm.tune, case.sample, case.model)
            for name in ("compiled", "numpy")
        }
        ours["grid"] = partial(
            on_engine, "compiled", dm.tune, case.sample, case.model, search=dm.Grid(360)
        )
        for name, ratio in compare_all(make.__name__, paper_grid(case), ours, repetitions).items():
            found[name].append(ratio)
    return "\n".join(
        table(f"{TITLES[name]}, n = {n:,}", ratios, GOALS[name].get(n, "none"))
        for name, ratios in found.items()
    )


def hard(name: str, n: int, repetitions: int) -> str:
    """Noise made to be hard, over every set of directions."""
    ratios = []
    for make in [*HARD, *MANY_DECADES]:
        case = make(n, 0)
        ours = {
            directions: partial(
                on_engine, name, dm.tune, case.sample, case.model, directions=directions
            )
            for directions in ("nonneg", "real", "paper", "circle")
        }
        found = compare_all(make.__name__, paper_grid(case), ours, repetitions)
        ratios += [replace(ratio, what=f"{ratio.what}, {d}") for d, ratio in found.items()]
    return table(f"Hard noise, {name} engine, n = {n:,}", ratios, "1x each")


def argsorts(n: int, repetitions: int) -> str:
    """Exact tuning in units of one argsort of the combined score."""
    ratios: list[Ratio] = []
    with engine("compiled"):
        for make in REALISTIC:
            case = make(n, 0)
            scores = np.concatenate([case.sample.id_scores, case.sample.ood_scores])
            combined = scores @ np.array([0.6, 0.8])
            ours = partial(dm.tune, case.sample, case.model)
            ratios.append(compare(make.__name__, partial(np.argsort, combined), ours, repetitions))
    return table(f"Exact tuning against one argsort, n = {n:,}", ratios, "0.5x")


def boxes(n: int, repetitions: int) -> str:
    """Exact box rules in units of one argsort of the combined score."""
    ratios: list[Ratio] = []
    with engine("compiled"):
        for make in [*REALISTIC, *HARD]:
            case = make(n, 0)
            scores = np.concatenate([case.sample.id_scores, case.sample.ood_scores])
            combined = scores @ np.array([0.6, 0.8])
            ours = partial(dm.tune, case.sample, case.model, shape="box")
            ratios.append(compare(make.__name__, partial(np.argsort, combined), ours, repetitions))
    return table(f"Exact box rules against one argsort, n = {n:,}", ratios, "0.2x")


def bounds(name: str, n: int, repetitions: int) -> str:
    """Bounds on risk and on ten groups, against bounds on TPR and FPR alone."""
    ratios: list[Ratio] = []
    with engine(name):
        for make in REALISTIC:
            sample, model = make(n, 0)
            plain = partial(dm.tune, sample, model)
            best, shares = plain().point, np.random.default_rng(0).integers(0, 10, sample.n_id)
            grouped = dm.Sample(
                sample.id_scores, sample.id_loss, sample.ood_scores, id_group=shares.astype(str)
            )
            least = round(best.tpr - 0.01, 3)
            of_groups = [dm.Bound("tpr", at_least=least, group=str(k)) for k in range(10)]
            risk = dm.RiskFprModel(round(best.selective_risk * 1.05, 4), float(model.max_fpr))
            every = dm.RejectionModel("selective_risk", [*model.bounds, *of_groups])
            for what, ours in (
                ("risk", partial(dm.tune, sample, risk)),
                ("ten groups", partial(dm.tune, grouped, every)),
            ):
                ratios.append(compare(f"{make.__name__}, {what}", plain, ours, repetitions))
    return table(f"Bounds on risk and groups, {name} engine, n = {n:,}", ratios, "0.33x")


def frontier(n: int, repetitions: int) -> str:
    """Compute the exact 101 x 101 frontier against one paper grid at one operating point."""
    ratios = []
    with engine("compiled"):
        for make in REALISTIC:
            case = make(n, 0)
            ours = partial(dm.frontier, case.sample)
            ratios.append(compare(make.__name__, paper_grid(case), ours, repetitions))
    return table(f"Exact 101 x 101 frontier, n = {n:,}", ratios, "0.83x each")


def replicates(n: int, repetitions: int) -> str:
    """Run 1,000 bootstrap replicates, each tuned exactly, against one paper grid."""
    ratios = []
    with engine("compiled"):
        for make in REALISTIC:
            case = make(n, 0)
            ours = partial(bootstrap, case.sample, case.model, replicates=1000)
            ratios.append(compare(make.__name__, paper_grid(case), ours, repetitions))
    return table(f"1,000 bootstrap replicates, n = {n:,}", ratios, "0.17x")


def metrics(n: int, repetitions: int) -> str:
    """All scalar metrics of one score against scikit-learn and against plain metric code."""
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    sample = clouds(n, 0).sample.score(0)
    positive = np.concatenate([np.ones(sample.n_id), np.zeros(sample.n_ood)])
    trust = -np.concatenate([sample.id_scores, sample.ood_scores])[:, 0]

    def four() -> None:
        roc_auc_score(positive, trust)
        average_precision_score(positive, trust)
        average_precision_score(1 - positive, -trust)
        roc_curve(positive, trust)

    baselines = {
        "four calls of scikit-learn": four,
        "roc_auc_score alone": partial(roc_auc_score, positive, trust),
        "metric code of a detection benchmark": partial(detection_metrics, positive, trust),
    }
    tables = []
    for name, goal in (("compiled", "30x, 10x, -"), ("numpy", "6x, -, -")):
        ours = partial(on_engine, name, dm.metrics.summary, sample)
        ratios = [compare(what, run, ours, repetitions) for what, run in baselines.items()]
        tables.append(table(f"All scalar metrics, {name} engine, n = {n:,}", ratios, goal))
    return "\n".join(tables)


def sweep(n: int, repetitions: int) -> str:
    """Exact tuning against the sweep that lets every pair of points change places."""
    ratios = []
    for make in (clouds, synthetic):
        case = make(n, 0)
        ours = partial(on_engine, "compiled", dm.tune, case.sample, case.model)
        ratios.append(compare(make.__name__, partial(sweep_all_pairs, case), ours, repetitions))
    return table(f"Exact tuning against a sweep of all pairs, n = {n:,}", ratios, "none")


def growth(n: int, repetitions: int) -> str:
    """How the seconds of exact tuning grow from n to 10 n."""
    rows = ["| data | engine | exponent |", "|---|---|--:|"]
    for make in REALISTIC:
        small, large = make(n, 0), make(10 * n, 0)
        # At 20,000,000 rows the NumPy engine would take minutes.
        for name in ("compiled", "numpy") if n < 2_000_000 else ("compiled",):
            runs = [partial(on_engine, name, dm.tune, c.sample, c.model) for c in (small, large)]
            ratio = compare(f"{make.__name__}, {name}", runs[1], runs[0], repetitions)
            rows.append(f"| {make.__name__} | {name} | {math.log10(ratio.speedup):.2f} |")
    return "\n".join([f"### Growth of exact tuning, n = {n:,} to {10 * n:,}", "", *rows, ""])


class Section(NamedTuple):
    """What to run, and at which sizes unless told otherwise."""

    run: Callable[[int, int], str]
    sizes: tuple[int, ...]


SECTIONS = {
    "tuning": Section(tuning, (20_000, 200_000, 2_000_000)),
    "argsorts": Section(argsorts, (2_000_000, 20_000_000)),
    "boxes": Section(boxes, (200_000,)),
    "bounds-compiled": Section(partial(bounds, "compiled"), (200_000,)),
    "bounds-numpy": Section(partial(bounds, "numpy"), (200_000,)),
    "frontier": Section(frontier, (20_000, 200_000)),
    "bootstrap": Section(replicates, (20_000,)),
    "metrics": Section(metrics, (1_000_000,)),
    "hard-compiled": Section(partial(hard, "compiled"), (20_000, 200_000, 2_000_000)),
    "hard-numpy": Section(partial(hard, "numpy"), (20_000, 200_000, 2_000_000)),
    "sweep": Section(sweep, (2_000,)),
    "growth": Section(growth, (20_000, 200_000, 2_000_000)),
    "report": Section(page, (20_000, 100_000, 1_000_000)),
    "pairs": Section(pairs, (100_000,)),
    "imports": Section(imports, (0,)),
    "first-call": Section(first_call, (20_000,)),
    "memory": Section(memory, (2_000_000,)),
    "agreement": Section(agreement, (2_000, 20_000, 200_000)),
    "fresh-data": Section(exact_against_grid, (2_000, 20_000)),
}
