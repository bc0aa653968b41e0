"""Tuning with a guarantee: learn candidate rules on one part, test them on the other.

Where rules are half-planes, a model bounds the TPR and asks for the least selective risk, and the
scores have no ties, thresholds are tolerance limits of the test rows: see
`demur.guarantees.candidates`. Which way is taken is decided by the model and the learning rows,
never by the test rows. The other way is the path of this module.

Why the path holds. Condition on the learning rows and on the split: the candidates
c_1, ..., c_K, their order and all levels are then fixed, and the test rows are independent
draws of the population. Split delta into two parts.

*Bounds.* Candidate c_k is false if the population breaks one of the model's bounds under it.
Its test claims all bounds and does so for a false candidate with probability at most the first
part (`demur.guarantees.bound_tests`). Candidates are tested in order and testing stops at the
first failure. A false candidate can only be claimed if the first false one is, which is one fixed
candidate: the probability is at most that part of delta, however many candidates there are.

*Objective and selective risk.* Given how many ID test rows c_k accepts, their losses are
independent draws with mean equal to its selective risk; the upper bound at 1/K of the second part
fails with at most that probability. By the union bound all K bounds hold, so the claimed candidate
with the best one may be chosen after the fact. Other objectives are bounded alike.

All of it holds with probability at least 1 - delta. Nothing was assumed of the scores, of nested
acceptance, or of how candidates are learned; that only decides how good they are.

What more rows would do is planned from the rows there are (`plan_tuning`): a pilot sample stands
for the population. Rows are drawn from it with a little noise, so that none is twice the same, and
`tune_certified` is run on such draws; a large draw tells the true rates of every rule found, and of
the best rule there is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from demur._arrays import NUMBER, FloatArray, check_kind, seeded, takes
from demur.core.card import Card
from demur.core.models import RejectionModel
from demur.core.program import Number, refuse_unknown_parts
from demur.core.rates import OperatingPoint, evaluate
from demur.core.row_draws import bring
from demur.core.rule import Rule
from demur.core.sample import Sample, warn_of_mistakes
from demur.core.source import ScoreSource
from demur.core.wording import bound_text, formula, objective_key, objective_name
from demur.errors import InfeasibleError, InvalidInputError
from demur.guarantees.bound_tests import Requirement, SplitSizes, asked_text, refuse_unprovable
from demur.guarantees.candidates import (
    Candidate,
    Tester,
    best_promised,
    learn_directions,
    least_smoothed,
    takes_tolerance_limits,
)
from demur.guarantees.certified_rule import OOD_CAVEAT, certify
from demur.guarantees.intervals import declared_losses, miss, refuse_weights
from demur.guarantees.learned_rules import Learner
from demur.guarantees.planning import enlarged, shortage
from demur.guarantees.splits import (
    EVERY_ID_ONCE,
    Groups,
    Seed,
    on_both_sides,
    one_of_each,
    refuse_repeated,
    sorted_rows,
    split,
)
from demur.tuning.result import Directions, Exact, Grid, Shape
from demur.tuning.tune import check_shape, tune, warn_of_grid

LEARN_SHARE = 0.2
"""Share of the rows to learn on: testing needs more rows than choosing a line."""
_COST_LEARN_SHARE = 0.3
_MOST_LEARNED = 20_000
"""Rows of a side from which on learning more of them gains nothing to speak of."""

_MANY = 16
"""Times the test rows, to see which rule would have a margin."""
_PATH_MARGINS = tuple(6 - step / 4 for step in range(29))
_BOUNDS_PART = 0.8
"""Of delta, for the bounds of the path; the rest is for the objective."""


@dataclass(frozen=True, slots=True, repr=False)
class CertifiedTuning:
    """A rule with promises that hold together with probability at least `confidence`.

    The population meets every bound of `model`, and the selective risk (and the expected cost)
    is at most as stated.

    Examples
    --------
    >>> import demur as dm
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> wrong = rng.random(400) < 0.1
    >>> sample = dm.Sample(rng.gamma(1 + 2 * wrong), wrong, rng.normal(4, 1, 200))
    >>> found = dm.guarantees.tune_certified(sample, dm.TprFprModel(0.6, 0.3), rng=0)
    >>> found.confidence, found.rule is not None
    (0.95, True)
    """

    rule: Rule
    model: RejectionModel
    confidence: float
    selective_risk: float
    """Certified upper bound; NaN for a rule that accepts nothing."""
    expected_cost: float | None
    """Certified upper bound where the model has costs, else None."""
    objective: float
    """Certified bound on what the model optimises: the selective risk, unless it says otherwise."""
    point: OperatingPoint
    """What the rule did on the test rows; not a promise."""
    candidates: tuple[Candidate, ...]
    """In the order tested; empty where the model has costs, and one rule is learned."""
    sizes: SplitSizes
    method: Literal["tolerance limits", "path", "one rule"] = "path"
    """How thresholds were found: on the test rows, with the rules, or of one rule learned."""
    caveat: str = OOD_CAVEAT

    def __repr__(self) -> str:
        cost = self.expected_cost
        limit = f"selective_risk <= {self.selective_risk:.4g}"
        stated = limit if cost is None else f"{limit}, expected_cost <= {cost:.4g}"
        kept = "".join(f", {bound_text(self.model, bound)}" for bound in self.model.bounds)
        return f"CertifiedTuning({formula(self.rule)}: {stated}{kept}; {self.confidence:.4g})"


@takes(sample=Sample, model=RejectionModel, learn_share=NUMBER, max_loss=NUMBER)
def tune_certified(
    sample: Sample,
    model: RejectionModel,
    *,
    confidence: float = 0.95,
    max_loss: Number | None = None,
    directions: Directions | None = None,
    search: Exact | Grid | None = None,
    shape: Shape = "half-plane",
    learn_share: float | None = None,
    groups: Groups | None = None,
    per_id: Literal["refuse", "draw"] = "refuse",
    rng: Seed = 0,
) -> CertifiedTuning:
    """Return a rule that keeps the bounds of `model` in the population, and what it costs.

    With probability at least `confidence` over the data, all bounds of `model` and the stated
    bound on selective risk hold together; the module's docstring has the argument. Under a
    `CostModel` there are no bounds to keep, and the expected cost is bounded. Bounds may be on
    TPR, FPR, precision and selective risk; those of the ID side on all rows or on one group,
    those of the OOD side on all rows, on one set or on every set.

    Parameters
    ----------
    sample
        Unweighted, independent rows, ID and OOD.
    max_loss
        The largest possible loss; None declares the 0/1 loss.
    directions, search, shape
        As in `tune`. Boxes are proven along the path, also where half-planes would take tolerance
        limits: they have two limits to be chosen, and the learning rows choose both.
    learn_share
        Share of the rows to learn candidates on; the others test them. By default a fifth (for
        costs three tenths), and at most 20,000 rows of a side.
    groups, per_id
        As in `certify`: where rows share one of `groups`, they are refused, or one row of each is
        drawn at random and the rules are for such rows.
    rng
        Draws the split, and apart from it the order in which graded losses are bet on. Choose it
        before looking at results: trying seeds voids the promise.

    Raises
    ------
    InfeasibleError
        No candidate could be proven. The message says how many rows would be needed;
        ``attainable`` holds them as ``needed_id`` and ``needed_ood`` (NaN if no number is
        enough).

    Examples
    --------
    >>> import numpy as np
    >>> from demur import TprFprModel
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(0, 1, 2000)
    >>> sample = Sample(scores, rng.random(2000) < 0.05, ood_scores=rng.normal(3, 1, 2000))
    >>> promised = tune_certified(sample, TprFprModel(min_tpr=0.8, max_fpr=0.1))
    >>> round(promised.rule.threshold, 2), round(promised.selective_risk, 3)
    (0.9, 0.066)
    """
    refuse_weights(sample)
    refuse_unprovable(model)
    check_shape(shape, directions, search)
    refuse_unknown_parts(model.bounds, sample.ood_sets, sample.groups)
    declared_losses(sample, max_loss)
    delta = miss(confidence)
    # Of all rows and their losses as given: learning sees few rows, and smoothed losses.
    warn_of_mistakes(sample, model, stacklevel=3)
    # Split and shuffle have generators of their own.
    splitting, shuffling, drawing = seeded(rng).spawn(3)
    caveat = OOD_CAVEAT
    if groups is not None:
        _refuse_shared(sample, groups)
    if groups is not None and per_id == "draw":
        sample, caveat = one_of_each(sample, groups, drawing), f"{EVERY_ID_ONCE} {OOD_CAVEAT}"
    elif groups is not None:
        refuse_repeated(sample, groups, 'keep one row of each id, or ask for per_id="draw"')
    learn, test = split(sample, _shares(sample, model, learn_share), splitting)
    sizes = SplitSizes.of(model, learn, test, sample.groups)
    tester = Tester(test, model, max_loss, int(shuffling.integers(2**32)))
    if model.cost is not None and not model.bounds:
        rule = tune(learn, model, directions=directions, search=search, shape=shape).rule
        found = replace(_bounded_cost(rule, tester, confidence, sizes), caveat=caveat)
        return _described(found, sample)
    learner = Learner.of(learn, model, directions, search, max_loss, shape)
    warn_of_grid(learner.ready, directions, search, stacklevel=3)
    names = tuple(sample.ood_sets)
    parts: Any = {"set_names": names, "group_names": sample.groups}

    def everything() -> Learner:
        return Learner.of(sample, model, directions, search, max_loss, shape)

    try:
        plain = learner.rule(model)
    except InfeasibleError as error:
        required = Requirement.of(model, sizes, _BOUNDS_PART * delta, **parts, max_loss=max_loss)
        hoped = _with_all_rows(everything(), required)
        # With all rows there is a rule: the rows to learn on were too few.
        raise (
            error if hoped is None else shortage(required, model, None, hoped, confidence)
        ) from None
    learned = None
    if shape == "half-plane" and takes_tolerance_limits(model):
        learned = learn_directions(learner, model, plain, sizes, delta, names)
    if learned is not None:
        required, candidates = learned.requirement, tester.by_tolerance_limits(learned, learn)
        best = least_smoothed(candidates, sample, test, max_loss)
    else:
        required = Requirement.of(
            model,
            sizes,
            _BOUNDS_PART * delta,
            evaluate(plain, learn).tpr,
            **parts,
            max_loss=max_loss,
            rng=tester.seed,
        )
        rules = learner.ladder(required.tightened, plain, _PATH_MARGINS)
        possible = required.tightened(-3) is not None
        candidates = tester.along_path(
            rules if possible else [], learn, required, (1 - _BOUNDS_PART) * delta
        )
        best = best_promised(candidates, model)
    if best is None:
        safest = candidates[0].tested if candidates else None
        hoped = _with_all_rows(everything(), required)
        raise shortage(required, model, safest, hoped, confidence)
    found = CertifiedTuning(
        rule=best.rule,
        model=model,
        confidence=confidence,
        selective_risk=best.selective_risk,
        expected_cost=best.objective if model.cost is not None else None,
        objective=best.objective,
        point=best.tested,
        candidates=tuple(candidates),
        sizes=sizes,
        method="path" if learned is None else "tolerance limits",
        caveat=caveat,
    )
    return _described(found, sample)


def _described(found: CertifiedTuning, sample: Sample) -> CertifiedTuning:
    """Return the rule with a card of what was asked and is promised, and of all rows.

    Learning rows and test rows alike made the rule.
    """
    ood = "worst" if found.model.every_set else "pooled"
    card = Card.of_tuning(sample, found.model, found.point, ood=ood)
    card = card.with_reference(sample, found.rule)
    card = card.with_entries(points={"certified": _promise_data(found)})
    return replace(found, rule=replace(found.rule, card=card))


def _promise_data(found: CertifiedTuning) -> dict[str, float]:
    """Return what is promised, under the names of the rates."""
    data: dict[str, float] = {
        b.quantity: float(b.value) for b in found.model.bounds if not b.is_of_part
    }
    data |= {"selective_risk": found.selective_risk, "confidence": found.confidence}
    if found.expected_cost is not None:
        data["expected_cost"] = found.expected_cost
    return {name: value for name, value in data.items() if not math.isnan(value)}


def _refuse_shared(sample: Sample, groups: Groups) -> None:
    """Raise unless ID rows and the rows of every OOD set are independent samples."""
    if on_both_sides(sample, groups):
        raise InvalidInputError(
            "some ids have rows on several sides (ID, and every OOD set), which are then not "
            "independent samples: keep each id on one side"
        )


def _shares(
    sample: Sample, model: RejectionModel, asked: float | None
) -> float | tuple[float, float]:
    """Return the shares of ID and of OOD rows to learn on."""
    if asked is not None:
        return asked
    if model.cost is not None and not model.bounds:
        return _COST_LEARN_SHARE
    # Each side by itself: a long one must not leave the other too few rows.
    of_id, of_ood = (
        min(LEARN_SHARE, _MOST_LEARNED / max(n, 1)) for n in (sample.n_id, sample.n_ood)
    )
    return of_id, of_ood


def _with_all_rows(learner: Learner, requirement: Requirement) -> OperatingPoint | None:
    """Return what the safest rule does when it may learn on all rows; None if there is none.

    Safest with many test rows: with few, no rule may have a margin to be balanced.
    """
    try:
        plain = learner.rule(requirement.model)
    except InfeasibleError:
        return None
    many = replace(requirement, sizes=enlarged(requirement.sizes, _MANY))
    safest = learner.safest(many.tightened, plain, 4 * _PATH_MARGINS[0])[1]
    return evaluate(safest, learner.rows)


def _bounded_cost(
    rule: Rule, tester: Tester, confidence: float, sizes: SplitSizes
) -> CertifiedTuning:
    """Bound the cost of a rule learned on the other rows: one rule keeps the whole level."""
    model = tester.model
    promise = certify(
        rule,
        tester.rows,
        confidence=confidence,
        model=model,
        max_loss=tester.max_loss,
        rng=tester.seed,
        allow_tuning_rows=True,
    )
    cost = math.nan if promise.expected_cost is None else promise.expected_cost.high
    return CertifiedTuning(
        rule=rule,
        model=model,
        confidence=confidence,
        selective_risk=promise.selective_risk.high,
        expected_cost=cost,
        objective=cost,
        point=promise.point,
        candidates=(),
        sizes=sizes,
        method="one rule",
    )


_POPULATION = 20_000
_PILOT = 100_000
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
        return (
            f"{rows} a rule with {asked_text(model)} is found {often}, its "
            f"{objective_name(model)} about {self.above_best:.2g} "
            f"{'below' if model.seeks_most else 'above'} the best."
        )


@takes(pilot=(Sample, ScoreSource), model=RejectionModel, sizes=Sequence, max_loss=NUMBER)
def plan_tuning(
    pilot: Sample | ScoreSource,
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
        Rows like those that will be collected. Of a source, 100,000 drawn by a hash stand for all.
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
    # What is drawn must not depend on the order of the rows, which engines choose.
    pilot = sorted_rows(bring(pilot, _PILOT) if isinstance(pilot, ScoreSource) else pilot)
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
        loss = best - true if model.seeks_most else true - best
        plans.append(TuningPlan(n_id, n_ood, len(results) / draws, promised, loss, draws))
    return tuple(plans)


def _objective(model: RejectionModel, everyone: Sample, rule: Rule) -> float:
    point = evaluate(rule, everyone, model=model)
    return float(getattr(point, objective_key(model)))


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
