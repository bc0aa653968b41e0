import numpy as np
import pytest

import demur as dm
from demur import detectors as dt

X = np.arange(12.0).reshape(4, 3)
W = np.ones((2, 3))


class Tensor:
    """What demur uses of a torch tensor that lives on a device and carries gradients."""

    def __init__(self, values, *, dtype="torch.float32", attached=True, device="cuda"):
        self.values = np.asarray(values)
        self.dtype, self.attached, self.device = dtype, attached, device

    def detach(self):
        return Tensor(self.values, dtype=self.dtype, attached=False, device=self.device)

    def cpu(self):
        return Tensor(self.values, dtype=self.dtype, attached=self.attached, device="cpu")

    def float(self):
        return Tensor(self.values, attached=self.attached, device=self.device)

    def __array__(self, dtype=None, copy=None):
        if self.attached or self.device != "cpu" or self.dtype == "torch.bfloat16":
            raise RuntimeError("not readable")
        return self.values if dtype is None else self.values.astype(dtype)


@pytest.mark.parametrize("dtype", ["torch.float32", "torch.bfloat16"])
def test_tensors_are_read_wherever_they_are(dtype):
    assert dt.as_scores(Tensor([1.0, 2.0], dtype=dtype)).tolist() == [1, 2]
    assert dt.msp(Tensor(X, dtype=dtype)).tolist() == dt.msp(X).tolist()
    a = dt.Activations(
        features=Tensor(X, dtype=dtype),
        weight=Tensor(W),
        bias=Tensor([1.0, 2.0]),
        labels=Tensor([0, 1, 0, 1], dtype="torch.int64"),
    )
    assert a.logits.tolist() == (X @ W.T + [1, 2]).tolist()
    assert a.labels.tolist() == [0, 1, 0, 1]


def test_torch_tensors():
    torch = pytest.importorskip("torch")
    logits = torch.tensor(X, dtype=torch.bfloat16, requires_grad=True)
    assert dt.mls(logits).tolist() == (-X.max(axis=1)).tolist()
    assert dt.as_scores(torch.tensor([[1.0], [2.0]], requires_grad=True)).tolist() == [1, 2]


def test_as_scores():
    assert dt.as_scores([[1], [2]]).tolist() == [1, 2]
    assert dt.as_scores([1.0, np.inf]).tolist() == [1, np.inf]
    assert dt.as_scores(lambda a: a * 2, np.array([1, 2])).tolist() == [2, 4]
    source = np.array([1.0, 2.0])
    assert dt.as_scores(source) is not source
    for bad, message in [
        ([np.nan], r"scores\[0\] is NaN"),
        ([-np.inf], r"scores\[0\] is -inf"),
        ([[1, 2]], "one-dimensional"),
        (["a"], "real numbers"),
        ([[1], [1, 2]], "scores cannot be read"),
    ]:
        with pytest.raises(dm.InvalidInputError, match=message):
            dt.as_scores(bad)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs logits, features or both"),
        ({"weight": W}, "needs logits, features or both"),
        ({"logits": [1.0, 2.0]}, r"logits must be a matrix.*shape \(2,\)"),
        ({"logits": np.zeros((3, 0))}, "logits must be a matrix"),
        ({"logits": [[1.0, np.nan]]}, r"logits\[0\] is not finite"),
        ({"logits": [[1.0], [np.inf]]}, r"logits\[1\] is not finite"),
        ({"logits": [["a"]]}, "logits must hold real numbers"),
        ({"logits": X[:2], "features": X}, "logits has 2 rows, expected 4"),
        ({"features": X, "weight": np.ones((2, 4))}, "weight has 4 columns, expected 3"),
        ({"features": X, "weight": W, "bias": [1.0]}, "bias has 1 rows, expected 2"),
        ({"features": X, "weight": W, "bias": [1.0, np.inf]}, r"bias\[1\] is infinite"),
        ({"features": X, "bias": [1.0]}, "bias is given without weight"),
        ({"logits": X, "features": X, "weight": W}, "logits has 3 columns, expected 2"),
        ({"features": X, "labels": [0, 1]}, "labels has 2 rows, expected 4"),
        ({"features": X, "labels": [0, 1, np.nan, 1]}, r"labels\[2\] is NaN"),
    ],
)
def test_activations_refuse(arguments, message):
    with pytest.raises(dm.InvalidInputError, match=message):
        dt.Activations(**arguments)


def test_activations_cannot_change_afterwards():
    features, labels = X.copy(), np.array([0, 1, 0, 1])
    a = dt.Activations(features=features, labels=labels, weight=W)
    features[0], labels[0] = 99, 99
    assert a.features[0].tolist() == [0, 1, 2]
    assert a.labels.tolist() == [0, 1, 0, 1]
    assert features.flags.writeable
    for array in (a.logits, a.features, a.weight, a.bias, a.labels):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_activations_are_taken_apart_by_rows():
    a = dt.Activations(features=X, weight=W, labels=list("abcd"))
    part = a.take([2, 0])
    assert part.features.tolist() == X[[2, 0]].tolist()
    assert part.logits.tolist() == a.logits[[2, 0]].tolist()
    assert part.labels.tolist() == ["c", "a"]
    assert (len(a), len(part), len(dt.Activations(logits=X))) == (4, 2, 4)
    assert repr(a) == "Activations(logits=(4, 2), features=(4, 3), weight=(2, 3), labels=(4,))"


def activations(**changes):
    parts = {"features": X, "weight": W, "labels": [0, 0, 1, 1]} | changes
    return dt.Activations(**parts)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: dt.energy(X, 0), "temperature must be a positive number, got 0"),
        (lambda: dt.energy(X, np.inf), "temperature"),
        (lambda: dt.gen(X, gamma=-1), "gamma must be a positive number"),
        (lambda: dt.gen(X, top=0), "top must be a whole number of at least 1"),
        (lambda: dt.gradnorm(X, X[:2]), "features has 2 rows, expected 4"),
        (lambda: dt.react(X, W, [0, 0], np.nan), "threshold must be a finite number"),
        (lambda: dt.react(X, W.T, [0, 0], 1.0), "weight has 2 columns, expected 3"),
        (lambda: dt.React(percentile=101), "percentile must be between 0 and 100"),
        (lambda: dt.ash(X, W, [0, 0], percentile=100), "keeps none of the 3 features"),
        (
            lambda: dt.ash(X, W, [0, 0], percentile=0, variant="x"),
            "variant must be 's', 'b' or 'p'",
        ),
        (lambda: dt.ash(-X, W, [0, 0]), r"features\[0\] has a negative entry"),
        (lambda: dt.scale(X - 4, W, [0, 0]), "defined after a ReLU"),
        (lambda: dt.scale(X, W, [0, 0, 0], percentile=0), "bias has 3 rows, expected 2"),
        (lambda: dt.Knn(k=0), "k must be a whole number of at least 1"),
        (lambda: dt.Knn(k=2.5), "k must be a whole number"),
        (lambda: dt.Knn(k=True), "k must be a whole number"),
        (lambda: dt.Knn(k=5).fit(activations()), "k=5 neighbours .* the bank has 4 rows"),
        (
            lambda: dt.Knn(k=1).fit(activations()).score(dt.Activations(features=X[:, :2])),
            "features has 2 columns, expected 3",
        ),
        (lambda: dt.Vim(dimension=3).fit(activations()), "dimension=3 .* nothing would remain"),
        (lambda: dt.Vim(dimension=-1), "dimension must be a whole number of at least 0"),
        (lambda: dt.Vim().fit(activations(weight=None)), "weight missing"),
        (
            lambda: dt.Vim(dimension=2).fit(
                activations(features=[[1, 0, 0], [2, 0, 0]], labels=None)
            ),
            "no residual outside their 2 principal directions",
        ),
        (lambda: dt.Vim().fit(activations(weight=-W)), "mean largest training logit is -"),
        (lambda: dt.Mahalanobis().fit(activations(labels=None)), "labels missing"),
        (lambda: dt.Mahalanobis().fit(activations(labels=[0, 1, 2, 3])), "do not vary within"),
        (lambda: dt.Knn(k=1).fit(activations().take([])), "the bank has 0 rows"),
        (lambda: dt.Vim().fit(activations().take([])), "at least one row"),
        (lambda: dt.React().fit(activations().take([])), "at least one row"),
        (lambda: dt.Mahalanobis().fit(activations().take([])), "at least one row"),
        (lambda: dt.RelativeMahalanobis().fit(activations().take([])), "at least one row"),
        (lambda: dt.Knn(k=1).fit(dt.Activations(logits=X)), "features missing"),
    ],
)
def test_impossible_requests_are_named(call, message):
    with pytest.raises(dm.InvalidInputError, match=message):
        call()


def test_a_wide_sharpening_does_not_overflow():
    features = np.ones((1, 5000))
    weight = np.vstack([np.full(5000, 1e-3), np.full(5000, -1e-3)])
    for shape in (dt.ash, dt.scale):
        assert np.isfinite(shape(features, weight, [0, 0], percentile=99.98)).all()
