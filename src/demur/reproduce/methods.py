"""Methods A to D of the paper's synthetic experiment, applied to samples."""

from __future__ import annotations

import math

import numpy as np

from demur.core.models import PrecisionRecallModel, TprFprModel
from demur.core.sample import Sample
from demur.population import METHODS

NAMES = {"A": "A(inf)", "B": "B(0.2)", "C": "C(0)", "D": "D(all mu)"}
TPR_FPR = TprFprModel(min_tpr=0.7, max_fpr=0.2)
PRECISION_RECALL = PrecisionRecallModel(min_precision=0.9, min_recall=0.7, ood_prior=0.25)


def method_sample(sample: Sample, method: str) -> Sample:
    """Return what a method sees of scores (r, g): ``r + mu*g``, or both for method D."""
    mu = METHODS[method]
    if mu is None:
        return sample
    if math.isinf(mu):
        return sample.score(1)
    weights = np.array([1.0, mu])
    return Sample(sample.id_scores @ weights, sample.id_loss, sample.ood_scores @ weights)
