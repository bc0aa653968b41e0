"""Many threads tune at once, each as if alone; vectors of any width find the same."""

import subprocess
import sys
import sysconfig
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import demur as dm
from demur._kernels import compiled
from demur._kernels.engines import NAMES, VARIABLE

needs_compiled = pytest.mark.skipif(not compiled.AVAILABLE, reason="no C extension")
ENGINES = [pytest.param(name, marks=needs_compiled if name == "compiled" else ()) for name in NAMES]


def drawn(seed, rows=400):
    rng = np.random.default_rng(seed)
    id_ = rng.normal(size=(rows, 2)).round(seed % 3 + 1)
    return dm.Sample(id_, rng.random(rows) < 0.3, rng.normal(0.7, 1, (rows, 2)).round(3))


def found_on(sample):
    tuned = dm.tune(sample, dm.TprFprModel(0.6, 0.6), directions="circle")
    frontier = dm.frontier(sample, min_tpr=[0.3, 0.6], max_fpr=[0.2, 0.9])
    return tuned.rule.direction, tuned.rule.threshold, tuned.point, frontier.accepted_id.tolist()


@pytest.mark.parametrize("engine", ENGINES)
def test_threads_tune_at_once(engine, monkeypatch):
    monkeypatch.setenv(VARIABLE, engine)
    samples = [drawn(seed) for seed in range(6)]
    alone = [found_on(sample) for sample in samples]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(found_on, samples * 2))
    for found, expected in zip(together, alone * 2, strict=True):
        np.testing.assert_equal(found, expected)


@needs_compiled
def test_threads_share_what_was_prepared(monkeypatch):
    monkeypatch.setenv(VARIABLE, "compiled")
    models = [dm.TprFprModel(share, 0.6) for share in np.arange(0.2, 0.8, 0.05).round(2)]
    alone = [dm.tune(dm.prepare(drawn(1)), model).point for model in models]
    ready = dm.prepare(drawn(1))
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda model: dm.tune(ready, model).point, models))
    np.testing.assert_equal(together, alone)


@needs_compiled
def test_other_threads_go_on_during_a_search(monkeypatch):
    monkeypatch.setenv(VARIABLE, "compiled")
    rng = np.random.default_rng(0)
    sample = dm.Sample(
        rng.normal(size=(8000, 2)), rng.random(8000) < 0.5, rng.normal(size=(8000, 2))
    )
    search = threading.Thread(
        target=dm.tune, args=(sample, dm.TprFprModel(0.8, 1)), kwargs={"directions": "circle"}
    )
    search.start()
    turns = 0
    while search.is_alive():
        time.sleep(0.001)
        turns += 1
    assert turns > 5


@needs_compiled
@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this CPython has the lock"
)
def test_the_engine_leaves_the_lock_off():
    code = "import sys, demur._kernels._engine; print(sys._is_gil_enabled())"
    # CPython warns when a module makes it take the lock.
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout == "False\n"


@needs_compiled
def test_vectors_of_any_width_find_the_same():
    from demur._kernels import _engine

    samples = [drawn(seed) for seed in range(3)]
    try:
        widest = _engine.vectors(-1)
        expected = [found_on(sample) for sample in samples]
        for version in range(widest):
            assert _engine.vectors(version) == version
            np.testing.assert_equal([found_on(sample) for sample in samples], expected)
        with pytest.raises(ValueError, match="from -1 to"):
            _engine.vectors(widest + 1)
    finally:
        _engine.vectors(-1)
