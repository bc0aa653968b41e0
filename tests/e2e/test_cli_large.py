"""Memory of `demur apply` on ten million rows; runs with DEMUR_LARGE=1."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from commands import ENVIRONMENT, command

import demur as dm

ROWS = 10_000_000
LIMIT = 1 << 30

# A process of its own: a child starts out with the peak memory of its parent.
MEASURE = """
import resource, subprocess, sys, time
start = time.monotonic()
code = subprocess.run(sys.argv[1:]).returncode
print(time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""

pytestmark = pytest.mark.skipif("DEMUR_LARGE" not in os.environ, reason="DEMUR_LARGE is not set")


@pytest.mark.parametrize("row_group", [1 << 20, ROWS])
def test_memory_stays_below_one_gibibyte(tmp_path, row_group):
    rng = np.random.default_rng(0)
    path = tmp_path / "s.parquet"
    schema = pa.schema(
        [("image", pa.string()), ("msp", pa.float64()), ("knn", pa.float64()), ("y", pa.int64())]
    )
    msp, knn = rng.gamma(1.5, size=ROWS), rng.normal(size=ROWS)
    names = pa.array(np.char.add("image_", np.arange(ROWS).astype(str)))
    table = pa.table([names, msp, knn, np.arange(ROWS)], schema=schema)
    pa.parquet.write_table(table, path, row_group_size=row_group)
    del table, names
    dm.Rule((0.6, 0.8), 1.25, score_names=("msp", "knn")).save(tmp_path / "r.json")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            MEASURE,
            *command("apply", "r.json", "s.parquet", "-o", "o.parquet"),
        ],
        cwd=tmp_path,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        text=True,
    )
    seconds, kibibytes = done.stdout.split()
    print(f"{float(seconds):.1f} s, {int(kibibytes) >> 10} MiB")
    assert done.returncode == 0
    assert int(kibibytes) << 10 < LIMIT
    written = pa.parquet.read_table(tmp_path / "o.parquet", columns=["accept"])["accept"]
    np.testing.assert_array_equal(written.to_numpy(), 0.6 * msp + 0.8 * knn <= 1.25)
