"""A whole project in one file: train, score, tune, judge on held-out rows, report.

The data are the handwritten digits that come with scikit-learn. The classifier learns the
digits 0 to 6; 7, 8 and 9 are out of distribution. Noise on the images makes it err now and then.
"""

from __future__ import annotations

import csv
import io
import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from demur import (
    CostModel,
    InfeasibleError,
    MissingExtraError,
    OperatingPoint,
    PrecisionRecallModel,
    Rule,
    Sample,
    TprFprModel,
    evaluate,
    tune,
)
from demur._files import write_atomically
from demur.core.models import RejectionModel
from demur.detectors import Activations, Knn, score_table
from demur.report import Report

OOD_DIGITS = (7, 8, 9)
TRAINING_IMAGES = 300
NOISE = 0.15
DETECTORS = {"msp": "msp", "energy": "energy", "knn": Knn(k=10), "vim": "vim"}
METHODS = (("msp",), ("energy",), ("knn",), ("vim",), ("msp", "knn"), ("msp", "vim"))
REPORTED = ("msp", "knn")
MODELS: dict[str, RejectionModel] = {
    "TPR ≥ 0.8, FPR ≤ 0.2": TprFprModel(min_tpr=0.8, max_fpr=0.2),
    "precision ≥ 0.95, recall ≥ 0.7": PrecisionRecallModel(0.95, 0.7, ood_prior=0.25),
    "cost": CostModel(reject_id=0.2, accept_ood=0.5, reject_ood=0, ood_prior=0.25),
}
FILES = ("report.html", "rule.json", "tune.csv", "test.csv")


@dataclass(frozen=True, slots=True, eq=False)
class ScoredImages:
    """Scored images of one part, those to tune on or those held out."""

    columns: dict[str, npt.NDArray[Any]]
    is_ood: npt.NDArray[np.bool_]

    def sample(self, scores: Sequence[str]) -> Sample:
        """Return the sample of one or two scores."""
        values = np.column_stack([self.columns[name] for name in scores])
        sets = self.columns["set"]
        return Sample(
            id_scores=values[~self.is_ood],
            id_loss=self.columns["is_wrong"][~self.is_ood],
            ood_scores={name: values[sets == name] for name in np.unique(sets[self.is_ood])},
            score_names=tuple(scores),
        )

    def ids(self) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Return the images' names in the order of the sample."""
        images, sets = self.columns["image"], self.columns["set"]
        ood = [images[sets == name] for name in np.unique(sets[self.is_ood])]
        return images[~self.is_ood], np.concatenate(ood)

    def csv(self) -> str:
        """Return the scores as a table, with numbers that read back as the same floats."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows(zip(*(column.tolist() for column in self.columns.values()), strict=True))
        return text.getvalue()


@dataclass(frozen=True, slots=True)
class DemoOutcome:
    """One method tuned under one model; points are None where no rule meets the bounds."""

    method: tuple[str, ...]
    model: str
    rule: Rule | None
    tuned: OperatingPoint | None
    held_out: OperatingPoint | None


@dataclass(frozen=True, slots=True, eq=False)
class Demo:
    """Everything the demo computes."""

    accuracy: float
    """Of the classifier, on all ID images of the two parts."""
    tune: ScoredImages
    test: ScoredImages
    outcomes: tuple[DemoOutcome, ...]


def run(seed: int = 0) -> Demo:
    """Train a classifier, score images with several detectors and tune all rules.

    Parameters
    ----------
    seed
        Of the split, the noise and the training.
    """
    parts = _scored_parts(seed)
    right = [1 - part.columns["is_wrong"][~part.is_ood] for part in parts]
    outcomes = [_outcome(method, name, parts) for name in MODELS for method in METHODS]
    return Demo(float(np.concatenate(right).mean()), *parts, tuple(outcomes))


def write(demo: Demo, folder: Path) -> Report:
    """Write the scores, the rule of the reported pair and the report to `folder`."""
    for part, file in ((demo.tune, "tune.csv"), (demo.test, "test.csv")):
        write_atomically(folder / file, part.csv())
    sample = demo.tune.sample(REPORTED)
    tuning = tune(sample, next(iter(MODELS.values())))
    tuning.rule.save(folder / "rule.json")
    report = Report.of(
        sample,
        tuning,
        held_out=demo.test.sample(REPORTED),
        methods={
            " + ".join(method): (demo.tune.sample(method), demo.test.sample(method))
            for method in METHODS
        },
        ids=demo.tune.ids(),
        title="Handwritten digits: when to answer",
        command=tune_command(folder),
    )
    report.to_html(folder / "report.html")
    return report


def tune_command(folder: Path) -> str:
    """Return the command that repeats the reported tuning, up to the bounds."""
    path = shlex.quote(str(folder / "tune.csv"))
    return f"demur tune {path} --scores {','.join(REPORTED)} --loss is_wrong --ood set"


def _outcome(
    method: tuple[str, ...], name: str, parts: tuple[ScoredImages, ScoredImages]
) -> DemoOutcome:
    model = MODELS[name]
    try:
        tuned = tune(parts[0].sample(method), model)
    except InfeasibleError:
        return DemoOutcome(method, name, None, None, None)
    fresh = evaluate(tuned.rule, parts[1].sample(method), model=model)
    return DemoOutcome(method, name, tuned.rule, tuned.point, fresh)


def _scored_parts(seed: int) -> tuple[ScoredImages, ScoredImages]:
    try:
        datasets = import_module("sklearn.datasets")
    except ModuleNotFoundError:
        raise MissingExtraError("scikit-learn", "report") from None
    pixels, digits = datasets.load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    images = pixels / 16 + rng.normal(0, NOISE, pixels.shape)
    is_ood = np.isin(digits, OOD_DIGITS)
    id_rows, ood_rows = (rng.permutation(np.flatnonzero(side)) for side in (~is_ood, is_ood))
    train = id_rows[:TRAINING_IMAGES]
    network = _trained(images[train], digits[train], seed)
    fitted = _activations(network, images[train])
    halves = [
        np.concatenate([np.array_split(id_rows[TRAINING_IMAGES:], 2)[k], ood_half])
        for k, ood_half in enumerate(np.array_split(ood_rows, 2))
    ]
    return tuple(_part(network, fitted, images, digits, rows) for rows in halves)  # type: ignore[return-value]


def _trained(images: npt.NDArray[Any], digits: npt.NDArray[Any], seed: int) -> Any:
    classifier = import_module("sklearn.neural_network").MLPClassifier
    network = classifier((32,), max_iter=60, learning_rate_init=0.005, random_state=seed)
    with warnings.catch_warnings():
        # Sixty passes are enough here; it need not converge.
        unfinished = import_module("sklearn.exceptions").ConvergenceWarning
        warnings.simplefilter("ignore", unfinished)
        return network.fit(images, digits)


def _activations(network: Any, images: npt.NDArray[Any]) -> Activations:
    (hidden, head), (hidden_bias, head_bias) = network.coefs_, network.intercepts_
    features = np.maximum(images @ hidden + hidden_bias, 0)
    return Activations(features=features, weight=head.T, bias=head_bias)


def _part(
    network: Any,
    fitted: Activations,
    images: npt.NDArray[Any],
    digits: npt.NDArray[Any],
    rows: npt.NDArray[Any],
) -> ScoredImages:
    activations = _activations(network, images[rows])
    is_ood = np.isin(digits[rows], OOD_DIGITS)
    prediction = network.predict(images[rows])
    columns: dict[str, npt.NDArray[Any]] = {
        "image": np.array([f"image {row}" for row in rows]),
        "set": np.where(is_ood, np.array([f"digit {d}" for d in digits[rows]]), "id"),
        "label": digits[rows],
        "prediction": prediction,
        "is_wrong": (prediction != digits[rows]).astype(np.int64),
    }
    return ScoredImages(columns | score_table(DETECTORS, activations, train=fitted), is_ood)
