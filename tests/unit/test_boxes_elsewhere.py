"""Box rules outside of `tune`: with a guarantee, in scikit-learn, torch and ONNX, on sources."""

import numpy as np
import pytest

import demur as dm
from demur.core.wording import bounds_met
from demur.guarantees import tune_certified


def scored(rng, n):
    own = rng.normal(size=(n, 2))
    wrong = rng.random(n) < 1 / (1 + np.exp(2.2 - 1.4 * own[:, 0]))
    return dm.Sample(own, wrong, rng.normal([0.5, 2.5], size=(n, 2)))


MODELS = [dm.TprFprModel(0.65, 0.1), dm.RiskFprModel(0.2, 0.15), dm.CostModel(0.2, 0.5, 0, 0.3)]


@pytest.mark.parametrize("model", MODELS, ids=lambda model: type(model).__name__)
def test_boxes_are_promised(model):
    rng = np.random.default_rng(1)
    population = scored(np.random.default_rng(2), 100_000)
    kept = 0
    for seed in range(6):
        found = tune_certified(scored(rng, 2000), model, confidence=0.9, shape="box", rng=seed)
        assert isinstance(found.rule, dm.BoxRule) and found.method != "tolerance limits"
        point = dm.evaluate(found.rule, population, model=model)
        promise = point.selective_risk <= found.selective_risk
        if found.expected_cost is not None:
            promise &= point.expected_cost <= found.expected_cost
        kept += promise and all(bounds_met(model, point).values())
    # Each may fail with probability .1: two of six do with less than .12, all of what is seen here
    # is far from it.
    assert kept >= 5


def test_a_promise_for_boxes_is_of_no_weights():
    sample = scored(np.random.default_rng(3), 200)
    for wrong in ({"directions": "real"}, {"search": dm.Grid(10)}, {"shape": "disc"}):
        with pytest.raises(dm.InvalidInputError):
            tune_certified(sample, MODELS[0], **({"shape": "box"} | wrong))


def test_scikit_learn_accepts_within_limits():
    sklearn = pytest.importorskip("sklearn.linear_model")
    from sklearn.base import clone

    from demur.adapters.sklearn import SelectiveClassifier

    rng = np.random.default_rng(4)
    X = rng.normal(size=(400, 2))
    y = (X[:, 0] + rng.normal(0, 0.5, 400) > 0).astype(int)
    foreign = rng.normal([0, 4], size=(200, 2))
    classifier = SelectiveClassifier(
        sklearn.LogisticRegression(), model=dm.TprFprModel(0.7, 0.2), shape="box"
    )
    fitted = clone(classifier).fit(X, y, X_ood=foreign)
    assert isinstance(fitted.rule_, dm.BoxRule)
    assert fitted.tuning_.point == dm.tune(fitted.sample_, classifier.model, shape="box").point
    doubts = fitted.doubts(foreign)
    within = (doubts <= fitted.rule_.limits).all(axis=1)
    np.testing.assert_array_equal(fitted.accept(foreign), within)
    with pytest.raises(dm.InvalidInputError, match="shape must be"):
        classifier.set_params(shape="disc").fit(X, y, X_ood=foreign)


@pytest.mark.parametrize("confidence", [(), ("a",), ("a", "b")])
def test_onnx_decides_as_python_for_every_row(confidence, tmp_path):
    torch = pytest.importorskip("torch")
    onnxruntime = pytest.importorskip("onnxruntime")
    from demur.adapters.torch import SelectiveModule
    from demur.detectors import energy, mls

    names = {"a": "max_logit" if "a" in confidence else "mls"}
    names["b"] = "log_sum_exp" if "b" in confidence else "energy"
    signs = [-1 if name in confidence else 1 for name in names]
    logits = np.random.default_rng(5).normal(size=(100_000, 3))
    logits[:2000] = logits[0]
    scores = np.column_stack([mls(logits), energy(logits)]) * signs
    # Many rows are on both limits.
    rule = dm.BoxRule(limits=tuple(scores[0]), score_names=("a", "b"), confidence=confidence)
    module = SelectiveModule(
        torch.nn.Sequential(torch.nn.Identity(), torch.nn.Identity()), names, rule
    )
    module.to_onnx(tmp_path / "box.onnx", torch.tensor(logits[:5]))
    session = onnxruntime.InferenceSession(
        str(tmp_path / "box.onnx"), providers=["CPUExecutionProvider"]
    )
    found = session.run(["accept"], {session.get_inputs()[0].name: logits})[0]
    np.testing.assert_array_equal(found, rule.accept(scores))
    assert 0.02 < found.mean() < 0.98 and found[:2000].all()
