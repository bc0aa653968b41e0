"""Doubts about inputs: that the estimator is wrong, and that it has seen nothing like them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted, validate_data

from demur import _arrays
from demur._arrays import FloatArray
from demur.detectors import Activations, Knn, Mahalanobis, RelativeMahalanobis, as_scores
from demur.errors import InvalidInputError
from demur.losses import Loss, bayes_prediction, evaluate_loss

RiskScore = Callable[[Any, Any], Any]
"""A function of the fitted estimator and its inputs, one doubt a row."""

_ON_FEATURES = (Knn, Mahalanobis, RelativeMahalanobis)


class NeighbourDistance(BaseEstimator):  # type: ignore[misc]
    """Distance to the k-th nearest training row, the simplest score of foreignness.

    The columns of dense data are divided by their standard deviations first; sparse data (text)
    are taken as they are.

    Parameters
    ----------
    n_neighbors
        k; all rows, if there are fewer.

    Examples
    --------
    >>> NeighbourDistance(n_neighbors=1).fit([[0.0], [2.0]]).score_samples([[2.0], [5.0]])
    array([-0., -3.])
    """

    def __init__(self, n_neighbors: int = 10) -> None:
        self.n_neighbors = n_neighbors

    def fit(self, X: Any, y: Any = None) -> Self:
        """Keep the training rows; `y` is ignored."""
        rows = validate_data(self, X, accept_sparse="csr", dtype=np.float64)
        spread = np.ones(1) if _is_sparse(rows) else rows.std(axis=0)
        self.scale_ = np.where(spread > 0, spread, 1.0)
        count = min(self.n_neighbors, rows.shape[0])
        self.neighbors_ = NearestNeighbors(n_neighbors=count).fit(self._scaled(rows))
        return self

    def score_samples(self, X: Any) -> FloatArray:
        """Return minus the distance, so that higher means less foreign, as scikit-learn has it."""
        check_is_fitted(self)
        rows = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        distances, _ = self.neighbors_.kneighbors(self._scaled(rows))
        return np.asarray(-distances[:, -1])

    def _scaled(self, rows: Any) -> Any:
        return rows if _is_sparse(rows) else rows / self.scale_

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags


@dataclass(frozen=True, slots=True)
class OodScore:
    """A fitted detector that looks at what the estimator looks at."""

    estimator: Any
    detector: Any

    @classmethod
    def fit(cls, detector: Any, estimator: Any, inputs: Any, labels: Any) -> Self:
        """Let the detector learn from the ID inputs on which the estimator was fitted."""
        if isinstance(detector, str) and detector == "knn":
            detector = NeighbourDistance()
        if hasattr(detector, "score_samples"):
            detector = clone(detector).fit(_last_step_input(estimator, inputs), labels)
        elif isinstance(detector, _ON_FEATURES):
            features = _dense(_last_step_input(estimator, inputs))
            detector = detector.fit(Activations(features=features, labels=labels))
        elif not callable(detector):
            raise InvalidInputError(
                "ood_score must be 'knn', None, an outlier detector with score_samples, a Knn, "
                "Mahalanobis or RelativeMahalanobis, or a function of estimator and inputs; got "
                f"{detector!r}"
            )
        return cls(estimator, detector)

    def __call__(self, inputs: Any, *, strict: bool = True) -> FloatArray:
        """Return one doubt a row; unless `strict`, those that are missing as NaN."""
        if hasattr(self.detector, "score_samples"):
            values = -self.detector.score_samples(_last_step_input(self.estimator, inputs))
        elif isinstance(self.detector, _ON_FEATURES):
            features = _dense(_last_step_input(self.estimator, inputs))
            values = self.detector.score(Activations(features=features))
        else:
            values = self.detector(self.estimator, inputs)
        return _doubts(values, "ood_score", strict)


@dataclass(frozen=True, slots=True)
class FittedEstimator:
    """A fitted estimator that gives labels and doubts."""

    estimator: Any
    classes: npt.NDArray[Any]
    costs: FloatArray | None
    """Losses, true class x predicted class; None is the 0/1 loss."""
    risk_score: RiskScore | None
    ood_score: OodScore | None

    def labels(self, inputs: Any) -> npt.NDArray[Any]:
        """Return the predicted label of each row: the Bayes prediction under the costs."""
        if self.costs is None:
            return np.asarray(self.estimator.predict(inputs))
        numbers, _ = bayes_prediction(self.probabilities(inputs), self.costs)
        return np.asarray(self.classes[numbers])

    def scores(self, inputs: Any, *, strict: bool = True) -> FloatArray:
        """Return the doubts of each row, shape (n, 1) or (n, 2); see `OodScore.__call__`."""
        risk = self._risk(inputs, strict)
        if self.ood_score is None:
            return risk[:, None]
        return np.column_stack([risk, self.ood_score(inputs, strict=strict)])

    def losses(self, inputs: Any, y: npt.NDArray[Any]) -> FloatArray:
        """Return the loss of the predicted labels of each row."""
        labels = self.labels(inputs)
        if self.costs is None:
            return evaluate_loss("zero_one", y, labels)
        unknown = ~np.isin(y, self.classes)
        if unknown.any():
            raise InvalidInputError(
                f"y has the label {y[unknown].tolist()[0]!r}, which the estimator does not know"
            )
        numbers = [np.searchsorted(self.classes, side) for side in (y, labels)]
        return np.asarray(self.costs[numbers[0], numbers[1]])

    def probabilities(self, inputs: Any) -> FloatArray:
        """Return class probabilities, one column for each of `classes`."""
        given = np.asarray(self.estimator.predict_proba(inputs), np.float64)
        # A fold may have been trained without the rarest class.
        result = np.zeros((len(given), len(self.classes)))
        result[:, np.searchsorted(self.classes, self.estimator.classes_)] = given
        return result

    def _risk(self, inputs: Any, strict: bool) -> FloatArray:
        if self.risk_score is not None:
            return _doubts(self.risk_score(self.estimator, inputs), "risk_score", strict)
        if hasattr(self.estimator, "predict_proba"):
            probabilities = self.probabilities(inputs)
            known = np.asarray(np.isfinite(probabilities).all(axis=1) | strict)
            risk = np.full(len(probabilities), np.nan)
            risk[known] = bayes_prediction(probabilities[known], self.costs)[1]
            return risk
        if self.costs is None and hasattr(self.estimator, "decision_function"):
            return -_margin(np.asarray(self.estimator.decision_function(inputs), np.float64))
        raise InvalidInputError(
            f"{type(self.estimator).__name__} has no class probabilities to compute the expected "
            "loss from: give risk_score=, or wrap it in CalibratedClassifierCV"
        )


def _doubts(values: Any, name: str, strict: bool) -> FloatArray:
    if strict:
        return as_scores(values, name=name)
    found = _arrays.real_array(name, values)
    kept = np.where(np.isneginf(found), np.nan, found)
    return as_scores(np.where(np.isnan(kept), 0.0, kept), name=name) + np.where(
        np.isnan(kept), np.nan, 0.0
    ).reshape(-1)


def costs_of(loss: Loss, classes: npt.NDArray[Any]) -> FloatArray | None:
    """Return a loss as a matrix over the classes; None for the 0/1 loss."""
    if isinstance(loss, str) and loss == "zero_one":
        return None
    count = len(classes)
    if isinstance(loss, str) or callable(loss):
        every = evaluate_loss(loss, np.repeat(classes, count), np.tile(classes, count))
        return every.reshape(count, count)
    costs = _arrays.cost_matrix("loss", loss)
    if len(costs) != count:
        raise InvalidInputError(f"loss is for {len(costs)} classes, y has {count}")
    return costs


def _margin(decision: FloatArray) -> FloatArray:
    """Return how far the decision is from the next class."""
    if decision.ndim == 1:
        return np.abs(decision)
    two = np.sort(decision, axis=1)[:, -2:]
    return np.asarray(two[:, 1] - two[:, 0])


def _last_step_input(estimator: Any, inputs: Any) -> Any:
    if isinstance(estimator, Pipeline) and len(estimator) > 1:
        return estimator[:-1].transform(inputs)
    return inputs


def _is_sparse(features: Any) -> bool:
    return hasattr(features, "toarray")


def _dense(features: Any) -> Any:
    return features.toarray() if _is_sparse(features) else features
