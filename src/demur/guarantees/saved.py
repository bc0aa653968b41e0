"""Saved operating points: tuning again, for another prior say, without the rows."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from demur._arrays import FloatArray, IntArray
from demur._files import write_atomically
from demur._kernels import exact
from demur.core.models import RejectionModel
from demur.core.points import Points
from demur.core.program import Program, Totals
from demur.core.rates import operating_point
from demur.core.rule import Rule
from demur.errors import InfeasibleError, InvalidInputError
from demur.tuning.infeasible import infeasible_error
from demur.tuning.result import Certificate, Tuning

FORMAT = "demur.operating_points"
VERSION = 1


@dataclass(frozen=True, slots=True, eq=False)
class OperatingTable:
    """Rules and what each accepts of a sample: counts only, no rows.

    Masses are integers in the units of `totals`. Made by `operating_table`.
    """

    directions: FloatArray
    """Shape (n, k)."""
    thresholds: FloatArray
    accepted_id: IntArray
    accepted_ood: IntArray
    accepted_loss: IntArray
    totals: Totals
    complete: bool
    """Whether every rule that can be optimal is here; False for two scores."""
    score_names: tuple[str, ...] | None = None

    def tune(self, model: RejectionModel) -> Tuning:
        """Return the best of the saved rules under `model`.

        For one score this is the rule that `demur.tune` finds on the rows themselves.

        Raises
        ------
        InfeasibleError
            No saved rule meets the bounds; carries the nearest attainable ones.
        """
        row = self._best(model.program(self.totals))
        if row is None:
            raise self._unable(infeasible_error(model, self._no_rows(), self._attained))
        point = operating_point(
            id_mass=int(self.accepted_id[row]),
            ood_masses=[int(self.accepted_ood[row])],
            loss_mass=int(self.accepted_loss[row]),
            totals=self.totals,
            model=model,
        )
        rule = Rule(
            tuple(self.directions[row]), float(self.thresholds[row]), score_names=self.score_names
        )
        certificate = Certificate("optimal" if self.complete else "grid")
        return Tuning(rule, point, model, self.totals, certificate)

    def _unable(self, error: InfeasibleError) -> InfeasibleError:
        """Say that only saved rules were tried, where the rows may give others."""
        if self.complete:
            return error
        saved = f"of the {len(self.thresholds)} rules saved; the rows may give others"
        return InfeasibleError(f"{error} ({saved})", model=error.model, attainable=error.attainable)

    def _best(self, program: Program) -> int | None:
        bounds = np.array(program.max_ood), np.array(program.ratio)
        met = exact.feasible(self.accepted_id, self.accepted_ood[None], program.min_id, *bounds)
        rows = np.flatnonzero(met)
        objective = np.array([program.loss, program.id, program.ood])
        masses = self.accepted_id[rows], self.accepted_ood[rows], self.accepted_loss[rows]
        kept = exact.best(*masses, objective, program.per_id)
        return int(rows[kept[0]]) if len(kept) else None

    def _attained(self, program: Program) -> tuple[int, int] | None:
        row = self._best(program)
        return None if row is None else (int(self.accepted_id[row]), int(self.accepted_ood[row]))

    def _no_rows(self) -> Points:
        none = np.empty(0, np.int64)
        scores = np.empty((0, self.directions.shape[1]))
        return Points(scores, none, none[None], none, self.totals)

    def to_json(self) -> str:
        """Return the table as strict JSON; numbers round-trip exactly."""
        return json.dumps(
            {
                "format": FORMAT,
                "version": VERSION,
                "directions": self.directions.tolist(),
                # JSON has no infinities.
                "thresholds": ["-inf" if t == -math.inf else t for t in self.thresholds.tolist()],
                "accepted_id": self.accepted_id.tolist(),
                "accepted_ood": self.accepted_ood.tolist(),
                "accepted_loss": self.accepted_loss.tolist(),
                "totals": asdict(self.totals),
                "complete": self.complete,
                "score_names": self.score_names,
            },
            allow_nan=False,
        )

    @classmethod
    def from_json(cls, text: str) -> OperatingTable:
        """Read a table written by `to_json`."""
        try:
            data = json.loads(text)
            if data["format"] != FORMAT or data["version"] != VERSION:
                raise InvalidInputError(f"this is not {FORMAT} of version {VERSION}")
            masses = ("accepted_id", "accepted_ood", "accepted_loss")
            names = data["score_names"]
            table = cls(
                directions=np.array(data["directions"], np.float64),
                thresholds=np.array([float(t) for t in data["thresholds"]]),
                **{name: np.array(data[name], np.int64) for name in masses},
                totals=Totals(**{**data["totals"], "ood": tuple(data["totals"]["ood"])}),
                complete=bool(data["complete"]),
                score_names=None if names is None else tuple(names),
            )
        except InvalidInputError:
            raise
        except (ValueError, TypeError, KeyError) as error:
            raise InvalidInputError(f"the saved operating points cannot be read: {error}") from None
        table._refuse_damage()
        return table

    def _refuse_damage(self) -> None:
        """Raise unless every rule has a direction, a threshold and counts within the totals."""
        rules = self.thresholds.shape
        accepted = (self.accepted_id, self.accepted_ood, self.accepted_loss)
        totals = (self.totals.id, sum(self.totals.ood), self.totals.loss)
        sound = (
            len(rules) == 1
            and self.directions.shape in ((*rules, 1), (*rules, 2))
            and not np.isnan(self.thresholds).any()
            and np.isfinite(self.directions).all()
            and all(
                masses.shape == rules and ((masses >= 0) & (masses <= total)).all()
                for masses, total in zip(accepted, totals, strict=True)
            )
        )
        if not sound:
            raise InvalidInputError(
                "the saved operating points are damaged: their lists do not fit together; write "
                "them anew, with demur tune --counts or OperatingTable.save"
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the table to `path`; an interrupted write leaves the old file as it was."""
        write_atomically(path, self.to_json() + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> OperatingTable:
        """Read a table written by `save`."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InvalidInputError(f"cannot read {str(path)!r}: {error}") from None
        return cls.from_json(text)
