"""The six scores of Table 2 on every set of a setup, computed once."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from demur._arrays import FloatArray, IntArray
from demur.adapters.torch import Odin
from demur.core.sample import Sample
from demur.detectors import (
    Activations,
    Detector,
    Knn,
    Mahalanobis,
    React,
    RelativeMahalanobis,
    Vim,
    energy,
    entropy,
    gen,
    mls,
    msp,
)
from demur.errors import InvalidInputError
from demur.reproduce.cache import Arrays, Cache, Notify, Runner, download_set
from demur.reproduce.networks import NETWORKS, ImageSet, image_set
from demur.reproduce.networks_weights import load_weights, trained_lenet
from demur.reproduce.table2_text import MORE, PAIRS, SETUPS, SINGLES, SetPart, Setup, Splits

Bank = Literal["plain", "augmented"]
_MORE_DETECTORS: dict[str, Detector] = {
    "mahalanobis": Mahalanobis(),
    "relative mahalanobis": RelativeMahalanobis(),
    "knn5": Knn(5),
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where data, weights and results are, and whether missing files may be fetched."""

    data: Path
    weights: Path
    cache: Path
    splits: Path | None = None
    download: bool = False
    notify: Notify | None = None

    def images(self, name: str) -> ImageSet:
        """Return a data set, fetched first if need be and allowed."""
        if self.download:
            try:
                return image_set(name, self.data)
            except InvalidInputError:
                download_set(name, self.data, notify=self.notify)
        return image_set(name, self.data)


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of the ID test rows and of every OOD set, with what was chosen on the way."""

    setup: Setup
    network: str
    bank: Bank
    accuracy: float
    """On all test images."""
    id_loss: FloatArray
    id_scores: Mapping[str, FloatArray]
    """By method."""
    ood_scores: Mapping[str, Mapping[str, FloatArray]]
    """By OOD set and method."""
    odin: Odin
    odin_searched: bool
    trained_epochs: int
    """Of the LeNet trained here; 0 with published weights."""
    whole_sets: tuple[str, ...]
    """Sets of which all test images are used, because there is no list for them."""

    def sample(self, method: str, ood: str) -> Sample:
        """Return the sample of a single or double score against one OOD set."""
        columns = PAIRS.get(method, (method,))
        return Sample(
            np.column_stack([self.id_scores[name] for name in columns]),
            self.id_loss,
            np.column_stack([self.ood_scores[ood][name] for name in columns]),
            score_names=columns,
        )


def compute_scores(
    setup_name: str,
    place: Place,
    *,
    network: str | None = None,
    bank: Bank = "plain",
    seed: int = 0,
    train_epochs: int = 0,
    all_mnist: bool = False,
    more: bool = False,
) -> Scores:
    """Run the network of a setup and the six detectors, or read what an earlier run stored.

    Parameters
    ----------
    network
        One of the setup's; the first by default.
    bank
        Training images for KNN and ViM: as they are, or mirrored and cut at random as
        OpenOOD v1.0 does.
    seed
        Of the augmentation, and of training.
    train_epochs
        Train the LeNet for so many epochs instead of reading its weights.
    all_mnist
        Use all 70,000 images where MNIST is OOD, not only the 10,000 test images.
    more
        Compute seven scores more, to learn from.
    """
    setup = _with_all_mnist(SETUPS[setup_name]) if all_mnist else SETUPS[setup_name]
    name = _network_name(setup, network, train_epochs)
    runner = _runner(name, place, seed=seed, train_epochs=train_epochs)
    splits = Splits.read(place.splits)
    parts = {"id": setup.test, **setup.ood}
    images = {key: place.images(part.images) for key, part in parts.items()}
    activations = {key: runner.activations(each) for key, each in images.items()}
    own = activations["id"]
    odin, searched = _odin(runner, place, setup, splits)
    score = _detectors(runner, place.images(setup.train), bank, seed, more=more)
    react = _react(runner, place, setup, splits, own)
    scores: dict[str, dict[str, FloatArray]] = {}
    for key, found in activations.items():
        rows = splits.rows(parts[key], len(found))
        every = {
            **score(images[key].name, found),
            "odin": runner.odin(images[key], odin),
            "react": react.score(images[key].name, found),
        }
        wanted = (*SINGLES, *(MORE if more else ()))
        scores[key] = {method: every[method][rows] for method in wanted}
    wrong = own.part("logits").argmax(axis=1) != own.part("labels")
    return Scores(
        setup=setup,
        network=name,
        bank=bank,
        accuracy=float(1 - wrong.mean()),
        id_loss=wrong[splits.rows(setup.test, len(own))].astype(np.float64),
        id_scores=scores.pop("id"),
        ood_scores=scores,
        odin=odin,
        odin_searched=searched,
        trained_epochs=train_epochs,
        whole_sets=tuple(part.images for part in parts.values() if not splits.has(part)),
    )


def _network_name(setup: Setup, network: str | None, train_epochs: int) -> str:
    name = network or setup.networks[0]
    if name not in setup.networks:
        raise InvalidInputError(
            f"network {name!r} is not for {setup.id}; choose from {', '.join(setup.networks)}"
        )
    if train_epochs and name != "lenet":
        raise InvalidInputError("only the LeNet is trained here: --train is for --id mnist")
    return name


def _detectors(
    runner: Runner, images: ImageSet, bank: Bank, seed: int, *, more: bool
) -> Callable[[str, Activations], dict[str, FloatArray]]:
    """Return the scores of activations that need no images; KNN and ViM fitted on the bank."""
    train = runner.activations(images, augment_seed=seed if bank == "augmented" else None)
    knn, vim = Knn(), Vim()
    stored_knn = _StoredScore("knn", knn, train, runner.cache, {"k": knn.k})
    stored_vim = _StoredScore("vim", vim, train, runner.cache, {"weights": runner.digest})
    stored_more = [
        _StoredScore(name, detector, train, runner.cache, {"more": name})
        for name, detector in _MORE_DETECTORS.items()
    ]

    def score(label: str, found: Activations) -> dict[str, FloatArray]:
        logits = found.part("logits")
        scores = {
            "msp": msp(logits),
            "mls": mls(logits),
            "knn": stored_knn.score(label, found),
            "vim": stored_vim.score(label, found),
        }
        if more:
            scores |= {"energy": energy(logits), "entropy": entropy(logits), "gen": gen(logits)}
            scores["margin"] = _margin(logits)
            scores |= {one.name: one.score(label, found) for one in stored_more}
        return scores

    return score


def _margin(logits: FloatArray) -> FloatArray:
    """Return how little the largest logit exceeds the second, as a doubt."""
    second, first = np.partition(logits, -2, axis=1)[:, -2:].T
    return np.asarray(second - first, np.float64)


def _react(
    runner: Runner, place: Place, setup: Setup, splits: Splits, own: Activations
) -> _StoredScore:
    if splits.has(setup.validation):
        train = own.take(splits.rows(setup.validation, len(own)))
    else:
        # Test images must not enter, and there are no others but those of training.
        train = runner.activations(place.images(setup.train))
    return _StoredScore("react", React(), train, runner.cache, {"weights": runner.digest})


def _with_all_mnist(setup: Setup) -> Setup:
    if "mnist" not in setup.ood:
        raise InvalidInputError("MNIST is not an OOD set here: all_mnist is for --id cifar10")
    return replace(setup, ood={**setup.ood, "mnist": SetPart("mnist-all", None)})


def _runner(name: str, place: Place, *, seed: int, train_epochs: int) -> Runner:
    network = NETWORKS[name]
    model = network.build().eval()
    cache = Cache(place.cache, notify=place.notify)
    if train_epochs:
        images = place.images("mnist-train")
        digest = trained_lenet(
            model, images, network.transform, cache, epochs=train_epochs, seed=seed
        )
    else:
        digest = load_weights(
            name, model, place.weights, download=place.download, notify=place.notify
        )
    # On a CPU this order of the axes is up to twice as fast.
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return Runner(model, digest, network.transform, cache)


def _odin(runner: Runner, place: Place, setup: Setup, splits: Splits) -> tuple[Odin, bool]:
    """Return ODIN with options from the validation lists; with its defaults if there are none."""
    sides = (setup.validation, setup.ood_validation)
    if not all(splits.has(part) for part in sides):
        return Odin(std=runner.transform.std), False
    chosen: list[tuple[ImageSet, IntArray]] = []
    for part in sides:
        images = place.images(part.images)
        chosen.append((images, splits.rows(part, len(runner.labels(images)))))
    return runner.odin_options(*chosen), True


@dataclass(frozen=True)
class _StoredScore:
    """A detector whose scores are computed once, and which is fitted only if some are missing.

    The last bits of a product of matrices depend on the number of threads, and results are found
    in the cache by the bits of the scores they were computed from: so these are kept as well.
    """

    name: str
    detector: Detector
    bank: Activations
    cache: Cache
    options: Mapping[str, Any]

    @cached_property
    def _fitted(self) -> Detector:
        return self.detector.fit(self.bank)

    @cached_property
    def _bank_digest(self) -> str:
        return _activations_digest(self.bank)

    def score(self, label: str, found: Activations) -> FloatArray:
        def compute(start: int, stop: int) -> Arrays:
            return {self.name: self._fitted.score(found.take(slice(start, stop)))}

        inputs = {"bank": self._bank_digest, "queries": _activations_digest(found), **self.options}
        return self.cache.rows(f"{label}-{self.name}", inputs, len(found), compute)[self.name]


def _activations_digest(found: Activations) -> str:
    features: Any = found.part("features")
    return hashlib.sha256(np.ascontiguousarray(features).tobytes()).hexdigest()
