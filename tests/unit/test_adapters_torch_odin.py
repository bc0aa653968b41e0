"""ODIN against its definition, worked out with NumPy on a network of two layers."""

import numpy as np
import pytest
import torch
from torch import nn

import demur as dm
from demur.adapters.torch import Odin
from demur.detectors import score_table
from demur.detectors.activations import Activations


@pytest.fixture
def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.5), nn.Linear(6, 3)).double()


@pytest.fixture
def rows():
    return torch.randn(15, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


def softmax(z):
    e = np.exp(z - z.max())
    return e / e.sum()


def by_hand(net, row, temperature, eps, std):
    """ODIN of one row; the gradient by the chain rule, term by term."""
    w1, b1, w2, b2 = (p.detach().numpy() for p in net.parameters())
    logits = lambda x: w2 @ np.tanh(w1 @ x + b1) + b2  # noqa: E731
    z = logits(row)
    label = int(z.argmax())
    p = softmax(z / temperature)
    gradient = np.zeros(len(row))
    hidden = np.tanh(w1 @ row + b1)
    for i in range(len(row)):
        for j in range(len(hidden)):
            slope = (1 - hidden[j] ** 2) * w1[j, i]
            for k in range(len(z)):
                gradient[i] += (p[k] - (k == label)) / temperature * w2[k, j] * slope
    sign = np.array([1.0 if g >= 0 else -1.0 for g in gradient])
    p = softmax(logits(row - eps * sign / std) / temperature)
    return sum(value for k, value in enumerate(p) if k != p.argmax())


@pytest.mark.parametrize(
    "options",
    [(1000.0, 0.0014, 1.0), (1.0, 0.3, 1.0), (10.0, 0.5, (0.5, 1.0, 2.0, 4.0)), (100.0, 0.0, 2.0)],
)
def test_definition(net, rows, options):
    got = Odin(*options).score(net, [rows[:8], (rows[8:], torch.zeros(7))])
    expected = [by_hand(net, row, *options[:2], np.array(options[2])) for row in rows.numpy()]
    assert got.dtype == np.float64
    np.testing.assert_allclose(got, expected, rtol=1e-13)


def test_a_step_of_zero_at_temperature_one_is_msp(net, rows):
    with torch.no_grad():
        logits = net.eval()(rows).numpy()
    scores = Odin(temperature=1.0, eps=0.0).score(net, [rows])
    np.testing.assert_allclose(scores, dm.detectors.msp(logits), rtol=1e-13)
    table = score_table({"odin": scores, "msp": "msp"}, Activations(logits=logits))
    np.testing.assert_allclose(table["odin"], table["msp"], rtol=1e-13)


def test_flat_directions_count_as_uphill():
    class Sees(nn.Module):
        """Logits (x0, 0), but the step decides how much of x1 to add: gradient zero in x1."""

        def forward(self, x):
            bump = (x[:, 1].detach() < 0).double() * 5
            return torch.stack([x[:, 0] + bump, x[:, 0] * 0], dim=1)

    row = torch.tensor([[1.0, 0.0]], dtype=torch.float64)
    # x - eps sign(gradient): x0 goes up (downhill), x1 goes down because sign(0) = +1.
    got = Odin(temperature=1.0, eps=0.25).score(Sees(), [row])
    assert got[0] == pytest.approx(np.exp(-6.25) / (1 + np.exp(-6.25)), rel=1e-12)


def test_the_label_is_that_of_the_unmoved_input():
    net = nn.Linear(1, 2, bias=False, dtype=torch.float64)
    net.weight.data = torch.tensor([[1.0], [-1.0]]).double()
    # At x = 0.1 class 0 leads; a long step is taken towards class 0, to x = 2.1.
    got = Odin(temperature=2.0, eps=2.0).score(net, [torch.tensor([[0.1]], dtype=torch.float64)])
    assert got[0] == pytest.approx(np.exp(-2.1) / (1 + np.exp(-2.1)), rel=1e-12)


def test_scores_near_one_over_the_number_of_classes_stay_apart():
    net = nn.Linear(2, 2, bias=False)
    net.weight.data = torch.eye(2)
    rows = torch.stack([torch.linspace(1, 1.001, 50), torch.zeros(50)], dim=1)
    scores = Odin(temperature=1000.0).score(net, [rows])
    assert np.all(np.diff(scores) < 0) and np.ptp(scores) < 1e-6  # all of them tie in float32


def test_std_of_image_channels():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(8, 3)).double()
    images = torch.randn(5, 2, 2, 2, dtype=torch.float64)
    flat = nn.Sequential(nn.Linear(8, 3)).double()
    flat[0].load_state_dict(net[1].state_dict())
    got = Odin(1.0, 0.2, std=(0.5, 4.0)).score(net, [images])
    expected = Odin(1.0, 0.2, std=[0.5] * 4 + [4.0] * 4).score(flat, [images.flatten(1)])
    np.testing.assert_allclose(got, expected, rtol=1e-14)


def test_network_is_left_as_it_was(net, rows):
    net.train()
    net[2].eval()
    inputs = rows.clone()
    Odin().score(net, [inputs])
    assert torch.equal(inputs, rows) and not inputs.requires_grad
    assert all(parameter.grad is None for parameter in net.parameters())
    assert net.training and net[0].training and not net[2].training
    with torch.no_grad():  # a caller's mode does not take the gradients away
        Odin().score(net, [inputs])


def test_search_takes_the_largest_auroc(net, rows):
    ood = rows * 0.3 + 0.5
    temperatures, steps = (1.0, 50.0), (0.0, 0.4, 0.8)
    chosen = Odin.search(
        net, iter([rows]), iter([ood]), temperatures=temperatures, steps=steps, std=2.0
    )
    best = None
    for temperature in temperatures:
        for eps in steps:
            own, foreign = (
                [by_hand(net, row, temperature, eps, 2.0) for row in side.numpy()]
                for side in (rows, ood)
            )
            area = np.mean([[(f > o) + (f == o) / 2 for f in foreign] for o in own])
            if best is None or area > best[0]:
                best = (area, temperature, eps)
    assert chosen == Odin(*best[1:], std=2.0)


def test_defaults_are_those_of_openood(net, rows):
    assert Odin() == Odin(temperature=1000.0, eps=0.0014, std=1.0)
    chosen = Odin.search(net, [rows], [rows])  # all areas are one half: the first wins
    assert chosen == Odin(temperature=1.0, eps=0.0014)


def test_unusable_input(net, rows):
    for options in ({"temperature": 0}, {"eps": -1}, {"std": 0.0}, {"std": (1.0, -1.0)}):
        with pytest.raises(dm.InvalidInputError):
            Odin(**options)
    with pytest.raises(dm.InvalidInputError, match="std has 2 channels"):
        Odin(std=(1.0, 2.0)).score(net, [rows])
    with pytest.raises(dm.InvalidInputError, match="single real input"):
        Odin().score(net, [torch.zeros(2, 4, dtype=torch.int64)])
    with pytest.raises(dm.InvalidInputError, match="single real input"):
        Odin().score(net, [((rows, rows), None)])
    with pytest.raises(dm.InvalidInputError, match="empty"):
        Odin().score(net, [])
    with pytest.raises(dm.InvalidInputError, match="must not be empty"):
        Odin.search(net, [rows], [rows], steps=[])
