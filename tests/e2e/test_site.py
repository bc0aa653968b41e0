"""The site as it is built: without a warning, complete, and nothing loaded from elsewhere."""

import importlib
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# What a browser fetches by itself, unlike a link, which someone follows.
FETCHED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """Links, anchors and what is fetched."""

    def __init__(self, text):
        super().__init__()
        self.links, self.anchors, self.fetched = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.anchors |= {found[name] for name in ("id", "name") if found.get(name)}
        if tag == "a" and found.get("href"):
            self.links.add(found["href"])
        if found.get(FETCHED.get(tag)):
            self.fetched.add(found[FETCHED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    for package in ("sphinx", "pydata_sphinx_theme", "myst_nb", "numpydoc", "sphinx_gallery"):
        pytest.importorskip(package)
    folder = tmp_path_factory.mktemp("site") / "html"
    command = [sys.executable, "-m", "sphinx", "-W", "-q", "-b", "html", str(DOCS), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    return folder


# One test, so that no second process builds the site again.
def test_the_site(site):
    pages = {
        path.relative_to(site).as_posix(): Page(path.read_text(encoding="utf-8"))
        for path in sorted(site.rglob("*.html"))
        # The theme's own pieces of templates are no pages.
        if "_static" not in path.parts
    }
    assert len(pages) > 200
    check_that_nothing_comes_from_elsewhere(site, pages)
    check_links(site, pages)
    check_that_every_name_has_a_page(site, pages)
    check_that_every_page_leads_on(pages)
    assert len(list((site / "_images").glob("sphx_glr_plot_*_001.png"))) >= 12
    assert "explorer" in (site / "demo-report.html").read_text(encoding="utf-8")


def check_that_nothing_comes_from_elsewhere(site, pages):
    for name, page in pages.items():
        outside = [
            one for one in page.fetched if urlsplit(one).netloc or one.startswith(("http", "//"))
        ]
        # The address of the page itself, which search engines read; nothing is fetched.
        assert outside == [], (name, outside)
    for path in site.rglob("*.css"):
        text = path.read_text(encoding="utf-8", errors="replace")
        assert not re.search(r"(url\(|@import)\s*['\"]?(https?:)?//", text), path


def check_links(site, pages):
    broken = []
    for name, page in pages.items():
        for link in page.links | page.fetched:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            place = (site / name).parent / unquote(parts.path) if parts.path else site / name
            target = place.resolve()
            if target.is_dir():
                target = target / "index.html"
            inside = target.relative_to(site.resolve()).as_posix()
            if not target.is_file():
                broken.append((name, link))
            elif parts.fragment and inside in pages and inside != "demo-report.html":
                anchors = pages[inside].anchors
                if unquote(parts.fragment) not in anchors and parts.fragment != "":
                    broken.append((name, link))
    assert broken == []


def check_that_every_name_has_a_page(site, pages):
    sys.path.insert(0, str(DOCS))
    try:
        generated = importlib.import_module("generated_pages")
    finally:
        sys.path.remove(str(DOCS))
    files = generated.file_names()
    values = {"demur.detectors.CATALOG", "demur.population.METHODS"}
    for name in (name for found in generated.pages().values() for name in found):
        path = f"api/names/{files.get(name, name)}.html"
        assert path in pages, name
        text = (site / path).read_text(encoding="utf-8")
        assert name in values or "&gt;&gt;&gt; " in re.sub(r"<[^>]+>", "", text), name


def check_that_every_page_leads_on(pages):
    alone = ("search.html", "genindex.html", "demo-report.html", "py-modindex.html")
    for name, page in pages.items():
        if name not in alone:
            inside = [link for link in page.links if not urlsplit(link).netloc]
            assert len({urlsplit(link).path for link in inside} - {"", "#"}) > 3, name


def test_the_catalogue_is_complete():
    from demur.detectors import CATALOG

    text = (DOCS / "detectors.md").read_text(encoding="utf-8")
    assert [name for name in CATALOG if f"| `{name}` |" not in text] == []
