"""Five scores of inputs whose risk and foreignness they show through noise."""

import numpy as np

import demur as dm

NAMES = list("abcde")


def five_scores(rng, id_rows, ood_rows, **options):
    """Draw rows: two hidden doubts, five scores of them, errors by the first."""

    def seen(risk, foreign):
        noise = rng.normal(size=(len(risk), 5))
        return np.column_stack(
            [
                risk + 0.8 * noise[:, 0],
                foreign + 0.8 * noise[:, 1],
                0.7 * risk + 0.7 * foreign + noise[:, 2],
                risk - 0.3 * foreign + 1.2 * noise[:, 3],
                foreign + 0.3 * risk + 1.2 * noise[:, 4],
            ]
        )

    risk, foreign = rng.normal(size=(2, id_rows))
    wrong = rng.random(id_rows) < 1 / (1 + np.exp(2.6 - 1.7 * risk))
    other = seen(rng.normal(0.5, 1, ood_rows), rng.normal(1.5, 1, ood_rows))
    return dm.Sample(seen(risk, foreign), wrong, other, score_names=NAMES, **options)
