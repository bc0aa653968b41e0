"""`demur watch` as cron runs it: twice, killed, in parallel, with late labels; page and metrics."""

import json
import os
import signal
import subprocess
import time
from functools import partial

import numpy as np
import pandas as pd
import pytest
from browser import chromium
from commands import ENVIRONMENT, command, run, run_here
from watched import live_rows, tuned_rule

from demur import Bound, InvalidInputError, Rule
from demur.watch import Watch
from demur.watch.counts import ROWS
from demur.watch.files import AuditLabels, FileColumns, count_files

BOUNDS = ["--max-selective-risk", ".08", "--max-fpr", ".12", "--prior-range", ".05", ".15"]
ROLES = ["--on", "image", "--by", "day", "--loss", "wrong", "--ood", "set"]


@pytest.fixture(scope="module")
def live(tmp_path_factory):
    """Ten good days and five with half of the OOD inputs of a kind that is accepted."""
    folder = tmp_path_factory.mktemp("live")
    tuned_rule().save(folder / "rule.json")
    rng = np.random.default_rng(1)
    audits = []
    for day in range(15):
        scores, loss, foreign = live_rows(rng, 400)
        new = (rng.random(400) < 0.15) & (day >= 10)
        scores[new] = rng.normal(0, 0.5, (new.sum(), 2))
        place = folder / f"day=2026-03-{day + 1:02d}"
        place.mkdir()
        ids = [f"{day}-{k}" for k in range(400)]
        frame = pd.DataFrame({"image": ids, "msp": scores[:, 0], "knn": scores[:, 1]})
        frame[:200].to_parquet(place / "a.parquet")
        frame[200:].to_parquet(place / "b.parquet")
        kind = np.where(new, "new", np.where(foreign, "old", "id"))
        told = np.where(kind == "id", np.where(np.isnan(loss), 0, loss), np.nan)
        audited = rng.random(400) < 0.3
        audits += list(zip(np.array(ids)[audited], told[audited], kind[audited], strict=True))
    pd.DataFrame(audits, columns=["image", "wrong", "set"]).to_csv(
        folder / "audits.csv", index=False
    )
    return folder


def watch(folder, data, *more, state="w.json", code=None, labels="audits.csv"):
    asked = ["watch", "rule.json", *data, *BOUNDS, *ROLES, "--labels", labels]
    done = run(folder, *asked, *(["--state", state] if state else []), *more)
    assert "Traceback" not in done.stderr, done.stderr
    if code is not None:
        assert done.returncode == code, done.stdout + done.stderr
    return done


def days(folder, first, last):
    found = [f"day=2026-03-{k:02d}" for k in range(first, last + 1)]
    return [f"{day}/{part}.parquet" for day in found for part in "ab"]


def rows(folder, state):
    return Watch.load(folder / state).timeline.total.sums[ROWS]


INLINE = {
    "flags": ["--loss", "wrong", "--ood", "flag"],
    "truth values": ["--loss", "mistake", "--ood", "truth"],
    "sets": ["--loss", "wrong", "--ood", "set"],
    "classes": ["--label", "label", "--prediction", "class", "--ood", "flag"],
}


@pytest.mark.parametrize("way", INLINE)
def test_labels_beside_the_rows_mean_the_same_in_csv_and_parquet(way, live, tmp_path):
    rng = np.random.default_rng(5)
    scores, loss, foreign = live_rows(rng, 300)
    wrong = np.where(foreign, np.nan, np.nan_to_num(loss))
    table = pd.DataFrame({"knn": scores[:, 1], "msp": scores[:, 0], "wrong": wrong})
    table["mistake"] = pd.array(np.where(foreign, None, wrong == 1), "boolean")
    table["flag"], table["truth"] = foreign.astype(int), foreign
    table["set"] = np.where(foreign, "old", "id")
    table["label"] = 3
    # Written as 3.0 in CSV: numbers are compared as numbers.
    table["class"] = np.where(wrong == 1, 4.0, 3.0)
    found = []
    for file in ("a.csv", "a.parquet"):
        write = table.to_parquet if file.endswith("parquet") else table.to_csv
        write(tmp_path / file, index=False)
        asked = ["watch", str(live / "rule.json"), file, "--max-fpr", ".9", "--min-tpr", ".01"]
        done = run(tmp_path, *asked, "--max-selective-risk", ".9", *INLINE[way], "--json")
        assert done.returncode == 0, done.stderr
        bounds = json.loads(done.stdout)["watched"]
        found.append(
            [(b["name"], b["estimate"], b["rows"]) for b in bounds if b["kind"] == "bound"]
        )
    assert found[0] == found[1]
    rows = {name.split()[0]: number for name, _, number in found[0]}
    assert (rows["tpr"], rows["fpr"]) == ((~foreign).sum(), foreign.sum())


def classes_watched(folder, labels, predictions, *, data, audits):
    """Count rows whose labels are in files of these kinds; return rows and errors, or a refusal."""
    frame = pd.DataFrame({"msp": 0.0, "knn": 0.0, "image": np.arange(len(labels))})
    frame["class"] = predictions
    told = pd.DataFrame({"image": frame.image, "label": labels})
    if audits is None:
        frame["label"] = labels
    else:
        getattr(told, f"to_{audits}")(folder / f"audits.{audits}", index=False)
    getattr(frame, f"to_{data}")(folder / f"rows.{data}", index=False)
    columns = FileColumns(("msp", "knn"), label="label", prediction="class", on="image")
    setup = Watch(tuned_rule(), expect=[Bound("selective_risk", at_most=0.1)]).setup
    given = None if audits is None else str(folder / f"audits.{audits}")
    known = None if given is None else AuditLabels(given, columns, None)
    found = count_files(setup, [str(folder / f"rows.{data}")], columns, known)
    (counts,) = found.counts.values()
    return counts.sums[setup.layout.labelled()].tolist()


@pytest.mark.parametrize("audits", [None, "csv", "parquet"])
@pytest.mark.parametrize("data", ["csv", "parquet"])
def test_classes_are_compared_as_values_and_never_across_kinds(data, audits, tmp_path):
    counted = partial(classes_watched, tmp_path, data=data, audits=audits)
    right = counted(["cat", "dog", "7", "07"], ["cat", "dog", "7", "07"])
    assert counted([1, 2, 3, 4], [1.0, 2.0, 3.0, 4.0]) == right
    assert counted([True, False, True, True], [True, False, True, True]) == right
    wrong = counted([1, 2, 3, 4], [1, 2, 4, 3])
    assert wrong != right
    assert counted(["cat", "dog", "owl", "emu"], ["cat", "dog", "emu", "owl"]) == wrong
    with pytest.raises(InvalidInputError, match=r"label holds numbers such as .* text such"):
        counted([1, 2, 3, 4], ["cat", "dog", "owl", "emu"])
    with pytest.raises(InvalidInputError, match=r"label holds text such as 'cat', .* numbers"):
        counted(["cat", "dog", "owl", "emu"], [1, 2, 3, 4])
    # A number among names is a name.
    with pytest.raises(InvalidInputError, match="labels of different kinds are never equal"):
        counted([1, 2, 3, 4], ["1", "2", "cat", "4"])
    assert counted([1.0, np.nan, 3.0, 4.0], [1, 2, 3, 4]) != right


def test_rows_of_one_name_and_labels_of_no_row_are_told(live, tmp_path):
    rows = "image,msp,knn\n" + "".join(f"r{k},0,0\n" for k in range(5))
    (tmp_path / "a.csv").write_text(rows)
    (tmp_path / "copy.csv").write_text(rows)
    (tmp_path / "none.csv").write_text("image,msp,knn\n")
    (tmp_path / "some.csv").write_text("image,wrong\nr1,0\nr3,1\n")
    (tmp_path / "other.csv").write_text("image,wrong\nx1,0\nx3,1\n")
    asked = ["watch", str(live / "rule.json"), "--on", "image", "--loss", "wrong"]
    asked += ["--max-selective-risk", ".5", "--state", "s.json"]
    twice = run(tmp_path, *asked, "a.csv", "copy.csv", "--labels", "some.csv")
    assert twice.returncode == 2 and "several rows of DATA are called 'r1'" in twice.stderr
    assert not (tmp_path / "s.json").exists()
    done = run(tmp_path, *asked, "a.csv", "--labels", "other.csv")
    assert "none of the 2 labels is of a row in DATA" in done.stderr
    done = run(tmp_path, *asked, "none.csv", "--labels", "some.csv")
    assert done.returncode == 0 and "DATA has no rows" in done.stderr


def test_flags_and_names_of_sets_do_not_mix(live, tmp_path):
    (tmp_path / "a.csv").write_text("msp,knn,ood\n0,0,1\n0,0,0\n")
    (tmp_path / "b.csv").write_text("msp,knn,ood\n0,0,svhn\n0,0,id\n")
    asked = ["watch", str(live / "rule.json"), "a.csv", "b.csv", "--max-fpr", ".9", "--ood", "ood"]
    done = run(tmp_path, *asked)
    assert done.returncode == 2 and "flags (0, 1) in some rows and names" in done.stderr


def test_a_project_file_does_not_rename_the_scores_of_a_rule(live, tmp_path):
    (tmp_path / "demur.toml").write_text('[columns]\nscores = ["knn", "msp"]\n')
    (tmp_path / "a.csv").write_text("knn,msp\n" + "0.1,9\n0.2,9\n" * 20)
    done = run(tmp_path, "watch", str(live / "rule.json"), "a.csv", "--json")
    rule = Rule.load(live / "rule.json")
    accepted = 20 * sum(rule.accept({"msp": [9, 9], "knn": [0.1, 0.2]}))
    assert json.loads(done.stdout)["accepted"] == accepted, done.stderr


def test_a_project_file_does_not_take_ids_for_groups(live, tmp_path):
    (tmp_path / "demur.toml").write_text('[columns]\nid = "patient"\ngroup = "site"\n')
    (tmp_path / "a.csv").write_text("knn,msp,site\n" + "0.1,9,a\n0.2,9,b\n" * 20)
    done = run(tmp_path, "watch", str(live / "rule.json"), "a.csv", "--json")
    assert json.loads(done.stdout)["rows"] == 40, done.stderr
    assert "--group site" in done.stderr and "patient" not in done.stderr


def test_days_are_counted_once_and_the_break_is_found(live):
    good = json.loads(watch(live, days(live, 1, 9), "--json", code=0).stdout)
    assert (good["rows"], good["ok"], good["alarms"]) == (9 * 400, True, [])
    # The same days, a new one, half a day and then all of it.
    watch(live, days(live, 1, 9), code=0)
    watch(live, days(live, 10, 10)[:1], code=0)
    assert rows(live, "w.json") == 9 * 400 + 200
    watch(live, days(live, 10, 10), code=0)
    assert rows(live, "w.json") == 10 * 400
    bad = watch(live, ["day=*/*.parquet"], "--json", code=4)
    data = json.loads(bad.stdout)
    assert data["rows"] == 15 * 400
    found = {alarm["expectation"]: alarm["period"] for alarm in data["alarms"]}
    assert "2026-03-11" <= found["fpr <= 0.12"] <= "2026-03-13"
    assert "fpr <= 0.12 changed first, about 2026-03-11" in data["message"]
    # Whether looked at day by day or at once, the counts are the same.
    watch(live, ["day=*/*.parquet"], state="once.json", code=4)
    step, once = (Watch.load(live / name).timeline for name in ("w.json", "once.json"))
    assert np.array_equal(step.sums(), once.sums())
    assert (live / "w.json").stat().st_size < 100_000
    # After a reset the same days are closed, and there is no alarm.
    calm = watch(live, days(live, 1, 1), "--reset", "that kind is rejected now", code=0)
    assert "not counted again" in calm.stderr
    assert Watch.load(live / "w.json").history[-1]["reason"] == "that kind is rejected now"


@pytest.fixture(scope="module")
def joined(live):
    """The same days with the labels beside the rows, where there are any."""
    labels = pd.read_csv(live / "audits.csv", dtype={"image": str})
    for file in sorted(live.glob("day=*/?.parquet")):
        place = live / "joined" / file.parent.name
        place.mkdir(parents=True, exist_ok=True)
        rows = pd.read_parquet(file).merge(labels, on="image", how="left")
        rows.to_parquet(place / file.name)
    return "joined/day=*/*.parquet"


def beside(folder, joined, state, *more, data=None):
    """Watch rows that have their labels beside them."""
    asked = ["watch", "rule.json", data or joined, *BOUNDS, *ROLES, "--state", state, "--json"]
    done = run(folder, *asked, *more)
    assert done.returncode in (0, 4), done.stderr
    return json.loads(done.stdout), done.stderr


def state_of(folder, name):
    """Return a state without its check sum, and without the order in which sets were found."""
    data = json.loads((folder / name).read_text())
    assert data.pop("digest")
    return data | {"sets": sorted(data["sets"])}


@pytest.mark.parametrize("engine", ["duckdb", "dask"])
def test_an_engine_counts_what_files_are_read_for(engine, live, joined):
    read, _ = beside(live, joined, "read.json")
    told, said = beside(live, joined, f"{engine}.json", "--engine", engine)
    assert told.pop("work") == {"engine": engine, "passes": 2, "rows_fetched": 6000}
    assert read.pop("work") == {"engine": "memory", "passes": 1, "rows_fetched": 6000}
    for one in (read, told):
        examples = one.pop("examples")
        assert {row["why"].partition(" (")[0] for row in examples} >= {"accepted, OOD"}
        assert all(row["key"].startswith(f"{int(row['period'][-2:]) - 1}-") for row in examples)
    assert told == read and told["alarms"]
    assert said == ""
    assert state_of(live, f"{engine}.json") == state_of(live, "read.json")
    # Whatever counted a day, it is counted anew from the same files.
    for asked in (["--engine", engine], []):
        some = "joined/day=2026-03-0[45]/*.parquet"
        again, _ = beside(live, joined, f"{engine}.json", *asked, data=some)
        assert again["rows"] == 6000
        parts = [Watch.load(live / f"{name}.json").timeline for name in (engine, "read")]
        assert np.array_equal(parts[0].sums(), parts[1].sums())
        assert [s.parts.keys() for s in parts[0].segments] == [
            s.parts.keys() for s in parts[1].segments
        ]


def test_what_a_count_in_groups_cannot_do_is_refused(live, joined, tmp_path):
    asked = ["watch", "rule.json", joined, *BOUNDS, "--engine", "duckdb"]
    for more, words in (
        ([*ROLES, "--labels", "audits.csv"], "leave out --engine, or join the labels to the rows"),
        (ROLES[4:], "--engine duckdb: --by is needed"),
        (["--by", "dya"], "has no column 'dya'"),
        (["--by", "day", "--on", "imge"], "has no column 'imge'"),
        (["--by", "image", "--loss", "nix"], "has no column 'nix'"),
        (["--by", "day", "--table", "x"], "--table is about databases"),
    ):
        done = run(live, *asked, *more, "--state", "none.json")
        assert done.returncode == 2 and words in done.stderr, done.stderr
        assert not (live / "none.json").exists()


def test_few_of_many_rows_are_looked_at(live, joined, monkeypatch):
    from demur.watch import grouped

    monkeypatch.setattr(grouped, "LOOKED_AT", 500)
    asked = ["watch", "rule.json", joined, *BOUNDS, *ROLES, "--engine", "duckdb"]
    done = run_here(live, *asked, "--report", "some.html", "--json")
    assert "500 of 6,000 rows were looked at one by one" in done.stderr
    assert json.loads(done.stdout)["work"]["rows_fetched"] == 500
    assert "among 500 that were looked at one by one" in (live / "some.html").read_text()


def test_late_labels_wait_in_order(live):
    labels = pd.read_csv(live / "audits.csv", dtype={"image": str})
    first = labels.index[labels.image.str.startswith("3-")][0]
    late = labels.copy()
    late.loc[first, ["wrong", "set"]] = None
    late.to_csv(live / "late.csv", index=False)
    told = watch(live, days(live, 1, 6), state="late.json", labels="late.csv", code=0)
    assert "labels since 2026-03-04 wait" in told.stderr
    inside = Watch.load(live / "late.json")
    labelled = inside.setup.layout.labelled()
    seen = inside.timeline.sums()[:, labelled]
    assert seen[:3].sum() > 0
    assert seen[4:].sum() == 0
    # A later day does not overtake; when the label is there, all of them count.
    watch(live, days(live, 7, 7), state="late.json", labels="late.csv", code=0)
    assert Watch.load(live / "late.json").timeline.sums()[6:, labelled].sum() == 0
    watch(live, days(live, 1, 7), state="late.json", code=0)
    watch(live, days(live, 1, 7), state="prompt.json", code=0)
    late, prompt = (Watch.load(live / f"{name}.json").timeline for name in ("late", "prompt"))
    assert np.array_equal(late.sums(), prompt.sums())


def test_an_empty_label_is_no_label_and_days_are_numbers(live, tmp_path):
    """A rejected row with an empty set is not an ID row, and day 10 comes after day 2."""
    rule = Rule.load(live / "rule.json")
    rows = [[0.0, 0.0], [9.0, 9.0]] * 3
    audits = []
    for day in (1, 2, 10, 11):
        place = tmp_path / f"day={day}"
        place.mkdir()
        frame = pd.DataFrame(rows, columns=list(rule.score_names))
        frame["image"] = [f"{day}-{k}" for k in range(6)]
        frame.to_csv(place / "a.csv", index=False)
        audits += [(key, 0, "id") for key in frame.image]
    table = pd.DataFrame(audits, columns=["image", "wrong", "set"]).astype(object)
    table.loc[table.image == "10-1", ["wrong", "set"]] = None
    table.to_csv(tmp_path / "audits.csv", index=False)
    asked = ["watch", str(live / "rule.json"), "day=*/*.csv", *BOUNDS, *ROLES]
    asked += ["--labels", "audits.csv", "--state", "s.json", "--json"]
    done = run(tmp_path, *asked)
    assert "labels since 10 wait" in done.stderr
    assert json.loads(done.stdout)["waiting"] == "10"
    state = Watch.load(tmp_path / "s.json")
    seen = state.timeline.sums()[:, state.setup.layout.labelled()]
    assert seen[:, :2].tolist() == [[6, 3], [6, 3], [1, 1], [0, 0]]
    # After a reset nothing waits for the days before it, and audits may have other rates.
    again = run(tmp_path, *asked, "--reset", "repaired", "--audit-rates", ".5", "1")
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout)["waiting"] is None
    state = Watch.load(tmp_path / "s.json")
    assert (state.waiting, state.setup.audit) == (None, (0.5, 1.0))
    refused = run(tmp_path, *asked, "--audit-rates", ".5", ".5")
    assert "was made with audit" in refused.stderr


def test_a_day_of_many_files_grows(live, tmp_path):
    place = tmp_path / "day=1"
    place.mkdir()
    asked = ["watch", str(live / "rule.json"), "day=*/*.csv", "--by", "day", "--state", "s.json"]
    for files in (70, 70, 90):
        for k in range(files):
            (place / f"{k}.csv").write_text("msp,knn\n0,0\n9,9\n")
        assert run(tmp_path, *asked).returncode in (0, 4)
        assert rows(tmp_path, "s.json") == 2 * files
    # By another way, or twice, the files are the same.
    (tmp_path / "link").symlink_to(tmp_path)
    run(tmp_path, *asked[:2], "link/day=*/*.csv", "day=1/../day=1/3.csv", *asked[3:])
    assert rows(tmp_path, "s.json") == 2 * 90
    some = run(tmp_path, *asked[:2], "day=1/3.csv", *asked[3:])
    assert "period 1 was counted from files of which only some" in some.stderr


def test_processes_in_parallel_and_killed_ones_lose_nothing(live):
    asked = ["watch", "rule.json", *BOUNDS, *ROLES, "--labels", "audits.csv", "--state", "p.json"]
    started = [
        subprocess.Popen(
            command(*asked, file), cwd=live, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
        )
        for file in days(live, 1, 2)
    ]
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    assert rows(live, "p.json") == 800
    before = (live / "p.json").read_bytes()
    for delay in (0.4, 1.0):
        killed = subprocess.Popen(
            command(*asked, *days(live, 1, 5)),
            cwd=live,
            env=ENVIRONMENT,
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        time.sleep(delay)
        os.kill(killed.pid, signal.SIGKILL)
        killed.wait()
        assert (live / "p.json").read_bytes() == before or rows(live, "p.json") == 5 * 400
    watch(live, days(live, 1, 5), state="p.json", code=0)
    assert rows(live, "p.json") == 5 * 400


def test_what_does_not_fit_is_refused(live):
    watch(live, days(live, 1, 2), state="r.json", code=0)
    other = watch(live, days(live, 1, 2), "--alpha", ".01", state="r.json", code=2)
    assert "was made with alpha = 0.05, now it is 0.01" in other.stderr
    some = watch(live, days(live, 1, 1)[:1], state="r.json", code=2)
    assert "only some" in some.stderr
    (live / "broken.json").write_text((live / "r.json").read_text()[:500])
    assert "damaged" in watch(live, days(live, 1, 1), state="broken.json", code=2).stderr
    tuned_rule(seed=3).save(live / "other.json")
    done = run(live, "watch", "other.json", *days(live, 1, 1), "--by", "day", "--state", "r.json")
    assert done.returncode == 2
    assert "of another rule" in done.stderr
    lacking = run(live, "watch", "rule.json", *days(live, 1, 1), "--by", "dya")
    assert "has no column 'dya'" in lacking.stderr
    for name in ("--state", "--report"):
        nowhere = run(live, "watch", "rule.json", *days(live, 1, 1), name, "-")
        assert f"{name} needs a file" in nowhere.stderr
    clash = watch(live, days(live, 1, 1), "--report", "rule.json", state=None, code=2)
    assert "would be lost" in clash.stderr


def test_without_labels_or_options_the_card_is_used(live):
    done = run(live, "watch", "rule.json", *days(live, 1, 3))
    assert done.returncode == 0
    assert "No alarm. Not tested, for lack of labels: tpr >= 0.8, fpr <= 0.1." in done.stdout
    assert "latest period day=2026-03-03/b.parquet" in done.stdout
    assert "without --prior-range" in done.stderr


def test_metrics_are_prometheus_text(live):
    done = watch(live, ["day=*/*.parquet"], "--prometheus", "-", state=None, code=4)
    named = {}
    for line in done.stdout.splitlines():
        if line.startswith("#"):
            assert line.split()[1] in ("HELP", "TYPE")
            continue
        name, _, value = line.rpartition(" ")
        named[name] = float(value)
    assert named['demur_watch_rows{rule="rule.json"}'] == 6000
    alarm = 'demur_watch_alarm{rule="rule.json",expectation="fpr <= 0.12",kind="bound"}'
    assert named[alarm] == 1
    watch(live, ["day=*/*.parquet"], "--prometheus", "m.prom", state=None, code=4)
    assert (live / "m.prom").read_text() == done.stdout


def test_plan_of_audits(live):
    asked = ["plan", "--watch", "rule.json", "--expect", "selective_risk=.06"]
    done = run(live, *asked, "--broken", "selective_risk=.2", "--rows-per-day", "500", "--json")
    data = json.loads(done.stdout)
    by_place = {place["where"]: place["audits_per_day"] for place in data["places"]}
    assert by_place["accepted rows"] < by_place["all rows alike"]
    wrong = run(live, *asked, "--broken", "selective_risk=.01")
    assert wrong.returncode == 2
    assert "still holds" in wrong.stderr


def test_without_labels_there_are_rows_to_look_at(live):
    folder = "day=2026-03-01"
    odd = pd.read_parquet(live / folder / "a.parquet").head(3)
    odd.loc[1, "msp"] = 99.0
    odd.to_parquet(live / "odd.parquet")
    done = run(live, "watch", "rule.json", "odd.parquet", "--report", "odd.html", "--json")
    row = json.loads(done.stdout)["examples"][-1]
    assert (row["key"], row["why"]) == ("odd.parquet, row 2", "msp above all of tuning")
    assert "msp above all of tuning" in (live / "odd.html").read_text()


@pytest.fixture(scope="module")
def page(live):
    done = watch(live, ["day=*/*.parquet"], "--report", "w.html", "--json", state=None, code=4)
    return json.loads(done.stdout), (live / "w.html").as_uri()


def test_the_page_shows_the_numbers_and_needs_nothing_else(page):
    data, address = page
    with chromium() as browser:
        shown = browser.new_page()
        asked, errors = [], []
        shown.on("request", lambda request: asked.append(request.url))
        shown.on("console", lambda message: errors.append(message.text))
        shown.goto(address)
        panels = shown.evaluate(
            """() => [...document.querySelectorAll(".panel")].map((panel) => [
                panel.dataset.name,
                Object.fromEntries([...panel.querySelectorAll("[data-key]")].map(
                    (node) => [node.dataset.key, node.textContent])),
                panel.querySelectorAll("svg path, svg circle").length,
                panel.querySelector("h3 .missed") !== null,
            ])"""
        )
        message = shown.inner_text("#message")
        dots = shown.evaluate(
            """() => [...document.querySelectorAll(".panel")[1].querySelectorAll("circle title")]
                .map((node) => node.textContent)"""
        )
        wide = shown.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert [url for url in asked if not url.startswith("data:")] == [address]
    assert errors == []
    assert wide
    assert message.startswith("Alarm:")
    assert len(panels) == len(data["watched"])
    for item, (name, numbers, shapes, alarm) in zip(data["watched"], panels, strict=True):
        assert name == item["name"]
        assert alarm == item["alarm"]
        assert shapes > 1
        assert numbers["rows"] == f"{item['rows']:,}"
        if item["estimate"] is not None:
            ends = item["interval"]
            assert numbers["estimate"] == f"{item['estimate']:.4f}"
            assert numbers["low"] == f"{ends['low']:.4f}"
            assert numbers["high"] == f"{ends['high']:.4f}"
        log = item["log_evidence"] / np.log(10)
        if -3 <= log < 4:
            assert float(numbers["evidence"]) == pytest.approx(10**log, rel=0.01)
        else:
            assert numbers["evidence"] == f"10^{log:.0f}".replace("-", "\u2212")
    assert len(dots) == 15
    assert dots[0].startswith("2026-03-01: ")


@pytest.mark.parametrize("labelled", [True, False])
def test_rows_that_made_the_rule_are_recognised(labelled, tmp_path):
    rng = np.random.default_rng(5)
    scores, loss, foreign = live_rows(rng, 4000)
    frame = pd.DataFrame(scores, columns=["msp", "knn"]).assign(wrong=loss == 1, ood=foreign, day=1)
    frame[:2000].to_parquet(tmp_path / "old.parquet")
    tune = ["--scores", "msp,knn", "--loss", "wrong", "--ood", "ood", "--min-tpr", ".8"]
    run(tmp_path, "tune", "old.parquet", *tune, "-o", "rule.json")
    columns = slice(None) if labelled else ["msp", "knn", "day"]
    parts = {"same": slice(2000), "half": slice(1000, 3000), "new": slice(2000, None)}
    for name, rows in parts.items():
        frame.loc[:, columns][rows].to_parquet(tmp_path / f"{name}.parquet")
        done = run(tmp_path, "watch", "rule.json", f"{name}.parquet", "--json")
        share = json.loads(done.stdout)["tuning_rows"]
        assert share == pytest.approx({"same": 1, "half": 0.5, "new": 0}[name], abs=0.05)
        assert ("made the rule" in done.stderr) == (name != "new"), done.stderr
        assert "tell nothing of inputs in use" in done.stderr or name == "new"
        there = ["--engine", "duckdb", "--by", "day", "--json"]
        done = run(tmp_path, "watch", "rule.json", f"{name}.parquet", *there)
        assert json.loads(done.stdout)["tuning_rows"] == pytest.approx(share), done.stderr
