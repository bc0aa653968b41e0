"""
The rule in the plane of two scores
===================================

Familiar inputs lie below and to the left, foreign ones above. The line is the best of all lines
for the bounds: at least 80 % of the familiar accepted, at most 10 % of the foreign.
"""

import numpy as np

import demur as dm

rng = np.random.default_rng(0)
wrong = rng.random(600) < 0.15
id_scores = np.column_stack([rng.gamma(1 + 2 * wrong), rng.normal(0, 1, 600)])
ood_scores = np.column_stack([rng.gamma(1.5, size=300), rng.normal(2.5, 1, 300)])
sample = dm.Sample(id_scores, wrong, ood_scores, score_names=("msp", "knn"))
tuned = dm.tune(sample, dm.TprFprModel(min_tpr=0.8, max_fpr=0.1))
tuned.plot(sample=sample)
