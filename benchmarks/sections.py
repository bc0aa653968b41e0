"""One function a section: size and repetitions in, a Markdown table out."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np

import demur as dm
from benchmarks.datasets import HARD, REALISTIC, Case, clouds
from benchmarks.paper_grid import tune_grid
from benchmarks.timing import Ratio, compare, table

Section = Callable[[int, int], str]


@contextmanager
def engine(name: str) -> Iterator[None]:
    """Force an engine for a while."""
    before = os.environ.get("DEMUR_ENGINE")
    os.environ["DEMUR_ENGINE"] = name
    try:
        yield
    finally:
        if before is None:
            del os.environ["DEMUR_ENGINE"]
        else:
            os.environ["DEMUR_ENGINE"] = before


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


def tuning(name: str, goals: dict[int, str], n: int, repetitions: int) -> str:
    """Exact tuning of a sample, preparation included, against the paper's grid."""
    ratios = []
    with engine(name):
        for make in REALISTIC:
            case = make(n, 0)
            ours = partial(dm.tune, case.sample, case.model)
            ratios.append(compare(make.__name__, paper_grid(case), ours, repetitions))
    goal = goals.get(n, "none")
    return table(f"Exact tuning, {name} engine, against the paper's grid, n = {n:,}", ratios, goal)


def hard(name: str, n: int, repetitions: int) -> str:
    """Noise made to be hard, over every set of directions."""
    ratios = []
    with engine(name):
        for make in HARD:
            case = make(n, 0)
            for directions in ("nonneg", "real", "paper", "circle"):
                ours = partial(dm.tune, case.sample, case.model, directions=directions)
                what = f"{make.__name__}, {directions}"
                ratios.append(compare(what, paper_grid(case), ours, repetitions))
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
    return table(f"Exact tuning in argsorts (baseline: one), n = {n:,}", ratios, "0.25x")


def grid(n: int, repetitions: int) -> str:
    """Run the paper's grid in our engine against the plain transcription."""
    ratios = []
    with engine("compiled"):
        for make in REALISTIC:
            case = make(n, 0)
            ours = partial(dm.tune, case.sample, case.model, search=dm.Grid(360))
            ratios.append(compare(make.__name__, paper_grid(case), ours, repetitions))
    return table(f"Grid of 360 angles, compiled engine, n = {n:,}", ratios, "80x at 2,000,000")


def frontier(n: int, repetitions: int) -> str:
    """Compute the exact 101 x 101 frontier against one paper grid at one operating point."""
    ratios = []
    with engine("compiled"):
        for make in REALISTIC:
            case = make(n, 0)
            ours = partial(dm.frontier, case.sample)
            ratios.append(compare(make.__name__, paper_grid(case), ours, repetitions))
    return table(f"Exact 101 x 101 frontier, n = {n:,}", ratios, "at least 0.83x")


def metrics(n: int, repetitions: int) -> str:
    """All scalar metrics of one score against four calls of scikit-learn."""
    from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

    sample = clouds(n, 0).sample.score(0)
    positive = np.concatenate([np.ones(sample.n_id), np.zeros(sample.n_ood)])
    trust = -np.concatenate([sample.id_scores, sample.ood_scores])[:, 0]

    def four() -> None:
        roc_auc_score(positive, trust)
        average_precision_score(positive, trust)
        average_precision_score(1 - positive, -trust)
        roc_curve(positive, trust)

    ratios = []
    for name in ("compiled", "numpy"):
        with engine(name):
            ours = partial(dm.metrics.summary, sample)
            ratios.append(compare(f"four calls, {name}", four, ours, repetitions))
            single = partial(roc_auc_score, positive, trust)
            ratios.append(compare(f"roc_auc_score alone, {name}", single, ours, repetitions))
    return table(f"All scalar metrics, n = {n:,}", ratios, "30x, 10x, 6x, -")


def imports(n: int, repetitions: int) -> str:
    """``import demur`` against ``import numpy``, in fresh interpreters."""
    run = lambda module: subprocess.run([sys.executable, "-c", f"import {module}"], check=True)  # noqa: E731
    ratio = compare("import", partial(run, "numpy"), partial(run, "demur"), max(repetitions, 9))
    return table("Import of demur (baseline: numpy)", [ratio], "at least 0.67x")


SECTIONS: dict[str, Section] = {
    "tuning-compiled": partial(
        tuning, "compiled", {20_000: "25x", 200_000: "60x", 2_000_000: "100x"}
    ),
    "tuning-numpy": partial(tuning, "numpy", {20_000: "4x", 200_000: "10x", 2_000_000: "15x"}),
    "hard-compiled": partial(hard, "compiled"),
    "hard-numpy": partial(hard, "numpy"),
    "argsorts": argsorts,
    "grid": grid,
    "frontier": frontier,
    "metrics": metrics,
    "imports": imports,
}
