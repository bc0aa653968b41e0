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


def labelled(rng, rows):
    """Return the rows with a group, or an OOD set, each."""
    names = {False: ("common", "rare", "new")[: int(rng.integers(1, 4))], True: ("far", "near")}
    return [(*row, str(rng.choice(names[row[1] is None]))) for row in rows]


def random_bounds(rng, rows, kind):
    """Return objective, bounds and prior for brute force, and the model that states them.

    kind: "risk" (with bounds of all rows only), "sets", "groups" or "mixed".
    """
    groups = sorted({of for _, loss, w, of in rows if loss is not None and w})
    sets = sorted({of for _, loss, w, of in rows if loss is None and w})
    value = lambda: float(rng.choice(BOUNDS))  # noqa: E731
    bounds = []
    if kind == "risk" or rng.random() < 0.3:
        bounds.append(
            ("selective_risk", "<=", float(rng.choice([0, 0.05, 0.2, 1 / 3, 0.5, 2])), None)
        )
    if sets and rng.random() < 0.6:
        bounds.append(("fpr", "<=", value(), None))
    if kind in ("sets", "mixed") and sets:
        for name in sets:
            quantity = str(rng.choice(["fpr", "fpr", "precision"]))
            bounds.append((quantity, "<=" if quantity == "fpr" else ">=", value(), name))
    if kind in ("groups", "mixed"):
        for name in groups[: int(rng.integers(1, 3))]:
            risky = rng.random() < 0.4
            quantity, sense = ("selective_risk", "<=") if risky else ("tpr", ">=")
            bounds.append((quantity, sense, value(), name))
    if kind != "risk" and rng.random() < 0.5:
        bounds.append(("tpr", ">=", value(), None))
    objective = "tpr" if kind == "risk" else str(rng.choice(["selective_risk", "tpr", "fpr"]))
    if objective == "fpr" and not sets:
        objective = "tpr"
    prior = float(rng.choice([0.1, 0.25, 0.5])) if sets else 0.0
    return (objective, bounds, prior), dm.RejectionModel(
        objective, [bound_of(bound) for bound in bounds], prior
    )


def bound_of(bound):
    quantity, sense, value, of = bound
    whose = "group" if quantity in ("tpr", "selective_risk") else "ood_set"
    return dm.Bound(quantity, **{"at_least" if sense == ">=" else "at_most": value, whose: of})


def to_sample(rows):
    """Return the rows as a sample of the package; a fourth entry is the group or the OOD set."""
    number = lambda v: np.inf if v is None else float(v)  # noqa: E731
    pick = lambda ood: [r for r in rows if (r[1] is None) == ood]  # noqa: E731
    k = len(rows[0][0])
    scores = lambda part: np.array([[number(v) for v in s] for s, *_ in part]).reshape(-1, k)  # noqa: E731
    weights = lambda part: np.array([row[2] for row in part], float)  # noqa: E731
    unweighted = all(row[2] == 1 for row in rows)
    if len(rows[0]) == 4:
        return _to_named_sample(pick(False), pick(True), scores, weights, unweighted)
    return dm.Sample(
        id_scores=scores(pick(False)),
        id_loss=[loss for _, loss, *_ in pick(False)],
        ood_scores=scores(pick(True)),
        id_weight=None if unweighted else weights(pick(False)),
        ood_weight=None if unweighted else weights(pick(True)),
    )


def _to_named_sample(own, foreign, scores, weights, unweighted):
    names = sorted({row[3] for row in foreign})
    by_set = {name: [row for row in foreign if row[3] == name] for name in names}
    return dm.Sample(
        id_scores=scores(own),
        id_loss=[row[1] for row in own],
        ood_scores={name: scores(part) for name, part in by_set.items()} or None,
        id_weight=None if unweighted else weights(own),
        ood_weight=None
        if unweighted or not foreign
        else {name: weights(part) for name, part in by_set.items()},
        id_group=[row[3] for row in own],
    )
