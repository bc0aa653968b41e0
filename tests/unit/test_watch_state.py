"""The state of a watch: what is refused, what several processes do to it, periods counted anew."""

import json
import subprocess
import sys

import numpy as np
import pytest
from commands import ENVIRONMENT
from watched import live_rows, tuned_rule

import demur as dm
from demur.watch import Watch, locked
from demur.watch.counts import ROWS, LiveCounts, PendingRow
from demur.watch.timeline import Timeline

RULE = tuned_rule()


@pytest.fixture
def state(tmp_path):
    watch = Watch(RULE, ood_prior=(0.05, 0.15))
    rng = np.random.default_rng(0)
    for day in ("2026-01-01", "2026-01-02"):
        scores, loss, foreign = live_rows(rng, 300)
        watch.update(scores, loss, np.where(foreign, "a", "id"), time=day)
    watch.update(scores[:1], audited=[True], time="2026-01-03", ids=["x"])
    watch.status()
    path = tmp_path / "watch.json"
    watch.save(path)
    return path, watch


def test_what_is_saved_is_read(state):
    path, watch = state
    again = Watch.load(path, rule=RULE)
    assert str(again.status()) == str(watch.status())
    assert again.status().to_data() == watch.status().to_data()
    assert again.history == watch.history
    for one in (watch, again):
        one.label(["x"], is_ood=["a"])
        one.reset("once more")
    assert again.status().to_data() == watch.status().to_data()
    again.save(path)
    assert Watch.load(path).status().to_data() == watch.status().to_data()


def test_damaged_states_are_refused(state):
    path, _ = state
    text = path.read_text()
    rng = np.random.default_rng(1)
    for end in [0, 1, 50, *rng.integers(1, len(text) - 2, 30)]:
        path.write_text(text[:end])
        with pytest.raises(dm.InvalidInputError, match=r"damaged|no state"):
            Watch.load(path)
    data = json.loads(text)
    for name in data:
        if name in ("format", "version"):
            continue
        for worse in ("x", {"y": 1}, None):
            # These may be missing, or say nothing but yes or no.
            if name in ("waiting", "timed", "card") or (name, worse) == ("reference", None):
                continue
            path.write_text(json.dumps(data | {name: worse}))
            with pytest.raises(dm.InvalidInputError, match="damaged"):
                Watch.load(path)
    data["segments"][0][4][""][0][0] = -5
    path.write_text(json.dumps(data))
    with pytest.raises(dm.InvalidInputError, match="damaged"):
        Watch.load(path)
    # A digit that changed makes sense, and is noticed all the same.
    place = text.index('"segments"') + text[text.index('"segments"') :].index("300")
    path.write_text(text[:place] + "301" + text[place + 3 :])
    with pytest.raises(dm.InvalidInputError, match="its digest is another"):
        Watch.load(path)
    path.write_text(json.dumps(json.loads(text), indent=1))
    assert Watch.load(path).timeline.total.sums[ROWS] == 601


def test_other_rules_and_later_versions_are_refused(state):
    path, _ = state
    with pytest.raises(dm.InvalidInputError, match="of another rule"):
        Watch.load(path, rule=tuned_rule(seed=5))
    data = json.loads(path.read_text())
    path.write_text(json.dumps(data | {"version": 2}))
    with pytest.raises(dm.InvalidInputError, match="version 2, this demur reads"):
        Watch.load(path)
    path.write_text('{"format": "demur.rule"}')
    with pytest.raises(dm.InvalidInputError, match="no state of a watch"):
        Watch.load(path)
    with pytest.raises(dm.InvalidInputError, match="cannot read"):
        Watch.load(path.with_name("none.json"))


ADD = """
import sys
from demur.watch import Watch, locked
path, name = sys.argv[1:]
for k in range(12):
    with locked(path):
        watch = Watch.load(path)
        watch.update([[0.0, 0.0]] * 7, time=f"2026-02-{k + 1:02d}")
        watch.save(path)
"""


def test_two_processes_lose_no_counts(state):
    path, watch = state
    before = watch.timeline.total.sums[ROWS]
    started = [
        subprocess.Popen([sys.executable, "-c", ADD, str(path), str(k)], env=ENVIRONMENT)
        for k in range(2)
    ]
    assert [process.wait(60) for process in started] == [0, 0]
    assert Watch.load(path).timeline.total.sums[ROWS] == before + 2 * 12 * 7


def counts_of(layout, rows):
    found = LiveCounts.none(layout)
    found.sums[ROWS] = rows
    return found


def test_parts_of_a_period_are_replaced_added_or_refused():
    watch = Watch(RULE)
    layout = watch.setup.layout

    def rows():
        return watch.timeline.total.sums[ROWS]

    assert watch.replace("a", "f1", counts_of(layout, 10))
    assert watch.replace("a", "f1", counts_of(layout, 12))
    assert rows() == 12
    assert watch.replace("a", "f2", counts_of(layout, 5))
    assert rows() == 17
    assert watch.replace("a", "f1 f2 f3", counts_of(layout, 30))
    assert rows() == 30
    with pytest.raises(dm.InvalidInputError, match="only some"):
        watch.replace("a", "f1", counts_of(layout, 1))
    # Many files have short marks, which are compared with long ones.
    assert watch.replace("b", "f00000aa f00001bb", counts_of(layout, 3))
    assert watch.replace("b", "set:f00000 f00001 f00002", counts_of(layout, 7))
    assert watch.replace("b", "set:f00000 f00001 f00002 f00003", counts_of(layout, 9))
    assert watch.replace("b", "f00004cc", counts_of(layout, 1))
    assert rows() == 30 + 10
    with pytest.raises(dm.InvalidInputError, match=r"period b .* only some"):
        watch.replace("b", "set:f00000 f00001", counts_of(layout, 1))
    watch.reset("new")
    assert not watch.replace("a", "f1 f2 f3", counts_of(layout, 99))
    assert watch.replace("c", "f9", counts_of(layout, 4))
    assert rows() == 4
    with pytest.raises(dm.InvalidInputError, match="cannot be ordered"):
        watch.replace(3, "f9", counts_of(layout, 4))


def test_a_state_that_grew_is_made_small_and_nothing_is_lost(tmp_path):
    """A day has eight files, given one by one, and there are fifty OOD sets."""
    watch = Watch(RULE, expect=[dm.Bound("fpr", at_most=0.5, ood_set="each")])
    layout = watch.setup.layout
    for day in range(45):
        for hour in range(8):
            counts = counts_of(layout, 100)
            counts.sets = {f"set number {k}": np.array([3.0, 1.0]) for k in range(50)}
            assert watch.replace(day, f"{day:06x}{hour:06x}", counts)
    before = watch.status()
    path = tmp_path / "large.json"
    watch.save(path)
    assert path.stat().st_size < 100_000
    again = Watch.load(path)
    assert again.timeline.total.sums[ROWS] == 45 * 8 * 100
    assert again.status().evidence == before.evidence
    # The latest day can still be counted anew, an old one is closed.
    assert again.replace(44, " ".join(f"{44:06x}{hour:06x}" for hour in range(8)), counts)
    assert again.timeline.total.sums[ROWS] == 44 * 8 * 100 + 100
    assert not again.replace(3, f"{3:06x}{0:06x}", counts)


def test_what_another_process_wrote_is_not_overwritten(state):
    path, _ = state
    one, two = Watch.load(path), Watch.load(path)
    for watch in (one, two):
        watch.update([[0.0, 0.0]], time="2026-01-04")
    one.save(path)
    one.save(path)
    with pytest.raises(dm.InvalidInputError, match="since it was read"):
        two.save(path)
    two.save(path.with_name("elsewhere.json"))
    with locked(path):
        again = Watch.load(path)
        again.update([[0.0, 0.0]], time="2026-01-04")
        with locked(path):
            again.save(path)
    assert Watch.load(path).timeline.segments[-1].counts().sums[ROWS] == 2


def test_looks_are_remembered_in_the_state(state):
    path, watch = state
    watch.update([[0.0, 0.0]] * 3, time="2026-01-02")
    watch.update([[0.0, 0.0]] * 2, time="2026-01-09")
    watch.save(path)
    again = Watch.load(path)
    for mine, theirs in zip(watch.timeline.since_look(), again.timeline.since_look(), strict=True):
        assert mine.to_data() == theirs.to_data()
    assert again.timeline.never_looked() == watch.timeline.never_looked() == 1


def test_old_periods_are_joined_and_nothing_is_lost():
    layout = Watch(RULE).setup.layout
    line = Timeline(layout)
    rng = np.random.default_rng(2)
    expected = 0
    for day in rng.permutation(300) / 1.0:
        line.add(day, counts_of(layout, day))
        expected += day
        assert len(line.segments) <= 80
        firsts = [s.first for s in line.segments]
        assert firsts == sorted(firsts)
        ends = [(a.last, b.first) for a, b in zip(line.segments, line.segments[1:], strict=False)]
        assert all(last < first for last, first in ends)
    assert line.total.sums[ROWS] == expected == line.sums()[:, ROWS].sum()
    late = Timeline(layout)
    for day in range(0, 400, 3):
        late.add(float(day), counts_of(layout, 1))
    merged = line.merged(late)
    assert merged.total.sums[ROWS] == expected + 134
    assert len(merged.segments) <= 80


def test_the_same_files_on_both_sides_are_the_same_rows():
    one, two = Watch(RULE), Watch(RULE)
    layout = one.setup.layout
    for watch in (one, two):
        watch.replace("a", "f1", counts_of(layout, 10))
    two.replace("a", "f2", counts_of(layout, 5))
    assert (one | two).timeline.total.sums[ROWS] == 15
    two.replace("a", "f1", counts_of(layout, 11))
    with pytest.raises(dm.InvalidInputError, match="same files"):
        one | two


def test_pending_rows_round_trip():
    row = PendingRow("k", "p", True, None, True, False, "", float("nan"))
    again = PendingRow.from_data(json.loads(json.dumps(row.to_data())))
    assert again.to_data() == row.to_data()
    assert not again.complete
