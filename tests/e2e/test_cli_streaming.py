"""`demur tune` and `evaluate` on rows that stay where they are."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from commands import make_table, rates, rows_of, run, write_table

COLUMNS = ["--scores", "msp,knn", "--loss", "is_wrong", "--ood", "is_ood"]
BOUNDS = ["--min-tpr", ".8", "--max-fpr", ".1"]


@pytest.fixture(scope="module")
def lake(tmp_path_factory):
    """A table in one file, and the same rows in twelve."""
    folder = tmp_path_factory.mktemp("lake")
    table = make_table(seed=4, n_id=2400, n_ood=1200)
    write_table(table, folder / "all.parquet")
    order = np.random.default_rng(0).permutation(table.num_rows)
    for i in range(12):
        place = folder / "lake" / f"day={i // 4}"
        place.mkdir(parents=True, exist_ok=True)
        write_table(table.take(pa.array(order[i::12])), place / f"part-{i:02}.parquet")
    return folder


def tuned(folder, *arguments):
    done = run(folder, "tune", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def same_point(a, b):
    names = ("tpr", "fpr", "selective_risk", "accepted_id", "accepted_ood", "rows")
    return all(a["tuned"][name] == b["tuned"][name] for name in names)


def test_patterns_folders_and_engines_find_the_same_rule(lake):
    here = tuned(lake, "all.parquet", *COLUMNS, *BOUNDS)
    ways = [
        ["lake"],
        ["lake/*/*.parquet", "--memory", "500MB"],
        ["all.parquet", "--engine", "duckdb"],
        ["all.parquet", "--engine", "memory"],
        ["lake/*/*.parquet", "--engine", "memory"],
        ["all.parquet", "--engine", "dask"],
    ]
    for way in ways:
        assert same_point(tuned(lake, *way, *COLUMNS, *BOUNDS), here), way


def test_large_files_stream_by_themselves(lake):
    n = 400_000
    rng = np.random.default_rng(1)
    table = pa.table(
        {
            "msp": rng.gamma(2, size=n),
            "is_wrong": rng.integers(0, 2, n),
            "is_ood": rng.random(n) < 0.3,
        }
    )
    pa.parquet.write_table(table, lake / "big.parquet")
    columns = ["--scores", "msp", "--loss", "is_wrong", "--ood", "is_ood"]
    here = tuned(lake, "big.parquet", *columns, *BOUNDS[:2])
    there = tuned(lake, "big.parquet", *columns, *BOUNDS[:2], "--memory", "100MB")
    assert same_point(here, there)
    done = run(lake, "tune", "big.parquet", *columns, *BOUNDS[:2], "--memory", "100MB", "--grid", 9)
    assert done.returncode == 2 and "--grid needs the rows in memory" in done.stderr


def test_confidences_prior_and_output(lake):
    columns = ["--scores", "msp,knn_conf", "--confidence", "knn_conf", "--loss", "is_wrong"]
    given = [*columns, "--ood", "set", *BOUNDS, "--prior", ".2"]
    here = tuned(lake, "all.parquet", *given, "-o", "here.json")
    there = tuned(lake, "lake", *given, "-o", "there.json")
    assert same_point(here, there)
    assert there["tuned"]["precision"] == here["tuned"]["precision"]
    assert there["tuned"]["rows"]["ood_sets"] == {"mnist": 800, "svhn": 400}
    assert json.loads((lake / "there.json").read_text())["direction"][1] < 0
    done = run(lake, "evaluate", "there.json", "all.parquet", "--loss", "is_wrong", "--ood", "set")
    assert done.returncode == 0, done.stderr


def test_infeasible_bounds_are_told_alike(lake):
    given = [*COLUMNS, "--min-tpr", ".99", "--max-fpr", ".01", "--json"]
    here, there = (run(lake, "tune", data, *given) for data in ("all.parquet", "lake"))
    assert here.returncode == there.returncode == 3
    assert json.loads(here.stdout) == json.loads(there.stdout)


def test_points_by_day(lake):
    (lake / "r.json").write_text(
        '{"format": "demur.rule", "version": 1, "direction": [0.6, 0.8], "threshold": 1.25, '
        '"tau": 1.0, "score_names": ["msp", "knn"]}'
    )
    given = ["--loss", "is_wrong", "--ood", "is_ood", "--by", "day"]
    done = run(lake, "evaluate", "r.json", "lake", *given, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [group["value"] for group in found["groups"]] == [0, 1, 2]
    for group in found["groups"]:
        paths = sorted((lake / "lake" / f"day={group['value']}").iterdir())
        rows = [row for path in paths for row in rows_of(pa.parquet.ParquetFile(path).read())]
        tpr, fpr, risk = rates(rows, lambda row: 0.6 * row.msp + 0.8 * row.knn <= 1.25)
        assert (group["tpr"], group["fpr"]) == (tpr, fpr)
        assert group["selective_risk"] == pytest.approx(risk, rel=1e-14)
    shown = run(lake, "evaluate", "r.json", "lake", *given).stdout
    assert f"{found['groups'][1]['tpr']:.4f}" in shown and "accepted OOD" in shown


def truncate(path):
    path.write_bytes(path.read_bytes()[:-100])


def wrong_type(path):
    table = pa.parquet.ParquetFile(path).read()
    text = table["knn"].cast(pa.string())
    pa.parquet.write_table(table.set_column(table.column_names.index("knn"), "knn", text), path)


@pytest.mark.parametrize(
    ("damage", "words"),
    [(truncate, ["part-09.parquet"]), (wrong_type, ["part-09.parquet", "'knn'"])],
)
def test_trouble_in_the_tenth_file(tmp_path, damage, words):
    for i in range(12):
        write_table(make_table(seed=i), tmp_path / f"part-{i:02}.parquet")
    damage(tmp_path / "part-09.parquet")
    done = run(tmp_path, "tune", "*.parquet", *COLUMNS, *BOUNDS, "-o", "r.json")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert all(word in done.stderr for word in words), done.stderr
    assert not (tmp_path / "r.json").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lake", *COLUMNS, *BOUNDS, "--memory", "2 bananas"], "is not a size such as 2GB"),
        (["lake", *COLUMNS, *BOUNDS, "--memory", "1kB"], "too little"),
        (["lake", *COLUMNS, *BOUNDS, "--holdout", ".3"], "--holdout needs the rows in memory"),
        (["lake", *BOUNDS, "--loss", "is_wrong", "--ood", "is_ood"], "--scores is needed"),
        (["nothing/*.parquet", *COLUMNS, *BOUNDS], "no file matches"),
    ],
)
def test_usage(lake, arguments, message):
    done = run(lake, "tune", *arguments)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split()), done.stderr
