"""The paper's tuning algorithm, transcribed plainly: the baseline of all tuning ratios.

360 equidistant angles over [0, pi]; per angle one float64 argsort, cumulative sums, operating
points after each group of ties, and the smallest selective risk within the bounds.
"""

from __future__ import annotations

import numpy as np


def tune_grid(
    id_scores: np.ndarray,
    id_loss: np.ndarray,
    ood_scores: np.ndarray,
    *,
    min_tpr: float,
    max_fpr: float,
    angles: int = 360,
) -> tuple[float, float, float]:
    """Return the best selective risk, its angle and its threshold."""
    scores = np.concatenate([id_scores, ood_scores])
    is_id = np.concatenate([np.ones(len(id_scores)), np.zeros(len(ood_scores))])
    loss = np.concatenate([id_loss, np.zeros(len(ood_scores))])
    best = (np.inf, np.nan, np.nan)
    for angle in np.linspace(0, np.pi, angles):
        combined = np.cos(angle) * scores[:, 0] + np.sin(angle) * scores[:, 1]
        order = np.argsort(combined)
        ordered = combined[order]
        accepted_id = np.cumsum(is_id[order])
        accepted_ood = np.arange(1, len(order) + 1) - accepted_id
        accepted_loss = np.cumsum(loss[order])
        last = np.append(ordered[1:] != ordered[:-1], True)
        met = last & (accepted_id >= min_tpr * len(id_scores))
        met &= accepted_ood <= max_fpr * len(ood_scores)
        rows = np.flatnonzero(met)
        if len(rows):
            risk = accepted_loss[rows] / accepted_id[rows]
            row = int(np.argmin(risk))
            if risk[row] < best[0]:
                best = (float(risk[row]), float(angle), float(ordered[rows[row]]))
    return best
