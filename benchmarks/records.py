"""Errors of the best linear classifiers: exact in the plane, by plane descent beyond it.

    python -m benchmarks.records                  # needs scikit-learn; voicepath needs e01loss

The 0-1 loss of a linear classifier is a rejection model: accept one class, reject the other, and
every mistake costs the same. Times are CPU seconds, all in one run.
"""

from __future__ import annotations

import time
from importlib.resources import files
from importlib.util import find_spec

import numpy as np

import demur as dm


def zero_one(first: np.ndarray, second: np.ndarray) -> tuple[int, float, str]:
    """Return errors, CPU seconds, and what is certified."""
    share = len(second) / (len(first) + len(second))
    model = dm.CostModel(reject_id=1, accept_ood=1, ood_prior=share)
    sample = dm.Sample(first, np.zeros(len(first)), second)
    start = time.process_time()
    if first.shape[1] == 2:
        tuned = dm.tune(sample, model, directions="circle")
        rule, told = tuned.rule, tuned.certificate.status
    else:
        found = dm.learn.tune_linear(sample, model, directions="circle", starts=8)
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


def main() -> None:
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
