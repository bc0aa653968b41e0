"""`SelectiveClassifier` against plain loops, and in scikit-learn's own company."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import sklearn
from sklearn.base import clone
from sklearn.ensemble import IsolationForest
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    ShuffleSplit,
    StratifiedKFold,
    cross_val_score,
)
from sklearn.naive_bayes import GaussianNB, MultinomialNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.utils.estimator_checks import check_estimator
from threadpoolctl import threadpool_limits

import demur as dm
from demur.adapters.sklearn import NeighbourDistance, SelectiveClassifier, fit_pipeline
from demur.detectors import Knn, Mahalanobis

MODEL = dm.TprFprModel(min_tpr=0.7, max_fpr=0.2)


def blobs(n=150, seed=0, classes=3):
    """Return classes that overlap, and foreign rows next to them."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    X = rng.normal(size=(n, 2)) + 2.0 * np.column_stack([np.cos(2.1 * y), np.sin(2.1 * y)])
    return X, y, rng.normal(4.0, size=(n // 2, 2))


@pytest.mark.parametrize(
    "estimator",
    [SelectiveClassifier(LogisticRegression()), NeighbourDistance()],
    ids=["SelectiveClassifier", "NeighbourDistance"],
)
@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks(estimator):
    # Threads on small matrices make the checks ten times slower.
    with threadpool_limits(1):
        results = check_estimator(estimator, on_skip=None)
    assert {r["check_name"] for r in results if r["status"] != "passed"} == {
        "check_array_api_input"
    }


def kth_distance(bank, row, k):
    return sorted(np.sqrt(((bank - row) ** 2).sum(axis=1)))[k - 1]


@pytest.mark.filterwarnings("ignore::demur.LikelyMistakeWarning")
def test_scores_are_out_of_fold():
    X, y, ood = blobs()
    got = SelectiveClassifier(GaussianNB(), model=MODEL, cv=3).fit(X, y, X_ood=ood)
    scores, losses = np.zeros((len(X), 2)), np.zeros(len(X))
    foreign = np.zeros((len(ood), 2))
    for fold, (train, test) in enumerate(StratifiedKFold(3).split(X, y)):
        estimator = GaussianNB().fit(X[train], y[train])
        spread = X[train].std(axis=0)

        def doubts(row, estimator=estimator, train=train, spread=spread):
            p = sorted(estimator.predict_proba(row[None])[0])
            return sum(p[:-1]), kth_distance(X[train] / spread, row / spread, 10)

        for i in test:
            scores[i] = doubts(X[i])
            losses[i] = estimator.predict(X[i : i + 1])[0] != y[i]
        for i in range(fold, len(ood), 3):
            foreign[i] = doubts(ood[i])
    np.testing.assert_allclose(got.sample_.id_scores, scores, rtol=1e-9)
    np.testing.assert_array_equal(got.sample_.id_loss, losses)
    np.testing.assert_allclose(got.sample_.ood_scores, foreign, rtol=1e-9)
    assert got.tuning_ == dm.tune(got.sample_, MODEL) and got.rule_ is got.tuning_.rule
    assert got.rule_.score_names == ("risk", "ood")
    assert got.tuning_.point.tpr >= 0.7 and got.tuning_.point.fpr <= 0.2


def test_decisions_come_from_the_estimator_fitted_on_all_rows():
    X, y, ood = blobs()
    got = SelectiveClassifier(GaussianNB(), model=MODEL).fit(X, y, X_ood=ood)
    whole, spread = GaussianNB().fit(X, y), X.std(axis=0)
    fresh = blobs(60, seed=1)[0]
    doubts = np.array(
        [
            (1 - whole.predict_proba(r[None]).max(), kth_distance(X / spread, r / spread, 10))
            for r in fresh
        ]
    )
    np.testing.assert_allclose(got.doubts(fresh), doubts, rtol=1e-9)
    accept = got.rule_.direction @ doubts.T <= got.rule_.threshold
    assert got.accept(fresh).tolist() == accept.tolist() and 0 < accept.sum() < len(fresh)
    np.testing.assert_array_equal(got.predict(fresh), whole.predict(fresh))
    np.testing.assert_array_equal(got.predict_proba(fresh), whole.predict_proba(fresh))
    got.reject_label = -1
    np.testing.assert_array_equal(got.predict(fresh), np.where(accept, whole.predict(fresh), -1))


def test_without_ood_rows_it_is_bounded_abstention():
    X, y, _ = blobs()
    got = SelectiveClassifier(GaussianNB()).fit(X, y)
    assert got.tuning_.model == dm.TprFprModel(min_tpr=0.8)
    assert got.doubts(X).shape == (len(X), 1) and got.rule_.score_names == ("risk",)
    risks = sorted(zip(got.sample_.id_scores[:, 0], got.sample_.id_loss, strict=True))
    best = min(sum(loss for _, loss in risks[:n]) / n for n in range(120, 151))
    assert got.tuning_.point.selective_risk == pytest.approx(best, abs=1e-12)


def test_ood_rows_apart_or_by_label():
    X, y, ood = blobs()
    rng = np.random.default_rng(5)
    both, labels = np.concatenate([X, ood]), np.concatenate([y, np.full(len(ood), 99)])
    weight = rng.integers(1, 4, len(labels))
    apart = SelectiveClassifier(GaussianNB(), model=MODEL).fit(X, y, X_ood=ood)
    # ID rows keep their order among themselves, so the folds are the same.
    places = np.sort(rng.permutation(len(labels))[: len(X)])
    order = np.empty(len(labels), int)
    order[places] = np.arange(len(X))
    order[np.setdiff1d(np.arange(len(labels)), places)] = np.arange(len(X), len(labels))
    mixed = SelectiveClassifier(GaussianNB(), model=MODEL, ood_label=99)
    mixed.fit(both[order], labels[order])
    assert mixed.rule_ == apart.rule_ and mixed.classes_.tolist() == [0, 1, 2]
    weighted = mixed.fit(both[order], labels[order], sample_weight=weight[order])
    np.testing.assert_array_equal(weighted.sample_.id_weight, weight[: len(X)])
    np.testing.assert_array_equal(weighted.sample_.ood_weight, weight[len(X) :])
    with pytest.raises(dm.InvalidInputError, match="given twice"):
        mixed.fit(both, labels, X_ood=ood)
    with pytest.raises(dm.InvalidInputError, match="no ID row is left"):
        mixed.fit(ood, np.full(len(ood), 99))


@pytest.mark.parametrize(
    ("classes", "label", "kind"),
    [
        (np.array([0, 1, 2]), -1, "i"),
        (np.array([0, 1, 2], np.uint8), -1, "i"),
        (np.array([0, 1, 2]), np.nan, "f"),
        (np.array(["a", "b", "c"]), "rejected", "U"),
        (np.array([0, 1, 2]), "rejected", "O"),
        (np.array(["a", "b", "c"], object), "rejected", "U"),
    ],
)
def test_reject_labels_of_any_kind(classes, label, kind):
    X, y, ood = blobs()
    got = SelectiveClassifier(GaussianNB(), model=MODEL, reject_label=label)
    got.fit(X, classes[y], X_ood=ood)
    predicted = got.predict(ood)
    rejected = ~got.accept(ood)
    assert rejected.sum() > len(ood) / 2 and predicted.dtype.kind == kind
    for value, is_rejected in zip(predicted.tolist(), rejected, strict=True):
        assert (value == label or value != value) if is_rejected else value in classes.tolist()
    with pytest.raises(dm.InvalidInputError, match="one of the classes"):
        got.set_params(reject_label=classes[1]).fit(X, classes[y], X_ood=ood)


def test_prefit_estimators_are_not_fitted_again():
    X, y, ood = blobs()
    X_fit, y_fit, _ = blobs(90, seed=7)
    fitted = GaussianNB().fit(X_fit, y_fit)
    means = fitted.theta_.copy()
    got = SelectiveClassifier(fitted, model=MODEL, cv="prefit").fit(X, y, X_ood=ood)
    assert got.estimator_ is fitted
    np.testing.assert_array_equal(fitted.theta_, means)
    # The risks are those of the fitted estimator; only the neighbours are out of fold.
    risk = 1 - fitted.predict_proba(X).max(axis=1)
    np.testing.assert_allclose(got.sample_.id_scores[:, 0], risk, atol=1e-14)
    np.testing.assert_array_equal(got.sample_.id_loss, fitted.predict(X) != y)
    train, test = next(StratifiedKFold(5).split(X, y))
    spread = X[train].std(axis=0)
    expected = [kth_distance(X[train] / spread, row / spread, 10) for row in X[test]]
    np.testing.assert_allclose(got.sample_.id_scores[test, 1], expected, rtol=1e-9)
    frozen = SelectiveClassifier(FrozenEstimator(fitted), model=MODEL).fit(X, y, X_ood=ood)
    assert frozen.rule_ == got.rule_
    with pytest.raises(NotFittedError):
        SelectiveClassifier(GaussianNB(), cv="prefit").fit(X, y)


def test_cost_matrix_gives_bayes_predictions_and_expected_losses():
    X, y, _ = blobs()
    names = np.array(["x", "y", "z"])
    costs = np.array([[0, 1, 4], [2, 0, 1], [1, 3, 0.5]])
    got = SelectiveClassifier(GaussianNB(), loss=costs, cv=KFold(3)).fit(X, names[y])
    p = got.predict_proba(X)
    for i in range(len(X)):
        expected = [sum(p[i, t] * costs[t, c] for t in range(3)) for c in range(3)]
        assert got.predict(X[i : i + 1])[0] == names[int(np.argmin(expected))]
        assert got.doubts(X[i : i + 1])[0, 0] == pytest.approx(min(expected))
    assert set(got.sample_.id_loss) <= set(costs.ravel()) and 0.5 in got.sample_.id_loss
    with pytest.raises(dm.InvalidInputError, match="for 3 classes, y has 2"):
        SelectiveClassifier(GaussianNB(), loss=costs).fit(X[y < 2], y[y < 2])
    with pytest.raises(dm.InvalidInputError, match="no class probabilities"):
        SelectiveClassifier(LinearSVC(), loss=costs).fit(X, y)
    with pytest.raises(dm.InvalidInputError, match="label 'w'"):
        got.evaluate(X[:2], ["x", "w"])


def test_named_and_callable_losses_are_tabulated_over_the_classes():
    X, y, _ = blobs()
    values = np.array([1, 5, 6])[y]
    table = [[0, 4, 5], [4, 0, 1], [5, 1, 0]]
    rules = [
        SelectiveClassifier(GaussianNB(), loss=loss).fit(X, values).rule_
        for loss in (table, "absolute", lambda true, predicted: np.abs(true - predicted))
    ]
    assert rules[0] == rules[1] == rules[2]


def test_margins_where_there_are_no_probabilities():
    X, y, _ = blobs()
    got = SelectiveClassifier(LinearSVC()).fit(X, y)
    assert not hasattr(got, "predict_proba")
    for row, doubt in zip(got.estimator_.decision_function(X), got.doubts(X)[:, 0], strict=True):
        first, second = sorted(row)[:-3:-1]
        assert doubt == pytest.approx(second - first)
    two = SelectiveClassifier(LinearSVC()).fit(X[y < 2], y[y < 2])
    np.testing.assert_allclose(two.doubts(X)[:, 0], -np.abs(two.estimator_.decision_function(X)))
    with pytest.raises(dm.InvalidInputError, match="give risk_score="):
        SelectiveClassifier(Silent()).fit(X, y)


class Silent(GaussianNB):
    predict_proba = property()


def constant_risk(estimator, X):
    return np.full(len(X), float(len(estimator.classes_)))


def first_column(estimator, X):
    return X[:, 0]


def test_scores_of_ones_own():
    X, y, ood = blobs()
    got = SelectiveClassifier(
        GaussianNB(), risk_score=constant_risk, ood_score=first_column, model=MODEL
    ).fit(X, y, X_ood=ood)
    np.testing.assert_array_equal(got.doubts(X), np.column_stack([np.full(len(X), 3.0), X[:, 0]]))
    alone = SelectiveClassifier(GaussianNB(), ood_score=None, model=dm.CostModel(0.3))
    assert alone.fit(X, y, X_ood=ood).doubts(X).shape == (len(X), 1)
    with pytest.raises(dm.InvalidInputError, match="ood_score must be"):
        SelectiveClassifier(GaussianNB(), ood_score="nearest", model=MODEL).fit(X, y, X_ood=ood)


def test_outlier_detectors_as_scores():
    X, y, ood = blobs()
    forest = IsolationForest(n_estimators=20, random_state=0)
    got = SelectiveClassifier(GaussianNB(), ood_score=forest, model=MODEL).fit(X, y, X_ood=ood)
    expected = -clone(forest).fit(X).score_samples(ood)
    np.testing.assert_allclose(got.doubts(ood)[:, 1], expected)
    assert not hasattr(forest, "estimators_")
    assert got.get_params()["ood_score__n_estimators"] == 20
    got.set_params(model=dm.CostModel(reject_id=0.5, ood_prior=0.1))
    for detector in (Knn(k=4), Mahalanobis()):
        got.set_params(ood_score=detector).fit(X, y, X_ood=ood)
        rows = dm.detectors.Activations(features=X, labels=y)
        fresh = dm.detectors.Activations(features=ood)
        np.testing.assert_array_equal(got.doubts(ood)[:, 1], detector.fit(rows).score(fresh))


def test_detectors_see_what_the_last_step_of_a_pipeline_sees():
    X, y, ood = blobs()
    stretch = np.array([1.0, 1000.0])
    pipeline = make_pipeline(StandardScaler(), GaussianNB())
    got = SelectiveClassifier(pipeline, ood_score=Knn(k=4), model=dm.CostModel(0.5, ood_prior=0.1))
    got.fit(X * stretch, y, X_ood=ood * stretch)
    scaled = StandardScaler().fit(X)
    bank = dm.detectors.Activations(features=scaled.transform(X))
    fresh = dm.detectors.Activations(features=scaled.transform(ood))
    np.testing.assert_allclose(
        got.doubts(ood * stretch)[:, 1], Knn(k=4).fit(bank).score(fresh), rtol=1e-9
    )


def test_text():
    rng = np.random.default_rng(0)
    words = [["ball", "goal", "team", "match"], ["vote", "law", "party", "senate"]]
    y = np.arange(120) % 2
    text = [" ".join(rng.choice(words[c], 5)) for c in y]
    foreign = [" ".join(rng.choice(["oven", "salt", "soup", "party"], 5)) for _ in range(50)]
    model = dm.TprFprModel(min_tpr=0.9, max_fpr=0.05)
    got = SelectiveClassifier(
        make_pipeline(TfidfVectorizer(), MultinomialNB()), model=model, reject_label="no idea"
    ).fit(text, np.array(["sport", "politics"])[y], X_ood=foreign)
    answers = got.predict(["team goal match", "salt soup soup", "law vote senate"])
    assert answers.tolist() == ["sport", "no idea", "politics"]


def test_images_and_frames():
    rng = np.random.default_rng(0)
    y = np.arange(90) % 3
    images = rng.random((90, 6, 6)) + (np.arange(6)[:, None] == 2 * y[:, None, None])
    flat = images.reshape(90, -1)
    frame = pd.DataFrame(flat, columns=[f"pixel {i}" for i in range(36)])
    got = SelectiveClassifier(KNeighborsClassifier(3), model=MODEL)
    by_array = got.fit(flat, y, X_ood=1 - flat).sample_
    by_frame = got.fit(frame, y, X_ood=1 - frame).sample_
    np.testing.assert_allclose(by_frame.id_scores, by_array.id_scores, rtol=1e-9)
    np.testing.assert_allclose(by_frame.ood_scores, by_array.ood_scores, rtol=1e-9)
    assert got.feature_names_in_[0] == "pixel 0" and got.n_features_in_ == 36
    assert not hasattr(got.fit(flat, y, X_ood=1 - flat), "feature_names_in_")


def test_rates_by_counting():
    X, y, ood = blobs()
    got = SelectiveClassifier(GaussianNB(), model=MODEL).fit(X, y, X_ood=ood)
    X2, y2, ood2 = blobs(90, seed=3)
    accept, foreign = got.accept(X2), got.accept(ood2)
    wrong = got.predict(X2) != y2
    point = got.evaluate(X2, y2, X_ood=ood2)
    assert point.tpr == accept.mean() and point.fpr == foreign.mean()
    assert point.selective_risk == wrong[accept].sum() / accept.sum()
    assert got.score(X2, y2) == 1 - point.selective_risk
    weight = np.random.default_rng(0).integers(0, 4, len(y2))
    rows = np.repeat(np.arange(len(y2)), weight)
    weighted = got.evaluate(X2, y2, X_ood=ood2, sample_weight=weight)
    repeated = got.evaluate(X2[rows], y2[rows], X_ood=ood2)
    assert weighted == repeated
    never = SelectiveClassifier(GaussianNB(), model=dm.CostModel(0), risk_score=constant_risk)
    assert never.fit(X, y).score(X2, y2) == 0 and not never.accept(X2).any()


def test_weights_reach_estimator_and_rule():
    X, y, _ = blobs()
    weight = np.random.default_rng(0).integers(1, 4, len(y)).astype(float)
    got = SelectiveClassifier(GaussianNB(), cv=3).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(
        got.estimator_.theta_, GaussianNB().fit(X, y, sample_weight=weight).theta_
    )
    np.testing.assert_array_equal(got.sample_.id_weight, weight)
    train, test = next(StratifiedKFold(3).split(X, y))
    fold = GaussianNB().fit(X[train], y[train], sample_weight=weight[train])
    risk = 1 - fold.predict_proba(X[test]).max(axis=1)
    np.testing.assert_allclose(got.sample_.id_scores[test, 0], risk, atol=1e-14)
    with pytest.warns(UserWarning, match="for the rule only"):
        SelectiveClassifier(KNeighborsClassifier()).fit(X, y, sample_weight=weight)
    with pytest.raises(dm.InvalidInputError, match="sample_weight has 3 rows, expected 150"):
        got.fit(X, y, sample_weight=[1, 2, 3])


def test_grid_search_and_pipelines():
    X, y, ood = blobs()
    both, labels = np.concatenate([X, ood]), np.concatenate([y, np.full(len(ood), -1)])
    grid = GridSearchCV(
        make_pipeline(
            StandardScaler(), SelectiveClassifier(LogisticRegression(), ood_label=-1, cv=3)
        ),
        {
            "selectiveclassifier__estimator__C": [0.01, 1.0],
            "selectiveclassifier__model": [dm.TprFprModel(0.8, 0.5), dm.TprFprModel(0.5, 0.2)],
        },
        cv=3,
    )
    with threadpool_limits(1):
        grid.fit(both, labels)
    scores = grid.cv_results_["mean_test_score"]
    assert np.isfinite(scores).all() and len(set(scores)) > 1
    assert grid.best_estimator_[-1].model == dm.TprFprModel(0.5, 0.2)
    assert grid.predict(both).shape == (len(both),)
    outside = make_pipeline(StandardScaler(), SelectiveClassifier(GaussianNB(), model=MODEL))
    outside.fit(X, y, selectiveclassifier__X_ood=StandardScaler().fit(X).transform(ood))
    assert outside[-1].tuning_.point.fpr <= 0.2
    values = cross_val_score(SelectiveClassifier(GaussianNB()), X, y, cv=3)
    assert (values > 0.5).all()


@pytest.fixture
def routing():
    with sklearn.config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
def test_metadata_routing():
    X, y, ood = blobs()
    weight = np.random.default_rng(0).integers(1, 4, len(y)).astype(float)
    groups = np.arange(len(y)) // 5
    inner = GaussianNB().set_fit_request(sample_weight=True)
    selective = SelectiveClassifier(
        inner, model=MODEL, cv=GroupKFold(3).set_split_request(groups=True)
    ).set_fit_request(X_ood=True, sample_weight=True)
    pipeline = make_pipeline(
        StandardScaler().set_fit_request(sample_weight=False),
        selective,
        transform_input=["X_ood"],
    )
    pipeline.fit(X, y, X_ood=ood, sample_weight=weight, groups=groups)
    fitted = pipeline[-1]
    scaler = StandardScaler().fit(X)
    by_hand = GaussianNB().fit(scaler.transform(X), y, sample_weight=weight)
    np.testing.assert_allclose(fitted.estimator_.theta_, by_hand.theta_)
    train, test = next(GroupKFold(3).split(X, y, groups))
    fold = GaussianNB().fit(scaler.transform(X)[train], y[train], sample_weight=weight[train])
    risk = 1 - fold.predict_proba(scaler.transform(X)[test]).max(axis=1)
    np.testing.assert_allclose(fitted.sample_.id_scores[test, 0], risk, atol=1e-14)
    assert fitted.sample_.n_ood == len(ood) and fitted.tuning_.point.fpr <= 0.2
    with pytest.raises(TypeError, match="unknown"):
        selective.fit(X, y, X_ood=ood, unknown=3)


def test_fit_parameters_are_split_like_the_rows():
    seen = []

    class Notes(GaussianNB):
        def fit(self, X, y, names=None, fixed=None):
            seen.append((len(X), list(names), fixed))
            return super().fit(X, y)

    X, y, _ = blobs(30)
    labels = y.copy()
    labels[::10] = 7
    SelectiveClassifier(Notes(), ood_label=7, model=dm.CostModel(0.2), cv=3).fit(
        X, labels, names=[f"row {i}" for i in range(30)], fixed=[1, 2]
    )
    kept = [f"row {i}" for i in range(30) if i % 10]
    assert seen[0] == (27, kept, [1, 2])
    assert sorted(name for _, names, _ in seen[1:] for name in names) == sorted(kept * 2)


def test_infeasible_bounds_raise_and_leave_the_old_fit():
    X, y, ood = blobs()
    got = SelectiveClassifier(GaussianNB(), model=MODEL).fit(X, y, X_ood=ood)
    before = got.rule_, got.estimator_
    impossible = dm.TprFprModel(min_tpr=1, max_fpr=0)
    with pytest.raises(dm.InfeasibleError) as caught:
        got.set_params(model=impossible).fit(X, y, X_ood=X)
    assert caught.value.model == impossible
    assert (got.rule_, got.estimator_) == before
    with pytest.raises(dm.InvalidInputError, match="no model that bounds"):
        SelectiveClassifier(GaussianNB()).fit(X, y, X_ood=ood)


@pytest.mark.parametrize("method", ["predict", "predict_proba", "accept", "doubts"])
@pytest.mark.parametrize("error", [dm.NotTunedError, NotFittedError, dm.DemurError])
def test_use_before_fit(method, error):
    with pytest.raises(error, match="not fitted yet"):
        getattr(SelectiveClassifier(GaussianNB()), method)([[0.0, 0.0]])


def test_folds_that_cannot_be_used():
    X, y, _ = blobs()
    with pytest.raises(dm.InvalidInputError, match="exactly once"):
        SelectiveClassifier(GaussianNB(), cv=ShuffleSplit(3, random_state=0)).fit(X, y)
    # A fold trained without the rarest class gives it probability zero.
    rare = np.where(np.arange(len(y)) == 3, 9, y)
    got = SelectiveClassifier(GaussianNB(), cv=KFold(5)).fit(X, rare)
    assert got.classes_.tolist() == [0, 1, 2, 9] and got.sample_.id_loss[3] == 1


def test_clones_and_pickles():
    X, y, ood = blobs()
    model = dm.CostModel(reject_id=0.5, ood_prior=0.1)
    got = SelectiveClassifier(
        GaussianNB(), model=model, ood_score=Knn(k=3), risk_score=constant_risk
    )
    again = clone(got)
    assert again.get_params(deep=False).keys() == got.get_params(deep=False).keys()
    assert again.model == model and again.ood_score == Knn(k=3)
    for detector in ("knn", Knn(k=3), first_column):
        got.set_params(ood_score=detector, risk_score=None).fit(X, y, X_ood=ood)
        loaded = pickle.loads(pickle.dumps(got))
        np.testing.assert_array_equal(loaded.accept(X), got.accept(X))
        np.testing.assert_array_equal(loaded.doubts(ood), got.doubts(ood))


def test_neighbour_distance():
    rng = np.random.default_rng(0)
    X, fresh = rng.normal(size=(30, 3)) * [1, 10, 0], rng.normal(size=(5, 3))
    spread = np.array([*X.std(axis=0)[:2], 1.0])  # a constant column is left alone
    got = NeighbourDistance(n_neighbors=4).fit(X).score_samples(fresh)
    expected = [-kth_distance(X / spread, row / spread, 4) for row in fresh]
    np.testing.assert_allclose(got, expected, rtol=1e-9)
    few = NeighbourDistance(n_neighbors=99).fit(X).score_samples(fresh)
    expected = [-kth_distance(X / spread, row / spread, 30) for row in fresh]
    np.testing.assert_allclose(few, expected, rtol=1e-9)


def test_fresh_samples():
    X, y, ood = blobs()
    got = SelectiveClassifier(GaussianNB(), model=MODEL).fit(X, y, X_ood=ood)
    X2, y2, ood2 = blobs(90, seed=3)
    sample = got.sample(X2, y2, ood2)
    np.testing.assert_array_equal(sample.id_scores, got.doubts(X2))
    np.testing.assert_array_equal(sample.ood_scores, got.doubts(ood2))
    np.testing.assert_array_equal(sample.id_loss, got.predict(X2) != y2)
    assert dm.evaluate(got.rule_, sample, model=MODEL) == got.evaluate(X2, y2, X_ood=ood2)
    named = dict(zip(("ood", "risk"), got.doubts(X2).T[::-1], strict=True))
    np.testing.assert_array_equal(got.rule_.accept(named), got.accept(X2))
    with pytest.raises(NotFittedError):
        SelectiveClassifier(GaussianNB()).sample(X, y)


def test_ood_rows_go_through_the_whole_pipeline():
    X, y, ood = blobs()
    X, ood = X * 5 + 40, ood * 5 + 40
    steps = [StandardScaler(), SelectiveClassifier(GaussianNB(), model=MODEL)]
    with pytest.raises(dm.InvalidInputError, match=r"fit_pipeline\(pipeline, X, y, X_ood\)"):
        make_pipeline(*map(clone, steps)).fit(X, y, selectiveclassifier__X_ood=ood)
    # Far away, but passed through the steps; and without a pipeline, where nobody can tell.
    far, scaled = ood + 1e4, StandardScaler().fit(X)
    fit_pipeline(make_pipeline(*map(clone, steps)), X, y, far)
    with pytest.warns(dm.LikelyMistakeWarning, match="X_ood lies outside"):
        clone(steps[1]).fit(scaled.transform(X), y, X_ood=scaled.transform(far))
    pipeline = fit_pipeline(make_pipeline(*map(clone, steps)), X, y, ood)
    scaler = StandardScaler().fit(X)
    by_hand = clone(steps[1]).fit(scaler.transform(X), y, X_ood=scaler.transform(ood))
    np.testing.assert_array_equal(pipeline[-1].sample_.ood_scores, by_hand.sample_.ood_scores)
    assert pipeline[-1].rule_ == by_hand.rule_
    np.testing.assert_array_equal(pipeline.predict(ood), by_hand.predict(scaler.transform(ood)))
    alone = fit_pipeline(make_pipeline(clone(steps[1])), X, y, ood)
    assert alone[-1].rule_ == clone(steps[1]).fit(X, y, X_ood=ood).rule_
    for wrong in (make_pipeline(StandardScaler(), GaussianNB()), GaussianNB(), None):
        with pytest.raises(dm.InvalidInputError, match="last step is a SelectiveClassifier"):
            fit_pipeline(wrong, X, y, ood)


def test_a_cached_pipeline_keeps_its_fitted_steps(tmp_path):
    X, y, ood = blobs()
    selective = SelectiveClassifier(GaussianNB(), model=MODEL)
    pipeline = make_pipeline(StandardScaler(), selective, memory=str(tmp_path))
    assert fit_pipeline(pipeline, X, y, ood).predict(X).shape == y.shape


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda ood: ood[:, :1], "it has 1 features, X has 2"),
        (lambda ood: pd.DataFrame(ood, columns=["a", "b"]), "only X_ood has feature names"),
        (lambda ood: scipy.sparse.csr_matrix(ood), "one of them is sparse"),
        (lambda ood: ood.astype(str), "one of them is text"),
        (lambda ood: np.ma.masked_greater(ood, 4), "X_ood is an array with masked values"),
    ],
)
def test_ood_rows_of_another_table_are_refused(change, message):
    X, y, ood = blobs()
    with pytest.raises(dm.InvalidInputError, match=message):
        SelectiveClassifier(GaussianNB(), model=MODEL).fit(X, y, X_ood=change(ood))


def test_ood_columns_are_compared_by_name():
    X, y, ood = blobs()
    frame = pd.DataFrame(X, columns=["a", "b"])
    got = SelectiveClassifier(GaussianNB(), model=MODEL)
    got.fit(frame, y, X_ood=pd.DataFrame(ood, columns=["a", "b"]))
    for names, message in ((["b", "a"], "in another order"), (["a", "c"], "names differ")):
        with pytest.raises(dm.InvalidInputError, match=message):
            got.fit(frame, y, X_ood=pd.DataFrame(ood, columns=names))
    with pytest.raises(dm.InvalidInputError, match="only X has feature names"):
        got.fit(frame, y, X_ood=ood)


def test_masks_are_not_dropped():
    X, y, _ = blobs()
    masked = np.ma.masked_greater(X, 2)
    got = SelectiveClassifier(GaussianNB())
    with pytest.raises(dm.InvalidInputError, match="X is an array with masked values"):
        got.fit(masked, y)
    with pytest.raises(dm.InvalidInputError, match="y is an array with masked values"):
        got.fit(X, np.ma.masked_equal(y, 1))
    got.fit(np.ma.array(X), y)
    for method in (got.predict, got.accept, got.doubts):
        with pytest.raises(dm.InvalidInputError, match="X is an array with masked values"):
            method(masked)


def risk_with_holes(estimator, X):
    risk = 1 - estimator.predict_proba(X).max(axis=1)
    return np.where(np.asarray(X)[:, 0] > 90, np.nan, risk)


@pytest.mark.filterwarnings("ignore::demur.LikelyMistakeWarning")
def test_missing_scores_raise_or_reject():
    X, y, ood = blobs()
    got = SelectiveClassifier(
        GaussianNB(), model=MODEL, risk_score=risk_with_holes, reject_label=-1
    ).fit(X, y, X_ood=ood)
    holes = np.concatenate([X, [[99.0, 0.0]]])
    with pytest.raises(dm.InvalidInputError, match="NaN"):
        got.accept(holes)
    got.set_params(missing="reject")
    np.testing.assert_array_equal(got.accept(holes)[:-1], got.accept(X))
    assert not got.accept(holes)[-1] and got.predict(holes)[-1] == -1
    with pytest.raises(dm.InvalidInputError, match="NaN"):
        got.fit(holes, np.append(y, 0), X_ood=ood)
    with pytest.raises(dm.InvalidInputError, match="missing must be"):
        got.set_params(missing="drop").fit(X, y, X_ood=ood)


def test_score_is_the_objective_of_the_model():
    X, y, ood = blobs()
    X2, y2, ood2 = blobs(90, seed=3)
    both, labels = np.concatenate([X2, ood2]), np.concatenate([y2, np.full(len(ood2), -1)])
    cost = dm.CostModel(reject_id=0.3, accept_ood=2, ood_prior=0.4)
    got = SelectiveClassifier(GaussianNB(), model=cost, ood_label=-1).fit(X, y, X_ood=ood)
    assert got.score(both, labels) == -got.evaluate(X2, y2, X_ood=ood2).expected_cost
    got = SelectiveClassifier(GaussianNB(), model=MODEL, ood_label=-1).fit(X, y, X_ood=ood)
    point = got.evaluate(X2, y2, X_ood=ood2)
    assert got.score(both, labels) == 1 - point.selective_risk
    most = dm.RejectionModel("tpr", [dm.Bound("fpr", at_most=0.2)])
    got.set_params(model=most).fit(X, y, X_ood=ood)
    assert got.score(both, labels) == got.evaluate(X2, y2, X_ood=ood2).tpr


def test_a_search_over_models_has_one_yardstick():
    X, y, _ = blobs(300)
    strict, lax = dm.TprFprModel(min_tpr=0.1), dm.TprFprModel(min_tpr=0.95)
    models = {"model": [strict, lax]}
    plain = GridSearchCV(SelectiveClassifier(GaussianNB(), cv=3), models, cv=3).fit(X, y)
    assert plain.best_params_["model"] == strict  # its objective is small where most is rejected
    common = SelectiveClassifier(GaussianNB(), cv=3, score_model=dm.CostModel(reject_id=0.5))
    assert GridSearchCV(common, models, cv=3).fit(X, y).best_params_["model"] == lax
