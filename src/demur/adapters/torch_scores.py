"""The detectors once more, in torch operations, so that they can be part of an exported graph.

Each score is a function of a batch and of what the detector has learned, in float64, written so
that it rounds like its NumPy counterpart in `demur.detectors`. Numbers that float32 cannot hold
must be tensors: ONNX exporters round the constants of a graph to single precision.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from demur.detectors import CATALOG, Knn, Mahalanobis, React, RelativeMahalanobis, Vim
from demur.detectors.activations import fitted
from demur.errors import InvalidInputError

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
        if kind not in _FUNCTIONS:
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
        return CATALOG[self.kind].needs & {"features", "head"}

    def forward(self, evidence: DetectorInputs) -> Tensor:
        """Return one doubt a row, in float64."""
        options = {} if self.k is None else {"k": self.k}
        return _FUNCTIONS[self.kind](evidence, **options, **dict(self.named_buffers()))


def score_of(detector: Any) -> Score:
    """Return a detector, named or fitted, as a module."""
    if isinstance(detector, Score):
        return detector
    if isinstance(detector, str) and detector in _FUNCTIONS and CATALOG[detector].build is None:
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
    names = [name for name in _FUNCTIONS if CATALOG[name].build is None]
    raise InvalidInputError(
        f"the detector {detector!r} is not available as a module; use one of the names {names} or "
        "a fitted Knn, Vim, React, Mahalanobis or RelativeMahalanobis"
    )


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
