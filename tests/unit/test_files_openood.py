"""OpenOOD score files, and pickles that want to do more than hold numbers."""

import os
import pickle
import sys
import types

import numpy as np
import pytest

import demur as dm
from demur.adapters.openood import openood_columns, sample_from_openood
from demur.sources.archives import read_pickle


def rows(rng, n, *, ood=False):
    label = rng.integers(0, 10, n)
    pred = np.where(rng.random(n) < 0.2, (label + 1) % 10, label)
    conf = rng.random(n).astype(np.float32)
    return [pred, conf, np.full(n, -1) if ood else label]


def score_file(seed=0):
    rng = np.random.default_rng(seed)
    return {
        "id": {"train": None, "val": None, "test": rows(rng, 30)},
        "csid": {},
        "ood": {
            "val": rows(rng, 3, ood=True),
            "near": {"cifar100": rows(rng, 12, ood=True), "tin": None},
            "far": {"svhn": rows(rng, 7, ood=True)},
        },
    }


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_of_every_protocol(tmp_path, protocol):
    stored = score_file()
    (tmp_path / "msp.pkl").write_bytes(pickle.dumps(stored, protocol))
    columns = openood_columns({"msp": tmp_path / "msp.pkl"})
    order = [stored["id"]["test"], stored["ood"]["near"]["cifar100"], stored["ood"]["far"]["svhn"]]
    for name, i in (("prediction", 0), ("msp", 1), ("label", 2)):
        assert columns[name].tolist() == [v for part in order for v in part[i].tolist()]
    assert columns["set"].tolist() == ["id"] * 30 + ["cifar100"] * 12 + ["svhn"] * 7
    sample = sample_from_openood({"msp": tmp_path / "msp.pkl"}, ood_sets=["svhn"])
    pred, conf, label = stored["id"]["test"]
    assert sample.id_doubts[:, 0].tolist() == [-float(c) for c in conf]
    assert sample.id_loss.tolist() == [float(p != y) for p, y in zip(pred, label, strict=True)]
    assert list(sample.ood_sets) == ["svhn"]


def test_arrays_of_every_layout_are_read(tmp_path):
    arrays = [
        np.arange(12).reshape(3, 4),
        np.asfortranarray(np.arange(12.0).reshape(3, 4)),
        np.arange(10)[::3],
        np.array([1, 2], ">i4"),
        np.array([0.5], np.float16),
        np.array([True, False]),
        np.float32(2.5),
        np.array(7),
        np.empty((0, 2)),
    ]
    for protocol in range(6):
        content = {"a": arrays, "t": ("x", None, 1.5, b"raw"), "s": {1, 2}}
        (tmp_path / "a.pkl").write_bytes(pickle.dumps(content, protocol))
        read = read_pickle(tmp_path / "a.pkl")
        assert read["t"] == ["x", None, 1.5, b"raw"] and read["s"] == {1, 2}
        for array, found in zip(arrays, read["a"], strict=True):
            np.testing.assert_array_equal(found, array)


def test_tensors_beside_the_scores_are_left_unread(tmp_path, monkeypatch):
    # What evaluating the accuracy leaves in the file: torch tensors, through two functions.
    def called(*arguments):
        raise AssertionError("called")

    functions = {"torch._utils": "_rebuild_tensor_v2", "torch.storage": "_load_from_bytes"}
    monkeypatch.setitem(sys.modules, "torch", types.ModuleType("torch"))
    for name, function in functions.items():
        stand_in = types.FunctionType(called.__code__, globals(), function)
        stand_in.__module__, stand_in.__qualname__ = name, function
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
        setattr(sys.modules[name], function, stand_in)

    class Storage:
        def __reduce__(self):
            return sys.modules["torch.storage"]._load_from_bytes, (b"bytes",)

    class Tensor:
        def __reduce__(self):
            from collections import OrderedDict

            arguments = (Storage(), 0, (3,), (1,), False, OrderedDict())
            return sys.modules["torch._utils"]._rebuild_tensor_v2, arguments

    stored = score_file() | {"id_preds": Tensor(), "id_labels": Tensor()}
    (tmp_path / "msp.pkl").write_bytes(pickle.dumps(stored))
    assert sample_from_openood({"msp": tmp_path / "msp.pkl"}).n_id == 30


class Evil:
    """Runs a command when it is unpickled by the ordinary reader."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def test_evil_pickles_are_refused_without_running(tmp_path):
    proof = tmp_path / "proof"
    attacks = [
        Evil(os.system, f"touch {proof}"),
        Evil(eval, f"open({str(proof)!r}, 'w')"),
        Evil(exec, f"open({str(proof)!r}, 'w')"),
        Evil(open, str(proof), "w"),
        Evil(getattr, "x", "upper"),
        Evil(np.load, "x.npy"),
        Evil(np.array, [1]),
    ]
    for protocol in (0, 2, 5):
        for attack in attacks:
            stored = score_file() | {"extra": [attack]}
            (tmp_path / "e.pkl").write_bytes(pickle.dumps(stored, protocol))
            with pytest.raises(dm.InvalidInputError, match="refused: it asks to load"):
                openood_columns({"e": tmp_path / "e.pkl"})
            assert not proof.exists()
    # The first attack is real: the ordinary reader runs it.
    pickle.loads(pickle.dumps(attacks[0]))
    assert proof.exists()


def test_forged_and_damaged_pickles_are_refused(tmp_path):
    path = tmp_path / "f.pkl"
    objects = pickle.dumps({"a": np.array([{}], object)})
    dotted = b"\x80\x04\x8c\x05numpy\x8c\x0bdtype.mro.x\x93."
    # A dtype of objects whose state claims that raw bytes may be read as pointers.
    numbers = pickle.dumps(np.arange(4), 2)
    forged = numbers.replace(b"i8", b"O8")
    assert forged != numbers
    # BUILD on the stand-in class itself, to change it for later readers.
    build = b"\x80\x02cnumpy\ndtype\n}X\x01\x00\x00\x00xK\x01sb."
    whole = pickle.dumps(score_file())
    for content in (objects, dotted, forged, build, b"", b"junk", whole[: len(whole) // 2]):
        path.write_bytes(content)
        with pytest.raises(dm.InvalidInputError):
            read_pickle(path)
    path.write_bytes(pickle.dumps({"id": {}}))
    with pytest.raises(dm.InvalidInputError, match="no OpenOOD score file"):
        openood_columns({"f": path})
    wrong = score_file()
    wrong["id"]["test"] = wrong["id"]["test"][:2]
    path.write_bytes(pickle.dumps(wrong))
    with pytest.raises(dm.InvalidInputError, match="'id' is not three arrays"):
        openood_columns({"f": path})


def folder_of(path, seed=0, shift=0.0):
    path.mkdir()
    rng = np.random.default_rng(seed)
    sets = {
        "cifar10": rows(rng, 20),
        "svhn": rows(rng, 8, ood=True),
        "mnist": rows(rng, 5, ood=True),
    }
    for name, (pred, conf, label) in sets.items():
        np.savez(path / f"{name}.npz", pred=pred, conf=conf + shift, label=label)
    return sets


def test_folders_of_npz_files(tmp_path):
    sets = folder_of(tmp_path / "msp")
    folder_of(tmp_path / "knn", shift=1.0)
    paths = {"msp": tmp_path / "msp", "knn": tmp_path / "knn"}
    sample = sample_from_openood(paths, id_set="cifar10")
    assert sample.score_names == ("msp", "knn")
    assert list(sample.ood_sets) == ["mnist", "svhn"]
    conf = sets["cifar10"][1]
    np.testing.assert_array_equal(sample.id_doubts, -np.column_stack([conf, conf + 1.0]))
    np.testing.assert_array_equal(sample.for_ood("svhn").ood_doubts[:, 0], -sets["svhn"][1])
    with pytest.raises(dm.InvalidInputError, match="say which set is ID; the sets are 'cifar10'"):
        sample_from_openood(paths)
    with pytest.raises(dm.InvalidInputError, match="did you mean 'cifar10'"):
        sample_from_openood(paths, id_set="cifar")
    with pytest.raises(dm.InvalidInputError, match="no OOD set 'svnh'; did you mean 'svhn'"):
        sample_from_openood(paths, id_set="cifar10", ood_sets=["svnh"])


def test_files_of_other_rows_are_refused_and_other_predictions_told(tmp_path):
    folder_of(tmp_path / "a")
    folder_of(tmp_path / "b", seed=1)
    both = {"a": tmp_path / "a", "b": tmp_path / "b"}
    with pytest.raises(dm.InvalidInputError, match="different labels on 'id'"):
        openood_columns(both, id_set="cifar10")
    (tmp_path / "b" / "mnist.npz").unlink()
    with pytest.raises(dm.InvalidInputError, match="choose common OOD sets"):
        openood_columns(both, id_set="cifar10")
    sets = folder_of(tmp_path / "c")
    pred, conf, label = sets["cifar10"]
    changed = np.where(np.arange(20) < 3, pred + 1, pred)
    np.savez(tmp_path / "c" / "cifar10.npz", pred=changed, conf=conf, label=label)
    with pytest.warns(UserWarning, match="other classes than 'a' on 3 ID rows"):
        columns = openood_columns({"a": tmp_path / "a", "c": tmp_path / "c"}, id_set="cifar10")
    assert columns["prediction"][:20].tolist() == pred.tolist()
