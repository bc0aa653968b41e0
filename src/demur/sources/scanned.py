"""Rows that an engine of this process scans and hands over in batches, to be counted here.

Adding up in arrays takes less time and memory than the hash tables of the engines.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np

from demur.core.bins import Bins
from demur.core.source import Cells, Histogram, Measure, Rows, Strip
from demur.sources.batched import joined_rows
from demur.sources.counting import CellFinder, Counter, take
from demur.sources.lazy import LazySource


class ScannedSource(LazySource):
    """Rows of a lazy frame whose engine counts groups, but not cells."""

    @abstractmethod
    def _batches(self) -> Iterator[Rows]:
        """Go through all rows."""

    def histogram(
        self,
        bins: Bins,
        measure: Measure,
        *,
        strips: Sequence[Strip] = (),
        within: Cells | None = None,
    ) -> Histogram:
        """Add up the rows by cell and along strips."""
        counter = Counter(bins, measure, strips=strips, within=within)
        for rows in self._batches():
            counter.add(rows)
        return counter.result()

    def rows(self, cells: Cells) -> Rows:
        """Return the rows of some cells."""
        finder, parts = CellFinder(cells), []
        for rows in self._batches():
            if len(rows.loss) and rows.scores.max() == np.inf:
                rows = take(rows, np.flatnonzero(np.isfinite(rows.scores).all(axis=1)))
            parts.append(take(rows, finder.rows(rows.scores)))
        return joined_rows(parts, len(self.score_names))
