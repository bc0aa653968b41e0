"""Scores over many decades, and single values beyond all others, cost about what others do.

What is counted is boxes, which no machine changes.
"""

import numpy as np
import pytest

import demur as dm
from demur._kernels import compiled

ENGINES = [
    pytest.param(
        "compiled",
        marks=pytest.mark.skipif(not compiled.AVAILABLE, reason="the extension is not built"),
    ),
    "numpy",
]
NOISE = {"compiled": 3_000, "numpy": 20_000}
"""The most boxes of noise, an input made to be hard."""
CLOUDS = {"compiled": 5_000, "numpy": 1_500}
"""The most boxes of two informative scores, whatever a few of their values are."""


def clouds(n=4000):
    rng = np.random.default_rng(1)
    id_scores, ood = rng.normal(size=(n, 2)), rng.normal(2, 1, (n, 2))
    return id_scores, rng.random(n) < 1 / (1 + np.exp(3 - 2 * id_scores[:, 0])), ood


def boxes_of(sample, model, directions):
    result = dm.tune(sample, model, directions=directions)
    assert result.certificate.status == "optimal"
    return result.certificate.boxes


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("directions", ["nonneg", "circle"])
@pytest.mark.parametrize(
    "far", [(1e8, 1e8), (1e8, -1e8), (1e30, 1e30), (1e30, -1e30), (1e300, -1e300)]
)
@pytest.mark.parametrize("engine", ENGINES)
def test_values_beyond_all_others(engine, far, directions, monkeypatch):
    monkeypatch.setenv("DEMUR_ENGINE", engine)
    id_scores, wrong, ood = clouds()
    rng = np.random.default_rng(7)
    for column, value in enumerate(far):
        id_scores[rng.choice(len(id_scores), 5, replace=False), column] = value
        ood[rng.choice(len(ood), 2, replace=False), column] = -value
    sample = dm.Sample(id_scores, wrong, ood)
    assert boxes_of(sample, dm.TprFprModel(0.8, 0.2), directions) <= CLOUDS[engine]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("directions", ["nonneg", "real", "circle"])
@pytest.mark.parametrize("spread", [2, 4, 6, 12])
@pytest.mark.parametrize("engine", ENGINES)
def test_noise_over_many_decades(engine, spread, directions, monkeypatch):
    monkeypatch.setenv("DEMUR_ENGINE", engine)
    rng = np.random.default_rng(0)
    id_scores, ood = (np.exp(spread * rng.normal(size=(2000, 2))) for _ in range(2))
    sample = dm.Sample(id_scores, rng.random(2000) < 0.05, ood)
    assert boxes_of(sample, dm.TprFprModel(0.8, 1.0), directions) <= NOISE[engine]


SHAPES = {
    "normal": lambda z: z,
    "cauchy": lambda z: z / z[:, ::-1],
    "exp(4z)": lambda z: np.exp(4 * z),
    "exp(10z)": lambda z: np.exp(10 * z),
    "sinh(6z)": lambda z: np.sinh(6 * z),
    "one column": lambda z: z * [1, 0] + np.exp(8 * z) * [0, 1],
    "ratio": lambda z: np.column_stack([np.exp(3 * (z[:, 0] - z[:, 1])), np.exp(3 * z[:, 1])]),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("directions", ["nonneg", "real", "paper", "circle"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("engine", ENGINES)
def test_noise_costs_the_same_whatever_its_scale(engine, shape, directions, monkeypatch):
    """Cuts that followed the height of boxes took 74,000 of exp(10z), compiled.

    Strips of equal ratio took 20,000 and more there in NumPy.
    """
    monkeypatch.setenv("DEMUR_ENGINE", engine)
    rng = np.random.default_rng(0)
    id_scores, ood = (SHAPES[shape](rng.normal(size=(10_000, 2))) for _ in range(2))
    sample = dm.Sample(id_scores, rng.random(10_000) < 0.05, ood)
    most = 5_000 if engine == "compiled" else 1_000
    assert boxes_of(sample, dm.TprFprModel(0.8, 1.0), directions) <= most


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", range(12))
@pytest.mark.skipif(not compiled.AVAILABLE, reason="the extension is not built")
def test_lines_that_meet_but_for_rounding_are_not_cut_again_and_again(seed, monkeypatch):
    """Up to 1,200 boxes; chords through such a point that seemed to part lines took any number."""
    monkeypatch.setenv("DEMUR_ENGINE", "compiled")
    rng = np.random.default_rng(seed)
    scores = np.rint(3 * rng.normal(size=(200, 2))) / 3
    for _ in range(3):
        scores = np.where(rng.random(scores.shape) < 0.3, np.nextafter(scores, 9), scores)
    sample = dm.Sample(scores[:130], rng.random(130) < 0.3, scores[130:])
    assert dm.tune(sample, dm.TprFprModel(0.3, 0.7)).certificate.boxes <= 2_500


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ENGINES)
def test_what_is_infeasible_over_many_decades_is_found_to_be(engine, monkeypatch):
    monkeypatch.setenv("DEMUR_ENGINE", engine)
    rng = np.random.default_rng(0)
    id_scores, ood = (np.exp(6 * rng.normal(size=(1000, 2))) for _ in range(2))
    sample = dm.Sample(id_scores, rng.random(1000) < 0.05, ood)
    model = dm.TprFprModel(0.8, 0.7)
    with pytest.raises(dm.InfeasibleError):
        dm.tune(sample, model, directions="circle", search=dm.Exact(budget=NOISE[engine]))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("engine", ENGINES)
def test_no_bound_falls_below_the_best_row(engine, monkeypatch):
    """Boxes that float64 cannot take apart are bounded by rows, not by what rounding leaves."""
    monkeypatch.setenv("DEMUR_ENGINE", engine)
    rng = np.random.default_rng(3)
    atom = np.maximum(rng.normal(size=400), 0.3)
    scores = np.column_stack([10.0 ** (-30 + 12 * rng.normal(size=400)), atom])
    foreign = np.column_stack([10.0 ** (-30 + 12 * rng.normal(size=20)), atom[:20]])
    for loss, least in ((np.ones(400), 1.0), (rng.random(400) < 0.1, 0.0)):
        sample = dm.Sample(scores, loss, foreign)
        search = dm.Exact(budget=2000)
        found = dm.tune(sample, dm.TprFprModel(0.5, 0.9), directions="circle", search=search)
        assert found.certificate.lower_bound >= least


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("directions", ["nonneg", "circle"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("engine", ENGINES)
def test_a_score_that_many_rows_share_beside_one_of_many_decades(
    engine, seed, directions, monkeypatch
):
    """Lines of the rows that share a score are parallel: to cut boxes of them has no end."""
    monkeypatch.setenv("DEMUR_ENGINE", engine)
    rng = np.random.default_rng(seed)
    atom = np.maximum(rng.normal(size=400), 0.3)
    scores = np.column_stack([10.0 ** rng.uniform(-39, -21, 400), atom])
    foreign = scores[:20] * [2, 1]
    sample = dm.Sample(scores, rng.random(400) < 0.1, foreign)
    found = dm.tune(sample, dm.TprFprModel(0.5, 0.9), directions=directions)
    assert found.certificate.status in ("optimal", "unresolved")
    assert found.certificate.boxes <= NOISE[engine]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("directions", ["nonneg", "circle"])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("engine", ENGINES)
def test_a_fifth_of_all_scores_beyond_the_others(engine, seed, directions, monkeypatch):
    """Up to 3,800 boxes, compiled, and 2,900; NumPy had no end where two such lines cancel."""
    monkeypatch.setenv("DEMUR_ENGINE", engine)
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(2000, 2)) + np.repeat([0, 2], 1000)[:, None]
    far = rng.random(scores.shape) < 0.2
    powers = rng.integers(8, 280, far.sum()).astype(float)
    scores[far] = 10.0**powers * rng.choice([-1, 1], far.sum())
    sample = dm.Sample(scores[:1000], rng.random(1000) < 0.1, scores[1000:])
    for least in (0.7, 0.8):
        assert boxes_of(sample, dm.TprFprModel(least, 0.5), directions) <= 5_000
