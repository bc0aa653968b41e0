"""Known distributions: the optimal rules of the theory, to compare with what samples give."""

from demur.population.bayes import FiniteProblem
from demur.population.boundary import BoundaryRule, boundary_rule
from demur.population.gaussian import AS_PRINTED, CORRECTED, GaussianExample
from demur.population.methods import METHODS, PopulationValues, population_values, risk_coverage
from demur.population.result import PopulationOptimum
from demur.population.solve import optimum
from demur.population.thresholds import ThresholdCurve, best_threshold, threshold_curve

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
