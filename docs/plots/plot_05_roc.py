"""
ROC of one score and of two
===========================

The curve of two scores is that of the best rule at every level, so it lies above those of the
single scores. It is tuned on the rows it is drawn for.
"""

import numpy as np

import demur as dm

rng = np.random.default_rng(0)
wrong = rng.random(600) < 0.15
id_scores = np.column_stack([rng.gamma(1 + 2 * wrong), rng.normal(0, 1, 600)])
ood_scores = np.column_stack([rng.gamma(1.5, size=300), rng.normal(2.5, 1, 300)])
sample = dm.Sample(id_scores, wrong, ood_scores, score_names=("msp", "knn"))
ax = dm.metrics.roc_curve(sample).plot(label="msp and knn")
dm.metrics.roc_curve(sample.score(0)).plot(ax=ax, label="msp")
dm.metrics.roc_curve(sample.score(1)).plot(ax=ax, label="knn")
