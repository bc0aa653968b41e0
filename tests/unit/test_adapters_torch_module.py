"""One decision, whoever takes it: NumPy, torch, an exported program, onnxruntime."""

import copy
import json
import os
import pickle
import threading

import numpy as np
import onnxruntime
import pytest
import safetensors.torch
import torch
from torch import nn

import demur as dm
from demur.adapters.torch import Decision, SelectiveModule, extract
from demur.detectors import (
    CATALOG,
    Activations,
    Knn,
    Mahalanobis,
    React,
    RelativeMahalanobis,
    Vim,
)

# Random nets are wrong most of the time, and their scores say nothing.
pytestmark = pytest.mark.filterwarnings("ignore::demur.LikelyMistakeWarning")

PAIRS = [("msp", "knn"), ("energy", "vim"), ("mls", "react")]
MORE_PAIRS = [("entropy", "mahalanobis"), ("gradnorm", "relative_mahalanobis"), ("msp",)]
FITTED = {
    "knn": Knn(k=4),
    "vim": Vim(),
    "react": React(),
    "mahalanobis": Mahalanobis(),
    "relative_mahalanobis": RelativeMahalanobis(),
}


def make_net(seed=0):
    torch.manual_seed(seed)
    body = nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 10), nn.ReLU())
    head = nn.Linear(10, 4)
    head.bias.data += 1  # ViM wants positive logits
    return nn.Sequential(body, head)


def make_flat_net(seed=0):
    """Features are the inputs, in float64: rows can be moved to the threshold at will."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Identity(), nn.Linear(6, 4, dtype=torch.float64))


def images(seed, n, shift=0.0):
    return torch.randn(n, 1, 6, 6, generator=torch.Generator().manual_seed(seed)) + shift


def score_array(detectors, rows):
    columns = [
        CATALOG[d].scorer()(rows) if isinstance(d, str) else d.score(rows)
        for d in detectors.values()
    ]
    return np.column_stack(columns)


def tuned_module(net, names, make=images):
    """Fit, tune with NumPy, and put the rule into a module."""
    labels = torch.arange(60) % 4
    train = extract(net, [(make(1, 60), labels)])
    valid, ood = extract(net, [(make(2, 60), labels)]), extract(net, [make(3, 40, 1.5)])
    detectors = {n: FITTED[n].fit(train) if n in FITTED else n for n in names}
    sample = dm.Sample.from_predictions(
        score_array(detectors, valid),
        valid.labels,
        valid.logits.argmax(axis=1),
        ood_scores=score_array(detectors, ood),
        score_names=names,
    )
    # Costs are always feasible, so any random net will do.
    rule = dm.tune(sample, dm.CostModel(reject_id=0.6, ood_prior=0.3)).rule
    if rule.threshold == -np.inf:
        rule = dm.tune(sample, dm.TprFprModel(min_tpr=0.5)).rule
    return SelectiveModule(net, detectors, rule), detectors


def by_numpy(module, detectors, inputs):
    rows = extract(module.model, [inputs])
    return rows.logits.argmax(axis=1), module.rule.accept(score_array(detectors, rows))


def by_torch(module, inputs):
    with torch.no_grad():
        return [output.numpy() for output in module(inputs)]


def by_onnx(path, inputs):
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return session.run(["prediction", "accept"], {"input": inputs.numpy()})


def assert_same(expected, *others):
    for other in others:
        for mine, theirs in zip(expected, other, strict=True):
            np.testing.assert_array_equal(mine, theirs)


def test_decisions_of_four_engines(tmp_path):
    module, detectors = tuned_module(make_net(), ("msp", "knn"))
    module.to_onnx(tmp_path / "guard.onnx", images(5, 8))
    assert os.listdir(tmp_path) == ["guard.onnx"]
    program = module.exported(images(5, 8)).module()
    for rows in (1, 2, 75):  # the batch size is open
        inputs = torch.cat([images(6, rows), images(7, rows, 1.5)])[::2]
        expected = by_numpy(module, detectors, inputs)
        assert_same(expected, by_torch(module, inputs), by_torch(program, inputs))
        assert_same(expected, by_onnx(tmp_path / "guard.onnx", inputs))
    assert 0 < expected[1].sum() < 75


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("names", PAIRS + MORE_PAIRS, ids="-".join)
def test_decisions_on_random_nets(names, seed):
    module, detectors = tuned_module(make_net(seed), names)
    inputs = torch.cat([images(seed + 6, 300), images(seed + 7, 300, 1.5)])
    expected = by_numpy(module, detectors, inputs)
    assert_same(expected, by_torch(module, inputs))
    with torch.no_grad():
        scores = module.scores(inputs)
    assert scores.dtype == torch.float64
    rows = extract(module.model, [inputs])
    np.testing.assert_allclose(scores.numpy(), score_array(detectors, rows), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("names", MORE_PAIRS, ids="-".join)
def test_exported_programs_of_the_other_detectors(names):
    module, detectors = tuned_module(make_net(), names)
    inputs = torch.cat([images(6, 40), images(7, 40, 1.5)])
    program = module.exported(inputs).module()
    assert_same(by_numpy(module, detectors, inputs), by_torch(program, inputs))


def flat_inputs(seed, n, shift=0.0):
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(n, 6, generator=rng, dtype=torch.float64).abs() + shift


def towards_threshold(module, detectors, inputs):
    """Move pairs of rows together until they lie on either side of the threshold, just so."""
    combined = lambda x: module.rule.combine(  # noqa: E731
        score_array(detectors, extract(module.model, [x]))
    )
    side = combined(inputs) <= module.rule.threshold
    yes, no = inputs[torch.tensor(side)], inputs[torch.tensor(~side)]
    count = min(len(yes), len(no))
    yes, no = yes[:count].clone(), no[:count].clone()
    for _ in range(60):
        middle = (yes + no) / 2
        gap = combined(middle) - module.rule.threshold
        near = np.abs(gap) < 1e-11  # about a thousand times the rounding of the scores
        to_yes, to_no = torch.tensor((gap <= 0) & ~near), torch.tensor((gap > 0) & ~near)
        yes[to_yes], no[to_no] = middle[to_yes], middle[to_no]
    return torch.cat([yes, no])


@pytest.mark.parametrize("names", PAIRS, ids="-".join)
def test_decisions_at_the_edge(names, tmp_path):
    module, detectors = tuned_module(make_flat_net(), names, make=flat_inputs)
    inputs = towards_threshold(module, detectors, flat_inputs(8, 200, 0.3))
    gap = module.rule.combine(score_array(detectors, extract(module.model, [inputs])))
    assert np.abs(gap - module.rule.threshold).max() < 1e-8 and len(inputs) >= 20
    expected = by_numpy(module, detectors, inputs)
    assert expected[1].tolist() == [True] * (len(inputs) // 2) + [False] * (len(inputs) // 2)
    module.to_onnx(tmp_path / "guard.onnx", inputs)
    program = module.exported(inputs).module()
    assert_same(expected, by_torch(module, inputs), by_torch(program, inputs))
    assert_same(expected, by_onnx(tmp_path / "guard.onnx", inputs))
    bad = inputs[:6].clone()
    bad[0, 0], bad[1, 2], bad[2] = torch.nan, torch.inf, -torch.inf
    for _, accept in (
        by_torch(module, bad),
        by_torch(program, bad),
        by_onnx(tmp_path / "guard.onnx", bad),
    ):
        assert accept.tolist() == [False, False, False, True, True, True]


def test_a_row_exactly_on_the_threshold_is_accepted():
    net = nn.Linear(2, 2, bias=False)
    net.weight.data = torch.eye(2)
    module = SelectiveModule(net, ["mls"], dm.Rule((1.0,), -0.1))
    on = np.float32(0.1)
    below = np.nextafter(on, np.float32(0))
    inputs = torch.tensor([[on, 0.0], [below, 0.0]])
    # The float32 nearest to 0.1 lies above it, the one before below.
    assert by_torch(module, inputs)[1].tolist() == [True, False]
    exact = SelectiveModule(net, ["mls"], dm.Rule((1.0,), -float(on)))
    assert by_torch(exact, inputs)[1].tolist() == [True, False]
    assert by_torch(exact.exported(inputs).module(), inputs)[1].tolist() == [True, False]
    never = SelectiveModule(net, ["mls"], dm.Rule((1.0,), -np.inf))
    assert by_torch(never, inputs)[1].tolist() == [False, False]


def test_scores_beyond_float64_are_rejected_whatever_their_weight():
    net = nn.Linear(2, 2, bias=False, dtype=torch.float64)
    net.weight.data = torch.eye(2, dtype=torch.float64)
    module = SelectiveModule(net, ["gradnorm", "mls"], dm.Rule((0.6, 0.8), 1.0))
    inputs = torch.tensor([[1.7e308, -1.7e308], [17, -17]], dtype=torch.float64)
    with torch.no_grad():
        assert module.scores(inputs)[:, 0].tolist() == pytest.approx([-np.inf, -34.0])
    assert by_torch(module, inputs)[1].tolist() == [False, True]


def test_predictions_are_the_networks_own_even_with_react():
    module, _ = tuned_module(make_net(), ("mls", "react"))
    inputs = images(9, 50)
    with torch.no_grad():
        assert torch.equal(module(inputs)[0], module.model(inputs).argmax(1))


def test_save_and_load(tmp_path):
    for names in PAIRS + MORE_PAIRS:
        module, _ = tuned_module(make_net(), names)
        module.save(tmp_path / "guard.safetensors")
        again = SelectiveModule.load(tmp_path / "guard.safetensors", make_net(seed=1))
        assert again.rule == module.rule and again.names == module.names
        inputs = torch.cat([images(6, 30), images(7, 30, 1.5)])
        with torch.no_grad():
            assert torch.equal(again.scores(inputs), module.scores(inputs))
        assert_same(by_torch(module, inputs), by_torch(again, inputs))
    assert os.listdir(tmp_path) == ["guard.safetensors"]


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.head = nn.Linear(4, 4)
        self.head.weight = self.inner.weight
        self.register_buffer("never", None)

    def forward(self, x):
        return nn.functional.log_softmax(self.head(self.inner(x)), dim=1)


def test_tied_weights_and_a_named_layer_survive(tmp_path):
    module = SelectiveModule(Tied(), ["msp", "gradnorm"], dm.Rule((0.6, 0.8), 0.1), layer="head")
    module.save(tmp_path / "g.safetensors")
    again = SelectiveModule.load(tmp_path / "g.safetensors", Tied())
    assert again.model.head.weight is again.model.inner.weight
    x = torch.randn(9, 4)
    with torch.no_grad():
        assert torch.equal(again.scores(x), module.scores(x))


def test_files_that_cannot_be_loaded(tmp_path):
    module, _ = tuned_module(make_net(), ("msp", "knn"))
    path = tmp_path / "g.safetensors"
    module.save(path)
    with pytest.raises(dm.InvalidInputError, match="written with another model"):
        SelectiveModule.load(path, nn.Sequential(nn.Linear(10, 4)))
    with pytest.raises(dm.InvalidInputError, match="cannot read"):
        SelectiveModule.load(tmp_path / "none.safetensors", make_net())
    (tmp_path / "text").write_text("not safetensors")
    with pytest.raises(dm.InvalidInputError, match="cannot read"):
        SelectiveModule.load(tmp_path / "text", make_net())
    safetensors.torch.save_file({"x": torch.zeros(1)}, tmp_path / "plain")
    with pytest.raises(dm.InvalidInputError, match="holds no selective module"):
        SelectiveModule.load(tmp_path / "plain", make_net())

    def forged(**changes):
        with safetensors.safe_open(path, framework="pt") as file:
            record = json.loads(file.metadata()["demur"]) | changes
        safetensors.torch.save_file({}, tmp_path / "forged", {"demur": json.dumps(record)})
        return tmp_path / "forged"

    with pytest.raises(dm.InvalidInputError, match="version 2"):
        SelectiveModule.load(forged(version=2), make_net())
    with pytest.raises(dm.InvalidInputError, match="damaged"):
        SelectiveModule.load(forged(), make_net())  # the bank is missing
    other = {"name": "msp", "kind": "gen", "k": None, "tensors": []}
    with pytest.raises(dm.InvalidInputError, match="no detector 'gen'"):
        SelectiveModule.load(forged(detectors=[other]), make_net())
    with pytest.raises(dm.InvalidInputError, match="folder"):
        module.save(tmp_path / "nowhere" / "g.safetensors")


def test_copies_and_pickles_decide_alike():
    module, _ = tuned_module(make_net(), ("msp", "knn"))
    inputs = images(6, 30)
    for again in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert_same(by_torch(module, inputs), by_torch(again, inputs))
        assert again.model is not module.model


def test_threads_do_not_mix_up_their_features():
    module, _ = tuned_module(make_net(), ("msp", "knn"))
    batches = [images(seed, 20, seed % 2) for seed in range(8)]
    with torch.no_grad():
        expected = [module.scores(batch) for batch in batches]
    results = [None] * 8

    def work(i):
        with torch.no_grad():
            results[i] = [module.scores(batches[i]) for _ in range(20)]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for got, wanted in zip(results, expected, strict=True):
        assert all(torch.equal(scores, wanted) for scores in got)
    assert all(not part._forward_hooks for part in module.modules())


def test_module_is_in_evaluation_mode():
    net = nn.Sequential(nn.Dropout(0.9), nn.Linear(4, 3)).train()
    module = SelectiveModule(net, ["msp"], dm.Rule((1.0,), 0.5))
    x = torch.randn(5, 4)
    assert not net.training
    assert torch.equal(module.scores(x), module.scores(x))
    module.train()
    program = module.exported(x)
    assert net.training  # exporting looked at evaluation mode and put it back
    module.eval()
    assert_same(by_torch(module, x), by_torch(program.module(), x))


class OtherWhenExported(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 2)

    def forward(self, x):
        out = self.head(x)
        return out.flip(1) if torch.compiler.is_exporting() else out


def test_onnx_that_decides_otherwise_is_not_written(tmp_path):
    module = SelectiveModule(OtherWhenExported(), ["msp"], dm.Rule((1.0,), 0.5))
    with pytest.raises(dm.DemurError, match="another prediction on 3 of 3 rows"):
        module.to_onnx(tmp_path / "guard.onnx", torch.tensor([[9.0, 1], [1, 9], [5, 2]]))
    assert os.listdir(tmp_path) == []


def test_several_inputs_in_onnx(tmp_path):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(2, 3)

        def forward(self, left, right):
            return self.head(left - 2 * right)

    module = SelectiveModule(Two(), ["msp"], dm.Rule((1.0,), 0.6))
    left, right = torch.randn(1, 2), torch.randn(1, 2)  # even a single row leaves the size open
    module.to_onnx(tmp_path / "two.onnx", left, right)
    session = onnxruntime.InferenceSession(tmp_path / "two.onnx")
    left, right = torch.randn(7, 2), torch.randn(7, 2)
    feed = {"input_0": left.numpy(), "input_1": right.numpy()}
    with torch.no_grad():
        assert_same([o.numpy() for o in module(left, right)], session.run(None, feed)[:2])


@pytest.mark.parametrize(
    ("detectors", "rule", "options", "message"),
    [
        (["msp"], dm.Rule((0.6, 0.8), 1), {}, "weighs 2 scores"),
        (
            ["msp", "mls"],
            dm.Rule((0.6, 0.8), 1, score_names=("mls", "msp")),
            {},
            r"tuned for the scores \['mls', 'msp'\]",
        ),
        (["gradnorm"], dm.Rule((1.0,), 1), {"layer": "nowhere"}, "no layer 'nowhere'"),
        (
            {"r": React().fit(Activations(features=[[1.0]]))},
            dm.Rule((1.0,), 1),
            {"layer": "0"},
            "'0' is none",
        ),
    ],
)
def test_parts_that_do_not_fit(detectors, rule, options, message):
    with pytest.raises(dm.InvalidInputError, match=message):
        SelectiveModule(make_net(), detectors, rule, **options)


def test_models_without_a_head():
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    x = images(0, 5)
    module = SelectiveModule(net, "msp", dm.Rule((1.0,), 0.5))
    assert by_torch(module, x)[1].shape == (5,)
    with pytest.raises(dm.InvalidInputError, match="no Linear layer"):
        SelectiveModule(net, ["gradnorm"], dm.Rule((1.0,), 0.5))
    module = SelectiveModule(net, ["gradnorm"], dm.Rule((1.0,), 0.5), layer="1")
    expected = CATALOG["gradnorm"].scorer()(extract(net, [x], layer="1"))
    with torch.no_grad():
        np.testing.assert_allclose(module.scores(x)[:, 0].numpy(), expected, rtol=1e-13)
    with pytest.raises(dm.InvalidInputError, match="at least one row"):
        module.exported(x[:0])


class Keywords(nn.Module):
    """Called by keyword, as transformers are."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 3)

    def forward(self, pixel_values, mask=None):
        out = self.head(pixel_values)
        return {"logits": out if mask is None else out * mask[:, None]}


def test_keyword_inputs_and_dict_batches(tmp_path):
    module = SelectiveModule(Keywords(), ["msp"], dm.Rule((1.0,), 0.6))
    x, mask = torch.randn(40, 2), torch.rand(40)
    with torch.no_grad():
        plain = [o.numpy() for o in module(x, mask)]
        for batch in (
            module(pixel_values=x, mask=mask),
            module(x, mask=mask),
            module({"pixel_values": x, "mask": mask, "labels": torch.zeros(40)}),
        ):
            assert_same(plain, [o.numpy() for o in batch])
        assert module.scores(pixel_values=x).shape == (40, 1)
        scores = module.scores(x, mask).numpy()
    program = module.exported(pixel_values=x[:3], mask=mask[:3]).module()
    with torch.no_grad():
        assert_same(plain, [o.numpy() for o in program(pixel_values=x, mask=mask)])
    module.to_onnx(tmp_path / "named.onnx", {"pixel_values": x[:3], "mask": mask[:3]})
    session = onnxruntime.InferenceSession(tmp_path / "named.onnx")
    feed = {"pixel_values": x.numpy(), "mask": mask.numpy()}
    *decided, doubts = session.run(["prediction", "accept", "scores"], feed)
    assert_same(plain, decided)
    assert doubts.dtype == np.float64
    np.testing.assert_allclose(doubts, scores, atol=1e-5)


SPECIAL = np.array([0.5, -0.0, 0.25, 1.0, np.nan, np.inf, -np.inf, 1e308, -1e308, 0.75])


@pytest.mark.parametrize("tau", [0.0, 1.0])
@pytest.mark.parametrize(
    ("direction", "threshold"),
    [
        ((1.0,), 0.5),
        ((0.0, 1.0), 0.25),
        ((1.0, 0.0), 0.25),
        ((0.6, 0.8), 0.7),
        ((-0.6, 0.8), 0.0),
        ((-9.0, -9.0), -np.inf),
        ((9.0, -9.0), 1.0),
    ],
)
def test_decisions_are_those_of_the_rule_that_rejects_what_is_missing(direction, threshold, tau):
    rule = dm.Rule(direction, threshold, tau=tau)
    scores = np.stack(np.meshgrid(*[SPECIAL] * len(direction)), -1).reshape(-1, len(direction))
    decided = Decision(rule)(torch.from_numpy(scores)).numpy()
    np.testing.assert_array_equal(decided, rule.accept(scores, missing="reject"))


def test_a_rule_that_is_random_on_its_boundary_is_refused():
    with pytest.raises(dm.InvalidInputError, match=r"tau = 0\.5.*tau 0 or 1"):
        SelectiveModule(make_net(), ["msp"], dm.Rule((1.0,), 0.5, tau=0.5))


CONFIDENT = {
    "max_softmax": lambda z: np.exp(z - z.max(1, keepdims=True)).sum(1) ** -1.0,
    "max_logit": lambda z: z.max(1),
    "log_sum_exp": lambda z: np.log(np.exp(z).sum(1)),
}


@pytest.mark.parametrize("kind", CONFIDENT)
def test_a_rule_about_confidences_reads_them_as_they_are(kind, tmp_path):
    net, rows = make_net(), images(3, 400)
    with torch.no_grad():
        logits = net(rows).double().numpy()
    conf, entropy = CONFIDENT[kind](logits), dm.detectors.entropy(logits)
    wrong = np.arange(400) % 5 == 0
    sample = dm.Sample(
        {"entropy": entropy, "conf": conf},
        wrong,
        confidence="conf",
        score_names=["conf", "entropy"],
    )
    rule = dm.tune(sample, dm.TprFprModel(0.6)).rule
    assert rule.confidence == ("conf",)
    module = SelectiveModule(net, {"conf": kind, "entropy": "entropy"}, rule)
    np.testing.assert_allclose(module.scores(rows)[:, 0].detach(), conf, rtol=1e-12)
    expected = rule.accept({"conf": conf, "entropy": entropy})
    assert 0 < expected.sum() < 400
    np.testing.assert_array_equal(module(rows)[1], expected)
    module.save(tmp_path / "module.safetensors")
    loaded = SelectiveModule.load(tmp_path / "module.safetensors", make_net())
    np.testing.assert_array_equal(loaded(rows)[1], expected)


def test_senses_are_matched_or_refused():
    rule = dm.Rule((-1.0,), -0.5, score_names=("msp",), confidence=("msp",))
    with pytest.raises(dm.InvalidInputError, match=r"'msp' for a confidence.* max_softmax"):
        SelectiveModule(make_net(), ["msp"], rule)
    with pytest.raises(dm.InvalidInputError, match="'max_softmax' is a confidence"):
        SelectiveModule(make_net(), {"msp": "max_softmax"}, dm.Rule((1.0,), 0.5))


def test_features_count_only_where_a_score_of_them_is_weighed():
    class Aside(nn.Module):
        def __init__(self):
            super().__init__()
            self.aside, self.head = nn.Identity(), nn.Linear(2, 2)

        def forward(self, x):
            self.aside(x * torch.nan)
            return self.head(x)

    knn = Knn(k=1).fit(Activations(features=np.eye(2)))
    x = torch.randn(6, 2)
    for direction, kept in (((1.0, 0.0), 6), ((0.0, 1.0), 0)):
        rule = dm.Rule(direction, 9.0)
        module = SelectiveModule(Aside(), {"msp": "msp", "knn": knn}, rule, layer="aside")
        assert by_torch(module, x)[1].sum() == kept


def test_bfloat16_is_refused_before_it_fails(tmp_path):
    module = SelectiveModule(make_net().bfloat16(), ["msp"], dm.Rule((1.0,), 0.5))
    with pytest.raises(dm.InvalidInputError, match=r"bfloat16.*float32"):
        module.to_onnx(tmp_path / "guard.onnx", images(1, 4).bfloat16())
    assert os.listdir(tmp_path) == []


def test_tensors_that_take_part_in_training_are_read():
    scores = torch.tensor([[0.1, 0.2], [0.9, 0.8]], requires_grad=True)
    sample = dm.Sample(scores, torch.tensor([0.0, 1.0], requires_grad=True), scores * 2)
    np.testing.assert_array_equal(sample.ood_scores, 2 * scores.detach().numpy())
    rule = dm.Rule((0.6, 0.8), 0.5)
    assert rule.accept(scores).tolist() == [True, False]
    assert rule.accept_one(scores[0])
