"""Two methods on the same rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from demur._arguments import takes
from demur.core.models import RejectionModel
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.guarantees.intervals import miss
from demur.guarantees.resampling.bootstrap import ResampledRate, student_interval
from demur.guarantees.resampling.rates import measures
from demur.guarantees.resampling.replicates import Progress, Retuning, replicate, values
from demur.guarantees.splits import Seed
from demur.tuning.directions import Directions
from demur.tuning.result import Exact, Grid, Tuning
from demur.tuning.tune import tune


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """The first method's rates minus the second's, at the same bounds."""

    first: Tuning
    second: Tuning
    differences: Mapping[str, ResampledRate]
    """By name, as in `Bootstrap.measures`; ``interval`` is for the true difference."""
    confidence: float
    replicates: int
    unable: int
    """Replicates in which one of the two met no rule: its tuned rule stayed."""


@takes(first=Sample, second=Sample, model=RejectionModel)
def compare(
    first: Sample,
    second: Sample,
    model: RejectionModel,
    *,
    replicates: int = 1000,
    confidence: float = 0.95,
    directions: Directions | None = None,
    search: Exact | Grid | None = None,
    rng: Seed = 0,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compare two methods, each tuned under `model`, on the same rows in the same order.

    The bootstrap of `bootstrap`, with the same rows drawn for both: what the methods share,
    easy and hard inputs, cancels in the difference. Differences are compared as multiples of
    their standard errors, from the rows on which the methods differ and one row more.

    Parameters
    ----------
    first, second
        Scores (one or two) and losses of either method; row i is the same input in both.

    Examples
    --------
    >>> from demur import TprFprModel
    >>> rng = np.random.default_rng(0)
    >>> risk, far = rng.random(300), rng.random(300)
    >>> wrong, ood = rng.random(300) < risk / 2, rng.random((300, 2)) + [0, 0.7]
    >>> one = Sample(far, wrong, ood_scores=ood[:, 1])
    >>> two = Sample(np.column_stack([risk, far]), wrong, ood_scores=ood)
    >>> found = compare(one, two, TprFprModel(0.5, 0.2), replicates=20, search=Grid(45))
    >>> found.differences["selective_risk"].interval.low > 0
    True
    """
    _check_same_rows(first, second)
    tail = miss(confidence) / 2
    tuned = [tune(s, model, directions=directions, search=search) for s in (first, second)]
    found = replicate(
        [(first, tuned[0].rule), (second, tuned[1].rule)],
        Retuning(model, directions, search),
        with_errors=True,
        replicates=replicates,
        rng=rng,
        workers=workers,
        progress=progress,
    )
    names = measures(model)
    apparent = np.array(values(tuned[0].point, names)) - values(tuned[1].point, names)
    differences = found.rates[:, 0] - found.rates[:, 1]

    def measure(i: int) -> ResampledRate:
        in_bag, on_sample, out_of_bag = differences[..., i].T
        interval = student_interval(
            float(apparent[i]), float(found.error[i]), in_bag, on_sample, found.errors[:, i], tail
        )
        return ResampledRate(float(apparent[i]), interval, in_bag, on_sample, out_of_bag)

    return Comparison(
        first=tuned[0],
        second=tuned[1],
        differences={name: measure(i) for i, name in enumerate(names)},
        confidence=confidence,
        replicates=replicates,
        unable=int(found.unable.sum()),
    )


def _check_same_rows(first: Sample, second: Sample) -> None:
    sizes = [
        (s.n_id, {name: rows.stop - rows.start for name, rows in s.ood_sets.items()})
        for s in (first, second)
    ]
    if sizes[0] != sizes[1]:
        raise InvalidInputError(
            f"first and second must have the same rows, got {first} and {second}"
        )
    for name in ("id_weight", "ood_weight"):
        one, two = getattr(first, name), getattr(second, name)
        if (one is None) != (two is None) or (one is not None and not np.array_equal(one, two)):
            raise InvalidInputError(f"first and second must have the same {name}")
