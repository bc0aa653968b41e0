"""Rules in torch operations, so that a graph decides as they do: also those on learned scores.

What is learned is made of comparisons, products and sums of doubles only, in the order in which
`demur.learn` evaluates them: the decisions are the same to the bit.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from demur.adapters.torch_export import Doubles
from demur.core.rule import BoxRule, Rule
from demur.errors import InvalidInputError
from demur.learn.doubts import LearnedRule
from demur.learn.functions import MeanSum, Polyline, PolylineSum, TreeSum


def decision_of(rule: Any) -> Decision | LearnedDecision:
    """Return a rule as a module."""
    return LearnedDecision(rule) if isinstance(rule, LearnedRule) else Decision(rule)


class Decision(Doubles):
    """A rule in torch operations; it decides as `Rule.accept` with ``missing="reject"`` does.

    A rule that is random on its boundary (0 < tau < 1) is refused, as in SQL: a deployed graph
    has to decide the same row alike every time.
    """

    direction: Tensor
    threshold: Tensor
    limits: Tensor
    """Of boxes only."""

    def __init__(self, rule: Rule) -> None:
        super().__init__()
        if not isinstance(rule, Rule):
            raise InvalidInputError(
                f"rule must be a Rule, such as tune(...).rule, got {type(rule).__name__}"
            )
        if rule.tau not in (0.0, 1.0):
            raise InvalidInputError(
                f"the rule accepts a row on its threshold with probability tau = {rule.tau}, but a "
                "module decides a row alike every time: give the rule tau 0 or 1"
            )
        self.rule = rule
        numbers: dict[str, Any] = {"direction": rule.direction, "threshold": rule.threshold}
        if isinstance(rule, BoxRule):
            numbers["limits"] = rule.limits
        for name, values in numbers.items():
            tensor = torch.tensor(values, dtype=torch.float64)
            self.register_buffer(name, tensor, persistent=False)

    @property
    def weighed(self) -> list[bool]:
        """Which scores count."""
        return [weight != 0 for weight in self.rule.direction]

    def forward(self, scores: Tensor) -> Tensor:
        """Return True for the rows to accept."""
        # What is weighed must be finite; of other scores only +inf counts, which always rejects.
        usable = (scores != math.inf).all(1)
        terms = []
        for column, weight in enumerate(self.rule.direction):
            if weight != 0:
                usable = usable & torch.isfinite(scores[:, column])
                terms.append(self._term(scores[:, column], column))
        if self.rule.threshold == -math.inf:
            return usable & False
        if isinstance(self.rule, BoxRule):
            return torch.stack([usable, *terms]).all(0)
        combined = sum(terms[1:], start=terms[0])
        within = combined <= self.threshold if self.rule.tau else combined < self.threshold
        return usable & within

    def _term(self, score: Tensor, column: int) -> Tensor:
        """Return a score as it is weighed, or whether it is within its limit."""
        if not isinstance(self.rule, BoxRule):
            return self.direction[column] * score
        limit = self.limits[column]
        return score <= limit if self.rule.direction[column] > 0 else score >= limit


class LearnedDecision(Doubles):
    """A rule on learned scores; it decides as `LearnedRule.accept` with ``missing="reject"``."""

    signs: Tensor

    def __init__(self, rule: LearnedRule) -> None:
        super().__init__()
        self.rule = rule
        self.inner = Decision(rule.rule)
        self.register_buffer("signs", _double(rule.columns.signs), persistent=False)
        functions = list(rule.learned.functions.values())
        self.totals = nn.ModuleList([_module(function.total) for function in functions])
        self.links = nn.ModuleList([_TorchPolyline(function.link) for function in functions])

    @property
    def weighed(self) -> list[bool]:
        """Which scores count: all that others are learned from."""
        return [True] * self.rule.columns.count

    def forward(self, scores: Tensor) -> Tensor:
        """Return True for the rows to accept."""
        usable = torch.isfinite(scores).all(1)
        doubts = self.signs * torch.where(usable[:, None], scores, torch.zeros_like(scores))
        pairs = zip(self.totals, self.links, strict=True)
        learned = torch.stack([link(total(doubts)) for total, link in pairs], dim=1)
        decided: Tensor = usable & self.inner(learned)
        return decided


class _TorchPolyline(Doubles):
    x: Tensor
    y: Tensor
    slopes: Tensor

    def __init__(self, line: Polyline) -> None:
        super().__init__()
        for name, values in (("x", line.x), ("y", line.y), ("slopes", line.slopes)):
            self.register_buffer(name, _double(values), persistent=False)

    def forward(self, values: Tensor) -> Tensor:
        known = torch.maximum(values, self.x[:1])
        # Counted, since not every exporter knows a search in a sorted array.
        at = (known[:, None] >= self.x).to(torch.int64).sum(1) - 1
        known = torch.minimum(known, self.x[-1:])
        return self.y[at] + self.slopes[at] * (known - self.x[at])


class _Polylines(Doubles):
    base: Tensor

    def __init__(self, total: PolylineSum) -> None:
        super().__init__()
        self.register_buffer("base", _double(total.base), persistent=False)
        self.parts = nn.ModuleList([_TorchPolyline(part) for part in total.parts])

    def forward(self, doubts: Tensor) -> Tensor:
        total = self.base
        for column, part in enumerate(self.parts):
            total = total + part(doubts[:, column])
        return total


class _Trees(Doubles):
    base: Tensor
    roots: Tensor
    feature: Tensor
    threshold: Tensor
    left: Tensor
    right: Tensor
    value: Tensor

    def __init__(self, total: TreeSum) -> None:
        super().__init__()
        self.depth = total.depth
        names = ("feature", "threshold", "left", "right")
        arrays = dict(zip(names, total.walk, strict=True))
        arrays |= {"roots": total.roots, "value": total.value}
        for name, values in arrays.items():
            self.register_buffer(name, torch.tensor(values), persistent=False)
        self.register_buffer("base", _double(total.base), persistent=False)

    def forward(self, doubts: Tensor) -> Tensor:
        node = self.roots.expand(doubts.shape[0], -1)
        for _ in range(self.depth):
            below = doubts.gather(1, self.feature[node]) <= self.threshold[node]
            node = torch.where(below, self.left[node], self.right[node])
        # Leaves lie on a grid, so that this sum is exact in any order.
        return self.base + self.value[node].sum(1)


class _Mean(Doubles):
    one_half: Tensor

    def __init__(self, total: MeanSum) -> None:
        super().__init__()
        self.register_buffer("one_half", _double(0.5), persistent=False)
        self.first, self.second = _module(total.first), _module(total.second)

    def forward(self, doubts: Tensor) -> Tensor:
        mean: Tensor = self.one_half * self.first(doubts) + self.one_half * self.second(doubts)
        return mean


_MODULES: dict[str, Any] = {"polylines": _Polylines, "trees": _Trees, "mean": _Mean}


def _module(total: Any) -> nn.Module:
    made: nn.Module = _MODULES[total.kind](total)
    return made


def _double(values: Any) -> Tensor:
    return torch.tensor(values, dtype=torch.float64)
