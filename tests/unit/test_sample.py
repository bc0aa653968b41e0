import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import demur as dm


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"id_scores": [0.1, np.nan], "id_loss": [0, 1]}, r"id_scores\[1\] is NaN"),
        ({"id_scores": [0.1, -np.inf], "id_loss": [0, 1]}, r"id_scores\[1\] is -inf"),
        ({"id_scores": [[]], "id_loss": [0]}, "scores of a row"),
        ({"id_scores": 3.0, "id_loss": [0]}, "scores of a row"),
        ({"id_scores": [], "id_loss": []}, "id_scores is empty"),
        ({"id_scores": ["a", "b"], "id_loss": [0, 1]}, "id_scores must hold real numbers"),
        ({"id_scores": [1, 2], "id_loss": ["0", "1"]}, "id_loss must hold real numbers"),
        ({"id_scores": [1, "b"], "id_loss": [0, 1]}, "id_scores"),
        ({"id_scores": [1, 10**400], "id_loss": [0, 1]}, r"id_scores\[1\] is 10+, not a number"),
        ({"id_scores": [1, None], "id_loss": [0, 1]}, r"id_scores\[1\] is None"),
        ({"id_scores": [[1], [1, 2]], "id_loss": [0, 1]}, "id_scores cannot be read"),
        ({"id_scores": [1 + 2j], "id_loss": [0]}, "real numbers"),
        ({"id_scores": [1, 2], "id_loss": [0]}, "id_loss has 1 rows, expected 2"),
        ({"id_scores": [1, 2], "id_loss": [0, -1]}, r"id_loss\[1\] is negative: -1.0"),
        ({"id_scores": [1, 2], "id_loss": [0, np.inf]}, r"id_loss\[1\] is infinite"),
        ({"id_scores": [1, 2], "id_loss": [np.nan, np.nan]}, r"id_loss\[0\] is NaN: nan \(and 1"),
        ({"id_scores": [1, 2], "id_loss": [0, 1], "id_weight": [1, -1]}, r"id_weight\[1\]"),
        ({"id_scores": [1, 2], "id_loss": [0, 1], "id_weight": [0, 0]}, "id_weight is zero"),
        ({"id_scores": [1], "id_loss": [0], "ood_scores": [[1, 2]]}, "2 scores a row, expected 1"),
        ({"id_scores": [1], "id_loss": [0], "ood_scores": {}}, "empty dict"),
        ({"id_scores": [1], "id_loss": [0], "ood_scores": {"a": [np.nan]}}, r"\['a'\]\[0\] is NaN"),
        ({"id_scores": [1], "id_loss": [0], "ood_scores": [1], "ood_weight": [1, 1]}, "ood_weight"),
        ({"id_scores": [1], "id_loss": [0], "ood_weight": {"a": [1]}}, "ood_weight names"),
        ({"id_scores": [1], "id_loss": [0], "score_names": ("a", "b")}, "score_names"),
        ({"id_scores": [1], "id_loss": [0], "id_weight": [1e308 * 1.7] * 1}, None),
    ],
)
def test_bad_input_names_the_argument_and_row(arguments, message):
    if message is None:
        assert dm.tune(dm.Sample(**arguments), dm.TprFprModel(1)).point.tpr == 1
        return
    with pytest.raises(dm.InvalidInputError, match=message):
        dm.Sample(**arguments)


def test_a_sample_cannot_be_changed_through_its_arrays():
    scores = np.array([1.0, 2.0])
    sample = dm.Sample(scores, [0, 1])
    scores[0] = 9
    assert sample.id_scores[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        sample.id_scores[0, 0] = 9


def test_columns_and_sets_are_taken_apart():
    sample = dm.Sample(
        [[1, 2], [3, 4]],
        [0, 1],
        {"a": [[5, 6]], "b": [[7, 8], [9, 10]]},
        ood_weight={"b": [1, 2], "a": [3]},
        score_names=("msp", "knn"),
    )
    assert sample.ood_weight.tolist() == [3, 1, 2]
    right = sample.score(1)
    assert right.score_names == ("knn",)
    assert right.ood_scores.tolist() == [[6], [8], [10]]
    only = sample.for_ood("b")
    assert only.ood_scores.tolist() == [[7, 8], [9, 10]]
    assert only.ood_weight.tolist() == [1, 2]
    with pytest.raises(dm.InvalidInputError, match="no OOD set is called 'c'"):
        sample.for_ood("c")
    with pytest.raises(dm.InvalidInputError, match="column must be 0 to 1"):
        sample.score(2)


COLUMNS = {
    "msp": [0.1, 0.9, 0.4, 0.5],
    "knn": [1, 2, 3, 4],
    "label": ["cat", "dog", None, None],
    "predicted": ["cat", "cat", "dog", "cat"],
    "wrong": [0.0, 1.0, None, None],
    "flag": [False, False, True, True],
    "set": ["id", None, "svhn", "noise"],
    "weight": [1, 2, 3, 4],
}
FRAMES = {"polars": pl.DataFrame, "pandas": pd.DataFrame, "pyarrow": pa.table}


@pytest.mark.parametrize("library", FRAMES)
def test_frames_of_any_library(library):
    frame = FRAMES[library](COLUMNS)
    by_loss = dm.Sample.from_frame(frame, ["msp", "knn"], loss="wrong", ood="flag", weight="weight")
    assert by_loss.id_scores.tolist() == [[0.1, 1], [0.9, 2]]
    assert by_loss.id_loss.tolist() == [0, 1]
    assert by_loss.ood_scores.tolist() == [[0.4, 3], [0.5, 4]]
    assert by_loss.id_weight.tolist() == [1, 2]
    assert by_loss.score_names == ("msp", "knn")
    by_label = dm.Sample.from_frame(frame, "msp", label="label", prediction="predicted", ood="set")
    assert by_label.id_loss.tolist() == [0, 1]
    assert list(by_label.ood_sets) == ["noise", "svhn"]
    assert by_label.for_ood("svhn").ood_scores.tolist() == [[0.4]]
    no_ood = dm.Sample.from_frame(frame[:2], "msp", loss="wrong")
    assert (no_ood.n_id, no_ood.n_ood) == (2, 0)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scores": "mps", "loss": "wrong"}, "no column 'mps'; did you mean 'msp'"),
        ({"scores": "label", "loss": "wrong"}, "column 'label' holds str values"),
        ({"scores": "msp", "loss": "wrong"}, "column 'wrong', row 2 is nan"),
        ({"scores": "msp", "loss": "wrong", "ood": "knn"}, "column 'knn', row 1 is 2; a flag"),
        ({"scores": "wrong", "loss": "msp", "ood": "flag"}, "column 'wrong', row 2 is nan"),
        ({"scores": "msp"}, "either loss, or label and prediction"),
        ({"scores": "msp", "label": "label"}, "either loss, or label and prediction"),
        ({"scores": "msp", "loss": "wrong", "ood": "predicted"}, "every row as OOD"),
        ({"scores": ["msp", "msp"], "loss": "weight"}, "different names"),
    ],
)
def test_frames_with_wrong_columns(options, message):
    with pytest.raises(dm.InvalidInputError, match=message):
        dm.Sample.from_frame(pl.DataFrame(COLUMNS), **options)


@pytest.mark.parametrize("flag", [bool, int, np.bool_])
def test_flags_that_come_as_objects_are_flags(flag):
    def frame(*marks):
        return pd.DataFrame({"s": [1, 2, 3], "l": [0, 1, 1], "o": np.array(marks, object)})

    made = dm.Sample.from_frame(frame(flag(0), flag(0), flag(1)), "s", loss="l", ood="o")
    assert (made.n_id, made.id_scores.tolist(), list(made.ood_sets)) == (2, [[1], [2]], ["ood"])
    with pytest.raises(dm.InvalidInputError, match="column 'o', row 1 is nan"):
        dm.Sample.from_frame(frame(flag(0), None, flag(1)), "s", loss="l", ood="o")


@pytest.mark.parametrize(
    "library", [pd.DataFrame, pl.DataFrame, lambda data: pd.DataFrame(data).astype("Int64")]
)
def test_classes_and_groups_beyond_doubles_stay_apart(library):
    large = 2**53
    classes = {"s": [1, 2], "y": [large, large], "h": [large + 1, large], "g": [large, large + 1]}
    roles = {"label": "y", "prediction": "h", "group": "g"}
    made = dm.Sample.from_frame(library(classes), "s", **roles)
    assert made.id_loss.tolist() == [1, 0]
    assert made.groups == (str(large), str(large + 1))


def test_classes_beyond_doubles_may_be_missing_on_ood_rows():
    large = 2**53
    frame = pl.DataFrame(
        {"s": [1, 2, 3], "y": [large, large, None], "h": [large + 1, large, None], "o": [0, 0, 1]}
    )
    made = dm.Sample.from_frame(frame, "s", label="y", prediction="h", ood="o")
    assert (made.id_loss.tolist(), made.n_ood) == ([1, 0], 1)


def test_not_a_frame():
    with pytest.raises(dm.InvalidInputError, match="not a data frame"):
        dm.Sample.from_frame([1, 2], "msp", loss="wrong")


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: dm.TprFprModel(1.1, 0.1), "min_tpr must be in"),
        (lambda: dm.TprFprModel(0.1, -0.1), "max_fpr must be in"),
        (lambda: dm.TprFprModel(float("nan"), 0.1), "min_tpr must be a finite"),
        (lambda: dm.TprFprModel("0.8", 0.1), "min_tpr must be a number"),
        (lambda: dm.TprFprModel(None, 0.1), "min_tpr must be a number"),
        (lambda: dm.PrecisionRecallModel(0.9, 0.7, 1), "ood_prior must be in"),
        (lambda: dm.PrecisionRecallModel(1.9, 0.7, 0), "min_precision must be in"),
        (lambda: dm.CostModel(-1), "reject_id must be at least 0"),
        (lambda: dm.CostModel(1, accept_ood=1, reject_ood=2, ood_prior=0.1), "accept_ood"),
        (lambda: dm.CostModel(float("inf")), "finite"),
        (lambda: dm.Grid(0), "angles"),
        (
            lambda: dm.tune(dm.Sample([1], [0]), dm.TprFprModel(1), directions="up"),
            "directions must be one of",
        ),
        (lambda: dm.tune(dm.Sample([1], [0]), dm.TprFprModel(1), search=360), "search"),
        (lambda: dm.tune(dm.Sample([1], [0]), dm.TprFprModel(1), ood="mean"), "ood must be"),
    ],
)
def test_bad_models_and_options(build, message):
    with pytest.raises(dm.InvalidInputError, match=message):
        build()


def test_losses():
    from demur import losses

    costs = [[0, 5, 1], [2, 0, 1], [3, 3, 0]]
    assert losses.evaluate_loss(costs, [0, 1, 2], [1, 1, 0]).tolist() == [5, 0, 3]
    assert losses.evaluate_loss("absolute", [1, 5], [4, 3]).tolist() == [3, 2]
    assert losses.evaluate_loss(lambda y, p: (y - p) ** 2, [1, 5], [4, 3]).tolist() == [9, 4]
    assert losses.evaluate_loss("zero_one", np.array(["a", "b"]), ["a", "c"]).tolist() == [0, 1]
    for loss, true, message in [
        ("hinge", [0], "unknown"),
        (costs, [3], "classes 0 to 2"),
        (costs, [0.5], "classes 0 to 2"),
        ([[0, -1], [1, 0]], [0], "negative"),
        ([[0, 1]], [0], "square"),
        (lambda y, p: y - p - 1, [0], "negative"),
        ("zero_one", ["a"], "different kinds"),
    ]:
        with pytest.raises(dm.InvalidInputError, match=message):
            losses.evaluate_loss(loss, true, [0])


def test_bayes_prediction_under_any_cost():
    from demur.losses import bayes_prediction

    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(4), size=50)
    costs = rng.random((4, 4))
    prediction, risk = bayes_prediction(p, costs)
    for row, chosen, least in zip(p, prediction, risk, strict=True):
        expected = [sum(row[y] * costs[y, h] for y in range(4)) for h in range(4)]
        assert chosen == int(np.argmin(expected))
        assert least == pytest.approx(min(expected))
    prediction, risk = bayes_prediction(p)
    np.testing.assert_allclose(risk, 1 - p.max(axis=1))
    # One minus the largest probability would be exactly 0 here.
    assert bayes_prediction([[1.0, 1e-20]])[1][0] == 1e-20
    for bad, message in [([[0.5, 0.6]], "add up"), ([[1.5, -0.5]], "negative"), ([0.5], "shape")]:
        with pytest.raises(dm.InvalidInputError, match=message):
            bayes_prediction(bad)


def test_missing_labels_are_named():
    with pytest.raises(dm.InvalidInputError, match=r"y_true\[1\] is missing: None"):
        dm.Sample.from_predictions([1, 2], [0, None], [0, 0])
