"""Logs of language models, written by the packages themselves where these are installed."""

import collections
import json
import os
import pickle
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch

import demur as dm
from demur.adapters.llm import (
    answers_sample,
    read_inspect,
    read_lm_eval,
    read_polygraph,
    read_uqlm,
)


def lm_eval_line(number, acc, likelihoods, **doc):
    """A line as lm-eval 0.4.13 writes it."""
    answers = [[str(value), "False"] for value in likelihoods]
    return {
        "doc_id": number,
        "doc": {"question": "?", **doc},
        "target": "0",
        "arguments": {"gen_args_0": {"arg_0": "?", "arg_1": " a"}},
        "resps": [[answer] for answer in answers],
        "filtered_resps": answers,
        "filter": "none",
        "metrics": ["acc"],
        "acc": acc,
    }


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_choices_give_two_doubts(tmp_path):
    lines = [lm_eval_line(0, 1.0, [-1.0, -3.0, -2.0], hops=2), lm_eval_line(7, 0.0, [-4, -4.5])]
    columns = read_lm_eval(write_lines(tmp_path / "s.jsonl", lines), metric="acc")
    assert columns["doc_id"].tolist() == [0, 7]
    assert columns["loss"].tolist() == [0.0, 1.0]
    assert columns["surprise"].tolist() == [1.0, 4.0]
    others = [np.exp(-2) + np.exp(-1), np.exp(-0.5)]
    np.testing.assert_allclose(columns["msp"], [x / (1 + x) for x in others], rtol=1e-15)
    # Of a row that lacks it, a number is missing.
    np.testing.assert_array_equal(columns["hops"], [2.0, np.nan])


def test_certain_choices_do_not_round_to_one(tmp_path):
    path = write_lines(tmp_path / "s.jsonl", [lm_eval_line(0, 1.0, [0.0, -50.0])])
    assert read_lm_eval(path, metric="acc")["msp"][0] == pytest.approx(np.exp(-50), rel=1e-12)


def test_generated_answers_have_losses_only(tmp_path):
    line = {"doc_id": 3, "doc": {}, "filtered_resps": ["Paris"], "exact_match": True}
    path = write_lines(tmp_path / "s.jsonl", [line])
    columns = read_lm_eval(path, metric="exact_match")
    assert {name: column.tolist() for name, column in columns.items()} == {
        "doc_id": [3],
        "loss": [0.0],
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"doc_id": 0, "metrics": ["acc"], "acc": 1}\n{"acc_norm": 1}\n', "row 1: no metric"),
        ('{"acc": 7}\n', "from 0 to 1, got 7"),
        ('{"acc": NaN}\n', "from 0 to 1, got nan"),
        ('{"acc": "1"}\n', "got '1'"),
        ("[1]\n", "holds a list"),
        ("{\n", "as JSON"),
        ("", "holds no answers"),
    ],
)
def test_lines_that_are_something_else(tmp_path, text, says):
    (tmp_path / "s.jsonl").write_text(text)
    with pytest.raises(dm.InvalidInputError, match=says):
        read_lm_eval(tmp_path / "s.jsonl", metric="acc")


def test_lm_eval_itself(tmp_path):
    tracker = pytest.importorskip("lm_eval.loggers.evaluation_tracker")
    keeper = tracker.EvaluationTracker(output_path=str(tmp_path))
    keeper.general_config_tracker.model_name_sanitized = "model"
    keeper.date_id = "today"
    samples = [
        {
            **{"doc_id": k, "doc": {"question": "?"}, "target": 0, "filter": "none"},
            "arguments": [("?", " a"), ("?", " b")],
            "resps": [[(-0.25 - k, False)], [(-2.0, False)]],
            "filtered_resps": [(-0.25 - k, False), (-2.0, False)],
            **{"acc": float(k == 0), "metrics": ["acc"], "doc_hash": "", "prompt_hash": ""},
            "target_hash": "",
        }
        for k in range(2)
    ]
    keeper.save_results_samples("boolq", samples)
    (path,) = tmp_path.rglob("samples_boolq_*.jsonl")
    columns = read_lm_eval(path, metric="acc")
    assert columns["loss"].tolist() == [0.0, 1.0]
    assert columns["surprise"].tolist() == [0.25, 1.25]


def inspect_log(*samples):
    return {"version": 2, "status": "success", "samples": list(samples)}


def graded(number, value, **metadata):
    scores = {"match": {"value": value, "metadata": {"surprise": number / 10, "why": "text"}}}
    return {"id": f"q{number}", "epoch": 1, "metadata": metadata, "scores": scores}


@pytest.mark.parametrize("kind", ["json", "eval"])
def test_grades_of_inspect(tmp_path, kind):
    values = ["C", "I", "P", "N", 0.25, True]
    samples = [graded(k, value, distance=k) for k, value in enumerate(values)]
    path = tmp_path / f"log.{kind}"
    if kind == "json":
        path.write_text(json.dumps(inspect_log(*samples)))
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("header.json", json.dumps(inspect_log()))
            for sample in samples:
                archive.writestr(f"samples/{sample['id']}_epoch_1.json", json.dumps(sample))
    columns = read_inspect(path)
    assert columns["loss"].tolist() == [0, 1, 0.5, 1, 0.75, 0]
    assert columns["distance"].tolist() == [0, 1, 2, 3, 4, 5]
    assert columns["surprise"].tolist() == [0, 0.1, 0.2, 0.3, 0.4, 0.5]
    assert "why" not in columns


def test_several_scorers_are_not_guessed(tmp_path):
    sample = graded(0, "C")
    sample["scores"]["judge"] = {"value": "I"}
    (tmp_path / "log.json").write_text(json.dumps(inspect_log(sample)))
    with pytest.raises(dm.InvalidInputError, match="several scorers"):
        read_inspect(tmp_path / "log.json")
    assert read_inspect(tmp_path / "log.json", scorer="judge")["loss"].tolist() == [1.0]
    with pytest.raises(dm.InvalidInputError, match="no score of 'exact'"):
        read_inspect(tmp_path / "log.json", scorer="exact")


@pytest.mark.parametrize("kind", ["json", "eval"])
def test_inspect_itself(tmp_path, kind):
    log = pytest.importorskip("inspect_ai.log")
    scorer = pytest.importorskip("inspect_ai.scorer")
    samples = [
        log.EvalSample(
            id=k,
            epoch=1,
            input="?",
            target="a",
            metadata={"distance": 0.5 * k},
            scores={"match": scorer.Score(value=value, metadata={"surprise": 0.1 * k})},
        )
        for k, value in enumerate(["C", "I"])
    ]
    spec = log.EvalSpec(
        created="2026-11-18T00:00:00+00:00",
        task="qa",
        dataset=log.EvalDataset(),
        model="mockllm/model",
        config=log.EvalConfig(),
    )
    path = tmp_path / f"log.{kind}"
    log.write_eval_log(log.EvalLog(eval=spec, samples=samples), str(path))
    columns = read_inspect(path)
    assert columns["loss"].tolist() == [0.0, 1.0]
    assert columns["distance"].tolist() == [0.0, 0.5]
    assert columns["surprise"].tolist() == [0.0, 0.1]


def polygraph_file(path, **more):
    """What lm-polygraph 0.7 saves: dicts that make lists, keys of two names."""
    metrics = collections.defaultdict(list)
    metrics["sequence", "Accuracy"] = [np.float64(1.0), 0.0, 1.0]
    estimations = collections.defaultdict(list)
    estimations["sequence", "MaximumSequenceProbability"] = np.array([0.5, 3.0, 0.25])
    estimations["token", "MaximumTokenProbability"] = [0.1] * 17
    stats = {"greedy_texts": ["a", "b", "c"], "greedy_tokens": [[1, 2], [3], [4]]} | more
    stored = {"state": "finished", "metrics": {}, "stats": stats}
    torch.save(stored | {"gen_metrics": metrics, "estimations": estimations}, path)
    return path


def test_estimates_of_polygraph(tmp_path):
    columns = read_polygraph(polygraph_file(tmp_path / "ue.man"))
    assert {name: column.tolist() for name, column in columns.items()} == {
        "Accuracy": [1.0, 0.0, 1.0],
        "MaximumSequenceProbability": [0.5, 3.0, 0.25],
    }


def test_polygraph_itself(tmp_path):
    manager = pytest.importorskip("lm_polygraph.utils.manager").UEManager
    saved = manager.__new__(manager)
    saved.state, saved.metrics, saved.stats = "finished", {}, collections.defaultdict(list)
    saved.gen_metrics = collections.defaultdict(list, {("sequence", "Accuracy"): [1.0, 0.0]})
    saved.estimations = collections.defaultdict(list, {("sequence", "Perplexity"): [0.2, 1.4]})
    saved.save(str(tmp_path / "ue.man"))
    assert read_polygraph(tmp_path / "ue.man")["Perplexity"].tolist() == [0.2, 1.4]


class Harmful:
    def __reduce__(self):
        return os.mkdir, ("harmed",)


def test_nothing_in_a_file_of_polygraph_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = polygraph_file(tmp_path / "ue.man", trap=Harmful())
    with pytest.raises(dm.InvalidInputError, match=r"refused: it asks to load (posix|nt)\.mkdir"):
        read_polygraph(path)
    assert not (tmp_path / "harmed").exists()


def test_pairs_that_nest_are_still_lists(tmp_path):
    # A key that is a tree of tuples would take for ever to hash.
    deep = ("a", "b")
    for _ in range(60):
        deep = (deep, deep)
    stored = io_of({"gen_metrics": {}, "estimations": {}, "deep": deep})
    with zipfile.ZipFile(tmp_path / "ue.man", "w") as archive:
        archive.writestr("archive/data.pkl", stored)
    with pytest.raises(dm.InvalidInputError, match="no numbers a sequence"):
        read_polygraph(tmp_path / "ue.man")


def io_of(stored):
    return pickle.dumps(stored, protocol=2)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04", b"not a zip"])
def test_files_that_are_not_of_torch(tmp_path, content):
    (tmp_path / "ue.man").write_bytes(content)
    with pytest.raises(dm.InvalidInputError, match=r"ue\.man"):
        read_polygraph(tmp_path / "ue.man")


def test_uqlm_itself():
    results = pytest.importorskip("uqlm.utils.results")
    data = {"responses": ["a", "b"], "prompts": ["?", "??"], "semantic_negentropy": [0.9, 0.2]}
    columns = read_uqlm(results.UQResult({"data": data, "metadata": {}}))
    assert columns["semantic_negentropy"].tolist() == [0.9, 0.2]
    assert columns["response"].tolist() == ["a", "b"]


def test_a_frame_like_that_of_uqlm_is_tuned_by_its_confidences():
    rng = np.random.default_rng(0)
    wrong = rng.random(200) < 0.2
    known = pd.DataFrame({"trust": rng.normal(1 - wrong, 0.5), "near": rng.normal(1, 0.5, 200)})
    foreign = pd.DataFrame({"trust": rng.normal(0.5, 0.5, 100), "near": rng.normal(-1, 0.5, 100)})
    columns = read_uqlm(known) | {"loss": wrong}
    names = ["trust", "near"]
    sample = answers_sample(columns, read_uqlm(foreign), names, confidence=names)
    tuned = dm.tune(sample, dm.TprFprModel(0.7, 0.1))
    # A rule is about the columns as they are, so confidences weigh negative.
    assert max(tuned.rule.direction) <= 0
    turned = dm.Sample(-known.to_numpy(), wrong, -foreign.to_numpy())
    assert dm.tune(turned, dm.TprFprModel(0.7, 0.1)).point.tpr == tuned.point.tpr
    with pytest.raises(dm.InvalidInputError, match="a data frame is needed"):
        read_uqlm(3)


def test_samples_of_several_kinds_of_questions():
    known = {"s": [0.1, 0.9, 0.4], "loss": [0, 1, 0]}
    sets = {"false premise": {"s": [0.7]}, "unknown": {"s": [0.2, 0.3]}}
    sample = answers_sample(known, sets, ["s"])
    assert sample.n_id == 3 and sample.n_ood == 3
    point = dm.evaluate(dm.Rule([1.0], 0.5), sample)
    assert dict(point.fpr_by_set) == {"false premise": 0.0, "unknown": 1.0}
    assert answers_sample(known, None, ["s"]).n_ood == 0
    with pytest.raises(dm.InvalidInputError, match="unknown has no column 's'"):
        answers_sample(known, {"unknown": {"t": [1]}}, ["s"])
    with pytest.raises(dm.InvalidInputError, match="answerable has no column 'grade'"):
        answers_sample(known, None, ["s"], loss="grade")
