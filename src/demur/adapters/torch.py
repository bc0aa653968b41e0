"""PyTorch: a network that says when not to trust it, its activations as arrays, and ODIN.

Needs the extra ``torch``; `SelectiveModule.to_onnx` needs ``onnx`` as well.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from typing import Any, Self, cast

from demur.errors import InvalidInputError, MissingExtraError

try:
    import torch
except ModuleNotFoundError:
    raise MissingExtraError("torch", "torch") from None

from torch import Tensor, nn

from demur.adapters import torch_files
from demur.adapters.stored_activations import StoredActivations
from demur.adapters.torch_extract import extract
from demur.adapters.torch_forward import Outputs, Tap, call_of, device_of
from demur.adapters.torch_odin import Odin
from demur.adapters.torch_scores import DetectorInputs, Doubles, Score, score_of
from demur.core.rule import Rule

__all__ = ["Odin", "SelectiveModule", "StoredActivations", "extract"]


class Decision(Doubles):
    """A rule in torch operations; it decides as `Rule.accept` with ``missing="reject"`` does.

    A rule that is random on its boundary (0 < tau < 1) is refused, as in SQL: a deployed graph
    has to decide the same row alike every time.
    """

    direction: Tensor
    threshold: Tensor

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
        for name, values in (("direction", rule.direction), ("threshold", rule.threshold)):
            tensor = torch.tensor(values, dtype=torch.float64)
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, scores: Tensor) -> Tensor:
        """Return True for the rows to accept."""
        # What is weighed must be finite; of other scores only +inf counts, which always rejects.
        usable = (scores != math.inf).all(1)
        terms = []
        for column, weight in enumerate(self.rule.direction):
            if weight != 0:
                usable = usable & torch.isfinite(scores[:, column])
                terms.append(self.direction[column] * scores[:, column])
        combined = terms[0] if len(terms) == 1 else terms[0] + terms[1]
        if self.rule.threshold == -math.inf:
            return usable & False
        within = combined <= self.threshold if self.rule.tau else combined < self.threshold
        return usable & within


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
        `RelativeMahalanobis`.
    rule
        As tuned on the scores of these detectors; its `tau` must be 0 or 1.
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
        rule: Rule,
        *,
        layer: str | nn.Module | None = None,
    ) -> None:
        super().__init__()
        if isinstance(detectors, str):
            detectors = [detectors]
        named = detectors if isinstance(detectors, Mapping) else {name: name for name in detectors}
        self.names = tuple(named)
        self.decision = Decision(rule)
        _check_names(self.names, rule)
        scorers = [score_of(detector) for detector in named.values()]
        needs = frozenset[str]().union(*(scorer.needs for scorer in scorers))
        self._tap = Tap(model, layer, features=bool(needs))
        _check_layer(self._tap, model, needs)
        self.model = model
        self.scorers = nn.ModuleList(scorers)
        self._weighs_features = any(
            scorer.needs and weight != 0
            for scorer, weight in zip(scorers, rule.direction, strict=True)
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
    def rule(self) -> Rule:
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
        torch_files.write_state(self, path, record)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: nn.Module) -> Self:
        """Read a module written by `save`.

        Parameters
        ----------
        model
            A model of the same architecture; its weights are overwritten with those of the file.
        """
        record, tensors = torch_files.read_record(path)
        try:
            detectors = {
                part["name"]: Score(
                    part["kind"],
                    k=part["k"],
                    tensors={name: tensors[f"scorers.{i}.{name}"] for name in part["tensors"]},
                )
                for i, part in enumerate(record["detectors"])
            }
            rule, layer = Rule.from_json(record["rule"]), record["layer"]
        except (KeyError, TypeError) as error:
            raise InvalidInputError(f"{os.fspath(path)!r} is damaged: {error!r}") from None
        module = cls(model, detectors, rule, layer=layer)
        torch_files.read_state(module, path)
        return module

    def exported(self, *example: Any, **named: Any) -> torch.export.ExportedProgram:
        """Return the module as a `torch.export` program for batches of any size.

        Parameters
        ----------
        example, named
            The inputs of one batch, as `forward` takes them.
        """
        return torch_files.export_program(self, call_of(example, named))

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
        torch_files.write_onnx(self, path, call_of(example, named))

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


def _check_names(names: tuple[str, ...], rule: Rule) -> None:
    if len(names) != len(rule.direction):
        raise InvalidInputError(
            f"the rule weighs {len(rule.direction)} scores, but detectors names {list(names)}"
        )
    if rule.score_names is not None and rule.score_names != names:
        raise InvalidInputError(
            f"the rule was tuned for the scores {list(rule.score_names)}, in this order, but "
            f"detectors names {list(names)}"
        )
    if rule.confidence:
        raise InvalidInputError(
            f"the rule takes {rule.confidence[0]!r} for a confidence, but detectors give doubts "
            "(higher means less trust): tune the rule on the scores of these detectors"
        )


def _check_layer(tap: Tap, model: nn.Module, needs: frozenset[str]) -> None:
    if needs and tap.name is None:
        raise InvalidInputError("the model has no Linear layer: name layer= for the features")
    if "head" in needs and tap.head(model) is None:
        raise InvalidInputError(
            f"layer must be the linear head, for a detector uses its weights; {tap.name!r} is none"
        )
