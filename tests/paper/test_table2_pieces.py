"""Reading, transforming, downloading and caching behind Table 2, on small data."""

import functools
import hashlib
import http.server
import io
import pickle
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
Image = pytest.importorskip("PIL.Image")

from tiny_sets import digits, python2_batch, write_idx, write_mnist_setup  # noqa: E402

from demur import Grid, Sample, metrics  # noqa: E402
from demur.errors import InvalidInputError  # noqa: E402
from demur.reproduce import image_sets  # noqa: E402
from demur.reproduce.image_sets import image_set, jpeg_coded, read_batch  # noqa: E402
from demur.reproduce.networks import (  # noqa: E402
    NETWORKS,
    Cache,
    Transform,
    augmented,
    load_weights,
    model_tensors,
    put_tensors,
    read_checkpoint,
    save_tensors,
    tensor_digest,
)
from demur.reproduce.table2 import SortedAreas  # noqa: E402
from demur.reproduce.table2_scores import SETUPS, SetPart, Splits  # noqa: E402


@pytest.mark.parametrize(
    ("name", "parameters", "features"),
    [
        ("lenet", 62_006, 84),
        ("resnet20", 269_722, 64),
        ("resnet56", 853_018, 64),
        ("densenet100", 769_162, 342),
    ],
)
def test_networks_have_the_published_sizes(name, parameters, features):
    model = NETWORKS[name].build().eval()
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert [m for m in model.modules() if isinstance(m, torch.nn.Linear)][
        -1
    ].in_features == features
    size = NETWORKS[name].transform.size
    with torch.no_grad():
        assert model(torch.zeros(2, 3, size, size)).shape == (2, 10)


def test_transform_is_what_torchvision_would_do():
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (3, 32, 32, 3), dtype=np.uint8)
    made = Transform(28, (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)).apply(pixels)
    small = np.asarray(Image.fromarray(pixels[1]).resize((28, 28), Image.Resampling.BILINEAR))
    assert made.shape == (3, 3, 28, 28)
    assert made.dtype == np.float32
    assert made[1, 2, 5, 7] == pytest.approx((small[5, 7, 2] / 255 - 0.3) / 0.4, abs=1e-6)


def test_grey_images_fill_three_channels():
    pixels, _ = digits(2, np.random.default_rng(0))
    made = Transform(28, (0.5,) * 3, (0.5,) * 3).apply(pixels)
    assert (made[:, 0] == made[:, 2]).all()
    assert made[0, 0, 3, 3] == pytest.approx(pixels[0, 3, 3] / 127.5 - 1, abs=1e-6)


def test_jpeg_is_pillows_quality_75():
    pixels, _ = digits(2, np.random.default_rng(1))
    file = io.BytesIO()
    Image.fromarray(pixels[1]).save(file, "JPEG", quality=75)
    assert (jpeg_coded(pixels)[1] == np.asarray(Image.open(file))).all()
    assert (jpeg_coded(pixels) != pixels).any()


def test_augmented_images_are_shifted_or_mirrored_originals():
    rng = np.random.default_rng(2)
    pixels = rng.integers(1, 256, (40, 12, 12, 3), dtype=np.uint8)
    seen = set()
    for before, after in zip(pixels, augmented(pixels, np.random.default_rng(3)), strict=True):
        matches = [
            (flip, top, left)
            for flip in (False, True)
            for top in range(9)
            for left in range(9)
            if (
                np.pad(before[:, ::-1] if flip else before, ((4, 4), (4, 4), (0, 0)))[
                    top : top + 12, left : left + 12
                ]
                == after
            ).all()
        ]
        assert len(matches) == 1
        seen.add(matches[0])
    assert {flip for flip, _, _ in seen} == {False, True}
    assert {0, 8} <= {top for _, top, _ in seen} | {left for _, _, left in seen}


def test_sets_are_read_in_their_official_layouts(tmp_path):
    write_mnist_setup(tmp_path)
    images, labels = image_set("mnist-all", tmp_path).load()
    assert images.shape == (520, 28, 28)
    assert len(labels) == 520
    letters, classes = image_set("notmnist", tmp_path).load()
    assert letters.shape == (60, 28, 28)
    assert (np.diff(classes) >= 0).all()
    pixels, _ = image_set("cifar10-test", tmp_path).load()
    with (tmp_path / "cifar-10-batches-py" / "test_batch").open("rb") as file:
        row = pickle.load(file)[b"data"][7]
    assert pixels[7, 3, 5, 2] == row[2 * 1024 + 3 * 32 + 5]
    with pytest.raises(InvalidInputError, match="'cifar100-test' are missing"):
        image_set("cifar100-test", tmp_path)


def test_unreadable_files_of_notmnist_are_left_out(tmp_path):
    write_mnist_setup(tmp_path)
    bad = tmp_path / "notMNIST_small" / "F" / "Q3Jvc3NvdmVyIEJvbGRPYmxpcXVlLnR0Zg==.png"
    bad.write_bytes(b"")
    assert len(image_set("notmnist", tmp_path).load()[1]) == 60


def test_batches_of_python_2_are_read(tmp_path):
    rows = np.random.default_rng(0).integers(0, 256, (4, 3072), dtype=np.uint8)
    (tmp_path / "b").write_bytes(python2_batch(rows, [3, 1, 4, 1]))
    with (tmp_path / "b").open("rb") as file:
        assert (pickle.load(file, encoding="bytes")[b"data"] == rows).all()
    read = read_batch(tmp_path / "b")
    assert (read["data"] == rows).all()
    assert read["labels"] == [3, 1, 4, 1]


def test_batches_with_labels_that_have_no_end_are_refused(tmp_path):
    write_mnist_setup(tmp_path)
    rows = np.zeros((1, 3072), np.uint8)
    # A tuple that holds a tuple twice, and so on: 2**60 parts for who visits them all.
    endless = b"K\x01K\x02\x86" + b"2\x86" * 60
    content = python2_batch(rows, []).replace(b"](e", endless)
    (tmp_path / "cifar-10-batches-py" / "test_batch").write_bytes(content)
    with pytest.raises(InvalidInputError, match="not a list of numbers"):
        image_set("cifar10-test", tmp_path).load()


class _Bomb:
    def __reduce__(self):
        return (print, ("boom",))


@pytest.mark.parametrize(
    "content", [_Bomb(), {b"data": _Bomb()}, {b"data": np.zeros((2, 3072))}, {b"x": 1}, [1]]
)
def test_other_pickles_are_refused(tmp_path, content, capsys):
    (tmp_path / "b").write_bytes(pickle.dumps(content, protocol=2))
    with pytest.raises(InvalidInputError, match="no CIFAR batch"):
        read_batch(tmp_path / "b")
    assert capsys.readouterr().out == ""


class _Half(http.server.SimpleHTTPRequestHandler):
    """Serves files, with ranges, and breaks the first connection half way."""

    broken = False
    ranges = True

    def do_GET(self):
        body = (Path(self.directory) / self.path.lstrip("/")).read_bytes()
        asked = self.headers.get("Range")
        start = int(asked[6:-1]) if asked and self.ranges else 0
        if start >= len(body):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        if not start and not type(self).broken:
            type(self).broken = True
            self.wfile.write(body[: len(body) // 2])
            return
        self.wfile.write(body[start:])

    def log_message(self, *args):
        pass


@pytest.fixture(params=[True, False], ids=["ranges", "no ranges"])
def server(tmp_path, request):
    handler = type("Handler", (_Half,), {"broken": False, "ranges": request.param})
    folder = tmp_path / "served"
    folder.mkdir()
    make = functools.partial(handler, directory=folder)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), make) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield folder, f"http://127.0.0.1:{running.server_address[1]}/"
        running.shutdown()


def test_an_interrupted_download_goes_on(tmp_path, server):
    folder, url = server
    body = np.random.default_rng(0).bytes(3_000_000)
    (folder / "file.bin").write_bytes(body)
    target = tmp_path / "file.bin"
    md5 = hashlib.md5(body).hexdigest()
    with pytest.raises(InvalidInputError, match="run again"):
        image_sets.fetch(url + "file.bin", target, md5=md5)
    assert not target.exists()
    assert (tmp_path / "file.bin.part").stat().st_size == len(body) // 2
    seen = []
    image_sets.fetch(url + "file.bin", target, md5=md5, notify=lambda *state: seen.append(state))
    assert target.read_bytes() == body
    assert seen[-1] == ("download file.bin", len(body), len(body))
    assert not (tmp_path / "file.bin.part").exists()


def test_a_wrong_checksum_leaves_nothing(tmp_path):
    (tmp_path / "source").write_bytes(b"not it")
    with pytest.raises(InvalidInputError, match="MD5"):
        image_sets.fetch((tmp_path / "source").as_uri(), tmp_path / "t", md5="0" * 32)
    assert [path.name for path in tmp_path.iterdir()] == ["source"]


def test_archives_are_unpacked_into_the_folder_only(tmp_path, monkeypatch):
    source, target = tmp_path / "a.tar.gz", tmp_path / "data"
    target.mkdir()
    with tarfile.open(source, "w:gz") as tar:
        for name in ("cifar-10-batches-py/test_batch",):
            info = tarfile.TarInfo(name)
            info.size = 5
            tar.addfile(info, io.BytesIO(b"batch"))
    part = image_sets.Download(
        source.as_uri(), image_sets.file_md5(source), "a.tar.gz", unpack=True
    )
    monkeypatch.setitem(image_sets.DOWNLOADS, "cifar10-test", (part,))
    image_sets.download_set("cifar10-test", target)
    assert (target / "cifar-10-batches-py" / "test_batch").read_bytes() == b"batch"
    with tarfile.open(source, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../outside"))
    with pytest.raises(InvalidInputError, match="cannot unpack"):
        image_sets.unpack(source, target)
    assert not (tmp_path / "outside").exists()


def test_every_set_has_a_download_with_a_checksum():
    assert set(image_sets.SETS) == set(image_sets.DOWNLOADS)
    for parts in image_sets.DOWNLOADS.values():
        for part in parts:
            assert len(part.md5) == 32
            assert part.url.startswith("http")


def test_weights_are_known_by_their_tensors(tmp_path):
    model = NETWORKS["lenet"].build()
    tensors = model_tensors(model)
    torch.save(
        {"state_dict": {f"module.{k}": v for k, v in model.state_dict().items()}}, tmp_path / "c"
    )
    assert tensor_digest(read_checkpoint(tmp_path / "c")) == tensor_digest(tensors)
    save_tensors(tmp_path / "mnist_lenet_openood.npz", tensors)
    with pytest.raises(InvalidInputError, match="published weights"):
        load_weights("lenet", NETWORKS["lenet"].build(), tmp_path)
    with pytest.raises(InvalidInputError, match="missing"):
        load_weights("resnet20", NETWORKS["resnet20"].build(), tmp_path)
    with pytest.raises(InvalidInputError, match="another network"):
        put_tensors(NETWORKS["resnet20"].build(), tensors)
    torch.save({"state_dict": _Bomb()}, tmp_path / "bad")
    with pytest.raises(InvalidInputError, match="cannot read"):
        read_checkpoint(tmp_path / "bad")


def test_the_cache_computes_each_block_once_and_goes_on(tmp_path):
    asked = []

    def compute(start, stop):
        if len(asked) == 2:
            raise KeyboardInterrupt
        asked.append((start, stop))
        return {"x": np.arange(start, stop)}

    cache = Cache(tmp_path / "c", block=10)
    with pytest.raises(KeyboardInterrupt):
        cache.rows("set", {"a": 1}, 35, compute)
    assert asked == [(0, 10), (10, 20)]
    found = cache.rows(
        "set", {"a": 1}, 35, lambda a, b: asked.append((a, b)) or {"x": np.arange(a, b)}
    )
    assert (found["x"] == np.arange(35)).all()
    assert asked == [(0, 10), (10, 20), (20, 30), (30, 35)]
    other = cache.rows("set", {"a": 2}, 5, lambda a, b: {"x": -np.arange(a, b)})
    assert other["x"][4] == -4
    damaged = next((tmp_path / "c").glob("*-000030.npz"))
    damaged.write_bytes(b"half")
    with pytest.raises(InvalidInputError, match="delete it"):
        cache.rows("set", {"a": 1}, 35, compute)


@pytest.mark.parametrize("scores", [1, 2])
@pytest.mark.parametrize("seed", range(6))
def test_areas_are_those_of_the_metrics(scores, seed):
    rng = np.random.default_rng(seed)
    own = np.round(rng.normal(0, 1, (60, scores)), 1)
    foreign = np.round(rng.normal(1, 1, (40, scores)), 1)
    loss = (rng.random(60) < 0.3).astype(float)
    times = rng.integers(0, 3, 60), rng.integers(0, 3, 40)
    sample = Sample(own, loss, foreign)
    weighted = Sample(own, loss, foreign, id_weight=times[0], ood_weight=times[1])
    # Eight angles, since rows that tie along 45 degrees tie up to rounding only.
    search = Grid(8) if scores == 2 else None
    found = SortedAreas.of(sample, angles=8).values(*times)
    assert found.auroc == pytest.approx(metrics.auroc(weighted, search=search), abs=1e-12)
    for per, value in (("accepted", found.oscr_accepted), ("all", found.oscr_all)):
        expected = metrics.oscr(weighted, per=per, search=search)
        assert value == pytest.approx(expected, abs=1e-12)


def test_splits_must_fit_their_sets(tmp_path):
    np.savez(tmp_path / "s.npz", mnist_test=np.array([5, 2, 9]))
    splits = Splits.read(tmp_path / "s.npz")
    part = SETUPS["mnist"].test
    assert splits.rows(part, 10).tolist() == [5, 2, 9]
    assert splits.rows(SetPart("mnist-test", None), 3).tolist() == [0, 1, 2]
    with pytest.raises(InvalidInputError, match="does not fit"):
        splits.rows(part, 9)


def test_the_printed_table_is_the_papers():
    # Two cells of each half, read off the paper by eye.
    mnist, cifar = SETUPS["mnist"].printed, SETUPS["cifar10"].printed
    assert mnist["cifar10"]["vim"].auroc == 0.860
    assert mnist["fashionmnist"]["knn+msp"].selective_risk == 0.0
    assert cifar["mnist"]["odin"].selective_risk == 0.00995
    assert cifar["tiny imagenet"]["vim+msp"].oscr == 0.976


def test_idx_files_keep_their_values(tmp_path):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    write_idx(tmp_path / "x.gz", array)
    assert (image_sets._read_idx(tmp_path / "x.gz") == array).all()
