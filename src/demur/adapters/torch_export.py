"""What a selective module is exported as: detectors in torch operations, and its files.

The detectors are here once more, so that they can be part of an exported graph.

Each score is a function of a batch and of what the detector has learned, in float64, written so
that it rounds like its NumPy counterpart in `demur.detectors`. Numbers that float32 cannot hold
must be tensors: ONNX exporters round the constants of a graph to single precision.

Files are safetensors, to go on with, and ONNX, to deploy.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from demur._files import check_target
from demur.adapters.torch_activations import to_array
from demur.adapters.torch_forward import LoaderBatch, evaluating
from demur.detectors import CATALOG, Knn, Mahalanobis, React, RelativeMahalanobis, Vim
from demur.detectors.activations import fitted
from demur.errors import DemurError, InvalidInputError, MissingExtraError

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


FORMAT = "demur.selective_module"
VERSION = 1

OUTPUTS = ("prediction", "accept", "scores")
"""Names of the outputs of the ONNX model."""


def write_state(module: nn.Module, path: str | os.PathLike[str], record: dict[str, Any]) -> None:
    """Write all tensors of a module, and a record beside them, to one safetensors file."""
    safetensors = needed("safetensors.torch", "torch")
    text = json.dumps({"format": FORMAT, "version": VERSION, **record}, allow_nan=False)
    target = Path(path)
    check_target(target)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".demur") as folder:
        part = os.path.join(folder, target.name)
        safetensors.save_model(module, part, metadata={"demur": text})
        os.replace(part, target)


def read_record(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the record of a file and the tensors that belong to detectors."""
    safetensors = needed("safetensors", "torch")
    try:
        with safetensors.safe_open(os.fspath(path), framework="pt") as file:
            record = json.loads((file.metadata() or {}).get("demur", "null"))
            names = [name for name in file.keys() if name.startswith("scorers.")]  # noqa: SIM118
            tensors = {name: file.get_tensor(name) for name in names}
    except (OSError, safetensors.SafetensorError, ValueError) as error:
        raise InvalidInputError(f"cannot read {os.fspath(path)!r}: {error}") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InvalidInputError(f"{os.fspath(path)!r} holds no selective module")
    if record.get("version") != VERSION:
        raise InvalidInputError(
            f"{os.fspath(path)!r} has version {record.get('version')!r}, this demur reads version "
            f"{VERSION}; use the demur that wrote it, or a newer one"
        )
    return record, tensors


def read_state(module: nn.Module, path: str | os.PathLike[str]) -> None:
    """Fill a module with the tensors of a file."""
    try:
        needed("safetensors.torch", "torch").load_model(module, os.fspath(path))
    except RuntimeError as error:
        raise InvalidInputError(
            f"{os.fspath(path)!r} was written with another model: {error}"
        ) from None


class _WithScores(nn.Module):
    """A selective module whose output has the scores too."""

    def __init__(self, module: Any) -> None:
        super().__init__()
        self.module = module

    def forward(self, *inputs: Tensor, **named: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        judged: tuple[Tensor, Tensor, Tensor] = self.module.judge(*inputs, **named)
        return judged


def export_program(module: nn.Module, example: LoaderBatch) -> torch.export.ExportedProgram:
    """Trace a module for batches of any size."""
    tensors = [*example.args, *example.kwargs.values()]
    strange = [type(t).__name__ for t in tensors if not isinstance(t, Tensor)]
    if strange:
        raise InvalidInputError(f"example must be tensors, got one of type {strange[0]}")
    if not tensors or any(tensor.ndim == 0 or len(tensor) == 0 for tensor in tensors):
        raise InvalidInputError("example must be a batch of at least one row")
    # A single row would be taken for a constant of the graph.
    args = tuple(torch.cat([tensor, tensor]) for tensor in example.args)
    kwargs = {name: torch.cat([tensor, tensor]) for name, tensor in example.kwargs.items()}
    size = {0: torch.export.Dim("batch")}
    with evaluating(module), torch.no_grad(), _quiet():
        if not kwargs:
            shapes = (tuple(size for _ in args),)
            return torch.export.export(module, args, dynamic_shapes=shapes)
        named = _Named(module, len(args), kwargs)
        return torch.export.export(
            named, args, kwargs, dynamic_shapes=dict.fromkeys(named.parameters_of_call, size)
        )


class _Named(nn.Module):
    """A module with the names of one call: torch.export cannot name the sizes of ``**named``."""

    def __init__(self, module: nn.Module, count: int, names: Iterable[str]) -> None:
        super().__init__()
        self.module = module
        self.parameters_of_call = [*(f"input_{i}" for i in range(count)), *names]

        def forward(*inputs: Tensor, **named: Tensor) -> Any:
            return module(*inputs, **named)

        forward.__signature__ = Signature(  # type: ignore[attr-defined]
            [
                Parameter(name, Parameter.POSITIONAL_ONLY if k < count else Parameter.KEYWORD_ONLY)
                for k, name in enumerate(self.parameters_of_call)
            ]
        )
        self.forward = forward


def write_onnx(module: nn.Module, path: str | os.PathLike[str], example: LoaderBatch) -> None:
    """Write a module as ONNX once onnxruntime has been seen to decide the example alike."""
    for package in ("onnx", "onnxscript"):
        needed(package, "onnx")
    runtime = needed("onnxruntime", "onnx")
    target = Path(path)
    check_target(target)
    _refuse_bfloat16(module, example)
    program = export_program(_WithScores(module), example)
    count = len(example.args)
    names = ["input"] if count == 1 else [f"input_{i}" for i in range(count)]
    feed = dict(zip(names, example.args, strict=True)) | example.kwargs
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".demur") as folder:
        part = os.path.join(folder, target.name)
        with _quiet():
            graph = torch.onnx.export(
                program, dynamo=True, input_names=list(feed), output_names=OUTPUTS, verbose=False
            )
            if graph is None:
                raise DemurError("torch.onnx gave no model")
            graph.save(part)
        session = runtime.InferenceSession(part, providers=["CPUExecutionProvider"])
        given = {name: tensor.detach().cpu().numpy() for name, tensor in feed.items()}
        _compare(module, example, session.run(list(OUTPUTS), given))
        # Models beyond 2 GB keep their weights in a second file.
        for file in os.listdir(folder):
            os.replace(os.path.join(folder, file), target.parent / file)


def _refuse_bfloat16(module: nn.Module, example: LoaderBatch) -> None:
    tensors = [*module.parameters(), *module.buffers(), *example.args, *example.kwargs.values()]
    if any(getattr(tensor, "dtype", None) == torch.bfloat16 for tensor in tensors):
        raise InvalidInputError(
            "onnxruntime does not compute in bfloat16: give a module and an example in float32, "
            "such as copy.deepcopy(module).float() and example.float()"
        )


def _compare(module: nn.Module, example: LoaderBatch, outputs: list[Any]) -> None:
    with evaluating(module), torch.no_grad():
        own = [to_array(output) for output in module(*example.args, **example.kwargs)]
    # The scores of two engines differ by rounding; predictions and decisions must not.
    for name, mine, theirs in zip(OUTPUTS, own, outputs, strict=False):
        rows = np.flatnonzero(mine != theirs)
        if len(rows):
            raise DemurError(
                f"onnxruntime gives another {name} on {len(rows)} of {len(mine)} rows of the "
                f"example, the first is row {rows[0]}; nothing was written. Single rows can lie on "
                "the threshold to within rounding: try others"
            )


def needed(package: str, extra: str) -> Any:
    """Import an optional package or name the extra that brings it."""
    try:
        return import_module(package)
    except ModuleNotFoundError:
        raise MissingExtraError(package.split(".")[0], extra) from None


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the exporters from talking about their own future and about packages of no use here."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            for category in (FutureWarning, DeprecationWarning):
                warnings.simplefilter("ignore", category)
            yield
    finally:
        logger.setLevel(level)
