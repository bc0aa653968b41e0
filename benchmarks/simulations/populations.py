"""Populations whose rates are known for every rule, to check promises against."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import betainc, ndtr
from scipy.stats import multivariate_normal

import demur as dm
from demur.population.paper_example import CORRECTED


class Truth(NamedTuple):
    """Rates of a rule in the population."""

    tpr: float
    fpr: float
    selective_risk: float
    parts: dict[tuple[str, str], float] = {}  # noqa: RUF012
    """By quantity and the name of a group or an OOD set."""

    def precision(self, prior: float) -> float:
        """Return the share of ID among the accepted."""
        accepted = (1 - prior) * self.tpr
        return accepted / (accepted + prior * self.fpr)

    def cost(self, model: dm.CostModel) -> float:
        """Return the expected cost."""
        prior, reject = float(model.ood_prior), float(model.reject_id)
        id_cost = reject + self.tpr * (self.selective_risk - reject) if self.tpr else reject
        ood_cost = self.fpr * float(model.accept_ood) + (1 - self.fpr) * float(model.reject_ood)
        return (1 - prior) * id_cost + prior * ood_cost


class Population(NamedTuple):
    """How to draw n ID and n OOD rows, and what a rule does to all of them."""

    name: str
    draw: Callable[[int, np.random.Generator], dm.Sample]
    truth: Callable[[dm.Rule], Truth]
    max_loss: float | None = None


def paper(name: str, weights: list[list[float]]) -> Population:
    """Return the paper's example; scores are the rows of `weights` times (r(x), g(x))."""
    cells = np.linspace(-8, 10, 100_001)
    mix = np.array(weights).T

    def scores(x: np.ndarray) -> np.ndarray:
        return np.column_stack([CORRECTED.conditional_risk(x), CORRECTED.likelihood_ratio(x)]) @ mix

    id_density = CORRECTED.id_density(cells).sum(axis=1)
    ood_density = CORRECTED.ood_density(cells)
    p_id, p_ood = id_density / id_density.sum(), ood_density / ood_density.sum()
    p_loss, known = p_id * CORRECTED.conditional_risk(cells), scores(cells)

    def draw(n: int, rng: np.random.Generator) -> dm.Sample:
        y = rng.choice(3, n, p=[0.3, 0.3, 0.4])
        x = rng.normal(np.array([-1.0, 1.0, 3.0])[y], 1)
        wrong = CORRECTED.id_density(x).argmax(axis=1) != y
        return dm.Sample(scores(x), wrong, ood_scores=scores(rng.normal(2, np.sqrt(0.2), n)))

    def truth(rule: dm.Rule) -> Truth:
        accepted = rule.accept(known)
        tpr = float(p_id[accepted].sum())
        return Truth(tpr, float(p_ood[accepted].sum()), _over(p_loss[accepted].sum(), tpr))

    return Population(name, draw, truth)


def ties() -> Population:
    """Return a score of twelve values only, with a risk that rises along them."""
    levels = np.arange(12)
    p_id = 0.75**levels / (0.75**levels).sum()
    p_ood = p_id[::-1]
    risk = 0.01 + 0.03 * levels

    def draw(n: int, rng: np.random.Generator) -> dm.Sample:
        x = rng.choice(12, n, p=p_id)
        return dm.Sample(x, rng.random(n) < risk[x], ood_scores=rng.choice(12, n, p=p_ood))

    def truth(rule: dm.Rule) -> Truth:
        accepted = rule.accept(levels)
        tpr = float(p_id[accepted].sum())
        mean = _over((p_id * risk)[accepted].sum(), tpr)
        return Truth(tpr, float(p_ood[accepted].sum()), mean)

    return Population("ties, 12 values", draw, truth)


def graded() -> Population:
    """Return losses between 0 and 2; scores are Beta(2, 4) on ID and Beta(4, 2) on OOD."""

    def draw(n: int, rng: np.random.Generator) -> dm.Sample:
        s = rng.beta(2, 4, n)
        loss = 2 * rng.beta(2 * 0.3 * s + 1e-9, 2 * (1 - 0.3 * s))
        return dm.Sample(s, loss, ood_scores=rng.beta(4, 2, n))

    def truth(rule: dm.Rule) -> Truth:
        t = float(np.clip(rule.threshold / rule.direction[0], 0, 1))
        tpr = float(betainc(2, 4, t))
        # E[s; s <= t] of Beta(2, 4) is a third of the Beta(3, 4) distribution function.
        return Truth(tpr, float(betainc(4, 2, t)), _over(0.6 * betainc(3, 4, t) / 3, tpr))

    return Population("graded loss", draw, truth, max_loss=2.0)


def clouds() -> Population:
    """Return two normal scores: errors by a probit in s_r, OOD shifted mostly in s_g."""
    shift, a, b = np.array([0.5, 2.0]), -1.8, 1.0

    def draw(n: int, rng: np.random.Generator) -> dm.Sample:
        x = rng.normal(size=(n, 2))
        wrong = rng.random(n) < ndtr(a + b * x[:, 0])
        return dm.Sample(x, wrong, ood_scores=rng.normal(size=(n, 2)) + shift)

    def truth(rule: dm.Rule) -> Truth:
        if rule.threshold == -np.inf:
            return Truth(0.0, 0.0, np.nan)
        length = float(np.hypot(*rule.direction))
        c, t = np.array(rule.direction) / length, rule.threshold / length
        tpr, fpr = float(ndtr(t)), float(ndtr(t - c @ shift))
        # P(Z <= a + b s_r and c.s <= t) for a standard normal Z.
        corr = -b * c[0] / np.sqrt(1 + b * b)
        both = multivariate_normal.cdf([a / np.sqrt(1 + b * b), t], cov=[[1, corr], [corr, 1]])
        return Truth(tpr, fpr, float(both) / tpr)

    return Population("two normal scores", draw, truth)


def saturated() -> Population:
    """Return a rounded doubt, zero for two rows in five, beside a continuous one.

    Networks are often sure to all digits; thresholds lie between the ties or among them.
    """
    from scipy.stats import gamma

    values = np.round(np.linspace(0, 1, 201), 3)
    p_id = np.concatenate([[0.4], 0.6 * np.diff(betainc(1, 3, values))])
    p_ood = np.concatenate([[0.1], 0.9 * np.diff(betainc(2, 2, values))])
    risk = 0.01 + 0.5 * values

    def draw(n: int, rng: np.random.Generator) -> dm.Sample:
        r, foreign = rng.choice(201, n, p=p_id), rng.choice(201, n, p=p_ood)
        return dm.Sample(
            np.column_stack([values[r], rng.gamma(2, 1, n)]),
            rng.random(n) < risk[r],
            ood_scores=np.column_stack([values[foreign], rng.gamma(5, 1, n)]),
        )

    def truth(rule: dm.Rule) -> Truth:
        a, b = rule.direction
        left = rule.threshold - a * values
        # Without weight on the continuous score the rounded one decides alone.
        room = left / b if b > 0 else np.where(left >= 0, np.inf, -np.inf)
        own, foreign = p_id * gamma.cdf(room, 2), p_ood * gamma.cdf(room, 5)
        tpr = float(own.sum())
        return Truth(tpr, float(foreign.sum()), _over(own @ risk, tpr))

    return Population("saturated score", draw, truth)


def decades() -> Population:
    """Return two scores that span twelve decades: exponentials of 4.6 times a normal."""
    cells = np.linspace(-8, 8, 4001)
    p = np.exp(-(cells**2) / 2)
    p /= p.sum()
    shift = np.array([0.5, 2.0])
    risk = ndtr(-1.8 + cells)

    def draw(n: int, rng: np.random.Generator) -> dm.Sample:
        z, foreign = rng.normal(size=(n, 2)), rng.normal(shift, 1, (n, 2))
        wrong = rng.random(n) < ndtr(-1.8 + z[:, 0])
        return dm.Sample(np.exp(4.6 * z), wrong, ood_scores=np.exp(4.6 * foreign))

    def accepted(rule: dm.Rule, means: np.ndarray) -> np.ndarray:
        """Share accepted at each value of the first score."""
        a, b = rule.direction
        left = rule.threshold - a * np.exp(4.6 * (cells + means[0]))
        if b == 0:
            return (left >= 0).astype(float)
        room = np.log(np.maximum(left, 1e-300) / b) / 4.6
        return np.where(left > 0, ndtr(room - means[1]), 0.0)

    def truth(rule: dm.Rule) -> Truth:
        own = p * accepted(rule, np.zeros(2))
        tpr = float(own.sum())
        return Truth(tpr, float(p @ accepted(rule, shift)), _over(own @ risk, tpr))

    return Population("twelve decades", draw, truth)


def in_sets(near: float = 0.7) -> Population:
    """Return the two normal scores with OOD rows in a near and a far set; FPR is the larger."""
    plain, far = clouds(), np.array([2.0, 3.0])

    def draw(n: int, rng: np.random.Generator) -> dm.Sample:
        one, count = plain.draw(n, rng), round(near * n)
        sets = {"near": one.ood_scores[:count], "far": rng.normal(far, 1, (n - count, 2))}
        return dm.Sample(one.id_scores, one.id_loss, ood_scores=sets)

    def truth(rule: dm.Rule) -> Truth:
        found = plain.truth(rule)
        if rule.threshold == -np.inf:
            return found
        length = float(np.hypot(*rule.direction))
        c, t = np.array(rule.direction) / length, rule.threshold / length
        return found._replace(fpr=max(found.fpr, float(ndtr(t - c @ far))))

    return Population("two OOD sets", draw, truth)


def in_groups(rare: float = 0.3) -> Population:
    """Return the two OOD sets with ID rows of a usual and a rare group, whose scores are larger."""
    sets, a, b = in_sets(), -1.8, 1.0
    share, means = {"usual": 1 - rare, "rare": rare}, {"usual": 0.0, "rare": 0.4}
    foreign = {"near": np.array([0.5, 2.0]), "far": np.array([2.0, 3.0])}

    def draw(n: int, rng: np.random.Generator) -> dm.Sample:
        one, is_rare = sets.draw(n, rng), rng.random(n) < rare
        x = rng.normal(size=(n, 2)) + means["rare"] * is_rare[:, None]
        wrong = rng.random(n) < ndtr(a + b * x[:, 0])
        named = {name: one.ood_scores[rows] for name, rows in one.ood_sets.items()}
        return dm.Sample(x, wrong, named, id_group=np.where(is_rare, "rare", "usual"))

    def truth(rule: dm.Rule) -> Truth:
        length = float(np.hypot(*rule.direction))
        c, t = np.array(rule.direction) / length, rule.threshold / length
        corr = -b * c[0] / np.sqrt(1 + b * b)
        parts: dict[tuple[str, str], float] = {}
        tpr = lost = 0.0
        for name, mean in means.items():
            # P(Z <= a + b s_r and c.s <= t) for a standard normal Z.
            ends = [(a + b * mean) / np.sqrt(1 + b * b), t - mean * c.sum()]
            own = float(ndtr(ends[1]))
            both = float(multivariate_normal.cdf(ends, cov=[[1, corr], [corr, 1]]))
            parts |= {("tpr", name): own, ("selective_risk", name): _over(both, own)}
            tpr, lost = tpr + share[name] * own, lost + share[name] * both
        parts |= {("fpr", name): float(ndtr(t - c @ mean)) for name, mean in foreign.items()}
        fpr = 0.7 * parts["fpr", "near"] + 0.3 * parts["fpr", "far"]
        return Truth(tpr, fpr, _over(lost, tpr), parts)

    return Population("two groups, two OOD sets", draw, truth)


def _over(part: float, whole: float) -> float:
    return float(part) / whole if whole > 0 else np.nan


PAPER_G = paper("paper, score g", [[0.0, 1.0]])
PAPER_MIX = paper("paper, score r + 0.2 g", [[1.0, 0.2]])
PAPER_TWO = paper("paper, scores (r, g)", [[1.0, 0.0], [0.0, 1.0]])
TIES, GRADED, CLOUDS = ties(), graded(), clouds()
SATURATED, DECADES, SETS, GROUPS = saturated(), decades(), in_sets(), in_groups()
