"""CPU of the page, of curves and of areas of pairs, in units of one paper grid on the rows."""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import demur as dm
from benchmarks.datasets import Case, clouds
from benchmarks.paper_grid import tune_grid

GOALS = {20_000: 40, 100_000: 15, 1_000_000: 12}
MOST_GRIDS_OF_A_METRIC = 3


def page(n: int, repetitions: int) -> str:
    """``demur report`` of two scores, exact, 30 % held out, in a process of its own."""
    rows = ["| rows | grid, CPU s | page, CPU s | grids | goal | page MB | peak memory MB |"]
    rows.append("|--:|--:|--:|--:|--:|--:|--:|")
    case = clouds(n, 0)
    with tempfile.TemporaryDirectory() as folder:
        data, html = Path(folder) / "scores.npz", Path(folder) / "page.html"
        _save(case, data)
        before = _cpu(lambda: _paper_grid(case))
        seconds, peak = _report(data, html)
        # Once before and once after: other work on the machine slows down both.
        grid = (before + _cpu(lambda: _paper_grid(case))) / 2
        size = html.stat().st_size / 1e6
    goal = GOALS.get(n, "none")
    rows.append(
        f"| {n:,} | {grid:.3g} | {seconds:.3g} | **{seconds / grid:.3g}** | {goal} "
        f"| {size:.2f} | {peak:.0f} |"
    )
    return "\n".join([f"### The page, n = {n:,}", "", *rows, ""])


def pairs(n: int, repetitions: int) -> str:
    """Curves and areas of two scores."""
    case = clouds(n, 0)
    sample, metrics = case.sample, dm.metrics
    runs: dict[str, Callable[[], object]] = {
        "auroc": lambda: metrics.auroc(sample),
        "roc_curve": lambda: metrics.roc_curve(sample),
        "oscr per accepted": lambda: metrics.oscr(sample),
        "oscr per all": lambda: metrics.oscr(sample, per="all"),
        "ccr_fpr_curve per accepted": lambda: metrics.ccr_fpr_curve(sample),
        "risk_coverage_curve": lambda: metrics.risk_coverage_curve(sample),
        "aupr": lambda: metrics.aupr(sample),
        "fpr_at_tpr": lambda: metrics.fpr_at_tpr(sample, 0.95),
    }
    rows = ["| metric of a pair | grid, CPU s | CPU s | grids | error |", "|---|--:|--:|--:|--:|"]
    for name, run in runs.items():
        grid = _cpu(lambda: _paper_grid(case))
        found: list[object] = []
        seconds = _cpu(lambda run=run, found=found: found.append(run()))
        error = getattr(found[0], "error", 0.0)
        rows.append(
            f"| {name} | {grid:.3g} | {seconds:.3g} | **{seconds / grid:.2f}** | {error:.1g} |"
        )
    title = f"### Pairs, n = {n:,} (goal: at most {MOST_GRIDS_OF_A_METRIC} grids each at 1e5)"
    return "\n".join([title, "", *rows, ""])


def _paper_grid(case: Case) -> None:
    sample, model = case.sample, case.model
    scores = (sample.id_scores, sample.id_loss, sample.ood_scores)
    tune_grid(*scores, min_tpr=float(model.min_tpr), max_fpr=float(model.max_fpr))


def _cpu(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def _save(case: Case, path: Path) -> None:
    sample = case.sample
    scores = np.concatenate([sample.id_scores, sample.ood_scores])
    np.savez(
        path,
        r=scores[:, 0],
        g=scores[:, 1],
        wrong=np.concatenate([sample.id_loss, np.zeros(sample.n_ood)]),
        ood=np.repeat([0, 1], [sample.n_id, sample.n_ood]),
    )


def _report(data: Path, html: Path) -> tuple[float, float]:
    """Return the CPU seconds and the peak memory, in MB, of the command."""
    command = [sys.executable, "-m", "demur", "report", str(data), "--scores", "r,g"]
    command += ["--loss", "wrong", "--ood", "ood", "--min-tpr", ".8", "--max-fpr", ".2"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [*command, "--holdout", ".3", "-o", str(html)], check=True, capture_output=True, text=True
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, after.ru_maxrss / 1e3
