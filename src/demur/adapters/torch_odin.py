"""ODIN: the softmax at a high temperature, of inputs moved a step towards their own class."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn

from demur import metrics
from demur._arrays import FloatArray
from demur.adapters.torch_extract import to_array
from demur.adapters.torch_forward import LoaderBatch, Tap, device_of, evaluating, watched
from demur.core.sample import Sample
from demur.detectors import msp
from demur.detectors.arrays import number, positive
from demur.errors import InvalidInputError

TEMPERATURES = (1.0, 10.0, 100.0, 1000.0)
STEPS = (0.0014, 0.0028)


@dataclass(frozen=True, slots=True)
class Odin:
    """ODIN, ``1 - max_y softmax(z(x') / T)_y`` with x' = x - eps sign(dL/dx) / std.

    L is the cross-entropy of ``softmax(z(x) / T)`` at the predicted class of the unmoved input;
    sign(0) counts as +1. The score needs gradients with respect to the input, so it takes the
    network and its inputs instead of activations.

    Parameters
    ----------
    temperature
        T, in the loss and in the final softmax.
    eps
        Length of the step.
    std
        Standard deviation by which the inputs were normalised, one number or one a channel (the
        second axis of the inputs).

    Examples
    --------
    >>> network = nn.Linear(2, 2)
    >>> _ = network.load_state_dict({"weight": torch.eye(2), "bias": torch.zeros(2)})
    >>> Odin(temperature=1.0, eps=0.0).score(network, [torch.tensor([[0.0, 4.0]])]).round(4)
    array([0.018])
    """

    temperature: float = 1000.0
    eps: float = 0.0014
    std: float | Sequence[float] = 1.0

    def __post_init__(self) -> None:
        positive("temperature", self.temperature)
        number("eps", self.eps, lambda x: x >= 0, "a non-negative number")
        for value in [self.std] if isinstance(self.std, (int, float)) else self.std:
            positive("std", value)

    def score(
        self, model: nn.Module, batches: Iterable[Any], *, progress: bool | None = None
    ) -> FloatArray:
        """Return one doubt a row; batches are as for `extract`, with a single input tensor."""
        return _scores([self], model, batches, progress)[:, 0]

    @classmethod
    def search(
        cls,
        model: nn.Module,
        id_batches: Iterable[Any],
        ood_batches: Iterable[Any],
        *,
        temperatures: Sequence[float] = TEMPERATURES,
        steps: Sequence[float] = STEPS,
        std: float | Sequence[float] = 1.0,
        progress: bool | None = None,
    ) -> Self:
        """Return the options with the largest AUROC; among equals the first.

        The defaults are those of OpenOOD. Use OOD data that share no class with those on which
        results are reported.

        Parameters
        ----------
        temperatures, steps
            The values of T and eps to try, all pairs of them.

        Examples
        --------
        >>> network = nn.Linear(2, 2)
        >>> near, far = torch.tensor([[9.0, 0.0]]), torch.tensor([[0.1, 0.0]])
        >>> Odin.search(network, [near], [far], temperatures=[10.0], steps=[0.0])
        Odin(temperature=10.0, eps=0.0, std=1.0)
        """
        options = [cls(t, eps, std) for t, eps in product(temperatures, steps)]
        if not options:
            raise InvalidInputError("temperatures and steps must not be empty")
        id_scores = _scores(options, model, id_batches, progress)
        ood_scores = _scores(options, model, ood_batches, progress)
        areas = [
            metrics.auroc(Sample(own, np.zeros(len(own)), ood_scores=foreign))
            for own, foreign in zip(id_scores.T, ood_scores.T, strict=True)
        ]
        return options[int(np.argmax(areas))]


def _scores(
    options: Sequence[Odin], model: nn.Module, batches: Iterable[Any], progress: bool | None
) -> FloatArray:
    """Return scores of shape (n, options), in one pass over the batches."""
    device = device_of(model)
    rows: list[FloatArray] = []
    with evaluating(model):
        for given in watched(batches, "odin", show=progress):
            batch = LoaderBatch.read(given).to(device)
            if batch.kwargs or len(batch.args) != 1 or not _is_real(batch.args[0]):
                raise InvalidInputError("ODIN needs batches with a single real input tensor")
            inputs = batch.args[0].detach()
            rows.append(_batch_scores(options, model, inputs))
    if not rows:
        raise InvalidInputError("batches is empty: there is nothing to score")
    return np.concatenate(rows)


def _batch_scores(options: Sequence[Odin], model: nn.Module, inputs: Tensor) -> FloatArray:
    tap = Tap(model, None, features=False)
    start = inputs.clone().requires_grad_()
    with torch.enable_grad():
        logits = tap.read(model, LoaderBatch((start,), {})).logits.double()
        label = logits.detach().argmax(1)
        uphill: dict[float, Tensor] = {}
        for temperature in dict.fromkeys(option.temperature for option in options):
            loss = nn.functional.cross_entropy(logits / temperature, label, reduction="sum")
            (gradient,) = torch.autograd.grad(loss, start, retain_graph=True)
            uphill[temperature] = torch.where(gradient >= 0, 1.0, -1.0).to(inputs.dtype)
    columns = []
    with torch.no_grad():
        for option in options:
            step = option.eps * uphill[option.temperature] / _per_channel(option.std, inputs)
            moved = tap.read(model, LoaderBatch((inputs - step,), {})).logits.double()
            columns.append(msp(to_array(moved / option.temperature)))
    return np.column_stack(columns)


def _per_channel(std: float | Sequence[float], inputs: Tensor) -> Tensor:
    values = inputs.new_tensor(std)
    if values.ndim == 0:
        return values
    if inputs.ndim < 2 or len(values) != inputs.shape[1]:
        raise InvalidInputError(
            f"std has {len(values)} channels, but the inputs have shape {tuple(inputs.shape)}"
        )
    return values.reshape(1, -1, *[1] * (inputs.ndim - 2))


def _is_real(value: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point()
