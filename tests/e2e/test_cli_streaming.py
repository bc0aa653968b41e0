"""`demur tune` and `evaluate` on rows that stay where they are."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.csv
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
    coarse = [*columns, *BOUNDS[:2], "--grid", "9"]
    here = tuned(lake, "big.parquet", *coarse)
    assert same_point(here, tuned(lake, "big.parquet", *coarse, "--memory", "100MB"))


def test_a_grid_of_angles_is_the_same_where_the_rows_are(lake):
    here = tuned(lake, "all.parquet", *COLUMNS, *BOUNDS, "--grid", "45")
    for way in (["lake"], ["all.parquet", "--engine", "duckdb"]):
        assert same_point(tuned(lake, *way, *COLUMNS, *BOUNDS, "--grid", "45"), here), way


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
        (
            ["lake", *COLUMNS, *BOUNDS, "--holdout", ".3", "--holdout-by", "chance"],
            "--holdout-by chance deals rows in memory",
        ),
        (["lake", *COLUMNS, *BOUNDS, "--holdout-by", "hash"], "--holdout-by is about --holdout"),
        (["lake", *BOUNDS, "--loss", "is_wrong", "--ood", "is_ood"], "--scores is needed"),
        (["nothing/*.parquet", *COLUMNS, *BOUNDS], "no file matches"),
    ],
)
def test_usage(lake, arguments, message):
    done = run(lake, "tune", *arguments)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split()), done.stderr


HELD = ["--holdout", ".3", "--seed", "5"]


@pytest.mark.parametrize("by", [[], ["--id", "image"], ["--id", "patient"]])
def test_a_hash_holds_out_the_same_rows_on_every_engine(lake, by):
    table = pa.parquet.read_table(lake / "all.parquet")
    patient = np.random.default_rng(2).integers(0, 400, table.num_rows)
    names = pa.array([f"0{k}" for k in range(table.num_rows)])
    for name, column in {"patient": pa.array(patient), "image": names}.items():
        if name not in table.column_names:
            table = table.append_column(name, column)
    write_table(table, lake / "ids.parquet")
    pa.csv.write_csv(table, lake / "ids.csv")
    given = [*COLUMNS, *BOUNDS, *HELD, *by]
    # What is text in one kind of file may be numbers in another, so each by itself.
    for file, others in (("ids.parquet", ["duckdb", "dask"]), ("ids.csv", ["duckdb"])):
        here = tuned(lake, file, *given, "--holdout-by", "hash")
        assert 0.2 < here["held_out"]["rows"]["id"] / 2400 < 0.4
        for engine in others:
            there = tuned(lake, file, *given, "--engine", engine)
            assert same_point(here, there)
            assert here["held_out"] == there["held_out"]
            assert there["work"]["engine"] == engine and there["work"]["passes"] > 5


def test_promises_and_pages_of_rows_that_stay_where_they_are(lake):
    given = [*COLUMNS, *BOUNDS, *HELD]
    # What so few rows can prove, however they are split.
    wider = [*COLUMNS, "--min-tpr", ".75", "--max-fpr", ".15", *HELD]
    done = run(lake, "tune", "lake", *wider, "--guarantee", ".9", "--json", "-o", "g.json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    here = tuned(lake, "all.parquet", *given, "--holdout-by", "hash")
    assert found["held_out"]["rows"] == here["held_out"]["rows"]
    assert found["work"]["rows_fetched"] == 3600 and found["guarantee"]["confidence"] == 0.9
    for command in (["tune", "lake", *given, "--report", "t.html"], ["report", "lake", *given]):
        command = [*command, "--engine", "duckdb"]
        output = [] if command[0] == "tune" else ["-o", "r.html"]
        done = run(lake, *command, *output, "--force")
        assert done.returncode == 0, done.stderr
    page = (lake / "r.html").read_text()
    assert f"{here['held_out']['rows']['id']:,} ID" in page
    assert f"{here['held_out']['rows']['id']:,} ID" in (lake / "t.html").read_text()


def test_rows_that_memory_cannot_hold_are_drawn_and_that_is_said(lake):
    rng = np.random.default_rng(8)
    n = 200_000
    table = pa.table(
        {
            "msp": rng.normal(size=n),
            "is_wrong": rng.integers(0, 2, n),
            "is_ood": rng.random(n) < 0.5,
        }
    )
    pa.parquet.write_table(table, lake / "wide.parquet")
    given = ["wide.parquet", "--scores", "msp", "--loss", "is_wrong", "--ood", "is_ood"]
    given += ["--min-tpr", ".3", "--engine", "duckdb", "--memory", "50MB"]
    done = run(lake, "tune", *given, "--guarantee", ".9", "--json")
    assert done.returncode == 0, done.stderr
    assert "the promise rests on" in done.stderr and "drawn by a hash of 200,000" in done.stderr
    assert 80_000 < json.loads(done.stdout)["work"]["rows_fetched"] < 86_000


def test_estimates_by_a_hash_are_the_same_on_every_engine(lake):
    given = [*COLUMNS, *BOUNDS, "--folds", "3", "--replicates", "4", "--seed", "2", "--json"]
    found = []
    for engine in ("duckdb", "dask"):
        done = run(lake, "estimate", "lake", *given, "--engine", engine)
        assert done.returncode == 0, done.stderr
        found.append(json.loads(done.stdout))
    one, two = found
    # Rows come in any order, which may move the line midway between them by an ulp.
    for fold, other in zip(one["cross"]["folds"], two["cross"]["folds"], strict=True):
        rule, same = fold.pop("rule"), other.pop("rule")
        assert rule["direction"] == pytest.approx(same["direction"], rel=1e-12)
        assert rule["threshold"] == pytest.approx(same["threshold"], rel=1e-12)
    assert one["cross"] == two["cross"] and one["bootstrap"] == two["bootstrap"]
    assert one["rows"]["id"] == 2400 and len(one["cross"]["folds"]) == 3
    assert one["work"]["engine"] == "duckdb" and one["work"]["passes"] > 30


def test_compare_prior_and_plan_read_what_an_engine_brings(lake):
    table = pa.parquet.read_table(lake / "all.parquet")
    half = table.num_rows // 2
    order = np.random.default_rng(3).permutation(table.num_rows)
    write_table(table.take(pa.array(order[:half])), lake / "fresh.parquet")
    write_table(table.take(pa.array(order[half:])), lake / "live.parquet")
    done = run(lake, "tune", "all.parquet", *COLUMNS, *BOUNDS, "-o", "p.json", "--force")
    assert done.returncode == 0, done.stderr
    commands = [
        ["compare", "lake", "--scores", "msp", "--scores", "msp,knn", *COLUMNS[2:], *BOUNDS],
        ["prior", "p.json", "fresh.parquet", *COLUMNS[2:], "--deployed", "live.parquet"],
        ["plan", "lake", *COLUMNS, *BOUNDS, "--rows", "800", "400", "--draws", "3"],
    ]
    for command in commands:
        here, there = (
            json.loads(run(lake, *command, "--json", "--engine", engine).stdout)
            for engine in ("memory", "duckdb")
        )
        work = there.pop("work")
        assert work["engine"] == "duckdb"
        # Methods are counted; prior reads what memory holds, and plan draws.
        fetched = range(1, 40_000) if command[0] == "compare" else (1800, 3600, 7200)
        assert work["rows_fetched"] in fetched
        if command[0] == "compare":
            for one, two in zip(here["results"], there["results"], strict=True):
                # The same rows in another order: sums differ by rounding, and areas of pairs by
                # no more than the error that is stated of them.
                assert one["scores"] == two["scores"]
                for name, value in one["metrics"].items():
                    area = len(one["scores"]) == 2 and name.startswith(("AU", "OSCR"))
                    error = {"abs": 1e-4} if area else {"rel": 1e-12}
                    other = two["metrics"][name]
                    assert value == (other if other is None else pytest.approx(other, **error))
        else:
            assert here.keys() == there.keys()
        if command[0] == "prior":
            assert here["rows"] == there["rows"]
            assert here["estimate"] == pytest.approx(there["estimate"], abs=0.05)


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_flags_name_the_same_groups_on_every_engine(tmp_path, kind):
    table = make_table(seed=6, n_id=600, n_ood=300)
    table = table.append_column("vip", pa.array(np.arange(table.num_rows) % 3 == 0))
    write_table(table, tmp_path / f"g.{kind}")
    asked = ["--group", "vip", "--bound", "tpr of 1 >= .6", "--bound", "fpr <= .3"]
    found = [
        tuned(tmp_path, f"g.{kind}", *COLUMNS, *asked, "--engine", engine)
        for engine in ("memory", "duckdb", "dask")
    ]
    groups = [one["tuned"]["tpr_by_group"] for one in found]
    assert set(groups[0]) == {"0", "1"} and groups[0]["1"] >= 0.6
    assert groups[0] == groups[1] == groups[2]


@pytest.mark.parametrize("engine", ["duckdb", "dask"])
def test_every_command_tells_the_work_of_an_engine(lake, engine):
    """Engine, passes and rows fetched, under one name; retune has no rows."""
    done = run(lake, "tune", "lake", *COLUMNS, *BOUNDS, "-o", "w.json", "--force")
    assert done.returncode == 0, done.stderr
    roles = COLUMNS[2:]
    commands = {
        "tune": ["lake", *COLUMNS, *BOUNDS],
        "certify": ["w.json", "lake", *roles, "--allow-tuning-rows"],
        "evaluate": ["w.json", "lake", *roles, "--by", "day"],
        "compare": ["lake", "--scores", "msp", "--scores", "knn", *roles, *BOUNDS],
        "prior": ["w.json", "lake", *roles, "--deployed", "lake"],
        "plan": ["lake", *COLUMNS, *BOUNDS, "--rows", "800", "400", "--draws", "2"],
        "estimate": ["lake", *COLUMNS, *BOUNDS, "--folds", "2"],
        "report": ["lake", *COLUMNS, *BOUNDS, "-o", f"{engine}.html"],
        "apply": ["w.json", "lake", "-o", f"decided-{engine}"],
        "watch": ["w.json", "lake", "--by", "day"],
    }
    for name, given in commands.items():
        if engine == "dask" and name not in ("tune", "certify", "apply"):
            # What is told does not depend on the engine, and starting Dask takes long.
            continue
        chosen = "auto" if name == "apply" and engine == "duckdb" else engine
        given = given if name == "watch" else [*given, "--engine", chosen]
        done = run(lake, name, *given, "--json")
        assert done.returncode in (0, 3, 4), (name, done.stderr)
        work = json.loads(done.stdout)["work"]
        assert set(work) == {"engine", "passes", "rows_fetched"}, name
        assert work["engine"] == ("memory" if name == "watch" or chosen == "auto" else engine)
        assert work["passes"] >= 1, name
        if name == "apply":
            assert work["rows_fetched"] == (3600 if engine == "duckdb" else 0)
        if name == "watch":
            assert work["rows_fetched"] == 3600
