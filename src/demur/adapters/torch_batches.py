"""Batches of any loader: what the network is called with, and the labels beside it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from demur.errors import InvalidInputError

LABELS = ("labels", "label")
"""Keys under which a batch that is a dict keeps its labels."""

_EVERY = 0.5  # seconds between two updates of the progress line


class Batch(NamedTuple):
    """Arguments of the network for one batch, and its labels where there are any."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    labels: Any = None

    @classmethod
    def read(cls, batch: Any) -> Batch:
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
    def read_inputs(cls, inputs: Any) -> Batch:
        """Take inputs without labels: a tensor, a tuple of them, or a dict of keywords."""
        if isinstance(inputs, Mapping):
            return cls((), dict(inputs))
        return cls(tuple(inputs) if isinstance(inputs, (tuple, list)) else (inputs,), {})

    def to(self, device: torch.device | None) -> Batch:
        """Move the tensors among the arguments."""
        if device is None:
            return self

        def move(value: Any) -> Any:
            return value.to(device) if isinstance(value, Tensor) else value

        return Batch(
            tuple(map(move, self.args)),
            {name: move(value) for name, value in self.kwargs.items()},
            self.labels,
        )


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


def watched(batches: Iterable[Any], label: str, *, show: bool | None) -> Iterator[Any]:
    """Pass the batches on and tell on standard error how many there were.

    None shows the line on a terminal only.
    """
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


def _of_total(batches: Iterable[Any]) -> str:
    try:
        return f" of {len(batches):,}"  # type: ignore[arg-type]
    except TypeError:  # a loader of a stream has a length that cannot be asked for
        return ""
