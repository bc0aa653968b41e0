"""
Tuned and left out
==================

Every fold is tuned on the others and judged on itself: the distance between the two is the
optimism of tuning.
"""

import numpy as np

import demur as dm

rng = np.random.default_rng(0)
wrong = rng.random(600) < 0.15
id_scores = np.column_stack([rng.gamma(1 + 2 * wrong), rng.normal(0, 1, 600)])
ood_scores = np.column_stack([rng.gamma(1.5, size=300), rng.normal(2.5, 1, 300)])
sample = dm.Sample(id_scores, wrong, ood_scores, score_names=("msp", "knn"))
model = dm.TprFprModel(min_tpr=0.8, max_fpr=0.1)
dm.guarantees.cross_tune(sample, model, rng=0).plot()
