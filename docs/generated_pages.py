"""Pages that the site makes from the package itself: the API reference and the live report."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path

ROOMS = {
    "demur": "Samples, models, tuning, rules",
    "demur.metrics": "Metrics and curves",
    "demur.guarantees": "Promises, intervals, comparisons, planning",
    "demur.detectors": "Scores from logits and features",
    "demur.learn": "More than two scores",
    "demur.watch": "A rule in use",
    "demur.losses": "Losses",
    "demur.plots": "Pictures",
    "demur.population": "Known distributions",
    "demur.adapters.sklearn": "scikit-learn",
    "demur.adapters.torch": "PyTorch",
    "demur.adapters.openood": "OpenOOD score files",
    "demur.adapters.llm": "Logs of language models",
    "demur.errors": "Errors and warnings",
}
"""Public modules and what they are about, in the order of the reference."""


def names(room: str) -> list[str]:
    """Return the public names that have their page in a room: the first that shows them."""
    module = importlib.import_module(room)
    # A second name of a class has no page of its own.
    shown = [name for name in module.__all__ if _own_name(getattr(module, name), name) == name]
    if room == "demur":
        return list(shown)
    at_top = set(importlib.import_module("demur").__all__)
    return [name for name in shown if room != "demur.errors" or name not in at_top]


def _own_name(value: object, name: str) -> str:
    return value.__name__ if inspect.isclass(value) else name


def pages() -> dict[str, list[str]]:
    """Return the full names of each room."""
    return {room: [f"{room}.{name}" for name in names(room)] for room in ROOMS}


def file_names() -> dict[str, str]:
    """Return file names of functions that differ from a class by upper case only.

    Many file systems could not hold both.
    """
    every = [name for found in pages().values() for name in found]
    lower = [name.lower() for name in every]
    return {name: f"{name}-function" for name in every if name.islower() and lower.count(name) > 1}


def write(docs: Path) -> None:
    """Write the API reference and the report that a page shows."""
    folder = docs / "api"
    folder.mkdir(exist_ok=True)
    every = {name for found in pages().values() for name in found}
    known = {f"{file_names().get(name, name)}.rst" for name in every}
    for left_over in (folder / "names").glob("*.rst"):
        # Of a name that has gone.
        if left_over.name not in known:
            left_over.unlink()
    for room, found in pages().items():
        _write_if_new(folder / f"{room}.rst", _room_page(room, found))
    _write_if_new(folder / "index.rst", _index())
    extra = docs / "_generated"
    extra.mkdir(exist_ok=True)
    live_report(extra / "demo-report.html")


def _room_page(room: str, found: list[str]) -> str:
    title = f"{room}: {ROOMS[room]}"
    about = inspect.getdoc(importlib.import_module(room)) or ""
    kinds: dict[str, list[str]] = {"Functions": [], "Classes": [], "Values": []}
    module = importlib.import_module(room)
    for name in found:
        value = getattr(module, name.rsplit(".", 1)[1])
        kind = "Classes" if inspect.isclass(value) else "Values"
        kinds["Functions" if inspect.isroutine(value) else kind].append(name)
    text = f"{title}\n{'=' * len(title)}\n\n{about}\n"
    for kind, members in kinds.items():
        if members:
            listed = "".join(f"   ~{name}\n" for name in members)
            text += f"\n{kind}\n{'-' * len(kind)}\n\n"
            text += f".. autosummary::\n   :toctree: names\n   :nosignatures:\n\n{listed}"
    return text


def _index() -> str:
    listed = "".join(f"   {room}\n" for room in ROOMS)
    about = "".join(f"- :doc:`{room}`: {title}\n" for room, title in ROOMS.items())
    return (
        "API reference\n=============\n\n"
        "Every public name has a page, with an example that the tests run. "
        "``import demur as dm`` is all one needs: rooms such as ``dm.metrics`` are loaded when "
        f"they are first used.\n\n{about}\n.. toctree::\n   :hidden:\n\n{listed}"
    )


def live_report(path: Path) -> None:
    """Write the report of the demo."""
    from demur.reproduce import demo

    if not path.exists():
        demo.write(demo.run(), path.parent)
        for name in ("tune.csv", "test.csv", "rule.json"):
            (path.parent / name).unlink()
        (path.parent / "report.html").rename(path)


def _write_if_new(path: Path, text: str) -> None:
    # Sphinx reads again what has changed by date.
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
