"""The appendix's figures: risk-coverage at FPR 0.2, ROC and precision-recall of methods A to D."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from demur import metrics
from demur._arrays import FloatArray
from demur._files import write_atomically
from demur.core.paper_models import TprFprModel
from demur.core.sample import Sample
from demur.errors import InfeasibleError, MissingExtraError
from demur.population import (
    CORRECTED,
    METHODS,
    FiniteProblem,
    best_threshold,
    optimum,
    risk_coverage,
    threshold_curve,
)
from demur.reproduce.table1 import NAMES, PRECISION_RECALL, TPR_FPR, method_sample

# Colours that stay apart for colour-blind readers. D, the envelope, is a broad band under the
# others, so that a method which coincides with it stays visible.
STYLES = {
    "A": {"color": "#0072b2", "linestyle": "--"},
    "B": {"color": "#009e73", "linestyle": "-."},
    "C": {"color": "#d55e00", "linestyle": ":"},
    "D": {"color": "#a0a0a0", "linestyle": "-"},
}
_LEVELS = np.round(np.arange(0.05, 1.0, 0.01), 2)

Draw = Callable[[Any, FiniteProblem, Sample], None]


def write_figures(
    folder: str | os.PathLike[str], *, n: int = 2000, seed: int = 0, cells: int = 4000
) -> list[Path]:
    """Write the three figures as PNG and SVG and return their paths.

    Lines are population curves on the corrected data (OOD mean 2), pale bands the same curves on
    one sample of `n` inputs.
    """
    figure_class = _matplotlib_figure()
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    problem, sample = CORRECTED.discretise(cells), CORRECTED.sample(n, seed)
    written = []
    for name, draw in FIGURES.items():
        figure = figure_class(figsize=(6.4, 4.8), layout="constrained")
        axes = figure.add_subplot()
        draw(axes, problem, sample)
        axes.grid(alpha=0.3)
        axes.plot([], [], color="black", alpha=0.3, linewidth=1.0, label=f"pale: a sample, n={n}")
        axes.legend(frameon=False)
        for kind in ("png", "svg"):
            buffer = BytesIO()
            figure.savefig(buffer, format=kind, dpi=150)
            path = target / f"{name}.{kind}"
            write_atomically(path, buffer.getvalue())
            written.append(path)
    return written


def draw_risk_coverage(axes: Any, problem: FiniteProblem, sample: Sample) -> None:
    """Draw the selective risk over TPR with FPR at most 0.2, up to the attainable TPR."""
    max_fpr = float(TPR_FPR.max_fpr)
    for method, mu in METHODS.items():
        tpr = _LEVELS
        risk = risk_coverage(problem, tpr, max_fpr=max_fpr, mu=mu)
        reached = _largest_tpr(problem, mu, max_fpr)
        ends = risk_coverage(problem, [reached - 1e-9], max_fpr=max_fpr, mu=mu)
        inside = tpr < reached
        axes.plot(
            np.append(tpr[inside], reached),
            np.append(risk[inside], ends),
            label=f"{NAMES[method]}, attainable TPR {reached:.2f}",
            **_line(method),
        )
        axes.plot([reached], ends, marker="o", color=STYLES[method]["color"])
        curve = metrics.risk_coverage_curve(method_sample(sample, method), max_fpr=max_fpr)
        _pale(axes, method, curve.x, curve.y)
    axes.axvline(float(TPR_FPR.min_tpr), color="grey", linewidth=0.8)
    axes.set(xlabel="coverage (TPR)", ylabel="selective risk", xlim=(0, 1), ylim=(0, 0.25))
    axes.set_title(f"Risk-coverage at FPR at most {max_fpr:g}")


def draw_roc(axes: Any, problem: FiniteProblem, sample: Sample) -> None:
    """Draw TPR over FPR, and the bounds of Table 1."""
    for method, mu in METHODS.items():
        curve = threshold_curve(problem, math.inf if mu is None else mu)
        axes.plot(curve.fpr, curve.tpr, label=NAMES[method], **_line(method))
        empirical = metrics.roc_curve(method_sample(sample, method))
        _pale(axes, method, empirical.x, empirical.y)
    bound = (float(TPR_FPR.max_fpr), float(TPR_FPR.min_tpr))
    axes.plot(*bound, "k*", markersize=11, label="bounds: FPR 0.2, TPR 0.7")
    axes.set(xlabel="FPR", ylabel="TPR", xlim=(0, 1), ylim=(0, 1.01))
    axes.set_title("ROC")


def draw_precision_recall(axes: Any, problem: FiniteProblem, sample: Sample) -> None:
    """Draw precision at prior 0.25 over recall, and the bounds of Table 1."""
    prior = float(PRECISION_RECALL.ood_prior)
    for method, mu in METHODS.items():
        curve = threshold_curve(problem, math.inf if mu is None else mu)
        axes.plot(curve.tpr, curve.precision(prior), label=NAMES[method], **_line(method))
        empirical = metrics.precision_recall_curve(method_sample(sample, method), ood_prior=prior)
        _pale(axes, method, empirical.x, empirical.y)
    bound = (float(PRECISION_RECALL.min_recall), float(PRECISION_RECALL.min_precision))
    axes.plot(*bound, "k*", markersize=11, label="bounds: recall 0.7, precision 0.9")
    axes.set(xlabel="recall (TPR)", ylabel="precision", xlim=(0, 1), ylim=(0.7, 1.005))
    axes.set_title(f"Precision-recall at OOD prior {prior:g}")


FIGURES: dict[str, Draw] = {
    "risk-coverage": draw_risk_coverage,
    "roc": draw_roc,
    "precision-recall": draw_precision_recall,
}


def _largest_tpr(problem: FiniteProblem, mu: float | None, max_fpr: float) -> float:
    """Return the largest TPR with FPR at most `max_fpr`, as an infeasible problem names it."""
    model = TprFprModel(1, max_fpr)
    try:
        if mu is None:
            optimum(problem, model)
        else:
            best_threshold(problem, model, mu=mu)
    except InfeasibleError as error:
        return error.attainable["max_tpr"]
    return 1.0


def _line(method: str) -> dict[str, Any]:
    broad = method == "D"
    return {**STYLES[method], "linewidth": 5.0 if broad else 1.8, "zorder": 1.5 if broad else 2.0}


def _pale(axes: Any, method: str, x: FloatArray, y: FloatArray) -> None:
    axes.plot(x, y, color=STYLES[method]["color"], alpha=0.3, linewidth=1.0, zorder=1)


def _matplotlib_figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("matplotlib", "report") from None
    return Figure
