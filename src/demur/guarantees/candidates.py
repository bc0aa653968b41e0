"""Learning candidate rules, safest first, from rows that will not test them."""

from __future__ import annotations

from dataclasses import dataclass

from demur.core.models import RejectionModel
from demur.core.rule import Rule
from demur.core.sample import Sample
from demur.errors import InfeasibleError
from demur.guarantees.requirements import Requirement
from demur.tuning.charts import Directions
from demur.tuning.prepared import Prepared, prepare
from demur.tuning.result import Exact, Grid
from demur.tuning.tune import tune

_LARGEST_MARGIN, _SMALLEST_MARGIN = 3.5, -3.0
_STEPS = (1.0, 1.75, 2.5, 3.25)
_BISECTIONS = 5


@dataclass(frozen=True, slots=True)
class Learner:
    """Everything that may look at the learning rows."""

    rows: Sample
    ready: Prepared
    """The same rows, sorted once for all candidates."""
    directions: Directions | None
    search: Exact | Grid | None

    @classmethod
    def of(
        cls, rows: Sample, directions: Directions | None, search: Exact | Grid | None
    ) -> Learner:
        """Prepare the learning rows."""
        return cls(rows, prepare(rows), directions, search)

    def rule(self, model: RejectionModel) -> Rule:
        """Return the rule tuned on the learning rows."""
        try:
            return tune(self.ready, model, directions=self.directions, search=self.search).rule
        except InfeasibleError as error:
            raise InfeasibleError(
                f"{error} (on the {self.rows.n_id} ID and {self.rows.n_ood} OOD rows set aside "
                "for learning)",
                model=error.model,
                attainable=error.attainable,
            ) from None

    def candidates(self, requirement: Requirement, plain: Rule) -> list[tuple[float, Rule]]:
        """Return margins and rules, safest first; empty when no counts could prove the bounds.

        The first has the largest margin that a rule reaches on the learning rows, found by
        bisection since less margin is easier; `plain` stands in where none is reached.
        """
        if requirement.tightened(_SMALLEST_MARGIN) is None:
            return []
        margin, rule = self.safest(requirement, plain)
        found = [(margin, rule)]
        for step in _STEPS:
            # Below no margin at all a test fails more often than not.
            if found[-1][0] <= 0:
                break
            bolder = self._at(requirement, margin - step)
            if bolder is not None and all(bolder != known for _, known in found):
                found.append((margin - step, bolder))
        return found

    def safest(self, requirement: Requirement, plain: Rule) -> tuple[float, Rule]:
        """Return the rule with the largest margin that any reaches, or else `plain`."""
        rule = self._at(requirement, _LARGEST_MARGIN)
        if rule is not None:
            return _LARGEST_MARGIN, rule
        low, high, best = _SMALLEST_MARGIN, _LARGEST_MARGIN, plain
        for _ in range(_BISECTIONS):
            middle = (low + high) / 2
            rule = self._at(requirement, middle)
            if rule is None:
                high = middle
            else:
                low, best = middle, rule
        return low, best

    def _at(self, requirement: Requirement, margin: float) -> Rule | None:
        safer = requirement.tightened(margin)
        if safer is None:
            return None
        try:
            return self.rule(safer)
        except InfeasibleError:
            return None
