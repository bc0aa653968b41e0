"""How to repeat a tuning: as a command line and as a line of Python, both without the bounds."""

from __future__ import annotations

import shlex

from demur.core.sample import Sample
from demur.report.how import How
from demur.tuning.result import Exact, Grid


def command_line(given: str | None, sample: Sample, how: How) -> str:
    """Return the command up to the bounds; words in capitals are to be filled in."""
    words = [given or _placeholder(sample)]
    if how.ood == "worst":
        words.append("--fpr-of worst")
    if how.directions != "nonneg" or isinstance(how.search, Grid):
        words.append(f"--directions {how.directions}")
    if isinstance(how.search, Grid):
        words.append(f"--grid {how.search.angles}")
    return " ".join(words)


def python_arguments(how: How) -> str:
    """Return the arguments of `demur.tune` behind the model."""
    text = ""
    if how.directions != "nonneg" or isinstance(how.search, Grid):
        text += f', directions="{how.directions}"'
    if isinstance(how.search, (Grid, Exact)):
        text += f", search=dm.{how.search!r}"
    if how.ood == "worst":
        text += ', ood="worst"'
    return text


def _placeholder(sample: Sample) -> str:
    names = ",".join(sample.score_names) if sample.score_names else "A,B"[: 2 * sample.n_scores - 1]
    ood = " --ood OOD" if sample.n_ood else ""
    return f"demur tune DATA --scores {shlex.quote(names)} --loss LOSS{ood}"
