"""The page as a file: self-contained, inert, well-formed, readable without a script."""

import base64
import hashlib
import json
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest
from reports import HOSTILE, make_sample

import demur as dm
from demur.core.models import Bound, RejectionModel
from demur.report import Report, html
from demur.report.page_data import packed, page_json

VOID = {"meta", "link", "input", "br", "img", "wbr"}


class Page(HTMLParser):
    """Checks nesting and keeps tags and texts."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def render(**changes):
    sample, fresh = make_sample(0), make_sample(1)
    options = {
        "held_out": fresh,
        "methods": {"msp": (sample.score(0), fresh.score(0)), "both": (sample, fresh)},
        "ids": (range(sample.n_id), range(sample.n_ood)),
    }
    return Report.of(sample, dm.tune(sample, dm.TprFprModel(0.7, 0.2)), **(options | changes))


@pytest.fixture(scope="module")
def report():
    return render()


@pytest.fixture(scope="module")
def text(report):
    return report.to_html()


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def test_nothing_is_loaded_from_elsewhere(text, page):
    assert len(text) < 1_000_000
    # The name space of SVG is a name, not an address that is asked for anything.
    addresses = re.findall(r"\S{0,8}://[^\s\"'<]+", text.replace(_data(text), ""))
    assert addresses == ['"http://www.w3.org/2000/svg']
    assert all("src" not in attributes for _, attributes in page.tags)
    assert {attributes["href"] for attributes in page.all("link")} == {"data:,"}


def test_the_policy_allows_our_own_script_and_style_only(text, page):
    policy = page.all("meta")[1]["content"]
    assert policy.startswith("default-src 'none';")
    for element, directive in (("style", "style-src"), ("script", "script-src")):
        content = re.findall(rf"<{element}>(.*?)</{element}>", text, re.DOTALL)
        assert len(content) == 1
        digest = base64.b64encode(hashlib.sha256(content[0].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert "unsafe" not in policy


def test_names_of_users_are_shown_and_not_run():
    sample = make_sample(names=(HOSTILE, "b"), sets=(HOSTILE, "x" + HOSTILE))
    tuning = dm.tune(sample, dm.TprFprModel(0.7, 0.2))
    report = Report.of(
        sample,
        tuning,
        held_out=sample,
        methods={HOSTILE: sample, "b": sample.score(0)},
        ids=([HOSTILE] * 300, [HOSTILE] * 150),
        title=HOSTILE,
        command=f"demur tune {HOSTILE}",
    )
    text = report.to_html()
    assert "<script>window.pwned" not in text and "<img" not in text and "<!--" not in text
    page = Page(text)
    assert len(page.all("script")) == 2
    shown = {tag for tag, data in page.texts if HOSTILE in data}
    assert {"title", "bdi", "caption"} <= shown
    data = json.loads(_data(text))
    assert data["scores"] == [HOSTILE, "b"] and HOSTILE in data["command"]


def test_templates_escape_all_but_our_own_style_script_and_data():
    folder = resources.files("demur.report") / "templates"
    pages = [page for page in folder.iterdir() if page.name.endswith(".html")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert set(re.findall(r"(\w+)\s*\|\s*safe", text)) == {"css", "data", "js"}
    assert "autoescape" not in text


def test_only_the_page_needs_jinja2(report, monkeypatch):
    monkeypatch.setitem(sys.modules, "jinja2", None)
    html.environment.cache_clear()
    assert report.decision[:20] in report.to_text() and report.to_dict()["decision"]
    with pytest.raises(dm.MissingExtraError, match=r"'jinja2'.*demur\[report\]"):
        report.to_html()


def _data(text):
    return re.search(r'<script type="application/json" id="data">(.*?)</script>', text).group(1)


@pytest.mark.parametrize("evil", ["</script>", "<!--", "<script", "]]>", "\u2028", "\ud800", "\0"])
def test_json_in_a_script_element_is_inert(evil):
    text = page_json({"a": evil})
    assert not set("<>&") & set(text) and text.isascii()
    assert json.loads(text) == {"a": evil}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([0, 1, 2**31 - 1], "i4"),
        ([2**31], "f8"),
        ([0.5, -np.inf], "f8"),
        ([], "i4"),
        ([-1, 3], "i4"),
        ([0.1, 1 / 3], "f8"),
    ],
)
def test_arrays_survive_packing(values, kind):
    stored = packed(values)
    assert stored["type"] == kind
    back = np.frombuffer(base64.b64decode(stored["data"]), f"<{kind}")
    np.testing.assert_array_equal(back, values)


def test_lone_surrogates_reach_a_file(tmp_path, report):
    replace(report, title="\ud800 title").to_html(tmp_path / "r.html")
    assert "? title" in (tmp_path / "r.html").read_text(encoding="utf-8")


def test_writing_is_all_or_nothing(tmp_path, report):
    with pytest.raises(dm.InvalidInputError, match="does not exist"):
        report.to_html(tmp_path / "no" / "r.html")


def test_the_same_report_is_the_same_file(text):
    assert render().to_html() == text


def test_every_input_has_a_label_and_every_table_a_caption(page):
    labelled = {attributes.get("for") for attributes in page.all("label")}
    for attributes in page.all("input"):
        named = attributes["type"] == "radio" or "aria-label" in attributes
        assert named or attributes["id"] in labelled
    assert len(page.all("caption")) == len(page.all("table"))
    assert all("scope" in attributes for attributes in page.all("th"))
    assert all("aria-label" in a or a.get("aria-hidden") for a in page.all("svg") if "role" in a)
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))
    targets = [a["aria-labelledby"] for _, a in page.tags if "aria-labelledby" in a]
    assert set(targets) <= set(ids)
    assert page.all("html")[0]["lang"] == "en"


def test_the_decision_stands_without_a_script(report, text):
    text = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    words = " ".join(data for _, data in Page(text).texts)
    assert report.decision in words
    for caution in report.cautions:
        assert caution.text in words
    assert f"{report.held_out.rates['selective risk'].value:.5f}" in words
    assert "needs JavaScript" in words


def test_best_values_are_marked_for_eyes_and_ears(text):
    cells = re.findall(r'<td class="best"><span>(.*?)</td>', text)
    assert cells and all("best: " in cell for cell in cells)


@pytest.mark.parametrize("kind", ["one", "no ood", "many", "cost", "precision", "inf"])
def test_other_samples_render(kind):
    sample, model = make_sample(), dm.TprFprModel(0.7, 0.3)
    if kind == "one":
        sample = sample.score(1)
    elif kind == "no ood":
        sample, model = dm.Sample(sample.id_scores, sample.id_loss), dm.TprFprModel(0.7)
    elif kind == "many":
        sample = make_sample(0, 4000, 1500).score(1)
    elif kind == "cost":
        model = dm.CostModel(0.3, 2, 0.1, 0.2)
    elif kind == "precision":
        model = dm.PrecisionRecallModel(0.9, 0.5, 0.2)
    else:
        scores = sample.id_scores.copy()
        scores[:20] = np.inf
        sample = dm.Sample(scores, sample.id_loss, sample.ood_scores)
    text = Report.of(sample, dm.tune(sample, model)).to_html()
    page = Page(text)
    plots = {a["id"] for a in page.all("svg") if a.get("id", "").startswith("plot-")}
    everything = {"plot-surface", "plot-plane", "plot-roc", "plot-pr", "plot-risk"}
    assert plots == ({"plot-plane", "plot-risk"} if kind == "no ood" else everything)
    data = json.loads(_data(text))
    assert data["mode"] == {"cost": "cost", "precision": "pr"}.get(kind, "tprfpr")


@pytest.mark.parametrize(
    ("model", "first", "objective"),
    [
        (RejectionModel("tpr", [Bound("fpr", at_most=0.2)]), "tprfpr", "TPR"),
        (RejectionModel("fpr", [Bound("tpr", at_least=0.6)]), "tprfpr", "FPR"),
        (RejectionModel("precision", [Bound("tpr", at_least=0.6)], 0.2), "tprfpr", "precision"),
        (
            RejectionModel("tpr", [Bound("precision", at_least=0.8)], ood_prior=0.25),
            "pr",
            "TPR",
        ),
    ],
)
def test_any_model_is_shown_by_its_objective_and_bounds(model, first, objective):
    sample, fresh = make_sample(0), make_sample(1)
    tuning = dm.tune(sample, model)
    report = Report.of(
        sample, tuning, held_out=fresh, methods={"a": (sample, fresh), "b": (sample, fresh)}
    )
    data = json.loads(_data(report.to_html()))
    assert data["mode"] == first
    for bound in model.bounds:
        assert data["start"][bound.quantity] == str(bound.value)
    if model.ood_prior is not None:
        assert data["start"]["prior"] == str(model.ood_prior)
    assert report.comparison.blocks[0].values["a"][objective] == pytest.approx(
        getattr(tuning.point, str(model.objective))
    )
    assert objective in [metric.name for metric in report.comparison.metrics]
