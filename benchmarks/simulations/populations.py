"""Populations whose rates are known for every rule, to check promises against."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import betainc, ndtr
from scipy.stats import multivariate_normal

import demur as dm
from demur.population.gaussian import CORRECTED


class Truth(NamedTuple):
    """Rates of a rule in the population."""

    tpr: float
    fpr: float
    selective_risk: float

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


def _over(part: float, whole: float) -> float:
    return float(part) / whole if whole > 0 else np.nan


PAPER_G = paper("paper, score g", [[0.0, 1.0]])
PAPER_MIX = paper("paper, score r + 0.2 g", [[1.0, 0.2]])
PAPER_TWO = paper("paper, scores (r, g)", [[1.0, 0.0], [0.0, 1.0]])
TIES, GRADED, CLOUDS = ties(), graded(), clouds()
