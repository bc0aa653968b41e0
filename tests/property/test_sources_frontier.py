"""The frontier of a source is that of its rows in memory, and takes few passes."""

from collections import Counter

import numpy as np
import pytest
from scored_tables import SETS
from streams import DIRECTIONS, random_sample

import demur as dm
from demur.sources.engines.frames import ArraySource
from demur.tuning.result import DIRECTION_SETS
from demur.tuning.streamed.frontier import rules_of_source
from demur.tuning.streamed.plan import StreamPlan

MASSES = ("selective_risk", "accepted_id", "accepted_ood", "accepted_loss")


class Passes(ArraySource):
    """Counts the questions it is asked."""

    def __init__(self, sample, **options):
        super().__init__(sample, **options)
        self.asked = Counter()

    def sample(self, rows, *, seed):
        self.asked["sample"] += 1
        return super().sample(rows, seed=seed)

    def histogram(self, *args, **options):
        self.asked["histogram"] += 1
        return super().histogram(*args, **options)

    def rows(self, cells):
        self.asked["rows"] += 1
        return super().rows(cells)


@pytest.mark.parametrize("seed", range(SETS or 12))
def test_every_pair_of_bounds_has_the_rule_of_memory(seed):
    rng = np.random.default_rng(3000 + seed)
    sample = random_sample(rng, scores=1 if seed % 4 == 0 else 2, most=150)
    directions = str(rng.choice(DIRECTIONS)) if sample.n_scores == 2 else "nonneg"
    levels = [np.sort(rng.choice(101, 5, replace=False)) / 100 for _ in range(2)]
    ood = str(rng.choice(["pooled", "pooled", "worst"]))
    here = dm.frontier(sample, min_tpr=levels[0], max_fpr=levels[1], directions=directions, ood=ood)
    # Few bins and a small sample leave much open; a small memory leaves one search per rule.
    fetched = int(rng.choice([60, 200, 10**6]))
    plan = StreamPlan(
        int(rng.choice([5, 50, 200])), int(rng.choice([2, 8, 32])), fetched, boxes=300
    )
    source = ArraySource(sample, batch=int(rng.choice([50, 10**6])))
    try:
        totals, (rules, cells, _) = rules_of_source(
            source,
            *(x.tolist() for x in levels),
            DIRECTION_SETS[directions],
            ood=ood,
            plan=plan,
        )
    except dm.InvalidInputError as error:
        # The only other outcome that is allowed, and only where memory is short.
        assert fetched < 10**6 and "rows would have to be held" in str(error)
        return
    able = cells >= 0
    assert np.array_equal(able, ~np.isnan(here.selective_risk))
    for name, masses, unit in (
        ("accepted_id", rules.id, totals.id_exponent),
        ("accepted_ood", rules.ood, totals.ood_exponent),
        ("accepted_loss", rules.loss, totals.loss_exponent),
    ):
        assert np.array_equal(masses[cells[able]] * 2.0**-unit, getattr(here, name)[able]), name
    for rule in np.unique(cells[able]):
        *direction, threshold = rules.lines[rule].tolist()
        found = dm.evaluate(dm.Rule(tuple(direction), threshold), sample)
        assert found.accepted_id == rules.id[rule] * 2.0**-totals.id_exponent
        assert found.accepted_loss == rules.loss[rule] * 2.0**-totals.loss_exponent


@pytest.mark.parametrize("scores", [1, 2])
def test_one_histogram_and_one_fetch_serve_all_bounds(scores):
    rng = np.random.default_rng(1)
    id_scores, ood_scores = rng.normal(size=(3000, 2)), rng.normal(1.2, 1, size=(3000, 2))
    wrong = rng.random(3000) < 1 / (1 + np.exp(2 - 2 * id_scores[:, 0]))
    sample = dm.Sample(id_scores[:, :scores], wrong, ood_scores[:, :scores])
    source = Passes(sample)
    levels = [i / 20 for i in range(21)]
    there = dm.frontier(source, min_tpr=levels, max_fpr=levels)
    assert source.asked == {"sample": 1, "histogram": 1, "rows": 1}
    here = dm.frontier(sample, min_tpr=levels, max_fpr=levels)
    for name in MASSES:
        np.testing.assert_array_equal(getattr(there, name), getattr(here, name), name)
