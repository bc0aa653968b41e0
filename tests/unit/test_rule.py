import json
import os
import stat

import numpy as np
import pytest

import demur as dm

RULES = [
    dm.Rule((1.0,), 0.1 + 0.2),
    dm.Rule((np.cos(0.3), np.sin(0.3)), -1e-300, score_names=("msp", 'k"nn')),
    dm.Rule((0.0, 1.0), 5e-324),
    dm.Rule((1.0, 0.0), -np.inf),
    dm.Rule((-0.6, 0.8), 1e300, tau=0.25),
]


@pytest.mark.parametrize("rule", RULES)
def test_json_and_file_round_trip(rule, tmp_path):
    assert dm.Rule.from_json(rule.to_json()) == rule
    rule.save(tmp_path / "rule.json")
    assert dm.Rule.load(tmp_path / "rule.json") == rule
    assert os.listdir(tmp_path) == ["rule.json"]
    strict = json.loads(rule.to_json(), parse_constant=lambda name: pytest.fail(name))
    assert strict["version"] == 2


def test_saved_file_has_ordinary_permissions(tmp_path):
    RULES[0].save(tmp_path / "rule.json")
    (tmp_path / "other").write_text("")
    mode = lambda name: stat.S_IMODE((tmp_path / name).stat().st_mode)  # noqa: E731
    assert mode("rule.json") == mode("other")


def test_failed_save_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "rule.json"
    RULES[0].save(path)
    before = path.read_text()

    def broken(*_):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        RULES[1].save(path)
    assert path.read_text() == before
    assert os.listdir(tmp_path) == ["rule.json"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("not json", "not valid JSON"),
        ("[1]", "not a rule"),
        ('{"format": "demur.rule", "version": 4}', "version 4"),
        ('{"format": "demur.rule", "version": 3, "direction": [1], "shape": "disc"}', "'disc'"),
        ('{"format": "demur.rule", "version": 3, "direction": [1], "shape": "box"}', "'limits'"),
        ('{"format": "demur.rule", "version": 1}', "no entry 'direction'"),
        (
            '{"format": "demur.rule", "version": 1, "direction": ["a"], "threshold": 1, "tau": 1}',
            "direction",
        ),
        (
            '{"format": "demur.rule", "version": 1, "direction": [1], "threshold": null, "tau": 1}',
            "wrong kind",
        ),
        (
            '{"format": "demur.rule", "version": 1, "direction": [1], "threshold": "x", "tau": 1}',
            "wrong kind",
        ),
        (
            '{"format": "demur.rule", "version": 1, "direction": [1], "threshold": 1, "tau": 2}',
            "tau",
        ),
    ],
)
def test_unreadable_rules_are_refused(text, message):
    with pytest.raises(dm.InvalidInputError, match=message):
        dm.Rule.from_json(text)


def test_missing_file_and_folder(tmp_path):
    with pytest.raises(dm.InvalidInputError, match="cannot read"):
        dm.Rule.load(tmp_path / "none.json")
    with pytest.raises(dm.InvalidInputError, match="does not exist"):
        RULES[0].save(tmp_path / "none" / "rule.json")
    with pytest.raises(dm.InvalidInputError, match="is a folder"):
        RULES[0].save(tmp_path)


def test_accept_and_probability_on_the_boundary():
    rule = dm.Rule((0.6, 0.8), 1.0, tau=0.25)
    scores = [[1, 0.5], [0, 1.25], [0, 0], [2, 2]]
    np.testing.assert_array_equal(rule.accept_probability(scores), [0.25, 0.25, 1, 0])
    np.testing.assert_array_equal(rule.accept(scores), [True, True, True, False])


def test_single_scores_may_be_flat_and_float32_is_read_exactly():
    rule = dm.Rule((1.0,), float(np.float32(0.1)))
    assert rule.accept(np.array([0.1, 0.2], np.float32)).tolist() == [True, False]
    assert rule.accept([[0.1]]).tolist() == [True]
    assert rule.accept([]).tolist() == []


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([[np.nan, 1]], r"scores\[0\] is NaN"),
        ([[1, 1], [-np.inf, 0]], r"scores\[1\] is -inf"),
        ([1.0, 2.0], "1 score a row, expected 2"),
        ([["a", "b"]], "real numbers"),
    ],
)
def test_bad_scores_are_refused(scores, message):
    with pytest.raises(dm.InvalidInputError, match=message):
        dm.Rule((0.6, 0.8), 1.0).accept(scores)


@pytest.mark.parametrize(
    "arguments",
    [
        {"direction": (), "threshold": 1},
        {"direction": (0.0, 0.0), "threshold": 1},
        {"direction": (np.inf, 0.0), "threshold": 1},
        {"direction": (1.0,), "threshold": np.nan},
        {"direction": (1.0,), "threshold": np.inf},
        {"direction": (1.0,), "threshold": 0, "tau": -0.1},
        {"direction": (1.0,), "threshold": 0, "score_names": ("a", "b")},
    ],
)
def test_impossible_rules_are_refused(arguments):
    with pytest.raises(dm.InvalidInputError):
        dm.Rule(**arguments)


def test_mu():
    assert dm.Rule((0.6, 0.8), 0).mu == pytest.approx(4 / 3)
    assert dm.Rule((0.0, 1.0), 0).mu == np.inf
    assert dm.Rule((0.0, -1.0), 0).mu == -np.inf
    assert dm.Rule((1.0,), 0).mu == 0


def test_sql_needs_names_and_no_chance():
    with pytest.raises(dm.InvalidInputError, match="2 column names"):
        RULES[2].to_sql()
    with pytest.raises(dm.InvalidInputError, match="random"):
        RULES[4].to_sql(["a", "b"])
    assert '"k""nn"' in RULES[1].to_sql()


def test_a_whole_number_beyond_floats_is_refused_by_name():
    rule = dm.Rule((1.0,), 0.5, score_names=("a",))
    with pytest.raises(dm.InvalidInputError, match="column 'a' holds a whole number beyond"):
        rule.accept_one({"a": 10**400})
