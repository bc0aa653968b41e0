"""
Give or take how much
=====================

Intervals of the bootstrap, the rule tuned anew on every replicate.
"""

import numpy as np

import demur as dm

rng = np.random.default_rng(0)
wrong = rng.random(600) < 0.15
id_scores = np.column_stack([rng.gamma(1 + 2 * wrong), rng.normal(0, 1, 600)])
ood_scores = np.column_stack([rng.gamma(1.5, size=300), rng.normal(2.5, 1, 300)])
sample = dm.Sample(id_scores, wrong, ood_scores, score_names=("msp", "knn"))
model = dm.TprFprModel(min_tpr=0.8, max_fpr=0.1)
dm.guarantees.bootstrap(sample, model, replicates=200, rng=0).plot()
