"""A rule at work on files: batch by batch, with a count of what it did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np

from demur._arrays import BoolArray, FloatArray
from demur.core.columns import check_names, floats
from demur.core.rule import Rule
from demur.errors import InvalidInputError
from demur.sources.files import column_names, file_format, npz_columns, open_stream, write_npz
from demur.sources.record_batches import (
    batch_numbers,
    decision_schema,
    open_writer,
    with_decision,
)


@dataclass(slots=True)
class Decider:
    """Applies a rule to one file after the other and keeps count."""

    rule: Rule
    names: tuple[str, ...]
    """Columns of the scores."""
    column: str
    """Name of the new column."""
    key: str | None
    """The only column to keep; None keeps all."""
    refuse_missing: bool
    rows: int = 0
    accepted: int = 0
    missing: int = 0

    def kept(self, path: str) -> list[str]:
        """Return the columns of a file that are passed on; refuse a file that lacks one."""
        available = column_names(path)
        check_names(available, [("--scores", name) for name in self.names], repr(path))
        keep = available if self.key is None else [self.key]
        check_names(available, [("--id", name) for name in keep], repr(path))
        if self.column in keep:
            raise InvalidInputError(
                f"{path!r} has a column {self.column!r} already: choose another name with --column"
            )
        return keep

    def apply(self, path: str, file: BinaryIO, kind: str, advance: Callable[[int], None]) -> None:
        """Write the rows of a file with the decisions on them, in the format `kind`.

        `advance` is told of every batch that is done.
        """
        keep = self.kept(path)
        with _naming(path):
            if kind == "NPZ":
                self._apply_npz(path, keep, file)
            else:
                self._apply_stream(path, keep, file, kind, advance)

    def _apply_stream(
        self, path: str, keep: list[str], file: BinaryIO, kind: str, advance: Callable[[int], None]
    ) -> None:
        stream = open_stream(path, list(dict.fromkeys([*keep, *self.names])))
        schema = decision_schema(stream.schema, keep, self.column)
        done = 0
        with open_writer(file, kind, schema) as write:
            for batch in stream.batches:
                scores = np.column_stack(
                    [
                        batch_numbers(batch, name, text=stream.text, first_row=done)
                        for name in self.names
                    ]
                )
                write(with_decision(batch, schema, self._accept(scores, done)))
                done += len(scores)
                advance(len(scores))

    def _apply_npz(self, path: str, keep: list[str], file: BinaryIO) -> None:
        if file_format(path) != "NPZ":
            raise InvalidInputError("only an NPZ file can be written as NPZ")
        columns = npz_columns(path, list(dict.fromkeys([*keep, *self.names])))
        raw = [floats(columns, "--scores", name) for name in self.names]
        accept = self._accept(np.column_stack(raw), 0)
        write_npz(file, {name: columns[name] for name in keep} | {self.column: accept})

    def _accept(self, scores: FloatArray, first_row: int) -> BoolArray:
        """Return the decisions on the next rows; a missing score is refused or rejected."""
        bad = np.isnan(scores) | np.isneginf(scores)
        if bad.any() and self.refuse_missing:
            row, column = (int(i) for i in np.argwhere(bad)[0])
            raise InvalidInputError(
                f"column {self.names[column]!r}, row {first_row + row} is {scores[row, column]}, "
                "not a score; add --missing reject to reject such rows"
            )
        lacking = bad.any(axis=1)
        scores[lacking] = np.inf
        accept = self.rule.accept(scores)
        self.rows += len(scores)
        self.accepted += int(accept.sum())
        self.missing += int(lacking.sum())
        return accept


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """Say in which file the trouble is."""
    try:
        yield
    except InvalidInputError as error:
        if repr(path) in str(error):
            raise
        raise InvalidInputError(f"{path!r}: {error}") from None
