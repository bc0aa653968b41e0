"""PyTorch: a network that says when not to trust it, its activations as arrays, and ODIN.

ODIN is the softmax at a high temperature, of inputs moved a step towards their own class.
Needs the extra ``torch``; `SelectiveModule.to_onnx` needs ``onnx`` as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Self, cast

import numpy as np

from demur.errors import InvalidInputError, MissingExtraError

try:
    import torch
except ModuleNotFoundError:
    raise MissingExtraError("torch", "torch") from None

from torch import Tensor, nn

from demur import metrics
from demur._arrays import FloatArray
from demur.adapters import torch_export
from demur.adapters.torch_activations import StoredActivations, extract, to_array
from demur.adapters.torch_decisions import Decision, LearnedDecision, decision_of
from demur.adapters.torch_export import DetectorInputs, Score, score_of
from demur.adapters.torch_forward import (
    LoaderBatch,
    Outputs,
    Tap,
    call_of,
    device_of,
    evaluating,
    watched,
)
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.detectors import msp
from demur.detectors.activations import number, positive
from demur.learn.doubts import LearnedRule, any_rule

__all__ = ["Odin", "SelectiveModule", "StoredActivations", "extract"]


class SelectiveModule(nn.Module):
    """A classifier and its rule in one module: a batch in, predictions and decisions out.

    ``forward`` takes what the model takes, by position or keyword, or a dict of keywords; it
    returns the predicted class (int64) and whether to accept it (bool), both of shape (n,).
    Scores are computed in float64 and agree with the NumPy detectors up to rounding, so decisions
    agree with `Rule.accept` except on rows that lie on the threshold to within rounding. Rows
    without a score are rejected, as with ``missing="reject"``: those with logits that are not
    finite, or with such features where the rule weighs a score of them.

    Parameters
    ----------
    model
        Put in evaluation mode. It is part of the new module, not copied.
    detectors
        One for each score of the rule, in its order: names of detectors without training
        (``"msp"``, ``"mls"``, ``"energy"``, ``"entropy"``, ``"gradnorm"``), or a mapping from
        names of your choice to these or to a fitted `Knn`, `Vim`, `React`, `Mahalanobis` or
        `RelativeMahalanobis`. For a rule tuned on confidences: ``"max_softmax"``, ``"max_logit"``
        and ``"log_sum_exp"``, as in ``{"conf": "max_softmax"}``.
    rule
        As tuned on the scores of these detectors, or on what `demur.learn` made of them; its `tau`
        must be 0 or 1.
    layer
        Where the features are read, as in `extract`; give the same one.

    Examples
    --------
    >>> module = SelectiveModule(nn.Linear(2, 2), ["msp"], Rule((1.0,), threshold=0.2))
    >>> _ = module.model.load_state_dict({"weight": torch.eye(2), "bias": torch.zeros(2)})
    >>> module(torch.tensor([[0.0, 4.0], [0.1, 0.0]]))
    (tensor([1, 0]), tensor([ True, False]))
    """

    def __init__(
        self,
        model: nn.Module,
        detectors: Iterable[str] | Mapping[str, Any],
        rule: Rule | LearnedRule,
        *,
        layer: str | nn.Module | None = None,
    ) -> None:
        super().__init__()
        if isinstance(detectors, str):
            detectors = [detectors]
        named = detectors if isinstance(detectors, Mapping) else {name: name for name in detectors}
        self.names = tuple(named)
        self.decision: Decision | LearnedDecision = decision_of(rule)
        _check_names(self.names, rule)
        scorers = [score_of(detector) for detector in named.values()]
        _check_senses(self.names, scorers, rule)
        needs = frozenset[str]().union(*(scorer.needs for scorer in scorers))
        self._tap = Tap(model, layer, features=bool(needs))
        _check_layer(self._tap, model, needs)
        self.model = model
        self.scorers = nn.ModuleList(scorers)
        self._weighs_features = any(
            scorer.needs and weighed
            for scorer, weighed in zip(scorers, self.decision.weighed, strict=True)
        )
        self.to(device_of(model))
        self.eval()

    def forward(self, *inputs: Any, **named: Any) -> tuple[Tensor, Tensor]:
        """Return predictions and decisions of a batch."""
        prediction, accept, _ = self.judge(*inputs, **named)
        return prediction, accept

    def judge(self, *inputs: Any, **named: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return predictions, decisions and scores of a batch."""
        outputs = self._outputs(inputs, named)
        scores = self._scores(outputs)
        usable = torch.isfinite(outputs.logits).all(1)
        if outputs.features is not None and self._weighs_features:
            usable = usable & torch.isfinite(outputs.features).all(1)
        return outputs.logits.argmax(1), usable & self.decision(scores), scores

    @property
    def rule(self) -> Rule | LearnedRule:
        """The rule that decides."""
        return self.decision.rule

    def scores(self, *inputs: Any, **named: Any) -> Tensor:
        """Return the scores of a batch, shape (n, number of detectors), in float64."""
        return self._scores(self._outputs(inputs, named))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write network, detectors and rule to a safetensors file."""
        described = [
            {
                "name": name,
                "kind": scorer.kind,
                "k": scorer.k,
                "tensors": [buffer for buffer, _ in scorer.named_buffers()],
            }
            for name, scorer in zip(self.names, self._scorers(), strict=True)
        ]
        record = {"rule": self.rule.to_json(), "layer": self._tap.given, "detectors": described}
        torch_export.write_state(self, path, record)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: nn.Module) -> Self:
        """Read a module written by `save`.

        Parameters
        ----------
        model
            A model of the same architecture; its weights are overwritten with those of the file.
        """
        record, tensors = torch_export.read_record(path)
        try:
            detectors = {
                part["name"]: Score(
                    part["kind"],
                    k=part["k"],
                    tensors={name: tensors[f"scorers.{i}.{name}"] for name in part["tensors"]},
                )
                for i, part in enumerate(record["detectors"])
            }
            rule, layer = any_rule(record["rule"]), record["layer"]
        except (KeyError, TypeError) as error:
            raise InvalidInputError(f"{os.fspath(path)!r} is damaged: {error!r}") from None
        module = cls(model, detectors, rule, layer=layer)
        torch_export.read_state(module, path)
        return module

    def exported(self, *example: Any, **named: Any) -> torch.export.ExportedProgram:
        """Return the module as a `torch.export` program for batches of any size.

        Parameters
        ----------
        example, named
            The inputs of one batch, as `forward` takes them.
        """
        return torch_export.export_program(self, call_of(example, named))

    def to_onnx(self, path: str | os.PathLike[str], *example: Any, **named: Any) -> None:
        """Write the module as an ONNX model.

        Its outputs are ``prediction``, ``accept`` and ``scores``, of shape (n, number of
        detectors); its inputs are called ``input``, or ``input_0``, ``input_1``, ..., and by
        their own names where they are keywords. The file is written only if onnxruntime
        predicts and decides every row of the example as this module does.

        Parameters
        ----------
        example, named
            The inputs of one batch, as `forward` takes them; the batch size stays open.
        """
        torch_export.write_onnx(self, path, call_of(example, named))

    def _outputs(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> Outputs:
        return self._tap.read(self.model, call_of(inputs, named))

    def _scorers(self) -> list[Score]:
        return cast(list[Score], list(self.scorers))

    def _scores(self, outputs: Outputs) -> Tensor:
        logits = outputs.logits.double()
        head = self._tap.head(self.model)
        none = logits.new_zeros(())
        evidence = DetectorInputs(
            logits,
            none if outputs.features is None else outputs.features.double(),
            none if head is None else head.weight.double(),
            none if head is None or head.bias is None else head.bias.double(),
        )
        return torch.stack([scorer(evidence) for scorer in self.scorers], dim=1)


def _check_names(names: tuple[str, ...], rule: Rule | LearnedRule) -> None:
    columns = rule.columns
    if len(names) != columns.count:
        raise InvalidInputError(
            f"the rule weighs {columns.count} scores, but detectors names {list(names)}"
        )
    if rule.score_names is not None and rule.score_names != names:
        raise InvalidInputError(
            f"the rule was tuned for the scores {list(rule.score_names)}, in this order, but "
            f"detectors names {list(names)}"
        )


def _check_senses(names: tuple[str, ...], scorers: list[Score], rule: Rule | LearnedRule) -> None:
    """Refuse a doubt where the rule has a confidence, and a confidence where it has a doubt."""
    confidence = rule.columns.confidence
    # Rules of older files do not name their confidences, but weigh them so.
    weights = rule.direction if isinstance(rule, Rule) else (1.0,) * len(names)
    for name, scorer, weight in zip(names, scorers, weights, strict=True):
        if name in confidence and not scorer.is_confidence:
            known = ", ".join(torch_export.CONFIDENCES)
            raise InvalidInputError(
                f"the rule takes {name!r} for a confidence, but the detector {scorer.kind!r} gives "
                f"a doubt: say which confidence it was tuned on, {{{name!r}: NAME}} with one of "
                f"{known}, or tune on the scores of these detectors"
            )
        if scorer.is_confidence and weight > 0 and name not in confidence:
            raise InvalidInputError(
                f"the rule takes more of {name!r} for more doubt, but {scorer.kind!r} is a "
                "confidence: is it that score?"
            )


def _check_layer(tap: Tap, model: nn.Module, needs: frozenset[str]) -> None:
    if needs and tap.name is None:
        raise InvalidInputError("the model has no Linear layer: name layer= for the features")
    if "head" in needs and tap.head(model) is None:
        raise InvalidInputError(
            f"layer must be the linear head, for a detector uses its weights; {tap.name!r} is none"
        )


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
