"""Higher = more doubt: with the benchmark's LeNet every detector doubts foreign images more.

Runs where the data and weights are at hand (``DEMUR_DATA``); otherwise it is skipped.
"""

import os
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("PIL.Image")

from demur import Sample, metrics  # noqa: E402
from demur import detectors as dt  # noqa: E402
from demur.adapters.torch import Odin, extract  # noqa: E402
from demur.reproduce.image_sets import image_set  # noqa: E402
from demur.reproduce.networks import NETWORKS, load_weights  # noqa: E402

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
DATA = Path(os.environ.get("DEMUR_DATA", SHARED))
WEIGHTS = next((p for p in (DATA / "weights", SHARED / "weights") if p.is_dir()), DATA / "weights")
FOLDERS = {
    "fashionmnist-test": "fashion-mnist",
    "notmnist": "notMNIST_small",
    "cifar10-test": "cifar-10-batches-py",
}
ROWS = 1500
ARRAYS = [name for name, entry in dt.CATALOG.items() if "gradients" not in entry.needs]

pytestmark = pytest.mark.skipif(
    not (DATA / "mnist").is_dir() or not (WEIGHTS / "mnist_lenet_openood.npz").is_file(),
    reason="needs MNIST and the LeNet's weights: set DEMUR_DATA",
)


def batches(pixels):
    transform = NETWORKS["lenet"].transform
    for start in range(0, len(pixels), 250):
        yield torch.from_numpy(transform.apply(pixels[start : start + 250], augment=None))


@pytest.fixture(scope="module")
def lenet():
    model = NETWORKS["lenet"].build().eval()
    load_weights("lenet", model, WEIGHTS)
    return model


@pytest.fixture(scope="module")
def pixels():
    """Images of every set that is there, spread over all of its classes."""
    images, labels = image_set("mnist-test", DATA).load()
    # Detectors that learn do so on one half of the test images: the others take minutes to read.
    found = {"learn": (images[::2], labels[::2]), "id": (images[1::6], labels[1::6])}
    for name, folder in FOLDERS.items():
        if (DATA / folder).is_dir():
            images, labels = image_set(name, DATA).load()
            rows = np.linspace(0, len(images) - 1, ROWS).astype(int)
            found[name] = images[rows], labels[rows]
    return found


@pytest.fixture(scope="module")
def activations(lenet, pixels):
    head = [part for part in lenet.modules() if isinstance(part, torch.nn.Linear)][-1]
    made = {}
    for name, (images, labels) in pixels.items():
        found = extract(lenet, batches(images), layer=head, progress=False)
        made[name] = dt.Activations(
            logits=found.logits,
            features=found.features,
            weight=found.weight,
            bias=found.bias,
            labels=labels,
        )
    return made


def check(id_scores, ood_scores, least=0.8):
    assert ood_scores.mean() > id_scores.mean()
    sample = Sample(id_scores, np.zeros(len(id_scores)), ood_scores=ood_scores)
    assert metrics.auroc(sample) > least


def foreign(sets):
    return [name for name in FOLDERS if name in sets]


def test_the_network_is_the_one_of_the_benchmark(activations):
    own = activations["id"]
    assert (own.logits.argmax(axis=1) == own.labels).mean() > 0.975
    assert foreign(activations), "no OOD set is there"


@pytest.mark.parametrize("name", ARRAYS)
def test_foreign_images_are_doubted_more(name, activations):
    # The catalog's own defaults, with training activations for those that need them.
    score = dt.CATALOG[name].scorer(activations["learn"])
    own = score(activations["id"])
    for ood in foreign(activations):
        check(own, score(activations[ood]))


@pytest.mark.parametrize("odin", [Odin(10.0, 0.0014, 0.5), Odin(std=0.5)])
def test_odin_doubts_foreign_images_more(odin, lenet, pixels):
    few = {name: images[::5] for name, (images, _) in pixels.items()}
    own = odin.score(lenet, batches(few["id"]), progress=False)
    for ood in foreign(few):
        check(own, odin.score(lenet, batches(few[ood]), progress=False))


def test_combinations_doubt_foreign_images_more(activations):
    knn = dt.Knn().fit(activations["learn"])
    pairs = {
        name: (dt.msp(activations[name].logits), knn.score(activations[name]))
        for name in ("id", *foreign(activations))
    }
    sirc = dt.Sirc().fit(pairs["id"][1])
    for ood in foreign(activations):
        plug_in = dt.PlugIn(reject_id=0.1, accept_ood=0.05).fit(pairs["id"][1], pairs[ood][1])
        for combined in (sirc, plug_in):
            check(combined.score(*pairs["id"]), combined.score(*pairs[ood]))
