"""Selective modules in files: safetensors to go on with, ONNX to deploy."""

from __future__ import annotations

import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from demur._files import check_target
from demur.adapters.torch_extract import to_array
from demur.adapters.torch_forward import LoaderBatch, evaluating
from demur.errors import DemurError, InvalidInputError, MissingExtraError

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
