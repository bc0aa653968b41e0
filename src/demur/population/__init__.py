"""Known distributions: the optimal rules of the theory, to compare with what samples give."""

from demur.population.paper_example import (
    AS_PRINTED,
    CORRECTED,
    METHODS,
    GaussianExample,
    PopulationValues,
    population_values,
    risk_coverage,
)
from demur.population.problems import FiniteProblem, PopulationOptimum
from demur.population.solve import optimum
from demur.population.thresholds import (
    BoundaryRule,
    ThresholdCurve,
    best_threshold,
    boundary_rule,
    threshold_curve,
)

__all__ = [
    "AS_PRINTED",
    "CORRECTED",
    "METHODS",
    "BoundaryRule",
    "FiniteProblem",
    "GaussianExample",
    "PopulationOptimum",
    "PopulationValues",
    "ThresholdCurve",
    "best_threshold",
    "boundary_rule",
    "optimum",
    "population_values",
    "risk_coverage",
    "threshold_curve",
]


def __dir__() -> list[str]:
    return list(__all__)
