"""Invariants that every detector of the catalog keeps, and what it makes of real data."""

import warnings

import numpy as np
import pytest

import demur as dm
from demur import detectors as dt

NAMES = [name for name, entry in dt.CATALOG.items() if "gradients" not in entry.needs]


def network(rng, *, d=120, classes=5, rows=80):
    centres = rng.normal(size=(classes, d)) * 2
    labels = np.arange(rows) % classes
    features = np.maximum(centres[labels] + rng.normal(size=(rows, d)), 0)
    return dt.Activations(
        features=features,
        weight=centres / 10,
        bias=rng.normal(size=classes) + 2,
        labels=labels,
    )


@pytest.fixture(scope="module")
def train():
    return network(np.random.default_rng(1), rows=400)


@pytest.fixture(scope="module")
def test():
    rng = np.random.default_rng(1)
    whole = network(rng, rows=400)
    noise = np.maximum(rng.normal(scale=2, size=(60, 120)), 0)
    return dt.Activations(features=noise, weight=whole.weight, bias=whole.bias)


def score(name, activations, train):
    return dt.score_table([name], activations, train=train)[name]


def test_all_expected_detectors_are_listed():
    assert set(dt.CATALOG) == {
        *("msp", "mls", "energy", "entropy", "gen", "odin", "gradnorm", "react", "ash"),
        *("scale", "knn", "vim", "mahalanobis", "relative_mahalanobis"),
    }
    assert len({entry.title for entry in dt.CATALOG.values()}) == len(dt.CATALOG)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_not_listed_as_needed_is_not_needed(name, train, test):
    needs = dt.CATALOG[name].needs

    def only_needed(a, labels):
        head = "head" in needs
        return dt.Activations(
            logits=a.logits if "logits" in needs else None,
            features=a.features if "features" in needs else None,
            weight=a.weight if head else None,
            bias=a.bias if head else None,
            labels=labels if "labels" in needs else None,
        )

    fit = only_needed(train, train.labels) if "train" in needs else None
    assert np.array_equal(score(name, only_needed(test, None), fit), score(name, test, train))
    for missing in needs & {"logits", "features"}:
        if missing == "logits" and "head" in needs:
            continue  # the head makes the logits
        part = "features" if missing == "logits" else "logits"
        bare = dt.Activations(**{part: getattr(test, part)})
        with pytest.raises(dm.InvalidInputError, match=f"{missing} missing"):
            score(name, bare, train)


@pytest.mark.parametrize("name", NAMES)
def test_batches_do_not_matter(name, train, test):
    whole = score(name, test, train)
    assert whole.shape == (60,)
    pieces = [score(name, test.take(slice(i, i + 7)), train) for i in range(0, 60, 7)]
    assert np.concatenate(pieces) == pytest.approx(whole, rel=1e-12, abs=1e-12)
    assert score(name, test.take(slice(0, 0)), train).shape == (0,)


@pytest.mark.parametrize("name", NAMES)
def test_row_order_does_not_matter(name, train, test):
    order = np.random.default_rng(2).permutation(60)
    moved = score(name, test.take(order), train)
    assert moved == pytest.approx(score(name, test, train)[order], rel=1e-12, abs=1e-12)
    shuffled = train.take(np.random.default_rng(3).permutation(len(train)))
    again = score(name, test, shuffled)
    assert again == pytest.approx(score(name, test, train), rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_names_of_classes_and_units_do_not_matter(name, train, test):
    rng = np.random.default_rng(4)
    classes, units = rng.permutation(5), rng.permutation(120)

    def renamed(a):
        return dt.Activations(
            features=a.features[:, units],
            weight=a.weight[classes][:, units],
            bias=a.bias[classes],
            labels=None if a.labels is None else np.argsort(classes)[a.labels],
        )

    moved = score(name, renamed(test), renamed(train))
    assert moved == pytest.approx(score(name, test, train), rel=1e-8, abs=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_zero_features_give_finite_scores(name, train, test):
    features = test.features.copy()
    features[::3] = 0
    zeros = dt.Activations(features=features, weight=test.weight, bias=test.bias)
    scores = score(name, zeros, train)
    assert np.isfinite(scores).all()
    assert len(set(scores[::3].round(9))) == 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("factor", [1e4, -1e4])
def test_huge_logits_give_finite_scores(name, factor, train, test):
    huge = dt.Activations(
        logits=test.logits / np.abs(test.logits).max() * factor,
        features=test.features * 1e4,
        weight=test.weight,
        bias=test.bias,
    )
    assert np.isfinite(score(name, huge, train)).all()


@pytest.mark.parametrize("name", NAMES)
def test_one_class_gives_finite_scores(name):
    rng = np.random.default_rng(5)
    one = network(rng, d=20, classes=1, rows=60)
    scores = score(name, one, one)
    assert np.isfinite(scores).all()
    if name in {"msp", "entropy", "gen", "gradnorm"}:
        assert (scores == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_half_and_single_precision_input_is_widened_before_use(name, train, test):
    def converted(a, *kinds):
        parts = {part: getattr(a, part) for part in ("features", "weight", "bias")}
        for kind in kinds:
            parts = {part: array.astype(kind) for part, array in parts.items()}
        return dt.Activations(**parts, labels=a.labels)

    for kind in (np.float16, np.float32):
        scores = score(name, converted(test, kind), converted(train, kind))
        wide = score(name, converted(test, kind, float), converted(train, kind, float))
        assert scores.dtype == np.float64
        assert np.array_equal(scores, wide)


def test_odin_says_where_its_scores_come_from(test):
    with pytest.raises(dm.InvalidInputError, match=r"ODIN needs gradients.*adapters\.torch\.Odin"):
        dt.score_table(["odin"], test)


def test_score_table_takes_names_detectors_callables_and_scores(train, test):
    table = dt.score_table(
        {"a": "msp", "b": dt.Knn(k=3), "c": lambda a: -a.logits[:, 0], "d": np.arange(60)},
        test,
        train=train,
    )
    assert list(table) == ["a", "b", "c", "d"]
    assert np.array_equal(table["a"], dt.msp(test.logits))
    assert np.array_equal(table["b"], dt.Knn(k=3).fit(train).score(test))
    assert np.array_equal(table["c"], -test.logits[:, 0])
    assert np.array_equal(table["d"], np.arange(60.0))
    assert list(dt.score_table("msp", test)) == ["msp"]


@pytest.mark.parametrize(
    ("detectors", "message"),
    [
        (["mps"], "no detector is called 'mps'; there are"),
        (["knn"], "KNN needs training activations"),
        ({"mine": dt.Knn(k=3)}, r"Knn\(k=3\) needs training activations"),
        ({"mine": [1.0, 2.0]}, "mine has 2 rows, expected 60"),
        ({"mine": lambda a: a.logits}, "mine must be one-dimensional"),
    ],
)
def test_score_table_refuses(detectors, message, test):
    with pytest.raises(dm.InvalidInputError, match=message):
        dt.score_table(detectors, test)


@pytest.fixture(scope="module")
def digits():
    """A small network trained on digits 0 to 7: train, ID test and OOD (8, 9) activations."""
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    x, y = load_digits(return_X_y=True)
    x = x / 16
    order = np.random.default_rng(0).permutation(np.flatnonzero(y < 8))
    parts = order[:1000], order[1000:], np.flatnonzero(y >= 8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # 60 rounds are enough, though not to convergence
        net = MLPClassifier((64,), max_iter=60, random_state=0).fit(x[parts[0]], y[parts[0]])

    def activations(rows):
        hidden = np.maximum(x[rows] @ net.coefs_[0] + net.intercepts_[0], 0)
        return dt.Activations(
            features=hidden, weight=net.coefs_[1].T, bias=net.intercepts_[1], labels=y[rows]
        )

    train, test, ood = map(activations, parts)
    assert (test.logits.argmax(axis=1) == test.labels).mean() > 0.95
    assert np.allclose(net.predict_proba(x[parts[1]]).max(axis=1), 1 - dt.msp(test.logits))
    return train, test, ood


def auroc(id_scores, ood_scores):
    pairs = np.sign(ood_scores[:, None] - id_scores[None, :])
    return (pairs.mean() + 1) / 2


@pytest.mark.parametrize("name", NAMES)
def test_unknown_digits_are_doubted_more(name, digits):
    train, test, ood = digits
    # ASH's 90 % is meant for thousands of units; it would leave 6 of these 64.
    ash = lambda a: dt.ash(a.features, a.weight, a.bias, percentile=65)  # noqa: E731
    detector = {name: ash if name == "ash" else name}
    id_scores = dt.score_table(detector, test, train=train)[name]
    ood_scores = dt.score_table(detector, ood, train=train)[name]
    assert ood_scores.mean() > id_scores.mean()
    assert auroc(id_scores, ood_scores) > 0.85


def test_combinations_doubt_unknown_digits_and_errors(digits):
    train, test, ood = digits
    pair = {
        part: (dt.msp(a.logits), dt.Knn().fit(train).score(a))
        for part, a in (("train", train), ("test", test), ("ood", ood))
    }
    sirc = dt.Sirc().fit(pair["train"][1])
    plug = dt.PlugIn(reject_id=0.1, accept_ood=0.05).fit(pair["test"][1], pair["ood"][1])
    for rule in (sirc, plug):
        assert auroc(rule.score(*pair["test"]), rule.score(*pair["ood"])) > 0.85


def test_the_room_shows_its_public_names_only():
    assert dir(dt) == sorted(dt.__all__)
