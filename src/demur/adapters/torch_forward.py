"""One forward pass: what the network is called with, and where logits and features are read."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset, IterableDataset

from demur.errors import InvalidInputError

LABELS = ("labels", "label")
"""Keys under which a batch that is a dict keeps its labels."""

_EVERY = 0.5  # seconds between two updates of the progress line


class LoaderBatch(NamedTuple):
    """Arguments of the network for one batch, and its labels where there are any."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    labels: Any = None

    @classmethod
    def read(cls, batch: Any) -> LoaderBatch:
        """Take a batch apart; see `demur.adapters.torch.extract` for the forms."""
        if isinstance(batch, Mapping):
            key = next((key for key in LABELS if key in batch), None)
            rest = {name: value for name, value in batch.items() if name != key}
            if len(rest) == 1:
                return cls(tuple(rest.values()), {}, batch.get(key))
            return cls((), rest, batch.get(key))
        if isinstance(batch, (tuple, list)):
            if not batch:
                raise InvalidInputError("a batch is empty: expected (inputs, labels)")
            return cls.read_inputs(batch[0])._replace(labels=batch[1] if len(batch) > 1 else None)
        return cls.read_inputs(batch)

    @classmethod
    def read_inputs(cls, inputs: Any) -> LoaderBatch:
        """Take inputs without labels: a tensor, a tuple of them, or a dict of keywords."""
        if isinstance(inputs, Mapping):
            return cls((), dict(inputs))
        return cls(tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,), {})

    def to(self, device: torch.device | None) -> LoaderBatch:
        """Move the tensors among the arguments."""
        if device is None:
            return self

        def move(value: Any) -> Any:
            return value.to(device) if isinstance(value, Tensor) else value

        return LoaderBatch(
            tuple(map(move, self.args)),
            {name: move(value) for name, value in self.kwargs.items()},
            self.labels,
        )


def call_of(inputs: tuple[Any, ...], named: dict[str, Any]) -> LoaderBatch:
    """Return a call of a network; a single dict is read like a batch of a loader."""
    if len(inputs) == 1 and not named and isinstance(inputs[0], Mapping):
        return LoaderBatch.read(inputs[0])._replace(labels=None)
    return LoaderBatch(inputs, named)


def device_of(model: nn.Module) -> torch.device | None:
    """Return where the model lives, None if it has no tensors."""
    tensors = (*model.parameters(), *model.buffers())
    return tensors[0].device if tensors else None


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put the model in evaluation mode, and every part back in its own mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


class Outputs(NamedTuple):
    """What a forward pass gives: logits (n, K), and features (n, d) where they are read."""

    logits: Tensor
    features: Tensor | None


class Tap:
    """Reads logits and features; leaves no hook behind.

    Parameters
    ----------
    layer
        The linear head or the layer whose output are the features, by name or as a module. By
        default the last `Linear`, checked to give the output of the model.
    features
        Whether features are wanted, so that a layer must be found when none is given.
    """

    def __init__(
        self, model: nn.Module, layer: str | nn.Module | None, *, features: bool = True
    ) -> None:
        self._given = layer is not None
        self.name = _name_of(model, layer) if features or self._given else None

    @property
    def given(self) -> str | None:
        """Name of the layer if it was given, None if it was found."""
        return self.name if self._given else None

    def head(self, model: nn.Module) -> nn.Linear | None:
        """Return the linear head, if the tap is on one."""
        layer = None if self.name is None else model.get_submodule(self.name)
        return layer if isinstance(layer, nn.Linear) else None

    def read(self, model: nn.Module, batch: LoaderBatch) -> Outputs:
        """Run the model on a batch."""
        if self.name is None:
            return Outputs(_logits(model(*batch.args, **batch.kwargs)), None)
        calls: list[tuple[Any, Any]] = []
        thread = threading.get_ident()

        def record(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            # A server may run the same model in several threads at once.
            if threading.get_ident() == thread:
                calls.append((args[0] if args else None, output))

        handle = model.get_submodule(self.name).register_forward_hook(record)
        try:
            logits = _logits(model(*batch.args, **batch.kwargs))
        finally:
            handle.remove()
        if not calls:
            raise InvalidInputError(
                f"the layer {self.name!r} was not called: name another layer= (a compiled model "
                "hides its layers; give the model it was compiled from)"
            )
        return self._outputs(model, logits, *calls[-1])

    def _outputs(self, model: nn.Module, logits: Tensor, given: Any, made: Any) -> Outputs:
        if self.head(model) is None:
            features = made.flatten(1) if isinstance(made, Tensor) and made.ndim > 1 else made
            return Outputs(logits, self._matrix(features))
        if made.shape != logits.shape or not (self._given or _same(made, logits)):
            raise InvalidInputError(
                f"the layer {self.name!r} is not the head: its output is not the model's; name "
                f"layer=, the linear head out of {_linear_names(model)} or any other layer, "
                "whose output are then the features"
            )
        return Outputs(made, self._matrix(given))

    def _matrix(self, features: Any) -> Tensor:
        if not isinstance(features, Tensor) or features.ndim != 2:
            shape = tuple(features.shape) if isinstance(features, Tensor) else type(features)
            raise InvalidInputError(
                f"the features at layer {self.name!r} must be a matrix, one row an input; "
                f"got {shape}"
            )
        return features


def _logits(output: Any) -> Tensor:
    """Find the logits in what a model returns: itself, ``.logits``, ["logits"] or the first."""
    if isinstance(output, Mapping):
        output = output.get("logits")
    elif not isinstance(output, Tensor):
        if isinstance(output, (tuple, list)) and not hasattr(output, "logits"):
            output = output[0] if output else None
        else:
            output = getattr(output, "logits", None)
    if not isinstance(output, Tensor):
        raise InvalidInputError("the model returns no tensor and nothing called 'logits'")
    if output.ndim != 2 or output.shape[1] < 2:
        raise InvalidInputError(
            "the model must return logits of shape (n, classes) with two classes or more, got "
            f"{tuple(output.shape)}; for a single logit z return the pair (0, z)"
        )
    return output


def _same(first: Tensor, second: Tensor) -> bool:
    # Values cannot be compared while a graph is traced; it was or will be done eagerly.
    return first is second or torch.compiler.is_compiling() or torch.equal(first, second)


def _linear_names(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]


def _name_of(model: nn.Module, layer: str | nn.Module | None) -> str | None:
    if layer is None:
        return next(reversed(_linear_names(model)), None)
    names = {name: module for name, module in model.named_modules() if name or module is layer}
    for name, module in names.items():
        if layer is module or layer == name:
            return str(name)
    shown = repr(layer) if isinstance(layer, str) else f"of type {type(layer).__name__}"
    raise InvalidInputError(f"the model has no layer {shown}; its layers are {list(names)}")


def watched(batches: Iterable[Any], label: str, *, show: bool | None) -> Iterator[Any]:
    """Pass the batches on and tell on standard error how many there were.

    None shows the line on a terminal only.
    """
    _check_batches(batches)
    if not (sys.stderr.isatty() if show is None else show):
        yield from batches
        return
    total = _of_total(batches)
    start = shown = time.monotonic()
    done = 0

    def write(end: str) -> None:
        seconds = time.monotonic() - start
        sys.stderr.write(f"\r\x1b[K{label}: {done:,}{total} batches, {seconds:.0f} s{end}")
        sys.stderr.flush()

    try:
        for batch in batches:
            yield batch
            done += 1
            if time.monotonic() - shown >= _EVERY:
                shown = time.monotonic()
                write("")
    finally:
        write("\n")


def _check_batches(batches: Any) -> None:
    # Items of an iterable data set may be batches; those of others are single rows.
    if isinstance(batches, Dataset) and not isinstance(batches, IterableDataset):
        raise InvalidInputError(
            f"batches is a data set ({type(batches).__name__}), whose items are single rows: give "
            "a loader, such as torch.utils.data.DataLoader(dataset, batch_size=64)"
        )
    if hasattr(batches, "dtype") and hasattr(batches, "shape"):
        raise InvalidInputError(
            f"batches is one array of shape {tuple(batches.shape)}: give a loader, or a list of "
            "batches such as [inputs]"
        )
    if isinstance(batches, (str, bytes, Mapping)) or not isinstance(batches, Iterable):
        raise InvalidInputError(
            f"batches is of type {type(batches).__name__}: give a loader, or a list of batches"
        )


def _of_total(batches: Iterable[Any]) -> str:
    try:
        return f" of {len(batches):,}"  # type: ignore[arg-type]
    except TypeError:  # a loader of a stream has a length that cannot be asked for
        return ""
