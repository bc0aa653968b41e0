"""The command line on tables of databases."""

import json
import sqlite3

import databases
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from commands import run, run_here
from databases import put

import demur as dm

COLUMNS = ["--scores", "msp,knn", "--loss", "wrong", "--ood", "ood"]
BOUNDS = ["--min-tpr", ".8", "--max-fpr", ".3"]


def scored(n=600, seed=1):
    rng = np.random.default_rng(seed)
    wrong, ood = rng.random(n) < 0.2, rng.random(n) < 0.3
    return pa.table(
        {
            "msp": rng.normal(size=n) + wrong,
            "knn": np.round(rng.normal(size=n) + 2 * ood, 2),
            "wrong": wrong.astype(int),
            "ood": ood,
            "day": np.where(np.arange(n) % 2, "mon", "tue"),
        }
    )


def sqlite_url(folder):
    with sqlite3.connect(folder / "f.db") as connection:
        put(connection, scored(), "sqlite", "scores")
    connection.close()
    return "sqlite:///f.db"


@pytest.fixture(params=["sqlite", "postgres"])
def url(request, tmp_path):
    if request.param == "sqlite":
        yield sqlite_url(tmp_path)
        return
    import psycopg

    url = databases.postgres_url()
    with psycopg.connect(url, autocommit=True) as connection:
        put(connection, scored(), "postgres", "scores")
        yield url
        connection.execute("DROP TABLE scores")


def test_tune_and_evaluate(url, tmp_path):
    pq.write_table(scored(), tmp_path / "f.parquet")
    there = run(
        tmp_path, "tune", url, "--table", "scores", *COLUMNS, *BOUNDS, "-o", "r.json", "--json"
    )
    here = run(tmp_path, "tune", "f.parquet", *COLUMNS, *BOUNDS, "--json")
    assert there.returncode == 0, there.stderr
    told, expected = json.loads(there.stdout), json.loads(here.stdout)
    assert told["tuned"] == expected["tuned"]
    assert told["rule"]["direction"] == expected["rule"]["direction"]
    assert told["work"]["engine"] in ("sqlite", "postgres")
    by_day = ["--by", "day", "--json"]
    found = [
        json.loads(run(tmp_path, "evaluate", "r.json", data, *by_day).stdout)
        for data in (f"{url}#scores", "f.parquet")
    ]
    assert found[0]["groups"] == found[1]["groups"] and len(found[0]["groups"]) == 2


def test_the_same_rows_are_held_out(url, tmp_path):
    pq.write_table(scored(), tmp_path / "f.parquet")
    arguments = [*COLUMNS, *BOUNDS, "--holdout", ".3", "--seed", "5", "--json"]
    there = run(tmp_path, "tune", f"{url}#scores", *arguments)
    assert there.returncode == 0, there.stderr
    here = run(tmp_path, "tune", "f.parquet", *arguments, "--holdout-by", "hash")
    told, expected = json.loads(there.stdout), json.loads(here.stdout)
    assert told["held_out"] == expected["held_out"] and told["tuned"] == expected["tuned"]


def test_methods_are_compared_where_the_rows_are(tmp_path):
    url = sqlite_url(tmp_path) + "#scores"
    pq.write_table(scored(), tmp_path / "f.parquet")
    arguments = ["--scores", "msp", "--scores", "knn", *COLUMNS[2:], *BOUNDS, "--json"]
    found = [run(tmp_path, "compare", data, *arguments) for data in (url, "f.parquet")]
    assert found[0].returncode == 0, found[0].stderr
    counted, read = (json.loads(done.stdout) for done in found)
    work = counted.pop("work")
    assert work["engine"] == "sqlite" and 0 < work["rows_fetched"] < 300 < len(scored())
    assert counted == read


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["sqlite:///f.db"], "table is needed"),
        (["sqlite:///f.db", "--table", "nix"], "table 'nix' does not exist there"),
        (["sqlite:///g.db", "--table", "scores"], "there is no file 'g.db'"),
        (["f.parquet", "--table", "scores"], "--table is about databases"),
        (["sqlite:///f.db", "--table", "scores", "--engine", "dask"], "are counted there"),
        (["sqlite:///f.db#a", "--table", "scores"], "the URL names the table 'a'"),
        (["postgresql://me:secret@127.0.0.1:1/x", "--table", "t"], "PostgreSQL: "),
    ],
)
def test_mistakes(arguments, words, tmp_path):
    sqlite_url(tmp_path)
    done = run(tmp_path, "tune", *arguments, *COLUMNS, *BOUNDS, "-o", "r.json")
    assert done.returncode == 2 and words in done.stderr
    assert "Traceback" not in done.stderr and "secret" not in done.stderr
    assert sorted(file.name for file in tmp_path.iterdir()) == ["f.db"]


def test_apply_says_what_to_do(tmp_path):
    url = sqlite_url(tmp_path)
    (tmp_path / "r.json").write_text('{"version": 1}')
    done = run(tmp_path, "apply", "r.json", f"{url}#scores", "-o", "o.csv")
    assert done.returncode == 2 and not (tmp_path / "o.csv").exists()


def test_scores_of_thousands_of_values_are_compared_in_sqlite(tmp_path):
    """Hundreds of values have a bin of their own there, a CASE within CASEs, too deep for it."""
    rng = np.random.default_rng(3)
    n = 1200
    ood = rng.random(n) < 0.4
    table = pa.table(
        {"a": rng.normal(size=n), "wrong": (rng.random(n) < 0.2) * 1.0, "ood": ood * 1}
    )
    pa.csv.write_csv(table, tmp_path / "rows.csv")
    connection = sqlite3.connect(tmp_path / "rows.db")
    put(connection, table, "sqlite", "scores")
    connection.commit()
    connection.close()
    asked = ["--scores", "a", "--loss", "wrong", "--ood", "ood", "--min-tpr", ".6", "--json"]
    here, there = (
        run(tmp_path, "compare", *place, *asked)
        for place in (["rows.csv"], ["sqlite:///rows.db", "--table", "scores"])
    )
    assert (here.returncode, there.returncode) == (0, 0), there.stderr
    metrics = [json.loads(one.stdout)["results"][0]["metrics"] for one in (here, there)]
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-12)
    # Another engine than the database is refused, also by a count of groups.
    dm.Rule((1.0,), 0.5, score_names=("a",)).save(tmp_path / "rule.json")
    by = ["rule.json", "sqlite:///rows.db#scores", "--loss", "wrong", "--ood", "ood", "--by", "ood"]
    assert run(tmp_path, "evaluate", *by, "--engine", "spark").returncode == 2
    assert run(tmp_path, "evaluate", *by).returncode == 0


def asked_of(table_of):
    """Return commands about tables "scores" and "live", which are named by `table_of`."""
    scores, live = table_of("scores"), table_of("live")
    sides = ["--loss", "wrong", "--ood", "ood"]
    return {
        "prior": ["prior", "r.json", scores, "--ood", "ood", "--deployed", live],
        "plan": ["plan", scores, *COLUMNS, *BOUNDS, "--rows", 200, 100, "--draws", 20],
        "certify": ["certify", "r.json", scores, *sides, "--id", "id", "--deployed", live],
        "evaluate": ["evaluate", "r.json", scores, *sides, "--by", "day"],
        "compare": [
            *("compare", scores, "--scores", "msp,knn", "--scores", "knn", *sides, *BOUNDS),
            *("--replicates", 4, "--id", "id"),
        ],
    }


@pytest.fixture
def both(url, tmp_path):
    """Yield names of tables in a database, and of the same rows in files beside a rule."""
    rows = scored().append_column("id", pa.array(np.arange(600)))
    tables = {"scores": rows, "live": rows.slice(0, 400).select(["msp", "knn", "day"])}
    for name, table in tables.items():
        pq.write_table(table, tmp_path / f"{name}.parquet")
    pq.write_table(scored(seed=2), tmp_path / "others.parquet")
    tuned = run_here(tmp_path, "tune", "others.parquet", *COLUMNS, *BOUNDS, "-o", "r.json")
    assert tuned.returncode == 0, tuned.stderr
    if url.startswith("sqlite"):
        (tmp_path / "f.db").unlink()
        with sqlite3.connect(tmp_path / "f.db") as connection:
            for name, table in tables.items():
                put(connection, table, "sqlite", name)
        connection.close()
        yield lambda name: f"{url}#{name}", lambda name: f"{name}.parquet"
        return
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("DROP TABLE scores")
        for name, table in tables.items():
            put(connection, table, "postgres", name)
        yield lambda name: f"{url}#{name}", lambda name: f"{name}.parquet"
        connection.execute("DROP TABLE live")


def test_commands_say_what_they_say_of_files(both, tmp_path):
    there, here = (asked_of(place) for place in both)
    for name, arguments in there.items():
        found = run_here(tmp_path, *arguments, "--json")
        # Replicates in memory are drawn by chance, elsewhere by a hash of the id.
        drawn = ["--engine", "duckdb"] if name == "compare" else []
        expected = run_here(tmp_path, *here[name], "--json", *drawn)
        assert found.returncode == expected.returncode in (0, 3), found.stderr
        told, read = json.loads(found.stdout), json.loads(expected.stdout)
        assert told.pop("work")["engine"] in ("sqlite", "postgres")
        read.pop("work", None)
        assert told == read, name


@pytest.fixture
def broken():
    """Yield the server's URL; a table there is another's, and a view ends its own connection."""
    import psycopg

    url = databases.postgres_url()
    with psycopg.connect(url, autocommit=True) as connection:
        put(connection, scored(), "postgres", "hidden")
        connection.execute("CREATE ROLE stranger LOGIN")
        connection.execute(
            "CREATE VIEW gone AS SELECT * FROM hidden WHERE "
            "CASE WHEN msp > 2 THEN pg_terminate_backend(pg_backend_pid()) ELSE true END"
        )
        yield url
        connection.execute("DROP VIEW gone")
        connection.execute("DROP TABLE hidden")
        connection.execute("DROP ROLE stranger")


@pytest.mark.parametrize(
    ("user", "table", "words"),
    [
        ("stranger", "hidden", "permission denied for table hidden: ask its owner for the right"),
        ("tester", "gone", "nothing was kept of what was counted; try again"),
    ],
)
def test_no_rights_and_a_lost_server_are_one_line(user, table, words, broken, tmp_path):
    url = broken.replace("tester@", f"{user}@") + f"#{table}"
    done = run(tmp_path, "tune", url, *COLUMNS, *BOUNDS, "-o", "r.json")
    assert done.returncode == 2 and not done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith("demur: PostgreSQL: ") and words in line
    assert list(tmp_path.iterdir()) == []


def test_apply_needs_files(tmp_path):
    url = sqlite_url(tmp_path) + "#scores"
    pq.write_table(scored(), tmp_path / "f.parquet")
    tuned = run_here(tmp_path, "tune", "f.parquet", *COLUMNS, *BOUNDS, "-o", "r.json")
    assert tuned.returncode == 0
    done = run_here(tmp_path, "apply", "r.json", url, "-o", "o.csv")
    assert done.returncode == 2 and "write its rows to a file" in done.stderr
    assert not (tmp_path / "o.csv").exists()


def test_live_rows_are_watched_where_they_are(both, tmp_path):
    there, here = (place("scores") for place in both)
    asked = ["--by", "day", "--on", "id", "--json"]
    found = run_here(tmp_path, "watch", "r.json", there, *asked, "--state", "there.json")
    expected = run_here(tmp_path, "watch", "r.json", here, *asked, "--state", "here.json")
    assert found.returncode == expected.returncode, found.stderr
    told, read = json.loads(found.stdout), json.loads(expected.stdout)
    work = told.pop("work")
    assert work["engine"] in ("sqlite", "postgres")
    assert (work["passes"], work["rows_fetched"], read.pop("work")["engine"]) == (2, 600, "memory")
    ordered = [sorted(one.pop("examples"), key=str) for one in (told, read)]
    assert {row["why"] for row in ordered[0]} == {row["why"] for row in ordered[1]}
    assert told == read and told["rows"] == 600
    # Again, and by --table, the table is the same one; files are other rows.
    url, _, name = there.partition("#")
    again = run_here(
        tmp_path, "watch", "r.json", url, "--table", name, *asked, "--state", "there.json"
    )
    assert json.loads(again.stdout)["rows"] == 600 and "count twice" not in again.stderr
    both_ways = run_here(tmp_path, "watch", "r.json", there, *asked, "--state", "here.json")
    assert json.loads(both_ways.stdout)["rows"] == 1200
    assert "periods also counted from elsewhere: mon, tue" in both_ways.stderr


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ([], "--by is needed"),
        (["--by", "dya"], "--by: the table has no column 'dya'"),
        (["--by", "day", "--labels", "f.parquet"], "join the labels to the rows"),
        (["--by", "day", "--engine", "memory"], "are counted where they are"),
        (["--by", "day", "--engine", "dask"], "are counted there; leave it out"),
        (["--by", "day", "--table", "other"], "the URL names the table 'scores'"),
        (["f.parquet", "--by", "day"], "is watched by itself"),
    ],
)
def test_mistakes_about_watched_tables(more, words, tmp_path):
    url = sqlite_url(tmp_path) + "#scores"
    dm.Rule((0.6, 0.8), 1.0, score_names=("msp", "knn")).save(tmp_path / "r.json")
    done = run_here(tmp_path, "watch", "r.json", url, *more, "--state", "s.json")
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert not (tmp_path / "s.json").exists()
