"""The paper's synthetic example: three Gaussian classes on the line and Gaussian OOD data.

The text prints OOD N(3, variance 0.2); its Table 1 needs mean 2. With mean 3 the conditional
risk alone (method C) has AUROC 0.37 instead of the printed 0.76, with mean 2 all rows of the
single-score methods fit. Both settings are here: `CORRECTED` and `AS_PRINTED`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from demur import _arrays
from demur._arrays import FloatArray
from demur.core.sample import Sample
from demur.errors import InvalidInputError
from demur.population.bayes import FiniteProblem

_PRIORS = np.array([0.3, 0.3, 0.4])
_MEANS = np.array([-1.0, 1.0, 3.0])
# Ten standard deviations beyond the outermost means: what is cut off is below 1e-22.
_RANGE = (-11.0, 13.0)


@dataclass(frozen=True, slots=True)
class GaussianExample:
    """ID classes 0.3 N(-1, 1), 0.3 N(1, 1), 0.4 N(3, 1), OOD N(`ood_mean`, `ood_variance`).

    Examples
    --------
    >>> CORRECTED.likelihood_ratio([2.0]).round(3), AS_PRINTED.likelihood_ratio([3.0]).round(3)
    (array([5.226]), array([5.074]))
    """

    ood_mean: float = 2.0
    ood_variance: float = 0.2
    ood_prior: float = 0.25

    def __post_init__(self) -> None:
        if not 0 < self.ood_variance < np.inf:
            raise InvalidInputError(f"ood_variance must be positive, got {self.ood_variance}")
        if not 0 <= self.ood_prior < 1:
            raise InvalidInputError(f"ood_prior must be in [0, 1), got {self.ood_prior}")

    def id_density(self, x: Any) -> FloatArray:
        """Return p_I(x, y), shape (n, 3)."""
        return np.exp(_log_joint(_arrays.real_vector("x", x)))

    def ood_density(self, x: Any) -> FloatArray:
        """Return p_O(x), shape (n,)."""
        return np.exp(self._log_ood(_arrays.real_vector("x", x)))

    def conditional_risk(self, x: Any) -> FloatArray:
        """Return r_B(x), the error of the Bayes classifier at x."""
        joint = _log_joint(_arrays.real_vector("x", x))
        posterior = np.exp(joint - joint.max(axis=1, keepdims=True))
        total = posterior.sum(axis=1)
        # The largest term is exactly 1, so that this adds up the other ones.
        return np.asarray((total - 1) / total)

    def likelihood_ratio(self, x: Any) -> FloatArray:
        """Return g(x) = p_O(x) / p_I(x)."""
        points = _arrays.real_vector("x", x)
        joint = _log_joint(points)
        return np.asarray(np.exp(self._log_ood(points) - np.logaddexp.reduce(joint, axis=1)))

    def discretise(self, cells: int = 20_000) -> FiniteProblem:
        """Return the example on `cells` equal cells over [-11, 13].

        With the default, rates, risks and areas are within 1e-4 of the continuous example.
        """
        if cells < 100:
            raise InvalidInputError(f"cells must be at least 100, got {cells}")
        low, high = _RANGE
        width = (high - low) / cells
        x = low + (np.arange(cells) + 0.5) * width
        return FiniteProblem.from_densities(self.id_density(x), self.ood_density(x), width=width)

    def sample(self, n: int, rng: np.random.Generator | int | None = None) -> Sample:
        """Draw n inputs, of which the nearest number to ``ood_prior * n`` are OOD.

        The scores are the true (r_B, g), the loss is the 0/1 loss of the Bayes classifier.

        Examples
        --------
        >>> CORRECTED.sample(1000, 0)
        Sample(n_id=750, n_ood=250, scores=2)
        """
        generator = np.random.default_rng(rng)
        n_ood = round(self.ood_prior * n)
        y = generator.choice(len(_PRIORS), size=n - n_ood, p=_PRIORS)
        x_id = generator.normal(_MEANS[y], 1.0)
        x_ood = generator.normal(self.ood_mean, np.sqrt(self.ood_variance), size=n_ood)
        return Sample(
            id_scores=self._scores(x_id),
            id_loss=(_log_joint(x_id).argmax(axis=1) != y).astype(np.float64),
            ood_scores=self._scores(x_ood),
            score_names=("r", "g"),
        )

    def _scores(self, x: FloatArray) -> FloatArray:
        return np.column_stack([self.conditional_risk(x), self.likelihood_ratio(x)])

    def _log_ood(self, x: FloatArray) -> FloatArray:
        squared = (x - self.ood_mean) ** 2 / self.ood_variance
        return np.asarray(-squared / 2 - np.log(2 * np.pi * self.ood_variance) / 2)


CORRECTED = GaussianExample()
"""OOD mean 2, the setting that fits the paper's Table 1."""
AS_PRINTED = GaussianExample(ood_mean=3.0)
"""OOD mean 3, the setting of the paper's text."""


def _log_joint(x: FloatArray) -> FloatArray:
    return np.asarray(np.log(_PRIORS) - (x[:, None] - _MEANS) ** 2 / 2 - np.log(2 * np.pi) / 2)
