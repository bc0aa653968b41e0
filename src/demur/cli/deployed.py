"""Scores of inputs in use, which have no labels."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from demur._arrays import FloatArray
from demur.cli.progress import Progress
from demur.core.columns import check_names, numbers
from demur.errors import InvalidInputError


def read_scores(path: str, names: Sequence[str], confidence: Sequence[str] = ()) -> FloatArray:
    """Return the scores in a file, shape (n, k); confidences become doubts."""
    from demur.sources.files import column_names, read_columns

    check_names(column_names(path), [("--scores", name) for name in names], repr(path))
    with Progress(f"reading {path}"):
        columns = read_columns(path, list(names))
    if len(columns[names[0]]) == 0:
        raise InvalidInputError(f"{path!r} has no rows")
    signs = [-1.0 if name in confidence else 1.0 for name in names]
    return np.column_stack([numbers(columns, "--scores", name) for name in names]) * signs
