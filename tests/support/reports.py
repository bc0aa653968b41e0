"""Samples to report on."""

from __future__ import annotations

import numpy as np

import demur as dm

HOSTILE = (
    "</script><script>window.pwned = 1</script><img src=x onerror='window.pwned = 2'>"
    '"><!-- ${7*7} &lt; \u202e'
)


def make_sample(seed=0, n_id=300, n_ood=150, *, names=("msp", "knn"), sets=("svhn", "noise")):
    """Return a pair of scores in eighths and floats, so that one of them has ties."""
    rng = np.random.default_rng(seed)
    wrong = rng.random(n_id) < 0.12
    sizes = [len(part) for part in np.array_split(np.arange(n_ood), len(sets))]
    return dm.Sample(
        id_scores=np.column_stack(
            [np.floor(8 * rng.gamma(1 + 2 * wrong, 0.3)) / 8, rng.normal(0, 1, n_id)]
        ),
        id_loss=wrong,
        ood_scores={
            name: np.column_stack(
                [np.floor(8 * rng.gamma(1.8, 0.4, n)) / 8, rng.normal(1.4 + i, 1, n)]
            )
            for i, (name, n) in enumerate(zip(sets, sizes, strict=True))
        },
        score_names=names,
    )


def accepted(rule, sample):
    """Count accepted ID rows, OOD rows and losses of accepted ID rows in a plain loop."""

    def accepts(scores):
        return sum(w * s for w, s in zip(rule.direction, scores, strict=True)) <= rule.threshold

    id_rows = zip(sample.id_scores.tolist(), sample.id_loss.tolist(), strict=True)
    losses = [loss for scores, loss in id_rows if accepts(scores)]
    ood = [scores for scores in sample.ood_scores.tolist() if accepts(scores)]
    return len(losses), len(ood), sum(losses)
