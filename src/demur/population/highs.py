"""The linear program of the bounded models, handed to SciPy's HiGHS as it stands.

The plain reference of `demur.population.lp`: the same program, solved by a general solver, with
mu read off its duals. It works in absolute tolerances of about 1e-7 and is slow
beyond some ten thousand inputs.
"""

from __future__ import annotations

import numpy as np

from demur._arrays import FloatArray

# Primal values closer to a limit than this are on it; HiGHS keeps its limits to 1e-7.
_TOLERANCE = 1e-7
_INFEASIBLE = 2


def solve(
    risk: FloatArray, ratio: FloatArray, room: FloatArray, max_ratio: float
) -> tuple[float, FloatArray] | None:
    """Minimise ``risk . z`` with ``sum z = 1``, ``ratio . z <= max_ratio``, ``0 <= z <= room``.

    Returns mu, the price of the second row, and z; None if the program is infeasible.
    """
    from scipy.optimize import linprog

    # Each row is divided by its right-hand side, so that tolerances are relative to it.
    row, bound = (ratio / max_ratio, 1.0) if 0 < max_ratio < np.inf else (ratio, max_ratio)
    bounded = bool(np.isfinite(max_ratio))
    result = linprog(
        risk,
        A_eq=np.ones((1, len(risk))),
        b_eq=[1.0],
        A_ub=row[None, :] if bounded else None,
        b_ub=[bound] if bounded else None,
        bounds=np.column_stack([np.zeros(len(room)), room]),
        method="highs",
    )
    if result.status == _INFEASIBLE:
        return None
    if result.status != 0:
        raise ArithmeticError(f"HiGHS did not solve the linear program: {result.message}")
    price = -float(result.ineqlin.marginals[0]) if bounded else 0.0
    mass = np.where(result.x < _TOLERANCE * np.minimum(room, 1.0), 0.0, result.x)
    mass = np.where(room - mass < _TOLERANCE * np.minimum(room, 1.0), room, mass)
    scale = max_ratio if 0 < max_ratio < np.inf else 1.0
    return price / scale, mass
