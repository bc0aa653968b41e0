"""OpenOOD score files on the command line."""

import json
import os
import pickle

import numpy as np
from commands import make_table, run

import demur as dm

BOUNDS = ["--min-tpr", ".8", "--max-fpr", ".1", "--json"]


def score_files(folder):
    """Write the scores msp and knn as confidences, as NPZ folders and as pickles."""
    table = make_table()
    columns = {name: np.array(table[name].to_pylist()) for name in table.column_names}
    for method in ("msp", "knn"):
        stored = {"id": {}, "ood": {"near": {}, "far": {}}}
        (folder / method / "scores").mkdir(parents=True)
        for name, group in (("id", "id"), ("svhn", "far"), ("mnist", "near")):
            rows = columns["set"] == name
            label = columns["label"][rows] if name == "id" else np.full(rows.sum(), -1)
            part = [columns["pred"][rows], -columns[method][rows], label]
            if name == "id":
                stored["id"]["test"] = part
            else:
                stored["ood"][group][name] = part
            path = folder / method / "scores" / ("cifar10" if name == "id" else name)
            np.savez(path, pred=part[0], conf=part[1], label=part[2])
        (folder / f"{method}.pkl").write_bytes(pickle.dumps(stored, pickle.HIGHEST_PROTOCOL))
    return table


def test_pickles_and_folders_give_the_same_rule(tmp_path):
    table = score_files(tmp_path)
    sample = dm.Sample.from_frame(table, ["msp", "knn"], loss="is_wrong", ood="set")
    expected = dm.tune(sample, dm.TprFprModel(0.8, 0.1))
    pickles = ["--openood", "msp.pkl", "--openood", "knn.pkl"]
    done = run(tmp_path, "tune", *pickles, *BOUNDS, "-o", "r.json")
    assert done.returncode == 0, done.stderr
    rule = json.loads(done.stdout)["rule"]
    # The rule reads the confidences as they are stored.
    assert rule["direction"] == [-weight for weight in expected.rule.direction]
    assert rule["threshold"] == expected.rule.threshold
    assert rule["score_names"] == ["msp", "knn"]
    folders = ["--openood", "msp/scores", "--openood", "knn=knn/scores", "--openood-id", "cifar10"]
    assert json.loads(run(tmp_path, "tune", *folders, *BOUNDS).stdout)["rule"] == rule
    again = run(tmp_path, "evaluate", "r.json", *folders, "--openood-ood", "mnist", "--json")
    point = json.loads(again.stdout)["point"]
    assert point["fpr_by_set"] == {"mnist": expected.point.fpr_by_set["mnist"]}
    assert point["selective_risk"] == expected.point.selective_risk


def test_an_evil_pickle_is_refused(tmp_path):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path / 'proof'}",)

    (tmp_path / "evil.pkl").write_bytes(pickle.dumps({"id": Evil()}))
    done = run(tmp_path, "tune", "--openood", "evil.pkl", *BOUNDS)
    assert done.returncode == 2
    assert "'evil.pkl' is refused: it asks to load posix.system" in done.stderr
    assert not (tmp_path / "proof").exists()


def test_compare_shows_every_score_alone_by_default(tmp_path):
    score_files(tmp_path)
    pickles = ["--openood", "msp.pkl", "--openood", "knn.pkl", "--openood-ood", "svhn"]
    results = json.loads(run(tmp_path, "compare", *pickles, *BOUNDS).stdout)["results"]
    assert [(r["scores"], r["ood"]) for r in results] == [(["msp"], "svhn"), (["knn"], "svhn")]


def test_score_files_have_no_ids(tmp_path):
    score_files(tmp_path)
    for command in (["tune"], ["report", "-o", "no.html"]):
        files = ["--openood", "msp.pkl", "--id", "image", "--holdout", ".3"]
        refused = run(tmp_path, *command, *files, *BOUNDS)
        assert refused.returncode == 2
        assert "--id names a column of DATA" in refused.stderr and "Traceback" not in refused.stderr
