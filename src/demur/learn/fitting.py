"""`fit`: the doubts r and g learned from k scores, out of fold for the rows they are learned on.

Two ways to fit shares to scores: ridge logistic regression on polylines, and monotone boosting. A
*share* is what is to be learned, in [0, 1]: a loss over the largest, or whether a row is OOD.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from itertools import pairwise
from typing import Any, Literal, cast, get_args

import numpy as np

from demur._arrays import WHOLE, FloatArray, IntArray, check_kind
from demur.core.card import Card
from demur.core.models import RejectionModel, check_model
from demur.core.sample import Sample
from demur.core.wording import objective_key
from demur.errors import DemurError, InfeasibleError, InvalidInputError, MissingExtraError
from demur.guarantees.cross_tuning import cross_tune
from demur.guarantees.learned_rules import logistic
from demur.guarantees.splits import Groups, Seed, fold_numbers
from demur.learn.doubts import RATIO, RISK, Learned, with_doubts
from demur.learn.functions import MeanSum, Polyline, PolylineSum, ScoreFunction, TreeSum, on_grid

Method = Literal["logistic", "boosting", "mean"]

# Knots of a score lie at its normal quantiles; the fit may bend at most of them.
_LEVELS = np.arange(-3.0, 3.01, 0.5)
_ENDS = 3.5
_BENDS = tuple(np.arange(-2.0, 2.01, 0.5).tolist())
_RIDGE, _SMOOTH = 0.3, 1.0
_STEPS = 500
# Quantiles that are nearer than this have no slope between them.
_NEAREST = 1e-290
_MOST_ROWS = 200_000

_TREES, _LEAVES, _RATE, _FEWEST_IN_LEAF = 60, 8, 0.12, 20

_LINK_KNOTS = 65
_LARGEST_LOG = 30.0


def fit(
    sample: Sample,
    method: Literal["auto", "logistic", "boosting", "mean"] = "auto",
    *,
    model: RejectionModel | None = None,
    folds: int = 5,
    groups: Groups | None = None,
    rng: Seed = 0,
) -> Learned:
    """Learn from k scores the risk of an input and its OOD-to-ID ratio, which is all that decides.

    Parameters
    ----------
    sample
        With any number of scores. Without OOD rows the risk alone is learned.
    method
        ``"logistic"``: a rising curve of every score, added up; needs NumPy and SciPy only.
        ``"boosting"``: rising trees, in which scores can act together; needs the extra
        ``sklearn``. ``"mean"``: the mean of their log odds. ``"auto"`` takes the best of these by
        cross-validation, or ``"logistic"`` where scikit-learn is not installed. With all of
        them, more doubt never lowers what is learned.
    model
        What ``"auto"`` judges by: the objective of rules tuned for this model. Without one it
        judges by how probable the losses and the OOD rows were out of fold (log loss).
    folds, groups, rng
        How the rows are dealt into folds, as in `demur.guarantees.cross_tune`: rows of a group
        stay together.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> own, foreign = rng.normal(size=(400, 3)), rng.normal(1, 1, size=(200, 3))
    >>> wrong = rng.random(400) < 1 / (1 + np.exp(2 - own[:, 0]))
    >>> learned = fit(Sample(own, wrong, foreign, score_names=["a", "b", "c"]), "logistic")
    >>> learned, learned.sample
    (Learned(['conditional_risk', 'likelihood_ratio'] of ['a', 'b', 'c'], method='logistic'), \
Sample(n_id=400, n_ood=200, scores=2))
    """
    check_kind("sample", sample, Sample)
    if method not in ("auto", *get_args(Method)):
        raise InvalidInputError(
            f"method must be 'auto', 'logistic', 'boosting' or 'mean', got {method!r}"
        )
    if model is not None:
        check_model(model)
    check_kind("folds", folds, WHOLE)
    _check_rows(sample, folds)
    numbers = fold_numbers(sample, folds, rng, groups)
    methods: tuple[Method, ...] = (method,) if method != "auto" else _installed()
    with _one_thread():
        tried = _out_of_fold(sample, methods, folds, numbers)
    judged = _judged(tried, model, folds, groups, rng) if len(tried) > 1 else {}
    chosen = min(tried, key=lambda one: judged.get(one, 0.0))
    card = Card.of_rows(sample).with_entries(
        method=chosen,
        folds=folds,
        judged_by="log loss" if model is None else objective_key(model),
        judged={one: value for one, value in judged.items() if math.isfinite(value)},
    )
    with _one_thread():
        functions = _functions(sample, (chosen,))[chosen]
    return Learned(sample.columns, functions, card, tried[chosen])


def _installed() -> tuple[Method, ...]:
    return get_args(Method) if find_spec("sklearn") else ("logistic",)


def _one_thread() -> AbstractContextManager[object]:
    """Return where libraries use one thread: more of them wait for each other on so few rows."""
    try:
        from threadpoolctl import threadpool_limits
    except ModuleNotFoundError:
        return nullcontext()
    return cast(AbstractContextManager[object], threadpool_limits(1))


def _check_rows(sample: Sample, folds: int) -> None:
    """Refuse too few rows of a kind to be learned from in every fold."""
    usable = np.isfinite(sample.id_scores).all(axis=1)
    loss = sample.id_loss[usable]
    if sample.id_weight is not None:
        loss = loss[sample.id_weight[usable] > 0]
    if len(loss) and loss.min() == loss.max():
        raise InvalidInputError(
            f"every ID row has the loss {loss[0]:g}: a risk is learned from rows that differ in it"
        )
    foreign = np.isfinite(sample.ood_scores).all(axis=1)
    if sample.ood_weight is not None:
        foreign &= sample.ood_weight > 0
    counts = {
        "ID rows with a loss": int((loss > 0).sum()),
        "ID rows without the largest loss": int((loss < loss.max()).sum()) if len(loss) else 0,
    }
    if sample.n_ood:
        counts["OOD rows"] = int(foreign.sum())
    for what, count in counts.items():
        if count < 2 * folds:
            raise InvalidInputError(
                f"there are {count} {what} with finite scores, and {folds} folds need at least "
                f"{2 * folds}: give more rows, or fewer folds"
            )


def _functions(
    sample: Sample, methods: tuple[Method, ...]
) -> dict[Method, dict[str, ScoreFunction]]:
    """Fit r, and g where there are OOD rows, on all rows of a sample, by all methods."""
    largest = float(sample.id_loss.max())
    own, foreign = sample.id_doubts, sample.ood_doubts
    weight = np.ones(sample.n_id) if sample.id_weight is None else sample.id_weight
    risk = Task.of(own, sample.id_loss / largest, weight)
    fitted = {RISK: fit_functions(risk, methods, lambda z: largest * logistic(z))}
    if sample.n_ood:
        other = np.ones(sample.n_ood) if sample.ood_weight is None else sample.ood_weight
        # Both sides weigh the same in all: then odds are the ratio of the densities.
        weights = np.concatenate([weight / weight.sum(), other / other.sum()])
        share = np.repeat([0.0, 1.0], [sample.n_id, sample.n_ood])
        ratio = Task.of(np.concatenate([own, foreign]), share, weights)
        fitted[RATIO] = fit_functions(ratio, methods, np.exp)
    return {one: {name: by[one] for name, by in fitted.items()} for one in methods}


def _out_of_fold(
    sample: Sample, methods: tuple[Method, ...], folds: int, numbers: tuple[IntArray, IntArray]
) -> dict[Method, Sample]:
    """Return by method the doubts of all rows, each from a fit without its fold."""
    count = 2 if sample.n_ood else 1
    sides = {
        one: (np.empty((sample.n_id, count)), np.empty((sample.n_ood, count))) for one in methods
    }
    for fold in range(folds):
        others = sample.subset(*(side != fold for side in numbers))
        _check_rows(others, 1)
        here = [np.flatnonzero(side == fold) for side in numbers]
        for one, functions in _functions(others, methods).items():
            made = Learned(sample.columns, functions, Card({}))
            sides[one][0][here[0]] = made.doubts(sample.id_scores[here[0]])
            sides[one][1][here[1]] = made.doubts(sample.ood_scores[here[1]])
    names = (RISK, RATIO)[:count]
    return {one: with_doubts(sample, *both, names) for one, both in sides.items()}


def _judged(
    tried: dict[Method, Sample],
    model: RejectionModel | None,
    folds: int,
    groups: Groups | None,
    rng: Seed,
) -> dict[Method, float]:
    """Return how good each method is out of fold, the less the better."""
    if model is not None:
        sign = -1.0 if model.seeks_most else 1.0
        values = {}
        for method, sample in tried.items():
            try:
                held = cross_tune(sample, model, folds=folds, groups=groups, rng=rng).held_out
            except InfeasibleError:
                held = None
            found = math.inf if held is None else sign * getattr(held, objective_key(model))
            values[method] = found if found == found else math.inf
        if len(set(values.values())) > 1:
            return values
    return {method: _log_loss(sample) for method, sample in tried.items()}


def _log_loss(sample: Sample) -> float:
    """Return the mean negative log probability of losses, and of which rows are OOD."""
    usable = np.isfinite(sample.id_scores).all(axis=1), np.isfinite(sample.ood_scores).all(axis=1)
    weight = np.ones(sample.n_id) if sample.id_weight is None else sample.id_weight
    own, largest = weight[usable[0]], sample.id_loss.max()
    share = sample.id_loss[usable[0]] / largest
    risk = np.clip(sample.id_scores[usable[0], 0] / largest, 1e-9, 1 - 1e-9)
    total = -np.average(share * np.log(risk) + (1 - share) * np.log1p(-risk), weights=own)
    if sample.n_ood:
        other = np.ones(sample.n_ood) if sample.ood_weight is None else sample.ood_weight
        ratio = [
            side[rows, 1]
            for side, rows in zip((sample.id_scores, sample.ood_scores), usable, strict=True)
        ]
        total += np.average(np.log1p(ratio[0]), weights=own)
        total += np.average(np.log1p(1 / ratio[1]), weights=other[usable[1]])
    return float(total)


@dataclass(frozen=True, slots=True, eq=False)
class Task:
    """Rows of doubts (n, k), the share of each, and its weight; weights have mean 1."""

    doubts: FloatArray
    share: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, doubts: FloatArray, share: FloatArray, weight: FloatArray) -> Task:
        """Leave out rows that say nothing: of no weight, or with a doubt that always rejects."""
        kept = (weight > 0) & np.isfinite(doubts).all(axis=1)
        weight = weight[kept]
        return cls(doubts[kept], share[kept], weight / (weight.mean() if len(weight) else 1.0))

    def some(self) -> Task:
        """Return all rows, or as many as a fit needs, evenly spread over the file."""
        if len(self.share) <= _MOST_ROWS:
            return self
        rows = np.linspace(0, len(self.share) - 1, _MOST_ROWS).astype(np.int64)
        return Task.of(self.doubts[rows], self.share[rows], self.weight[rows])


def fit_functions(
    task: Task, methods: tuple[Method, ...], meaning: Callable[[FloatArray], FloatArray]
) -> dict[Method, ScoreFunction]:
    """Learn the log odds of the share; `meaning` turns them into the doubt they stand for."""
    task = task.some()
    sums: dict[Method, Any] = {}
    if "boosting" not in methods or len(methods) > 1:
        sums["logistic"] = _polylines(task)
    if methods != ("logistic",):
        sums["boosting"] = _trees(task)
    if "mean" in methods:
        sums["mean"] = MeanSum(sums["logistic"], sums["boosting"])
    return {one: ScoreFunction(sums[one], link(sums[one](task.doubts), meaning)) for one in methods}


def link(log_odds: FloatArray, meaning: Callable[[FloatArray], FloatArray]) -> Polyline:
    """Return `meaning` as a polyline over the log odds that occur, and somewhat beyond."""
    low, high = np.clip([log_odds.min(), log_odds.max()], -_LARGEST_LOG, _LARGEST_LOG).tolist()
    inside = np.linspace(low - 1.0, high + 1.0, _LINK_KNOTS)
    x = np.concatenate([[low - 6.0, low - 3.0], inside, [high + 3.0, high + 6.0]])
    return Polyline(tuple(x.tolist()), tuple(meaning(x).tolist()))


def _polylines(task: Task) -> PolylineSum:
    """Fit a rising polyline of every score by penalised likelihood."""
    bases = [_basis(column) for column in task.doubts.T]
    parts = [
        np.column_stack([np.interp(column, x, values) for values in at_knots.T])
        for column, (x, at_knots) in zip(task.doubts.T, bases, strict=True)
    ]
    features = np.column_stack([np.ones(len(task.share)), *parts])
    weights = _rising_logistic(features, task)
    functions = []
    for (x, at_knots), own in zip(bases, weights[1:].reshape(len(bases), -1), strict=True):
        functions.append(Polyline(tuple(x.tolist()), tuple((at_knots @ own).tolist())))
    return PolylineSum(float(weights[0]), tuple(functions))


def _basis(column: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return knots of a score and the basis functions at them, each rising on one stretch.

    A score is first replaced by the normal quantile of its rank, so that units and outliers do
    not matter; the stretches lie between the bends, and their weights are the slopes there.
    """
    from scipy.special import ndtr

    shares = np.concatenate([[0.0], ndtr(_LEVELS), [1.0]])
    levels = np.concatenate([[-_ENDS], _LEVELS, [_ENDS]])
    found = np.quantile(column, shares, method="inverted_cdf")
    x, place = np.unique(found, return_inverse=True)
    if len(x) == 1 or not np.isfinite(x[-1] - x[0]) or (np.diff(x) < _NEAREST).any():
        # What is constant says nothing, and no slope in float64 joins what is too far apart.
        return x[:1], np.zeros((1, len(_BENDS) + 1))
    normal = np.bincount(place, levels) / np.bincount(place)
    ends = [-_ENDS, *_BENDS, _ENDS]
    stretches = [
        np.clip(normal, low, high) - min(max(0.0, low), high) for low, high in pairwise(ends)
    ]
    return x, np.column_stack(stretches)


def _rising_logistic(features: FloatArray, task: Task) -> FloatArray:
    """Return weights of features, the first free and the others not negative.

    Penalised are the slopes of a score, and how much neighbouring ones differ.
    """
    from scipy.optimize import minimize

    stretches = len(_BENDS) + 1
    steps = np.diff(np.eye(stretches), axis=0)
    one = _RIDGE * np.eye(stretches) + _SMOOTH * steps.T @ steps
    count = (features.shape[1] - 1) // stretches
    penalty = np.zeros((features.shape[1],) * 2)
    penalty[1:, 1:] = np.kron(np.eye(count), one)

    def judged(weights: FloatArray) -> tuple[float, FloatArray]:
        log_odds = features @ weights
        bent = penalty @ weights
        value = task.weight @ (np.logaddexp(0.0, log_odds) - task.share * log_odds)
        slope = features.T @ (task.weight * (logistic(log_odds) - task.share))
        return float(value + weights @ bent / 2), slope + bent

    mean = float(np.clip(np.average(task.share, weights=task.weight), 1e-6, 1 - 1e-6))
    start = np.zeros(features.shape[1])
    start[0] = math.log(mean / (1 - mean))
    bounds = [(-_LARGEST_LOG, _LARGEST_LOG)] + [(0.0, None)] * (len(start) - 1)
    found = minimize(
        judged, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _STEPS}
    )
    return np.asarray(found.x)


def _trees(task: Task) -> TreeSum:
    """Boost trees that never fall as a doubt grows.

    A share between 0 and 1 counts as two rows, one of each kind, that divide the weight.
    """
    try:
        from sklearn.ensemble import HistGradientBoostingClassifier
    except ModuleNotFoundError:
        raise MissingExtraError("boosting", "sklearn") from None
    yes, no = task.share > 0, task.share < 1
    rows = np.concatenate([task.doubts[yes], task.doubts[no]])
    label = np.concatenate([np.ones(yes.sum()), np.zeros(no.sum())])
    share = task.share
    weight = np.concatenate([(task.weight * share)[yes], (task.weight * (1 - share))[no]])
    model = HistGradientBoostingClassifier(
        monotonic_cst=[1] * rows.shape[1],
        max_iter=_TREES,
        max_leaf_nodes=_LEAVES,
        max_depth=6,
        learning_rate=_RATE,
        min_samples_leaf=_FEWEST_IN_LEAF,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=0,
    )
    model.fit(rows, label, sample_weight=weight)
    trees = _stored(model, rows.shape[1])
    _check_trees(trees, model, rows[:: max(1, len(rows) // 2000)])
    return trees


def _stored(model: Any, count: int) -> TreeSum:
    """Read the trees of scikit-learn, which has no public names for their nodes."""
    try:
        nodes = [stage[0].nodes for stage in model._predictors]
        base = float(np.ravel(model._baseline_prediction)[0])
        starts = np.cumsum([0, *map(len, nodes)])[:-1]
        every = np.concatenate(nodes)
        first = np.repeat(starts, [len(tree) for tree in nodes])
        leaf = every["is_leaf"].astype(bool)
        return TreeSum(
            base=float(on_grid(np.array([base]))[0]),
            count=count,
            roots=starts,
            feature=np.where(leaf, -1, every["feature_idx"]).astype(np.int64),
            threshold=np.where(leaf, 0.0, every["num_threshold"]),
            left=np.where(leaf, 0, every["left"].astype(np.int64) + first),
            right=np.where(leaf, 0, every["right"].astype(np.int64) + first),
            value=np.where(leaf, on_grid(every["value"]), 0.0),
        )
    except (AttributeError, ValueError, IndexError, KeyError) as error:
        raise DemurError(
            f"this scikit-learn keeps its trees in another way ({error}): use method='logistic'"
        ) from None


def _check_trees(trees: TreeSum, model: Any, rows: FloatArray) -> None:
    """Hold the trees as they were read against scikit-learn's own sums."""
    if np.abs(trees(rows) - model.decision_function(rows)).max() > 1e-6:
        raise DemurError(
            "the trees of this scikit-learn were not read right: use method='logistic', and please "
            "report it"
        )
