"""Versions of demur and of the packages it can use."""

from __future__ import annotations

from demur._kernels.engines import engine_name

PACKAGES = (
    "numpy",
    "scipy",
    "narwhals",
    "click",
    "pyarrow",
    "matplotlib",
    "scikit-learn",
    "torch",
    "onnx",
    "faiss-cpu",
)


def versions() -> dict[str, str]:
    """Return the engine and the versions of what demur uses, without importing the packages."""
    import platform

    return {
        "demur": _version("demur"),
        "engine": engine_name(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        **{name: _version(name) for name in PACKAGES},
    }


def show_versions() -> None:
    """Print what a bug report should contain, first of all the engine in use."""
    table = versions()
    width = max(map(len, table))
    for name, value in table.items():
        print(f"{name:<{width}}  {value}")


def _version(name: str) -> str:
    # Costs more than all of demur to import, so only when asked.
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
