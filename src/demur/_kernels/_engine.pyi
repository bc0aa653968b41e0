import numpy as np
import numpy.typing as npt

_Ints = npt.NDArray[np.int64]
_Ints32 = npt.NDArray[np.int32]
_Floats = npt.NDArray[np.float64]

def arrange(
    scores: _Floats,
    room: npt.NDArray[np.uint64],
    point: _Floats,
    row: _Ints32,
    node: _Ints32,
    tilt: _Ints32,
    /,
) -> tuple[int, int]: ...
def enclose(node: _Ints32, point: _Floats, box: _Floats, /) -> None: ...
def collect(
    row: _Ints32,
    id: _Ints,
    ood: _Ints,
    loss: _Ints,
    points: int,
    sets: int,
    mass: _Ints,
    unit: _Ints,
    /,
) -> None: ...
def total(node: _Ints32, mass: _Ints, sets: int, sums: _Ints, /) -> None: ...
def search(
    point: _Floats,
    node: _Ints32,
    box: _Floats,
    mass: _Ints,
    sums: _Ints,
    unit: _Ints,
    tilt: _Ints32,
    sets: int,
    objective: _Ints,
    per_id: int,
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
def directions(
    point: _Floats,
    node: _Ints32,
    box: _Floats,
    mass: _Ints,
    sums: _Ints,
    unit: _Ints,
    tilt: _Ints32,
    sets: int,
    objective: _Ints,
    per_id: int,
    min_id: int,
    max_ood: _Ints,
    ratio: _Ints,
    weights: _Floats,
    each: int,
    masses: _Ints,
    v: _Floats,
    /,
) -> int: ...
def frontier(
    point: _Floats,
    node: _Ints32,
    box: _Floats,
    mass: _Ints,
    sums: _Ints,
    unit: _Ints,
    tilt: _Ints32,
    sets: int,
    quarters: _Ints,
    id_levels: _Ints,
    ood_levels: _Ints,
    masses: _Ints,
    risk: _Floats,
    weights: _Floats,
    v: _Floats,
    /,
) -> tuple[int, int]: ...
def sides(
    point: _Floats,
    node: _Ints32,
    box: _Floats,
    mass: _Ints,
    sums: _Ints,
    unit: _Ints,
    tilt: _Ints32,
    sets: int,
    weight: _Floats,
    v: float,
    along: _Floats,
    /,
) -> tuple[float, float]: ...
def widest(
    point: _Floats,
    node: _Ints32,
    box: _Floats,
    mass: _Ints,
    sums: _Ints,
    unit: _Ints,
    tilt: _Ints32,
    sets: int,
    weight: _Floats,
    v: float,
    scale: _Floats,
    nonneg: _Ints,
    /,
) -> tuple[float, float, float]: ...
def metrics(
    correct: _Floats, wrong: _Floats, ood: _Floats, prior: float, min_id: int, values: _Floats, /
) -> None: ...
