"""Extraction from torch models, against plain forward passes; nothing is left behind."""

import os
from collections import OrderedDict
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

import demur as dm
from demur.adapters.torch import StoredActivations, extract
from demur.adapters.torch_forward import LoaderBatch


class Net(nn.Module):
    """Body with dropout and batch norm, so that the mode matters, and a head."""

    def __init__(self, finish=None, bias=True):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5))
        self.head = nn.Linear(5, 3, bias=bias)
        self.finish = finish

    def forward(self, x):
        out = self.head(self.body(x))
        return out if self.finish is None else self.finish(out)


@pytest.fixture
def net():
    torch.manual_seed(0)
    net = Net()
    net.body[1].running_mean.normal_()
    return net


@pytest.fixture
def loader():
    rng = torch.Generator().manual_seed(1)
    inputs, labels = torch.randn(11, 6, generator=rng), torch.arange(11) % 3
    data = torch.utils.data.TensorDataset(inputs, labels)
    return torch.utils.data.DataLoader(data, batch_size=4)


def by_hand(net, loader):
    """Logits and features row by row, with NumPy, from the weights."""
    inputs = loader.dataset.tensors[0].numpy()
    first, norm = net.body[0], net.body[1]
    features = []
    for row in inputs:
        hidden = first.weight.detach().numpy() @ row + first.bias.detach().numpy()
        spread = np.sqrt(norm.running_var.numpy() + norm.eps)
        features.append(np.maximum((hidden - norm.running_mean.numpy()) / spread, 0))
    features = np.array(features)
    head = net.head
    return features @ head.weight.detach().numpy().T + head.bias.detach().numpy(), features


def test_values_labels_and_head(net, loader):
    got = extract(net, loader)
    logits, features = by_hand(net, loader)
    np.testing.assert_allclose(got.logits, logits, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(got.features, features, rtol=1e-5, atol=1e-6)
    assert got.labels.tolist() == [i % 3 for i in range(11)]
    assert got.labels.dtype.kind == "i"
    np.testing.assert_array_equal(got.weight, net.head.weight.detach().numpy())
    np.testing.assert_array_equal(got.bias, net.head.bias.detach().numpy())
    np.testing.assert_allclose(got.features @ got.weight.T + got.bias, got.logits, atol=1e-6)


def test_head_without_bias_has_bias_zero(loader):
    assert extract(Net(bias=False), loader).bias.tolist() == [0, 0, 0]


def state(model):
    hooks = {name: len(m._forward_hooks) for name, m in model.named_modules()}
    return hooks, {name: m.training for name, m in model.named_modules()}


def test_hooks_and_modes_are_as_before(net, loader):
    net.train()
    net.body[1].eval()  # a frozen batch norm must stay frozen
    kept = net.head.register_forward_hook(lambda *_: None)
    before = state(net)
    extract(net, loader)
    assert state(net) == before
    assert before[0]["head"] == 1 and not before[1]["body.1"] and before[1]["body.3"]
    kept.remove()


@pytest.mark.parametrize("where", ["model", "loader"])
def test_hooks_and_modes_are_as_before_after_an_error(net, loader, where):
    net.train()
    before = state(net)

    def broken():
        yield next(iter(loader))
        if where == "loader":
            raise OSError("disk")
        yield torch.zeros(2, 7)

    with pytest.raises(OSError if where == "loader" else RuntimeError):
        extract(net, broken())
    assert state(net) == before


def test_no_gradient_is_recorded_and_weights_stay(net, loader):
    before = {name: value.clone() for name, value in net.state_dict().items()}
    extract(net, loader)
    assert all(parameter.grad is None for parameter in net.parameters())
    assert all(torch.equal(before[name], value) for name, value in net.state_dict().items())


def test_forms_of_batches(net):
    x, y = torch.randn(4, 6), torch.tensor([0, 1, 2, 0])
    plain = extract(net, [x])
    assert plain.labels is None
    np.testing.assert_array_equal(extract(net, [[x]]).logits, plain.logits)
    for batch in (
        (x, y),
        [x, y, torch.arange(4)],
        {"image": x, "label": y},
        {"labels": y, "x": x},
        ((x,), y),
        ({"x": x}, y[:, None]),
        (x, ["a", "b", "c", "a"]),
    ):
        got = extract(net, [batch, batch])
        np.testing.assert_array_equal(got.logits, np.concatenate([plain.logits] * 2))
        assert len(got.labels) == 8
    assert got.labels.tolist() == list("abca") * 2


def test_several_inputs_by_position_and_by_name():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(2, 2)

        def forward(self, left, right):
            return self.head(left - 2 * right)

    left, right, model = torch.randn(3, 2), torch.randn(3, 2), Two()
    expected = (left - 2 * right).numpy()
    batches = [((left, right), torch.zeros(3)), {"right": right, "left": left, "label": [0] * 3}]
    np.testing.assert_allclose(extract(model, batches[:1]).features, expected, atol=1e-6)
    np.testing.assert_allclose(extract(model, batches[1:]).features, expected, atol=1e-6)


@pytest.mark.parametrize(
    "finish",
    [
        lambda out: (out, "aux"),
        lambda out: SimpleNamespace(logits=out, loss=None),
        lambda out: {"logits": out, "loss": None},
        lambda out: OrderedDict(loss=None, logits=out),
        lambda out: out * 1.0,
    ],
)
def test_forms_of_outputs(finish):
    torch.manual_seed(0)
    net = Net(finish)
    x = torch.randn(4, 6)
    with torch.no_grad():
        expected = net.eval().head(net.body(x)).numpy()
    np.testing.assert_array_equal(extract(net, [x]).logits, expected)


def test_log_softmax_outputs_need_the_head_named():
    torch.manual_seed(0)
    net = Net(nn.LogSoftmax(dim=1))
    x = torch.randn(4, 6)
    with pytest.raises(dm.InvalidInputError, match=r"'head' is not the head.*\['body.0', 'head'\]"):
        extract(net, [x])
    got = extract(net, [x], layer="head")
    np.testing.assert_allclose(got.features @ got.weight.T + got.bias, got.logits, atol=1e-6)


def test_layer_by_name_and_by_module(net, loader):
    by_default = extract(net, loader)
    for layer in ("head", net.head):
        np.testing.assert_array_equal(
            extract(net, loader, layer=layer).features, by_default.features
        )
    for layer in ("body", net.body[2]):
        inner = extract(net, loader, layer=layer)
        np.testing.assert_array_equal(inner.features, by_default.features)
        assert inner.weight is None
    with pytest.raises(dm.InvalidInputError, match="no layer 'tail'; its layers are"):
        extract(net, loader, layer="tail")
    with pytest.raises(dm.InvalidInputError, match="of type Linear"):
        extract(net, loader, layer=nn.Linear(5, 3))
    with pytest.raises(dm.InvalidInputError, match=r"'body.0' is not the head"):
        extract(net, loader, layer="body.0")


def test_feature_maps_are_flattened_and_models_without_linear_give_logits_only():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    x = torch.randn(3, 1, 4, 4)
    got = extract(net, [x], layer="0")
    np.testing.assert_array_equal(got.features, net[0](x).detach().numpy().reshape(3, 8))
    assert extract(net, [x]).features is None


def test_a_layer_that_is_not_called(net, loader):
    net.spare = nn.Linear(2, 2)
    with pytest.raises(dm.InvalidInputError, match="'spare' was not called"):
        extract(net, loader)
    assert len(extract(net, loader, layer="head")) == 11


def test_a_model_that_is_itself_the_head():
    assert extract(nn.Linear(2, 3), [torch.zeros(4, 2)]).weight.shape == (3, 2)


def test_half_precision_models_give_at_least_single_precision(net, loader):
    net = net.to(torch.bfloat16)
    batches = [(x.to(torch.bfloat16), y) for x, y in loader]
    got = extract(net, batches)
    assert np.isfinite(got.logits).all()
    np.testing.assert_array_equal(got.weight, net.head.weight.float().detach().numpy())


def test_inputs_follow_the_model_to_its_device():
    moved = LoaderBatch((torch.zeros(2), "text"), {"mask": torch.ones(2)}).to(torch.device("meta"))
    assert moved.args[0].device.type == moved.kwargs["mask"].device.type == "meta"
    assert moved.args[1] == "text"


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        ([], "batches is empty"),
        ([()], "a batch is empty"),
        ([(torch.zeros(2, 6), torch.zeros(2)), torch.zeros(2, 6)], "some batches have labels"),
        ([(torch.zeros(2, 6), torch.zeros(3))], "labels of a batch have shape"),
        ([torch.full((2, 6), torch.nan)], "not finite"),
    ],
)
def test_unusable_batches(net, batches, message):
    with pytest.raises(dm.InvalidInputError, match=message):
        extract(net, batches)


def test_unusable_outputs():
    x = torch.zeros(2, 6)
    with pytest.raises(dm.InvalidInputError, match=r"return the pair \(0, z\)"):
        extract(nn.Linear(6, 1), [x])
    with pytest.raises(dm.InvalidInputError, match="returns no tensor"):
        extract(Net(lambda out: {"scores": out}), [x])
    first_of_pair = nn.Sequential(nn.Linear(6, 3), Pair(), First())
    with pytest.raises(dm.InvalidInputError, match="must be a matrix"):
        extract(first_of_pair, [x], layer="1")


class Pair(nn.Module):
    def forward(self, x):
        return x, x


class First(nn.Module):
    def forward(self, pair):
        return pair[0]


def test_progress_goes_to_standard_error(net, loader, capsys):
    extract(net, loader, progress=True)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.endswith("extract: 3 of 3 batches, 0 s\n")
    unknown_length = torch.utils.data.DataLoader(Stream(), batch_size=2)
    for batches in (unknown_length, (batch for batch in unknown_length)):
        assert len(extract(net, batches, progress=True)) == 6
        assert "extract: 3 batches" in capsys.readouterr().err
    extract(net, loader)
    assert capsys.readouterr().err == ""


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(torch.zeros(6, 6))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_folder_holds_the_same_rows(net, loader, tmp_path, dtype):
    whole = extract(net, loader)
    stored = extract(net, iter(loader), folder=tmp_path / "set", dtype=dtype)
    assert isinstance(stored.features, np.memmap) and stored.features.dtype == dtype
    assert sorted(os.listdir(tmp_path)) == ["set"]
    for again in (stored, StoredActivations.open(tmp_path / "set")):
        rows = again.take()
        np.testing.assert_array_equal(rows.features, whole.features.astype(dtype))
        np.testing.assert_array_equal(rows.logits, whole.logits)  # never rounded
        np.testing.assert_array_equal(rows.labels, whole.labels)
        np.testing.assert_array_equal(rows.weight, whole.weight)
    blocks = list(stored.blocks(4))
    assert [len(block) for block in blocks] == [4, 4, 3] and len(stored) == 11
    np.testing.assert_array_equal(
        np.concatenate([block.features for block in blocks]), rows.features
    )
    np.testing.assert_array_equal(stored.take([9, 2]).logits, whole.logits[[9, 2]])


def test_files_are_plain_numpy_whatever_their_length(tmp_path):
    model = nn.Linear(2, 3)
    for rows in (1, 9, 10, 1000):
        folder = tmp_path / str(rows)
        extract(model, [torch.ones(1, 2)] * rows, folder=folder)
        assert np.load(folder / "features.npy").tolist() == [[1.0, 1.0]] * rows
        assert np.load(folder / "logits.npy").shape == (rows, 3)


def test_folder_appears_only_when_all_went_well(net, loader, tmp_path):
    with pytest.raises(RuntimeError):
        extract(net, [*loader, torch.zeros(2, 7)], folder=tmp_path / "set")
    assert os.listdir(tmp_path) == []
    with pytest.raises(dm.InvalidInputError, match="not finite as float16"):
        extract(nn.Linear(2, 2), [torch.full((1, 2), 1e5)], folder=tmp_path / "b", dtype="float16")
    assert os.listdir(tmp_path) == []


def test_folders_that_cannot_be_used(net, loader, tmp_path):
    with pytest.raises(dm.InvalidInputError, match="exists already"):
        extract(net, loader, folder=tmp_path)
    with pytest.raises(dm.InvalidInputError, match="does not exist"):
        extract(net, loader, folder=tmp_path / "a" / "b")
    with pytest.raises(dm.InvalidInputError, match="dtype must be"):
        extract(net, loader, folder=tmp_path / "c", dtype="int8")
    with pytest.raises(dm.InvalidInputError, match="give folder="):
        extract(net, loader, dtype="float16")
    with pytest.raises(dm.InvalidInputError, match="cannot read activations"):
        StoredActivations.open(tmp_path)
    widths = [torch.zeros(2, 1, 4, 4), torch.zeros(2, 1, 5, 5)]
    growing = nn.Sequential(nn.Conv2d(1, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(dm.InvalidInputError, match="features has 50 columns in one batch and 32"):
        extract(growing, widths, layer="0", folder=tmp_path / "d")


@pytest.mark.parametrize(
    ("batches", "message"),
    [
        (
            torch.utils.data.TensorDataset(torch.ones(3, 4)),
            r"data set \(TensorDataset\).*DataLoader",
        ),
        (torch.ones(3, 4), r"one array of shape \(3, 4\).*\[inputs\]"),
        (np.ones((3, 4)), "one array"),
        ({"pixel_values": torch.ones(3, 4)}, "of type dict"),
        (3, "of type int"),
    ],
)
def test_what_is_no_loader_is_refused(batches, message):
    with pytest.raises(dm.InvalidInputError, match=message):
        extract(nn.Linear(4, 2), batches)
