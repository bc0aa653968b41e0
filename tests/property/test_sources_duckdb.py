"""What only DuckDB can do: files, folders and queries as sources, and spilling to a folder."""

import gc
import subprocess
import sys
import tempfile
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from streams import unnamed

import demur as dm
from demur.sources.engines.duckdb import DuckDBSource
from demur.sources.open import Roles

ROLES = Roles(("a", "b"), loss="wrong", ood="ood")


@pytest.fixture
def connection():
    with duckdb.connect() as opened:
        yield opened


def scored(rng, n=300):
    return pa.table(
        {
            "a": rng.normal(size=n).astype(np.float32),
            "b": rng.normal(size=n),
            "wrong": rng.integers(0, 2, n),
            "ood": rng.random(n) < 0.3,
        }
    )


def as_sample(table):
    return dm.Sample.from_frame(table, ["a", "b"], loss="wrong", ood="ood")


def in_days(folder, rng, days=10):
    """Write a partition for each day, and return all rows."""
    tables = [scored(rng) for _ in range(days)]
    for day, table in enumerate(tables):
        (folder / f"day={day}").mkdir(parents=True)
        pq.write_table(table, folder / f"day={day}" / "part.parquet")
    return tables


@pytest.mark.parametrize("way", ["file", "pattern", "folder", "list", "csv", "query"])
def test_ways_to_name_the_rows(way, tmp_path, connection):
    tables = in_days(tmp_path / "scores", np.random.default_rng(0), days=3)
    every = pa.concat_tables(tables)
    pq.write_table(every, tmp_path / "all.parquet")
    pa.csv.write_csv(every, tmp_path / "all.csv")
    data = {
        "file": tmp_path / "all.parquet",
        "pattern": str(tmp_path / "scores" / "*" / "*.parquet"),
        "folder": tmp_path / "scores",
        "list": sorted((tmp_path / "scores").glob("*/*.parquet")),
        "csv": tmp_path / "all.csv",
        "query": None,
    }[way]
    if way == "query":
        data = connection.sql(f"SELECT * FROM '{tmp_path}/all.parquet'")
    model = dm.TprFprModel(0.6, 0.9)
    with DuckDBSource(data, ROLES) as source:
        assert dm.tune(source, model).point == dm.tune(as_sample(every), model).point


def test_operating_points_by_hive_partition(tmp_path):
    tables = in_days(tmp_path, np.random.default_rng(1), days=4)
    rule = dm.Rule((0.6, 0.8), 0.4)
    with DuckDBSource(tmp_path, ROLES) as source:
        points = dm.evaluate(rule, source, by="day", ood_prior=0.2)
        every = dm.evaluate(rule, source)
    assert sorted(points) == [0, 1, 2, 3]
    for day, table in enumerate(tables):
        assert points[day] == dm.evaluate(rule, as_sample(table), ood_prior=0.2)
    assert every == dm.evaluate(rule, as_sample(pa.concat_tables(tables)))


def test_a_wrong_type_in_the_tenth_partition_is_named(tmp_path):
    in_days(tmp_path, np.random.default_rng(2))
    file = tmp_path / "day=9" / "part.parquet"
    table = pq.read_table(file, partitioning=None)
    text = pa.array([f"x{i}" for i in range(len(table))])
    pq.write_table(table.set_column(1, "b", text), file)
    with pytest.raises(dm.InvalidInputError, match=r"scores: column 'b' of '.*day=9.* holds"):
        DuckDBSource(tmp_path, ROLES)


def test_a_missing_column_in_the_tenth_partition_is_named(tmp_path):
    in_days(tmp_path, np.random.default_rng(3))
    file = tmp_path / "day=9" / "part.parquet"
    pq.write_table(pq.read_table(file, partitioning=None).drop_columns("wrong"), file)
    with pytest.raises(dm.InvalidInputError, match=r"loss: '.*day=9.*' has no column 'wrong'"):
        DuckDBSource(tmp_path, ROLES)


def test_a_truncated_file_is_named(tmp_path):
    in_days(tmp_path, np.random.default_rng(4))
    file = tmp_path / "day=9" / "part.parquet"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(dm.InvalidInputError, match="day=9"):
        DuckDBSource(tmp_path, ROLES)


def test_a_damaged_column_is_named(tmp_path):
    in_days(tmp_path, np.random.default_rng(5))
    file = tmp_path / "day=9" / "part.parquet"
    chunk = pq.ParquetFile(file).metadata.row_group(0).column(1)
    raw = bytearray(file.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    raw[start : start + chunk.total_compressed_size] = b"\xff" * chunk.total_compressed_size
    file.write_bytes(raw)
    with DuckDBSource(tmp_path, ROLES) as source, pytest.raises(dm.InvalidInputError) as caught:
        dm.tune(source, dm.TprFprModel(0.5))
    assert "day=9" in str(caught.value) and "'b'" in str(caught.value)


def test_text_in_the_tenth_csv_is_named(tmp_path):
    rng = np.random.default_rng(6)
    for day in range(10):
        pa.csv.write_csv(scored(rng), tmp_path / f"{day}.csv")
    lines = (tmp_path / "9.csv").read_text().splitlines()
    lines[200] = "0.5,oops,1,true"
    (tmp_path / "9.csv").write_text("\n".join(lines))
    with pytest.raises(dm.InvalidInputError) as caught, DuckDBSource(tmp_path, ROLES) as source:
        dm.tune(source, dm.TprFprModel(0.5))
    assert "9.csv" in str(caught.value) and "oops" in str(caught.value)


def test_wider_types_in_later_files_are_kept(tmp_path):
    rng = np.random.default_rng(7)
    first, second = scored(rng), scored(rng)
    second = second.set_column(2, "wrong", pa.array(rng.random(len(second))))
    for name, table in (("0", first), ("1", second)):
        pq.write_table(table, tmp_path / f"{name}.parquet")
    every = pa.concat_tables([first, second], promote_options="permissive")
    model = dm.TprFprModel(0.7, 0.9)
    with DuckDBSource(tmp_path, ROLES) as source:
        there, here = dm.tune(source, model), dm.tune(as_sample(every), model)
    assert unnamed(there.totals) == unnamed(here.totals) and there.point == here.point


def test_progress_is_told(connection):
    seen = []
    relation = connection.from_arrow(scored(np.random.default_rng(9)))
    source = DuckDBSource(relation, ROLES, progress=lambda rows, total: seen.append((rows, total)))
    dm.tune(source, dm.TprFprModel(0.5))
    assert seen and all(pair == (300, 300) for pair in seen)


def test_formats_that_are_read_into_memory_only(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.zeros(3))
    with pytest.raises(dm.InvalidInputError, match="NPZ, which is read into memory only"):
        DuckDBSource(tmp_path / "a.npz", ROLES)
    with pytest.raises(dm.InvalidInputError, match="no file"):
        DuckDBSource(tmp_path / "*.parquet", ROLES)


def spill_folder(source):
    return Path(source._connection.sql("SELECT current_setting('temp_directory')").fetchall()[0][0])


def test_every_source_spills_into_a_folder_of_its_own(tmp_path, monkeypatch):
    pq.write_table(scored(np.random.default_rng(10)), tmp_path / "all.parquet")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    (tmp_path / "temp").mkdir()
    closed, forgotten = (DuckDBSource(tmp_path / "all.parquet", ROLES) for _ in range(2))
    folders = [spill_folder(closed), spill_folder(forgotten)]
    assert len(set(folders)) == 2
    for folder in folders:
        assert folder.parent == tmp_path / "temp"
        # Nobody else may look into it.
        assert folder.stat().st_mode & 0o777 == 0o700
    closed.close()
    closed.close()
    assert [folder.exists() for folder in folders] == [False, True]
    del forgotten
    gc.collect()
    assert not any((tmp_path / "temp").iterdir())


def test_a_source_that_is_still_open_at_exit_leaves_no_folder(tmp_path, monkeypatch):
    pq.write_table(scored(np.random.default_rng(11)), tmp_path / "all.parquet")
    (tmp_path / "temp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temp"))
    script = """
import os, sys, demur
source = demur.open_source(sys.argv[1], ["a", "b"], loss="wrong", ood="ood")
print(len(os.listdir(os.environ["TMPDIR"])), source.overview().rows)
"""
    command = [sys.executable, "-c", script, str(tmp_path / "all.parquet")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "300"], done.stderr
    assert not any((tmp_path / "temp").iterdir())


def test_a_source_that_cannot_be_opened_leaves_no_folder(tmp_path, monkeypatch):
    (tmp_path / "temp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temp"))
    (tmp_path / "bad.parquet").write_bytes(b"PAR1")
    with pytest.raises(dm.InvalidInputError, match=r"bad\.parquet"):
        DuckDBSource(tmp_path / "bad.parquet", ROLES)
    gc.collect()
    assert not any((tmp_path / "temp").iterdir())
