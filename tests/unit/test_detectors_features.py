"""Feature detectors against plain loops: sums, sorts, elimination and Jacobi rotations."""

import math

import numpy as np
import pytest

from demur import detectors as dt


def head_energy(h, weight, bias):
    logits = [dot(row, h) + b for row, b in zip(weight, bias, strict=True)]
    top = max(logits)
    return -(top + math.log(sum(math.exp(z - top) for z in logits)))


def solve(matrix, right):
    """Gaussian elimination with pivoting."""
    a = [[*row, r] for row, r in zip(matrix, right, strict=True)]
    n = len(a)
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(a[r][i]))
        a[i], a[pivot] = a[pivot], a[i]
        for r in range(i + 1, n):
            factor = a[r][i] / a[i][i]
            a[r] = [x - factor * y for x, y in zip(a[r], a[i], strict=True)]
    x = [0.0] * n
    for i in reversed(range(n)):
        x[i] = (a[i][n] - sum(a[i][j] * x[j] for j in range(i + 1, n))) / a[i][i]
    return x


def jacobi(matrix):
    """Eigenpairs of a symmetric matrix by Jacobi rotations, largest first."""
    a = [list(map(float, row)) for row in matrix]
    n = len(a)
    v = [[float(i == j) for j in range(n)] for i in range(n)]
    for _ in range(60):
        for p in range(n):
            for q in range(p + 1, n):
                angle = 0.5 * math.atan2(2 * a[p][q], a[q][q] - a[p][p])
                c, s = math.cos(angle), math.sin(angle)
                for k in range(n):
                    a[k][p], a[k][q] = c * a[k][p] - s * a[k][q], s * a[k][p] + c * a[k][q]
                for k in range(n):
                    a[p][k], a[q][k] = c * a[p][k] - s * a[q][k], s * a[p][k] + c * a[q][k]
                for k in range(n):
                    v[k][p], v[k][q] = c * v[k][p] - s * v[k][q], s * v[k][p] + c * v[k][q]
    pairs = [(a[j][j], [v[i][j] for i in range(n)]) for j in range(n)]
    return sorted(pairs, key=lambda pair: -pair[0])


def covariance(rows):
    n, d = len(rows), len(rows[0])
    return [[sum(r[i] * r[j] for r in rows) / n for j in range(d)] for i in range(d)]


def mean(rows):
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]


def minus(x, y):
    return [a - b for a, b in zip(x, y, strict=True)]


def dot(x, y):
    return sum(a * b for a, b in zip(x, y, strict=True))


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(11)
    mix = rng.normal(size=(6, 6))
    centres = rng.normal(scale=2, size=(3, 6))
    labels = rng.integers(0, 3, size=60)
    features = np.maximum(centres[labels] + rng.normal(size=(60, 6)) @ mix * 0.4 + 1, 0)
    weight, bias = rng.normal(size=(3, 6)) + np.eye(3, 6) * 3, rng.normal(size=3) + 1
    train = dt.Activations(features=features, weight=weight, bias=bias, labels=labels)
    queries = np.maximum(rng.normal(scale=3, size=(20, 6)), 0)
    return train, dt.Activations(features=queries, weight=weight, bias=bias)


def test_react(data):
    train, test = data
    units = sorted(train.features.ravel().tolist())
    place = 0.9 * (len(units) - 1)
    low = math.floor(place)
    threshold = units[low] + (place - low) * (units[low + 1] - units[low])
    slow = [
        head_energy([min(x, threshold) for x in h], test.weight, test.bias)
        for h in test.features.tolist()
    ]
    react = dt.React().fit(train)
    assert react.threshold == pytest.approx(threshold, rel=1e-14)
    assert react.score(test) == pytest.approx(np.array(slow), rel=1e-12)
    assert np.array_equal(
        react.score(test), dt.react(test.features, test.weight, test.bias, react.threshold)
    )


def slow_ash(h, percentile, variant):
    count = len(h) - round(len(h) * percentile / 100)
    kept = sorted(range(len(h)), key=lambda i: -h[i])[:count]
    before, after = sum(h), sum(h[i] for i in kept)
    factor = math.exp(before / after) if after > 0 else 1.0
    if variant == "scale":
        return [x * factor for x in h]
    value = {"s": lambda x: x * factor, "p": lambda x: x, "b": lambda x: before / count}[variant]
    return [value(x) if i in kept else 0.0 for i, x in enumerate(h)]


@pytest.mark.parametrize("percentile", [0, 30, 50, 75])
@pytest.mark.parametrize("variant", ["s", "b", "p", "scale"])
def test_ash_and_scale(data, percentile, variant):
    _, test = data
    arrays = test.features, test.weight, test.bias
    if variant == "scale":
        scores = dt.scale(*arrays, percentile=percentile)
    else:
        scores = dt.ash(*arrays, percentile=percentile, variant=variant)
    slow = [
        head_energy(slow_ash(h, percentile, variant), test.weight, test.bias)
        for h in test.features.tolist()
    ]
    assert scores == pytest.approx(np.array(slow), rel=1e-12, abs=1e-12)


def test_shaping_defaults():
    rng = np.random.default_rng(0)
    h, w, b = np.abs(rng.normal(size=(5, 40))), rng.normal(size=(3, 40)), rng.normal(size=3)
    assert np.array_equal(dt.ash(h, w, b), dt.ash(h, w, b, percentile=90, variant="s"))
    assert np.array_equal(dt.scale(h, w, b), dt.scale(h, w, b, percentile=85))
    # 16 % of 40 units is 6.4, so 34 units are pruned at 84 % and at 85 % alike.
    assert np.array_equal(dt.scale(h, w, b), dt.scale(h, w, b, percentile=84))
    assert not np.array_equal(dt.scale(h, w, b), dt.scale(h, w, b, percentile=80))


@pytest.mark.parametrize("dimension", [0, 1, 3, 5, None])
def test_vim(data, dimension):
    train, test = data
    w, b = train.weight.tolist(), train.bias.tolist()
    gram = [[dot(p, q) for q in w] for p in w]
    coefficients = solve(gram, b)  # pinv(W) b = W' (W W')^-1 b for a head of full row rank
    origin = [-sum(c * row[j] for c, row in zip(coefficients, w, strict=True)) for j in range(6)]
    centred = [minus(h, origin) for h in train.features.tolist()]
    top = [v for _, v in jacobi(covariance(centred))][: 3 if dimension is None else dimension]

    def residual(h):
        x = minus(h, origin)
        for v in top:
            along = dot(x, v)
            x = [a - along * c for a, c in zip(x, v, strict=True)]
        return math.sqrt(dot(x, x))

    train_residual = sum(residual(h) for h in train.features.tolist()) / len(train)
    alpha = sum(max(z) for z in train.logits.tolist()) / len(train) / train_residual
    slow = [alpha * residual(h) + head_energy(h, w, b) for h in test.features.tolist()]
    vim = dt.Vim(dimension).fit(train)
    assert vim.alpha == pytest.approx(alpha, rel=1e-10)
    assert vim.score(test) == pytest.approx(np.array(slow), rel=1e-10)


@pytest.mark.parametrize(("d", "dropped"), [(84, 42), (512, 256), (768, 512), (2048, 1000)])
def test_vim_default_dimension(d, dropped):
    assert dt.Vim()._dropped(d) == dropped


def slow_mahalanobis(train, h):
    rows, labels = train.features.tolist(), train.labels.tolist()
    members = {c: [rows[i] for i, y in enumerate(labels) if y == c] for c in set(labels)}
    means = {c: mean(members[c]) for c in members}
    within = covariance([minus(r, means[y]) for r, y in zip(rows, labels, strict=True)])
    return min(dot(minus(h, m), solve(within, minus(h, m))) for m in means.values())


def slow_background(train, h):
    rows = train.features.tolist()
    centre = mean(rows)
    x = minus(h, centre)
    return dot(x, solve(covariance([minus(r, centre) for r in rows]), x))


def test_mahalanobis(data):
    train, test = data
    near = np.array([slow_mahalanobis(train, h) for h in test.features.tolist()])
    background = np.array([slow_background(train, h) for h in test.features.tolist()])
    assert dt.Mahalanobis().fit(train).score(test) == pytest.approx(near, rel=1e-9)
    relative = dt.RelativeMahalanobis().fit(train).score(test)
    assert relative == pytest.approx(near - background, rel=1e-9, abs=1e-9)


def test_mahalanobis_leaves_out_directions_without_variance(data):
    train, test = data

    def widened(a, seed):
        x = a.features
        dead = np.zeros((len(x), 1))
        return dt.Activations(features=np.hstack([x, dead, x[:, :2] * 3]), labels=a.labels)

    for detector in (dt.Mahalanobis(), dt.RelativeMahalanobis()):
        plain = detector.fit(train).score(test)
        wide = detector.fit(widened(train, 0)).score(widened(test, 1))
        assert wide == pytest.approx(plain, rel=1e-8, abs=1e-8)


def test_mahalanobis_does_not_care_how_classes_are_named(data):
    train, test = data
    names = np.array(["zebra", "ant", "mole"])[train.labels]
    renamed = dt.Activations(features=train.features, labels=names)
    plain = dt.Mahalanobis().fit(train).score(test)
    assert dt.Mahalanobis().fit(renamed).score(test) == pytest.approx(plain, rel=1e-12)


def test_fitting_returns_a_copy_and_changes_nothing(data):
    train, test = data
    for detector in (dt.Knn(k=3), dt.Vim(), dt.React(), dt.Mahalanobis()):
        fitted = detector.fit(train)
        refitted = fitted.fit(train.take(slice(0, 50)))
        assert not np.array_equal(fitted.score(test), refitted.score(test))
        with pytest.raises(Exception, match="is not fitted: keep what fit returns"):
            detector.score(test)
