"""Rank metrics of one score on a source: exact on distinct rows, or in one pass with a bound.

Every metric and curve of one score needs only the distinct scores and how many right, wrong and
OOD rows share each. Scores that are stored in 32 bits, or are rounded, have far fewer of these
than there are rows.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from demur._arrays import BoolArray, IntArray, takes
from demur.core.bins import Bins, axis_for
from demur.core.sample import Sample
from demur.core.scores import ScoreColumns
from demur.core.source import Cells, Histogram, Measure, Overview, Rows, ScoreSource
from demur.errors import InvalidInputError

_BINS = 1 << 16
_DRAWN = 200_000
# Bytes that a fetched row and a distinct one take.
_ROW_BYTES = 200


class Within(NamedTuple):
    """A number that is at most `error` away from the one that was asked for."""

    value: float
    error: float


@takes(source=ScoreSource)
def distinct_rows(source: ScoreSource) -> Sample:
    """Return the distinct rows of a source of one score as a weighted sample.

    `auroc`, `summary`, `roc_curve` and all other metrics and curves of one score give on it
    exactly what they would give on all rows. The source is read in pieces of consecutive scores
    that fit into its memory, one pass for each piece.

    Raises
    ------
    InvalidInputError
        There are more distinct rows than the memory of the source allows.

    Examples
    --------
    >>> from demur.metrics import auroc
    >>> from demur.sources.engines.frames import ArraySource
    >>> rows = Sample([0.1, 0.2, 0.2, 0.7], [0, 0, 0, 1], ood_scores=[0.2, 0.9])
    >>> few = distinct_rows(ArraySource(rows))
    >>> few.n_id, auroc(few) == auroc(rows)
    (3, True)
    """
    overview = _overview(source)
    most = max(1000, source.memory // (4 * _ROW_BYTES))
    bins = _bins(source)
    counted = source.histogram(bins, Measure.of(overview, apart=False))
    # A cell of a single score tells all about its rows if they are right, wrong or OOD.
    known = (counted.low == counted.high).all(axis=1) & overview.plain
    parts = [_known(counted, known), _infinite(overview, counted)]
    pieces = _pieces(counted.key[~known], counted.rows[~known], most)
    while sum(len(part.loss) for part in parts) <= most:
        if not pieces:
            return _sample(parts, source.columns)
        parts.append(_merged(source.rows(Cells(bins, pieces.pop()))))
    raise InvalidInputError(
        f"the source has more than {most:,} distinct rows, which is what its memory of "
        f"{source.memory:,} bytes allows: allow more, round the scores, or use auroc_within"
    )


@takes(source=ScoreSource)
def auroc_within(source: ScoreSource, *, bins: int = _BINS) -> Within:
    """Return the AUROC of one score from a single histogram, and how far off it can be.

    Pairs of an ID and an OOD row in different bins are counted exactly; a pair within a bin
    counts one half and is off by at most as much.

    Examples
    --------
    >>> from demur.sources.engines.frames import ArraySource
    >>> rows = Sample([0.1, 0.2, 0.7], [0, 0, 1], ood_scores=[0.2, 0.9])
    >>> auroc_within(ArraySource(rows))
    Within(value=0.75, error=0.0)
    """
    overview = _overview(source)
    counted = source.histogram(_bins(source, bins), Measure.of(overview, apart=False))
    nI, nO = counted.id.astype(float), counted.ood[0].astype(float)
    infinite = float(counted.infinite[0]), float(counted.infinite[2])
    total_id, total_ood = float(nI.sum()) + infinite[0], float(nO.sum()) + infinite[1]
    if total_ood == 0:
        return Within(math.nan, math.nan)
    # Rows with +inf come last, all at the same place.
    nI, nO = np.append(nI, infinite[0]), np.append(nO, infinite[1])
    unsure = np.append((counted.low < counted.high).any(axis=1), False)
    before = np.cumsum(nI) - nI
    value = float(nO @ (before + nI / 2)) / (total_id * total_ood)
    error = float((nO * nI)[unsure].sum()) / (2 * total_id * total_ood)
    return Within(value, error)


def _overview(source: ScoreSource) -> Overview:
    if len(source.score_names) != 1:
        raise InvalidInputError(
            f"source has the scores {source.score_names}: make one with a single score"
        )
    return source.overview()


def _bins(source: ScoreSource, bins: int = _BINS) -> Bins:
    scores = source.sample(_DRAWN, seed=0).scores[:, 0]
    return Bins((axis_for(scores[np.isfinite(scores)] + 0.0, bins, atoms=bins // 4),))


def _pieces(key: IntArray, rows: IntArray, most: int) -> list[IntArray]:
    """Return consecutive cells whose rows fit, of each piece; a larger cell is a piece itself."""
    pieces: list[IntArray] = []
    start, held = 0, 0
    for place, number in enumerate(rows.tolist()):
        if held and held + number > most:
            pieces.append(key[start:place])
            start, held = place, 0
        held += number
    return [*pieces, key[start:]] if held else pieces


def _merged(rows: Rows) -> Rows:
    """Return rows without repetitions, which count in the weight."""
    weight = np.ones(len(rows.loss)) if rows.weight is None else rows.weight
    side = np.minimum(rows.group, 0)
    table = np.column_stack([rows.scores, side, rows.loss])
    distinct, place = np.unique(table, axis=0, return_inverse=True)
    total = np.zeros(len(distinct))
    np.add.at(total, place.ravel(), weight)
    return Rows(distinct[:, :1], distinct[:, 1].astype(np.int64), distinct[:, 2], total)


def _known(counted: Histogram, known: BoolArray) -> Rows:
    """Return the rows of cells with a single score, all of them right, wrong or OOD."""
    scores, wrong = counted.low[known, 0], counted.loss[known]
    return _grouped(scores, counted.id[known] - wrong, wrong, counted.ood[0, known])


def _infinite(overview: Overview, counted: Histogram) -> Rows:
    """Return the rows with an infinite score, of which only the total loss matters."""
    measure = Measure.of(overview, apart=False)
    exponents = (measure.id_exponent, measure.loss_exponent, measure.ood_exponent)
    masses = zip(counted.infinite, exponents, strict=True)
    id_, loss, ood = (math.ldexp(mass, -exponent) for mass, exponent in masses)
    if loss <= id_:
        return _grouped([np.inf], [id_ - loss], [loss], [ood])
    rows = _grouped([np.inf], [id_], [0.0], [ood])
    rows.loss[0] = loss / id_  # The ID row comes first.
    return rows


def _grouped(scores: Any, right: Any, wrong: Any, ood: Any) -> Rows:
    """Return rows right, wrong and OOD of each score, with their numbers as weights."""
    n, weight = len(scores), np.concatenate([right, wrong, ood]).astype(np.float64)
    held = weight > 0
    return Rows(
        np.tile(np.asarray(scores, float), 3)[held, None],
        np.repeat(np.array([-1, -1, 0]), n)[held],
        np.repeat(np.array([0.0, 1.0, 0.0]), n)[held],
        weight[held],
    )


def _sample(parts: list[Rows], columns: ScoreColumns) -> Sample:
    weight = np.concatenate([np.asarray(part.weight) for part in parts])
    held = weight > 0
    scores, group, loss = (
        np.concatenate([getattr(part, name) for part in parts])[held]
        for name in ("scores", "group", "loss")
    )
    is_id, scores = group < 0, columns.as_doubts(scores)
    return Sample(
        id_scores=scores[is_id],
        id_loss=loss[is_id],
        ood_scores=scores[~is_id],
        id_weight=weight[held][is_id],
        ood_weight=weight[held][~is_id],
        score_names=columns.names,
        confidence=columns.confidence,
    )
