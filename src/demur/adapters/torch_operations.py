"""Detectors and rules in torch operations, so that a graph scores and decides as they do.

Each score is a function of a batch and of what the detector has learned, in float64, written so
that it rounds like its NumPy counterpart in `demur.detectors`. Numbers that float32 cannot hold
must be tensors: ONNX exporters round the constants of a graph to single precision.

What `demur.learn` makes of scores is made of comparisons, products and sums of doubles only, in the
order in which it evaluates them: the decisions are the same to the bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from demur.core.rule import BoxRule, Rule
from demur.detectors import CATALOG, Knn, Mahalanobis, React, RelativeMahalanobis, Vim
from demur.detectors.activations import fitted
from demur.errors import InvalidInputError
from demur.learn.doubts import LearnedRule
from demur.learn.functions import MeanSum, Polyline, PolylineSum, TreeSum

_EVIDENCE = {"features", "head"}
_WINDOW = 4  # ranks on either side of the k-th among which rounding may have mixed rows up


class DetectorInputs(NamedTuple):
    """What a detector may look at, in float64; features and head may be missing."""

    logits: Tensor
    features: Tensor
    weight: Tensor
    bias: Tensor


class Doubles(nn.Module):
    """Buffers that stay in float64, also when the network is cast, and follow it to devices."""

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Doubles:
        def keep_type(tensor: Tensor) -> Tensor:
            changed = fn(tensor)
            return changed if changed.dtype == tensor.dtype else tensor.to(changed.device)

        super()._apply(keep_type, recurse)  # type: ignore[no-untyped-call]
        return self


class Score(Doubles):
    """One detector: the name of its function, what it has learned, and for neighbours k."""

    def __init__(
        self, kind: str, *, k: int | None = None, tensors: Mapping[str, Tensor] | None = None
    ) -> None:
        super().__init__()
        if kind not in _FUNCTIONS and kind not in CONFIDENCES:
            raise InvalidInputError(f"no detector {kind!r} is available as a module")
        self.kind, self.k = kind, k
        for name, tensor in (tensors or {}).items():
            # The last bits of a product depend on the order of the axes and on how the memory is
            # aligned: tensors out of NumPy and out of a file are brought to the same form.
            own = tensor.detach().clone(memory_format=torch.contiguous_format)
            self.register_buffer(name, own)

    @property
    def needs(self) -> frozenset[str]:
        """Which of ``"features"`` and ``"head"`` the score looks at."""
        return frozenset() if self.is_confidence else CATALOG[self.kind].needs & _EVIDENCE

    @property
    def is_confidence(self) -> bool:
        """Whether more means less doubt."""
        return self.kind in CONFIDENCES

    def forward(self, evidence: DetectorInputs) -> Tensor:
        """Return one score a row, in float64."""
        if self.is_confidence:
            return CONFIDENCES[self.kind](evidence.logits)
        options = {} if self.k is None else {"k": self.k}
        return _FUNCTIONS[self.kind](evidence, **options, **dict(self.named_buffers()))


def score_of(detector: Any) -> Score:
    """Return a detector, named or fitted, as a module."""
    if isinstance(detector, Score):
        return detector
    if isinstance(detector, str) and (detector in CONFIDENCES or _is_untrained(detector)):
        return Score(detector)
    state: Any = fitted(detector, detector._state) if hasattr(detector, "_state") else None
    if isinstance(detector, React):
        return Score("react", tensors=_doubles(threshold=state))
    if isinstance(detector, Knn):
        return Score("knn", k=detector.k, tensors=_doubles(bank=state.rows))
    if isinstance(detector, Vim):
        return Score("vim", tensors=_doubles(**state._asdict()))
    if isinstance(detector, Mahalanobis):
        return Score("mahalanobis", tensors=_doubles(**state._asdict()))
    if isinstance(detector, RelativeMahalanobis):
        classes, overall = (part._asdict() for part in state)
        whole = {f"overall_{name}": values for name, values in overall.items()}
        return Score("relative_mahalanobis", tensors=_doubles(**classes, **whole))
    names = [*filter(_is_untrained, _FUNCTIONS), *CONFIDENCES]
    raise InvalidInputError(
        f"the detector {detector!r} is not available as a module; use one of the names {names} or "
        "a fitted Knn, Vim, React, Mahalanobis or RelativeMahalanobis"
    )


def _is_untrained(name: str) -> bool:
    return name in _FUNCTIONS and CATALOG[name].build is None


def _doubles(**values: Any) -> dict[str, Tensor]:
    return {name: torch.tensor(value, dtype=torch.float64) for name, value in values.items()}


def _relative_to_top(z: Tensor) -> tuple[Tensor, Tensor]:
    """Return the logits minus the largest, and the sum of exp of all but that one."""
    shifted = z - z.amax(1, keepdim=True)
    top = torch.arange(z.shape[1], device=z.device) == z.argmax(1, keepdim=True)
    return shifted, shifted.exp().masked_fill(top, 0.0).sum(1)


def _log_sum_exp(z: Tensor) -> Tensor:
    _, others = _relative_to_top(z)
    return z.amax(1) + others.log1p()


def _msp(e: DetectorInputs) -> Tensor:
    _, others = _relative_to_top(e.logits)
    return others / (1 + others)


def _mls(e: DetectorInputs) -> Tensor:
    return -e.logits.amax(1)


def _energy(e: DetectorInputs) -> Tensor:
    return -_log_sum_exp(e.logits)


def _entropy(e: DetectorInputs) -> Tensor:
    shifted, others = _relative_to_top(e.logits)
    return others.log1p() - (shifted.exp() * shifted).sum(1) / (1 + others)


def _gradnorm(e: DetectorInputs) -> Tensor:
    shifted, others = _relative_to_top(e.logits)
    share = e.logits.new_ones(()) / e.logits.shape[1]
    uneven = shifted.exp() / (1 + others)[:, None] - share
    return -uneven.abs().sum(1) * e.features.abs().sum(1)


def _react(e: DetectorInputs, threshold: Tensor) -> Tensor:
    return -_log_sum_exp(torch.minimum(e.features, threshold) @ e.weight.T + e.bias)


def _vim(e: DetectorInputs, origin: Tensor, residual: Tensor, alpha: Tensor) -> Tensor:
    outside = (e.features - origin) @ residual
    return alpha * (outside * outside).sum(1).sqrt() - _log_sum_exp(e.logits)


def _knn(e: DetectorInputs, k: int, bank: Tensor) -> Tensor:
    rows = _unit_rows(e.features)
    low, high = max(0, k - 1 - _WINDOW), min(len(bank), k + _WINDOW)
    # Half the squared distance up to a constant ranks well but has few digits when it is small.
    keys = (bank * bank).sum(1) / 2 - rows @ bank.T
    near = keys.topk(high, dim=1, largest=False).indices[:, low:]
    difference = rows[:, None] - bank[near]
    return (difference * difference).sum(2).sort(1).values[:, k - 1 - low].sqrt()


def _unit_rows(features: Tensor) -> Tensor:
    largest = features.abs().amax(1, keepdim=True)
    scaled = features / torch.where(largest > 0, largest, 1.0)
    length = (scaled * scaled).sum(1, keepdim=True).sqrt()
    return scaled / torch.where(length > 0, length, 1.0)


def _mahalanobis(e: DetectorInputs, centre: Tensor, whitening: Tensor, means: Tensor) -> Tensor:
    white = (e.features - centre) @ whitening
    nearest = ((means * means).sum(1) / 2 - white @ means.T).argmin(1)
    difference = white - means[nearest]
    return (difference * difference).sum(1)


def _relative_mahalanobis(
    e: DetectorInputs,
    centre: Tensor,
    whitening: Tensor,
    means: Tensor,
    overall_centre: Tensor,
    overall_whitening: Tensor,
    overall_means: Tensor,
) -> Tensor:
    overall = _mahalanobis(e, overall_centre, overall_whitening, overall_means)
    return _mahalanobis(e, centre, whitening, means) - overall


_FUNCTIONS: Mapping[str, Callable[..., Tensor]] = {
    "msp": _msp,
    "mls": _mls,
    "energy": _energy,
    "entropy": _entropy,
    "gradnorm": _gradnorm,
    "react": _react,
    "knn": _knn,
    "vim": _vim,
    "mahalanobis": _mahalanobis,
    "relative_mahalanobis": _relative_mahalanobis,
}


def _max_softmax(z: Tensor) -> Tensor:
    return 1 / (1 + _relative_to_top(z)[1])


def _max_logit(z: Tensor) -> Tensor:
    return z.amax(1)


CONFIDENCES: Mapping[str, Callable[[Tensor], Tensor]] = {
    "max_softmax": _max_softmax,
    "max_logit": _max_logit,
    "log_sum_exp": _log_sum_exp,
}
"""Scores of which more means less doubt, for rules that were tuned on them."""


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
