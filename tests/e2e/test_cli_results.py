"""One description of a result, in every form it is shown in."""

import json
import math

import click
import pytest

from demur.cli.printing import (
    FORMATS,
    Cell,
    Heading,
    Result,
    ResultTable,
    RowGroup,
    Section,
)

TABLE = ResultTable(
    [Heading("score"), Heading("risk", "lower"), Heading("AUROC", "higher")],
    [
        RowGroup("first", [[Cell("a_b"), Cell("0.1", best=True), Cell("0.7")]]),
        RowGroup("second", [[Cell("c|d"), Cell("0.20"), Cell("0.8", best=True)]]),
    ],
)
RESULT = Result(
    [Section(["A fact."], table=TABLE, notes=["A note.", "Another."]), Section(["The end."])],
    {"value": math.nan, "pair": (1, 2)},
)
SHOWN = {
    "text": """A fact.

score  risk   AUROC
--------------------
first
a_b     0.1*    0.7

second
c|d    0.20     0.8*

A note.
Another.

The end.""",
    "markdown": """A fact.

**first**

| score | ↓ risk | ↑ AUROC |
|---|---:|---:|
| a_b | **0.1** | 0.7 |

**second**

| score | ↓ risk | ↑ AUROC |
|---|---:|---:|
| c\\|d | 0.20 | **0.8** |

A note.
Another.

The end.""",
    "latex": """% A fact.
% needs \\usepackage{booktabs}
\\begin{tabular}{lrr}
\\toprule
score & $\\downarrow$ risk & $\\uparrow$ AUROC \\\\
\\midrule
\\multicolumn{3}{l}{first} \\\\
a\\_b & \\textbf{0.1} & 0.7 \\\\
\\midrule
\\multicolumn{3}{l}{second} \\\\
c|d & 0.20 & \\textbf{0.8} \\\\
\\bottomrule
\\end{tabular}
% A note.
% Another.

% The end.""",
}


@pytest.mark.parametrize("kind", FORMATS)
def test_facts_tables_and_notes(kind):
    assert click.unstyle(RESULT.render(kind)) == SHOWN[kind]


def test_json_has_no_nan():
    assert json.loads(RESULT.render("json")) == {"value": None, "pair": [1, 2]}
