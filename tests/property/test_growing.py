"""A tree that grows where a search looks changes nothing: the same rule and certificate."""

import os

import numpy as np
import pytest

import demur as dm
from demur._kernels import compiled
from demur.tuning import prepared
from demur.tuning.prepared import as_prepared
from demur.tuning.result import DIRECTION_SETS

CASES = int(os.environ.get("DEMUR_CASES", "60"))
NEVER = 10**12

pytestmark = pytest.mark.skipif(not compiled.AVAILABLE, reason="the extension is not built")


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    monkeypatch.setenv("DEMUR_ENGINE", "compiled")


def scores_of(rng, n, shift, kind):
    x = rng.normal(size=(n, 2)) + shift
    if kind == "tied":
        return np.round(x, 1)
    if kind == "skewed":
        return np.exp(x)
    if kind == "saturated":
        return np.maximum(x, 1 / 3)
    if kind == "units":
        return x * [1e-3, 1e4] + [0, 1e5]
    if kind == "curve":
        return np.column_stack([np.tanh(x[:, 0]), x[:, 0] ** 2])
    if kind == "alike":
        return x[:, [0, 0]] + 0.01 * x
    if kind == "outliers":
        far = rng.choice([1e8, -1e30, 1e280], size=2)
        return np.where(rng.random((n, 2)) < 0.01, far, x)
    if kind == "decades":
        return np.exp(6 * x)
    if kind == "endless":
        return np.where(rng.random((n, 2)) < 0.02, np.inf, x)
    if kind == "few values":
        return rng.integers(0, 3, (n, 2)) + 1 / 3
    return x


KINDS = ("plain", "tied", "skewed", "saturated", "units", "curve", "alike")
KINDS += ("outliers", "decades", "endless", "few values")


def random_sample(rng):
    kind = str(rng.choice(KINDS))
    n_id, n_ood = int(rng.integers(1, 400)), int(rng.integers(1, 200))
    id_scores = scores_of(rng, n_id, 0.0, kind)
    wrong = rng.random(n_id) < 1 / (1 + np.exp(2 - np.argsort(np.argsort(id_scores[:, 0])) / n_id))
    loss = (
        wrong * [1.0, rng.integers(1, 5, n_id), rng.exponential(size=n_id), 0.25][rng.integers(4)]
    )
    ood = scores_of(rng, n_ood, rng.choice([0.5, 1.5]), kind)
    sets = {"near": ood[: n_ood // 2], "far": ood[n_ood // 2 :]}
    weight = rng.choice([None, 1, 2])
    weight = None if weight is None else rng.integers(0, 4, n_id) / weight
    return dm.Sample(
        id_scores,
        loss,
        sets if n_ood > 1 and rng.random() < 0.4 else ood,
        id_weight=weight if weight is None or weight.sum() > 0 else None,
        id_group=rng.choice(["a", "b"], n_id) if rng.random() < 0.4 else None,
    )


def random_model(rng, sample):
    tpr, fpr = float(rng.choice([0.1, 0.5, 0.8, 0.95])), float(rng.choice([0.0, 0.1, 0.3, 1.0]))
    models = [
        dm.TprFprModel(tpr, fpr),
        dm.PrecisionRecallModel(0.6, tpr, ood_prior=0.3),
        dm.CostModel(0.3, 0.5, 0.0, ood_prior=0.4),
        dm.RiskFprModel(0.2, max(fpr, 0.1)),
    ]
    if sample.groups:
        weight = np.ones(sample.n_id) if sample.id_weight is None else sample.id_weight
        there = {name for name, mass in zip(sample.id_group, weight, strict=True) if mass}
        bounds = [dm.Bound("tpr", at_least=tpr, group=name) for name in sorted(there)]
        models.append(dm.RejectionModel("selective_risk", [*bounds, dm.Bound("fpr", at_most=0.5)]))
    return models[int(rng.integers(len(models)))]


def tuned(sample, model, options):
    try:
        return dm.tune(sample, model, **options)
    except dm.InfeasibleError as infeasible:
        return str(infeasible)


def options_of(rng, model):
    options = {"directions": str(rng.choice(["nonneg", "real", "paper", "circle"]))}
    if isinstance(model, dm.TprFprModel):
        options["ood"] = str(rng.choice(["pooled", "worst"]))
    if rng.random() < 0.1:
        options["search"] = dm.Grid(12)
        options["directions"] = "paper"
    return options


def check_rules(one, other, sample):
    """Rules are the same to the last bit; of decimals, which tie, to the rounding of a gap.

    Other points may span the same gap of decimals, and its direction is rounded otherwise. A weight
    beside scores of 1e280 may be any of many that are next to nothing.
    """
    decimals = sample.n_scores == 2 and as_prepared(sample, None).frame.whole
    lines = [(*rule.direction, rule.threshold) for rule in (one, other)]
    error = {"rel": 1e-14, "abs": 1e-14} if decimals else {"rel": 0, "abs": 1e-200}
    assert lines[0] == pytest.approx(lines[1], **error)
    for scores in (sample.id_scores, sample.ood_scores):
        assert (one.accept(scores) == other.accept(scores)).all()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_the_rule_and_its_certificate_are_those_of_a_grown_tree(bits, monkeypatch):
    monkeypatch.setattr(compiled, "_cell_bits", lambda rows: bits)
    rng = np.random.default_rng([7, bits])
    feasible = 0
    for _ in range(CASES):
        sample = random_sample(rng)
        model = random_model(rng, sample)
        options = options_of(rng, model)
        monkeypatch.setattr(prepared, "LAZY", 0)
        found = tuned(sample, model, options)
        monkeypatch.setattr(prepared, "LAZY", NEVER)
        expected = tuned(sample, model, options)
        if isinstance(expected, str):
            assert found == expected
            continue
        feasible += 1
        check_rules(found.rule, expected.rule, sample)
        np.testing.assert_equal(found.point, expected.point)
        assert found.certificate.status == expected.certificate.status
        np.testing.assert_equal(found.certificate.lower_bound, expected.certificate.lower_bound)
        assert found.certificate.unresolved == expected.certificate.unresolved
    assert feasible > CASES / 3


def grown(sample):
    rows = as_prepared(sample, None, for_one_call=True)
    return rows, rows._grown()


def clouds(n):
    rng = np.random.default_rng(3)
    id_scores, ood = rng.normal(size=(n, 2)), rng.normal(2, 1, (n, 2))
    return dm.Sample(id_scores, rng.random(n) < 1 / (1 + np.exp(3 - 2 * id_scores[:, 0])), ood)


def test_most_rows_of_a_large_sample_never_become_points():
    rows, tree = grown(clouds(100_000))
    model = dm.TprFprModel(0.8, 0.3)
    program = model.program(rows.points.totals)
    assert tree.soil is not None
    state = tree.soil[9]
    assert state[1] == 0
    # The masses of all rows are there from the beginning.
    assert tree.sums[0, [0, 1, 3]].tolist() == [
        rows.points.id.sum(),
        rows.points.loss.sum(),
        rows.points.ood.sum(),
    ]
    rows.search(program, DIRECTION_SETS["nonneg"])
    assert 0 < state[1] < 40_000


def test_counts_are_those_of_all_rows_while_the_tree_grows():
    rng = np.random.default_rng(8)
    sample = clouds(5000)
    rows, tree = grown(sample)
    lines = np.column_stack([rng.normal(size=(50, 2)), rng.normal(0, 2, 50)])
    counted = compiled.count(tree, lines)
    expected = prepared.counted_plainly(rows.points, lines)
    assert (counted == expected).all()
    # Marks of points add up to those of the cells they were in, and so tell sets apart.
    assert tree.soil is not None
    nodes, points = (int(number) for number in tree.soil[9][:2])
    leaf = [node for node in range(nodes) if tree.node[node, 2] == 0]
    for node in leaf:
        first, end = tree.node[node, :2]
        assert end <= points
        assert (tree.mass[first:end].sum(axis=0) == tree.sums[node]).all()
    inner = [node for node in range(nodes) if tree.node[node, 2] > 0]
    for node in inner:
        child = tree.node[node, 2]
        assert (tree.sums[child : child + 2].sum(axis=0) == tree.sums[node]).all()
        assert (tree.box[node, :2] <= tree.box[child : child + 2, :2]).all()
        assert (tree.box[node, 2:] >= tree.box[child : child + 2, 2:]).all()


def test_a_frontier_wants_a_grown_tree():
    _, tree = grown(clouds(5000))
    with pytest.raises(ValueError, match="grown"):
        compiled.frontier(tree, (0,), np.array([1]), np.array([1]))


def test_what_is_prepared_for_many_calls_is_sorted_once():
    ready = dm.prepare(clouds(10_000))
    dm.tune(ready, dm.TprFprModel(0.8, 0.3))
    assert ready._grown().soil is None


def test_rows_put_into_cells_share_by_share(monkeypatch):
    """However many threads, also where some shares have no losses, or no ID mass."""
    rng = np.random.default_rng(1)
    monkeypatch.setattr(compiled, "_ROWS_OF_A_SHARE", 7)
    for _ in range(CASES):
        n, sets = int(rng.integers(1, 300)), int(rng.integers(1, 3))
        scores = scores_of(rng, n, 0.0, str(rng.choice(KINDS[:-2])))
        id_ = rng.integers(0, 3, n) * (rng.random(n) < 0.7)
        loss = id_ * rng.choice([0, 0, 0, 2], n) // rng.choice([1, 2])
        loss[: int(rng.integers(0, n + 1))] = 0
        ood = rng.integers(0, 3, (sets, n))
        trees = []
        for threads in ("1", "2", "5"):
            monkeypatch.setenv(compiled.THREADS, threads)
            trees.append(compiled.prepare(scores, id_, ood, loss, lazily=True))
        assert len(compiled._shares(n)) == max(1, min(5, n // 7))
        for tree in trees[1:]:
            same_trees(trees[0], tree)


def same_trees(one, other):
    nodes = int(one.soil[9][0])
    for name in ("node", "box", "sums"):
        np.testing.assert_array_equal(getattr(one, name)[:nodes], getattr(other, name)[:nodes])
    for name in ("tilt", "tenths"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    # What there is no unit of does not matter.
    assert one.unit[0] == other.unit[0] and (one.unit[0] < 1 or one.unit[1] == other.unit[1])
    *_, cell, row, node_of, state, _ = one.soil
    for mine, its in zip((cell, row, node_of, state), other.soil[6:10], strict=True):
        np.testing.assert_array_equal(mine, its)


def test_passes_share_by_share(monkeypatch):
    rng = np.random.default_rng(2)
    monkeypatch.setattr(compiled, "_ROWS_OF_A_SHARE", 7)
    for _ in range(CASES):
        scores = scores_of(rng, int(rng.integers(1, 100)), 0.0, str(rng.choice(KINDS)))
        masses = (*rng.integers(0, 9, (2, len(scores))), rng.integers(0, 9, (2, len(scores))))
        found = []
        for threads in ("1", "3"):
            monkeypatch.setenv(compiled.THREADS, threads)
            copy = np.empty_like(scores)
            ranges = compiled.passes.copy_scores(scores, (1.0, -1.0), copy)
            tally = compiled.passes.tally(scores, (0.6, 0.8), 0.5, masses, closed=True)
            found.append((ranges, copy.tolist(), tally))
        assert found[0] == found[1]
        accepted = scores @ [0.6, 0.8] <= 0.5
        near = np.isclose(scores @ [0.6, 0.8], 0.5)
        if not near.any():
            assert tally == [int((row * accepted).sum()) for row in (*masses[:2], *masses[2])]


@pytest.mark.parametrize("call", ["put", "list_rows", "sow"])
def test_shares_that_do_not_fit_are_refused(call):
    """Memory is never written beyond its end, whatever is said of rows and lists."""
    from demur._kernels import _engine

    n = 40
    tree = compiled.prepare(
        np.random.default_rng(0).normal(size=(n, 2)),
        np.ones(n, np.int64),
        np.zeros((1, n), np.int64),
        np.zeros(n, np.int64),
        lazily=True,
    )
    soil, width, cells = tree.soil[:-1], 4, 1 << tree.soil[4]
    share = (
        np.zeros((cells, width), np.int64),
        np.zeros(cells, np.uint32),
        np.zeros(2, np.int64),
        np.zeros((2, 2)),
    )
    start = np.full(cells, n, np.uint32)
    wrong = {
        "put": lambda: _engine.put(*soil, width, 0, n + 1, *share),
        "list_rows": lambda: _engine.list_rows(*soil, width, 0, n, start),
        "sow": lambda: _engine.sow(
            *soil, width, *share, start, tree.node, tree.box, tree.sums, np.empty((2, 2))
        ),
    }
    with pytest.raises(ValueError):
        wrong[call]()
