"""The two setups of Table 2, with what the paper prints, and their six scores, computed once."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
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
from demur.reproduce.image_sets import ImageSet, Notify, download_set, image_set
from demur.reproduce.networks import (
    NETWORKS,
    Arrays,
    Cache,
    Runner,
    load_weights,
    trained_lenet,
)

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


SINGLES = {"msp": "MSP", "mls": "MLS", "odin": "ODIN", "react": "REACT", "knn": "KNN", "vim": "VIM"}
"""Single scores in the order of the table, and their titles."""
MORE = ("energy", "entropy", "gen", "margin", "mahalanobis", "relative mahalanobis", "knn5")
"""Scores of the same activations that Table 2 does not have, to learn from."""

PAIRS = {"knn+msp": ("msp", "knn"), "vim+msp": ("msp", "vim")}
"""Double scores: the risk score and the OOD score."""
TITLES = {**SINGLES, "knn+msp": "KNN+MSP", "vim+msp": "VIM+MSP"}
MIN_TPR = 0.8


@dataclass(frozen=True, slots=True)
class SetPart:
    """Some rows of a data set: those of an OpenOOD list, or all when there is no list."""

    images: str
    """A key of `demur.reproduce.image_sets.SETS`."""
    split: str | None
    """Name of the list in the split file."""


@dataclass(frozen=True, slots=True)
class Printed:
    """What the paper prints of one method on one OOD set; its OSCR is per accepted ID."""

    selective_risk: float
    auroc: float
    oscr: float


@dataclass(frozen=True, slots=True)
class Setup:
    """One half of the table."""

    id: str
    train: str
    test: SetPart
    validation: SetPart
    ood: Mapping[str, SetPart]
    ood_validation: SetPart
    """For the options of ODIN."""
    networks: tuple[str, ...]
    """The default first."""
    targets: Mapping[str, float]
    """FPR bounds the paper prints."""
    printed: Mapping[str, Mapping[str, Printed]] = field(repr=False)
    """By OOD set and method."""


def _printed(names: tuple[str, ...], rows: str) -> dict[str, dict[str, Printed]]:
    table: dict[str, dict[str, Printed]] = {name: {} for name in names}
    for method, line in zip(TITLES, rows.strip().splitlines(), strict=True):
        numbers = [float(word) for word in line.split()]
        for i, name in enumerate(names):
            table[name][method] = Printed(*numbers[3 * i : 3 * i + 3])
    return table


SETUPS: dict[str, Setup] = {
    "mnist": Setup(
        id="mnist",
        train="mnist-train",
        test=SetPart("mnist-test", "mnist_test"),
        validation=SetPart("mnist-test", "mnist_val"),
        ood={
            "notmnist": SetPart("notmnist", "notmnist_test"),
            "fashionmnist": SetPart("fashionmnist-test", "fashionmnist_test"),
            "cifar10": SetPart("cifar10-test", "cifar10_test"),
        },
        ood_validation=SetPart("notmnist", "notmnist_val"),
        networks=("lenet",),
        targets={"notmnist": 0.08, "fashionmnist": 0.10, "cifar10": 0.29},
        printed=_printed(
            ("notmnist", "fashionmnist", "cifar10"),
            """
            .00014 .936 .996 .00013 .956 .994 .00013 .989 .991
            .00139 .941 .993 .00139 .972 .991 .00139 .993 .990
            .00069 .942 .993 .00069 .970 .991 .00069 .993 .990
            .00637 .962 .991 .00637 .985 .990 .00637 .992 .989
            .00041 .976 .991 .00041 .947 .993 .00041 .976 .991
            .00193 .983 .990 .00194 .926 .993 .00194 .860 .995
            .00000 .976 .996 .00000 .962 .994 .00000 .991 .991
            .00014 .987 .996 .00013 .976 .994 .00013 .992 .995
            """,
        ),
    ),
    "cifar10": Setup(
        id="cifar10",
        train="cifar10-train",
        test=SetPart("cifar10-test", "cifar10_test"),
        validation=SetPart("cifar10-test", "cifar10_val"),
        ood={
            "cifar100": SetPart("cifar100-test", "cifar100_test"),
            "tiny imagenet": SetPart("tin-val", "tin_test_v1_0"),
            "mnist": SetPart("mnist-test", None),
        },
        ood_validation=SetPart("cifar100-test", "cifar100_val"),
        networks=("resnet20", "resnet56", "densenet100"),
        targets={"cifar100": 0.21, "tiny imagenet": 0.19, "mnist": 0.19},
        printed=_printed(
            ("cifar100", "tiny imagenet", "mnist"),
            """
            .00676 .871 .977 .00676 .887 .976 .00676 .899 .976
            .00984 .861 .973 .00984 .885 .971 .00984 .905 .971
            .01000 .851 .975 .01000 .864 .974 .00995 .915 .969
            .00856 .864 .973 .00856 .888 .971 .00856 .883 .972
            .00665 .896 .974 .00665 .914 .972 .00665 .916 .973
            .01232 .872 .972 .01232 .888 .971 .01236 .873 .974
            .00652 .896 .977 .00652 .914 .976 .00652 .916 .976
            .00676 .879 .977 .00676 .894 .976 .00676 .900 .976
            """,
        ),
    ),
}


@dataclass(frozen=True, slots=True)
class Splits:
    """Lists of rows, from a file, or none at all: then every part is its whole set."""

    lists: Mapping[str, IntArray]
    source: str | None = None

    @classmethod
    def read(cls, path: str | os.PathLike[str] | None) -> Splits:
        """Read the arrays of an .npz file; None means no lists."""
        if path is None:
            return cls({})
        try:
            with np.load(path, allow_pickle=False) as file:
                lists = {name: file[name].astype(np.int64) for name in file.files}
        except (OSError, ValueError, EOFError) as error:
            raise InvalidInputError(
                f"cannot read the splits {os.fspath(path)!r}: {error}"
            ) from None
        return cls(lists, Path(path).name)

    def has(self, part: SetPart) -> bool:
        """Tell whether the part has a list of its own."""
        return part.split is not None and part.split in self.lists

    def rows(self, part: SetPart, count: int) -> IntArray:
        """Return the rows of a part among the `count` images of its set."""
        if part.split is None or part.split not in self.lists:
            return np.arange(count)
        rows = self.lists[part.split]
        if len(rows) == 0 or rows.min() < 0 or rows.max() >= count:
            raise InvalidInputError(
                f"the list {part.split!r} does not fit the {count:,} images of {part.images!r}"
            )
        return rows
