"""
Precision and recall at a stated prior
======================================

Precision depends on how frequent foreign inputs are. State it: the same score at three shares.
"""

import numpy as np

import demur as dm

rng = np.random.default_rng(0)
wrong = rng.random(600) < 0.15
id_scores = np.column_stack([rng.gamma(1 + 2 * wrong), rng.normal(0, 1, 600)])
ood_scores = np.column_stack([rng.gamma(1.5, size=300), rng.normal(2.5, 1, 300)])
sample = dm.Sample(id_scores, wrong, ood_scores, score_names=("msp", "knn"))
ax = None
for prior in (0.05, 0.2, 0.5):
    curve = dm.metrics.precision_recall_curve(sample.score(1), ood_prior=prior)
    ax = curve.plot(ax=ax, label=f"{prior:.0%} foreign")
