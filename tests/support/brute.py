"""Optimal rules by trying every half-plane in exact integer arithmetic.

Independent of the package: rates are compared as fractions straight from their definitions.
Scores must be whole numbers (or None for +inf).
"""

from __future__ import annotations

from fractions import Fraction
from itertools import combinations, product

INF = None


def directions_of(points, allowed):
    """Return integer weight vectors that realise every half-plane of the allowed directions."""
    critical = set()
    for (a, b), (c, d) in combinations(sorted(set(points)), 2):
        normal = (d - b, a - c)
        critical |= {normal, (-normal[0], -normal[1])}
    critical |= {(1, 0), (0, 1), (-1, 0), (0, -1)}
    ordered = sorted({_primitive(v) for v in critical}, key=_turn)
    between = [
        (v[0] + w[0], v[1] + w[1]) for v, w in zip(ordered, ordered[1:] + ordered[:1], strict=True)
    ]
    keep = {
        "nonneg": lambda p, q: p >= 0 and q >= 0,
        "real": lambda p, q: p >= 0,
        "paper": lambda p, q: q >= 0,
        "circle": lambda p, q: True,
    }[allowed]
    return [(p, q) for p, q in ordered + between if (p, q) != (0, 0) and keep(p, q)]


def _primitive(vector):
    from math import gcd

    divisor = gcd(*vector)
    return (vector[0] // divisor, vector[1] // divisor) if divisor else vector


def _turn(vector):
    """Order by angle without trigonometry: half-turn first, then slope."""
    p, q = vector
    upper = q > 0 or (q == 0 and p > 0)
    return (not upper, q != 0, Fraction(-p, q) if q else Fraction(0))


def accepted_sets(scores, allowed):
    """Yield every accepted set of rows as a frozenset; scores are 1- or 2-tuples.

    `allowed` is a set of directions, or "box": a limit for each score.
    """
    rows = [i for i, s in enumerate(scores) if None not in s]
    if allowed == "box":
        corners = product(*({scores[i][k] for i in rows} for k in range(len(scores[0]))))
        inside = lambda i, corner: all(s <= t for s, t in zip(scores[i], corner, strict=True))  # noqa: E731
        yield from {frozenset(i for i in rows if inside(i, c)) for c in corners} - {frozenset()}
        return
    if scores and len(scores[0]) == 1:
        combined = [[scores[i][0] for i in rows]]
    else:
        plane = [scores[i] for i in rows]
        combined = [[p * a + q * b for a, b in plane] for p, q in directions_of(plane, allowed)]
    seen = set()
    for values in combined:
        for limit in set(values):
            chosen = frozenset(i for i, v in zip(rows, values, strict=True) if v <= limit)
            if chosen not in seen:
                seen.add(chosen)
                yield chosen


def decimal(value):
    return Fraction(str(value))


def brute_force(rows, model, allowed="nonneg"):
    """Return (objective, ID weight, OOD weight) of the optimum, or None when infeasible.

    rows: (scores, loss or None for OOD, weight), all whole numbers or fractions.
    model: ("tprfpr", min_tpr, max_fpr), ("pr", precision, recall, prior) or
    ("cost", reject_id, accept_ood, reject_ood, prior).
    """
    total_id = sum(w for _, loss, w in rows if loss is not None)
    total_ood = sum(w for _, loss, w in rows if loss is None)
    candidates = list(accepted_sets([s for s, *_ in rows], allowed))
    if model[0] == "cost":
        candidates.append(frozenset())
    best = None
    for chosen in candidates:
        nI = sum(rows[i][2] for i in chosen if rows[i][1] is not None)
        nO = sum(rows[i][2] for i in chosen if rows[i][1] is None)
        L = sum(rows[i][2] * rows[i][1] for i in chosen if rows[i][1] is not None)
        objective = _objective(model, nI, nO, L, total_id, total_ood)
        if objective is not None:
            key = (objective, -nI, nO)
            best = key if best is None else min(best, key)
    return None if best is None else (best[0], -best[1], best[2])


def _objective(model, nI, nO, L, total_id, total_ood):
    kind, *bounds = model
    tpr = Fraction(nI, total_id)
    fpr = Fraction(nO, total_ood) if total_ood else Fraction(0)
    if kind == "cost":
        reject_id, accept_ood, reject_ood, prior = map(decimal, bounds)
        id_cost = (L + reject_id * (total_id - nI)) / Fraction(total_id)
        ood_cost = accept_ood * fpr + reject_ood * (1 - fpr)
        return (1 - prior) * id_cost + prior * ood_cost
    if nI == 0:
        return None
    if kind == "tprfpr":
        min_tpr, max_fpr = map(decimal, bounds)
        met = tpr >= min_tpr and fpr <= max_fpr
    else:
        min_precision, min_recall, prior = map(decimal, bounds)
        precision = (1 - prior) * tpr / ((1 - prior) * tpr + prior * fpr)
        met = tpr >= min_recall and precision >= min_precision
    return Fraction(L) / nI if met else None


def brute_bounds(rows, objective, bounds, prior, allowed="nonneg"):
    """Return (value, ID, OOD, loss weight) of the best accepted set, or None when infeasible.

    rows: (scores, loss or None for OOD, weight, name of its group or OOD set).
    objective: "selective_risk", "fpr" (least) or "tpr" (most); the value of the last is negative.
    bounds: (quantity, ">=" or "<=", value, name of a group or set or None for all rows).
    """
    best = None
    for chosen in accepted_sets([s for s, *_ in rows], allowed):
        if not sum(rows[i][2] for i in chosen if rows[i][1] is not None):
            continue
        rate = lambda name, of: _rate(rows, chosen, name, of, prior)  # noqa: B023, E731
        if all(_holds(rate(name, of), sense, decimal(v)) for name, sense, v, of in bounds):
            sums = [sum(rows[i][2] * part(rows[i][1]) for i in chosen) for part in _PARTS]
            value = {"tpr": -sums[0], "fpr": sums[1], "selective_risk": Fraction(sums[2], sums[0])}
            key = (value[objective], -sums[0], sums[1], sums[2])
            best = key if best is None else min(best, key)
    return None if best is None else (best[0], -best[1], best[2], best[3])


_PARTS = (lambda loss: loss is not None, lambda loss: loss is None, lambda loss: loss or 0)


def _holds(value, sense, bound):
    """A rate without a denominator meets no bound."""
    return value is not None and (value >= bound if sense == ">=" else value <= bound)


def _rate(rows, chosen, quantity, of, prior):
    own = [i for i, (_, loss, *_) in enumerate(rows) if loss is not None]
    foreign = [i for i, (_, loss, *_) in enumerate(rows) if loss is None]
    if of is not None:
        named = [i for i in own + foreign if rows[i][3] == of]
        own = named if quantity in ("tpr", "selective_risk") else own
        foreign = named if quantity in ("fpr", "precision") else foreign
    weight = lambda some: sum(rows[i][2] for i in some)  # noqa: E731
    kept, slipped = [i for i in own if i in chosen], [i for i in foreign if i in chosen]
    if quantity == "selective_risk":
        loss = sum(rows[i][2] * rows[i][1] for i in kept)
        return Fraction(loss, weight(kept)) if weight(kept) else None
    tpr = Fraction(weight(kept), weight(own)) if weight(own) else None
    fpr = Fraction(weight(slipped), weight(foreign)) if weight(foreign) else Fraction(0)
    if quantity in ("tpr", "fpr"):
        return tpr if quantity == "tpr" else fpr
    pi = decimal(prior)
    both = (1 - pi) * tpr + pi * fpr
    return (1 - pi) * tpr / both if both else None
