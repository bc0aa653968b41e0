"""What the pages of the documentation take for granted: files and values that are the reader's."""

import pickle
import sqlite3
from pathlib import Path

import numpy as np
import pyarrow as pa
from commands import make_table, write_table

import demur as dm


def scored(folder):
    """Write the tables that commands of several pages name, and return nothing to Python."""
    for seed, name in enumerate(["scores", "test", "fresh", "live", "today"]):
        table = make_table(seed, 600, 300)
        more = {
            other: np.asarray(table["knn"]) + np.random.default_rng(seed).normal(0, 1, 900)
            for other in ("mls", "odin", "react", "vim")
        }
        for column, values in more.items():
            table = table.append_column(column, pa.array(values))
        for kind in ("parquet", "csv"):
            write_table(table, folder / f"{name}.{kind}")
    return {}


def framework(folder):
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    pixels, digit = load_digits(return_X_y=True)
    known, foreign = pixels[digit < 8], pixels[digit >= 8]
    return {
        **{"dm": dm, "make_pipeline": make_pipeline, "StandardScaler": StandardScaler},
        "LogisticRegression": lambda: LogisticRegression(max_iter=200),
        **{"X": known[:900], "y": digit[digit < 8][:900], "X_ood": foreign[:200]},
        **{"X_test": known[900:], "y_test": digit[digit < 8][900:], "X_ood_test": foreign[200:]},
        "X_new": known[900:950],
    }


def command_line(folder):
    scored(folder)
    openood(folder)
    return {}


def openood(folder):
    """Write score files as OpenOOD does: a pickle for each method, and folders of NPZ files."""
    rng = np.random.default_rng(0)
    label, prediction = rng.integers(0, 3, 300), rng.integers(0, 3, 300)
    prediction[:250] = label[:250]
    (folder / "results").mkdir()
    for method, run in (("msp", "run1"), ("knn", "run2")):
        inside = [prediction, rng.normal(2, 1, 300), label]
        sets = {
            name: [np.zeros(100, int), rng.normal(-1, 1, 100), np.full(100, -1)]
            for name in ("svhn", "mnist")
        }
        stored = {"id": {"test": inside}, "ood": {"near": {}, "far": sets}}
        (folder / "results" / f"{method}.pkl").write_bytes(pickle.dumps(stored))
        place = folder / run / "scores"
        place.mkdir(parents=True)
        for name, (pred, conf, gold) in {"cifar10": inside, **sets}.items():
            np.savez(place / f"{name}.npz", pred=pred, conf=conf, label=gold)


def learned(folder):
    scored(folder)
    rng = np.random.default_rng(0)

    def drawn(rows):
        wrong = rng.random(rows) < 0.2
        names = ("msp", "mls", "odin", "react", "knn")
        scores = rng.normal(wrong[:, None], 1, (rows, 5))
        return dm.Sample(scores, wrong, rng.normal(2, 1, (rows // 2, 5)), score_names=names)

    return {
        **{"dm": dm, "sample_k": drawn(400), "fresh_sample": drawn(400)},
        **{"model": dm.TprFprModel(0.8, 0.2), "live_scores": rng.normal(0, 1, (9, 5))},
    }


def reported(folder):
    scored(folder)
    rng = np.random.default_rng(0)
    samples = []
    for _ in range(2):
        wrong = rng.random(300) < 0.1
        scores = np.column_stack([rng.gamma(1 + 2 * wrong), rng.normal(0, 1, 300)])
        foreign = np.column_stack([rng.gamma(1.5, size=150), rng.normal(3, 1, 150)])
        samples.append(dm.Sample(scores, wrong, foreign, score_names=("msp", "knn")))
    names = [f"image {k}" for k in range(300)]
    return {
        **{"dm": dm, "sample": samples[0], "test_sample": samples[1]},
        **{"id_names": names, "ood_names": names[:150]},
    }


def lake(folder):
    for place in ("lake", "fresh_lake"):
        for day in (1, 2, 3):
            part = folder / place / f"day=2026-11-0{day}"
            part.mkdir(parents=True)
            table = make_table(day + 10 * len(place), 240, 120)
            write_table(table.select(["msp", "knn", "is_wrong", "is_ood"]), part / "rows.parquet")
    rows = make_table(0, 240, 120).select(["msp", "knn", "is_wrong", "is_ood"]).to_pandas()
    with sqlite3.connect(folder / "scores.db") as connection:
        rows.astype(float).to_sql("scores", connection, index=False)
        rows[~rows["is_ood"]].astype(float).to_sql("known", connection, index=False)
    rule = dm.Rule([0.6, 0.8], 2.0, score_names=("msp", "knn"))
    return {"dm": dm, "rule": rule, "connection": connection}


def watched(folder):
    table = make_table(0, 600, 300)
    sample = dm.Sample.from_frame(table, ["msp", "knn"], loss="is_wrong", ood="is_ood")
    rule = dm.tune(sample, dm.TprFprModel(0.8, 0.2)).rule
    rule.save(folder / "rule.json")
    for day in (1, 2):
        part = folder / "live" / f"day={day}"
        part.mkdir(parents=True)
        names = pa.array([f"{day}-{k}" for k in range(280)])
        rows = make_table(day, 240, 40).set_column(0, "image_id", names)
        write_table(rows.select(["image_id", "msp", "knn"]), part / "rows.parquet")
        write_table(rows.select(["image_id", "is_wrong", "set"])[:60], folder / f"a{day}.csv")
    lines = [(folder / f"a{day}.csv").read_text().splitlines() for day in (1, 2)]
    (folder / "audits.csv").write_text("\n".join([*lines[0], *lines[1][1:]]) + "\n")
    live = make_table(3, 240, 40).select(["msp", "knn", "is_wrong", "set"]).to_pandas()
    with sqlite3.connect(folder / "live.db") as connection:
        live.assign(day="2026-11-19").astype({"is_wrong": float}).to_sql(
            "live", connection, index=False
        )
    connection.close()
    rng = np.random.default_rng(1)
    watches = [dm.watch.Watch(rule), dm.watch.Watch(rule)]
    for watch in watches:
        watch.update(rng.normal(0, 1, (20, 2)))
    return {
        **{"dm": dm, "rule": rule, "scores": rng.normal(0, 1, (6, 2)), "ids": list("abcdef")},
        **{"loss": [0, 0, 1, 0, 0, 0], "is_ood": [False] * 6, "audited": [True] * 6},
        **{"watch_a": watches[0], "watch_b": watches[1]},
    }


SETUPS = {
    "README.md": scored,
    "docs/adapters.md": framework,
    "docs/command-line.md": command_line,
    "docs/deployment.md": scored,
    "docs/learn.md": learned,
    "docs/report.md": reported,
    "docs/scale.md": lake,
    "docs/watch.md": watched,
}


STAND_INS = {
    '"postgresql://me@host/db", ["msp", "knn"], table="lake.scores"': (
        '"sqlite:///scores.db", ["msp", "knn"], table="scores"'
    ),
    "postgresql://me@host/db --table lake.scores": "sqlite:///scores.db --table known",
    "postgresql://me@host/db --table live": "sqlite:///live.db --table live",
    'connection, "msp", table="scores"': 'connection, "msp", table="known"',
}
"""Where a page names the reader's server, a database in a file takes its place."""


def prepared(page: str, folder: Path) -> dict:
    """Make the reader's files in `folder` and return the reader's values."""
    setup = SETUPS.get(page)
    return setup(folder) if setup else {}
