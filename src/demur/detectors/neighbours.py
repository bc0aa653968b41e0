"""Exact nearest neighbours among unit vectors, in blocks of bounded memory."""

from __future__ import annotations

import importlib
import importlib.util
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from demur._arrays import FloatArray, IntArray
from demur.detectors import arrays
from demur.detectors.activations import Activations, check_activations, fitted
from demur.detectors.arrays import finite_matrix
from demur.errors import InvalidInputError

_BLOCK = 2**23  # entries of a temporary matrix
_FAISS_ROWS = 1_000_000  # below this the blocked product is faster than a flat faiss index
_FAISS_SPARE = 64


@dataclass(slots=True, eq=False)
class _Bank:
    """Unit rows to search among; what is derived from them for speed is derived once."""

    rows: FloatArray
    single: npt.NDArray[np.float32]
    half_norm: npt.NDArray[np.float32]
    _faiss: Any = None

    @classmethod
    def of(cls, rows: FloatArray) -> Self:
        half_norm = np.where(rows.any(axis=1), 0.5, 0.0).astype(np.float32)
        return cls(rows, rows.astype(np.float32), half_norm)

    def faiss_index(self) -> Any:
        """Return the flat faiss index over the rows, which is built when it is first needed."""
        if self._faiss is None:
            index = importlib.import_module("faiss").IndexFlatL2(self.rows.shape[1])
            index.add(self.single)
            self._faiss = index
        return self._faiss

    def __getstate__(self) -> FloatArray:
        return self.rows

    def __setstate__(self, rows: FloatArray) -> None:
        # An index belongs to its process: it is built anew, like all that follows from the rows.
        fresh = type(self).of(rows)
        self.rows, self.single, self.half_norm = fresh.rows, fresh.single, fresh.half_norm
        self._faiss = None


@dataclass(frozen=True, slots=True)
class Knn:
    """Distance to the k-th nearest training feature, both scaled to unit length.

    The distance is Euclidean, not squared: for one score that makes no difference, for a pair
    of scores it does. A zero feature stays zero, so it is at distance 1 from every other one.

    Parameters
    ----------
    k
        Which neighbour. Fit on training features computed with the transforms of test time.

    Examples
    --------
    >>> bank = Activations(features=[[1.0, 0.0], [0.0, 2.0]])
    >>> Knn(k=1).fit(bank).score(Activations(features=[[3.0, 0.0], [1.0, 1.0]])).round(4)
    array([0.    , 0.7654])
    """

    k: int = 50
    _state: _Bank | None = field(default=None, repr=False, compare=False, kw_only=True)

    def __post_init__(self) -> None:
        arrays.whole("k", self.k, least=1)

    def fit(self, train: Activations) -> Self:
        """Keep the training features as the bank."""
        check_activations("train", train)
        rows = unit_rows(train.part("features"))
        if self.k > len(rows):
            raise InvalidInputError(
                f"k={self.k} neighbours are asked for, but the bank has {len(rows)} rows"
            )
        return replace(self, _state=_Bank.of(rows))

    def score(self, activations: Activations) -> FloatArray:
        """Return the distance of each row to its k-th neighbour in the bank."""
        bank = fitted(self, self._state)
        queries = finite_matrix(
            "features", activations.part("features"), columns=bank.rows.shape[1]
        )
        return kth_distance(unit_rows(queries), bank, self.k)


def unit_rows(features: FloatArray) -> FloatArray:
    """Return the rows scaled to length one; zero rows stay zero."""
    # Dividing by the largest entry first keeps the squares from overflowing or vanishing.
    largest = np.abs(features).max(axis=1, keepdims=True)
    scaled = features / np.where(largest > 0, largest, 1.0)
    length = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
    return np.asarray(scaled / np.where(length > 0, length, 1.0))


def kth_distance(queries: FloatArray, bank: _Bank, k: int) -> FloatArray:
    """Return the Euclidean distance of each unit row to the k-th nearest row of the bank."""
    if len(bank.rows) > _FAISS_ROWS and importlib.util.find_spec("faiss") is not None:
        return _faiss_kth(queries, bank, k)
    result = np.empty(len(queries))
    step = max(1, _BLOCK // len(bank.rows))
    for start in range(0, len(queries), step):
        block = queries[start : start + step]
        result[start : start + step] = _block_kth(block, bank, k)
    return result


def _block_kth(queries: FloatArray, bank: _Bank, k: int) -> FloatArray:
    """Rank in float32, then settle every rank that rounding could have changed in float64."""
    keys = queries.astype(np.float32) @ bank.single.T
    np.subtract(bank.half_norm, keys, out=keys)  # half the squared distance, up to a constant
    smallest = np.partition(keys, k - 1, axis=1)[:, :k]
    kth = smallest[:, -1:]
    # Twice the rounding error of a float32 inner product of d terms between unit vectors: rows
    # farther than this from the k-th key are on the right side of it for certain.
    band = np.float32(2.2 * (queries.shape[1] + 8) * 2.0**-24)
    surely_nearer = np.count_nonzero(smallest < kth - band, axis=1)
    rows, columns = np.divmod(np.flatnonzero(keys <= kth + band), keys.shape[1])
    open_rank = keys[rows, columns] >= kth[rows, 0] - band
    rows, columns = rows[open_rank], columns[open_rank]
    squares = _squared_distances(queries, bank.rows, rows, columns)
    order = np.lexsort((squares, rows))
    first = np.searchsorted(rows, np.arange(len(queries)))
    wanted = first + (k - 1) - surely_nearer
    return np.asarray(np.sqrt(squares[order][wanted]))


def _squared_distances(
    queries: FloatArray, bank: FloatArray, rows: IntArray, columns: IntArray
) -> FloatArray:
    """Return squared distances of pairs, from differences: no cancellation, never negative."""
    squares = np.empty(len(rows))
    step = max(1, _BLOCK // bank.shape[1])
    for start in range(0, len(rows), step):
        pairs = slice(start, start + step)
        difference = queries[rows[pairs]] - bank[columns[pairs]]
        squares[pairs] = np.einsum("ij,ij->i", difference, difference)
    return squares


def _faiss_kth(queries: FloatArray, bank: _Bank, k: int) -> FloatArray:
    """Let faiss shortlist in float32 and measure the shortlist in float64."""
    count = min(k + _FAISS_SPARE, len(bank.rows))
    _, columns = bank.faiss_index().search(queries.astype(np.float32), count)
    rows = np.repeat(np.arange(len(queries)), count)
    squares = _squared_distances(queries, bank.rows, rows, columns.ravel())
    return np.asarray(np.sqrt(np.sort(squares.reshape(-1, count), axis=1)[:, k - 1]))
