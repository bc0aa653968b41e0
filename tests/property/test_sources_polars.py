"""Polars LazyFrames as sources: the answers, and the tuned rule, are those of memory."""

import narwhals.stable.v2 as nw
import numpy as np
import polars as pl
import pytest
from scored_tables import SETS, check_answers, table_of
from streams import DIRECTIONS, check_against_memory, random_model, random_sample

import demur as dm
from demur.sources.polars import PolarsSource
from demur.sources.pushed import PushedSource


class PushedToPolars(PushedSource):
    """Polars in the place of Spark, which is slow to start: the expressions are the same."""

    _collect = PolarsSource._collect
    _thinned = PolarsSource._thinned

    def _keys(self, key):
        return pl.LazyFrame({"key": key})

    def _with_cell(self, rows, name, bins):
        def key(series):
            scores = series.struct.unnest().to_numpy()
            finite = np.isfinite(scores).all(axis=1)
            found = np.zeros(len(scores), np.int64)
            found[finite] = bins.key(scores[finite])
            return pl.Series(found)

        cell = pl.struct(self._scores).map_batches(key, return_dtype=pl.Int64).alias(name)
        return nw.from_native(rows.to_native().with_columns(cell))


@pytest.mark.parametrize("seed", range(15))
@pytest.mark.parametrize("kind", [PolarsSource, PushedToPolars])
def test_answers(kind, seed):
    rng = np.random.default_rng(seed)
    sample = random_sample(rng, scores=1 + seed % 2)
    table, roles = table_of(sample, rng)
    check_answers(kind(pl.from_arrow(table).lazy(), roles), sample, rng)


@pytest.mark.parametrize("seed", range(SETS or 12))
def test_tuning_is_that_of_memory(seed):
    rng = np.random.default_rng(1000 + seed)
    sample = random_sample(rng, scores=1 if seed % 5 == 0 else 2)
    model, directions = random_model(rng, sample), str(rng.choice(DIRECTIONS))
    ood = str(rng.choice(["pooled", "worst"]))
    table, roles = table_of(sample, rng)
    source = PolarsSource(pl.from_arrow(table).lazy(), roles)
    check_against_memory(
        sample,
        lambda: dm.tune(source, model, directions=directions, ood=ood),
        model,
        directions=directions,
        ood=ood,
    )
