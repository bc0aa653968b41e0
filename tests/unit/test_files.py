"""Tables in files: what is read, what is refused, what is written."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from commands import FORMATS, write_table

from demur import _files
from demur.errors import InvalidInputError
from demur.sources import record_batches, tables


def awkward_table():
    return pa.table(
        {
            "s,1": [0.5, 1e-300, 3.0, 7.25],
            "count": pa.array([1, None, 2**60 + 1, 4]),
            "big": pa.array([2**63 + 1, 5, 6, 7], pa.uint64()),
            "flag": [True, None, False, True],
            "half": pa.array(np.array([0.5, 1.5, 2.5, 3.5], np.float16)),
            "set": pa.array(["id", None, "svhn", ""]).dictionary_encode(),
            "none": pa.nulls(4),
        }
    )


@pytest.mark.parametrize("suffix", ["parquet", "feather", "arrow"])
def test_columns_come_back_as_numbers_and_text(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    write_table(awkward_table(), path)
    assert tables.column_names(path) == awkward_table().column_names
    columns = tables.read_columns(path, ["set", "s,1", "count", "big", "flag", "half", "none"])
    assert list(columns) == ["set", "s,1", "count", "big", "flag", "half", "none"]
    assert columns["set"].tolist() == ["id", None, "svhn", ""]
    assert columns["s,1"].tolist() == [0.5, 1e-300, 3.0, 7.25]
    np.testing.assert_array_equal(columns["count"], [1, np.nan, 2.0**60, 4])
    assert columns["big"].tolist() == [2**63 + 1, 5, 6, 7]
    np.testing.assert_array_equal(columns["flag"], [1, np.nan, 0, 1])
    np.testing.assert_array_equal(columns["half"].astype(float), [0.5, 1.5, 2.5, 3.5])
    assert np.isnan(columns["none"]).all()


def test_csv_settles_on_a_type_after_the_whole_column(tmp_path):
    # A million bytes of whole numbers, then a fraction and a gap.
    rows = ["1,id"] * 250_000 + ["0.5,svhn", ",id"]
    (tmp_path / "t.csv").write_text("s,set\n" + "\n".join(rows) + "\n")
    columns = tables.read_columns(tmp_path / "t.csv", ["s", "set"])
    assert columns["s"][:250_001].sum() == 250_000.5
    assert np.isnan(columns["s"][-1])
    assert columns["set"][-2:].tolist() == ["svhn", "id"]
    stream = tables.open_stream(tmp_path / "t.csv")
    streamed = np.concatenate(
        [record_batches.batch_numbers(b, "s", text=True, first_row=0) for b in stream.batches]
    )
    np.testing.assert_array_equal(streamed, columns["s"])


def test_numbers_with_offsets_and_gaps_in_slices():
    rng = np.random.default_rng(0)
    values = rng.integers(-5, 5, 100).astype(float)
    gaps = rng.random(100) < 0.3
    for kind in (pa.float64(), pa.int32(), pa.float32()):
        array = pa.array(values, mask=gaps).cast(kind)
        for start, length in ((0, 100), (3, 50), (17, 83), (99, 1), (40, 0)):
            part = array.slice(start, length)
            expected = np.where(gaps, np.nan, values)[start : start + length]
            np.testing.assert_array_equal(record_batches.floats(part), expected)
    flags = pa.array(values > 0, mask=gaps).slice(11, 60)
    np.testing.assert_array_equal(
        record_batches.floats(flags), np.where(gaps, np.nan, values > 0)[11:71].astype(float)
    )


@pytest.mark.parametrize("text", ["x", "1_000", "0.5.5", "1,5"])
def test_text_that_is_no_number_is_named_by_row(text):
    batch = pa.record_batch({"s": ["1", " 2 ", "NaN", "", text]})
    with pytest.raises(InvalidInputError, match=re.escape(f"column 's', row 14 is {text!r}")):
        record_batches.batch_numbers(batch, "s", text=True, first_row=10)
    with pytest.raises(InvalidInputError, match="column 's' holds string, not numbers"):
        record_batches.batch_numbers(batch, "s", text=False, first_row=10)
    np.testing.assert_array_equal(
        record_batches.batch_numbers(batch.slice(0, 4), "s", text=True, first_row=0),
        [1, 2, np.nan, np.nan],
    )


@pytest.mark.parametrize("suffix", FORMATS)
def test_every_cut_of_a_file_is_refused_or_read_whole(tmp_path, suffix):
    table = pa.table({"s": np.arange(500.0), "t": [str(i) for i in range(500)]})
    path = tmp_path / f"t.{suffix}"
    write_table(table, path)
    content = path.read_bytes()
    for end in {0, 1, 5, 8, 100, len(content) // 2, len(content) - 9, len(content) - 1}:
        path.write_bytes(content[:end])
        try:
            tables.column_names(path)
            read = tables.read_columns(path, ["s"])["s"]
        except InvalidInputError as error:
            assert str(path) in str(error) or "holds" in str(error)
        else:
            # Text has no end mark: a CSV cut between rows is a shorter table. An Arrow stream
            # may lack its end mark.
            assert suffix in ("csv", "arrow")
            np.testing.assert_array_equal(read, np.arange(len(read)))


def test_a_column_list_only_reads_these_columns(tmp_path):
    write_table(awkward_table(), tmp_path / "t.arrow")
    stream = tables.open_stream(tmp_path / "t.arrow", ["count", "s,1"])
    assert stream.schema.names == ["count", "s,1"]
    assert [b.schema.names for b in stream.batches] == [["count", "s,1"]]


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_names_with_dots_and_names_given_twice(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    write_table(pa.table({"a": [1.0], "a.b": [2.0]}), path)
    assert tables.read_columns(path, ["a"])["a"].tolist() == [1]
    assert tables.read_columns(path, ["a.b"])["a.b"].tolist() == [2]
    write_table(pa.table([pa.array([1]), pa.array([2])], names=["a", "a"]), path)
    assert tables.column_names(path) == ["a", "a"]


def test_npz_arrays_must_be_columns(tmp_path):
    np.savez(tmp_path / "a.npz", s=np.zeros(3), t=np.zeros((3, 2)), u=np.zeros(4))
    assert tables.column_names(tmp_path / "a.npz") == ["s", "t", "u"]
    with pytest.raises(InvalidInputError, match=r"array 't' has shape \(3, 2\)"):
        tables.read_columns(tmp_path / "a.npz", ["s", "t"])
    with pytest.raises(InvalidInputError, match="different lengths: 's' 3, 'u' 4"):
        tables.read_columns(tmp_path / "a.npz", ["s", "u"])
    np.savez(tmp_path / "b.npz", s=np.array([{}, None], object))
    with pytest.raises(InvalidInputError, match="could run code"):
        tables.read_columns(tmp_path / "b.npz", ["s"])


def test_a_file_is_replaced_only_by_a_whole_one(tmp_path):
    target = tmp_path / "t.txt"
    target.write_text("old")
    with pytest.raises(RuntimeError), _files.replacing(target) as file:
        file.write(b"half")
        raise RuntimeError
    assert target.read_text() == "old"
    with _files.replacing(target) as file:
        file.write(b"new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert [p.name for p in tmp_path.iterdir()] == ["t.txt"]
    for wrong, message in {
        tmp_path: "is a folder",
        tmp_path / "no" / "t.txt": "does not exist",
    }.items():
        with pytest.raises(InvalidInputError, match=message):
            _files.write_atomically(wrong, "x")
