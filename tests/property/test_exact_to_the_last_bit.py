"""Scores at the edge of float64, judged in exact arithmetic: no certificate says too much.

Columns of decimals are decimals, all others are what float64 holds. A certificate may say that
float64 has no rule for the best accepted set (`unresolved`), never that there is none, all engines
say the same, and no rule is one of rounding only, which no half-plane is.
"""

import os
from fractions import Fraction
from math import lcm

import numpy as np
import pytest
from brute import brute_force
from walked import searched, walked

import demur as dm
from demur._kernels import compiled
from demur._kernels.engines import NAMES, VARIABLE

# DEMUR_CASES=5000 for the campaign: so many cases of each kind, for each engine.
CASES = int(os.environ.get("DEMUR_CASES", "120"))


def tenths(rng, n):
    return rng.integers(0, 11, (n, 2)) / 10


def hundredths(rng, n):
    return rng.integers(-20, 40, (n, 2)) / 100


def twentieths(rng, n):
    return rng.integers(0, 9, (n, 2)) * 5 / 100 + rng.integers(0, 2) * 3


def mixed_decimals(rng, n):
    return np.column_stack([rng.integers(0, 12, n) / 10, rng.integers(0, 400, n) / 1000])


def constant(rng, n):
    return np.column_stack([np.full(n, 1e18), rng.integers(0, 7, n)])[:, :: rng.choice([-1, 1])]


def constant_beside_floats(rng, n):
    return np.column_stack([np.full(n, -1e18), rng.choice(rng.normal(size=5), n)])


def offset(rng, n):
    return np.column_stack([1e16 + 2 * rng.integers(0, 6, n), rng.normal(size=n)])


def small_offset(rng, n):
    return rng.integers(0, 6, (n, 2)) / 3 + [1e6, 0]


def outliers(rng, n):
    scores = rng.integers(0, 4, (n, 2)) * rng.choice([1.0, 1 / 3])
    wild = rng.random(scores.shape) < 0.2
    scores[wild] = 10.0 ** rng.integers(8, 280, wild.sum()) * rng.choice([-1, 1], wild.sum())
    # Columns that differ by more than 290 decades are refused.
    return scores * 1e20


def ulps(rng, n):
    scores = rng.choice([0.1, 0.3, 1.0, 1 / 3, 7.0], (n, 2))
    for _ in range(3):
        scores = np.where(rng.random(scores.shape) < 0.4, np.nextafter(scores, 9), scores)
    return scores


def last_bits(rng, n):
    return 1e15 + rng.integers(0, 9, (n, 2)) / 8


def thirds(rng, n):
    return rng.integers(0, 7, (n, 2)) / 3


def sevenths(rng, n):
    return np.rint(7 * rng.normal(size=(n, 2))) / 7


def in_line(rng, n):
    along = rng.integers(-9, 10, n) / 3
    return np.column_stack([along, along * rng.choice([1 / 3, 0.7, 1.1]) + 0.1])


def atoms_beside_decades(rng, n):
    return np.column_stack([rng.choice([0.1, 0.3, 1 / 3], n), 10.0 ** rng.integers(-30, 30, n)])


def hundreds_of_decades(rng, n):
    scores = 10.0 ** rng.uniform(rng.choice([-300, -290, -250]), 0, (n, 2))
    scores[rng.random(scores.shape) < 0.25] = 0
    scores = np.where(rng.random(scores.shape) < 0.2, 1.0, scores)
    scores[rng.integers(n)] = 1  # Columns may differ by no more than 290 decades.
    scores *= rng.choice([-1, 1, 1], scores.shape)
    return scores * [10.0 ** rng.integers(0, 60), 1][:: rng.choice([-1, 1])]


def softmax(rng, n):
    odds = np.exp(3 * np.rint(rng.normal(size=(n, 4))))
    shares = odds / odds.sum(axis=1, keepdims=True)
    return np.column_stack([1 - shares.max(axis=1), -(shares * np.log(shares)).sum(axis=1)])


DECIMALS = (tenths, hundredths, twentieths, mixed_decimals)
FLOATS = (
    *(constant, constant_beside_floats, offset, small_offset, outliers, ulps, last_bits, thirds),
    *(sevenths, in_line, atoms_beside_decades, hundreds_of_decades, softmax),
)
# Half of the cases or more have a rule of the best set in float64, of others nine tenths.
HARD = (ulps, last_bits, offset, in_line)


def whole(column, *, decimal):
    """Return a column as whole numbers in the same proportions."""
    values = [Fraction(str(v)) if decimal else Fraction(v) for v in column.tolist()]
    factor = lcm(*(v.denominator for v in values))
    return [int(v * factor) for v in values]


def case(rng, kind):
    n_id, n_ood = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    scores = np.asarray(kind(rng, n_id + n_ood), float)
    loss = (rng.random(n_id) < 0.4).astype(float)
    columns = [whole(column, decimal=kind in DECIMALS) for column in scores.T]
    rows = [
        (point, int(loss[i]) if i < n_id else None, 1)
        for i, point in enumerate(zip(*columns, strict=True))
    ]
    bounds = float(rng.choice([0.3, 0.5, 0.6, 0.9])), float(rng.choice([0, 0.25, 0.5, 1]))
    directions = str(rng.choice(["nonneg", "nonneg", "real", "circle"]))
    expected = brute_force(rows, ("tprfpr", *bounds), directions)
    return dm.Sample(scores[:n_id], loss, scores[n_id:]), bounds, directions, expected


@pytest.mark.parametrize("kind", [*DECIMALS, *FLOATS], ids=lambda kind: kind.__name__)
def test_no_certificate_says_too_much(kind, monkeypatch):
    rng = np.random.default_rng([7, len(kind.__name__)])
    engines = [name for name in NAMES if name == "numpy" or compiled.AVAILABLE]
    solved = dict.fromkeys(engines, 0)
    for _ in range(CASES):
        given = case(rng, kind)
        for name in engines:
            monkeypatch.setenv(VARIABLE, name)
            solved[name] += check(*given, must_solve=kind in DECIMALS)
        assert len({certified(name, *given, monkeypatch) for name in engines}) == 1
    assert min(solved.values()) > CASES * (0.5 if kind in HARD else 0.9)


def certified(name, sample, bounds, directions, _, monkeypatch):
    """Return what an engine says of the best rule and of what may be better."""
    monkeypatch.setenv(VARIABLE, name)
    try:
        tuned = dm.tune(sample, dm.TprFprModel(*bounds), directions=directions)
    except dm.InfeasibleError:
        return None
    sure, point = tuned.certificate, tuned.point
    masses = point.accepted_id, point.accepted_ood, point.accepted_loss
    return sure.status, sure.lower_bound, sure.unresolved, masses


def check(sample, bounds, directions, expected, *, must_solve):
    """Return whether the case was solved without reserve."""
    try:
        tuned = dm.tune(sample, dm.TprFprModel(*bounds), directions=directions)
    except dm.InfeasibleError as error:
        assert expected is None or ("float64" in str(error) and not must_solve)
        return expected is None
    certificate, point = tuned.certificate, tuned.point
    again = dm.evaluate(tuned.rule, sample)
    np.testing.assert_equal(again, point)
    # Where no unit vector decides so in float64, the larger weight is 1.
    length = np.hypot(*tuned.rule.direction)
    assert length == pytest.approx(1) or (
        not must_solve and np.abs(tuned.rule.direction).max() == 1
    )
    assert point.tpr >= bounds[0]
    assert point.fpr <= bounds[1]
    assert expected is not None
    objective, nI, nO = expected
    assert certificate.lower_bound <= float(objective)
    found = point.selective_risk, -point.accepted_id, point.accepted_ood
    best = float(objective), -nI, nO
    assert found >= best
    if certificate.status == "optimal":
        assert point.selective_risk == float(objective)
    else:
        assert certificate.status == "unresolved"
        assert certificate.unresolved > 0
        assert certificate.lower_bound == float(objective) < point.selective_risk
    if certificate.unresolved == 0:
        assert found == best
    if must_solve:
        assert (found, certificate.unresolved) == (best, 0)
    return found == best


def any_model(rng, *, sets, groups):
    """Return a model of any kind; `sets` and `groups` tell whether rows have them."""
    pick = lambda *values: float(rng.choice(values))  # noqa: E731
    if (sets or groups) and rng.random() < 0.6:
        bounds = [dm.Bound("fpr", at_most=pick(0.2, 0.5, 0.7), ood_set=of) for of in "uv" if sets]
        for of in "ab" if groups else "":
            bounds += [
                dm.Bound("tpr", at_least=pick(0.2, 0.5), group=of)
                if rng.random() < 0.6
                else dm.Bound("selective_risk", at_most=pick(0.2, 0.4, 0.5), group=of)
            ]
        kept = [bound for bound in bounds if rng.random() < 0.7]
        return dm.RejectionModel(str(rng.choice(["tpr", "selective_risk", "fpr"])), kept)
    return [
        dm.RiskFprModel(0.4, 0.6),
        dm.RiskFprModel(pick(0.1, 0.2, 0.3), pick(0.1, 0.3, 0.6)),
        dm.TprFprModel(pick(0.3, 0.5, 0.8), pick(0.1, 0.3, 0.5)),
        dm.PrecisionRecallModel(pick(0.5, 0.7, 0.8), pick(0.3, 0.6), 0.4),
        dm.CostModel(pick(0.1, 0.3, 0.5), 1, 0, 0.4),
    ][rng.integers(5)]


def any_case(rng, kind):
    """Return some rows, at times some dozens, any model and any set of directions."""
    n = int(rng.choice([rng.integers(4, 11), 15, 25, 40], p=[0.7, 0.1, 0.1, 0.1]))
    scores, n_id = np.asarray(kind(rng, n), float), max(2, 2 * n // 3)
    loss = (rng.random(n_id) < 0.4) * (rng.integers(1, 4, n_id) if rng.random() < 0.2 else 1.0)
    sets, groups = rng.random(2) < 0.3
    weights = rng.integers(1, 4, n_id) if rng.random() < 0.2 else None
    names = np.where(np.arange(n_id) % 2, "a", "b") if groups else None
    ood = scores[n_id:]
    if sets:
        ood = {"u": ood[::2], "v": ood[1::2] if len(ood) > 1 else ood}
    sample = dm.Sample(scores[:n_id], loss, ood, id_weight=weights, id_group=names)
    directions = str(rng.choice(["nonneg", "nonneg", "real", "paper", "circle"]))
    return sample, any_model(rng, sets=sets, groups=groups), directions


@pytest.mark.parametrize("kind", FLOATS, ids=lambda kind: kind.__name__)
def test_engines_say_what_walks_through_all_cells_say(kind, monkeypatch):
    rng = np.random.default_rng([8, len(kind.__name__)])
    for _ in range(CASES):
        try:
            given = any_case(rng, kind)
        except dm.InvalidInputError:
            continue  # no row of a group, or scores that differ by too many decades
        compare_with_walks(given, monkeypatch)


def compare_with_walks(given, monkeypatch):
    expected = walked(*given)
    for name in NAMES:
        if name == "numpy" or compiled.AVAILABLE:
            monkeypatch.setenv(VARIABLE, name)
            assert searched(*given) == expected


# Three lines of rounded multiples of a third meet in a point, but for rounding: at an end of a box,
# or in several points at the same t.
@pytest.mark.parametrize("model", [dm.RiskFprModel(0.4, 0.6), dm.TprFprModel(0.5, 0.3)])
@pytest.mark.parametrize(
    ("step", "rows", "seed"),
    [
        *((3, 30, seed) for seed in (55, 79, 244, 246, 614, 1068, 1143, 1316, 1433)),
        *((7, 30, 1014), (1.5, 300, 311), (1.5, 300, 649)),
        *((3, 300, seed) for seed in (173, 411, 488, 606)),
    ],
)
def test_no_cell_between_lines_of_a_lattice_is_overlooked(step, rows, seed, model, monkeypatch):
    rng = np.random.default_rng(seed)
    scores, n_id = np.rint(step * rng.normal(size=(rows, 2))) / step, 2 * rows // 3
    sample = dm.Sample(scores[:n_id], rng.random(n_id) < 0.4, scores[n_id:])
    compare_with_walks((sample, model, "real"), monkeypatch)


def test_the_lowest_cell_is_searched_where_values_are_rounded_up(monkeypatch):
    id_ = [
        *([0.5127336868404948, 0.7989700194404068], [0.09065906062399776, 0.3676856957005022]),
        *([0.04978123002195911, 0.20817639518398154], [0.5237129365887834, 0.8840121516663877]),
    ]
    ood = [
        *([0.12995149343859225, 0.5290607945352332], [0.04978123002195911, 0.20817639518398157]),
        [0.5006496951891282, 0.7024286323172958],
    ]
    sample = dm.Sample(id_, [0, 1, 1, 0], {"u": ood[:2], "v": ood[2:]})
    bounds = [dm.Bound("fpr", at_most=0.2, ood_set=name) for name in "uv"]
    model = dm.RejectionModel("fpr", bounds)
    assert walked(sample, model, "nonneg") == ("optimal", 0, 0, (1, 0, 1))
    compare_with_walks((sample, model, "nonneg"), monkeypatch)


def test_scores_far_beyond_the_middle_ones_do_not_overflow(monkeypatch):
    # Middle scores differ by 240 decades. Brought to one scale others would be beyond 1e308.
    id_ = [[0, 1 / 3], [-1e204, 2 / 3], [0, -1e91], [0, -1e244], [0, -1e240], [1, 1 / 3]]
    ood = [[1, 1], [1, 1 / 3], [2 / 3, 0], [1 / 3, 0]]
    sample = dm.Sample(np.array(id_) * 1e20, [0, 0, 0, 1, 1, 0], np.array(ood) * 1e20)
    model = dm.RiskFprModel(0.4, 0.6)
    assert walked(sample, model, "nonneg")[0] == "optimal"
    compare_with_walks((sample, model, "nonneg"), monkeypatch)


def test_cells_beside_their_box_are_not_believed(monkeypatch):
    # Some lines are 200 decades beyond the others: a box that was cut reaches by their rounding
    # errors beyond the box it is a part of, across lines that it does not know. A set with masses
    # 5, 2, 2 seemed to be there, of a rule that accepts 8, 2, 4.
    id_ = [[2, -1e231], [0, 2], [0, 0], [0, 3], [1, 2], [0, 1], [1, 0], [1, 1e25], [1, 3], [2, 3]]
    ood = [[-1e221, 1], [3, 3], [3, -1e275], [1, -1e243], [2, 0]]
    losses = [1, 0, 1, 0, 0, 0, 1, 1, 1, 0]
    sample = dm.Sample(np.array(id_) * 1e20, losses, np.array(ood) * 1e20)
    model = dm.RiskFprModel(0.4, 0.6)
    assert walked(sample, model, "nonneg")[2:] == (3, (5, 3, 2))
    compare_with_walks((sample, model, "nonneg"), monkeypatch)
    point = dm.tune(sample, model).point
    assert (point.accepted_id, point.accepted_ood, point.accepted_loss) == (5, 3, 2)


def test_products_below_the_smallest_floats_are_in_doubt(monkeypatch):
    # On the scale of 1e48 brought to that of the second score nothing is left of 1e-250.
    id_ = [
        *([1e48, 1], [0, 1e-287], [3e-240, 2e-293], [1e-245, 0], [1e48, 3e-287], [0, 3e-292]),
        *([2e-241, 0], [2e-233, 0], [3e-250, 3e-290], [1e-240, 2e-285]),
    ]
    ood = [
        *([1e48, 3e-289], [1e-234, 2e-295], [0, 2e-291], [1e-237, 1e-294], [2e-244, 3e-293]),
        *([2e-236, 0], [1e48, 0], [0, 3e-296], [3e-244, 1e-290]),
    ]
    sample = dm.Sample(id_, [1, 1, 0, 0, 1, 1, 0, 0, 0, 0], {"u": ood[:7], "v": ood[7:]})
    model = dm.RejectionModel("tpr", [dm.Bound("fpr", at_most=0.7, ood_set="u")])
    assert walked(sample, model, "circle")[0] == "unresolved"
    compare_with_walks((sample, model, "circle"), monkeypatch)


def test_a_rule_of_rounding_is_none(monkeypatch):
    # All rows are in line but for rounding. Float64 has a rule that accepts 8 of 9 by weight, and
    # no half-plane does so.
    along = np.array([-14, -2, 5, 5, -1, -7, 6, 0]) / 3
    scores = np.column_stack([along, along * 1.1 + 0.1])
    ood = {"u": scores[5::2], "v": scores[6:7]}
    weights, losses = [1, 1, 2, 2, 3], [0, 0, 0, 1, 1]
    sample = dm.Sample(scores[:5], losses, ood, id_weight=weights)
    bounds = [dm.Bound("fpr", at_most=0.5, ood_set="u"), dm.Bound("fpr", at_most=2 / 3)]
    compare_with_walks((sample, dm.RejectionModel("tpr", bounds), "paper"), monkeypatch)


@pytest.mark.parametrize("name", NAMES)
def test_cells_too_narrow_for_float64_at_the_end_of_a_chart_are_counted(name, monkeypatch):
    # (2, 0), (3, 1), (5, 3), in thirds, are in line but for rounding: only a half-plane with
    # weights 1 and -1 + 2e-16 rejects the OOD row in the middle and accepts the others.
    if name == "compiled" and not compiled.AVAILABLE:
        pytest.skip("no compiled engine")
    monkeypatch.setenv(VARIABLE, name)
    id_, ood = np.array([[0, 2], [2, 0], [5, 3]]) / 3, np.array([[4, 3], [3, 1], [5, 3]]) / 3
    sample = dm.Sample(id_, [1, 1, 1], ood)
    columns = [whole(column, decimal=False) for column in np.vstack([id_, ood]).T]
    losses = [1, 1, 1, None, None, None]
    rows = [(p, loss, 1) for p, loss in zip(zip(*columns, strict=True), losses, strict=True)]
    expected = brute_force(rows, ("tprfpr", 0.3, 1.0), "real")
    assert expected == (1, 3, 2)
    assert not check(sample, (0.3, 1.0), "real", expected, must_solve=False)


@pytest.mark.parametrize("constant", [0.25, -7.123, 1e18, 1e-36])
@pytest.mark.parametrize("other", ["constant", "decimals", "any"])
@pytest.mark.parametrize("first", [True, False])
def test_a_constant_beside_a_score_changes_nothing(constant, other, first):
    rng = np.random.default_rng(int(first))
    draw = {
        "constant": lambda n: np.full(n, 0.3),
        "decimals": lambda n: rng.choice([0.1, 0.2, 0.3, 0.7], n),
        "any": lambda n: rng.normal(size=n),
    }[other]
    for _ in range(10):
        id_, ood = draw(5), draw(3)
        loss = rng.integers(0, 2, 5)
        pairs = [np.column_stack([np.full(len(x), constant), x]) for x in (id_, ood)]
        if not first:
            pairs = [pair[:, ::-1] for pair in pairs]
        points = []
        for sample in (dm.Sample(pairs[0], loss, pairs[1]), dm.Sample(id_, loss, ood)):
            try:
                points.append(dm.tune(sample, dm.TprFprModel(0.4, 0.5)).point)
            except dm.InfeasibleError:
                points.append(None)
        assert points[0] == points[1]


@pytest.mark.parametrize("rows", [600, 1700])
@pytest.mark.parametrize("digits", [1, 2])
@pytest.mark.parametrize("seed", range(max(1, CASES // 120)))
def test_frontiers_of_decimals_are_what_tune_finds_on_either_engine(
    rows, digits, seed, monkeypatch
):
    rng = np.random.default_rng([rows, digits, seed])
    id_, ood = (rng.normal(at, 1, (rows // 2, 2)).round(digits) for at in (0, 0.8))
    sample = dm.Sample(id_, rng.random(rows // 2) < 0.1 + 0.2 * (id_[:, 0] > 0.5), ood)
    tprs, fprs = np.linspace(0.1, 1, 7).round(3), np.linspace(0, 1, 7).round(3)
    found = {}
    for name in [name for name in NAMES if name == "numpy" or compiled.AVAILABLE]:
        monkeypatch.setenv(VARIABLE, name)
        frontier = dm.frontier(sample, min_tpr=tprs, max_fpr=fprs)
        masses = frontier.accepted_id, frontier.accepted_ood, frontier.accepted_loss
        found[name] = np.stack(masses)
    for masses in found.values():
        np.testing.assert_array_equal(masses, found["numpy"])
    ready = dm.prepare(sample)
    for i, j in rng.integers(0, 7, (6, 2)):
        try:
            point = dm.tune(ready, dm.TprFprModel(tprs[i], fprs[j])).point
            expected = point.accepted_id, point.accepted_ood, point.accepted_loss
        except dm.InfeasibleError:
            expected = (np.nan,) * 3
        np.testing.assert_array_equal(found["numpy"][:, i, j], expected)
