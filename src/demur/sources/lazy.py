"""Counting where the rows are: one lazy expression for each question of `ScoreSource`.

The expressions are narwhals', so the engines share them. Only groups of sums and the marked
rows come back. Nothing of demur has to be installed where the rows are, and a task that its
engine repeats gives the same integers again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from demur._arrays import IntArray
from demur.core.bins import Bins
from demur.core.columns import check_names
from demur.core.rule import Rule
from demur.core.source import Cells, Histogram, Measure, Overview, Rows, Strip, Tally
from demur.errors import InvalidInputError
from demur.sources import expressions as ex
from demur.sources.groups import INFINITE, NOWHERE, StripAxis, histogram_of, tallies_of
from demur.sources.looking import look
from demur.sources.roles import Roles

if TYPE_CHECKING:
    import narwhals.stable.v2 as nw

Table = Mapping[str, npt.NDArray[Any]]

MEMORY = 1 << 31
"""Bytes that may be used here, where results are put together."""


class LazySource(ABC):
    """Rows of a lazy frame; what engines do each in their own way is left to subclasses."""

    def __init__(
        self,
        frame: Any,
        roles: Roles,
        *,
        missing: Literal["error", "drop"] = "error",
        memory: int = MEMORY,
    ) -> None:
        import narwhals.stable.v2 as nw

        self.memory = memory

        self._native = frame
        self._frame = nw.from_native(frame).lazy()
        self._schema = dict(self._frame.collect_schema())
        self._roles = roles
        self._missing = missing
        check_names(list(self._schema), roles.used(), "the frame")
        self._check_types()
        self._scores = tuple(f"s{i}" for i in range(len(roles.scores)))

    @property
    def score_names(self) -> tuple[str, ...]:
        """Names of the score columns."""
        return self._roles.scores

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
        return look(self._roles, self._rows(check=True), self._collect)

    def overview(self) -> Overview:
        """Look at all rows once; refuse rows that cannot be used."""
        return self._overview

    def sample(self, rows: int, *, seed: int) -> Rows:
        """Return about so many rows."""
        share = rows / max(self._overview.rows, 1)
        if share >= 1:
            return self._fetch(self._rows())
        import narwhals.stable.v2 as nw

        return self._fetch(self._rows(nw.from_native(self._thinned(share, seed)).lazy()))

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
        masses = ex.masses(measure, weighted=self._roles.weight is not None)
        rows = self._rows(sets=measure.sets)
        key = ex.cell(bins, self._scores)
        if within is not None:
            rows = rows.with_columns(within=ex.cell(within.bins, self._scores))
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
        groups = counted.filter(nw.col("key") > NOWHERE).group_by("key", "side").agg(*sums)
        return histogram_of(self._collect(groups), bins, measure, axes, self._overview)

    def rows(self, cells: Cells) -> Rows:
        """Return the rows of some cells."""
        rows = self._rows().filter(ex.finite(self._scores))
        rows = rows.with_columns(within=ex.cell(cells.bins, self._scores))
        rows = rows.join(self._marked(cells, "within"), on="within", how="semi")
        return self._fetch(rows.drop("within"))

    def tally(self, rule: Rule, measure: Measure, *, by: str | None = None) -> Mapping[Any, Tally]:
        """Return what `rule` accepts, for each value of the column `by`."""
        import narwhals.stable.v2 as nw

        if by is not None:
            check_names(list(self._schema), [("by", by)], "the frame")
        if len(rule.direction) != len(self._scores):
            raise InvalidInputError(
                f"the rule takes {len(rule.direction)} scores, the source has {len(self._scores)}"
            )
        masses = ex.masses(measure, weighted=self._roles.weight is not None)
        rows = self._rows(sets=measure.sets, by=by)
        value = ex.combined(rule.direction, self._scores)
        within = value <= rule.threshold if rule.tau else value < rule.threshold
        accept = (within & ex.finite(self._scores)).cast(nw.Int64)
        rows = rows.with_columns(accept=accept).with_columns(**masses)
        keys = ["by", "accept", "side"] if by is not None else ["accept", "side"]
        sums = [nw.col(name).sum().cast(nw.Int64) for name in masses]
        return tallies_of(self._collect(rows.group_by(*keys).agg(*sums)), measure)

    def _marked(self, cells: Cells, name: str) -> nw.LazyFrame[Any]:
        """Return the keys of some cells under a name, beside a column "marked"."""
        import narwhals.stable.v2 as nw

        keys = nw.from_native(self._keys(cells.key)).lazy()
        marked: nw.LazyFrame[Any] = keys.select(nw.col("key").alias(name), marked=nw.lit(1))
        return marked

    def _rows(
        self,
        frame: nw.LazyFrame[Any] | None = None,
        *,
        sets: Sequence[str] | None = None,
        by: str | None = None,
        check: bool = False,
    ) -> nw.LazyFrame[Any]:
        """Return the rows under the names s0, s1, side, loss, weight, by."""
        import narwhals.stable.v2 as nw

        roles, schema = self._roles, self._schema
        columns = dict(zip(self._scores, (ex.score(n, roles) for n in roles.scores), strict=True))
        outside = ex.is_ood(roles, schema)
        lost = nw.when(outside).then(nw.lit(0.0)).otherwise(ex.loss(roles, schema))
        columns["loss"] = lost
        if roles.weight is not None:
            columns["weight"] = ex.number(roles.weight, schema)
        needed = list(columns)
        if check:
            columns["label"] = ex.label(roles, schema)
            columns["side"] = ex.side(roles, schema, ())
        else:
            chosen = self._overview.sets if sets is None else sets
            columns["side"] = ex.side(roles, schema, chosen)
        if by is not None:
            columns["by"] = nw.col(by)
        rows = (self._frame if frame is None else frame).select(**columns)
        if self._missing == "drop":
            for name in needed:
                rows = rows.filter(~ex.missing(nw.col(name)))
        return rows

    def _fetch(self, rows: nw.LazyFrame[Any]) -> Rows:
        table = self._collect(rows)
        return Rows(
            # Adding zero turns -0.0 into 0.0.
            np.column_stack([table[name] for name in self._scores]) + 0.0,
            table["side"].astype(np.int64),
            table["loss"].astype(np.float64),
            table["weight"].astype(np.float64) if self._roles.weight is not None else None,
        )

    def _check_types(self) -> None:
        for argument, name in self._roles.numeric():
            kind = self._schema[name]
            if not ex.is_flag(kind):
                raise InvalidInputError(f"{argument}: column {name!r} holds {kind}, not numbers")
