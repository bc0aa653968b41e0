"""
The same rule in any units
==========================

A grid of angles depends on the units of the scores; the exact search does not. One score is
multiplied by a factor.
"""

import warnings

import numpy as np

import demur as dm

rng = np.random.default_rng(0)
wrong = rng.random(600) < 0.15
id_scores = np.column_stack([rng.gamma(1 + 2 * wrong), rng.normal(0, 1, 600)])
ood_scores = np.column_stack([rng.gamma(1.5, size=300), rng.normal(2.5, 1, 300)])
sample = dm.Sample(id_scores, wrong, ood_scores, score_names=("msp", "knn"))
import matplotlib.pyplot as plt

# It says so itself; here that is the point.
warnings.filterwarnings("ignore", category=dm.ScoreUnitsWarning)
factors = 10.0 ** np.arange(-3, 4)
risks = {"grid of 360 angles": [], "exact": []}
for factor in factors:
    scaled = dm.Sample(id_scores * [1, factor], wrong, ood_scores * [1, factor])
    for name, search in (("grid of 360 angles", dm.Grid(360)), ("exact", dm.Exact())):
        model = dm.TprFprModel(min_tpr=0.8, max_fpr=0.1)
        try:
            risks[name].append(dm.tune(scaled, model, search=search).point.selective_risk)
        except dm.InfeasibleError:
            risks[name].append(np.nan)

figure, ax = plt.subplots(figsize=(5, 3.4), layout="constrained")
ax.semilogx(factors, risks["grid of 360 angles"], "o--", color="#d55e00", label="360 angles")
ax.semilogx(factors, risks["exact"], "s-", color="#0072b2", label="exact")
ax.set_xlabel("unit of the second score")
ax.set_ylabel("selective risk")
ax.set_ylim(bottom=0)
ax.legend(frameon=False)
