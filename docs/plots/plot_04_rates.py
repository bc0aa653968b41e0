"""
Rates and what was asked for
============================

Green is what the bounds allow, the points are what the rule does on the rows it was tuned on.
"""

import numpy as np

import demur as dm

rng = np.random.default_rng(0)
wrong = rng.random(600) < 0.15
id_scores = np.column_stack([rng.gamma(1 + 2 * wrong), rng.normal(0, 1, 600)])
ood_scores = np.column_stack([rng.gamma(1.5, size=300), rng.normal(2.5, 1, 300)])
sample = dm.Sample(id_scores, wrong, ood_scores, score_names=("msp", "knn"))
model = dm.PrecisionRecallModel(min_precision=0.95, min_recall=0.7, ood_prior=0.25)
dm.tune(sample, model).plot()
