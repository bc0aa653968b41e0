"""A rule for each group: the best overall, by trying all combinations of rules in integers."""

import os
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from brute import accepted_sets, decimal
from instances import random_model, random_rows, to_sample

import demur as dm
from demur.tuning.by_group import tune_by_group

CASES = int(os.environ.get("DEMUR_CASES", "60"))


def masses(rows, chosen):
    own = [rows[i] for i in chosen if rows[i][1] is not None]
    ood = sum(rows[i][2] for i in chosen if rows[i][1] is None)
    return np.array([sum(w for *_, w in own), ood, sum(loss * w for _, loss, w in own)], object)


def objective(asked, nI, nO, L, total_id, total_ood):
    kind, *bounds = asked
    tpr, fpr = Fraction(nI, total_id), Fraction(nO, total_ood) if total_ood else Fraction(0)
    if kind == "cost":
        reject_id, accept_ood, reject_ood, prior = map(decimal, bounds)
        id_cost = (L + reject_id * (total_id - nI)) / Fraction(total_id)
        return (1 - prior) * id_cost + prior * (accept_ood * fpr + reject_ood * (1 - fpr))
    if nI == 0:
        return None
    if kind == "tprfpr":
        met = tpr >= decimal(bounds[0]) and fpr <= decimal(bounds[1])
    elif kind == "risk":
        return -nI if Fraction(L, nI) <= decimal(bounds[0]) and fpr <= decimal(bounds[1]) else None
    else:
        precision, recall, prior = map(decimal, bounds)
        share = (1 - prior) * tpr
        met = tpr >= recall and share / (share + prior * fpr) >= precision
    return Fraction(L, nI) if met else None


@pytest.mark.parametrize("scores", [1, 2])
def test_all_combinations_of_rules(scores):
    rng = np.random.default_rng([41, scores])
    found = 0
    for _ in range(CASES):
        parts = {
            name: random_rows(rng, scores)[: 6 - scores] for name in "abc"[: rng.integers(1, 4)]
        }
        parts = {
            n: rows
            for n, rows in parts.items()
            if sum(w for _, loss, w in rows if loss is not None)
        }
        if not parts:
            continue
        rows = [row for part in parts.values() for row in part]
        asked, model = random_model(rng, rows)
        if rng.random() < 0.2 and any(loss is None and w for _, loss, w in rows):
            asked, model = ("risk", 0.3, 0.5), dm.RiskFprModel(0.3, 0.5)
        total_id = sum(w for _, loss, w in rows if loss is not None)
        total_ood = sum(w for _, loss, w in rows if loss is None)
        options = [
            [
                masses(part, c)
                for c in (frozenset(), *accepted_sets([s for s, *_ in part], "nonneg"))
            ]
            for part in parts.values()
        ]
        best = None
        for combination in product(*options):
            nI, nO, L = (int(v) for v in sum(combination))
            value = objective(asked, nI, nO, L, total_id, total_ood)
            if value is not None and (best is None or (value, -nI, nO, L) < best):
                best = (value, -nI, nO, L)
        samples = {name: to_sample(part) for name, part in parts.items()}
        if best is None:
            with pytest.raises(dm.InfeasibleError, match="no rule for each group reaches"):
                tune_by_group(samples, model)
            continue
        found += 1
        tuned = tune_by_group(samples, model)
        point = tuned.point
        assert (point.accepted_id, point.accepted_ood, point.accepted_loss) == (-best[1], *best[2:])
        each = tuned.points.values()
        assert sum(p.accepted_id for p in each) == point.accepted_id
        assert sum(p.accepted_ood for p in each) == point.accepted_ood
    assert found > CASES / 3


def test_rows_are_decided_by_the_rule_of_their_group():
    rng = np.random.default_rng(42)
    samples = {}
    for name, shift in (("cat", 0.0), ("dog", 0.5), ("owl", 1.0)):
        wrong = rng.random(300) < 0.15
        own = shift + rng.normal(0, 1, 300) + 1.5 * wrong
        samples[name] = dm.Sample(own, wrong, shift + rng.normal(1.5, 1, 200))
    model = dm.TprFprModel(0.6, 0.2)
    tuned = tune_by_group(samples, model)
    scores = np.concatenate([s.id_scores[:, 0] for s in samples.values()])
    groups = np.repeat(list(samples), 300)
    assert tuned.accept(scores, groups).mean() == tuned.point.tpr
    together = dm.Sample(
        scores,
        np.concatenate([s.id_loss for s in samples.values()]),
        np.concatenate([s.ood_scores[:, 0] for s in samples.values()]),
    )
    # One rule for all is one of the choices.
    assert tuned.point.selective_risk <= dm.tune(together, model).point.selective_risk
    with pytest.raises(dm.InvalidInputError, match="no rule for 'cow'"):
        tuned.accept([0.1], ["cow"])
    with pytest.raises(dm.InvalidInputError, match="one rule"):
        bound = dm.Bound("fpr", at_most=0.1, ood_set="x")
        tune_by_group(samples, dm.RejectionModel("tpr", [bound]))
