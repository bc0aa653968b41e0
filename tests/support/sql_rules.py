"""Rules, and scores around their boundaries to the last bit, for engines that speak SQL."""

from __future__ import annotations

import functools
import math

import numpy as np
import pyarrow as pa

import demur as dm

NAMES = ("a column", 'with "quotes", `ticks` and \\')
RULES = [
    dm.Rule((1.0,), 0.1 + 0.2),
    dm.Rule((1.0,), 0.5, tau=0.0),
    dm.Rule((-1.0,), 2.0**-1074),
    dm.Rule((math.cos(0.3), math.sin(0.3)), 0.7),
    dm.Rule((math.cos(2.0), math.sin(2.0)), -1e-300),
    dm.Rule((0.0, 1.0), 5e-324, tau=0.0),
    dm.Rule((1.0, 0.0), -math.inf),
    dm.Rule((3.0, -1e308), 1.7976931348623157e308),
]
MISSING = [None, math.nan, -math.inf]


def hard_scores(rule, seed=0):
    """Return scores around the boundary to the last bit, and of every size."""
    rng = np.random.default_rng(seed)
    k = len(rule.direction)
    size = np.float64(10) ** rng.integers(-320, 309, (150, k)).astype(float)
    scores = np.concatenate([rng.normal(size=(150, k)), size * rng.choice([-1, 1], size.shape)])
    if math.isfinite(rule.threshold):
        main = int(np.argmax(np.abs(rule.direction)))
        others = sum(rule.direction[i] * scores[:150, i] for i in range(k) if i != main) * np.ones(
            150
        )
        with np.errstate(over="ignore", invalid="ignore"):
            on = (rule.threshold - others) / rule.direction[main]
        for step in (-np.inf, None, np.inf):
            near = scores[:150].copy()
            near[:, main] = on if step is None else np.nextafter(on, step)
            scores = np.concatenate([scores, near])
    scores[rng.random(scores.shape) < 0.02] = np.inf
    return scores[~(np.isnan(scores) | np.isneginf(scores)).any(axis=1)]


@functools.cache
def scored():
    """Return the hard scores of all rules, and last some rows that lack the second score."""
    pairs = [hard_scores(rule) for rule in RULES]
    pairs = [np.column_stack([s, np.zeros(len(s))]) if s.shape[1] == 1 else s for s in pairs]
    return np.concatenate([*pairs, [[0.0, np.nan]] * len(MISSING)])


@functools.cache
def table():
    """Return `scored` as a table with ids."""
    first, second = scored().T.tolist()
    second[-len(MISSING) :] = MISSING
    return pa.table({"id": range(len(first)), NAMES[0]: first, NAMES[1]: second})


def expected(rule):
    """Return the decisions of `Rule.accept`."""
    if len(rule.direction) == 1:
        return rule.accept(scored()[:, 0]).tolist()
    return rule.accept(scored()[: -len(MISSING)]).tolist() + [False] * len(MISSING)


def names_of(rule):
    return NAMES[: len(rule.direction)]
