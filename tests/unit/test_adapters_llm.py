"""Logs of language models: files that the packages wrote, and such as could be mistaken.

`tests/data/llm` has files of lm-eval 0.4.13, inspect-ai 0.3.285, lm-polygraph 0.7.0 and uqlm
0.6.7, written by `tests/support/llm_packages.py`; where a package is installed, it does so anew.
"""

import collections
import functools
import json
import os
import pickle
import warnings
import zipfile
from pathlib import Path

import llm_packages
import numpy as np
import pandas as pd
import pytest

import demur as dm
from demur.adapters.llm import (
    answers_sample,
    read_inspect,
    read_lm_eval,
    read_polygraph,
    read_uqlm,
)

DATA = Path(__file__).parents[1] / "data" / "llm"


@pytest.fixture(scope="module", params=["stored", "written now"])
def written(request, tmp_path_factory):
    """Return where files of a package are, as they are stored or as it writes them now."""

    @functools.cache
    def folder(package):
        if request.param == "stored":
            return DATA
        pytest.importorskip(package)
        place = tmp_path_factory.mktemp(package)
        with warnings.catch_warnings():
            # What they say of each other is not about demur.
            warnings.simplefilter("ignore")
            getattr(llm_packages, package)(place)
        return place

    return folder


def test_choices_of_lm_eval(written):
    folder = written("lm_eval")
    asked = llm_packages.QUESTIONS
    # A space stands between question and answer.
    said = [
        np.array([llm_packages.log_probability(question, f" {one}") for one in choices])
        for question, choices, _, _ in asked
    ]
    wrong = [
        float(np.argmax(one) != gold) for one, (_, _, gold, _) in zip(said, asked, strict=True)
    ]
    assert 0 < sum(wrong) < len(wrong)
    for name in ("choices", "mutual"):
        columns = read_lm_eval(folder / f"lm_eval_{name}.jsonl", metric="acc")
        assert columns["doc_id"].tolist() == [0, 1, 2, 3]
        assert columns["loss"].tolist() == wrong
        assert columns["distance"].tolist() == [distance for *_, distance in asked]
        np.testing.assert_allclose(columns["surprise"], [-one.max() for one in said], rtol=1e-12)
        shares = [1 - (np.exp(one) / np.exp(one).sum()).max() for one in said]
        np.testing.assert_allclose(columns["msp"], shares, rtol=1e-12)


def test_filters_of_lm_eval(written):
    path = written("lm_eval") / "lm_eval_filters.jsonl"
    # "Paris it is" is the right answer to one question, if one looks for a name only.
    losses = {
        name: read_lm_eval(path, metric="exact_match", filter=name)["loss"].tolist()
        for name in ("strict", "loose")
    }
    assert losses == {"strict": [1, 1, 1, 1], "loose": [0, 1, 1, 1]}
    with pytest.raises(dm.InvalidInputError, match="several filters, 'strict', 'loose': say which"):
        read_lm_eval(path, metric="exact_match")
    with pytest.raises(dm.InvalidInputError, match="no filter 'none'; there is 'strict'"):
        read_lm_eval(path, metric="exact_match", filter="none")


@pytest.mark.parametrize("kind", ["eval", "json"])
def test_logs_of_inspect(written, kind):
    path = written("inspect_ai") / f"inspect_ai.{kind}"
    columns = read_inspect(path, scorer="right_and_surprise")
    assert columns["id"].tolist() == ["q0", "q1", "q2"]
    assert columns["loss"].tolist() == [0.0, 0.0, 1.0]
    assert columns["distance"].tolist() == [distance for *_, distance in llm_packages.QUESTIONS[:3]]
    expected = [-np.mean(values) for _, values in llm_packages.ANSWERS]
    np.testing.assert_allclose(columns["surprise"], expected, rtol=1e-12)
    with pytest.raises(
        dm.InvalidInputError, match="several scorers, 'right_and_surprise', 'match'"
    ):
        read_inspect(path)


def test_a_question_that_ended_in_an_error(tmp_path):
    pytest.importorskip("inspect_ai")
    llm_packages.inspect_ai(tmp_path, failing=True)
    for kind in ("eval", "json"):
        path = tmp_path / f"inspect_ai.{kind}"
        with pytest.raises(dm.InvalidInputError, match=r"'q3': no score, .*no answer in time"):
            read_inspect(path, scorer="match")
        kept = read_inspect(path, scorer="match", unscored="skip")
        assert kept["id"].tolist() == ["q0", "q1", "q2"]


def test_estimates_that_polygraph_saved(written):
    folder = written("lm_polygraph")
    columns = read_polygraph(folder / "lm_polygraph.man")
    in_memory = json.loads((folder / "lm_polygraph.json").read_text())
    assert {name: column.tolist() for name, column in columns.items()} == in_memory
    assert columns["Accuracy"].tolist() == [0, 1, 0, 0]
    assert set(columns) == {"Accuracy", "MaximumSequenceProbability", "MeanTokenEntropy"}


def test_confidences_of_uqlm(written):
    answers = llm_packages.ANSWERS
    if written("uqlm") == DATA:
        columns = read_uqlm(pd.read_json(DATA / "uqlm.json"))
    else:
        columns = read_uqlm(llm_packages.uqlm_result())
    assert columns["response"].tolist() == [text for text, _ in answers]
    means = [np.exp(np.mean(values)) for _, values in answers]
    np.testing.assert_allclose(columns["sequence_probability"], means, rtol=1e-9)
    least = [np.exp(min(values)) for _, values in answers]
    np.testing.assert_allclose(columns["min_probability"], least, rtol=1e-9)
    names = ["sequence_probability", "min_probability"]
    sample = answers_sample(columns | {"loss": [0, 0, 1]}, None, names, confidence=names)
    # Confidences weigh negative: the wrong answer is the one to leave out.
    assert dm.tune(sample, dm.TprFprModel(0.6)).rule.accept(columns).tolist() == [True, True, False]


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


def test_samples_without_a_score(tmp_path):
    failed = graded(1, "C") | {"scores": {}, "error": {"message": "no answer in time"}}
    (tmp_path / "log.json").write_text(json.dumps(inspect_log(graded(0, "C"), failed)))
    with pytest.raises(dm.InvalidInputError, match=r"'q1': no score, no answer in time; run it"):
        read_inspect(tmp_path / "log.json")
    assert read_inspect(tmp_path / "log.json", unscored="skip")["id"].tolist() == ["q0"]
    with pytest.raises(dm.InvalidInputError, match="'refuse' or 'skip'"):
        read_inspect(tmp_path / "log.json", unscored="keep")


def test_names_of_a_doc_do_not_replace_those_of_the_reader(tmp_path):
    line = lm_eval_line(4, 1.0, [-1.0, -3.0], loss=0.7, doc_id=9, surprise=5)
    columns = read_lm_eval(write_lines(tmp_path / "s.jsonl", [line]), metric="acc")
    assert (columns["loss"], columns["doc_id"], columns["surprise"]) == (0.0, 4, 1.0)
    sample = graded(0, "C", loss=0.7, epoch=4)
    (tmp_path / "log.json").write_text(json.dumps(inspect_log(sample)))
    columns = read_inspect(tmp_path / "log.json")
    assert (columns["loss"], columns["epoch"]) == (0.0, 1.0)


def test_damaged_logs_of_inspect(tmp_path):
    content = bytearray((DATA / "inspect_ai.eval").read_bytes())
    with zipfile.ZipFile(DATA / "inspect_ai.eval") as archive:
        info = archive.getinfo("samples/q1_epoch_1.json")
        # Packed by Zstandard, which zipfile reads from Python 3.14 on.
        assert info.compress_type == 93
    content[info.header_offset + 30 + len(info.filename) + 40] ^= 255
    path = tmp_path / "log.eval"
    path.write_bytes(content)
    with pytest.raises(dm.InvalidInputError, match=r"log\.eval': samples/q1_epoch_1\.json: "):
        read_inspect(path, scorer="match")
    path.write_bytes(content[:2000])
    with pytest.raises(dm.InvalidInputError, match=r"log\.eval': it is neither text nor a whole"):
        read_inspect(path, scorer="match")


def polygraph_file(path, **more):
    """What lm-polygraph 0.7 saves: dicts that make lists, keys of two names."""
    torch = pytest.importorskip("torch")

    metrics = collections.defaultdict(list)
    metrics["sequence", "Accuracy"] = [np.float64(1.0), 0.0, 1.0]
    estimations = collections.defaultdict(list)
    estimations["sequence", "MaximumSequenceProbability"] = np.array([0.5, 3.0, 0.25])
    estimations["token", "MaximumTokenProbability"] = [0.1] * 17
    stats = {"greedy_texts": ["a", "b", "c"], "greedy_tokens": [[1, 2], [3], [4]]} | more
    judged = {("sequence", "MaximumSequenceProbability", "Accuracy", "prr"): np.float64(0.5)}
    stored = {"state": "finished", "metrics": judged, "stats": stats}
    torch.save(stored | {"gen_metrics": metrics, "estimations": estimations}, path)
    return path


def test_estimates_of_polygraph(tmp_path):
    columns = read_polygraph(polygraph_file(tmp_path / "ue.man"))
    assert {name: column.tolist() for name, column in columns.items()} == {
        "Accuracy": [1.0, 0.0, 1.0],
        "MaximumSequenceProbability": [0.5, 3.0, 0.25],
    }


def test_tensors_beside_the_estimates_are_left_out(tmp_path):
    torch = pytest.importorskip("torch")

    more = {"embeddings": [torch.ones(3, 2), torch.ones(2, dtype=torch.bfloat16)]}
    columns = read_polygraph(polygraph_file(tmp_path / "ue.man", **more))
    assert columns["Accuracy"].tolist() == [1.0, 0.0, 1.0]


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
