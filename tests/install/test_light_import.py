"""demur imports and tunes with nothing but NumPy, and says which extra is missing otherwise."""

import subprocess
import sys
import textwrap

BLOCKED = [
    "scipy",
    "narwhals",
    "click",
    "matplotlib",
    "jinja2",
    "markupsafe",
    "sklearn",
    "pandas",
    "polars",
    "pyarrow",
    "duckdb",
    "torch",
    "dask",
    "pyspark",
    "sqlalchemy",
    "sqlglot",
    "deltalake",
    "pyiceberg",
]


def run(code, *, blocked=BLOCKED):
    block = f"""
    import sys
    class Blocker:
        def find_spec(self, name, path=None, target=None):
            if name.split(".")[0] in {blocked!r}:
                raise ModuleNotFoundError(f"No module named {{name!r}}", name=name.split(".")[0])
    sys.meta_path.insert(0, Blocker())
    """
    script = textwrap.dedent(block) + textwrap.dedent(code)
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)


def test_tuning_needs_numpy_only():
    done = run("""
    import demur as dm
    import numpy as np
    rng = np.random.default_rng(0)
    sample = dm.Sample(rng.normal(size=(50, 2)), rng.random(50) < .2, rng.normal(1, size=(20, 2)))
    for model in (dm.TprFprModel(.5, .5), dm.PrecisionRecallModel(.5, .5, .2), dm.CostModel(.1)):
        print(dm.tune(sample, model).point.tpr)
    """)
    assert done.stderr == ""
    assert len(done.stdout.split()) == 3


def test_import_brings_no_optional_package():
    done = run(
        f"""
        import demur, sys
        print(sorted({{name.split(".")[0] for name in sys.modules}} & set({BLOCKED!r})))
        """,
        blocked=[],
    )
    assert done.stdout.strip() == "[]"


def test_missing_extra_is_named():
    done = run("""
    import demur as dm
    from demur.reproduce import synthetic
    try:
        synthetic.write_figures("nowhere")
    except dm.MissingExtraError as error:
        print(error)
    """)
    assert "pip install 'demur[report]'" in done.stdout, done.stderr


def test_tuning_a_small_file_imports_nothing_heavy(tmp_path):
    """What a command does not use costs time at every start."""
    # As files are: OOD inputs have no loss.
    losses = [str(int(i % 9 == 0)) if i <= 60 else "" for i in range(100)]
    rows = [f"{i % 7 / 10},{i % 5 / 10},{losses[i]},{int(i > 60)}" for i in range(100)]
    table = tmp_path / "scores.csv"
    table.write_text("\n".join(["r,g,wrong,ood", *rows]))
    done = run(
        f"""
        import contextlib, io, sys
        from demur.cli import main
        sys.argv = "demur tune {table} --scores r,g --loss wrong --ood ood --min-tpr .5".split()
        with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()) as out:
            main()
        assert "Accept an input" in out.getvalue()
        print(*sorted(sys.modules))
        """,
        blocked=[],
    )
    assert done.returncode == 0, done.stderr
    imported = set(done.stdout.split())
    assert "demur.tuning.tune" in imported
    packages = set(BLOCKED) - {"click", "pyarrow"} | {
        "asyncio",
        "concurrent.futures",
        "importlib.metadata",
        "multiprocessing",
        "numpy.ma",
        "pyarrow.compute",
        "secrets",
        "ssl",
        "unittest",
    }
    rooms = {
        "report",
        "reproduce",
        "watch",
        "learn",
        "guarantees",
        "metrics",
        "detectors",
        "adapters",
    }
    unasked = packages | {f"demur.{room}" for room in rooms} | {"demur.tuning.merged_rows"}
    assert imported & unasked == set()
