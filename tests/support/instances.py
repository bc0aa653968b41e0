"""Random small instances, degenerate ones on purpose."""

from __future__ import annotations

import numpy as np

import demur as dm

BOUNDS = [0, 0.05, 0.1, 0.2, 0.25, 0.3, 1 / 3, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1]


def random_rows(rng, scores, *, allow_infinite=True):
    """Return rows (scores, loss or None, weight) of whole numbers."""
    n_id, n_ood = int(rng.integers(1, 7)), int(rng.integers(0, 6))
    high = int(rng.choice([2, 4, 8, 1 << 20]))
    losses = {
        "zero_one": lambda: int(rng.integers(0, 2)),
        "zero": lambda: 0,
        "one": lambda: 1,
        "general": lambda: int(rng.integers(0, 8)),
    }[str(rng.choice(["zero_one", "zero_one", "zero", "one", "general"]))]
    weighted = rng.random() < 0.3
    kind = str(rng.choice(["free", "free", "free", "line", "constant"]))
    rows = []
    for i in range(n_id + n_ood):
        point = rng.integers(0, high, scores)
        if kind == "line":
            point[:] = point[0]
        if kind == "constant":
            point[-1] = 3
        score = tuple(int(v) for v in point)
        if allow_infinite and rng.random() < 0.03:
            score = (None, *score[1:])
        weight = int(rng.integers(0, 4)) if weighted else 1
        rows.append((score, losses() if i < n_id else None, weight))
    if not any(w for _, loss, w in rows if loss is not None):
        rows[0] = (rows[0][0], rows[0][1], 1)
    return rows


def random_model(rng, rows):
    """Return a model for brute force and its twin of the package."""
    total_id = sum(w for _, loss, w in rows if loss is not None)
    total_ood = sum(w for _, loss, w in rows if loss is None)
    share = lambda total: (  # noqa: E731
        round(int(rng.integers(0, total + 1)) / total, 6)
        if total and rng.random() < 0.3
        else float(rng.choice(BOUNDS))
    )
    prior = 0.0 if total_ood == 0 else float(rng.choice([0, 0.1, 0.25, 0.4, 0.5, 0.9]))
    kind = str(rng.choice(["tprfpr", "pr", "cost"]))
    if kind == "tprfpr":
        # Without OOD rows a bound on the FPR is refused.
        model = (kind, share(total_id), share(total_ood) if total_ood else 1.0)
        return model, dm.TprFprModel(*model[1:])
    if kind == "pr":
        model = (kind, float(rng.choice(BOUNDS)), share(total_id), prior)
        return model, dm.PrecisionRecallModel(*model[1:])
    low, high = sorted(rng.choice([0, 0.1, 0.5, 1, 2, 7], 2).tolist())
    model = (kind, float(rng.choice([0, 0.05, 0.5, 1, 3])), high, low, prior)
    return model, dm.CostModel(*model[1:])


def to_sample(rows):
    """Return the rows as a sample of the package."""
    number = lambda v: np.inf if v is None else float(v)  # noqa: E731
    pick = lambda ood: [r for r in rows if (r[1] is None) == ood]  # noqa: E731
    k = len(rows[0][0])
    scores = lambda part: np.array([[number(v) for v in s] for s, *_ in part]).reshape(-1, k)  # noqa: E731
    weights = lambda part: np.array([w for *_, w in part], float)  # noqa: E731
    unweighted = all(w == 1 for *_, w in rows)
    return dm.Sample(
        id_scores=scores(pick(False)),
        id_loss=[loss for _, loss, _ in pick(False)],
        ood_scores=scores(pick(True)),
        id_weight=None if unweighted else weights(pick(False)),
        ood_weight=None if unweighted else weights(pick(True)),
    )
