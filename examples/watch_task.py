"""A tuned rule and a stream of scored inputs, which in your project are your own."""

import numpy as np

import demur as dm

rng = np.random.default_rng(0)


def drawn(rows, prior, shift=0.0):
    """Return two scores a row, whether the answer is wrong, and whether the input is OOD."""
    ood = rng.random(rows) < prior
    scores = rng.normal(0, 1, (rows, 2)) + np.where(ood[:, None], [1, 2.5], 0) + shift
    return scores, rng.random(rows) < 1 / (1 + np.exp(3 - scores[:, 0])), ood


def tuned():
    """Return a rule, with its card."""
    scores, wrong, ood = drawn(3000, 0.4)
    sample = dm.Sample(scores[~ood], wrong[~ood], scores[ood], score_names=("msp", "knn"))
    return dm.tune(sample, dm.TprFprModel(0.8, 0.1)).rule


def live_stream():
    """Yield scores and the loss, None unless the input was audited; scores move after 2,000."""
    for number in range(5000):
        scores, wrong, ood = drawn(1, 0.1, 0.0 if number < 2000 else 0.7)
        audited = rng.random() < 0.3 and not ood[0]
        yield scores[0].tolist(), float(wrong[0]) if audited else None


rule = tuned()
