"""Where rows come from: files, frames and engines, as sources that can be counted.

`open_source` says which columns mean what and picks the engine; `files` finds and reads
tables, `counting` adds up rows in arrays, and each platform is a file in `engines`.
"""

from demur.sources.open import open_source

__all__ = ["open_source"]


def __dir__() -> list[str]:
    return __all__
