"""
A limit for each score
======================

``shape="box"`` gives each score a limit of its own: easier to say, and the limits are the best
there are.
"""

import numpy as np

import demur as dm

rng = np.random.default_rng(0)
wrong = rng.random(600) < 0.15
id_scores = np.column_stack([rng.gamma(1 + 2 * wrong), rng.normal(0, 1, 600)])
ood_scores = np.column_stack([rng.gamma(1.5, size=300), rng.normal(2.5, 1, 300)])
sample = dm.Sample(id_scores, wrong, ood_scores, score_names=("msp", "knn"))
boxed = dm.tune(sample, dm.TprFprModel(min_tpr=0.8, max_fpr=0.1), shape="box")
boxed.plot(sample=sample)
