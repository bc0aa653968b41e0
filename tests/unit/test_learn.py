"""Learned scores: what they are made of, what they hold, what they refuse."""

import json
import os
import subprocess
import sys
import warnings
from itertools import combinations

import duckdb
import numpy as np
import polars as pl
import pytest
from five_scores import NAMES, five_scores

import demur as dm
from demur.errors import InvalidInputError, LikelyMistakeWarning
from demur.learn.functions import MeanSum, Polyline, ScoreFunction, TreeSum

MODEL = dm.TprFprModel(0.7, 0.25)


@pytest.fixture(scope="module")
def sample():
    return five_scores(np.random.default_rng(1), 1000, 600)


@pytest.fixture(scope="module")
def fresh():
    return five_scores(np.random.default_rng(2), 60_000, 40_000)


@pytest.fixture(scope="module", params=["logistic", "boosting", "mean"])
def learned(request, sample):
    return dm.learn.fit(sample, request.param, folds=3)


@pytest.fixture(scope="module")
def rule(learned):
    return learned.rule(dm.tune(learned.sample, MODEL).rule)


@pytest.fixture(scope="module")
def rows(fresh):
    values = np.concatenate([fresh.id_scores, fresh.ood_scores])
    values[:6, 0] = [np.nan, np.inf, -np.inf, 1e300, -1e300, 0.0]
    return values


def test_a_polyline_is_straight_between_its_points():
    rng = np.random.default_rng(0)
    x = np.sort(rng.normal(size=9))
    line = Polyline(tuple(x.tolist()), tuple(rng.normal(size=9).tolist()))
    values = np.concatenate([rng.normal(size=500) * 2, x, [-1e308, 1e308]])
    np.testing.assert_allclose(line(values), np.interp(values, line.x, line.y), atol=1e-12)


def test_trees_are_walked_as_written():
    rng = np.random.default_rng(0)
    trees = dm.learn.fit(five_scores(rng, 300, 200), "boosting", folds=2)
    total = trees.functions["likelihood_ratio"].total
    assert isinstance(total, TreeSum)
    rows = rng.normal(size=(50, 5))

    def leaf(node, row):
        while total.feature[node] >= 0:
            below = row[total.feature[node]] <= total.threshold[node]
            node = total.left[node] if below else total.right[node]
        return total.value[node]

    plain = [total.base + sum(leaf(root, row) for root in total.roots) for row in rows]
    assert total(rows).tolist() == plain


def test_saved_sql_and_torch_decisions_are_those_of_python(rule, rows, tmp_path):
    assert 0.3 < rule.accept(rows, missing="reject").mean() < 0.8
    check_same_decisions(rule, rows, tmp_path)


def check_same_decisions(rule, rows, folder):
    """Rows of an array: from a file, by SQL and by torch they are decided alike."""
    decided = rule.accept(rows, missing="reject")
    assert 0.2 < decided.mean() < 0.8
    rule.save(folder / "rule.json")
    again = dm.learn.LearnedRule.load(folder / "rule.json")
    frame = pl.DataFrame({name: rows[:, k] for k, name in enumerate(NAMES)})
    frame = frame.with_columns(row=pl.int_range(pl.len()))
    assert (again.accept(frame, missing="reject") == decided).all()
    found = duckdb.sql(f"SELECT row FROM frame WHERE {again.to_sql()} ORDER BY row").fetchall()
    assert [row for (row,) in found] == np.flatnonzero(decided).tolist()
    torch = pytest.importorskip("torch")
    from demur.adapters.torch_operations import decision_of

    with torch.no_grad():
        assert (decision_of(again)(torch.tensor(rows)).numpy() == decided).all()


LIVE_ROWS = int(os.environ.get("DEMUR_LEARNED_ROWS", "2000"))
"""So many rows of each kind; the long run takes 100,000."""


@pytest.mark.parametrize("kind", ["missing", "ties", "float32"])
def test_hard_rows_are_decided_alike_everywhere(rule, kind, tmp_path):
    rng = np.random.default_rng(11)
    live = five_scores(rng, LIVE_ROWS // 2, LIVE_ROWS - LIVE_ROWS // 2)
    rows = np.concatenate([live.id_scores, live.ood_scores])
    if kind == "missing":
        rows[rng.random(rows.shape) < 0.05] = np.nan
        rows[rng.random(rows.shape) < 0.02] = np.inf
        rows[rng.random(rows.shape) < 0.02] = -np.inf
    elif kind == "ties":
        # Values at which polylines bend and trees split, and their neighbours.
        for column in range(5):
            ends = np.array(split_points(rule, column))
            drawn = rng.choice(ends, LIVE_ROWS)
            drawn = np.nextafter(drawn, drawn + rng.integers(-1, 2, LIVE_ROWS))
            rows[:, column] = np.where(rng.random(LIVE_ROWS) < 0.7, drawn, rows[:, column])
    else:
        rows = rows.astype(np.float32)
        # 32 bits are the same numbers with 64.
        wide = rule.accept(rows.astype(np.float64))
        assert (rule.accept(rows) == wide).all()
    check_same_decisions(rule, rows, tmp_path)


def split_points(rule, column):
    found = []
    for function in rule.learned.functions.values():
        totals = [function.total]
        if isinstance(function.total, MeanSum):
            totals = [function.total.first, function.total.second]
        for total in totals:
            if isinstance(total, TreeSum):
                found += total.threshold[total.feature == column].tolist()
            else:
                found += total.parts[column].x
    return found


def test_onnx_decides_every_row_as_python_does(sample, rows, tmp_path):
    torch = pytest.importorskip("torch")
    onnxruntime = pytest.importorskip("onnxruntime")
    from demur.adapters.torch_operations import decision_of

    learned = dm.learn.fit(sample, "mean", folds=2)
    rule = learned.rule(dm.tune(learned.sample, MODEL).rule)
    path, example = str(tmp_path / "d.onnx"), torch.tensor(rows[10:20])
    shapes = ({0: torch.export.Dim("n")},)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.export(decision_of(rule), (example,), dynamic_shapes=shapes)
        torch.onnx.export(program, (), path, dynamo=True, verbose=False)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: rows})
    assert (found == rule.accept(rows, missing="reject")).all()


def test_more_doubt_never_lowers_what_is_learned(learned):
    rng = np.random.default_rng(3)
    rows = rng.normal(size=(2000, 5)) * 1.5
    for column in range(5):
        more = rows.copy()
        more[:, column] += rng.exponential(size=2000)
        assert (learned.transform(more) >= learned.transform(rows) - 1e-12).all()


def test_scores_are_read_by_name_and_confidences_as_they_are(sample):
    plain = dm.learn.fit(sample, "logistic")
    turned = dm.Sample(
        sample.id_scores * [1, -1, 1, 1, 1],
        sample.id_loss,
        sample.ood_scores * [1, -1, 1, 1, 1],
        score_names=NAMES,
        confidence=["b"],
    )
    other = dm.learn.fit(turned, "logistic")
    np.testing.assert_allclose(other.sample.id_scores, plain.sample.id_scores)
    row = {"e": 0.1, "d": 0.2, "c": 0.3, "b": -0.4, "a": 0.5, "image": 7}
    as_array = plain.transform([[0.5, 0.4, 0.3, 0.2, 0.1]])
    np.testing.assert_allclose(other.transform(row), as_array)
    with pytest.raises(InvalidInputError, match="confidence on one side"):
        other.sample_of(sample)


def test_rows_of_no_weight_and_infinite_doubts_teach_nothing():
    rng = np.random.default_rng(4)
    sample = five_scores(rng, 400, 200)
    own, foreign = sample.id_scores.copy(), sample.ood_scores.copy()
    own[:50] = rng.normal(50, 9, size=(50, 5))
    weight = np.repeat([0.0, 1.0], [50, 350])
    heavy = dm.Sample(own, sample.id_loss, foreign, id_weight=weight)
    light = dm.Sample(own[50:], sample.id_loss[50:], foreign)
    one, other = (dm.learn.fit(each, "logistic") for each in (heavy, light))
    np.testing.assert_allclose(one.transform(own), other.transform(own), rtol=1e-3)
    foreign[:20, 0] = np.inf
    some = dm.learn.fit(dm.Sample(own[50:], sample.id_loss[50:], foreign), "logistic")
    assert np.isinf(some.sample.ood_scores[:20]).all()
    np.testing.assert_allclose(some.transform(own)[:, 0], other.transform(own)[:, 0], rtol=1e-3)


def test_graded_losses_weights_and_sets_are_kept():
    rng = np.random.default_rng(5)
    base = five_scores(rng, 500, 300)
    loss = base.id_loss * rng.uniform(1, 3, 500)
    sets = {"near": base.ood_scores[:100], "far": base.ood_scores[100:]}
    weights = {"near": np.ones(100), "far": np.full(200, 2.0)}
    sample = dm.Sample(
        base.id_scores, loss, sets, rng.uniform(1, 2, 500), weights, id_group=np.arange(500) % 3
    )
    for method in ("logistic", "boosting"):
        found = dm.learn.fit(sample, method, folds=2, groups=(np.arange(500) // 2, -np.arange(300)))
        assert found.sample.ood_sets == sample.ood_sets
        assert found.sample.groups == sample.groups
        assert (found.sample.ood_weight == sample.ood_weight).all()
        risk = found.sample.id_scores[:, 0]
        assert risk.min() > 0 and risk.max() < 3
        assert risk[loss > 0].mean() > 1.2 * risk[loss == 0].mean()
        assert abs(np.average(risk, weights=sample.id_weight) - loss.mean()) < 0.1


def test_degenerate_scores_are_no_trouble():
    rng = np.random.default_rng(6)
    wrong = np.arange(200) % 4 == 0
    own = np.column_stack([np.zeros(200), wrong * 1.0, rng.random(200) * 1e-310, rng.random(200)])
    foreign = np.column_stack([np.zeros(50), np.full(50, 5.0), np.zeros(50), np.full(50, 1e9)])
    sample = dm.Sample(own, wrong, foreign)
    for method in ("logistic", "boosting"):
        found = dm.learn.fit(sample, method, folds=2)
        tuned = dm.tune(found.sample, dm.TprFprModel(0.7, 0.0))
        assert tuned.point.selective_risk == 0


def test_without_ood_rows_the_risk_alone_is_learned(sample):
    only = dm.learn.fit(dm.Sample(sample.id_scores, sample.id_loss), "logistic")
    assert only.names == ("conditional_risk",)
    tuned = dm.tune(only.sample, dm.TprFprModel(0.7))
    assert only.rule(tuned.rule).accept(sample.id_scores).mean() == pytest.approx(0.7, abs=0.05)


def test_auto_takes_the_better_and_says_so(sample):
    found = dm.learn.fit(sample, model=MODEL, folds=2)
    told = found.card.to_data()
    assert told["judged_by"] == "selective_risk"
    assert found.method == min(told["judged"], key=told["judged"].get)
    assert set(told["judged"]) == {"logistic", "boosting", "mean"}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda s: dm.Sample(s.id_scores[:30], s.id_loss[:30], s.ood_scores),
            "folds need at least",
        ),
        (lambda s: dm.Sample(s.id_scores, s.id_loss, s.ood_scores[:9]), "there are 9 OOD rows"),
        (lambda s: dm.Sample(s.id_scores, s.id_loss * 0, s.ood_scores), "has the loss 0"),
    ],
)
def test_too_little_to_learn_from_is_refused(sample, make, message):
    with pytest.raises(InvalidInputError, match=message):
        dm.learn.fit(make(sample))


def test_more_than_two_scores_are_not_tuned_but_it_is_said_what_to_do(sample):
    for refused in (dm.tune, dm.frontier):
        with pytest.raises(InvalidInputError, match=r"demur\.learn\.fit"):
            refused(sample, MODEL) if refused is dm.tune else refused(sample)
    learned = dm.learn.fit(sample, "logistic", folds=2)
    rule = dm.tune(learned.sample, MODEL).rule
    for made in (lambda: learned.rule("rule.json"), lambda: learned.rule(rule, fresh=[0.1])):
        with pytest.raises(InvalidInputError, match="must be a"):
            made()
    with pytest.raises(InvalidInputError, match="method must be"):
        dm.learn.fit(sample, "forest")


def test_rows_that_made_the_scores_are_known(sample, tmp_path):
    learned = dm.learn.fit(sample, "logistic")
    with pytest.warns(LikelyMistakeWarning, match="made the learned scores"):
        learned.transform(sample)
    learned.save(tmp_path / "doubts.json")
    again = dm.learn.Learned.load(tmp_path / "doubts.json")
    assert again.share_of_own_rows(sample) == 1
    assert again.share_of_own_rows(five_scores(np.random.default_rng(9), 800, 500)) == 0
    assert (again.transform(sample.id_scores) == learned.transform(sample.id_scores)).all()
    with pytest.raises(InvalidInputError, match="have no rows"):
        _ = again.sample


def test_files_load_without_scikit_learn(sample, tmp_path):
    learned = dm.learn.fit(sample, "boosting", folds=2)
    learned.save(tmp_path / "doubts.json")
    code = (
        "import sys; sys.modules['sklearn'] = None; import demur as dm, numpy as np;"
        f"found = dm.learn.Learned.load({str(tmp_path / 'doubts.json')!r});"
        "print(found.transform(np.zeros((1, 5))).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == learned.transform(np.zeros((1, 5))).tolist()


def test_damaged_files_are_refused(rule):
    data = json.loads(rule.to_json())
    with pytest.raises(InvalidInputError, match=r"LearnedRule\.load"):
        dm.Rule.from_json(rule.to_json())
    for change in ({"version": 9}, {"format": "x"}, {"learned": {}}, {"rule": None}):
        with pytest.raises(InvalidInputError):
            dm.learn.LearnedRule.from_json(json.dumps(data | change))
    function = data["learned"]["functions"]["conditional_risk"]
    function["link"]["x"][0] = 1e9
    with pytest.raises(InvalidInputError, match="ascending"):
        ScoreFunction.from_data(function)


def test_five_scores_beat_every_pair_on_fresh_rows():
    """The simulation: risk at most .085 on fresh rows, FPR within .03 of its bound."""
    rng = np.random.default_rng(0)
    sample, fresh = five_scores(rng, 4000, 2000), five_scores(rng, 40_000, 40_000)
    learned = dm.learn.fit(sample, "logistic")
    seen = dm.evaluate(dm.tune(learned.sample, MODEL).rule, learned.sample_of(fresh))
    assert seen.selective_risk <= 0.085
    assert abs(seen.fpr - 0.25) <= 0.03
    assert seen.tpr > 0.68
    for pair in combinations(range(5), 2):
        try:
            rule = dm.tune(_columns(sample, pair), MODEL).rule
        except dm.InfeasibleError:
            continue
        assert dm.evaluate(rule, _columns(fresh, pair)).selective_risk > seen.selective_risk


def _columns(sample, places):
    id_, ood = sample.id_scores[:, places], sample.ood_scores[:, places]
    return dm.Sample(id_, sample.id_loss, ood)


def test_certificates_on_fresh_rows_hold_for_learned_scores():
    rng = np.random.default_rng(7)
    learned = dm.learn.fit(five_scores(rng, 1000, 600), "logistic")
    rule = dm.tune(learned.sample, MODEL).rule
    truth = dm.evaluate(rule, learned.sample_of(five_scores(rng, 200_000, 200_000)))
    broken = 0
    for _ in range(200):
        fresh = learned.sample_of(five_scores(rng, 300, 200))
        told = dm.guarantees.certify(rule, fresh, confidence=0.9)
        broken += (
            told.tpr.low > truth.tpr
            or told.fpr.high < truth.fpr
            or told.selective_risk.high < truth.selective_risk
        )
    # At most one in ten; 33 of 200 and more would happen once in a thousand.
    assert broken <= 33


def test_torch_reads_confidences_as_they_are(sample, rows):
    """What is learned is learned of doubts; the columns stay as they are in the data."""
    import torch

    from demur.adapters.torch_operations import decision_of

    flip = np.array([-1.0, 1, 1, 1, 1])
    raw = dm.Sample(
        sample.id_scores * flip,
        sample.id_loss,
        sample.ood_scores * flip,
        score_names=NAMES,
        confidence=NAMES[:1],
    )
    learned = dm.learn.fit(raw, "logistic", folds=3)
    rule = learned.rule(dm.tune(learned.sample, MODEL).rule)
    live = rows[6:3000] * flip
    decided = rule.accept(live)
    assert 0.2 < decided.mean() < 0.9
    with torch.no_grad():
        assert (decision_of(rule)(torch.tensor(live)).numpy() == decided).all()


def test_smoothed_losses_lie_between_those_seen_and_the_risk(sample):
    learned = dm.learn.fit(sample, "logistic")
    seen = learned.sample
    for share in (0.0, 0.25, 1.0):
        smooth = learned.smoothed(share)
        expected = (1 - share) * seen.id_loss + share * seen.id_scores[:, 0]
        np.testing.assert_array_equal(smooth.id_loss, expected)
        np.testing.assert_array_equal(smooth.id_scores, seen.id_scores)
        np.testing.assert_array_equal(smooth.ood_scores, seen.ood_scores)
        assert smooth.columns.names == seen.columns.names
    # With the risk for a loss and no bound on OOD nothing but the risk decides.
    rule = dm.tune(learned.smoothed(1), dm.TprFprModel(0.7, 1)).rule
    accepted = rule.accept(seen.id_scores)
    risks = seen.id_scores[:, 0]
    assert risks[accepted].mean() <= np.sort(risks)[: accepted.sum()].mean() + 1e-12
    for wrong in (-0.1, 1.5, np.nan, "half", None):
        with pytest.raises(InvalidInputError, match="share must be"):
            learned.smoothed(wrong)
    with pytest.raises(InvalidInputError, match="folds must be"):
        dm.learn.fit(sample, folds="5")


def test_smoothed_losses_of_rows_that_are_always_rejected(sample, tmp_path):
    scores = sample.id_scores.copy()
    scores[3, 1] = np.inf
    own = dm.Sample(scores, sample.id_loss, sample.ood_scores, score_names=NAMES)
    learned = dm.learn.fit(own, "logistic")
    assert learned.smoothed().id_loss[3] == sample.id_loss[3]
    learned.save(tmp_path / "doubts.json")
    with pytest.raises(InvalidInputError, match="have no rows"):
        dm.learn.Learned.load(tmp_path / "doubts.json").smoothed()
