"""The compiled engine refuses what would make it read or write out of bounds."""

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest

from demur import InvalidInputError
from demur._kernels import compiled
from demur._kernels.engines import engine_name
from demur._kernels.exact import Goal, Linear

pytestmark = pytest.mark.skipif(not compiled.AVAILABLE, reason="the C extension is not built")

N = 40
GOAL = Goal(np.array([1, 0, 0]), True, 5, np.array([10]), np.zeros((1, 2), np.int64))


@pytest.fixture
def engine():
    from demur._kernels import _engine

    return _engine


@pytest.fixture
def tree():
    rng = np.random.default_rng(3)
    id = (np.arange(N) < 25).astype(np.int64)
    return compiled.prepare(rng.normal(size=(N, 2)), id, 1 - id[None], id * (np.arange(N) % 3 == 0))


def searched(tree, quarters=(0,), goal=GOAL, **options):
    return compiled.search(tree, quarters, goal, **options)


def enclosed(engine, tree, index, *values):
    node = tree.node.copy()
    node[index] = values
    engine.enclose(node, tree.point, np.empty_like(tree.box))


def test_it_takes_what_it_built(tree):
    assert searched(tree).status == "optimal"
    assert searched(tree, (0, 1, 2, 3)).status == "optimal"


# Of every function its name, and how many arguments each takes.
FUNCTIONS = (4, "3f7077da7213cb5a")


def test_functions_that_change_have_another_number(engine):
    sources = sorted(Path(compiled.__file__).parent.glob("csrc/*.c"))
    text = "".join(path.read_text(encoding="utf-8") for path in sources)
    named = re.findall(r'{"(\w+)", \w+, METH', text) + re.findall(r"takes\(args, [^)]+\)", text)
    digest = hashlib.sha256(" ".join(named).encode()).hexdigest()[:16]
    assert (engine.INTERFACE, digest) == FUNCTIONS, (
        "raise INTERFACE in csrc/module.c and the number in compiled.py, and put both here"
    )


def test_an_engine_of_other_sources_is_not_called(monkeypatch):
    monkeypatch.setattr(compiled, "IS_OF_OTHERS", True)
    monkeypatch.delenv("DEMUR_ENGINE", raising=False)
    with pytest.raises(InvalidInputError, match="build it again"):
        engine_name()
    monkeypatch.setenv("DEMUR_ENGINE", "numpy")
    assert engine_name() == "numpy"


def test_no_rows_are_no_rule():
    nothing = np.zeros(0, np.int64)
    tree = compiled.prepare(np.zeros((0, 2)), nothing, nothing[None], nothing)
    assert searched(tree).status == "infeasible"
    assert not compiled.frontier(tree, (0,), np.array([1]), np.array([1])).id.any()


@pytest.mark.parametrize("quarters", [(), (4,), (-1,), (0, 1, 2, 3, 0), (0, 2**40)])
def test_quarters_are_one_to_four_from_0_to_3(tree, quarters):
    with pytest.raises(ValueError, match=r"quarters|more than 4"):
        searched(tree, quarters)
    with pytest.raises(ValueError, match=r"quarters|more than 4"):
        compiled.frontier(tree, quarters, np.array([1]), np.array([1]))


@pytest.mark.parametrize("field", ["point", "node", "box", "mass", "sums", "unit", "tilt"])
def test_parts_of_a_tree_fit_together(tree, field):
    whole = getattr(tree, field)
    for wrong in (
        whole[:-1],
        np.concatenate([whole, whole[:1]]),
        whole.view(np.uint8).ravel()[:-1],
    ):
        with pytest.raises(ValueError, match=r"entries|bytes|tree"):
            searched(tree._replace(**{field: wrong}))


@pytest.mark.parametrize("sets", [-1, 0, 2, 2**20 + 1, 2**31 + 1, 2**62])
def test_the_number_of_sets_is_that_of_the_masses(tree, sets):
    with pytest.raises(ValueError, match="argument"):
        searched(tree._replace(sets=sets))


def test_nodes_have_points_and_children_that_exist(tree, engine):
    assert tree.node[0, 2] != 0
    for values in [(0, N + 1, 0), (-1, N, 0), (5, 4, 0)]:
        with pytest.raises(ValueError, match="do not exist"):
            enclosed(engine, tree, 1, *values)
    for child in (-1, len(tree.node) - 1, len(tree.node), 2**31 - 1):
        with pytest.raises(ValueError, match="do not exist"):
            enclosed(engine, tree, 0, 0, N, child)
    with pytest.raises(ValueError, match="do not exist"):
        enclosed(engine, tree, 2, 0, N, 1)


@pytest.mark.parametrize("root", [(0, N + 1), (0, N - 1), (1, N)])
def test_the_root_holds_all_points(tree, root):
    tree.node[0, :2] = root
    with pytest.raises(ValueError, match=f"not one over {N} points"):
        searched(tree)


def test_a_tilt_is_a_power_of_two_that_floats_have(tree):
    with pytest.raises(ValueError, match="tilt"):
        searched(tree._replace(tilt=np.array([901], np.int32)))


def test_a_budget_is_not_negative(tree):
    with pytest.raises(ValueError, match="argument 22 is -1"):
        searched(tree, budget=-1)
    with pytest.raises(OverflowError):
        searched(tree, budget=2**63)


@pytest.mark.parametrize("extra", [-1, 1, 2**20 + 1])
def test_the_number_of_extra_masses_is_that_of_the_masses(tree, extra):
    with pytest.raises(ValueError, match="argument"):
        searched(tree._replace(extra=extra))


@pytest.mark.parametrize("wrong", [0, 1, 2])
def test_linear_bounds_have_all_their_parts(tree, wrong):
    parts = [np.zeros(shape, np.int64) for shape in ((2, 3), (2,), (2, 2))]
    assert searched(tree, goal=GOAL._replace(linear=Linear(*parts))).status == "optimal"
    parts[wrong] = parts[wrong].ravel()[1:]
    with pytest.raises(ValueError, match="argument"):
        searched(tree, goal=GOAL._replace(linear=Linear(*parts)))


@pytest.mark.parametrize("wrong", [np.zeros((3, 2)), np.zeros(5)])
def test_bounds_are_one_per_set(tree, wrong):
    with pytest.raises(ValueError, match="argument"):
        searched(tree, goal=GOAL._replace(ratio=wrong))
    with pytest.raises(ValueError, match="argument"):
        searched(tree, goal=GOAL._replace(max_ood=wrong))


@pytest.mark.parametrize("point", [-1, N, 2**31 - 1])
def test_rows_are_points_that_exist(tree, engine, point):
    row = tree.row.copy()
    row[7] = point
    ones, no_extra, mass = np.ones(N, np.int64), np.zeros((0, N), np.int64), np.zeros((N, 4))
    with pytest.raises(ValueError, match="does not exist"):
        engine.collect(row, ones, ones[None], ones, no_extra, N, 1, 0, mass, np.zeros(2))


@pytest.mark.parametrize(("points", "sets"), [(-1, 1), (N, -3), (2**61, 1), (N, 2**61), (1, 1)])
def test_counts_are_those_of_the_arrays(tree, engine, points, sets):
    ones, extra, mass = np.ones(N, np.int64), np.zeros((0, N), np.int64), np.zeros((N, 4))
    with pytest.raises(ValueError, match="argument"):
        engine.collect(tree.row, ones, ones[None], ones, extra, points, sets, 0, mass, np.zeros(2))
    with pytest.raises(ValueError, match="argument"):
        engine.collect(tree.row, ones, ones[None], ones, extra, N, 1, sets - 2, mass, np.zeros(2))
    with pytest.raises(ValueError, match=r"argument|tree"):
        engine.total(tree.node, tree.mass, sets if sets != 1 else 2, tree.sums.copy())


def test_room_for_a_tree_is_that_of_its_rows(engine):
    def arrange(scores=N, code=N, point=N, row=N, node=2 * N, tilt=1):
        return engine.arrange(
            np.zeros((scores, 2)),
            np.empty(code, np.uint64),
            np.empty((point, 2)),
            np.empty(row, np.int32),
            np.empty((node, 3), np.int32),
            np.empty(tilt, np.int32),
        )

    assert arrange() == (1, 1)
    for wrong in [{"code": N - 1}, {"point": 1}, {"row": N + 1}, {"node": N}, {"tilt": 2}]:
        with pytest.raises(ValueError, match="entries instead of"):
            arrange(**wrong)


def test_arrays_are_contiguous_aligned_and_writable(tree, engine):
    raw = np.empty(16 * N + 1, np.uint8)
    askew = raw[1:].view(np.float64).reshape(N, 2)
    askew[:] = tree.point
    with pytest.raises(ValueError, match="not aligned"):
        engine.enclose(tree.node, askew, np.empty_like(tree.box))
    with pytest.raises((ValueError, BufferError), match="contiguous"):
        engine.enclose(tree.node, np.asfortranarray(tree.point), np.empty_like(tree.box))
    box = np.empty_like(tree.box)
    box.flags.writeable = False
    with pytest.raises((ValueError, BufferError), match=r"writable|read-only|WRITEABLE"):
        engine.enclose(tree.node, tree.point, box)


def test_arguments_are_counted(engine):
    with pytest.raises(TypeError, match="takes 3 arguments, got 0"):
        engine.enclose()
    with pytest.raises(TypeError, match="takes 10 arguments, got 1"):
        engine.collect(np.zeros(1))


def test_floats_beyond_their_range_leave_the_margin_as_it_is():
    """Differences of scores overflow: no direction has a width, and none is made up."""
    scores = np.array([[-1.5e308, -1.5e308], [1.5e308, 1.5e308]])
    id = np.ones(2, np.int64)
    tree = compiled.prepare(scores, id, np.zeros((1, 2), np.int64), np.zeros(2, np.int64))
    *direction, width = compiled.widest(
        tree, np.array([1.0, 0.0]), 0.0, np.array([1e-300, 1e-300]), (False, False)
    )
    assert len(direction) == 2
    assert not width < 0
