"""`demur reproduce table2` and `heldout` on small data: whole runs, resumed runs, wrong input."""

import json
import os
import signal
import subprocess
import time

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("PIL.Image")

from click.testing import CliRunner
from commands import ENVIRONMENT, command, run
from tiny_sets import write_mnist_setup

from demur import metrics
from demur.cli.commands.reproduce import command as reproduce
from demur.detectors import Knn, React, Vim
from demur.errors import InvalidInputError
from demur.reproduce.heldout import heldout
from demur.reproduce.table2_scores import PAIRS, Place, compute_scores

THREADS = {"OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_mnist_setup(folder)
    return folder


@pytest.fixture(scope="module")
def cached(data, tmp_path_factory):
    """A finished run and its cache."""
    folder = tmp_path_factory.mktemp("run")
    options = ["--data", data, "--train", 6, "--replicates", 20, "--json"]
    done = run(folder, "reproduce", "table2", *options, **THREADS)
    assert done.returncode == 0, done.stderr
    return folder, options, json.loads(done.stdout)


@pytest.fixture(scope="module")
def scores(data, cached):
    place = Place(data, data / "weights", cached[0] / "demur-cache")
    return compute_scores("mnist", place, train_epochs=6)


def test_numbers_are_those_of_the_library(cached, scores):
    table = cached[2]
    assert table["n_id"] == 120
    assert table["test_accuracy"] == scores.accuracy == 1 - scores.id_loss.mean()
    assert scores.accuracy > 0.5
    for ood, block in table["ood"].items():
        needed = {m: metrics.fpr_at_tpr(scores.sample(m, ood), 0.8) for m in block["needed_fpr"]}
        assert block["needed_fpr"] == needed
        assert block["target_fpr"] == max(needed.values())
        assert block["never_worse_than_parts"] == dict.fromkeys(PAIRS, True)
        msp = scores.sample("msp", ood)
        areas = block["methods"]["MSP"]["areas"]
        assert areas[0] == pytest.approx(metrics.auroc(msp))
        assert areas[2] == pytest.approx(metrics.oscr(msp, per="all"))
        assert block["methods"]["MSP"]["printed"]["auroc"] > 0.9


def in_process(*arguments):
    done = CliRunner().invoke(reproduce, [str(word) for word in arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_second_run_reads_everything(cached, monkeypatch):
    # With other threads a detector's scores have other last bits, and other results' names.
    for detector in (Knn, React, Vim):
        monkeypatch.setattr(detector, "fit", None)
    folder, options, _ = cached
    cache = folder / "demur-cache"
    stamps = {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    text = in_process("table2", *options[:-1], "--cache", cache)
    assert stamps == {path: path.stat().st_mtime_ns for path in cache.iterdir()}
    assert "all are used: mnist-test, notmnist, fashionmnist-test, cifar10-test" in text
    assert "its defaults" in text
    assert "trained here for 6 epochs" in text
    assert "holds in 6 of 6 cases" in text
    assert text.count("KNN+MSP ") == 3


def test_a_killed_run_goes_on(data, cached, tmp_path):
    _, options, expected = cached
    process = subprocess.Popen(
        command("reproduce", "table2", *options), cwd=tmp_path, env=ENVIRONMENT | THREADS
    )
    cache = tmp_path / "demur-cache"
    give_up = time.monotonic() + 60
    while len(list(cache.glob("mnist-test-[!l]*.npz"))) < 1 and time.monotonic() < give_up:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = {path.name: path.stat().st_mtime_ns for path in cache.glob("*.npz")}
    assert kept
    assert len(kept) < len(list((cached[0] / "demur-cache").glob("*.npz")))
    done = run(tmp_path, "reproduce", "table2", *options, **THREADS)
    assert json.loads(done.stdout) == expected
    assert all((cache / name).stat().st_mtime_ns == stamp for name, stamp in kept.items())


def test_heldout_rules_come_from_the_other_half(scores):
    study = heldout(scores, splits=5, seed=1)
    again = heldout(scores, splits=5, seed=1)
    for ood, rows in study.outcomes.items():
        tuned = {name: row.values[:, 0] for name, row in rows.items()}
        for pair, parts in PAIRS.items():
            for part in parts:
                assert not (tuned[pair] > tuned[part]).any()
        singles = np.array([tuned[m] for m in ("msp", "mls", "odin", "react", "knn", "vim")])
        assert (np.nanmin(singles, axis=0) == tuned["best single"]).all()
        for name, row in rows.items():
            assert np.array_equal(row.values, again.outcomes[ood][name].values, equal_nan=True)
        gap = rows["knn+msp"].values[:, 1] - rows["msp"].values[:, 1]
        found = study.difference(ood, "knn+msp", "msp")
        assert found.mean == pytest.approx(np.nanmean(gap))
        assert found.low <= found.mean <= found.high
        assert found.wins == np.mean(gap < 0)


def test_heldout_prints_a_table(cached, data):
    options = ["--data", data, "--train", 6, "--halvings", 3, "--cache", cached[0] / "demur-cache"]
    text = in_process("heldout", *options)
    assert "3 random halvings" in text
    assert text.count("SIRC KNN+MSP") == 6
    plain = json.loads(in_process("heldout", *options, "--json"))
    assert plain["splits"] == 3
    assert set(plain["ood"]) == {"notmnist", "fashionmnist", "cifar10"}


@pytest.mark.parametrize(
    ("setup", "options", "message"),
    [
        ("cifar10", {"train_epochs": 1}, "only the LeNet"),
        ("mnist", {"network": "resnet20"}, "not for mnist"),
        ("mnist", {"all_mnist": True}, "not an OOD set"),
        ("mnist", {}, "--download or --train EPOCHS"),
    ],
)
def test_wrong_options_are_named(data, tmp_path, setup, options, message):
    with pytest.raises(InvalidInputError, match=message):
        compute_scores(setup, Place(data, tmp_path, tmp_path / "c"), **options)
