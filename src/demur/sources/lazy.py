"""Counting where the rows are: one lazy expression for each question of `ScoreSource`.

The expressions are narwhals', so the engines share them. Only groups of sums and the marked
rows come back. Nothing of demur has to be installed where the rows are, and a task that its
engine repeats gives the same integers again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from demur._arrays import IntArray
from demur.core.bins import Bins
from demur.core.rule import Rule
from demur.core.source import MEMORY, Cells, Histogram, Measure, Overview, Rows, Strip, Tally
from demur.errors import InvalidInputError
from demur.sources import expressions as ex
from demur.sources.groups import INFINITE, NOWHERE, StripAxis, histogram_of, tallies_of
from demur.sources.looking import grouped, overview_of
from demur.sources.roles import Roles
from demur.sources.standard import Missing, Standard, Table

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw


class LazySource(ABC):
    """Rows of a lazy frame; what engines do each in their own way is left to subclasses."""

    def __init__(
        self,
        frame: Any,
        roles: Roles,
        *,
        missing: Missing = "error",
        memory: int = MEMORY,
    ) -> None:
        import narwhals.stable.v2 as nw

        self._native, self._memory = frame, memory
        self._frame = nw.from_native(frame).lazy()
        self._standard = Standard.of(self._frame, roles, missing)
        self._scores = self._standard.scores

    @property
    def score_names(self) -> tuple[str, ...]:
        """Names of the score columns."""
        return self._standard.roles.scores

    @property
    def memory(self) -> int:
        """Bytes that a search may use here."""
        return self._memory

    @abstractmethod
    def _collect(self, frame: nw.LazyFrame[Any]) -> Table:
        """Bring a small result here, as columns."""

    @abstractmethod
    def _thinned(self, share: float, seed: int) -> Any:
        """Return the native frame with about this share of its rows."""

    @abstractmethod
    def _keys(self, key: IntArray) -> Any:
        """Return a native frame of the engine with the single column "key"."""

    @cached_property
    def _overview(self) -> Overview:
        rows = self._standard.rows(self._frame, labels=True)
        groups = grouped(rows, self._standard.roles)
        return overview_of(self._standard.roles, self._collect(groups))

    def overview(self) -> Overview:
        """Look at all rows once; refuse rows that cannot be used."""
        return self._overview

    def sample(self, rows: int, *, seed: int) -> Rows:
        """Return about so many rows."""
        import narwhals.stable.v2 as nw

        share = rows / max(self._overview.rows, 1)
        thinned = self._native if share >= 1 else self._thinned(share, seed)
        drawn = self._standard.rows(nw.from_native(thinned).lazy(), self._overview.sets)
        return self._standard.fetched(self._collect(drawn))

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
        rows, key = self._with_cell(rows, "cell", bins), nw.col("cell")
        if within is not None:
            rows = self._with_cell(rows, "within", within.bins)
            rows = rows.join(self._marked(within, "within"), on="within", how="left")
            key = nw.when(nw.col("marked").is_null()).then(nw.lit(NOWHERE)).otherwise(key)
        finite = ex.finite(self._scores)
        keys = {"cell": nw.when(finite).then(key).otherwise(nw.lit(INFINITE)).cast(nw.Int64)}
        start = bins.cells
        for number, axis in enumerate(axes):
            keys[f"strip{number}"] = axis.key(self._scores, start)
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

    def tally(self, rule: Rule, measure: Measure, *, by: str | None = None) -> Mapping[Any, Tally]:
        """Return what `rule` accepts, for each value of the column `by`."""
        import narwhals.stable.v2 as nw

        if len(rule.direction) != len(self._scores):
            raise InvalidInputError(
                f"the rule takes {len(rule.direction)} scores, the source has {len(self._scores)}"
            )
        masses = self._masses(measure)
        rows = self._standard.rows(self._frame, measure.sets, by=by)
        value = ex.combined(rule.direction, self._scores)
        within = value <= rule.threshold if rule.tau else value < rule.threshold
        accept = (within & ex.finite(self._scores)).cast(nw.Int64)
        rows = rows.with_columns(accept=accept).with_columns(**masses)
        keys = ["by", "accept", "side"] if by is not None else ["accept", "side"]
        sums = [nw.col(name).sum().cast(nw.Int64) for name in masses]
        return tallies_of(self._collect(rows.group_by(*keys).agg(*sums)), measure)

    def _with_cell(self, rows: nw.LazyFrame[Any], name: str, bins: Bins) -> nw.LazyFrame[Any]:
        """Add the key of each row with finite scores; that of others means nothing."""
        return rows.with_columns(**{name: ex.cell(bins, self._scores)})

    def _masses(self, measure: Measure) -> dict[str, ex.Expr]:
        return ex.masses(measure, weighted=self._standard.roles.weight is not None)

    def _marked(self, cells: Cells, name: str) -> nw.LazyFrame[Any]:
        """Return the keys of some cells under a name, beside a column "marked"."""
        import narwhals.stable.v2 as nw

        keys = nw.from_native(self._keys(cells.key)).lazy()
        marked: nw.LazyFrame[Any] = keys.select(nw.col("key").alias(name), marked=nw.lit(1))
        return marked
