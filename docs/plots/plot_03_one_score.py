"""
One score
=========

With one score the rule is a threshold. Shares of each group are drawn, so that small groups are
seen.
"""

import numpy as np

import demur as dm

rng = np.random.default_rng(0)
wrong = rng.random(600) < 0.15
id_scores = np.column_stack([rng.gamma(1 + 2 * wrong), rng.normal(0, 1, 600)])
ood_scores = np.column_stack([rng.gamma(1.5, size=300), rng.normal(2.5, 1, 300)])
sample = dm.Sample(id_scores, wrong, ood_scores, score_names=("msp", "knn"))
single = sample.score(1)
dm.tune(single, dm.TprFprModel(min_tpr=0.8, max_fpr=0.1)).plot(sample=single)
