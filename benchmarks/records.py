"""Numbers of others, and ours on the same rows: 0-1 loss, uqlm's tuner, SURE+'s grid.

    python -m benchmarks.records                  # needs scikit-learn; voicepath needs e01loss
    python -m benchmarks.records --data FOLDER    # the files of UCI named in PUBLISHED
    python -m benchmarks.records --sure-plus PATH/metrics.py   # openood/evaluators of SURE+

The 0-1 loss of a linear classifier is a rejection model: accept one class, reject the other, and
every mistake costs the same. Times are CPU seconds, all in one run.
"""

from __future__ import annotations

import argparse
import time
from importlib.resources import files
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import numpy as np

import demur as dm


def zero_one(first: np.ndarray, second: np.ndarray, starts: int = 8) -> tuple[int, float, str]:
    """Return errors, CPU seconds, and what is certified."""
    share = len(second) / (len(first) + len(second))
    model = dm.CostModel(reject_id=1, accept_ood=1, ood_prior=share)
    sample = dm.Sample(first, np.zeros(len(first)), second)
    start = time.process_time()
    if first.shape[1] == 2:
        tuned = dm.tune(sample, model, directions="circle")
        rule, told = tuned.rule, tuned.certificate.status
    else:
        found = dm.learn.tune_linear(sample, model, directions="circle", starts=starts)
        rule, told = found.rule, f"best in {len(found.certified)} planes, of {found.planes:,} tried"
    spent = time.process_time() - start
    errors = int((~rule.accept(first)).sum() + rule.accept(second).sum())
    return errors, spent, told


def classes() -> dict[str, tuple[np.ndarray, np.ndarray]]:
    from sklearn.datasets import load_breast_cancer, load_iris, load_wine

    iris, wine, breast = (
        load(return_X_y=True) for load in (load_iris, load_wine, load_breast_cancer)
    )
    return {
        "iris, versicolor against the others, 150 x 4": two(*iris, 1),
        "iris, versicolor against virginica, 100 x 4": two(iris[0][50:], iris[1][50:], 1),
        "wine, the second against the others, 178 x 13": two(*wine, 1),
        "breast cancer, first 3 of the features, 569 x 3": two(breast[0][:, :3], breast[1], 1),
        "breast cancer, first 10 of the features, 569 x 10": two(breast[0][:, :10], breast[1], 1),
    }


def two(rows: np.ndarray, labels: np.ndarray, one: int) -> tuple[np.ndarray, np.ndarray]:
    return rows[labels == one], rows[labels != one]


def surrogates(first: np.ndarray, second: np.ndarray) -> dict[str, int]:
    """Return the errors of what is commonly fitted instead."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    rows = np.concatenate([first, second])
    label = np.repeat([0, 1], [len(first), len(second)])
    fitted = {
        "logistic": LogisticRegression(C=1e4, max_iter=10_000),
        "SVM": SVC(kernel="linear", C=10),
    }
    return {
        name: int(
            (make_pipeline(StandardScaler(), one).fit(rows, label).predict(rows) != label).sum()
        )
        for name, one in fitted.items()
    }


PUBLISHED = {"haberman.data": 66, "caesarian.csv.arff": 18, "Cryotherapy.csv": 6}
"""Least errors that exact searches were published to find."""


def uci_classes(folder: Path) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return the rows of both classes of each file that is there; the class is the last column."""
    found = {}
    for name in PUBLISHED:
        path = folder / name
        if not path.exists():
            print(f"{name}: not in {folder}")
            continue
        cells = [line.strip().split(",") for line in path.read_text("utf-8-sig").splitlines()]
        known = [row for row in cells if len(row) > 1 and row[0].strip().isdigit()]
        rows = np.array([row[:-1] for row in known], np.float64)
        label = np.array([row[-1] for row in known])
        if name == "Cryotherapy.csv" and set(label) != {"0", "1"}:
            # A common copy has the outcome first.
            rows = np.array([row[1:] for row in known], np.float64)
            label = np.array([row[0] for row in known])
        found[name] = rows[label == label[0]], rows[label != label[0]]
    return found


def module_of(path: Path) -> Any:
    """Load one file of a package without the rest of it and all that it needs."""
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def uqlm_tuner(rows: int = 1000) -> None:
    """Hold uqlm's grid of weights and thresholds against the exact search, by accuracy."""
    found = find_spec("uqlm")
    if found is None or not found.submodule_search_locations:
        print("uqlm: not here; its tuner needs uqlm, optuna and rich (pip install --no-deps)")
        return
    tuner = module_of(Path(found.submodule_search_locations[0]) / "utils" / "tuner.py").Tuner()
    rng = np.random.default_rng(0)
    right = rng.random(rows) < 0.6
    shown = 1 / (1 + np.exp(-(rng.normal(size=(2, rows)) + np.array([[0.9], [0.6]]) * right)))
    start = time.process_time()
    told = tuner.tune_params(
        shown.tolist(), right.tolist(), "accuracy_score", "accuracy_score", step_size=0.01
    )
    theirs = time.process_time() - start
    accepted = np.array(told["weights"]) @ shown > told["thresh"]
    errors, ours, _ = zero_one(-shown.T[right], -shown.T[~right])
    print(
        f"uqlm's tuner of two scores, {rows:,} rows: accuracy {np.mean(accepted == right):.3f} in "
        f"{theirs:.2f} s; demur {1 - errors / rows:.3f} in {ours:.3f} s"
    )


def sure_plus_grid(path: Path, rows: int = 1000) -> None:
    """Hold the grid of 1001 x 1001 thresholds of SURE+ against the exact DS-F1."""
    import torch

    # Written for NumPy 1.
    vars(np).setdefault("trapz", np.trapezoid)
    metrics = module_of(path)
    rng = np.random.default_rng(0)
    own, foreign = rows * 2 // 3, rows // 3
    wrong = rng.random(own) < 0.25
    conf = 1 / (1 + np.exp(-rng.normal(1.2 - 1.5 * wrong, 1, own)))
    inside = rng.normal(1.0 - 0.5 * wrong, 1, own)
    other, outside = 1 / (1 + np.exp(-rng.normal(0.2, 1, foreign))), rng.normal(-0.7, 1, foreign)
    torch.set_num_threads(1)
    start = time.process_time()
    found = metrics.compute_f1_and_aurc(
        *(np.zeros(own, int), wrong.astype(int), conf, inside, other, outside),
        device="cpu", batch_size_ood=25, batch_size_n=500,
    )  # fmt: skip
    theirs = time.process_time() - start
    sample = dm.Sample(-np.column_stack([conf, inside]), wrong, -np.column_stack([other, outside]))
    start = time.process_time()
    exact = dm.metrics.ds_f1(sample, shape="box")
    ours = time.process_time() - start
    print(
        f"DS-F1, {rows:,} rows: SURE+'s grid {found[2]:.5f} in {theirs:.1f} s; demur {exact:.5f} "
        f"in {ours:.3f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with the files of UCI")
    parser.add_argument("--sure-plus", type=Path, help="metrics.py of SURE+")
    options = parser.parse_args()
    if options.sure_plus is not None:
        sure_plus_grid(options.sure_plus)
    uqlm_tuner()
    if options.data is not None:
        for name, both in uci_classes(options.data).items():
            errors, spent, told = zero_one(*both, starts=40)
            size = f"{sum(map(len, both))} x {both[0].shape[1]}"
            print(
                f"{name}, {size}: {errors} errors ({told}), {spent:.2f} s; published: "
                f"{PUBLISHED[name]}"
            )
    if find_spec("e01loss"):
        table = np.genfromtxt(str(files("e01loss") / "test" / "voicepath_data.csv"), delimiter=",")
        both = two(table[:, :2], table[:, 2], 1)
        errors, spent, told = zero_one(*both)
        print(
            f"voicepath, {len(table)} x 2: {errors} errors ({told}), {spent:.4f} s; published: 19"
        )
    else:
        print("voicepath: not here; it comes with the package e01loss")
    for name, both in classes().items():
        errors, spent, told = zero_one(*both)
        others = ", ".join(f"{who} {count}" for who, count in surrogates(*both).items())
        print(f"{name}: {errors} errors ({told}), {spent:.2f} s; {others}")


if __name__ == "__main__":
    main()
