"""A whole project in one file: train, score, tune, judge on held-out rows, report.

The data are the handwritten digits that come with scikit-learn. The classifier learns the
digits 0 to 6; 7, 8 and 9 are out of distribution. Noise on the images makes it err now and then.

Its second act: thirty days in use, and a new kind of digit from the fifteenth on.

Live images are held-out ones with fresh noise. From day 15 on, some come upside down,
which neither the classifier nor the tuning has seen. Two of five images are audited.
"""

from __future__ import annotations

import csv
import io
import math
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
    Bound,
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
from demur.guarantees import certify
from demur.report import Report
from demur.report.watch_page import watch_page
from demur.watch import Status, Watch
from demur.watch.files import AuditLabels, FileColumns, count_files

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


@dataclass(frozen=True, slots=True, eq=False)
class DemoSetting:
    """The images, the trained network, and which images were held out."""

    pixels: npt.NDArray[Any]
    digits: npt.NDArray[Any]
    held_out: npt.NDArray[Any]
    network: Any
    fitted: Activations

    def scored(self, images: npt.NDArray[Any], digits: npt.NDArray[Any]) -> ScoredImages:
        """Score any images, of which the digits are known."""
        return _part(self.network, self.fitted, images, digits, np.arange(len(images)))


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
    setting: DemoSetting


def run(seed: int = 0) -> Demo:
    """Train a classifier, score images with several detectors and tune all rules.

    Parameters
    ----------
    seed
        Of the split, the noise and the training.
    """
    parts, setting = _scored_parts(seed)
    right = [1 - part.columns["is_wrong"][~part.is_ood] for part in parts]
    outcomes = [_outcome(method, name, parts) for name in MODELS for method in METHODS]
    return Demo(float(np.concatenate(right).mean()), *parts, tuple(outcomes), setting)


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


def _scored_parts(seed: int) -> tuple[tuple[ScoredImages, ScoredImages], DemoSetting]:
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
    tuned, held_out = (_part(network, fitted, images, digits, rows) for rows in halves)
    return (tuned, held_out), DemoSetting(pixels, digits, halves[1], network, fitted)


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


LIVE_FILES = ("live.csv", "audits.csv", "watch.json", "watch.html")
DAYS, CHANGE, A_DAY = 30, 15, 300
_PRIOR, _TURNED, _AUDITED = 0.2, 0.5, 0.4
PRIOR_RANGE = (0.15, 0.25)


@dataclass(frozen=True, slots=True)
class SecondAct:
    """What the watch found."""

    watch: Watch
    status: Status
    promised: tuple[Bound, ...]


def play(demo: Demo, folder: Path, seed: int = 0) -> SecondAct:
    """Write thirty days of scores and audits to `folder`, watch them, and write the page.

    Expected is what the held-out images certify of the rule in ``rule.json``.
    """
    rule = Rule.load(folder / "rule.json")
    promise = certify(rule, demo.test.sample(REPORTED))
    promised = (
        Bound("tpr", at_least=_down(promise.tpr.low)),
        Bound("fpr", at_most=-_down(-promise.fpr.high)),
        Bound("selective_risk", at_most=-_down(-promise.selective_risk.high)),
    )
    live, audits = _days(demo, np.random.default_rng([seed, 1]))
    write_atomically(folder / "live.csv", _csv(live))
    write_atomically(folder / "audits.csv", _csv(audits))
    watch = Watch(rule, expect=promised, ood_prior=PRIOR_RANGE)
    columns = FileColumns(REPORTED, by="day", on="image", loss="is_wrong", ood="set")
    labels = AuditLabels(str(folder / "audits.csv"), columns, None)
    found = count_files(watch.setup, [str(folder / "live.csv")], columns, labels)
    for period in sorted(found.counts):
        watch.replace(period, found.part(period), found.counts[period])
    status = watch.status()
    watch.save(folder / "watch.json")
    page = watch_page(watch, status, title="Handwritten digits in use", rows=found.examples)
    write_atomically(folder / "watch.html", page)
    return SecondAct(watch, status, promised)


def _down(value: float) -> float:
    # Promises are rounded against who makes them.
    return math.floor(1000 * value) / 1000


def watch_command(folder: Path, promised: tuple[Bound, ...]) -> str:
    """Return the command that looks at the same days."""
    rule, live, audits, state = (
        shlex.quote(str(folder / name))
        for name in ("rule.json", "live.csv", "audits.csv", "watch.json")
    )
    bounds = " ".join(f"--{b.parameter.replace('_', '-')} {float(b.value):g}" for b in promised)
    prior = " ".join(f"{end:g}" for end in PRIOR_RANGE)
    return (
        f"demur watch {rule} {live} --labels {audits} --on image --by day --loss is_wrong "
        f"--ood set {bounds} --prior-range {prior} --state {state}"
    )


def _days(
    demo: Demo, rng: np.random.Generator
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, npt.NDArray[Any]]]:
    """Return the scores of all live images, and the labels of those that were audited."""
    rows = DAYS * A_DAY
    day = np.repeat(np.arange(1, DAYS + 1), A_DAY)
    foreign = np.isin(demo.setting.digits, OOD_DIGITS)
    sides = [
        demo.setting.held_out[foreign[demo.setting.held_out] == side] for side in (False, True)
    ]
    from_ood = rng.random(rows) < _PRIOR
    image = np.where(from_ood, rng.choice(sides[1], rows), rng.choice(sides[0], rows))
    turned = (day >= CHANGE) & ~from_ood & (rng.random(rows) < _TURNED)
    pixels = demo.setting.pixels[image] / 16
    # Pixels are stored row by row: backwards, an image is upside down.
    pixels[turned] = pixels[turned, ::-1]
    pixels = pixels + rng.normal(0, NOISE, pixels.shape)
    scored = demo.setting.scored(pixels, demo.setting.digits[image])
    columns = scored.columns
    names = np.array([f"live {k}" for k in range(rows)])
    kinds = np.where(turned, "upside down", columns["set"])
    live = {"image": names, "day": day, **{name: columns[name] for name in REPORTED}}
    audited = rng.random(rows) < _AUDITED
    wrong = np.where(kinds == "id", columns["is_wrong"].astype(str), "")
    audits = {"image": names[audited], "is_wrong": wrong[audited], "set": kinds[audited]}
    return live, audits


def _csv(columns: dict[str, npt.NDArray[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(zip(*(column.tolist() for column in columns.values()), strict=True))
    return text.getvalue()
