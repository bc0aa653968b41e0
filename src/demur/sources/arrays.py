"""Rows in memory as a source: arrays, samples and data frames."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from demur.core.sample import Sample
from demur.core.source import MEMORY, Rows
from demur.sources.batched import BatchedSource
from demur.sources.counting import take

_BATCH = 1 << 17


class ArraySource(BatchedSource):
    """The rows of a `Sample` as a source, counted in batches.

    Examples
    --------
    >>> from demur import Sample, TprFprModel, tune
    >>> sample = Sample([[0, 1], [1, 0], [2, 2]], [0, 0, 1], [[3, 3]])
    >>> tune(ArraySource(sample), TprFprModel(0.6)).point.selective_risk
    0.0
    """

    def __init__(self, sample: Sample, *, memory: int = MEMORY, batch: int = _BATCH) -> None:
        names = sample.score_names or tuple(f"score_{k}" for k in range(sample.n_scores))
        super().__init__(names, tuple(sample.ood_sets), memory=memory)
        group = np.full(sample.n_ood, 0)
        for k, rows in enumerate(sample.ood_sets.values()):
            group[rows] = k
        weighted = sample.id_weight is not None or sample.ood_weight is not None
        weights = [
            np.ones(n) if weight is None else weight
            for n, weight in ((sample.n_id, sample.id_weight), (sample.n_ood, sample.ood_weight))
        ]
        self._rows = Rows(
            np.asfortranarray(np.vstack([sample.id_scores, sample.ood_scores]) + 0.0),
            np.concatenate([np.full(sample.n_id, -1), group]),
            np.concatenate([sample.id_loss, np.zeros(sample.n_ood)]),
            np.concatenate(weights) if weighted else None,
        )
        self._batch = batch

    def _batches(self, by: str | None = None) -> Iterator[tuple[Rows, Any]]:
        n = len(self._rows.loss)
        for start in range(0, n, self._batch):
            yield take(self._rows, np.arange(start, min(start + self._batch, n))), None
