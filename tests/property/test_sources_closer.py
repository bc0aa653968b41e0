"""Where much is left open, rows are counted again in thin cells; the answer stays the same."""

import numpy as np
from scored_tables import SETS
from streams import check_against_memory, informative_sample

import demur as dm
from demur.sources.engines.frames import ArraySource
from demur.tuning.result import DIRECTION_SETS
from demur.tuning.streamed import close_up
from demur.tuning.streamed.plan import StreamPlan
from demur.tuning.streamed.tune import tune_source

BENDS = [
    lambda v: v,
    lambda v: np.round(32 * v) / 32,
    lambda v: v * [1e6, 1e-6],
    lambda v: v + np.array([1e4, -300.0]),
    lambda v: np.exp(1.5 * v),
]
MODELS = [
    dm.TprFprModel(0.8, 0.5),
    dm.TprFprModel(0.7, 0.1),
    dm.PrecisionRecallModel(0.8, 0.6, 0.3),
    dm.CostModel(0.3, 1.0, 0.1, 0.3),
]


def bent_sample(rng, seed):
    """Return errors that one score tells and OOD rows that the other tells, bent and turned."""
    n = int(rng.integers(1000, 2000))
    doubt = rng.normal(size=n)
    wrong = rng.random(n) < 1 / (1 + np.exp(2.5 - 2 * doubt))
    id_scores = np.column_stack([doubt + 0.3 * rng.normal(size=n), rng.normal(size=n)])
    ood_scores = rng.normal([0.5, 2.0], 1.0, size=(n, 2))
    loss = wrong * rng.random(n) if seed % 5 == 4 else wrong * 1.0
    weight = rng.integers(0, 4, n) * 1.0 if seed % 4 == 3 else None
    flip = rng.choice([-1.0, 1.0], 2) if seed % 3 == 2 else np.ones(2)
    order = [1, 0] if seed % 2 else [0, 1]
    turn = lambda v: (BENDS[seed % 5](v) * flip)[:, order]  # noqa: E731
    sample = dm.Sample(turn(id_scores), loss, turn(ood_scores), id_weight=weight)
    return sample, "nonneg" if (flip > 0).all() else "circle"


class Watched(ArraySource):
    """Keeps what was asked for."""

    asked = ()

    def histogram(self, bins, measure, *, strips=(), within=None):
        self.asked += ("thin" if bins.weights is not None else "cells",)
        return super().histogram(bins, measure, strips=strips, within=within)

    def rows(self, cells):
        found = super().rows(cells)
        self.asked += (("thin rows" if cells.bins.weights else "rows", len(found.loss)),)
        return found


def test_closer_look():
    thin = sum(compare(seed) for seed in range(SETS or 10))
    # Where the closer look would not help, rows are fetched without it.
    assert thin >= 0.4 * (SETS or 10)


def compare(seed):
    """Assert that a source gives the answer of memory; return whether thin cells gave it."""
    rng = np.random.default_rng(seed)
    sample, directions = bent_sample(rng, seed)
    model = MODELS[int(rng.integers(len(MODELS)))]
    plan = StreamPlan(1000, 32, 10**6, boxes=3000, plenty=0, thin=int(rng.choice([8, 64])))
    source = Watched(sample)

    def there():
        return tune_source(source, model, DIRECTION_SETS[str(directions)], dm.Exact(), plan=plan)

    check_against_memory(sample, there, model, directions=directions, ood="pooled")
    return any(kind == "thin rows" for kind, *_ in source.asked)


def test_fetches_less():
    sample = informative_sample(np.random.default_rng(0), 60_000)
    model, fetched, risk = dm.TprFprModel(0.8, 0.9), [], []
    for plenty, rows in ((None, "rows"), (0, "thin rows")):
        source = Watched(sample)
        plan = StreamPlan(sample=20_000, bins=128, fetched=10**6, plenty=plenty, thin=256)
        tuned = tune_source(source, model, DIRECTION_SETS["nonneg"], dm.Exact(), plan=plan)
        *counted, (kind, number) = source.asked
        assert kind == rows
        assert counted == (["cells"] if plenty is None else ["cells", "thin"])
        fetched.append(number)
        risk.append(tuned.point)
    assert risk == [dm.tune(sample, model).point] * 2
    assert fetched[1] < 0.6 * fetched[0]


def tails(n):
    """Return rows over many decades of which the scores tell little: many directions are good."""
    rng = np.random.default_rng(0)
    ood = rng.random(n) < 0.4
    wrong = (rng.random(n) < 0.15) & ~ood
    doubts = np.column_stack(
        [rng.normal(size=n) + wrong + 0.5 * ood, rng.normal(size=n) + 1.5 * ood]
    )
    scores = np.exp(6 * doubts)
    return dm.Sample(scores[~ood], wrong[~ood] * 1.0, scores[ood])


def test_a_closer_look_that_does_not_pay_ends(monkeypatch):
    """It took many times as long as fetching the rows that it would have spared."""
    looks = []

    class Counted(close_up.ConeSearch):
        def __init__(self, bands, *zones):
            super().__init__(bands, *zones)
            self.rows = int(bands.mass[-1].sum())
            looks.append(self)

    monkeypatch.setattr(close_up, "ConeSearch", Counted)
    sample, model = tails(60_000), dm.TprFprModel(0.7, 0.6)
    source = Watched(sample)
    plan = StreamPlan(sample=20_000, bins=128, fetched=10**6, plenty=0, thin=128)
    tuned = tune_source(source, model, DIRECTION_SETS["nonneg"], dm.Exact(), plan=plan)
    (look,) = looks
    *counted, fetched = source.asked
    assert counted == ["cells", "thin"]
    assert fetched == ("rows", look.rows)
    # What was one too many is counted, and not looked at.
    most = max(close_up.BANDS, close_up.BANDS_A_ROW * look.rows)
    assert most < look.judged < most + 40_000
    assert tuned.point == dm.tune(sample, model).point
    assert tuned.certificate.status == "optimal"
