"""Columns mean the same here as in `Sample.from_frame`."""

import numpy as np
import pyarrow as pa
import pytest

import demur as dm
from demur.core.columns import check_names, listing, sample_from_columns


def random_columns(rng):
    n = int(rng.integers(1, 30))
    sets = rng.choice(["id", "", "svhn", "mnist"], n, p=[0.5, 0.2, 0.2, 0.1]).astype(object)
    sets[rng.random(n) < 0.1] = None
    scores = rng.normal(size=(2, n))
    scores[0, rng.random(n) < 0.1] = np.inf
    flag = rng.random(n) < 0.3
    return {
        "a": scores[0],
        "b": scores[1].astype(np.float32),
        "loss": rng.integers(0, 3, n),
        "y": rng.choice(["cat", "dog"], n).astype(object),
        "h": rng.choice(["cat", "dog"], n).astype(object),
        "set": sets,
        "flag": flag if rng.random() < 0.5 else flag.astype(np.int64),
        "w": rng.integers(1, 4, n) / 2,
    }


def test_same_samples_as_from_frame():
    rng = np.random.default_rng(0)
    built = 0
    for _ in range(200):
        columns = random_columns(rng)
        choices = {
            "scores": [["a"], ["b"], ["a", "b"], ["b", "a"]][rng.integers(4)],
            "ood": [None, "set", "flag"][rng.integers(3)],
            "weight": [None, "w"][rng.integers(2)],
        } | [{"loss": "loss"}, {"label": "y", "prediction": "h"}][rng.integers(2)]
        frame = pa.table({k: pa.array(v, from_pandas=False) for k, v in columns.items()})
        try:
            expected = dm.Sample.from_frame(frame, **choices)
        except dm.InvalidInputError:
            with pytest.raises(dm.InvalidInputError):
                sample_from_columns(columns, **choices)
            continue
        sample = sample_from_columns(columns, **choices)
        built += 1
        for name in ("id_scores", "id_loss", "ood_scores", "id_weight", "ood_weight"):
            np.testing.assert_array_equal(getattr(sample, name), getattr(expected, name))
        assert sample.ood_sets == expected.ood_sets
        assert sample.score_names == expected.score_names
    assert built > 150


def test_confidences_stay_as_they_are_and_must_be_finite():
    columns = {"c": np.array([1.0, 2.0, 3.0]), "loss": np.zeros(3)}
    sample = sample_from_columns(columns, ["c"], loss="loss", confidence=["c"])
    assert sample.id_scores[:, 0].tolist() == [1, 2, 3]
    assert sample.id_doubts[:, 0].tolist() == [-1, -2, -3]
    for value in (np.inf, -np.inf):
        columns["c"] = np.array([1.0, value, 3.0])
        with pytest.raises(dm.InvalidInputError, match=r"confidence: column 'c', row 1 is -?inf"):
            sample_from_columns(columns, ["c"], loss="loss", confidence=["c"])
    with pytest.raises(dm.InvalidInputError, match="scores: column 'c', row 1 is -inf"):
        sample_from_columns(columns, ["c"], loss="loss")


def test_names_are_guessed_whatever_their_case():
    with pytest.raises(dm.InvalidInputError, match="did you mean 'MSP'"):
        check_names(["MSP", "knn"], [("--scores", "msp")], "'f.csv'")
    with pytest.raises(dm.InvalidInputError, match="several columns called 'a'"):
        check_names(["a", "a"], [("--scores", "a")], "'f.csv'")
    assert listing([str(i) for i in range(50)]).endswith("'39' and 10 more")
