"""Named alternatives, written plainly from their definitions."""

from __future__ import annotations

import numpy as np

import demur as dm
from benchmarks.datasets import Case
from demur._kernels import reference
from demur.core.points import Points
from demur.tuning.prepared import goal_of


def detection_metrics(positive: np.ndarray, trust: np.ndarray) -> dict[str, float]:
    """Return AUROC, both AUPRs and FPR at TPR 95 %, as benchmarks of OOD detectors compute them.

    Each from a curve of its own, sorted anew.
    """
    from sklearn.metrics import auc, precision_recall_curve, roc_curve

    fpr, tpr, _ = roc_curve(positive, trust)
    precision_in, recall_in, _ = precision_recall_curve(positive, trust)
    precision_out, recall_out, _ = precision_recall_curve(1 - positive, -trust)
    return {
        "auroc": auc(fpr, tpr),
        "aupr_in": auc(recall_in, precision_in),
        "aupr_out": auc(recall_out, precision_out),
        "fpr_at_95": float(fpr[np.argmax(tpr >= 0.95)]),
    }


def sweep_all_pairs(case: Case) -> object:
    """Find the optimum by turning a line about every point: quadratic, but exact and simple."""
    points = Points.of(case.sample)
    x, y = points.scores.T
    merged = reference.merge(x, y, points.id, points.ood, points.loss)
    model: dm.TprFprModel = case.model
    return reference.search_chart(merged, goal_of(model.program(points.totals)))
