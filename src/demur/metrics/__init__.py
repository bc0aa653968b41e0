"""Metrics and curves of single- and double-score samples.

ID is the positive class and a higher score means more doubt. Several OOD sets are pooled; a
metric of one set is that of ``sample.for_ood(name)``. Numbers that cannot be had are NaN.
"""

from demur.metrics.areas import CurveArea, augrc, aupr, aurc, auroc
from demur.metrics.curves import (
    Curve,
    ccr_fpr_curve,
    precision_recall_curve,
    risk_coverage_curve,
    roc_curve,
)
from demur.metrics.joint import ds_aurc, ds_f1, prr, risk_tpr_area
from demur.metrics.oscr import oscr
from demur.metrics.rules import Within, auroc_within, distinct_rows
from demur.metrics.scalar import (
    ScoreSummary,
    ccr_at_fpr,
    f1,
    fpr_at_tpr,
    id_accuracy,
    ood_share,
    selective_risk_at,
    summary,
    tnr_at_tpr,
)

__all__ = [
    "Curve",
    "CurveArea",
    "ScoreSummary",
    "Within",
    "augrc",
    "aupr",
    "aurc",
    "auroc",
    "auroc_within",
    "ccr_at_fpr",
    "ccr_fpr_curve",
    "distinct_rows",
    "ds_aurc",
    "ds_f1",
    "f1",
    "fpr_at_tpr",
    "id_accuracy",
    "ood_share",
    "oscr",
    "precision_recall_curve",
    "prr",
    "risk_coverage_curve",
    "risk_tpr_area",
    "roc_curve",
    "selective_risk_at",
    "summary",
    "tnr_at_tpr",
]


def __dir__() -> list[str]:
    return __all__
