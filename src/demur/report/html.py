"""The report as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib import resources
from string import Template
from typing import TYPE_CHECKING

from demur.report import markup, panel, promised, tables
from demur.report.encode import page_json
from demur.report.markup import escape
from demur.report.pagedata import page_data
from demur.report.wording import model_text
from demur.versions import versions

if TYPE_CHECKING:
    from demur.report.report import Report

SCRIPTS = ("rules.js", "chart.js", "plots.js", "wording.js", "explorer.js")


def render(report: Report) -> str:
    """Return the page."""
    css = template("page.css")
    # Wrapped, so that no name of ours meets one of the browser's.
    js = '"use strict";\n(() => {\n' + "\n".join(template(name) for name in SCRIPTS) + "\n})();\n"
    return Template(template("page.html")).substitute(
        policy=escape(_policy(css, js)),
        version=versions()["demur"],
        title=escape(report.title),
        css=css,
        js=js,
        decision=escape(report.decision),
        evidence=escape(report.evidence),
        figures=markup.figures(report),
        cautions=markup.cautions(report.cautions),
        rule=markup.rule(report),
        point=markup.points(report),
        promises=promised.promises(report),
        explorer=panel.explorer(report, Template(template("explorer.html"))),
        comparison=tables.comparison(report.comparison),
        rows=tables.rows(report),
        glossary=markup.glossary(),
        footer=_footer(report),
        data=page_json(page_data(report)),
    )


@cache
def template(name: str) -> str:
    """Return a file of the templates folder."""
    folder = resources.files("demur.report") / "templates"
    return (folder / name).read_text(encoding="utf-8")


def _policy(css: str, js: str) -> str:
    """Allow our own style and script, told by their hashes, and nothing else at all."""
    return (
        f"default-src 'none'; style-src {_hash(css)}; script-src {_hash(js)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _footer(report: Report) -> str:
    text = f"Made by demur {versions()['demur']}. Asked for: {model_text(report.model)}."
    return escape(text)
