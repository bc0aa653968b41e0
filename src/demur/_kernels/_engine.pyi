import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int64]
_Ints32 = npt.NDArray[np.int32]
_Floats = npt.NDArray[np.float64]

def arrange(scores: _Floats, point: _Floats, row: _Ints32, tilt: _Ints32, /) -> int: ...
def collect(
    row: _Ints32, id: _Ints, ood: _Ints, loss: _Ints, mass: _Ints, unit: _Ints, /
) -> None: ...
def enclose(point: _Floats, box: _Floats, /) -> None: ...
def total(mass: _Ints, sums: _Ints, sets: int, /) -> None: ...
def search(
    point: _Floats,
    box: _Floats,
    mass: _Ints,
    sums: _Ints,
    unit: _Ints,
    tilt: _Ints32,
    sets: int,
    objective: _Ints,
    per_id: bool,
    min_id: int,
    max_ood: _Ints,
    ratio: _Ints,
    quarters: _Ints,
    start: _Floats,
    gap: float,
    budget: int,
    weights: _Floats,
    v: _Floats,
    /,
) -> tuple[int, int, int, int, str, float, int, int]: ...
