"""Pictures, frames and short texts of results."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

import demur as dm
from demur import guarantees, metrics

plt = pytest.importorskip("matplotlib.pyplot")
plt.switch_backend("Agg")

MODEL = dm.TprFprModel(0.8, 0.3)


@pytest.fixture(autouse=True)
def closed_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def samples():
    rng = np.random.default_rng(0)
    own, foreign = rng.normal(size=(400, 2)), rng.normal(1.5, size=(300, 2))
    loss = (rng.random(400) < 1 / (1 + np.exp(2 - own[:, 0]))).astype(float)
    pair = dm.Sample(
        own, loss, {"near": foreign[:100], "far": foreign[100:]}, score_names=("msp", "knn")
    )
    one = dm.Sample(own[:, 0], loss, foreign[:, 0], score_names=("msp",))
    return pair, one


@pytest.fixture(scope="module")
def results(samples):
    pair, one = samples
    return {
        "tuning": dm.tune(pair, MODEL),
        "frontier": dm.frontier(pair, min_tpr=[0.5, 0.8], max_fpr=[0, 0.1, 0.3]),
        "curve": metrics.roc_curve(pair),
        "cross": guarantees.cross_tune(pair, MODEL, folds=3),
        "bootstrap": guarantees.bootstrap(pair, MODEL, replicates=20),
        "comparison": guarantees.compare(
            dm.Sample(pair.id_scores, pair.id_loss, pair.ood_scores),
            one,
            dm.TprFprModel(0.5, 0.5),
            replicates=20,
        ),
    }


@pytest.mark.parametrize(
    "name", ["tuning", "frontier", "curve", "cross", "bootstrap", "comparison"]
)
def test_every_result_has_a_picture_a_frame_and_a_short_text(results, name):
    result = results[name]
    ax = result.plot()
    assert ax.get_xlabel() or name == "cross"
    ax.figure.canvas.draw()
    _, mine = plt.subplots()
    assert result.plot(mine) is mine
    assert isinstance(result.to_frame(), pd.DataFrame)
    polars = result.to_frame("polars")
    assert isinstance(polars, pl.DataFrame) and len(polars) == len(result.to_frame())
    assert len(repr(result)) < 250


def test_a_curve_is_drawn_as_it_is_read(samples):
    pair, one = samples
    stairs, line = metrics.roc_curve(pair), metrics.roc_curve(one)
    drawn = stairs.plot(label="pair").lines[0]
    # Whoever may accept all OOD keeps the largest TPR.
    np.testing.assert_array_equal(drawn.get_xdata(), [*stairs.x, *[1.0] * int(stairs.x[-1] < 1)])
    assert drawn.get_drawstyle() == "steps-post" and stairs.interpolation == "previous"
    assert line.plot().lines[0].get_drawstyle() == "default"
    points = metrics.roc_curve(one, evaluate_on=one).plot().lines[0]
    assert points.get_linestyle() == "None"


def test_the_frame_of_a_curve_has_the_rules(samples):
    curve = metrics.roc_curve(samples[0])
    frame = curve.to_frame()
    assert list(frame) == ["FPR", "TPR", "weight_1", "weight_2", "threshold"]
    rule = curve.rule(5)
    assert (frame["weight_1"][5], frame["weight_2"][5]) == rule.direction
    assert frame["threshold"][5] == rule.threshold


def test_the_frame_of_a_frontier_has_every_pair_of_bounds(results):
    surface = results["frontier"]
    frame = surface.to_frame()
    row = frame[(frame["min_tpr"] == 0.8) & (frame["max_fpr"] == 0.3)]
    assert row["selective_risk"].item() == surface.selective_risk[1, 2]
    assert row["accepted_id"].item() == surface.accepted_id[1, 2]


def test_the_frame_of_a_tuning_has_the_rates_of_every_set(results):
    tuned = results["tuning"]
    frame = tuned.to_frame().set_index("rate")["tuned"]
    assert frame["selective_risk"] == tuned.point.selective_risk
    assert frame["fpr of near"] == tuned.point.fpr_by_set["near"]


def test_the_frame_of_a_bootstrap_has_its_intervals(results):
    resampled = results["bootstrap"]
    frame = resampled.to_frame().set_index("rate")
    assert frame.loc["fpr", "high"] == resampled.measures["fpr"].interval.high
    assert frame.loc["tpr", "apparent"] == resampled.tuned.point.tpr


def test_the_plane_shows_all_rows_or_says_how_many():
    rng = np.random.default_rng(1)
    scores = rng.normal(size=(5000, 2))
    sample = dm.Sample(scores, scores[:, 0] > 1.5, rng.normal(2, size=(10, 2)))
    ax = dm.tune(sample, MODEL).plot(sample=sample)
    shown = [len(group.get_offsets()) for group in ax.collections[:3]]
    assert shown == [2000, int((scores[:, 0] > 1.5).sum()), 10]
    assert "2,000 shown" in ax.get_legend_handles_labels()[1][0]


def test_the_histogram_of_one_score_shows_the_threshold(samples):
    one = samples[1]
    tuned = dm.tune(one, dm.TprFprModel(0.5, 0.5))
    ax = tuned.plot(sample=one)
    assert ax.lines[0].get_xdata()[0] == tuned.rule.threshold
    own, *_ = ax.patches
    assert own.get_data().values.sum() == pytest.approx(1)


def test_a_frontier_without_any_rule_says_so(samples):
    surface = dm.frontier(samples[0], min_tpr=[1], max_fpr=[0])
    assert "no rule" in surface.plot().texts[0].get_text()


def test_an_unknown_kind_of_frame_is_refused(results):
    with pytest.raises(dm.InvalidInputError, match="'pandas', 'polars' or 'pyarrow'"):
        results["curve"].to_frame("excel")


@pytest.mark.parametrize("make", [dm.prepare, guarantees.operating_table])
def test_texts_of_large_results_are_short(samples, make):
    assert len(repr(make(samples[0]))) < 250


def test_a_report_has_a_frame_of_its_own(samples):
    pytest.importorskip("jinja2")
    pair = samples[0]
    report = dm.Report.of(pair, dm.tune(pair, MODEL), title='a "quoted" <title>')
    html = report._repr_html_()
    assert html.startswith('<iframe srcdoc="&lt;!doctype html&gt;')
    assert html.count('"') == 8 and "allow-same-origin" not in html


def test_results_are_told_in_a_line():
    rng = np.random.default_rng(0)
    pair = dm.Sample(rng.random((40, 2)), rng.random(40) < 0.2, rng.random((30, 2)) + 0.3)
    first, second = pair.score(0), pair.score(1)
    point = dm.tune(pair, MODEL).point
    told = [
        repr(point),
        repr(metrics.summary(first)),
        repr(guarantees.compare_auroc(first, second)),
        repr(dm.open_source(pd.DataFrame({"a": [0.1, 0.2], "l": [0, 1]}), ["a"], loss="l")),
    ]
    assert all(len(text) < 160 and "\n" not in text for text in told)
    assert f"tpr={point.tpr:.6g}" in told[0] and f"{point.accepted_id:g} ID" in told[0]
    assert f"auroc={metrics.auroc(first):.4g}" in told[1]
    assert f"{metrics.auroc(first) - metrics.auroc(second):+.4f}" in told[2]
