"""How rules are tuned, wherever a report tunes any."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from demur.core.models import RejectionModel
from demur.tuning.charts import Directions
from demur.tuning.result import Exact, Grid


@dataclass(frozen=True, slots=True)
class How:
    """A model and the options of `tune`."""

    model: RejectionModel
    directions: Directions
    search: Exact | Grid | None
    ood: Literal["pooled", "worst"]

    @property
    def worst(self) -> bool:
        """Whether bounds hold for every OOD set, not for all OOD rows together."""
        return self.ood == "worst"
