"""Table 2 against the paper's numbers, where the benchmark's data and weights are at hand.

The quick part needs the idx files of MNIST and Fashion-MNIST and the weights; the whole table
(minutes) also needs ``DEMUR_FULL=1`` and all data sets, in the folder ``DEMUR_DATA``.
"""

import os
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("PIL.Image")

from demur import PrecisionRecallModel, Sample, TprFprModel, metrics, tune  # noqa: E402
from demur._kernels import compiled  # noqa: E402
from demur._kernels.engines import NAMES, VARIABLE  # noqa: E402
from demur.detectors import React, mls, msp  # noqa: E402
from demur.reproduce.image_sets import image_set  # noqa: E402
from demur.reproduce.networks import NETWORKS, Cache, Runner, load_weights  # noqa: E402
from demur.reproduce.table2 import fpr_target  # noqa: E402
from demur.reproduce.table2_scores import (  # noqa: E402
    PAIRS,
    SETUPS,
    SINGLES,
    Place,
    SetPart,
    Splits,
    compute_scores,
)

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
DATA = Path(os.environ.get("DEMUR_DATA", SHARED))
WEIGHTS = next((p for p in (DATA / "weights", SHARED / "weights") if p.is_dir()), DATA / "weights")
SPLITS = next(
    (p for p in (f / "splits" / "openood_splits.npz" for f in (DATA, SHARED)) if p.is_file()), None
)

needs_idx = pytest.mark.skipif(
    SPLITS is None
    or not (DATA / "mnist").is_dir()
    or not (DATA / "fashion-mnist").is_dir()
    or not (WEIGHTS / "mnist_lenet_openood.npz").is_file(),
    reason="needs MNIST, Fashion-MNIST, splits and the LeNet's weights: set DEMUR_DATA",
)
needs_all = pytest.mark.skipif(
    SPLITS is None
    or not os.environ.get("DEMUR_FULL")
    or not (DATA / "cifar-10-batches-py").is_dir(),
    reason="minutes of computing: set DEMUR_FULL=1, and DEMUR_DATA to all data sets",
)


@needs_idx
def test_lenet_on_fashion_mnist(tmp_path):
    network = NETWORKS["lenet"]
    model = network.build().eval()
    digest = load_weights("lenet", model, WEIGHTS)
    runner = Runner(model, digest, network.transform, Cache(tmp_path))
    own, foreign = image_set("mnist-test", DATA), image_set("fashionmnist-test", DATA)
    a, b = runner.activations(own), runner.activations(foreign)
    wrong = a.logits.argmax(axis=1) != a.labels
    assert wrong.sum() == 111
    splits = Splits.read(SPLITS)
    setup = SETUPS["mnist"]
    rows = splits.rows(setup.test, 10_000)
    react = React().fit(a.take(splits.rows(setup.validation, 10_000)))
    pairs = {
        "msp": (msp(a.logits), msp(b.logits)),
        "mls": (mls(a.logits), mls(b.logits)),
        "react": (react.score(a), react.score(b)),
    }
    for method, (id_scores, ood_scores) in pairs.items():
        printed = setup.printed["fashionmnist"][method]
        sample = Sample(id_scores[rows], wrong[rows].astype(float), ood_scores)
        assert metrics.auroc(sample) == pytest.approx(printed.auroc, abs=0.001)
        assert metrics.oscr(sample) == pytest.approx(printed.oscr, abs=0.001)
        risk = metrics.selective_risk_at(sample, TprFprModel(0.8, setup.targets["fashionmnist"]))
        # One error among the 7,204 that TPR 0.8 accepts, and the rounding of the print.
        assert risk == pytest.approx(printed.selective_risk, abs=1 / 7204 + 5e-6)


def whole(setup, tmp_path_factory, **options):
    cache = os.environ.get("DEMUR_CACHE") or tmp_path_factory.mktemp("cache")
    place = Place(DATA, WEIGHTS, Path(cache), SPLITS)
    return compute_scores(setup, place, **options)


@pytest.fixture(scope="module")
def mnist(tmp_path_factory):
    return whole("mnist", tmp_path_factory, bank="augmented")


@needs_all
@pytest.mark.parametrize("ood", list(SETUPS["mnist"].ood))
def test_mnist_agrees_with_the_paper(mnist, ood):
    printed = mnist.setup.printed[ood]
    tolerance = dict.fromkeys(SINGLES, 0.001) | {"knn": 0.002, "vim": 0.012}
    target, _ = fpr_target({method: mnist.sample(method, ood) for method in SINGLES})
    model = TprFprModel(0.8, target)
    for method in SINGLES:
        sample = mnist.sample(method, ood)
        assert metrics.auroc(sample) == pytest.approx(printed[method].auroc, abs=tolerance[method])
        risk = metrics.selective_risk_at(sample, model)
        errors = 1 if method != "vim" else 7
        assert risk == pytest.approx(printed[method].selective_risk, abs=errors / 7204 + 5e-6)
    for pair in PAIRS:
        risk = metrics.selective_risk_at(mnist.sample(pair, ood), model)
        assert risk == pytest.approx(printed[pair].selective_risk, abs=1 / 7204 + 5e-6)
        parts = [metrics.selective_risk_at(mnist.sample(part, ood), model) for part in PAIRS[pair]]
        assert risk <= min(parts)


@needs_all
@pytest.mark.skipif(not compiled.AVAILABLE, reason="the extension is not built")
@pytest.mark.parametrize("pair", list(PAIRS))
@pytest.mark.parametrize("directions", ["nonneg", "circle"])
def test_engines_agree_on_real_scores(mnist, pair, directions, monkeypatch):
    models = (TprFprModel(0.8, 0.05), PrecisionRecallModel(0.8, 0.9, ood_prior=0.3))
    for ood in mnist.ood_scores:
        sample = mnist.sample(pair, ood)
        for model in models:
            found = []
            for name in NAMES:
                monkeypatch.setenv(VARIABLE, name)
                tuned = tune(sample, model, directions=directions)
                found.append((tuned.rule, tuned.point))
            assert found[0] == found[1]


@needs_all
def test_mnist_targets_and_options_are_the_papers(mnist):
    assert (mnist.odin.temperature, mnist.odin.eps) == (10.0, 0.0014)
    assert len(mnist.id_loss) == 9004
    assert {k: len(v["msp"]) for k, v in mnist.ood_scores.items()} == {
        "notmnist": 17_724,
        "fashionmnist": 10_000,
        "cifar10": 9_000,
    }
    target, _ = fpr_target({m: mnist.sample(m, "notmnist") for m in SINGLES})
    assert float(target) == pytest.approx(0.08, abs=0.005)


@needs_all
@pytest.mark.parametrize("name", SETUPS["cifar10"].networks)
def test_networks_reach_their_published_accuracy(name, tmp_path_factory):
    network = NETWORKS[name]
    if name == "densenet100" and os.environ["DEMUR_FULL"] != "2":
        pytest.skip("many minutes of computing: set DEMUR_FULL=2")
    model = network.build().eval()
    digest = load_weights(name, model, WEIGHTS)
    cache = os.environ.get("DEMUR_CACHE") or tmp_path_factory.mktemp("cache")
    runner = Runner(model, digest, network.transform, Cache(cache))
    found = runner.activations(image_set("cifar10-test", DATA))
    right = (found.logits.argmax(axis=1) == found.labels).mean()
    assert right == pytest.approx(network.accuracy, abs=1e-4)


def test_splits_name_the_lists_of_the_setups():
    wanted = {
        part.split
        for setup in SETUPS.values()
        for part in (setup.test, setup.validation, setup.ood_validation, *setup.ood.values())
        if isinstance(part, SetPart) and part.split is not None
    }
    assert len(wanted) == 10
    if SPLITS is None:
        pytest.skip("no split file at hand")
    assert wanted <= set(np.load(SPLITS).files)
