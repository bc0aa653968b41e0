"""One catalog of the detectors, by the names that the command line and tables use."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from demur._arrays import FloatArray, takes
from demur.detectors.activations import Activations, Detector, check_activations
from demur.detectors.arrays import as_scores
from demur.detectors.features import Mahalanobis, RelativeMahalanobis, Vim
from demur.detectors.logits import energy, entropy, gen, gradnorm, mls, msp
from demur.detectors.neighbours import Knn
from demur.detectors.shaping import React, ash, scale
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
