"""The paper's grid of angles: the same rule from every engine, and a word about units."""

import os
import subprocess
import sys

import numpy as np
import pytest
from instances import random_model, random_rows, to_sample

import demur as dm
from demur._kernels import compiled


def rule_of(sample, model, angles, directions):
    try:
        tuned = dm.tune(sample, model, search=dm.Grid(angles), directions=directions)
    except dm.InfeasibleError as error:
        return str(error)
    return tuned.rule, tuned.point.accepted_id, tuned.point.accepted_ood


@pytest.mark.skipif(not compiled.AVAILABLE, reason="the extension is not built")
@pytest.mark.parametrize("directions", ["nonneg", "paper", "circle"])
@pytest.mark.filterwarnings("ignore::demur.ScoreUnitsWarning")
def test_engines_give_the_same_rule(directions, monkeypatch):
    rng = np.random.default_rng(17)
    for _ in range(150):
        rows = random_rows(rng, 2)
        sample, (_, model) = to_sample(rows), random_model(rng, rows)
        angles = int(rng.integers(1, 12))
        found = []
        for name in ("compiled", "numpy"):
            monkeypatch.setenv("DEMUR_ENGINE", name)
            found.append(rule_of(sample, model, angles, directions))
        assert found[0] == found[1]


def cloud(factor):
    rng = np.random.default_rng(2)
    unit = np.array([1.0, factor])
    wrong = rng.random(400) < 0.1
    return dm.Sample(rng.normal(size=(400, 2)) * unit, wrong, rng.normal(1, size=(300, 2)) * unit)


def test_units_that_differ_are_told_with_numbers():
    sample, model = cloud(500.0), dm.TprFprModel(0.5, 0.9)
    ranges = [float(np.diff(np.quantile(column, [0.1, 0.9]))[0]) for column in sample.id_scores.T]
    with pytest.warns(dm.ScoreUnitsWarning) as caught:
        dm.tune(sample, model, search=dm.Grid(360), directions="nonneg")
    words = str(caught[0].message)
    factor = float(words.split("a factor of ")[1].split(":")[0])
    assert factor == pytest.approx(ranges[1] / ranges[0], rel=0.05)
    # Angles a of 360 over a quarter with tan(a) * factor between 1/10 and 10.
    angles = np.tan(np.linspace(0, np.pi / 2, 360)[:-1]) * factor
    expected = ((angles >= 0.1) & (angles <= 10)).sum()
    assert abs(int(words.split("Only ")[1].split(" of ")[0]) - expected) <= 1
    assert caught[0].filename == __file__
    with pytest.warns(dm.ScoreUnitsWarning):
        dm.frontier(sample, search=dm.Grid(36), min_tpr=[0.5], max_fpr=[0.5])


def test_no_word_about_units_that_fit_or_do_not_matter():
    dm.tune(cloud(3.0), dm.TprFprModel(0.5, 0.9), search=dm.Grid(36))
    dm.tune(cloud(500.0), dm.TprFprModel(0.5, 0.9))
    dm.tune(cloud(500.0).score(1), dm.TprFprModel(0.5, 0.9), search=dm.Grid(36))


def test_the_command_line_warns_in_one_line(tmp_path):
    sample = cloud(500.0)
    id_rows = sample.id_scores, sample.id_loss
    rows = [f"{a},{b},{int(loss)},0" for (a, b), loss in zip(*id_rows, strict=True)]
    rows += [f"{a},{b},0,1" for a, b in sample.ood_scores]
    path = tmp_path / "scores.csv"
    path.write_text("\n".join(["r,g,loss,ood", *rows]) + "\n")
    words = ["tune", str(path), "--scores", "r,g", "--loss", "loss", "--ood", "ood"]
    words += ["--min-tpr", "0.5", "--max-fpr", "0.9", "--grid", "36"]
    done = subprocess.run(
        [sys.executable, "-m", "demur", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "NO_COLOR": "1"},
    )
    assert done.returncode == 0, done.stderr
    warned = [line for line in done.stderr.splitlines() if "units of the two scores" in line]
    assert len(warned) == 1 and warned[0].startswith("demur: warning: ")
