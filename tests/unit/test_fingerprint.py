"""Rows that made a rule are known again: in memory, where they are, and a part of either."""

import json
import warnings

import numpy as np
import polars as pl
import pytest

import demur as dm
from demur.core.fingerprint import Fingerprint, share_of_tuning_rows

MODEL = dm.TprFprModel(0.7, 0.5)
ROLES = {"loss": "wrong", "ood": "set"}


def frame(seed, n=3000, digits=None):
    """Return rows of which a third is OOD, perhaps with rounded scores."""
    rng = np.random.default_rng(seed)
    foreign = rng.random(n) < 1 / 3
    wrong = (rng.random(n) < 0.2) & ~foreign
    scores = rng.normal(size=(n, 2)) + 1.5 * foreign[:, None] + wrong[:, None]
    if digits is not None:
        scores = scores.round(digits)
    sets = np.where(foreign, "svhn", "id")
    return pl.DataFrame({"a": scores[:, 0], "b": -scores[:, 1], "wrong": wrong, "set": sets})


def source(rows):
    return dm.open_source(rows.lazy(), ["a", "b"], confidence="b", **ROLES)


def in_memory(rows):
    return dm.Sample.from_frame(rows, ["a", "b"], confidence="b", **ROLES)


def saved(rule):
    return dm.Rule.from_json(rule.to_json())


@pytest.mark.parametrize("digits", [None, 2])
@pytest.mark.parametrize("made", [source, in_memory])
@pytest.mark.parametrize("judged", [source, in_memory])
def test_tuning_rows_are_known_wherever_they_are(made, judged, digits):
    rows, fresh = frame(0, digits=digits), frame(1, digits=digits)
    rule = saved(dm.tune(made(rows), MODEL).rule)
    assert share_of_tuning_rows(rule, judged(rows)) == 1.0
    assert share_of_tuning_rows(rule, judged(rows.sample(fraction=1, shuffle=True))) == 1.0
    assert share_of_tuning_rows(rule, judged(fresh)) == 0.0
    if digits is None:
        half = pl.concat([rows[:1000], fresh[:1000]])
        assert 0.4 < share_of_tuning_rows(rule, judged(half)) < 0.6


def test_rows_of_a_large_source_are_known_by_the_part_that_was_drawn():
    """Whole, in part, in memory and not; with confidences, which a source flips."""
    rows, fresh = frame(0, 700_000), frame(1, 300_000)
    rule = saved(dm.tune(source(rows), MODEL).rule)
    mark = rule.card.fingerprint
    assert 0.1 < mark.part < 0.2 and mark.alike < 0.01 and len(mark.marks) == 4096
    found = [share_of_tuning_rows(rule, in_memory(part)) for part in (rows, rows[:100_000])]
    assert found == pytest.approx([1, 1], abs=0.2)
    assert share_of_tuning_rows(rule, source(rows[200_000:])) == pytest.approx(1, abs=0.2)
    mixed = pl.concat([rows[:100_000], fresh[:100_000]])
    assert share_of_tuning_rows(rule, in_memory(mixed)) == pytest.approx(0.5, abs=0.15)
    assert share_of_tuning_rows(rule, in_memory(fresh)) == 0
    assert share_of_tuning_rows(rule, source(fresh)) == 0
    with pytest.raises(dm.InvalidInputError, match="made the rule"):
        dm.guarantees.certify(rule, in_memory(rows[50_000:80_000]))


@pytest.mark.parametrize("digits", [1, 2, 3, 4])
def test_rounded_scores_are_alike_by_chance(digits):
    """Fresh rows are never taken for those that made a rule, however coarse the scores."""
    rows = frame(0, 40_000, digits)
    sides = [rows.filter(pl.col("wrong") == k).select("a", "b").to_numpy() for k in (0, 1)]
    mark = Fingerprint.of_part((sides[0][::3], sides[1][::3]), len(rows))
    assert mark.part < 1
    again = Fingerprint.from_data(json.loads(json.dumps(mark.to_data())))
    assert again.to_data() == mark.to_data()
    for seed in range(1, 9):
        fresh = frame(seed, 40_000, digits)
        other = [fresh.filter(pl.col("wrong") == k).select("a", "b").to_numpy() for k in (0, 1)]
        assert mark.share_of((other[0], other[1])) == 0


def test_a_source_is_known_by_its_numbers_where_a_sample_would_not_do():
    rows = frame(0)
    tuned = dm.tune(source(rows), MODEL)
    card = tuned.rule.card.with_entries(fingerprint=None)
    rule = dm.Rule(tuned.rule.direction, tuned.rule.threshold, 1.0, ("a", "b"), ("b",), card=card)
    lazy = source(rows)
    assert share_of_tuning_rows(rule, lazy) == 0
    assert share_of_tuning_rows(rule, lazy, dm.evaluate(rule, lazy)) == 1
    other = source(rows[1:])
    assert share_of_tuning_rows(rule, other, dm.evaluate(rule, other)) == 0


def test_python_warns_of_a_saved_rule_that_is_judged_by_its_rows():
    sample = in_memory(frame(0))
    rule = dm.tune(sample, MODEL).rule
    dm.evaluate(rule, sample)  # whoever tuned it here knows
    with pytest.warns(dm.LikelyMistakeWarning, match="these rows made the rule, so the numbers"):
        dm.evaluate(saved(rule), sample)
    dm.evaluate(saved(rule), in_memory(frame(1)))


@pytest.mark.parametrize(
    "damage", [{"part": 0}, {"part": "x"}, {"alike": None}, {"salt": "-1"}, {"below": "f" * 17}]
)
def test_a_damaged_fingerprint_is_refused(damage):
    rule = json.loads(dm.tune(in_memory(frame(0)), MODEL).rule.to_json())
    rule["card"]["fingerprint"] |= damage
    with pytest.raises(dm.InvalidInputError, match="fingerprint is damaged"):
        dm.Rule.from_json(json.dumps(rule))


def test_likely_mistakes_are_said_of_sources_too():
    rows = frame(0).with_columns(right=1 - pl.col("wrong").cast(pl.Int64))
    with pytest.warns(dm.LikelyMistakeWarning, match="did you pass a column that is 1 where"):
        dm.tune(dm.open_source(rows.lazy(), "a", loss="right", ood="set"), MODEL)
    wrong_way = dm.open_source(rows.lazy(), "b", loss="wrong", ood="set")
    with pytest.warns(dm.LikelyMistakeWarning, match="'b' points the other way"):
        dm.tune(wrong_way, dm.TprFprModel(0.5, 0.99))
    with pytest.raises(dm.InfeasibleError, match="a likely cause: 'b' points the other way"):
        dm.tune(wrong_way, dm.TprFprModel(0.9, 0.05))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dm.tune(source(rows), MODEL)
