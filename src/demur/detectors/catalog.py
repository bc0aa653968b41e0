"""One catalog of the detectors, by the names that the command line and tables use.

Also published ways to make one score of two: SIRC and the plug-in rule with its likelihood ratio.

Both take a risk score (will the prediction be wrong?) and an OOD score (is the input foreign?),
higher = more doubt. They compete with the tuned linear combination of the two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

import numpy as np

from demur import _arrays
from demur._arrays import FloatArray, takes
from demur.detectors.activations import (
    Activations,
    Detector,
    as_scores,
    check_activations,
    finite_vector,
    fitted,
    number,
)
from demur.detectors.features import Knn, Mahalanobis, RelativeMahalanobis, Vim
from demur.detectors.logits import React, ash, energy, entropy, gen, gradnorm, mls, msp, scale
from demur.errors import InvalidInputError

Need = Literal["logits", "features", "head", "train", "labels", "gradients"]
Scorer = Callable[[Activations], FloatArray]


@dataclass(frozen=True, slots=True)
class Entry:
    """A detector of the catalog with its default options.

    Parameters
    ----------
    title
        Name to print.
    needs
        ``"logits"``, ``"features"``, ``"head"``: parts of the scored activations;
        ``"train"``: training activations with the same parts; ``"labels"``: labels of these;
        ``"gradients"``: gradients with respect to the input, which arrays cannot give.
    score
        The score, for a detector without training.
    build
        Makes the detector to fit, for one with training.

    Examples
    --------
    >>> from demur.detectors import CATALOG
    >>> CATALOG["knn"].title, sorted(CATALOG["knn"].needs)
    ('KNN', ['features', 'train'])
    """

    title: str
    needs: frozenset[Need]
    score: Scorer | None = None
    build: Callable[[], Detector] | None = None

    def scorer(self, train: Activations | None = None) -> Scorer:
        """Return the function that scores activations, fitted on `train` where needed.

        Examples
        --------
        >>> CATALOG["mls"].scorer()(Activations(logits=[[1.0, 2.0]]))
        array([-2.])
        """
        if self.build is not None:
            if train is None:
                raise InvalidInputError(f"{self.title} needs training activations: give train=")
            return self.build().fit(train).score
        if self.score is None:
            raise InvalidInputError(
                f"{self.title} needs gradients with respect to the input, which arrays cannot "
                "give: compute its scores with demur.adapters.torch.Odin and hand them in"
            )
        return self.score


@takes(detectors=(Iterable, Mapping))
def score_table(
    detectors: Iterable[str] | Mapping[str, Any], activations: Activations, *, train: Any = None
) -> dict[str, FloatArray]:
    """Score activations with several detectors.

    Parameters
    ----------
    detectors
        Names of the catalog; or a mapping from names of your choice to a name of the catalog,
        a detector to fit such as ``Knn(k=10)``, a callable of the activations, or finished
        scores of any library.
    activations
        What to score.
    train
        Training activations, for detectors that need them.

    Examples
    --------
    >>> rows = Activations(logits=[[0.0, 0.0], [3.0, 0.0]])
    >>> score_table({"mls": "mls", "mine": [0.5, 0.1]}, rows)
    {'mls': array([-0., -3.]), 'mine': array([0.5, 0.1])}
    """
    if isinstance(detectors, str):
        detectors = [detectors]
    check_activations("activations", activations)
    named = detectors if isinstance(detectors, Mapping) else {name: name for name in detectors}
    return {
        name: as_scores(_resolve(detector, train), activations, name=name, length=len(activations))
        for name, detector in named.items()
    }


def _resolve(detector: Any, train: Activations | None) -> Any:
    """Return a scorer for names and detectors; callables and scores are passed through."""
    if isinstance(detector, str):
        if detector not in CATALOG:
            raise InvalidInputError(
                f"no detector is called {detector!r}; there are {sorted(CATALOG)}"
            )
        return CATALOG[detector].scorer(train)
    if hasattr(detector, "fit") and hasattr(detector, "score"):
        if train is None:
            raise InvalidInputError(f"{detector!r} needs training activations: give train=")
        return detector.fit(train).score
    return detector


def _head(score: Callable[[Any, Any, Any], FloatArray]) -> Scorer:
    return lambda a: score(a.part("features"), a.part("weight"), a.part("bias"))


def _logits(score: Callable[[Any], FloatArray]) -> Scorer:
    return lambda a: score(a.part("logits"))


def _gradnorm(activations: Activations) -> FloatArray:
    return gradnorm(activations.part("logits"), activations.part("features"))


_LOGITS: frozenset[Need] = frozenset({"logits"})
_HEAD: frozenset[Need] = frozenset({"features", "head"})
_CLASSES: frozenset[Need] = frozenset({"features", "train", "labels"})

CATALOG: Mapping[str, Entry] = MappingProxyType(
    {
        "msp": Entry("MSP", _LOGITS, score=_logits(msp)),
        "mls": Entry("MLS", _LOGITS, score=_logits(mls)),
        "energy": Entry("Energy", _LOGITS, score=_logits(energy)),
        "entropy": Entry("Entropy", _LOGITS, score=_logits(entropy)),
        "gen": Entry("GEN", _LOGITS, score=_logits(gen)),
        "odin": Entry("ODIN", frozenset({"gradients"})),
        "gradnorm": Entry("GradNorm", frozenset({"logits", "features"}), score=_gradnorm),
        "react": Entry("ReAct", _HEAD | {"train"}, build=React),
        "ash": Entry("ASH", _HEAD, score=_head(ash)),
        "scale": Entry("SCALE", _HEAD, score=_head(scale)),
        "knn": Entry("KNN", frozenset({"features", "train"}), build=Knn),
        "vim": Entry("ViM", _HEAD | {"logits", "train"}, build=Vim),
        "mahalanobis": Entry("Mahalanobis", _CLASSES, build=Mahalanobis),
        "relative_mahalanobis": Entry("Relative Mahalanobis", _CLASSES, build=RelativeMahalanobis),
    }
)


_STEPS = 100
_LARGEST_LOG_RATIO = 700.0


class _MeanAndDeviation(NamedTuple):
    mean: float
    deviation: float


@dataclass(frozen=True, slots=True)
class Sirc:
    """Softmax information retaining combination: the OOD score matters only when it is extreme.

    ``log(s_r) + log(1 + exp((s_g - a) / b))`` with a = mean + 3 standard deviations and b = one
    standard deviation of the OOD score on ID data; in confidences this is the published
    ``-log(s1max - s1) - log(1 + exp(-b' (s2 - a')))``. The risk score must count from its best
    possible value, zero, as `msp` and `entropy` do.

    Examples
    --------
    >>> sirc = Sirc().fit([0.0, 1.0, 2.0])
    >>> sirc.score([0.1, 0.1, 0.2], [1.0, 9.0, 1.0]).round(3)
    array([-2.254,  4.496, -1.561])
    """

    _state: _MeanAndDeviation | None = field(default=None, repr=False, compare=False, kw_only=True)

    def fit(self, id_ood_score: Any) -> Self:
        """Learn location and spread of the OOD score on ID data (no OOD data is needed)."""
        scores = finite_vector("id_ood_score", id_ood_score)
        deviation = float(scores.std()) if len(scores) else 0.0
        if deviation <= 0:
            raise InvalidInputError("id_ood_score needs at least two different values")
        return replace(self, _state=_MeanAndDeviation(float(scores.mean()), deviation))

    def score(self, risk_score: Any, ood_score: Any) -> FloatArray:
        """Return the combined score; both arguments have shape (n,)."""
        mean, deviation = fitted(self, self._state)
        risk, foreign = _pair(risk_score, ood_score, "ood_score")
        _arrays.refuse("risk_score", risk, risk < 0, "is negative, but must count from zero")
        # A risk that has underflowed is as small as any; -inf would not be a legal score.
        log_risk = np.log(np.maximum(risk, np.finfo(np.float64).tiny))
        return log_risk + np.logaddexp(0.0, (foreign - mean) / deviation - 3.0)


def plug_in(
    risk_score: Any, likelihood_ratio: Any, *, reject_id: float, accept_ood: float
) -> FloatArray:
    """Return ``(1 - c_in - c_out) r + c_out g``, the plug-in rule of Narasimhan et al.

    When rejecting an ID input costs c_in, accepting an OOD input c_out and an accepted error
    1 - c_in - c_out, the Bayes-optimal rule rejects exactly where this score exceeds c_in; here
    r and g are replaced by estimates.

    Parameters
    ----------
    risk_score
        Estimate of the conditional risk r(x) in [0, 1], such as `msp`; shape (n,).
    likelihood_ratio
        Estimate of g(x) = p_OOD(x) / p_ID(x) >= 0, shape (n,). `PlugIn` makes one of an
        arbitrary OOD score.
    reject_id, accept_ood
        The costs c_in and c_out, non-negative and together at most 1.

    Examples
    --------
    >>> plug_in([0.1, 0.5], [2.0, 0.0], reject_id=0.3, accept_ood=0.2)
    array([0.45, 0.25])
    """
    _check_costs(reject_id, accept_ood)
    risk, ratio = _pair(risk_score, likelihood_ratio, "likelihood_ratio")
    _arrays.refuse("likelihood_ratio", ratio, ratio < 0, "is negative")
    infinite = np.isinf(risk) | np.isinf(ratio)
    finite_ratio = np.where(infinite, 0.0, ratio)
    weighed = (1 - reject_id - accept_ood) * np.where(infinite, 0.0, risk)
    return np.where(infinite, np.inf, weighed + accept_ood * finite_ratio)


@dataclass(frozen=True, slots=True)
class PlugIn:
    """The plug-in rule for an arbitrary OOD score, its likelihood ratio learned by logistic fit.

    The density ratio of OOD to ID is modelled as exp(a + b s_g), the form that logistic
    regression of "is OOD" on the score estimates; targets are smoothed as in Platt scaling so
    that separable data give finite a and b.

    Parameters
    ----------
    reject_id, accept_ood
        The costs c_in and c_out of `plug_in`; its rule rejects where the score exceeds c_in.

    Examples
    --------
    >>> rule = PlugIn(reject_id=0.3, accept_ood=0.2).fit([0.0, 1.0, 2.0], [1.0, 2.0, 3.0])
    >>> rule.score([0.1, 0.1], [0.0, 3.0]) > 0.3
    array([False,  True])
    """

    reject_id: float
    accept_ood: float
    _state: tuple[float, float] | None = field(
        default=None, repr=False, compare=False, kw_only=True
    )

    def __post_init__(self) -> None:
        _check_costs(self.reject_id, self.accept_ood)

    def fit(self, id_ood_score: Any, ood_ood_score: Any) -> Self:
        """Learn the likelihood ratio from the OOD scores of ID rows and of OOD rows."""
        id_scores = finite_vector("id_ood_score", id_ood_score)
        ood_scores = finite_vector("ood_ood_score", ood_ood_score)
        if not len(id_scores) or not len(ood_scores):
            raise InvalidInputError("PlugIn needs at least one ID and one OOD score to fit")
        return replace(self, _state=_logistic(id_scores, ood_scores))

    def likelihood_ratio(self, ood_score: Any) -> FloatArray:
        """Return the estimated p_OOD / p_ID at the given OOD scores."""
        intercept, slope = fitted(self, self._state)
        scores = as_scores(ood_score, name="ood_score")
        finite = np.where(np.isinf(scores), 0.0, scores)
        log_ratio = np.clip(intercept + slope * finite, -_LARGEST_LOG_RATIO, _LARGEST_LOG_RATIO)
        return np.where(np.isinf(scores), np.inf, np.exp(log_ratio))

    def score(self, risk_score: Any, ood_score: Any) -> FloatArray:
        """Return the combined score; both arguments have shape (n,)."""
        return plug_in(
            risk_score,
            self.likelihood_ratio(ood_score),
            reject_id=self.reject_id,
            accept_ood=self.accept_ood,
        )


def _pair(risk_score: Any, second: Any, name: str) -> tuple[FloatArray, FloatArray]:
    risk = as_scores(risk_score, name="risk_score")
    return risk, as_scores(second, name=name, length=len(risk))


def _check_costs(reject_id: float, accept_ood: float) -> None:
    number("reject_id", reject_id, lambda x: x >= 0, "a non-negative number")
    number("accept_ood", accept_ood, lambda x: x >= 0, "a non-negative number")
    if reject_id + accept_ood > 1:
        raise InvalidInputError(
            f"reject_id + accept_ood must be at most 1, got {reject_id} + {accept_ood}"
        )


def _logistic(id_scores: FloatArray, ood_scores: FloatArray) -> tuple[float, float]:
    """Fit log(p_OOD / p_ID) = intercept + slope * s, both sides weighing one half."""
    n, m = len(id_scores), len(ood_scores)
    scores = np.concatenate([id_scores, ood_scores])
    centre, spread = scores.mean(), scores.std()
    if spread == 0:
        return 0.0, 0.0
    x = np.column_stack([np.ones(n + m), (scores - centre) / spread])
    weight = np.concatenate([np.full(n, 0.5 / n), np.full(m, 0.5 / m)])
    target = np.concatenate([np.full(n, 1 / (n + 2)), np.full(m, (m + 1) / (m + 2))])

    def loss(beta: FloatArray) -> float:
        return float(weight @ (np.logaddexp(0, x @ beta) - target * (x @ beta)))

    beta = np.zeros(2)
    for _ in range(_STEPS):
        p = np.exp(-np.logaddexp(0, -(x @ beta)))
        gradient = x.T @ (weight * (p - target))
        if np.abs(gradient).max() < 1e-12:
            break
        curvature = (x.T * (weight * p * (1 - p))) @ x
        step = np.linalg.solve(curvature + 1e-12 * np.eye(2), gradient)
        while loss(beta - step) > loss(beta) and np.abs(step).max() > 1e-14:
            step = step / 2
        beta = beta - step
    return float(beta[0] - beta[1] * centre / spread), float(beta[1] / spread)
