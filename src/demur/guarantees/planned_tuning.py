"""What tuning with a guarantee would do with more rows, from the rows there are.

A pilot sample stands for the population: rows are drawn from it with a little noise, so that none
is twice the same, and `tune_certified` is run on such draws. A large draw tells the true rates of
every rule found, and of the best rule there is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from demur._arrays import NUMBER, FloatArray, check_kind, seeded, takes
from demur.core.models import RejectionModel
from demur.core.program import Number, refuse_unknown_parts
from demur.core.rates import evaluate
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.errors import InfeasibleError, InvalidInputError
from demur.guarantees.bound_tests import asked_text
from demur.guarantees.certified_tuning import tune_certified
from demur.guarantees.splits import Seed
from demur.tuning.result import Directions, Exact, Grid
from demur.tuning.tune import tune

_POPULATION = 20_000
# A score is rounded if so many values are there twice; others are moved by some ranks.
_TIED, _RANKS = 0.1, 0.15


@dataclass(frozen=True, slots=True)
class TuningPlan:
    """What to expect of tuning with a guarantee on so many rows.

    Examples
    --------
    >>> import demur as dm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> wrong = rng.random(400) < 0.1
    >>> sample = dm.Sample(rng.gamma(1 + 2 * wrong), wrong, rng.normal(4, 1, 200))
    >>> model = dm.TprFprModel(0.6, 0.3)
    >>> (plan,) = dm.guarantees.plan_tuning(sample, model, [(400, 200)], draws=5, rng=0)
    >>> plan.n_id, plan.n_ood, plan.draws, 0 <= plan.found <= 1
    (400, 200, 5, True)
    """

    n_id: int
    n_ood: int
    found: float
    """Share of the draws in which a rule was proven."""
    promised: float
    """Mean bound on the selective risk, or on what the model optimises; NaN if none was proven."""
    above_best: float
    """By how much the true objective was worse than that of the best rule, in the mean."""
    draws: int

    def sentence(self, model: RejectionModel) -> str:
        """Return the plan in words."""
        rows = f"With {self.n_id:,} ID and {self.n_ood:,} OOD rows"
        often = f"in about {10 * self.found:.0f} of 10 cases"
        if self.found < 0.05:
            often = "in less than 1 of 10 cases"
        if not self.found:
            return f"{rows} no rule with {asked_text(model)} was proven in {self.draws} draws."
        what = "cost" if model.cost is not None else str(model.objective).replace("_", " ")
        return (
            f"{rows} a rule with {asked_text(model)} is found {often}, its {what} about "
            f"{self.above_best:.2g} {'below' if _rises(model) else 'above'} the best."
        )


def _rises(model: RejectionModel) -> bool:
    return model.objective in ("tpr", "precision")


@takes(pilot=Sample, model=RejectionModel, sizes=Sequence, max_loss=NUMBER)
def plan_tuning(
    pilot: Sample,
    model: RejectionModel,
    sizes: Sequence[tuple[int, int]],
    *,
    confidence: float = 0.95,
    draws: int = 50,
    max_loss: Number | None = None,
    directions: Directions | None = None,
    search: Exact | Grid | None = None,
    rng: Seed = 0,
) -> tuple[TuningPlan, ...]:
    """Return how often `tune_certified` finds a rule with so many rows, and how good it is.

    An estimate, as good as the pilot sample is: its rows stand for the population.

    Parameters
    ----------
    pilot
        Rows like those that will be collected.
    sizes
        Pairs of numbers of ID and OOD rows.
    draws
        How often to tune for each size.

    Examples
    --------
    >>> from demur import TprFprModel
    >>> rng = np.random.default_rng(0)
    >>> pilot = Sample(rng.normal(size=200), rng.random(200) < 0.1, rng.normal(3, size=200))
    >>> few, many = plan_tuning(pilot, TprFprModel(0.8, 0.1), [(40, 40), (800, 400)], draws=10)
    >>> few.found, many.found
    (0.0, 1.0)
    """
    if not isinstance(draws, int) or isinstance(draws, bool) or draws < 1:
        raise InvalidInputError(f"draws must be a positive whole number, got {draws!r}")
    generator = seeded(rng)
    refuse_unknown_parts(model.bounds, pilot.ood_sets, pilot.groups)
    everyone = _drawn(pilot, _POPULATION, _POPULATION if pilot.n_ood else 0, generator)
    best_rule = tune(everyone, model, directions=directions, search=search).rule
    best = _objective(model, everyone, best_rule)
    plans = []
    for n_id, n_ood in sizes:
        for count in (n_id, n_ood):
            check_kind("sizes", count, int)
        results: list[tuple[float, float]] = []
        for one in generator.spawn(draws):
            rows = _drawn(pilot, n_id, n_ood if pilot.n_ood else 0, one)
            if any(bound.group not in (None, *rows.groups) for bound in model.bounds):
                # Of a group without rows nothing is proven.
                continue
            try:
                found = tune_certified(
                    rows,
                    model,
                    confidence=confidence,
                    max_loss=max_loss,
                    directions=directions,
                    search=search,
                    rng=one,
                )
            except InfeasibleError:
                continue
            results.append((found.objective, _objective(model, everyone, found.rule)))
        promised, true = (math.nan, math.nan) if not results else np.mean(results, axis=0).tolist()
        loss = best - true if _rises(model) else true - best
        plans.append(TuningPlan(n_id, n_ood, len(results) / draws, promised, loss, draws))
    return tuple(plans)


def _objective(model: RejectionModel, everyone: Sample, rule: Rule) -> float:
    point = evaluate(rule, everyone, model=model)
    name = "expected_cost" if model.cost is not None else str(model.objective)
    return float(getattr(point, name))


def _drawn(pilot: Sample, n_id: int, n_ood: int, rng: np.random.Generator) -> Sample:
    """Return rows like those of the pilot sample, none twice the same."""
    own = rng.integers(0, pilot.n_id, n_id)
    known = np.sort(np.concatenate([pilot.id_scores, pilot.ood_scores]), axis=0)
    sets = {}
    for name, rows in pilot.ood_sets.items():
        there = rows.stop - rows.start
        count = round(n_ood * there / pilot.n_ood) if there else 0
        chosen = rng.integers(rows.start, max(rows.stop, 1), count)
        sets[name] = _moved(pilot.ood_scores[chosen], known, rng)
    return Sample(
        _moved(pilot.id_scores[own], known, rng),
        pilot.id_loss[own],
        sets,
        score_names=pilot.score_names,
        confidence=pilot.columns.confidence,
        id_group=None if pilot.id_group is None else pilot.id_group[own],
    )


def _moved(scores: FloatArray, known: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Move scores by some ranks among the known ones, whatever their units; ties stay ties."""
    places = np.arange(len(known))
    moved = scores.copy()
    for column, values in enumerate(known.T):
        if (np.diff(values) == 0).mean() > _TIED or not np.isfinite(values).all():
            continue
        ranks = np.searchsorted(values, scores[:, column])
        moved[:, column] = np.interp(
            ranks + _RANKS * len(known) ** 0.8 * rng.normal(size=len(ranks)), places, values
        )
    return moved
