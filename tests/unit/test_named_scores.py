"""From the user's column to the decision: names, senses and what is missing."""

import json
import math

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import demur as dm
from demur.core.columns import ScoreColumns
from demur.core.fingerprint import Fingerprint
from demur.core.sample import likely_mistakes

RULE = dm.Rule((0.6, 0.8), 0.5, score_names=("msp", "knn"))
TABLE = {"knn": [0.1, 0.9, 0.3], "extra": ["a", "b", "c"], "msp": [0.2, 0.1, 0.9]}
WANTED = [True, False, False]


@pytest.mark.parametrize("make", [dict, pd.DataFrame, pl.DataFrame, pl.LazyFrame, pa.table])
def test_frames_and_mappings_are_read_by_name(make):
    assert RULE.accept(make(TABLE)).tolist() == WANTED
    assert RULE.accept_probability(make(TABLE)).tolist() == [1.0, 0.0, 0.0]


def test_arrays_are_read_by_position_and_one_input_by_either():
    rows = np.column_stack([TABLE["msp"], TABLE["knn"]])
    assert RULE.accept(rows).tolist() == WANTED
    assert RULE.accept_one({"knn": 0.1, "msp": 0.2, "extra": None})
    assert RULE.accept_one([0.2, 0.1]) and not RULE.accept_one([0.1, 0.9])


def test_a_missing_column_is_named_with_a_suggestion():
    with pytest.raises(dm.InvalidInputError, match=r"no column 'knn'; did you mean 'Knn'"):
        RULE.accept(pl.DataFrame({"msp": [0.1], "Knn": [0.2]}))
    with pytest.raises(dm.InvalidInputError, match="no score_names"):
        dm.Rule((0.6, 0.8), 0.5).accept(pl.DataFrame(TABLE))


def test_missing_scores_raise_or_reject():
    rows = [[0.1, 0.1], [math.nan, 0.1], [-math.inf, 0.0], [math.inf, 0.0]]
    with pytest.raises(dm.InvalidInputError, match=r"scores\[1\] is NaN"):
        RULE.accept(rows)
    assert RULE.accept(rows, missing="reject").tolist() == [True, False, False, False]
    with pytest.raises(dm.InvalidInputError, match="missing must be"):
        RULE.accept(rows, missing="drop")
    frame = pl.DataFrame({"msp": [0.1, None], "knn": [0.1, 0.1]})
    with pytest.raises(dm.InvalidInputError, match="column 'msp', row 1"):
        RULE.accept(frame)
    assert RULE.accept(frame, missing="reject").tolist() == [True, False]


def test_a_score_of_weight_zero_is_not_needed_but_infinity_rejects():
    rule = dm.Rule((1.0, 0.0), 0.5, score_names=("msp", "knn"))
    assert rule.accept({"msp": [0.1, 0.9]}).tolist() == [True, False]
    rows = [[0.1, math.nan], [0.1, math.inf], [0.1, 7.0]]
    assert rule.accept(rows).tolist() == [True, False, True]


def test_a_sample_and_a_rule_are_matched_by_name():
    rng = np.random.default_rng(0)
    scores, wrong = rng.normal(size=(200, 2)), rng.random(200) < 0.2
    ood = rng.normal(1.5, size=(100, 2))
    one = dm.Sample(scores, wrong, ood, score_names=["a", "b"])
    other = dm.Sample(scores[:, ::-1], wrong, ood[:, ::-1], score_names=["b", "a"])
    rule = dm.tune(one, dm.TprFprModel(0.6, 0.4)).rule
    assert dm.evaluate(rule, one) == dm.evaluate(rule, other)
    for sample in (one, other):
        with pytest.raises(dm.InvalidInputError, match="these rows made the rule, and a promise"):
            dm.guarantees.certify(rule, sample)
    promise, swapped = (
        dm.guarantees.certify(rule, sample, allow_tuning_rows=True) for sample in (one, other)
    )
    assert promise.tpr == swapped.tpr and promise.fpr == swapped.fpr
    with pytest.raises(dm.InvalidInputError, match="'a' is missing"):
        dm.evaluate(rule, dm.Sample(scores, wrong, ood, score_names=["x", "b"]))


def test_confidences_give_a_rule_on_the_columns_as_they_are():
    rng = np.random.default_rng(1)
    wrong, foreign = rng.random(500) < 0.2, rng.random(500) < 0.3
    frame = pl.DataFrame(
        {
            "iso": rng.normal(2.0 * foreign),
            "conf": 1 / (1 + rng.gamma(1 + wrong + foreign)),
            "wrong": wrong,
            "ood": foreign,
        }
    )
    names, model = ["conf", "iso"], dm.TprFprModel(0.7, 0.4)
    named = {"loss": "wrong", "ood": "ood"}
    sample = dm.Sample.from_frame(frame, names, confidence="conf", **named)
    tuned = dm.tune(sample, model)
    flipped = frame.with_columns(conf=-pl.col("conf"))
    doubts = dm.tune(dm.Sample.from_frame(flipped, names, **named), model)
    assert tuned.point == doubts.point
    assert tuned.rule.direction == (-doubts.rule.direction[0], doubts.rule.direction[1])
    accepted = tuned.rule.accept(frame)
    assert accepted.tolist() == doubts.rule.accept(flipped).tolist()
    again = dm.Rule.from_json(tuned.rule.to_json())
    assert again.confidence == ("conf",) and again.accept(frame).tolist() == accepted.tolist()
    surface = dm.frontier(sample, min_tpr=[0.7], max_fpr=[0.4])
    assert dm.evaluate(surface.rule(0, 0), sample).tpr == tuned.point.tpr
    curve = dm.metrics.roc_curve(sample.score(0))
    rule = curve.rule(len(curve) // 2)
    assert rule.direction == (-1.0,)
    assert dm.metrics.auroc(sample.score(0)) > 0.5


def test_a_confidence_is_not_taken_for_a_doubt():
    sample = dm.Sample([[0.1], [0.2]], [0, 1], score_names=["s"], confidence=["s"])
    with pytest.raises(dm.InvalidInputError, match="is it the same column"):
        dm.evaluate(dm.Rule((1.0,), 0.5, score_names=("s",)), sample)
    with pytest.raises(dm.InvalidInputError, match="not one of the scores"):
        ScoreColumns.of(["a"], confidence=["b"], count=1)
    with pytest.raises(dm.InvalidInputError, match="finite confidence"):
        dm.Sample([math.inf], [0], score_names=["s"], confidence=["s"])


def test_the_card_tells_where_a_rule_comes_from(tmp_path):
    rng = np.random.default_rng(2)
    sample = dm.Sample(rng.normal(size=(300, 2)), rng.random(300) < 0.2, rng.normal(2, 1, (90, 2)))
    model = dm.TprFprModel(0.5, 0.2)
    tuned = dm.tune(sample, model)
    tuned.rule.save(tmp_path / "rule.json")
    card = dm.Rule.load(tmp_path / "rule.json").card
    assert card.model == model and card.points["tuned"]["tpr"] == tuned.point.tpr
    assert card.to_data()["rows"] == {"id": 300, "ood": 90, "ood_sets": {"ood": 90}}
    low, high = sample.id_scores[:, 1].min(), sample.id_scores[:, 1].max()
    assert (card.ranges["score 2"]["id"][0], card.ranges["score 2"]["id"][-1]) == (low, high)
    assert card.to_data()["demur"] == dm.__version__
    assert card.fingerprint.overlap(sample) == (1.0, 390, True)
    half = card.fingerprint.overlap(sample.subset(slice(0, 100), slice(0, 0)))
    assert half.share == 1.0 and not half.same
    fresh = dm.Sample(rng.normal(size=(300, 2)), np.zeros(300), rng.normal(2, 1, (90, 2)))
    assert card.fingerprint.overlap(fresh).share == 0


def test_a_thinned_fingerprint_finds_a_part_of_the_rows():
    rng = np.random.default_rng(3)
    sample = dm.Sample(rng.normal(size=(40_000, 2)), np.zeros(40_000), rng.normal(size=(9, 2)))
    found = Fingerprint.from_data(json.loads(json.dumps(Fingerprint.of(sample).to_data())))
    assert len(found.marks) == 2048
    mixed = np.vstack([sample.id_scores[:10_000], rng.normal(size=(10_000, 2))])
    share, looked, same = found.overlap(dm.Sample(mixed, np.zeros(20_000)))
    assert looked > 700 and not same
    assert share == pytest.approx(0.5, abs=5 * math.sqrt(0.25 / looked))


@pytest.mark.parametrize(
    "entry",
    [
        {"version": True},
        {"version": 3},
        {"threshold": True},
        {"threshold": "inf"},
        {"direction": [True]},
        {"score_names": "a"},
        {"score_names": ["a", "a"], "direction": [1, 0]},
        {"confidence": ["b"], "score_names": ["a"]},
        {"card": []},
        {"card": {"fingerprint": {"salt": "x"}}},
        {"card": {"model": {"name": "NoModel"}}},
        {"card": {"ranges": {"a": 3}}},
    ],
)
def test_damaged_rules_are_refused(entry):
    good = {"format": "demur.rule", "version": 2, "direction": [1.0], "threshold": 0.5, "tau": 1.0}
    assert dm.Rule.from_json(json.dumps(good)).threshold == 0.5
    with pytest.raises(dm.InvalidInputError):
        dm.Rule.from_json(json.dumps({**good, **entry}))


def test_masks_are_missing_values_and_tensors_are_detached():
    masked = np.ma.array([0.1, 0.2, 0.3], mask=[0, 1, 0])
    with pytest.raises(dm.InvalidInputError, match="NaN"):
        dm.Sample(masked, [0, 0, 1])
    with pytest.raises(dm.InvalidInputError, match="NaN"):
        dm.Sample([1, 2, 3], masked)
    rule = dm.Rule((1.0,), 0.5)
    assert rule.accept(masked, missing="reject").tolist() == [True, False, True]
    with pytest.raises(dm.InvalidInputError, match="two sets called '1'"):
        dm.Sample([1.0], [0], {1: [2.0], "1": [3.0]})


def likely(kind, sample):
    return [m for m in likely_mistakes(sample) if m.kind == kind]


def test_likely_mistakes_are_seen():
    rng = np.random.default_rng(4)
    wrong = rng.random(3000) < 0.1
    own = np.column_stack([rng.gamma(1 + 2 * wrong), rng.normal(size=3000)])
    foreign = np.column_stack([rng.gamma(2.5, size=900), rng.normal(2, 1, 900)])
    good = dm.Sample(own, wrong, foreign, score_names=["a", "b"])
    assert likely_mistakes(good) == []
    reversed_ = dm.Sample(own * [-1, 1], wrong, foreign * [-1, 1], score_names=["a", "b"])
    assert [m.column for m in likely("confidence", reversed_)] == ["a"]
    told = dm.Sample(
        own * [-1, 1], wrong, foreign * [-1, 1], score_names=["a", "b"], confidence=["a"]
    )
    assert likely_mistakes(told) == []
    assert likely("correct", dm.Sample(own, ~wrong, foreign))
    assert likely("swapped", dm.Sample(foreign, rng.random(900) < 0.9, own))
    # No errors tell, and one mistake is likelier than two.
    assert [m.kind for m in likely_mistakes(dm.Sample(foreign, np.zeros(900), own))] == ["swapped"]
    single = likely_mistakes(dm.Sample(foreign[:, 1], np.zeros(900), own[:, 1]))
    assert [m.kind for m in single] == ["confidence"]
    with pytest.warns(dm.LikelyMistakeWarning, match="'a' points the other way"):
        dm.tune(reversed_, dm.TprFprModel(0.1, 0.9))


def test_bounds_and_costs_that_mean_nothing_are_refused():
    with pytest.raises(dm.InvalidInputError, match="need ood_prior"):
        dm.CostModel(reject_id=0.1, accept_ood=5)
    assert dm.CostModel(0.1).ood_prior == 0
    assert dm.CostModel(0.1, 5, ood_prior=0).cost.accept_ood == 5
    with pytest.raises(dm.InvalidInputError, match="no OOD rows to have an FPR"):
        dm.tune(dm.Sample([1, 2], [0, 1]), dm.TprFprModel(0.5, 0.1))
    assert dm.tune(dm.Sample([1, 2], [0, 1]), dm.TprFprModel(0.5)).point.tpr == 0.5


@pytest.mark.parametrize(
    ("labels", "predictions"),
    [
        ([1, 2], ["1", "2"]),
        (np.array(["1", 2], object), [1, 2]),
        (np.array(["1", "2"], object), [1, 2]),
        ([1.0, 2.0], [b"1", b"2"]),
    ],
)
def test_labels_of_different_kinds_are_never_equal(labels, predictions):
    with pytest.raises(dm.InvalidInputError, match=r"holds .*numbers.* holds|holds .*text"):
        dm.Sample.from_predictions([0.1, 0.2], labels, predictions)


def test_id_is_id_in_any_spelling():
    frame = pl.DataFrame({"s": [1.0, 2.0, 3.0, 4.0], "l": 0, "set": ["ID", " Id", "svhn", None]})
    sample = dm.Sample.from_frame(frame, "s", loss="l", ood="set")
    assert sample.n_id == 3 and list(sample.ood_sets) == ["svhn"]


def test_a_single_name_stands_for_itself():
    """In `Sample`, `Sample.from_frame`, `open_source` and `Rule` alike."""
    frame = pd.DataFrame({"conf": [0.9, 0.2, 0.4], "iso": [1.0, 2, 3], "l": [0, 1, 0]})
    given = dm.Sample(frame[["conf", "iso"]], frame["l"], confidence="conf")
    read = dm.Sample.from_frame(frame, ["conf", "iso"], loss="l", confidence="conf")
    source = dm.open_source(frame, ["conf", "iso"], loss="l", confidence="conf")
    assert given.columns == read.columns == source.columns
    assert given.columns.confidence == ("conf",)
    one = dm.Sample(frame["conf"].to_numpy(), frame["l"], score_names="conf", confidence="conf")
    assert one.columns == dm.Sample.from_frame(frame, "conf", loss="l", confidence="conf").columns
    rule = dm.Rule((-1.0,), -0.5, score_names="conf", confidence="conf")
    assert rule == dm.Rule((-1.0,), -0.5, score_names=("conf",), confidence=("conf",))


def test_classes_of_different_kinds_are_named_by_their_columns():
    frame = pd.DataFrame({"s": [0.9, 0.2], "y": [1, 2], "h": ["1", "2"]})
    with pytest.raises(dm.InvalidInputError, match=r"label: column 'y' holds numbers .* 'h' holds"):
        dm.Sample.from_frame(frame, "s", label="y", prediction="h")
