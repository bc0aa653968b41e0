"""The same rows in every format, packing and dialect are the same table."""

import bz2
import gzip
import io
import json
import sys

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import demur as dm
from demur.errors import ReadingWarning
from demur.sources import files, record_batches, tables

ROWS = [
    {"s": 0.5, "n": 1, "set": "id", "x": None},
    {"s": -1.25, "n": 2, "set": "a,b;c", "x": 2.5},
    {"s": 1e-300, "n": 3, "set": 'say "hi"', "x": None},
]
NAMES = ["s", "n", "set", "x"]


def csv(separator=","):
    lines = [separator.join(NAMES)]
    for row in ROWS:
        quoted = '"' + row["set"].replace('"', '""') + '"'
        x = "" if row["x"] is None else repr(row["x"])
        lines.append(separator.join([repr(row["s"]), str(row["n"]), quoted, x]))
    return ("\n".join(lines) + "\n").encode()


def zst(content):
    return pa.compress(content, codec="zstd", asbytes=True)


LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
CONTENTS = {
    "a.csv": csv(),
    "bom.csv": b"\xef\xbb\xbf" + csv(),
    "crlf.csv": csv().replace(b"\n", b"\r\n"),
    "tabs.tsv": csv("\t"),
    "tabs.tsv.gz": gzip.compress(csv("\t")),
    "semicolons.csv": csv(";"),
    "tabs.csv": csv("\t"),
    "bars.csv": csv("|"),
    "a.csv.gz": gzip.compress(csv()),
    "A.CSV.GZ": gzip.compress(csv()),
    "a.csv.zst": zst(csv()),
    "a.csv.bz2": bz2.compress(csv()),
    "a.jsonl": LINES,
    "a.ndjson": LINES,
    "blank.jsonl": LINES.replace(b"\n", b"\n\n"),
    "a.jsonl.gz": gzip.compress(LINES),
    "a.jsonl.zst": zst(LINES),
    "a.json": json.dumps(ROWS).encode(),
    "a.json.gz": gzip.compress(json.dumps(ROWS).encode()),
}
SNIFFED = {"semicolons.csv": "semicolons", "tabs.csv": "tabs", "bars.csv": "vertical bars"}


def check(path):
    assert tables.table_columns(path) == NAMES
    columns = tables.read_table(path, NAMES)
    assert columns["s"].tolist() == [0.5, -1.25, 1e-300]
    assert columns["n"].tolist() == [1, 2, 3]
    assert columns["set"].tolist() == [row["set"] for row in ROWS]
    np.testing.assert_array_equal(columns["x"], [np.nan, 2.5, np.nan])
    stream = tables.open_stream(path, ["x", "s"])
    assert stream.schema.names == ["x", "s"]
    for name in ("s", "x"):
        read = [
            record_batches.batch_numbers(batch, name, text=stream.text, first_row=0)
            for batch in tables.open_stream(path).batches
        ]
        np.testing.assert_array_equal(np.concatenate(read), columns[name])


@pytest.mark.parametrize("name", CONTENTS)
def test_formats(name, tmp_path):
    (tmp_path / name).write_bytes(CONTENTS[name])
    if name in SNIFFED:
        with pytest.warns(ReadingWarning, match=f"separated by {SNIFFED[name]}"):
            check(tmp_path / name)
    else:
        check(tmp_path / name)


@pytest.mark.parametrize("content", [csv(), LINES, json.dumps(ROWS).encode()])
def test_standard_input(content, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
    check("-")
    with pytest.raises(dm.InvalidInputError, match="standard input, which is read into memory"):
        dm.open_source("-", "s", loss="n")


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv.gz"])
def test_engines_say_what_to_do(name, tmp_path):
    (tmp_path / name).write_bytes(CONTENTS[name])
    for engine in ("duckdb", "dask", "spark"):
        with pytest.raises(
            dm.InvalidInputError, match="read into memory only; write it as Parquet"
        ):
            dm.open_source(tmp_path / name, "s", loss="n", engine=engine)


def write_excel(path, rows):
    book = openpyxl.Workbook()
    for row in rows:
        book.active.append(row)
    book.save(path)


def test_excel(tmp_path):
    rows = [NAMES, *(list(row.values()) for row in ROWS), [None] * 4]
    write_excel(tmp_path / "a.xlsx", rows)
    check(tmp_path / "a.xlsx")
    sample = dm.Sample.from_frame(
        dict_frame(tables.read_table(tmp_path / "a.xlsx", ["s", "n", "set"])), "s", loss="n"
    )
    assert sample.n_id == 3
    # Cells are what they are, not what pandas takes them for.
    write_excel(tmp_path / "b.xlsx", [["set", "y", 2020], ["NA", 1, 0.5], ["None", "x", 1], [None]])
    found = tables.read_table(tmp_path / "b.xlsx", ["set", "y", "2020"])
    assert found["set"].tolist() == ["NA", "None"] and found["y"].tolist() == [1, "x"]
    assert found["2020"].tolist() == [0.5, 1.0]
    write_excel(tmp_path / "c.xlsx", [["s", "s"], [1, 2]])
    with pytest.raises(dm.InvalidInputError, match="several columns called 's'"):
        tables.table_columns(tmp_path / "c.xlsx")
    write_excel(tmp_path / "d.xlsx", [])
    with pytest.raises(dm.InvalidInputError):
        tables.read_table(tmp_path / "d.xlsx", ["s"])


def dict_frame(columns):
    import pandas

    return pandas.DataFrame(columns)


def test_the_sheet_that_is_read_is_said(tmp_path):
    book = openpyxl.Workbook()
    book.active.append(["s"])
    book.active.append([1])
    book.create_sheet("other").append(["t"])
    book.save(tmp_path / "a.xlsx")
    with pytest.warns(ReadingWarning, match="2 sheets, of which the first, 'Sheet', is"):
        assert tables.table_columns(tmp_path / "a.xlsx") == ["s"]


def test_excel_without_its_reader(tmp_path, monkeypatch):
    write_excel(tmp_path / "a.xlsx", [["s"], [1]])
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(dm.InvalidInputError, match=r"need pandas and openpyxl .* as CSV"):
        tables.table_columns(tmp_path / "a.xlsx")


def test_json_kinds(tmp_path):
    rows = [{"a": 1, "b": True, "c": "1", "d": 2**70}, {"a": 2, "c": 1, "d": 1, "e": [1]}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns = tables.read_columns(tmp_path / "a.jsonl", ["a", "b", "c", "d", "e"])
    assert columns["a"].dtype == np.int64
    np.testing.assert_array_equal(columns["b"], [1, np.nan])
    assert columns["c"].tolist() == ["1", 1]
    assert columns["d"].tolist() == [2.0**70, 1]
    assert columns["e"].tolist() == [None, [1]]


def test_names_but_for_spaces(tmp_path):
    (tmp_path / "a.csv").write_text("id, s,t ,l\n1,.5,.25,0\n2,.75,.5,1\n")
    assert tables.table_columns(tmp_path / "a.csv") == ["id", " s", "t ", "l"]
    columns = tables.read_table(tmp_path / "a.csv", ["s", "t ", "l"])
    assert columns["s"].tolist() == [0.5, 0.75] and columns["t "].tolist() == [0.25, 0.5]
    stream = tables.open_stream(tmp_path / "a.csv", ["id", " s", "s"])
    assert next(stream.batches).to_pydict() == {
        "id": ["1", "2"],
        " s": [".5", ".75"],
        "s": [".5", ".75"],
    }
    with pytest.warns(ReadingWarning, match="'s' is taken for the column ' s'"):
        source = dm.open_source(tmp_path / "a.csv", ["s", " t"], loss="l")
    assert source.overview().low.tolist() == [0.5, 0.25]
    assert source.score_names == ("s", " t")
    source.close()
    frame = pa.table({" s": [0.5], "l": [1]})
    with pytest.warns(ReadingWarning, match="'s' is taken for the column ' s'"):
        sample = dm.Sample.from_frame(frame, ["s"], loss="l")
    with pytest.warns(ReadingWarning):
        assert dm.Rule((1.0,), 0.6, score_names=("s",)).accept(frame).tolist() == [True]
    assert sample.score_names == ("s",)
    # Exact names come first, and two alike are none.
    (tmp_path / "b.csv").write_text(" s,s,s \n1,2,3\n")
    assert tables.read_table(tmp_path / "b.csv", ["s"])["s"].tolist() == [2]
    (tmp_path / "b.csv").write_text(" s,s \n1,2\n")
    with pytest.raises(dm.InvalidInputError, match="no column 's'"):
        tables.read_table(tmp_path / "b.csv", ["s"])


def lake(folder, parts, suffix="parquet"):
    """Write a file for each folder."""
    for place, (name, table) in enumerate(parts.items()):
        (folder / name).mkdir(parents=True)
        path = folder / name / f"{place}.{suffix}"
        if suffix == "parquet":
            pq.write_table(table, path)
        else:
            pa.csv.write_csv(table, path)


def part(seed):
    rng = np.random.default_rng(seed)
    return pa.table({"s": rng.random(20), "l": rng.integers(0, 2, 20)})


def test_hive_columns_in_memory(tmp_path):
    sets = ("id", "svhn", "far away", "__HIVE_DEFAULT_PARTITION__")
    lake(
        tmp_path,
        {f"set={name.replace(' ', '%20')}/day={i}": part(i) for i, name in enumerate(sets)},
    )
    assert tables.table_columns(tmp_path) == ["s", "l", "set", "day"]
    columns = tables.read_table(tmp_path, ["set", "day", "s"])
    assert sorted(set(columns["set"].tolist()), key=str) == [None, "far away", "id", "svhn"]
    assert sorted(set(columns["day"].tolist())) == [0, 1, 2, 3]
    assert columns["s"][columns["set"] == "svhn"].tolist() == part(1)["s"].to_pylist()
    one = next(iter((tmp_path / "set=svhn").rglob("*.parquet")))
    assert set(tables.read_table(one, ["set"])["set"]) == {"svhn"}
    assert len(tables.read_table(one, ["day"])["day"]) == 20


def test_marks_in_names_are_no_patterns(tmp_path):
    for name in ("a[1].csv", "a1.csv", "b*.csv", "bb.csv", "c?.csv", "cc.csv"):
        (tmp_path / name).write_text(f"s,l\n{'1' if name[1] in '[*?' else '9'},0\n")
    for name in ("a[1].csv", "b*.csv", "c?.csv"):
        assert not files.is_partitioned(tmp_path / name)
        assert tables.read_table(tmp_path / name, ["s"])["s"].tolist() == [1]
    folder = tmp_path / "d[1]"
    folder.mkdir()
    (folder / "x.csv").write_text("s,l\n1,0\n")
    (tmp_path / "d1").mkdir()
    (tmp_path / "d1" / "x.csv").write_text("s,l\n9,0\n")
    for path in (folder, folder / "x.csv", folder / "*.csv"):
        assert tables.read_table(path, ["s"])["s"].tolist() == [1]


@pytest.mark.parametrize("suffix", ["csv", "tsv", "jsonl", "parquet", "arrow"])
def test_written_files_are_read_back(suffix, tmp_path):
    table = pa.table({"s": [0.5, None], "set": ["a\tb", 'c,"d"'], "n": [1, 2]})
    path = tmp_path / f"a.{suffix}"
    schema = record_batches.decision_schema(table.schema, table.column_names, "accept")
    with (
        open(path, "wb") as file,
        record_batches.open_writer(file, files.output_format(path), schema) as write,
    ):
        for batch in table.to_batches():
            write(record_batches.with_decision(batch, schema, np.array([True, False])))
    assert tables.column_names(path) == ["s", "set", "n", "accept"]
    columns = tables.read_columns(path, ["s", "set", "n", "accept"])
    np.testing.assert_array_equal(columns["s"], [0.5, np.nan])
    assert columns["set"].tolist() == ["a\tb", 'c,"d"']
    assert columns["accept"].astype(bool).tolist() == [True, False]


@pytest.mark.parametrize("name", ["a.csv.gz", "a.jsonl.zst", "a.json", "a.xlsx"])
def test_formats_that_are_not_written(name):
    with pytest.raises(dm.InvalidInputError, match="read only"):
        files.output_format(name)


def test_missing_numbers_of_json_lines_stay_missing(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"s": 0.5, "l": null}\n{"s": 0.1, "l": 1}\n')
    batches = list(tables.open_stream(str(tmp_path / "a.jsonl")).batches)
    assert [batch.to_pylist() for batch in batches] == [[{"s": 0.5, "l": None}, {"s": 0.1, "l": 1}]]
