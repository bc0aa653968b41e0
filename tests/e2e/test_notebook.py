"""The notebook of the site runs, and prints what it has stored."""

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

from demur import Rule, TprFprModel, tune
from demur.reproduce import demo

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "demo.ipynb"
NUMBER = re.compile(r"\d+\.\d+(?:e[+-]?\d+)?")


@pytest.fixture(scope="module")
def nbformat():
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    return pytest.importorskip("nbformat")


def shown(notebook):
    """Return what each cell of code shows: text, or the kind of what is drawn."""
    return [
        [
            output.get("text") or (output["data"]["text/plain"], sorted(output["data"]))
            for output in cell["outputs"]
        ]
        for cell in notebook.cells
        if cell["cell_type"] == "code"
    ]


def test_the_notebook_prints_what_it_has_stored(nbformat, capfd):
    stored = nbformat.read(NOTEBOOK, as_version=4)
    run = runpy.run_path(str(ROOT / "tools" / "notebook.py"))["executed"](NOTEBOOK)
    capfd.readouterr()  # the kernel's own remarks
    nbformat.validate(run)
    texts = [str(shown(one)) for one in (stored, run)]
    # Another library of linear algebra trains the network differently in the last digits.
    assert NUMBER.sub("", texts[0]) == NUMBER.sub("", texts[1])
    numbers = [np.array(NUMBER.findall(text), float) for text in texts]
    np.testing.assert_allclose(numbers[0], numbers[1], rtol=1e-6)
    assert len(numbers[0]) > 20 and "image/png" in texts[1]


def test_the_notebook_is_the_demo(nbformat):
    stored = str(shown(nbformat.read(NOTEBOOK, as_version=4)))
    found = demo.run()
    tuned = tune(found.tune.sample(demo.REPORTED), TprFprModel(0.8, 0.2))
    assert str(tuned) in stored
    for outcome in found.outcomes[:3]:
        if outcome.method in (("msp",), ("knn",)):
            assert f"{outcome.method[0]} {outcome.held_out}" in stored
    assert isinstance(tuned.rule, Rule) and tuned.rule.to_sql(dialect="duckdb") in stored


def test_the_notebook_is_small_and_says_nothing_of_where_it_ran():
    text = NOTEBOOK.read_text(encoding="utf-8")
    assert len(text) < 200_000
    assert not re.search(r"/(home|root|tmp|work)/", text) and '"execution":' not in text
