"""PyTorch: a network that says when not to trust it, and its files; activations, ODIN.

Files are safetensors, to go on with, and ONNX, to deploy. Needs the extra ``torch``;
`SelectiveModule.to_onnx` needs ``onnx`` as well.
"""

from __future__ import annotations

import json
import logging
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, Self, cast

import numpy as np

from demur.errors import DemurError, InvalidInputError, MissingExtraError

try:
    import torch
except ModuleNotFoundError:
    raise MissingExtraError("torch", "torch") from None

from torch import Tensor, nn

from demur._files import check_target
from demur.adapters.torch_activations import Odin, StoredActivations, extract, to_array
from demur.adapters.torch_forward import (
    LoaderBatch,
    Outputs,
    Tap,
    call_of,
    device_of,
    evaluating,
)
from demur.adapters.torch_operations import (
    CONFIDENCES,
    Decision,
    DetectorInputs,
    LearnedDecision,
    Score,
    decision_of,
    score_of,
)
from demur.core.rule import Rule
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
        write_state(self, path, record)

    @classmethod
    def load(cls, path: str | os.PathLike[str], model: nn.Module) -> Self:
        """Read a module written by `save`.

        Parameters
        ----------
        model
            A model of the same architecture; its weights are overwritten with those of the file.
        """
        record, tensors = read_record(path)
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
        read_state(module, path)
        return module

    def exported(self, *example: Any, **named: Any) -> torch.export.ExportedProgram:
        """Return the module as a `torch.export` program for batches of any size.

        Parameters
        ----------
        example, named
            The inputs of one batch, as `forward` takes them.
        """
        return export_program(self, call_of(example, named))

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
        write_onnx(self, path, call_of(example, named))

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
            known = ", ".join(CONFIDENCES)
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


def __dir__() -> list[str]:
    return __all__
