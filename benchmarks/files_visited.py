"""How many files of the package a call runs through: ``python -m benchmarks.files_visited``.

A reader who follows a call has to open every one of them. Counted are functions that run, by the
Python file of the package that defines them; templates, which run as functions too, are not
counted, and neither is what a first call imports.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

import demur as dm
from demur.cli import app

PACKAGE = Path(dm.__file__).parent


class Visits:
    """Functions of the package that ran, as (file, name)."""

    def __init__(self) -> None:
        self.functions: set[tuple[str, str]] = set()

    @property
    def files(self) -> set[str]:
        """The files these functions are in."""
        return {file for file, _ in self.functions}

    def watch(self, call: Callable[[], Any]) -> None:
        """Run a call and note what it visits."""
        sys.setprofile(self._note)
        try:
            call()
        finally:
            sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_name != "<module>":
            path = Path(code.co_filename)
            if path.suffix == ".py" and path.is_relative_to(PACKAGE):
                self.functions.add((str(path.relative_to(PACKAGE)), code.co_qualname))


def visits(call: Callable[[], Any]) -> Visits:
    """Return what a call visits once everything is imported."""
    call()
    found = Visits()
    found.watch(call)
    return found


def tune_two_scores() -> None:
    """Tune on two scores in memory."""
    dm.tune(*TWO_SCORES)


def tune_with_report(folder: Path) -> None:
    """Tune on a small file by the command line, with a page."""
    table = folder / "scores.csv"
    rng = np.random.default_rng(0)
    rows = ["risk,far,loss,kind"]
    for kind, centre in (("id", 0.0), ("ood", 1.5)):
        for risk, far in rng.normal(centre, size=(100, 2)).round(6):
            rows.append(f"{risk},{far},{int(risk > 1)},{kind}")
    table.write_text("\n".join(rows) + "\n")
    options = ["--scores", "risk,far", "--loss", "loss", "--ood", "kind", "--min-tpr", "0.8"]
    outputs = ["--force", "-o", str(folder / "rule.json"), "--report", str(folder / "report.html")]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        app.main(["tune", str(table), *options, *outputs], standalone_mode=False)


def _two_scores() -> tuple[dm.Sample, dm.TprFprModel]:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(200, 2))
    sample = dm.Sample(scores, scores[:, 0] > 1, rng.normal(1.5, size=(100, 2)))
    return sample, dm.TprFprModel(0.8, 0.5)


TWO_SCORES = _two_scores()


def report(title: str, found: Visits, *, named: bool) -> None:
    """Print how many files and functions there were, and which."""
    print(f"{title}: {len(found.files)} files, {len(found.functions)} functions")
    for file in sorted(found.files) if named else ():
        names = sorted(name for place, name in found.functions if place == file)
        print(f"  {file}: {', '.join(names)}")


if __name__ == "__main__":
    verbose = "-v" in sys.argv[1:]
    report("tune of two scores", visits(tune_two_scores), named=verbose)
    with tempfile.TemporaryDirectory() as place:
        both = visits(lambda: tune_with_report(Path(place)))
    report("demur tune --report", both, named=verbose)
