"""Rows of a data set told apart into ID and OOD, and scores for rows the estimator has not seen.

Doubts about inputs are two: that the estimator is wrong, and that it has seen nothing like them.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn import get_config
from sklearn.base import BaseEstimator, clone
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import Pipeline
from sklearn.utils import (
    _safe_indexing,
    assert_all_finite,
    column_or_1d,
    indexable,
)
from sklearn.utils.metadata_routing import process_routing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import (
    _get_feature_names,
    check_is_fitted,
    has_fit_parameter,
    validate_data,
)

from demur import _arrays
from demur._arrays import BoolArray, FloatArray, IntArray
from demur.core.models import RejectionModel
from demur.core.rates import OperatingPoint
from demur.core.sample import Sample
from demur.core.wording import objective_key
from demur.detectors import Activations, Knn, Mahalanobis, RelativeMahalanobis, as_scores
from demur.errors import InvalidInputError, LikelyMistakeWarning
from demur.losses import Loss, bayes_prediction, evaluate_loss

SCORE_NAMES = ("risk", "ood")


class Data(NamedTuple):
    """ID rows with labels, and OOD rows without."""

    X: Any
    y: npt.NDArray[Any]
    weight: FloatArray | None
    ood: Any | None
    ood_weight: FloatArray | None
    rows: IntArray
    """Where the ID rows were in the data as given."""
    given: int
    """How many rows were given, ID and OOD."""

    @classmethod
    def read(cls, X: Any, y: Any, *, X_ood: Any, ood_label: Any, sample_weight: Any) -> Data:
        """Check labels and weights and take the rows apart; X is left to the estimator."""
        if y is None:
            raise InvalidInputError(
                "SelectiveClassifier requires y to be passed, but the target y is None"
            )
        for name, rows in (("X", X), ("y", y), ("X_ood", X_ood)):
            refuse_masks(name, rows)
        X, y = indexable(X, y)
        y = column_or_1d(y, warn=True)
        assert_all_finite(y, input_name="y")
        weight = (
            None
            if sample_weight is None
            else _arrays.nonnegative_vector("sample_weight", sample_weight, length=len(y))
        )
        X_ood = None if X_ood is None or _length(X_ood) == 0 else indexable(X_ood)[0]
        if X_ood is not None:
            _check_same_columns(X, X_ood)
        is_ood = _labelled(y, ood_label)
        if not is_ood.any():
            check_classification_targets(y)
            return cls(X, y, weight, X_ood, None, np.arange(len(y)), len(y))
        if X_ood is not None:
            raise InvalidInputError(
                f"OOD rows are given twice, by the label {ood_label!r} and as X_ood: choose one"
            )
        rows, others = np.flatnonzero(~is_ood), np.flatnonzero(is_ood)
        if len(rows) == 0:
            raise InvalidInputError(f"every row has the OOD label {ood_label!r}: no ID row is left")
        check_classification_targets(y[rows])
        return cls(
            _safe_indexing(X, rows),
            y[rows],
            None if weight is None else weight[rows],
            _safe_indexing(X, others),
            None if weight is None else weight[others],
            rows,
            len(y),
        )

    def take(self, rows: IntArray) -> tuple[Any, npt.NDArray[Any]]:
        """Return inputs and labels of some ID rows."""
        whole = len(rows) == len(self.y)
        return (self.X if whole else _safe_indexing(self.X, rows)), self.y[rows]

    def select(self, params: Mapping[str, Any], rows: IntArray) -> dict[str, Any]:
        """Return parameters of `fit`, those with one entry a row only for the given ID rows."""
        return {
            name: _safe_indexing(value, self.rows[rows]) if _length(value) == self.given else value
            for name, value in params.items()
        }


def out_of_fold(
    data: Data,
    folds: Iterable[tuple[IntArray, IntArray]],
    fit: Callable[[IntArray], FittedEstimator],
) -> Sample:
    """Return scores of every row by an estimator that has not seen it.

    Each ID row is scored by the estimator of the fold that leaves it out. OOD rows are dealt out
    to the folds in turn, so that both sides are scored by the same mixture of estimators.
    """
    parts = list(folds)
    tested = np.concatenate([test for _, test in parts])
    if not np.array_equal(np.sort(tested), np.arange(len(data.y))):
        raise InvalidInputError("cv must leave out every row exactly once, as KFold does")
    dealt = [np.arange(start, _length(data.ood) or 0, len(parts)) for start in range(len(parts))]
    scores, losses, foreign = [], [], []
    for (train, test), turn in zip(parts, dealt, strict=True):
        judge = fit(train)
        left_out = _safe_indexing(data.X, test)
        scores.append(judge.scores(left_out))
        losses.append(judge.losses(left_out, data.y[test]))
        if len(turn):
            foreign.append(judge.scores(_safe_indexing(data.ood, turn)))
    order = np.argsort(tested)
    return _sample(
        data,
        np.concatenate(scores)[order],
        np.concatenate(losses)[order],
        np.concatenate(foreign)[np.argsort(np.concatenate(dealt))] if foreign else None,
    )


def sample_of(judge: FittedEstimator, data: Data) -> Sample:
    """Return scores and losses of data that a fitted estimator has not seen."""
    foreign = None if data.ood is None else judge.scores(data.ood)
    return _sample(data, judge.scores(data.X), judge.losses(data.X, data.y), foreign)


def routed(
    owner: Any, sample_weight: FloatArray | None, fit_params: dict[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the parameters for the owner's estimator and those for its splitter."""
    weight = {} if sample_weight is None else {"sample_weight": sample_weight}
    if get_config()["enable_metadata_routing"]:
        params = process_routing(owner, "fit", **fit_params, **weight)
        return params.estimator.fit, params.splitter.split
    if weight and not has_fit_parameter(owner.estimator, "sample_weight"):
        warnings.warn(
            f"{type(owner.estimator).__name__}.fit takes no sample_weight; the weights are used "
            "for the rule only",
            stacklevel=3,
        )
        weight = {}
    return fit_params | weight, {}


def with_rejected(labels: npt.NDArray[Any], rejected: BoolArray, label: Any) -> npt.NDArray[Any]:
    """Put `label` where rejected; numbers stay numbers, text stays text, a mixture is objects."""
    value = np.asarray(label)
    for kinds in ("biuf", "U"):
        if labels.dtype.kind in kinds and value.dtype.kind in kinds:
            return np.where(rejected, value, labels)
    mixed = labels.astype(object)
    mixed[rejected] = label
    return mixed


def goodness(point: OperatingPoint, model: RejectionModel) -> float:
    """Return the objective of a model at an operating point, turned so that larger is better."""
    value = getattr(point, objective_key(model))
    if value is None:
        return math.nan
    if model.cost is not None:
        return -float(value)
    return float(value if model.seeks_most else 1 - value)


def refuse_masks(name: str, rows: Any) -> Any:
    """Refuse arrays with a mask: scikit-learn would go on with what the mask hides."""
    if np.ma.isMaskedArray(rows) and np.ma.getmaskarray(rows).any():
        raise InvalidInputError(
            f"{name} is an array with masked values, which scikit-learn would take for data: fill "
            "them, impute them or leave the rows out"
        )
    return rows


def _check_same_columns(X: Any, X_ood: Any) -> None:
    """Refuse OOD rows that cannot be rows of the same table."""
    why = _difference(X, X_ood)
    if why:
        raise InvalidInputError(
            f"X_ood does not go with X: {why}. In a pipeline X_ood must have passed through the "
            "steps before this one: use fit_pipeline(pipeline, X, y, X_ood), or put the pipeline "
            "inside SelectiveClassifier"
        )


def _difference(X: Any, X_ood: Any) -> str | None:
    names, others = (_get_feature_names(_framed(rows)) for rows in (X, X_ood))
    if (names is None) != (others is None) and _width(X) is not None:
        return f"only {'X' if others is None else 'X_ood'} has feature names"
    if names is not None and others is not None and list(names) != list(others):
        odd = sorted(set(names) ^ set(others), key=str)
        return (
            f"the feature names differ ({odd[0]!r})" if odd else "the features are in another order"
        )
    if _width(X) != _width(X_ood):
        return f"it has {_width(X_ood)} features, X has {_width(X)}"
    if hasattr(X, "toarray") != hasattr(X_ood, "toarray"):
        return "one of them is sparse"
    if _is_text(X) != _is_text(X_ood):
        return "one of them is text"
    return None


def _framed(rows: Any) -> Any:
    return rows if hasattr(rows, "columns") or hasattr(rows, "column_names") else None


def _width(rows: Any) -> int | None:
    if not hasattr(rows, "shape"):
        rows = np.asarray(rows, dtype=object) if isinstance(rows, (list, tuple)) else None
    return None if rows is None or len(rows.shape) < 2 else int(np.prod(rows.shape[1:]))


def _is_text(rows: Any) -> bool:
    kept = np.asarray(rows[:1]) if isinstance(rows, (list, tuple)) else rows
    return getattr(getattr(kept, "dtype", None), "kind", "") in ("U", "S")


def refuse_other_units(classifier: Any, X: Any, X_ood: Any, *, stacklevel: int) -> None:
    """Refuse OOD rows that look as if the steps of a pipeline had left them out.

    Where no pipeline is at work they may just be far away, and are warned of.
    """
    try:
        rows, others = np.asarray(X, np.float64), np.asarray(X_ood, np.float64)
    except (TypeError, ValueError):
        return
    if rows.ndim != 2 or others.ndim != 2 or not np.isfinite(rows).all() or len(others) < 2:
        return
    low, high = rows.min(axis=0), rows.max(axis=0)
    middle = np.median(others, axis=0)
    beyond = np.maximum(low - middle, middle - high)
    # Rows that a scaler was fitted on have its mark; others are told by very different units.
    far = 0.0 if _is_scaled(rows) else 10.0
    off = beyond > far * (high - low)
    if off.mean() >= 0.5 and off.any():
        said = (
            f"X_ood lies outside the range of X in {off.sum()} of {len(off)} features: is X "
            "transformed (by earlier steps of a pipeline) and X_ood not? Use "
            "fit_pipeline(pipeline, X, y, X_ood), which transforms both"
        )
        if _is_last_step(classifier):
            raise InvalidInputError(said)
        warnings.warn(LikelyMistakeWarning(said), stacklevel=stacklevel + 1)


def _is_last_step(classifier: Any) -> bool:
    """Whether a pipeline that transforms X, and X_ood not, is fitting its last step just now."""
    # A step is not told of its pipeline: only who called tells.
    frame = inspect.currentframe()
    while frame is not None:
        caller = frame.f_locals.get("self")
        if isinstance(caller, Pipeline) and caller.steps[-1][1] is classifier:
            transformed = getattr(caller, "transform_input", None) or ()
            return len(caller.steps) > 1 and "X_ood" not in transformed
        frame = frame.f_back
    return False


def _is_scaled(rows: FloatArray) -> bool:
    """Whether every column is just standardised, or just in [0, 1]."""
    low, high, spread = rows.min(axis=0), rows.max(axis=0), rows.std(axis=0)
    varies = high > low
    standard = (np.abs(rows.mean(axis=0)) < 1e-6) & (np.abs(spread - 1) < 1e-6)
    unit = (np.abs(low) < 1e-9) & (np.abs(high - 1) < 1e-9)
    return bool(varies.any() and (standard[varies].all() or unit[varies].all()))


def _sample(
    data: Data, scores: FloatArray, losses: FloatArray, foreign: FloatArray | None
) -> Sample:
    return Sample(
        id_scores=scores,
        id_loss=losses,
        ood_scores=foreign,
        id_weight=data.weight,
        ood_weight=data.ood_weight,
        score_names=SCORE_NAMES[: scores.shape[1]],
    )


def _length(values: Any) -> int | None:
    """Return the number of rows of anything array-like, None of anything else."""
    if hasattr(values, "shape"):
        return int(values.shape[0]) if values.shape else None
    return len(values) if isinstance(values, (list, tuple)) else None


def _labelled(y: npt.NDArray[Any], label: Any) -> BoolArray:
    if label is None:
        return np.zeros(len(y), np.bool_)
    return np.fromiter((item == label for item in y.tolist()), np.bool_, len(y))


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
