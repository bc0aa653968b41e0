"""scikit-learn: `SelectiveClassifier`, any classifier and the rule by which it is trusted.

Needs the extra ``sklearn``.
"""

from __future__ import annotations

import warnings
from copy import deepcopy
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from demur.errors import InvalidInputError, LikelyMistakeWarning, MissingExtraError, NotTunedError

try:
    import sklearn as _sklearn  # noqa: F401
except ModuleNotFoundError:
    raise MissingExtraError("scikit-learn", "sklearn") from None

from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, clone
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import check_cv
from sklearn.pipeline import Pipeline
from sklearn.utils import get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.metaestimators import available_if

from demur import _arrays
from demur._arrays import BoolArray, FloatArray, IntArray
from demur.adapters.sklearn_fitting import (
    Data,
    FittedEstimator,
    NeighbourDistance,
    OodScore,
    RiskScore,
    costs_of,
    goodness,
    out_of_fold,
    refuse_masks,
    refuse_other_units,
    routed,
    sample_of,
    with_rejected,
)
from demur.core.models import RejectionModel, TprFprModel
from demur.core.rates import OperatingPoint, evaluate
from demur.core.rule import Missing, check_missing
from demur.core.sample import Sample
from demur.losses import Loss
from demur.tuning.result import Shape
from demur.tuning.tune import tune

__all__ = ["NeighbourDistance", "SelectiveClassifier", "fit_pipeline"]

_DEFAULT_FOLDS = 5


class SelectiveClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Any classifier with the rule that says which of its answers to accept.

    `fit` fits the estimator, scores every row with estimators that have not seen it and tunes
    the rule on these scores. `predict` gives labels, `accept` says which to trust.

    Parameters
    ----------
    estimator
        A classifier, or a pipeline that ends in one.
    risk_score
        A function of the fitted estimator and its inputs, one doubt a row. By default the expected
        loss under the class probabilities, one minus the largest of them for the 0/1 loss; for an
        estimator without probabilities minus the margin of its decision function.
    ood_score
        ``"knn"``: `NeighbourDistance`; an outlier detector with ``score_samples`` (unfitted; it
        learns from the ID rows); a `Knn`, `Mahalanobis` or `RelativeMahalanobis` of
        `demur.detectors`; or a function of the fitted estimator and its inputs. Of a pipeline,
        detectors see what its last step sees. None uses the risk score alone. Without OOD rows
        in `fit` there is nothing to tune a second score on, and it is left out.
    model
        What a good rule is; by default ``TprFprModel(min_tpr=0.8)`` without OOD rows. With OOD
        rows there is no default.
    shape
        As in `tune`: ``"half-plane"`` weighs the scores, ``"box"`` gives each a limit of its own.
    reject_label
        What `predict` gives for rejected rows. By default it gives the estimator's label for
        all rows, as scikit-learn expects of a classifier: ask `accept`.
    ood_label
        The value in y that marks OOD rows, if they come together with the others.
    loss
        ``"zero_one"``, ``"absolute"``, a function, or a cost matrix in the order of ``classes_``.
        For any but the first, `predict` minimises the expected loss.
    cv
        Folds for the scores, as in scikit-learn; or ``"prefit"``, when the estimator has been
        fitted on other data. Then only the OOD score is fitted, in 5 folds.
    score_model
        By whose objective `score` judges; by default that of `model`. A grid search over `model`
        needs one for all: objectives under different bounds cannot be compared, and the bounds
        that reject most look best.
    missing
        What `accept` and `predict` do with a row whose score is missing (NaN or -inf): ``"raise"``
        or ``"reject"`` it. `fit` always raises.

    Attributes
    ----------
    estimator_, classes_
        The fitted estimator and its classes.
    rule_, tuning_, sample_
        The tuned rule, how it was found, and the out-of-fold scores it was tuned on.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(200, 2)), rng.integers(0, 2, 200)
    >>> classifier = SelectiveClassifier(
    ...     LogisticRegression(), model=TprFprModel(min_tpr=0.8, max_fpr=0.1), reject_label=-1
    ... )
    >>> classifier.fit(X, y, X_ood=X + 9).predict([[9.0, 9.0]])
    array([-1])
    """

    def __init__(
        self,
        estimator: Any,
        *,
        risk_score: RiskScore | None = None,
        ood_score: Any = "knn",
        model: RejectionModel | None = None,
        shape: Shape = "half-plane",
        reject_label: Any = None,
        ood_label: Any = None,
        loss: Loss = "zero_one",
        cv: Any = _DEFAULT_FOLDS,
        score_model: RejectionModel | None = None,
        missing: Missing = "raise",
    ) -> None:
        self.estimator = estimator
        self.risk_score = risk_score
        self.ood_score = ood_score
        self.model = model
        self.shape = shape
        self.reject_label = reject_label
        self.ood_label = ood_label
        self.loss = loss
        self.cv = cv
        self.score_model = score_model
        self.missing = missing

    def fit(
        self, X: Any, y: Any, *, sample_weight: Any = None, X_ood: Any = None, **fit_params: Any
    ) -> Self:
        """Fit the estimator and tune the rule.

        Parameters
        ----------
        X, y
            ID rows and their labels; also OOD rows, if `ood_label` marks them in y.
        sample_weight
            Weights of the rows, for the estimator and for the rates of the rule.
        X_ood
            OOD rows, if they come apart, with the columns of X. In a pipeline they must have
            passed through the steps before this one: see `fit_pipeline`.
        fit_params
            Passed to the estimator; what has one entry a row is split like X.

        Raises
        ------
        InfeasibleError
            No rule meets the bounds of the model.
        """
        if sample_weight is not None:
            sample_weight = _arrays.nonnegative_vector("sample_weight", sample_weight)
        check_missing(self.missing)
        data = Data.read(X, y, X_ood=X_ood, ood_label=self.ood_label, sample_weight=sample_weight)
        if X_ood is not None and data.ood is not None:
            refuse_other_units(self, data.X, data.ood, stacklevel=2)
        model = self._model_for(data)
        params, split_params = routed(self, sample_weight, fit_params)

        everything = np.arange(len(data.y))
        judge = self._fitted(data, everything, params)
        self._check_reject_label(judge.classes)
        cv = check_cv(_DEFAULT_FOLDS if self._prefit else self.cv, data.y, classifier=True)
        folds = cv.split(data.X, data.y, **data.select(split_params, everything))
        sample = out_of_fold(
            data, folds, lambda rows: self._fitted(data, rows, params, judge.classes)
        )
        with warnings.catch_warnings():
            if self.risk_score is None:
                # Scores and losses are of our own making: none of them is mixed up.
                warnings.simplefilter("ignore", LikelyMistakeWarning)
            self.tuning_ = tune(sample, model, shape=self.shape)
        self.rule_, self.sample_, self._judge = self.tuning_.rule, sample, judge
        self.estimator_, self.classes_ = judge.estimator, judge.classes
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(judge.estimator, name):
                setattr(self, name, getattr(judge.estimator, name))
            elif hasattr(self, name):  # of an earlier fit
                delattr(self, name)
        return self

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Return labels; `reject_label`, if there is one, for the rows that are rejected."""
        judge = self._fitted_judge()
        labels = judge.labels(refuse_masks("X", X))
        if self.reject_label is None:
            return labels
        return with_rejected(labels, ~self.accept(X), self.reject_label)

    @available_if(lambda self: hasattr(self.estimator, "predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> FloatArray:
        """Return the class probabilities of the estimator, of rejected rows too."""
        return self._fitted_judge().probabilities(X)

    def accept(self, X: Any) -> BoolArray:
        """Return True for the rows whose label is to be trusted."""
        judge = self._fitted_judge()
        check_missing(self.missing)
        doubts = judge.scores(refuse_masks("X", X), strict=self.missing == "raise")
        accepted: BoolArray = self.rule_.accept(doubts, missing=self.missing)
        return accepted

    def doubts(self, X: Any) -> FloatArray:
        """Return the scores that the rule weighs, shape (n, 1) or (n, 2): risk, OOD."""
        return self._fitted_judge().scores(refuse_masks("X", X))

    def sample(self, X: Any, y: Any, X_ood: Any = None, *, sample_weight: Any = None) -> Sample:
        """Return scores and losses of fresh data, given as to `fit`.

        They are for `demur.evaluate`, `demur.guarantees.certify` and the report; not for tuning
        this classifier's rule, unless the estimator has not seen the rows.
        """
        judge = self._fitted_judge()
        data = Data.read(X, y, X_ood=X_ood, ood_label=self.ood_label, sample_weight=sample_weight)
        return sample_of(judge, data)

    def evaluate(
        self, X: Any, y: Any, *, sample_weight: Any = None, X_ood: Any = None
    ) -> OperatingPoint:
        """Return every rate of the rule on fresh data, given as to `fit`."""
        sample = self.sample(X, y, X_ood, sample_weight=sample_weight)
        return evaluate(self.rule_, sample, model=self.tuning_.model)

    def score(self, X: Any, y: Any, *, sample_weight: Any = None) -> float:
        """Return how good the rule is on these rows by the objective of `score_model`, or `model`.

        Larger is better: minus the expected cost; one minus the selective risk, the accuracy on
        accepted ID rows for 0/1 loss; or the rate that the model maximises. NaN where it is not
        defined, such as the risk when no ID row is accepted. OOD rows count if `ood_label` marks
        them in y.
        """
        sample = self.sample(X, y, sample_weight=sample_weight)
        model = self.tuning_.model if self.score_model is None else self.score_model
        return goodness(evaluate(self.rule_, sample, model=model), model)

    def get_metadata_routing(self) -> Any:
        """Return the routing: `fit` consumes weights and OOD rows and hands the rest on."""
        fit = MethodMapping().add(caller="fit", callee="fit")
        split = MethodMapping().add(caller="fit", callee="split")
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(estimator=self.estimator, method_mapping=fit)
        return router.add(splitter=self.cv, method_mapping=split)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags = deepcopy(inner.input_tags)
        tags.classifier_tags = deepcopy(inner.classifier_tags)
        tags.classifier_tags.multi_label = False
        return tags

    @property
    def _prefit(self) -> bool:
        return isinstance(self.cv, str) and self.cv == "prefit"

    def _model_for(self, data: Data) -> RejectionModel:
        if self.model is not None:
            return self.model
        if data.ood is not None:
            raise InvalidInputError(
                "OOD rows are given, but no model that bounds how many of them are accepted: give "
                "model=, for example TprFprModel(min_tpr=0.8, max_fpr=0.1)"
            )
        return TprFprModel(min_tpr=0.8)

    def _fitted(
        self,
        data: Data,
        rows: IntArray,
        params: dict[str, Any],
        classes: npt.NDArray[Any] | None = None,
    ) -> FittedEstimator:
        """Fit estimator and OOD score on some ID rows."""
        estimator = FrozenEstimator(self.estimator) if self._prefit else clone(self.estimator)
        inputs, labels = data.take(rows)
        estimator.fit(inputs, labels, **data.select(params, rows))
        inner = estimator.estimator if isinstance(estimator, FrozenEstimator) else estimator
        if classes is None:
            classes = np.asarray(inner.classes_)
        use_ood = data.ood is not None and self.ood_score is not None
        return FittedEstimator(
            estimator=inner,
            classes=classes,
            costs=costs_of(self.loss, classes),
            risk_score=self.risk_score,
            ood_score=OodScore.fit(self.ood_score, inner, inputs, labels) if use_ood else None,
        )

    def _fitted_judge(self) -> FittedEstimator:
        if not hasattr(self, "rule_"):
            raise _NotFitted(f"this {type(self).__name__} is not fitted yet: call fit first")
        return self._judge

    def _check_reject_label(self, classes: npt.NDArray[Any]) -> None:
        if self.reject_label is not None and self.reject_label in classes.tolist():
            raise InvalidInputError(
                f"reject_label {self.reject_label!r} is one of the classes: choose another"
            )


def fit_pipeline(
    pipeline: Pipeline, X: Any, y: Any, X_ood: Any = None, *, sample_weight: Any = None
) -> Pipeline:
    """Fit a pipeline that ends in a `SelectiveClassifier`; OOD rows pass through all its steps.

    ``pipeline.fit(X, y, name__X_ood=X_ood)`` hands them to the classifier as they are, while the
    other rows are transformed. The steps before the classifier learn from X and y alone.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.pipeline import make_pipeline
    >>> from sklearn.preprocessing import StandardScaler
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(200, 2)), rng.integers(0, 2, 200)
    >>> selective = SelectiveClassifier(LogisticRegression(), model=TprFprModel(0.8, 0.1))
    >>> pipeline = fit_pipeline(make_pipeline(StandardScaler(), selective), X, y, X + 9)
    >>> pipeline[-1].accept(pipeline[:-1].transform([[9.0, 9.0]]))
    array([False])
    """
    last = pipeline.steps[-1][1] if isinstance(pipeline, Pipeline) else None
    if not isinstance(last, SelectiveClassifier):
        raise InvalidInputError(
            "pipeline must be a Pipeline whose last step is a SelectiveClassifier, got "
            f"{type(pipeline if last is None else last).__name__}"
        )
    if len(pipeline) > 1:
        first = pipeline[:-1]
        X = first.fit_transform(refuse_masks("X", X), y)
        X_ood = None if X_ood is None else first.transform(refuse_masks("X_ood", X_ood))
        # With a cache, the steps that were fitted are copies.
        pipeline.steps[:-1] = first.steps
    with warnings.catch_warnings():
        # They are far away, then, and not of other units.
        warnings.filterwarnings("ignore", "X_ood lies outside", LikelyMistakeWarning)
        last.fit(X, y, X_ood=X_ood, sample_weight=sample_weight)
    return pipeline


class _NotFitted(NotTunedError, NotFittedError):  # type: ignore[misc]
    """Caught by those who know demur and by those who know scikit-learn."""


def __dir__() -> list[str]:
    return __all__
