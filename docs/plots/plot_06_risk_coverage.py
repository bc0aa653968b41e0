"""
Risk and coverage
=================

The selective risk against the share of familiar inputs that are answered.
"""

import numpy as np

import demur as dm

rng = np.random.default_rng(0)
wrong = rng.random(600) < 0.15
id_scores = np.column_stack([rng.gamma(1 + 2 * wrong), rng.normal(0, 1, 600)])
ood_scores = np.column_stack([rng.gamma(1.5, size=300), rng.normal(2.5, 1, 300)])
sample = dm.Sample(id_scores, wrong, ood_scores, score_names=("msp", "knn"))
ax = dm.metrics.risk_coverage_curve(sample.score(0)).plot(label="msp")
dm.metrics.risk_coverage_curve(sample.score(1)).plot(ax=ax, label="knn")
