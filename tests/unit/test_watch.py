"""`Watch`: counting, labels in order, merging, alarms, and what it says."""

import math
import pickle

import numpy as np
import pytest
from watched import NAMES, live_rows, tuned_rule

import demur as dm
from demur.report.watch_page import watched_series
from demur.watch import Watch
from demur.watch.counts import ACCEPTED, MISSING, ROWS
from demur.watch.evidence import above

RISK = dm.Bound("selective_risk", at_most=0.06)
RULE = tuned_rule()


def sums(watch):
    return watch.timeline.total.sums


def test_rows_are_counted_as_a_plain_loop_would():
    rng = np.random.default_rng(1)
    scores, loss, foreign = live_rows(rng, 400)
    scores[::17, 0], scores[5::23, 1], scores[3, 0] = np.nan, np.inf, -np.inf
    watch = Watch(RULE)
    watch.update(scores, loss, foreign)
    accepted = RULE.accept(scores, missing="reject")
    lacking = ~(scores > -np.inf).all(axis=1)
    assert sums(watch)[ROWS] == 400
    assert sums(watch)[ACCEPTED] == accepted.sum()
    assert sums(watch)[MISSING] == lacking.sum()
    for k, cuts in enumerate(watch.setup.cuts):
        for part in (0, 1):
            values = scores[accepted == part, k]
            plain = [0] * (len(cuts) + 2)
            for value in values:
                missing = math.isnan(value) or value == -math.inf
                plain[-1 if missing else sum(value > cut for cut in cuts)] += 1
            seen = sums(watch)[watch.setup.layout.scores[k]].reshape(2, -1)[part]
            assert seen.tolist() == plain
    told = watch.timeline.total.labelled()
    known = ~np.isnan(loss)
    assert told.tpr == ((accepted & known).sum(), known.sum())
    assert told.fpr == ((accepted & foreign).sum(), foreign.sum())
    assert told.losses.tolist() == [(accepted & known).sum(), *[loss[accepted & known].sum()] * 2]


@pytest.mark.parametrize("rule", [dm.Rule((0.0, 1.0), 0.3), dm.Rule((1.0,), 0.2, tau=0.0)])
def test_decisions_are_those_of_the_rule(rule):
    rng = np.random.default_rng(2)
    scores = rng.choice([0.1, 0.2, 0.3, 0.4, np.nan, np.inf, -np.inf], (300, len(rule.direction)))
    watch = Watch(rule, expect=[])
    watch.update(scores)
    assert sums(watch)[ACCEPTED] == rule.accept(scores, missing="reject").sum()


def test_batches_frames_and_single_rows_count_alike():
    rng = np.random.default_rng(3)
    scores, loss, foreign = live_rows(rng, 60)
    whole, parts, named = (Watch(RULE, expect=[RISK]) for _ in range(3))
    whole.update(scores, loss, foreign)
    for k in range(60):
        parts.update(scores[[k]], loss[[k]], foreign[[k]])
    named.update({"knn": scores[:, 1], "msp": scores[:, 0]}, loss, foreign)
    assert np.array_equal(sums(whole), sums(parts))
    assert np.array_equal(sums(whole), sums(named))


def test_sets_groups_and_precision_have_rates_of_their_own():
    rng = np.random.default_rng(4)
    scores, loss, foreign = live_rows(rng, 500, prior=0.4)
    names = np.where(foreign, rng.choice(["a", "b"], 500), "id")
    group = rng.choice(["x", "y"], 500)
    expect = [
        dm.Bound("fpr", at_most=0.1, ood_set="each"),
        dm.Bound("tpr", at_least=0.7, group="x"),
        dm.Bound("selective_risk", at_most=0.2, group="x"),
        dm.Bound("precision", at_least=0.8),
    ]
    status = Watch(RULE, expect=expect).update(scores, loss, names, group=group)
    accepted = RULE.accept(scores)
    seen = {item.name: item for item in status.watched}
    for name in "ab":
        rows = names == name
        item = seen[f"fpr <= 0.1 of {name}"]
        assert (item.rows, item.estimate) == (rows.sum(), accepted[rows].mean())
    of_x = ~foreign & (group == "x")
    assert seen["tpr >= 0.7 of x"].estimate == accepted[of_x].mean()
    assert seen["selective_risk <= 0.2 of x"].estimate == loss[of_x & accepted].mean()
    assert seen["precision >= 0.8"].estimate == (~foreign[accepted]).mean()
    assert sum(item.weight for item in status.watched) <= 1
    # Sets share the part of their bound: 1/2 and 1/6 of it.
    assert seen["fpr <= 0.1 of a"].weight + seen["fpr <= 0.1 of b"].weight == pytest.approx(
        seen["precision >= 0.8"].weight * (1 / 2 + 1 / 6)
    )


def test_late_labels_count_in_the_order_of_the_rows():
    rng = np.random.default_rng(5)
    scores, loss, _ = live_rows(rng, 200, prior=0.0)
    audited = rng.random(200) < 0.5
    ids = np.array([f"row {k}" for k in range(200)])
    late = audited & (rng.random(200) < 0.3)
    watch = Watch(RULE, expect=[RISK])
    first = np.where(late, np.nan, loss)
    status = watch.update(scores, first, audited=audited, ids=ids)
    start = np.flatnonzero(late)[0]
    prompt = Watch(RULE, expect=[RISK])
    prompt.update(scores[:start], loss[:start], audited=audited[:start])
    labelled = watch.setup.layout.labelled()
    assert np.array_equal(sums(watch)[labelled], sums(prompt)[labelled])
    assert status.pending == audited[start:].sum()
    # In any order, through a file.
    for k in rng.permutation(np.flatnonzero(late)):
        watch = pickle.loads(pickle.dumps(watch)) if k % 2 else watch
        watch.label([ids[k]], loss=[loss[k]])
    whole = Watch(RULE, expect=[RISK])
    whole.update(scores, loss, audited=audited)
    assert np.array_equal(sums(watch), sums(whole))
    assert watch.status().pending == 0


def test_audited_rows_without_label_need_ids():
    with pytest.raises(dm.InvalidInputError, match="need ids"):
        Watch(RULE).update([[0.0, 0.0]], [np.nan], audited=[True])


def test_unequal_audits_are_accounted_for():
    rng = np.random.default_rng(6)
    scores, loss, _ = live_rows(rng, 40_000, prior=0.0)
    accepted = RULE.accept(scores)
    audited = rng.random(40_000) < np.where(accepted, 0.05, 0.5)
    watch = Watch(RULE, expect=[dm.Bound("tpr", at_least=0.75)], audit=(0.05, 0.5))
    item = watch.update(scores, loss, audited=audited).watched[0]
    assert item.estimate == pytest.approx(accepted.mean(), abs=0.02)
    assert accepted.mean() in item.interval
    naive = Watch(RULE, expect=[dm.Bound("tpr", at_least=0.75)])
    assert naive.update(scores, loss, audited=audited).alarms


def test_graded_losses_need_a_largest_one_and_give_alarm():
    rng = np.random.default_rng(7)
    scores, _, _ = live_rows(rng, 3000, prior=0.0)
    loss = rng.beta(1, 4, 3000) * 2
    with pytest.raises(dm.InvalidInputError, match="max_loss"):
        Watch(RULE, expect=[RISK]).update(scores, loss)
    watch = Watch(RULE, expect=[dm.Bound("selective_risk", at_most=0.3)], max_loss=2)
    status = watch.update(scores, loss)
    assert status.alarms
    assert 0.4 in status.intervals["selective_risk <= 0.3"]


def test_merged_shards_are_one_watch():
    rng = np.random.default_rng(8)
    watches = [Watch(RULE, expect=[RISK]) for _ in range(3)]
    for day in range(5):
        scores, loss, foreign = live_rows(rng, 300)
        half = rng.random(300) < 0.5
        for watch, rows in zip(watches, (half, ~half, np.ones(300, bool)), strict=True):
            watch.update(scores[rows], loss[rows], foreign[rows], time=day)
    merged = watches[0] | watches[1]
    assert np.array_equal(sums(merged), sums(watches[2]))
    assert str(merged.status()) == str(watches[2].status())
    assert np.array_equal(merged.timeline.sums(), watches[2].timeline.sums())
    with pytest.raises(dm.InvalidInputError, match="differ in alpha"):
        watches[0] | Watch(RULE, expect=[RISK], alpha=0.01)


def test_rows_are_merged_once():
    """A shard that was merged before must not be merged again into the sum."""
    shards = [Watch(RULE, expect=[RISK]) for _ in range(2)]
    for shard in shards:
        shard.update([[0.0, 0.0]], [0.0])
    both = shards[0] | shards[1]
    for again in (both, shards[0], pickle.loads(pickle.dumps(shards[0]))):
        with pytest.raises(dm.InvalidInputError, match="counted twice"):
            again | shards[0]
    third = Watch(RULE, expect=[RISK])
    assert sums(both | third)[ROWS] == 2
    third.update([[0.0, 0.0]])
    assert sums(third | both)[ROWS] == 3


def test_alarms_follow_the_rows_in_the_order_they_came():
    """Rows that are late for their period: the plain reference adds them up look by look."""
    alarms = 0
    for seed in range(20):
        rng = np.random.default_rng([20, seed])
        watch = Watch(RULE, expect=[RISK], checks=(), alpha=0.4, mean_time=None)
        wrong = rows = 0
        found = False
        for look in range(8):
            days = rng.integers(max(0, look - 4), look + 1, 30)
            loss = (rng.random(30) < 0.08).astype(float)
            watch.update(np.zeros((30, 2)), loss, time=days)
            for day in range(8):
                these = loss[days == day]
                wrong, rows = wrong + these.sum(), rows + len(these)
                found = found or bool(above(wrong, rows, 0.06) >= -math.log(0.4))
            assert bool(watch.status().alarms) == found, (seed, look)
        alarms += found
    assert 2 < alarms < 18


def test_alarms_are_the_same_day_by_day_and_at_once():
    for seed in range(3):
        rng = np.random.default_rng([21, seed])
        daily, once = (Watch(RULE, expect=[RISK], checks=(), mean_time=30) for _ in range(2))
        for day in range(30):
            scores, _, _ = live_rows(rng, 60, prior=0.0)
            # Broken for a while; what comes after hides it.
            risk = 0.25 if 12 <= day < 15 else 0.02
            loss = (rng.random(60) < risk).astype(float)
            for watch in (daily, once):
                watch.update(scores, loss, time=day)
            daily.status()
        seen = [
            [(a.expectation, a.kind, a.period) for a in w.status().alarms] for w in (daily, once)
        ]
        assert sorted(seen[0]) == sorted(seen[1])
        assert "mean time" in {kind for _, kind, _ in seen[0]}


def test_a_merge_of_what_was_looked_at_is_one_look_at_all_of_it():
    shards = [Watch(RULE, expect=[RISK], checks=(), mean_time=None) for _ in range(2)]
    for shard in shards:
        shard.update(np.zeros((20, 2)), np.ones(20), time=1)
        shard.update(np.zeros((9000, 2)), np.zeros(9000), time=2)
    # Never looked at: the end of the first day is a look, and gives alarm.
    assert [alarm.period for alarm in (shards[0] | shards[1]).status().alarms] == [1]
    shards[0].status()
    assert (shards[0] | shards[1]).status().ok


def test_names_of_sets_keep_their_part_of_alpha():
    """A row that is late must not change which set came first."""
    watch = Watch(RULE, expect=[dm.Bound("fpr", at_most=0.1, ood_set="each")], checks=())
    watch.update([[0.0, 0.0]], is_ood=["b"], time=2)
    first = {item.name: item.weight for item in watch.status().watched}
    watch.update([[0.0, 0.0]], is_ood=["a"], time=1)
    later = {item.name: item.weight for item in watch.status().watched}
    assert first == {"fpr <= 0.1 of b": 0.5}
    assert later == {"fpr <= 0.1 of b": 0.5, "fpr <= 0.1 of a": pytest.approx(1 / 6)}


def test_a_new_share_of_ood_inputs_is_told_from_scores_that_changed():
    for prior, shift, words in ((0.5, 0.0, "mix of inputs changed"), (0.1, 0.8, "scores changed")):
        rng = np.random.default_rng(9)
        watch = Watch(RULE, ood_prior=(0.05, 0.15))
        for day in range(20):
            late = day >= 10
            rows = live_rows(rng, 500, prior if late else 0.1, shift if late else 0.0)
            watch.update(rows[0], time=day)
        status = watch.status()
        assert status.alarms
        assert words in status.message
        dated = [item.changed for item in status.watched if item.alarm]
        assert all(9 <= day <= 12 for day in dated), dated
    assert status.drift[0].psi > 0.1
    assert status.drift[0].ks > 0.1


def test_missing_scores_give_alarm():
    rng = np.random.default_rng(10)
    scores = live_rows(rng, 4000)[0]
    scores[rng.random(4000) < 0.05, 1] = np.nan
    status = Watch(RULE, ood_prior=0.1).update(scores)
    assert "missing scores" in {alarm.expectation for alarm in status.alarms}
    assert status.drift[1].missing == np.isnan(scores[:, 1]).sum()
    assert status.drift[0].missing == 0


def test_alarms_stay_until_reset_and_the_history_is_kept():
    rng = np.random.default_rng(11)
    watch = Watch(RULE, expect=[RISK])
    scores, _, _ = live_rows(rng, 1000, prior=0.0)
    watch.update(scores, np.ones(1000), time="2026-01-01")
    assert watch.status().alarms[0].period == "2026-01-01"
    watch.update(scores, np.zeros(1000), time="2026-01-02")
    assert watch.status().alarms
    watch.reset("a new model")
    assert watch.status().ok
    assert [event["what"] for event in watch.history] == ["alarm", "alarm", "reset"]
    watch.update(scores, np.zeros(1000), time="2026-01-03")
    status = watch.status()
    assert status.ok
    assert status.rows == 1000
    assert status.watched[0].estimate == 0


def test_a_reset_leaves_out_what_waits_for_a_label():
    watch = Watch(RULE, expect=[RISK])
    watch.update([[0.0, 0.0]] * 2, audited=[True, True], ids=["a", "b"], time=1)
    watch.reset("repaired")
    assert watch.history[-1]["left_out"] == 2
    watch.update([[0.0, 0.0]], [0.0], audited=[True], time=2)
    with pytest.warns(dm.LikelyMistakeWarning, match="1 of 1 labels are of no row that waits"):
        status = watch.label(["a"], loss=[1.0])
    assert (status.pending, status.watched[0].rows, status.watched[0].estimate) == (0, 1, 0.0)


def test_labels_that_never_come_can_be_given_up():
    watch = Watch(RULE, expect=[RISK])
    watch.update([[0.0, 0.0]] * 3, [np.nan, 1, 0], audited=[True] * 3, ids=["a", "b", "c"])
    assert watch.status().watched[0].rows == 0
    with pytest.raises(dm.InvalidInputError, match="no row 'b' waits"):
        watch.give_up(["b"], "lost")
    status = watch.give_up(["a"], "the file was lost")
    assert (status.pending, status.watched[0].rows, status.watched[0].estimate) == (0, 2, 0.5)
    assert watch.history[-1]["what"] == "left out"


def test_rows_that_wait_have_different_ids_and_nothing_is_counted_by_halves():
    watch = Watch(RULE, expect=[RISK])
    with pytest.raises(dm.InvalidInputError, match="'a' already waits"):
        watch.update([[0.0, 0.0]] * 2, audited=[True, True], ids=["a", "a"], time=[1, 2])
    with pytest.raises(dm.InvalidInputError, match="need ids"):
        watch.update([[0.0, 0.0]] * 2, [0, np.nan], audited=[True, True], time=[1, 2])
    assert watch.timeline.segments == []
    watch.update([[0.0, 0.0]], audited=[True], ids=["a"], time=1)
    with pytest.raises(dm.InvalidInputError, match="'a' already waits"):
        watch.update([[0.0, 0.0]], audited=[True], ids=["a"], time=1)
    assert sums(watch)[ROWS] == 1


def test_audits_of_one_kind_tell_nothing_of_tpr():
    expect = [dm.Bound("tpr", at_least=0.8), RISK]
    watch = Watch(RULE, expect=expect, audit=(0.5, 0.0))
    tpr, risk = watch.update(np.zeros((50, 2)), np.zeros(50), audited=[True] * 50).watched[:2]
    assert math.isnan(tpr.estimate)
    assert (tpr.interval.low, tpr.interval.high) == (0, 1)
    assert tpr.log_evidence <= 0
    assert risk.estimate == 0


def test_the_detector_is_the_sum_of_evidence_since_every_period():
    rng = np.random.default_rng(12)
    watch = Watch(RULE, expect=[RISK], checks=())
    pairs = []
    for day in range(12):
        scores, loss, _ = live_rows(rng, 80, prior=0.0)
        watch.update(scores, loss, time=day)
        accepted = RULE.accept(scores)
        pairs.append((loss[accepted].sum(), accepted.sum()))
    plain = 0.0
    for start in range(12):
        k, n = (sum(pair[i] for pair in pairs[start:]) for i in (0, 1))
        plain += math.exp(above(k, n, 0.06))
    status = watch.status()
    assert math.exp(status.log_detector) == pytest.approx(plain)
    course = watched_series(watch.setup, watch.timeline)[0]
    assert 10 ** course.detector[-1] == pytest.approx(plain)
    assert 10 ** course.evidence[-1] == pytest.approx(status.evidence["selective_risk <= 0.06"])


def test_a_late_break_is_found_sooner_by_the_detector():
    rng = np.random.default_rng(13)
    watch = Watch(RULE, expect=[RISK], checks=())
    for day in range(60):
        scores, _, _ = live_rows(rng, 100, prior=0.0)
        loss = (rng.random(100) < (0.01 if day < 40 else 0.15)).astype(float)
        watch.update(scores, loss, time=day)
    found = {alarm.kind: alarm.period for alarm in watch.status().alarms}
    assert 40 <= found["mean time"] <= 46
    assert found.get("alpha", 99) > found["mean time"]


def test_what_is_expected_comes_from_the_card_and_is_said():
    status = Watch(RULE).status()
    assert [item.name for item in status.watched[:2]] == ["tpr >= 0.8", "fpr <= 0.1"]
    assert {item.origin for item in status.watched[:2]} == {"asked for in tuning, not certified"}
    certified = dm.Rule(
        RULE.direction,
        RULE.threshold,
        score_names=NAMES,
        card=RULE.card.with_point(
            "certified", {"tpr": 0.8, "fpr": 0.1, "selective_risk": 0.07, "confidence": 0.95}
        ),
    )
    status = Watch(certified, ood_prior=(0.1, 0.2)).status()
    names = [item.name for item in status.watched]
    assert names[:3] == ["tpr >= 0.8", "fpr <= 0.1", "selective_risk <= 0.07"]
    share = next(item for item in status.watched if item.name == "accepted share")
    assert share.limit.low == pytest.approx(0.8 * 0.8)
    assert share.limit.high == pytest.approx(0.9 + 0.1 * 0.1)
    bare = Watch(dm.Rule((1.0,), 0.5))
    assert bare.status().watched == ()
    assert bare.status().message.startswith("Nothing is tested")


def test_cost_of_a_batch_and_size_of_the_state_do_not_grow(tmp_path):
    import time

    rng = np.random.default_rng(14)
    scores, loss, foreign = live_rows(rng, 50)
    watch = Watch(RULE, ood_prior=(0.05, 0.15))

    def cost(times, first):
        start = time.process_time()
        for k in range(times):
            watch.update(scores, loss, foreign, time=first + k)
        return (time.process_time() - start) / times

    early = cost(100, 0)
    cost(4900, 100)
    late = cost(100, 5000)
    assert late < 3 * early + 1e-3
    path = tmp_path / "s.json"
    watch.save(path)
    assert path.stat().st_size < 100_000
    assert sums(Watch.load(path))[ROWS] == 50 * 5100
    assert len(watch.timeline.segments) <= 80


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"alpha": 0}, "alpha"),
        ({"audit": (0, 0)}, "audit"),
        ({"audit": 3}, "audit"),
        ({"mean_time": 0.5}, "mean_time"),
        ({"checks": ["colour"]}, "cannot be checked"),
        ({"expect": ["fpr"]}, "expect"),
        ({"expect": [RISK, RISK]}, "twice"),
        ({"max_loss": -1}, "max_loss"),
    ],
)
def test_wrong_arguments_are_refused(arguments, words):
    with pytest.raises(dm.InvalidInputError, match=words):
        Watch(RULE, **arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"loss": [0, 0]}, "loss has shape"),
        ({"loss": [2]}, "loss holds 2"),
        ({"is_ood": [0, 1]}, "is_ood has shape"),
        ({"audited": [0.5], "loss": [1]}, "audited"),
        ({"time": [1, 2]}, "time has shape"),
        ({"time": [None]}, "time must be"),
        ({"time": None, "group": ["a", "b"]}, "group has shape"),
    ],
)
def test_wrong_updates_are_refused(arguments, words):
    watch = Watch(RULE)
    with pytest.raises(dm.InvalidInputError, match=words):
        watch.update([[0.0, 0.0]], **arguments)
    assert sums(watch)[ROWS] == 0
    watch.update([[0.0, 0.0]])
    assert sums(watch)[ROWS] == 1


def test_plans_agree_with_the_watch_itself():
    """The planned number of audits finds the break in the planned time, by watches as they are."""
    from demur.watch.audit import ACCEPTED as OF_ACCEPTED

    watch = Watch(RULE, expect=[RISK], checks=())
    plan = watch.plan(dm.Bound("selective_risk", at_most=0.15), rows_per_day=400, within=5)
    place = next(p for p in plan.places if p.where == OF_ACCEPTED)
    rng = np.random.default_rng(15)
    in_time = []
    for _ in range(60):
        fresh = Watch(RULE, expect=[RISK], checks=(), mean_time=None)
        scores = np.zeros((5 * place.audits_per_day, 2))
        days = np.repeat(np.arange(5), place.audits_per_day)
        foreign = rng.random(len(days)) > plan.world.precision
        loss = (rng.random(len(days)) < 0.15).astype(float)
        status = fresh.update(scores, np.where(foreign, np.nan, loss), foreign, time=days)
        in_time.append(not status.ok)
    assert np.mean(in_time) == pytest.approx(0.9, abs=3 * math.sqrt(0.9 * 0.1 / 60) + 0.03)
    assert plan.best.audits_per_day == min(p.audits_per_day or 10**9 for p in plan.places)
    with pytest.raises(dm.InvalidInputError, match="no fpr is expected"):
        watch.plan(dm.Bound("fpr", at_most=0.5))


def test_the_reference_counts_every_row_once():
    reference = RULE.card.reference
    again = type(reference).from_data(reference.to_data())
    for side in (0, 1):
        accepted, rows = reference.accepted(side)
        assert rows == 1500
        assert again.accepted(side) == (accepted, rows)
        assert [int(counts[side].sum()) for counts in reference.rows] == [1500, 1500]
    point = RULE.card.points["tuned"]
    assert reference.accepted(0)[0] / 1500 == pytest.approx(point["tpr"])
    assert reference.accepted(1)[0] / 1500 == pytest.approx(point["fpr"])
    risk = reference.risk_loss.sum() / reference.risk_rows.sum()
    assert risk == pytest.approx(point["selective_risk"])
    assert all(counts[..., [0, -1]].sum() == 0 for counts in reference.rows)
    for broken in ({}, {"cuts": [[0]], "rows": [[1]], "risk": [[], [1], [1]]}, {"cuts": 3}):
        with pytest.raises(dm.InvalidInputError, match="reference is damaged"):
            type(reference).from_data(broken)
