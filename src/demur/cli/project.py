"""`demur.toml`: columns, bounds and paths of a project, which stand for options not given."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import click

from demur.cli.options import PROJECT_FILE
from demur.cli.output import note
from demur.core.columns import guess
from demur.errors import InvalidInputError

"""The file that is looked for in the working directory."""

_LARGEST = 2**20

_LOSSES = (("loss",), ("correct",), ("label", "prediction", "loss_function"))
_MODELS = (
    ("min_tpr", "max_fpr"),
    ("max_risk", "max_fpr"),
    ("min_precision", "min_recall"),
    ("cost_reject_id", "cost_accept_ood", "cost_reject_ood"),
)
_SECTIONS = {
    "columns": (
        "scores",
        "confidence",
        *(name for way in _LOSSES for name in way),
        "ood",
        "weight",
        "group",
        "id",
    ),
    "bounds": (*dict.fromkeys(name for model in _MODELS for name in model), "prior", "bound"),
    "paths": ("data", "fresh", "rule", "deployed", "report", "counts"),
}
_LISTS = ("scores", "confidence")
# Columns whose parameters are called otherwise than their options, not by every command alike.
_RENAMED = ("id", "group")


class ProjectEntry(NamedTuple):
    """One value of the file, and the option or argument it stands for."""

    shown: str
    value: Any


def project_values(command: click.Command, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that a project file has for a command, by the names of its parameters.

    `name` is how the command is called, `given` what the command line says: what that excludes is
    left out.
    """
    path = _find(given.get("project"))
    if path is None:
        return {}
    entries = _for_command(_read(path), command, name, path.parent)
    known = {param.name for param in command.params}
    typed = {name for name, value in given.items() if _is_given(value)}
    used = {
        target: entry
        for target, entry in entries.items()
        if target in known and target not in typed and not _excluded(target, typed)
    }
    if used:
        note(f"from {path}: " + ", ".join(entry.shown for entry in used.values()))
    return {name: entry.value for name, entry in used.items()}


def _is_given(value: Any) -> bool:
    # Click marks what was not given by a value of its own, whose name has changed over time.
    return value is not None and type(value).__name__ not in ("Sentinel", "UNSET")


def _find(named: Any) -> Path | None:
    if _is_given(named):
        path = Path(str(named))
        if not path.is_file():
            raise InvalidInputError(f"--project: there is no file {str(path)!r}")
        return path
    path = Path(PROJECT_FILE)
    return path if path.is_file() else None


def _read(path: Path) -> dict[str, Any]:
    """Return the entries by name, checked."""
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            raise InvalidInputError(f"{str(path)!r} is too large for a project file")
        data = tomllib.loads(content.decode("utf-8"), parse_float=Decimal)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidInputError(f"cannot read {str(path)!r} as TOML: {error}") from None
    found: dict[str, Any] = {}
    for section, entries in data.items():
        _check_known(path, section, tuple(_SECTIONS), "section")
        if not isinstance(entries, dict):
            raise InvalidInputError(f"{str(path)!r}: {section} must be a section [{section}]")
        for key, value in entries.items():
            name = key.replace("-", "_")
            _check_known(path, name, _SECTIONS[section], f"entry in [{section}]", shown=key)
            if name in found:
                raise InvalidInputError(f"{str(path)!r}: {key} is there twice")
            found[name] = _value(path, section, name, value)
    return found


def _check_known(
    path: Path, name: str, known: tuple[str, ...], what: str, *, shown: str | None = None
) -> None:
    if name not in known:
        hint = guess(name, known).strip() or f"known are {', '.join(known)}"
        raise InvalidInputError(f"{str(path)!r}: there is no {what} {shown or name!r}; {hint}")


def _value(path: Path, section: str, name: str, value: Any) -> Any:
    """Return a value as it could have been typed."""
    if name == "bound":
        texts = value if isinstance(value, list) else [value]
        if not all(isinstance(one, str) for one in texts):
            raise InvalidInputError(f"{str(path)!r}: bound must be a list of texts, got {value!r}")
        return texts
    if section == "bounds":
        if isinstance(value, bool) or not isinstance(value, (int, Decimal, str)):
            raise InvalidInputError(f"{str(path)!r}: {name} must be a number, got {value!r}")
        return str(value)
    if name in _LISTS:
        names = value if isinstance(value, list) else [value]
        if not names or not all(isinstance(one, str) for one in names):
            raise InvalidInputError(
                f"{str(path)!r}: {name} must be a list of columns, got {value!r}"
            )
        return names
    if not isinstance(value, str):
        raise InvalidInputError(f"{str(path)!r}: {name} must be text, got {value!r}")
    return value


def _for_command(
    found: Mapping[str, Any], command: click.Command, called: str, folder: Path
) -> dict[str, ProjectEntry]:
    """Return the entries under the names of the command's parameters."""
    judges = called in ("evaluate", "certify", "prior", "apply", "watch")
    entries: dict[str, ProjectEntry] = {}
    for name, value in found.items():
        target = name
        if name in _SECTIONS["paths"]:
            value = str(folder / value)
            target = _path_target(name, called)
        elif name in _RENAMED:
            # In apply --id is the only column to keep, another matter.
            target = "" if called == "apply" else _parameter_of(f"--{name}", command)
        if target == "" or (judges and name in _LISTS):
            continue  # A saved rule names its own scores.
        text = ",".join(value) if isinstance(value, list) else value
        places = {"data": "DATA", "rule": "RULE", "output": "-o"}
        label = places.get(target, f"--{name.replace('_', '-')}")
        entries[target] = ProjectEntry(f"{label} {text}", value)
    return entries


def _parameter_of(option: str, command: click.Command) -> str:
    """Return the name of the parameter that an option sets; empty where there is none."""
    return next((param.name or "" for param in command.params if option in param.opts), "")


def _path_target(name: str, command: str) -> str:
    """Return the parameter that a path stands for; empty where it stands for none."""
    judges = command in ("evaluate", "certify", "prior")
    if name == "data":
        return "data" if command in ("tune", "estimate", "compare", "report") else ""
    if name == "fresh":
        return "data" if judges else ""
    if name == "rule":
        return "output" if command == "tune" else ("rule" if judges else "")
    if name == "counts" and command not in ("tune", "retune"):
        return ""
    if name == "report":
        return {"tune": "report", "report": "output"}.get(command, "")
    return name


def _excluded(name: str, typed: set[str]) -> bool:
    """Return whether what was typed leaves no place for an entry: another loss, another model."""
    if name == "data":
        return "openood" in typed
    for ways in (_LOSSES, _MODELS):
        beside = {other for way in ways if name in way for other in way}
        if beside:
            return bool(typed & ({other for way in ways for other in way} - beside))
    return False
