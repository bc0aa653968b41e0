"""Cells counted where the rows are: one lazy expression for each question of `ScoreSource`.

Only groups of sums and the marked rows come back. Nothing of demur has to be installed where
the rows are, and a task that its engine repeats gives the same integers again.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from demur._arrays import IntArray
from demur.core.bins import Bins
from demur.core.source import Cells, Histogram, Measure, Rows, Strip
from demur.sources import expressions as ex
from demur.sources.groups import INFINITE, NOWHERE, StripAxis, histogram_of
from demur.sources.lazy import LazySource

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw


class PushedSource(LazySource):
    """Rows of a lazy frame whose engine counts cells."""

    @abstractmethod
    def _with_cell(self, rows: nw.LazyFrame[Any], name: str, bins: Bins) -> nw.LazyFrame[Any]:
        """Add `Bins.key` of each row with finite scores; that of others means nothing."""

    @abstractmethod
    def _keys(self, key: IntArray) -> Any:
        """Return a native frame of the engine with the single column "key"."""

    def histogram(
        self,
        bins: Bins,
        measure: Measure,
        *,
        strips: Sequence[Strip] = (),
        within: Cells | None = None,
    ) -> Histogram:
        """Add up the rows by cell and along strips, in a single pass.

        Every row is counted once for its cell and once for every strip: the frame is unpivoted,
        and all the keys of cells and strips are different numbers.
        """
        import narwhals.stable.v2 as nw

        axes = [StripAxis(strip) for strip in strips]
        masses = self._masses(measure)
        rows = self._standard.rows(self._frame, measure.sets)
        rows, kept = self._with_cell(rows, "cell", bins), nw.lit(True)
        if within is not None:
            rows = self._with_cell(rows, "within", within.bins)
            rows = rows.join(self._marked(within, "within"), on="within", how="left")
            kept = ~nw.col("marked").is_null()
        key = nw.when(kept).then(nw.col("cell")).otherwise(nw.lit(NOWHERE))
        finite = ex.finite(self._scores)
        keys = {"cell": nw.when(finite).then(key).otherwise(nw.lit(INFINITE)).cast(nw.Int64)}
        start = bins.cells
        for number, axis in enumerate(axes):
            place = nw.when(kept).then(axis.key(self._scores, start)).otherwise(nw.lit(NOWHERE))
            keys[f"strip{number}"] = place.cast(nw.Int64)
            start += axis.bins
        counted = rows.select("side", **keys, **masses)
        if strips:
            counted = counted.unpivot(
                on=list(keys), index=["side", *masses], variable_name="of", value_name="key"
            )
        else:
            counted = counted.rename({"cell": "key"})
        sums = [nw.col(name).sum().cast(nw.Int64) for name in masses]
        # Rows that do not count make a group of their own: a filter would compute keys twice.
        groups = counted.group_by("key", "side").agg(*sums)
        return histogram_of(self._collect(groups), bins, measure, axes, self._overview)

    def rows(self, cells: Cells) -> Rows:
        """Return the rows of some cells."""
        rows = self._standard.rows(self._frame, self._overview.sets)
        rows = rows.filter(ex.finite(self._scores))
        rows = self._with_cell(rows, "within", cells.bins)
        rows = rows.join(self._marked(cells, "within"), on="within", how="semi")
        return self._standard.fetched(self._collect(rows.drop("within")))

    def _marked(self, cells: Cells, name: str) -> nw.LazyFrame[Any]:
        """Return the keys of some cells under a name, beside a column "marked"."""
        import narwhals.stable.v2 as nw

        keys = nw.from_native(self._keys(cells.key)).lazy()
        marked: nw.LazyFrame[Any] = keys.select(nw.col("key").alias(name), marked=nw.lit(1))
        return marked
