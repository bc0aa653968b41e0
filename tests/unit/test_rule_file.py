"""`docs/rule-file.md`: its test vectors, an evaluator written from the page, old files, size."""

import base64
import json
import math
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import demur as dm
from demur.core.card import Card

DOCS = Path(__file__).parents[2] / "docs"
VECTORS = json.loads((DOCS / "rule-vectors.json").read_text(encoding="utf-8"))
NUMBERS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan, None: math.nan}


def numbers(rows):
    return [[float(NUMBERS.get(x, x)) for x in r] for r in rows]


def probability(rule, scores):
    """Evaluate a rule file as the page says, with nothing but Python's doubles."""
    assert rule["format"] == "demur.rule" and rule["version"] in (1, 2, 3)
    if rule["version"] == 3:
        return box_probability(rule, scores)
    if any(score == math.inf for score in scores):
        return 0.0
    weighed = [(w, s) for w, s in zip(rule["direction"], scores, strict=True) if w != 0]
    if any(math.isnan(score) or score == -math.inf for _, score in weighed):
        return 0.0
    if rule["threshold"] == "-inf":
        return 0.0
    total = 0.0
    for weight, score in weighed:
        product = weight * score
        total = total + product
    if total < rule["threshold"]:
        return 1.0
    return rule["tau"] if total == rule["threshold"] else 0.0


def box_probability(rule, scores):
    """Evaluate a box as the page says."""
    assert rule["shape"] == "box"
    limits = [float(limit) for limit in rule["limits"]]
    if math.inf in scores:
        return 0.0
    for sign, limit, score in zip(rule["direction"], limits, scores, strict=True):
        if sign and (math.isnan(score) or score == -math.inf):
            return 0.0
        if (sign > 0 and not score <= limit) or (sign < 0 and not score >= limit):
            return 0.0
    return 1.0


def test_there_are_enough_vectors():
    assert len(VECTORS) >= 30 and len({item["name"] for item in VECTORS}) == len(VECTORS)


@pytest.mark.parametrize("item", VECTORS, ids=lambda item: item["name"])
def test_vectors(item):
    rows = numbers(item["rows"])
    by_page = [probability(item["rule"], row) for row in rows]
    assert by_page == item["probability"]
    assert [p > 0 for p in by_page] == item["accept"]
    rule = dm.Rule.from_json(json.dumps(item["rule"]))
    assert rule.accept(rows, missing="reject").tolist() == item["accept"]
    assert rule.accept_probability(rows, missing="reject").tolist() == item["probability"]
    assert [rule.accept_one(row, missing="reject") for row in rows] == item["accept"]
    if item["error"]:
        with pytest.raises(dm.InvalidInputError):
            rule.accept(rows)
    else:
        assert rule.accept(rows).tolist() == item["accept"]


def test_the_page_and_random_rules_agree():
    rng = np.random.default_rng(0)
    for _ in range(200):
        angle = rng.uniform(0, 2 * math.pi)
        direction = (math.cos(angle), math.sin(angle))
        scores = rng.normal(size=(20, 2))
        scores[rng.random((20, 2)) < 0.1] = rng.choice([math.nan, math.inf, -math.inf, -0.0])
        on = direction[0] * 0.3 + direction[1] * 0.7
        scores[0] = 0.3, 0.7
        rule = dm.Rule(direction, on, tau=float(rng.integers(0, 2)))
        data = json.loads(rule.to_json())
        expected = [probability(data, row) for row in scores.tolist()]
        assert rule.accept_probability(scores, missing="reject").tolist() == expected


def mixed(x):
    x = (x + 0x9E3779B97F4A7C15) % 2**64
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ (x >> 27)) * 0x94D049BB133111EB % 2**64
    return x ^ (x >> 31)


def marks(rows, salt, side):
    found = []
    for row in rows:
        mark = (salt + side) % 2**64
        for score in row:
            (bits,) = struct.unpack("<Q", struct.pack("<d", score + 0.0))
            mark = mixed(mark ^ bits)
        found.append(mark)
    return found


def test_the_fingerprint_is_what_the_page_says():
    rng = np.random.default_rng(0)
    own, foreign = rng.random((3000, 2)), rng.random((500, 2))
    own[0] = -0.0, 1
    losses = own[:, 0] + rng.random(3000) > 1.6
    sample = dm.Sample(own, losses, foreign + 0.5)
    card = json.loads(dm.tune(sample, dm.TprFprModel(0.5, 0.9)).rule.to_json())["card"]
    sides = ((own.tolist(), 1), ((foreign + 0.5).tolist(), 2))
    salt = sum(m for rows, side in sides for m in marks(rows, 0, side)) % 2**64
    every = [m for rows, side in sides for m in marks(rows, salt, side)]
    words = base64.b64decode(card["fingerprint"]["marks"])
    assert card["fingerprint"] | {"marks": list(struct.unpack(f"<{len(words) // 8}Q", words))} == {
        "salt": f"{salt:016x}",
        "below": f"{sorted(every)[2048]:016x}",
        "distinct": 1.0,
        "total": f"{sum(every) % 2**64:016x}",
        "marks": sorted(every)[:2048],
    }
    first = [
        sorted(c)[math.ceil(share * 3000) - 1 if share else 0]
        for c in own.T
        for share in (0, 0.5, 1)
    ]
    ranges = card["ranges"]
    assert [ranges[f"score {k}"]["id"][i] for k in (1, 2) for i in (0, 8, 16)] == first


@pytest.mark.filterwarnings("ignore::demur.LikelyMistakeWarning")
@pytest.mark.parametrize("length", [3, 300, 30_000])
def test_a_card_stays_small(length, tmp_path):
    rng = np.random.default_rng(0)
    sets = {f"{k}{'ö' * length}": rng.random(30) + 0.4 for k in range(300)}
    losses = rng.random(100_000) < 0.2
    sample = dm.Sample(rng.random(100_000) + 0.3 * losses, losses, sets, score_names=["s"])
    rule = dm.tune(sample, dm.TprFprModel(0.8, 0.9)).rule
    rule.save(tmp_path / "rule.json")
    assert (tmp_path / "rule.json").stat().st_size < 200_000
    rows = dm.Rule.load(tmp_path / "rule.json").card.to_data()["rows"]
    assert (rows["id"], rows["ood"]) == (100_000, 9_000)
    assert len(rows["ood_sets"]) + rows["more_ood_sets"] == 300


def _card_bytes(rule):
    text = rule.to_json()
    assert dm.Rule.from_json(text) == rule
    return len(text) - len(dm.Rule(rule.direction, rule.threshold, 1.0, rule.score_names).to_json())


@pytest.mark.filterwarnings("ignore::demur.LikelyMistakeWarning")
@pytest.mark.parametrize("bounds", [3, 300, 900])
@pytest.mark.parametrize("length", [1, 40, 1000])
def test_a_card_stays_small_whatever_was_asked(bounds, length):
    """Hundreds of bounds, one for each set, and long names of sets, scores and columns."""
    rng = np.random.default_rng(0)
    sets = {f"{k}{'ö' * length}": rng.random(3) + 0.4 for k in range(bounds)}
    losses = rng.random(3000) < 0.2
    name = "s" * (length * bounds // 2)
    sample = dm.Sample(rng.random(3000) + 0.3 * losses, losses, sets, score_names=[name])
    each = [dm.Bound("fpr", at_most=1, ood_set=set_name) for set_name in sets]
    model = dm.RejectionModel("selective_risk", [dm.Bound("tpr", at_least=0.5), *each])
    tuned = dm.tune(sample, dm.TprFprModel(0.5, 1), ood="worst")
    card = Card.of_tuning(sample, model, tuned.point).with_entries(columns={"loss": name})
    rule = replace(tuned.rule, card=card)
    assert _card_bytes(rule) <= 200_000
    kept = dm.Rule.from_json(rule.to_json()).card
    assert set(kept.left_out) == set(card.to_data()) - set(kept.to_data())
    # What is small is there, and so is all else where it fits.
    assert {"created", "demur", "points", "ood", "rows"} <= set(kept.to_data())
    if bounds * length <= 300 * 40:
        assert kept.left_out == () and kept.model == model


def test_a_rule_of_a_frontier_has_a_card():
    rng = np.random.default_rng(0)
    sample = dm.Sample(rng.random(200), rng.random(200) < 0.2, rng.random(90) + 0.4)
    rule = dm.frontier(sample, min_tpr=[0.5], max_fpr=[0.25, 0.5]).rule_at(min_tpr=0.5, max_fpr=0.5)
    card = dm.Rule.from_json(rule.to_json()).card
    assert card.model == dm.TprFprModel(0.5, 0.5) and card.fingerprint.share_of(sample) == 1


def test_a_rule_that_no_reader_would_take_is_not_written(tmp_path):
    rule = dm.Rule((1.0,), 0.5, score_names=("s" * 2**20,))
    with pytest.raises(dm.InvalidInputError, match="give the scores shorter names"):
        rule.save(tmp_path / "r.json")
    assert not list(tmp_path.iterdir())


def test_a_file_of_version_1_still_applies(tmp_path):
    text = """{
      "format": "demur.rule",
      "version": 1,
      "direction": [0.6, 0.8],
      "threshold": 0.5,
      "tau": 1.0,
      "score_names": ["msp", "knn"]
    }"""
    (tmp_path / "rule.json").write_text(text)
    rule = dm.Rule.load(tmp_path / "rule.json")
    assert rule == dm.Rule((0.6, 0.8), 0.5, score_names=("msp", "knn")) and rule.card is None
    assert rule.accept({"knn": [0.5, 0.7], "msp": [0.1, 0.1]}).tolist() == [True, False]


def test_an_entry_that_is_there_twice_is_refused():
    rule = dm.tune(dm.Sample([0.1, 0.2, 0.9], [0, 0, 1], [0.8]), dm.TprFprModel(0.5, 0.5)).rule
    text = rule.to_json()
    for entry in ('"threshold": 9.0', '"card": null', '"format": "demur.rule"'):
        name = entry.split(":")[0]
        with pytest.raises(dm.InvalidInputError, match=f"same key twice: '{name[1:-1]}'"):
            dm.Rule.from_json(text.replace("{", "{" + entry + ",", 1))
    inner = text.replace('"card": {', '"card": {"created": "2020-01-01",', 1)
    assert inner != text
    with pytest.raises(dm.InvalidInputError, match="same key twice: 'created'"):
        dm.Rule.from_json(inner)
