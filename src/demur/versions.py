"""Versions of demur and of the packages it can use."""

from __future__ import annotations

import platform
from importlib import metadata

PACKAGES = ("numpy", "scipy", "narwhals", "click", "matplotlib")


def versions() -> dict[str, str]:
    """Return the versions of demur, Python and the packages demur uses, without importing them."""
    found = {"demur": _version("demur"), "python": platform.python_version()}
    return found | {name: _version(name) for name in PACKAGES}


def show_versions() -> None:
    """Print what a bug report should contain."""
    table = versions() | {"platform": platform.platform()}
    width = max(map(len, table))
    for name, value in table.items():
        print(f"{name:<{width}}  {value}")


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
