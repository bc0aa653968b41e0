"""Box rules: the optimum on random small instances, by trying every box in integers.

The campaign of many more cases: DEMUR_CASES=5000 pytest -n auto tests/property/test_boxes.py
"""

import os
from fractions import Fraction

import numpy as np
import pytest
from brute import accepted_sets, brute_bounds, brute_force
from instances import labelled, random_bounds, random_model, random_rows, to_sample

import demur as dm
from demur._kernels import box_search, compiled
from demur._kernels.engines import NAMES, VARIABLE
from demur.core.wording import bounds_met

CASES = int(os.environ.get("DEMUR_CASES", "60"))


@pytest.fixture(autouse=True, params=NAMES)
def engine(request, monkeypatch):
    if request.param == "compiled" and not compiled.AVAILABLE:
        pytest.skip("the extension is not built")
    monkeypatch.setenv(VARIABLE, request.param)
    return request.param


def few_edges(scores):
    """Strips of up to three distinct scores, so that small instances have rows inside of them."""
    edges = np.full((scores.shape[1], 128), np.inf)
    for edge, column in zip(edges, scores.T, strict=True):
        chosen = np.unique(column)[1::3][:127]
        edge[: len(chosen)] = chosen
    return edges


@pytest.fixture(params=["as it is", "in small steps", "narrowed"])
def steps(request, monkeypatch):
    """Small instances are one level of cells, unless cells are taken apart in small steps.

    And rows are many only in large ones, of which most can be counted together.
    """
    if request.param != "as it is":
        monkeypatch.setattr(box_search, "STEPS", (1, 1))
        monkeypatch.setattr(compiled, "_STEP", 1)
    if request.param == "narrowed":
        monkeypatch.setattr(box_search, "MANY", 1)
        monkeypatch.setattr(box_search, "_MOST_LEFT", 2)
        monkeypatch.setattr(box_search, "strip_edges", few_edges)
        monkeypatch.setattr(compiled, "strip_edges", few_edges)


def tuned_box(rows, model, expected):
    """Tune a box, and check what it says against the best masses known; None if infeasible."""
    sample = to_sample(rows)
    if expected is None:
        with pytest.raises(dm.InfeasibleError, match="no box reaches") as caught:
            dm.tune(sample, model, shape="box")
        assert caught.value.attainable or not model.bounds
        return None
    tuned = dm.tune(sample, model, shape="box")
    point = tuned.point
    assert (point.accepted_id, point.accepted_ood) == expected[1:3]
    assert tuned.certificate.status == "optimal"
    again = dm.Rule.from_json(tuned.rule.to_json())
    assert again == tuned.rule and isinstance(again, dm.BoxRule)
    np.testing.assert_equal(dm.evaluate(again, sample, model=model), point)
    return tuned


@pytest.mark.parametrize("scores", [2, 1])
@pytest.mark.usefixtures("steps")
def test_the_models_of_the_paper(scores):
    rng = np.random.default_rng([21, scores])
    found = 0
    for _ in range(CASES):
        rows = random_rows(rng, scores)
        asked, model = random_model(rng, rows)
        expected = brute_force(rows, asked, "box")
        tuned = tuned_box(rows, model, expected)
        if tuned is not None:
            found += 1
            cost = tuned.point.expected_cost
            value = tuned.point.selective_risk if cost is None else cost
            assert value == pytest.approx(float(expected[0]), nan_ok=True)
            assert tuned.certificate.lower_bound == pytest.approx(float(expected[0]))
    assert found > CASES / 5


@pytest.mark.parametrize("kind", ["risk", "sets", "groups", "mixed"])
@pytest.mark.usefixtures("steps")
def test_bounds_on_risk_groups_and_sets(kind):
    rng = np.random.default_rng([22, len(kind)])
    found = 0
    for _ in range(CASES):
        rows = labelled(rng, random_rows(rng, 2))
        asked, model = random_bounds(rng, rows, kind)
        expected = brute_bounds(rows, *asked, "box")
        tuned = tuned_box(rows, model, expected)
        if tuned is not None:
            found += 1
            assert tuned.point.accepted_loss == expected[3]
            assert all(bounds_met(model, tuned.point).values())
    assert found > CASES / 20


@pytest.mark.usefixtures("steps")
def test_the_worst_set():
    rng = np.random.default_rng(23)
    for _ in range(CASES // 2):
        rows = labelled(rng, random_rows(rng, 2))
        sets = {row[3] for row in rows if row[1] is None and row[2]}
        if len(sets) < 2:
            continue
        share = float(rng.choice([0.2, 0.5, 0.7]))
        bounds = [("tpr", ">=", 0.3, None), *(("fpr", "<=", share, name) for name in sets)]
        expected = brute_bounds(rows, "selective_risk", bounds, None, "box")
        model = dm.TprFprModel(0.3, share)
        sample = to_sample(rows)
        if expected is None:
            with pytest.raises(dm.InfeasibleError):
                dm.tune(sample, model, shape="box", ood="worst")
            continue
        point = dm.tune(sample, model, shape="box", ood="worst").point
        masses = point.accepted_id, point.accepted_ood, point.accepted_loss
        assert masses == expected[1:]


def margin(rows, chosen, spread):
    """Return by how much all limits of a box can grow, in spreads, before it accepts more."""
    usable = [i for i, (score, *_) in enumerate(rows) if None not in score]
    ends = [max(rows[i][0][k] for i in chosen) for k in (0, 1)]
    grown = [
        max(Fraction(rows[i][0][k] - ends[k]) / Fraction(spread[k]) for k in (0, 1))
        for i in usable
        if i not in chosen and rows[i][2]
    ]
    return min(grown, default=None)


@pytest.mark.usefixtures("steps")
def test_ties_go_to_the_widest_margin():
    rng = np.random.default_rng(24)
    several = 0
    for _ in range(2 * CASES):
        places = [tuple(int(v) for v in point) for point in rng.integers(0, 9, (11, 2))]
        rows = [(place, 0 if i < 7 else None, 1) for i, place in enumerate(places)]
        sample = to_sample(rows)
        try:
            tuned = dm.tune(sample, dm.TprFprModel(0.2, 0.25), shape="box")
        except dm.InfeasibleError:
            continue
        spread = dm.prepare(sample).spread
        accepted = tuned.rule.accept([score for score, *_ in rows])
        chosen = frozenset(np.flatnonzero(accepted).tolist())
        mine = margin(rows, chosen, spread)
        tied = [
            margin(rows, other, spread)
            for other in accepted_sets([score for score, *_ in rows], "box")
            if _masses(rows, other) == _masses(rows, chosen)
        ]
        several += len(tied) > 1
        widest = None if None in tied else max(tied)
        assert mine == widest or float(mine) == pytest.approx(float(widest))
    assert several > CASES / 40


def _masses(rows, chosen):
    own = [rows[i] for i in chosen if rows[i][1] is not None]
    return len(own), len(chosen) - len(own), sum(loss for _, loss, _ in own)


def test_many_rows_against_a_plain_sweep():
    """More rows than brute force takes: all limits of one score, a sweep of the other for each."""
    rng = np.random.default_rng(25)
    for graded in (False, True):
        n = 400
        wrong = rng.random(n) * (1 if graded else 0) + (rng.random(n) < 0.2)
        id_scores = rng.normal(size=(n, 2)) + 0.8 * np.column_stack([wrong, np.zeros(n)])
        ood_scores = rng.normal(size=(n, 2)) + np.array([0.3, 1.2])
        sample = dm.Sample(id_scores.round(2), (wrong * 4).round() / 4, ood_scores.round(2))
        for model in (dm.TprFprModel(0.6, 0.2), dm.RiskFprModel(0.2, 0.3)):
            point = dm.tune(sample, model, shape="box").point
            found = []
            for limit in np.unique(sample.id_scores[:, 0]):
                inside = sample.id_scores[:, 0] <= limit
                foreign = sample.ood_scores[sample.ood_scores[:, 0] <= limit, 1]
                for other in np.unique(sample.id_scores[inside, 1]):
                    taken = inside & (sample.id_scores[:, 1] <= other)
                    tpr, fpr = taken.mean(), (foreign <= other).sum() / n
                    risk = sample.id_loss[taken].mean()
                    found.append((tpr, fpr, risk))
            tpr, fpr, risk = np.array(found).T
            if model.objective == "tpr":
                met = (risk <= 0.2) & (fpr <= 0.3)
                assert point.tpr == tpr[met].max()
            else:
                met = (tpr >= 0.6) & (fpr <= 0.2)
                assert point.selective_risk == pytest.approx(risk[met].min(), abs=1e-12)


@pytest.mark.parametrize("graded", [False, True])
def test_rows_counted_together_change_nothing(graded, engine, monkeypatch):
    """Many rows: most of them are counted by strips before anything is sorted."""
    rng = np.random.default_rng([27, graded])
    n = 3000
    scores = np.vstack([rng.normal(size=(n, 2)), rng.normal([0.6, 2.5], size=(n, 2))])
    wrong = rng.random(n) < 1 / (1 + np.exp(2.5 - 1.5 * scores[:n, 0]))
    loss = wrong * (rng.random(n) if graded else 1.0)
    sample = dm.Sample(
        scores[:n].round(3),
        loss,
        scores[n:].round(3),
        id_group=np.where(rng.random(n) < 0.1, "rare", "common"),
    )
    rare = dm.Bound("tpr", at_least=0.7, group="rare")
    models = [
        dm.TprFprModel(0.75, 0.1),
        dm.RiskFprModel(0.05, 0.2),
        dm.CostModel(0.2, 0.5, 0, 0.3),
        dm.PrecisionRecallModel(0.95, 0.6, ood_prior=0.4),
        dm.RejectionModel("selective_risk", [rare, dm.Bound("fpr", at_most=0.2)]),
    ]
    with monkeypatch.context() as plain:
        plain.setenv(VARIABLE, "numpy")
        expected_of = [dm.tune(sample, model, shape="box") for model in models]
    left = []
    narrowed = box_search.narrowed
    monkeypatch.setattr(box_search, "MANY", 1)
    monkeypatch.setattr(box_search, "narrowed", lambda *a: left.append(narrowed(*a)) or left[-1])
    for model, expected in zip(models, expected_of, strict=True):
        found = dm.tune(sample, model, shape="box")
        assert all(len(rows.masses.id) < 2 * n for rows in left)
        assert found.rule.limits == expected.rule.limits
        np.testing.assert_equal(found.point, expected.point)
        bounds = found.certificate.lower_bound, expected.certificate.lower_bound
        assert bounds[0] == pytest.approx(bounds[1])
    # In C the strips are a part of the search.
    assert len(left) == (len(models) if engine == "numpy" else 0)


def uneven(rng, n):
    """Return columns that strips and buckets of equal width suit badly."""
    return {
        "heavy tails": np.exp(rng.normal(size=n) * 20),
        "two values": rng.integers(0, 2, n).astype(float),
        "nearly all equal": np.where(rng.random(n) < 0.98, 0.5, rng.random(n)),
        "as far as float64 goes": rng.choice([-1.7e308, -1.0, 0.0, 1.0, 1.7e308], n),
        "next to nothing": rng.integers(0, 5, n) * 1e-290,
        "one far away": np.where(np.arange(n) == 7, 1e300, rng.random(n)),
    }


def test_scores_of_any_distribution(monkeypatch):
    """Strips and their ranks are as good as sorted columns, whatever these look like."""
    rng = np.random.default_rng(28)
    n = 1500
    columns = uneven(rng, 2 * n)
    for name, x in columns.items():
        for y in (rng.normal(size=2 * n), columns["nearly all equal"], x[::-1]):
            scores, wrong = np.column_stack([x, y]), rng.random(n) < 0.3
            # Scores of sizes too far apart for weights are refused.
            if name in ("as far as float64 goes", "next to nothing", "one far away"):
                scores = np.column_stack([x, x[::-1]])
            weight = rng.integers(1, 4, n).astype(float)
            sample = dm.Sample(scores[:n], wrong, scores[n:], id_weight=weight)
            for model in (dm.TprFprModel(0.2, 1), dm.CostModel(0.4, 1, 0, 0.3)):
                found = dm.tune(sample, model, shape="box")
                with monkeypatch.context() as plain:
                    plain.setenv(VARIABLE, "numpy")
                    expected = dm.tune(sample, model, shape="box")
                assert found.rule.limits == expected.rule.limits, name
                np.testing.assert_equal(found.point, expected.point)


@pytest.mark.parametrize("groups", [12, 40])
def test_many_groups(groups, monkeypatch):
    """Rows of so many masses are added up in other ways."""
    rng = np.random.default_rng([29, groups])
    n = 3000
    bounds = [dm.Bound("tpr", at_least=0.4, group=f"g{k}") for k in range(groups)]
    model = dm.RejectionModel("selective_risk", [dm.Bound("fpr", at_most=0.3), *bounds])
    for graded in (False, True):
        foreign = rng.normal([0.5, 1.5], size=(n, 2))
        loss = (rng.random(n) < 0.2) * (rng.random(n) if graded else 1.0)
        labels = [f"g{k}" for k in rng.integers(0, groups, n)]
        sample = dm.Sample(rng.normal(size=(n, 2)), loss, foreign, id_group=labels)
        found = dm.tune(sample, model, shape="box")
        assert all(bounds_met(model, found.point).values())
        with monkeypatch.context() as plain:
            plain.setenv(VARIABLE, "numpy")
            expected = dm.tune(sample, model, shape="box")
        assert found.rule.limits == expected.rule.limits
        np.testing.assert_equal(found.point, expected.point)


def test_a_budget_and_a_gap_are_told():
    rng = np.random.default_rng(26)
    scores = rng.normal(size=(4000, 2))
    sample = dm.Sample(scores[:2000], rng.random(2000) < 0.3, scores[2000:])
    best = dm.tune(sample, dm.CostModel(0.4, 1, 0, 0.3), shape="box").point.expected_cost
    for search, status in ((dm.Exact(gap=0.02), "gap"), (dm.Exact(budget=1), "budget")):
        tuned = dm.tune(sample, dm.CostModel(0.4, 1, 0, 0.3), shape="box", search=search)
        assert tuned.certificate.status == status
        assert tuned.certificate.lower_bound <= best <= tuned.point.expected_cost
    assert tuned.point.expected_cost - best < 0.1


def test_what_boxes_are_not():
    sample = dm.Sample([[0, 1], [1, 0], [2, 2]], [0, 0, 1], [[3, 3]])
    model = dm.TprFprModel(0.5)
    for wrong in ({"directions": "real"}, {"search": dm.Grid(10)}, {"shape": "disc"}):
        with pytest.raises(dm.InvalidInputError):
            dm.tune(sample, model, **({"shape": "box"} | wrong))
