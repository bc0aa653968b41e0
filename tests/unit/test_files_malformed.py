"""Files and paths that cannot be what they say: each is refused, with the cause, and at once."""

import gzip
import io
import json
import os
import struct
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from commands import run_here

import demur as dm
from demur import _files
from demur.guarantees import OperatingTable, operating_table
from demur.sources import files, tables

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR"
TABLE = pa.table({"s": np.arange(40) / 40, "l": [0, 1] * 20, "t": [str(i) for i in range(40)]})
FEATHER = io.BytesIO()
pyarrow.feather.write_feather(TABLE, FEATHER)


def npy(header, data=b"\0" * 8, version=(1, 0)):
    """Return an array file with any header."""
    text = (header + "\n").encode("latin1")
    size = struct.pack("<H" if version == (1, 0) else "<I", len(text))
    return b"\x93NUMPY" + bytes(version) + size + text + data


def npz(**members):
    """Return an archive of any members."""
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)
    return found.getvalue()


def header(shape, kind="<f8"):
    return f"{{'descr': {kind!r}, 'fortran_order': False, 'shape': {shape}, }}"


def flagged(raw, place, value):
    """Return an archive with a number of its directory and of its first member replaced."""
    raw = bytearray(raw)
    for mark, offset in ((b"PK\x03\x04", place), (b"PK\x01\x02", place + 2)):
        at = raw.index(mark) + offset
        raw[at : at + 2] = struct.pack("<H", value)
    return bytes(raw)


GOOD = npz(s__npy=npy(header("(1,)")), l__npy=npy(header("(1,)")))

CONTENTS = {
    "latin-1 header": ("a.csv", "größe,l\n1,0\n".encode("latin1"), "first line is not UTF-8"),
    "png as csv": ("a.csv", PNG, "a PNG image"),
    "jpeg as csv": ("a.csv", b"\xff\xd8\xff\xe0", "a JPEG image"),
    "pdf as tsv": ("a.tsv", b"%PDF-1.7", "a PDF"),
    "gzip as csv": ("a.csv", gzip.compress(b"s,l\n1,0\n"), "packed by gzip; call it .csv.gz"),
    "parquet as csv": ("a.csv", b"PAR1....", "a Parquet file"),
    "zip as csv": ("a.csv", GOOD, "a ZIP archive"),
    "utf-16 as csv": ("a.csv", "s,l\n1,0\n".encode("utf-16"), "UTF-16"),
    "zeros as csv": ("a.csv", b"s,l\n\0\0\0\n", "zero bytes"),
    "empty csv": ("a.csv", b"", "empty"),
    "blank csv": ("a.csv", b"\n \n", "empty"),
    "ragged csv": ("a.csv", b"s,l\n1,0\n1,0,3\n", "Expected 2 columns, got 3"),
    "csv without l": ("a.csv", b"s,k\n1,0\n", "no column 'l'"),
    "csv with s twice": ("a.csv", b"s,s,l\n1,2,0\n", "several columns called 's'"),
    "text as csv.gz": ("a.csv.gz", b"s,l\n1,0\n", "cannot read"),
    "cut csv.gz": ("a.csv.gz", gzip.compress(b"s,l\n" + os.urandom(999).hex().encode())[:99], ""),
    "text as csv.zst": ("a.csv.zst", b"s,l\n1,0\n", "cannot read"),
    "json lines as json": ("a.json", b'{"s": 1, "l": 0}\n{"s": 1, "l": 0}\n', "Extra data"),
    "an object as json": ("a.json", b'{"s": 1, "l": 0}', "a list of objects, this is one object"),
    "a number as json": ("a.json", b"3", "this is a number"),
    "numbers as json": ("a.json", b"[1, 2]", "row 0 is a number, not an object"),
    "lists as jsonl": ("a.jsonl", b"[1, 2]\n", "row 0 is a list, not an object"),
    "half a line of jsonl": ("a.jsonl", b'{"s": 1, "l": 0}\n{"s": 1', "row 1: "),
    "key twice in jsonl": ("a.jsonl", b'{"s": 1, "s": 2, "l": 0}', "same key twice"),
    "latin-1 jsonl": ("a.jsonl", '{"s": 1, "l": "é"}'.encode("latin1"), "byte 15 is not UTF-8"),
    "deep json": ("a.json", b"[" * 100_000, "cannot read"),
    "jsonl without l": ("a.jsonl", b'{"s": 1}\n', "no column 'l'"),
    "png as jsonl": ("a.jsonl", PNG, "byte 0 is not UTF-8"),
    "text as parquet": ("a.parquet", b"s,l\n1,0\n", "cannot read"),
    "empty parquet": ("a.parquet", b"", "cannot read"),
    "text as feather": ("a.feather", b"s,l\n1,0\n", "cannot read"),
    "cut feather": ("a.feather", FEATHER.getvalue()[:200], "cannot read"),
    "empty arrow": ("a.arrow", b"", "cannot read"),
    "text as npz": ("a.npz", b"s,l\n1,0\n", "no such archive"),
    "npz of text": ("a.npz", npz(readme__txt="hello"), "holds no array"),
    "npz without l": ("a.npz", npz(s__npy=npy(header("(1,)"))), "no column 'l'"),
    "npz of 1e12 numbers": (
        "a.npz",
        npz(s__npy=npy(header("(1000000000000,)")), l__npy=npy(header("(1,)"))),
        "header speaks of 8000000000000 bytes, there are 8",
    ),
    "npz of a negative shape": (
        "a.npz",
        npz(s__npy=npy(header("(-1,)")), l__npy=npy(header("(1,)"))),
        "cannot read",
    ),
    "npz of huge shape": (
        "a.npz",
        npz(s__npy=npy(header("(9999999999, 9999999999)")), l__npy=npy(header("(1,)"))),
        "header speaks of",
    ),
    "npz header is code": (
        "a.npz",
        npz(s__npy=npy("__import__('os')"), l__npy=npy(header("(1,)"))),
        "cannot read",
    ),
    "npz header is no type": (
        "a.npz",
        npz(s__npy=npy(header("(1,)", "<q9")), l__npy=npy(header("(1,)"))),
        "cannot read",
    ),
    "npz header cut": ("a.npz", npz(s__npy=b"\x93NUMPY\x01\x00", l__npy=b""), "cannot read"),
    "npz of objects": (
        "a.npz",
        npz(s__npy=npy(header("(1,)", "|O")), l__npy=npy(header("(1,)"))),
        "could run code",
    ),
    "npz member is no array": (
        "a.npz",
        npz(s__npy=b"hello", l__npy=npy(header("(1,)"))),
        "cannot read",
    ),
    "npz of version 9": (
        "a.npz",
        npz(s__npy=npy(header("(1,)"), version=(9, 0)), l__npy=npy(header("(1,)"))),
        "cannot read",
    ),
    "npz encrypted": ("a.npz", flagged(GOOD, 6, 1), "encrypted"),
    "npz of unknown packing": ("a.npz", flagged(GOOD, 8, 77), "compression"),
    "npz damaged": ("a.npz", GOOD.replace(b"NUMPY", b"LUMPY"), "CRC"),
    "text as xlsx": ("a.xlsx", b"s,l\n1,0\n", "Excel"),
}


@pytest.mark.parametrize("case", CONTENTS)
def test_content_that_is_no_table(case, tmp_path):
    name, content, message = CONTENTS[case]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(dm.InvalidInputError) as caught:
        tables.table_columns(path)
        tables.read_table(path, ["s", "l"])
    assert message in str(caught.value) and str(path) in str(caught.value)
    with pytest.raises(dm.InvalidInputError):
        list(tables.open_stream(path, ["s", "l"]).batches)
    # The command line says so too, and leaves nothing behind.
    call = ["tune", path.name, "--scores", "s", "--loss", "l", "--min-tpr", ".5", "-o", "r.json"]
    refused(tmp_path, message, *call)


def refused(folder, message, *arguments):
    """Check that a command ends with exit code 2, the cause, and no file more than before."""
    before = {path.name for path in folder.iterdir()}
    done = run_here(folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr and "Traceback" not in done.stderr
    assert {path.name for path in folder.iterdir()} == before


def test_a_bomb_is_not_unpacked(tmp_path):
    size = 2**31
    found = io.BytesIO()
    with zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("s.npy", npy(header("(1,)")))
    raw = bytearray(found.getvalue())
    # The directory is what is believed of the size before anything is unpacked.
    at = raw.index(b"PK\x01\x02") + 24
    raw[at : at + 4] = struct.pack("<I", size)
    (tmp_path / "a.npz").write_bytes(raw)
    with pytest.raises(dm.InvalidInputError, match=r"unpacks to 2147483648 bytes, more than 1 GiB"):
        tables.read_columns(tmp_path / "a.npz", ["s"])


@pytest.mark.parametrize("suffix", ["arrow", "feather", "npz", "parquet"])
def test_flipped_bytes_are_refused_or_read(suffix, tmp_path):
    path = tmp_path / f"a.{suffix}"
    if suffix == "npz":
        np.savez(path, s=np.arange(40.0), l=np.arange(40))
    elif suffix == "parquet":
        pq.write_table(TABLE, path)
    else:
        pyarrow.feather.write_feather(TABLE, path)
    content = path.read_bytes()
    rng = np.random.default_rng(3)
    for _ in range(150):
        raw = bytearray(content)
        for place in rng.integers(len(raw), size=int(rng.integers(1, 6))):
            raw[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(raw)
        try:
            tables.table_columns(path)
            tables.read_table(path, ["s", "l"] + ["t"] * (suffix != "npz"))
        except dm.InvalidInputError:
            pass


def nothing(path):
    pass


def folder(path):
    path.mkdir()


def loop(path):
    path.symlink_to(path)


def fifo(path):
    os.mkfifo(path)


def regular(path):
    path.write_text("s,l\n1,0\n")


PATHS = {
    "no file": ("a.csv", nothing, "there is no file"),
    "other ending": ("a.docx", regular, "the ending '.docx' is none of .csv"),
    "no ending": ("a", regular, "the ending '' is none of .csv"),
    "packed parquet": ("a.parquet.gz", regular, "CSV and JSON may be packed"),
    "packed nothing": ("a.gz", regular, "CSV and JSON may be packed"),
    "empty folder": ("a.csv", folder, "holds no file"),
    "link loop": ("a.csv", loop, "is a link that leads to no file"),
    "pipe as csv": ("a.csv", fifo, "is a pipe, not a regular file"),
    "pipe as parquet": ("a.parquet", fifo, "is a pipe"),
    "pipe as npz": ("a.npz", fifo, "is a pipe"),
    "pipe as jsonl": ("a.jsonl", fifo, "is a pipe"),
    "pipe as feather": ("a.feather", fifo, "is a pipe"),
    "trailing slash": ("a.csv/", regular, "ends in a slash, but is a file"),
    "no match": ("b*.csv", nothing, "no file matches"),
    "a zero byte": ("a\0.csv", nothing, "is not a path"),
}


@pytest.mark.parametrize("case", PATHS)
def test_paths_that_are_no_table(case, tmp_path):
    name, make, message = PATHS[case]
    if "\0" not in name and "*" not in name:
        make(tmp_path / name)
    path = f"{tmp_path}/{name}"
    for call in (
        lambda: tables.table_columns(path),
        lambda: tables.read_table(path, ["s", "l"]),
        lambda: dm.open_source(path, "s", loss="l"),
    ):
        with pytest.raises(dm.InvalidInputError) as caught:
            call()
        assert message in str(caught.value)


@pytest.mark.parametrize("path", ["/dev/zero", "/dev/null", 3, None, "", b"a.csv", 1.5, []])
def test_what_is_no_path(path):
    for call in (tables.table_columns, tables.column_names, tables.open_stream, files.check_input):
        with pytest.raises(dm.InvalidInputError):
            call(path)


SOURCES = {
    "memory of -1": ({"memory": -1}, "memory must be"),
    "memory of 0": ({"memory": 0}, "memory must be"),
    "memory of text": ({"memory": "2GB"}, "memory must be"),
    "memory of a flag": ({"memory": True}, "memory must be"),
    "memory of None": ({"memory": None}, "memory must be"),
    "scores of ints": ({"scores": [1, 2]}, "scores must be a name or a list of names"),
    "scores of None": ({"scores": None}, "scores must be a name or a list of names"),
    "three scores": ({"scores": ["s", "l", "t"]}, "one or two different columns"),
    "no scores": ({"scores": []}, "one or two different columns"),
    "scores twice": ({"scores": ["s", "s"]}, "one or two different columns"),
    "loss of an int": ({"loss": 3}, "loss must be the name of a column"),
    "a foreign confidence": ({"confidence": ["l"]}, "'l'"),
    "confidence of ints": ({"confidence": 7}, "confidence must be a name or a list of names"),
    "other engine": ({"engine": "hive"}, "engine must be one of"),
    "other missing": ({"missing": "ignore"}, "missing must be"),
    "list of ints": ({"data": [1, 2]}, "data must be a str or a PathLike"),
    "empty list": ({"data": []}, "empty list"),
    "zero byte": ({"data": "a\0.parquet"}, "is not a path"),
    "None": ({"data": None}, "data is a NoneType"),
    "an int": ({"data": 3}, "data is a int"),
    "text": ({"scores": "t"}, "not numbers"),
}


@pytest.mark.parametrize("case", SOURCES)
def test_calls_of_open_source(case, tmp_path):
    options, message = SOURCES[case]
    pq.write_table(TABLE, tmp_path / "a.parquet")
    given = {"data": tmp_path / "a.parquet", "scores": "s", "loss": "l"} | options
    with pytest.raises(dm.InvalidInputError) as caught:
        dm.open_source(given.pop("data"), given.pop("scores"), **given)
    assert message in str(caught.value)


TARGETS = {
    "trailing slash": ("a.json/", nothing, "ends in a slash"),
    "link loop": ("a.json", loop, "is a link that leads to no file"),
    "pipe": ("a.json", fifo, "is not a regular file"),
    "folder": ("a.json", folder, "is a folder"),
    "no folder": ("b/a.json", nothing, "does not exist"),
    "zero byte": ("a\0.json", nothing, "is not a path"),
}


@pytest.mark.parametrize("case", TARGETS)
def test_targets_that_cannot_be_written(case, tmp_path):
    name, make, message = TARGETS[case]
    if make is not nothing:
        make(tmp_path / name)
    with pytest.raises(dm.InvalidInputError, match=message):
        _files.write_atomically(f"{tmp_path}/{name}", "x")
    with pytest.raises(dm.InvalidInputError):
        dm.Rule((1.0,), 0.5).save(f"{tmp_path}/{name}")
    assert not [p for p in tmp_path.iterdir() if p.suffix == ".part"]


def test_of_two_writers_one_is_refused(tmp_path):
    target = tmp_path / "rule.json"
    with _files.replacing(target, new=True) as first:
        first.write(b"first")
        with _files.replacing(target, new=True) as second:
            second.write(b"second")
        assert target.read_bytes() == b"second"
        with pytest.raises(dm.InvalidInputError, match="exists; add --force"):
            _files.write_atomically(target, "third", new=True)
        target.unlink()
    assert target.read_bytes() == b"first"
    with (
        pytest.raises(dm.InvalidInputError, match="exists; add --force"),
        _files.replacing(tmp_path / "b", new=True) as mine,
    ):
        mine.write(b"mine")
        (tmp_path / "b").write_bytes(b"theirs")
    assert (tmp_path / "b").read_bytes() == b"theirs"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["b", "rule.json"]


def test_new_files_where_there_are_no_links(tmp_path, monkeypatch):
    def no_links(*paths):
        raise PermissionError("no links here")

    monkeypatch.setattr(os, "link", no_links)
    _files.write_atomically(tmp_path / "a", "new", new=True)
    assert (tmp_path / "a").read_text() == "new"
    with (
        pytest.raises(dm.InvalidInputError, match="exists"),
        _files.replacing(tmp_path / "b", new=True),
    ):
        (tmp_path / "b").write_text("theirs")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a", "b"]


COUNTS = json.loads(
    operating_table(dm.Sample([0.1, 0.2, 0.3, 0.9], [0, 0, 1, 1], [0.25, 0.8])).to_json()
)


def changed(*keys, to):
    """Return counts in which one value is another; "-" leaves it out."""
    data = json.loads(json.dumps(COUNTS))
    place = data
    for key in keys[:-1]:
        place = place[key]
    if to == "-":
        del place[keys[-1]]
    else:
        place[keys[-1]] = to
    return json.dumps(data)


DAMAGED = {
    "an exponent of 10^6": changed("totals", "id_exponent", to=10**6),
    "an exponent of -10^6": changed("totals", "loss_exponent", to=-(10**6)),
    "a rounding of 10^30": changed("totals", "id_rounding", to=10**30),
    "a negative rounding": changed("totals", "ood_rounding", to=-1),
    "a fraction as total": changed("totals", "id", to=4.5),
    "a flag as total": changed("totals", "id", to=True),
    "no ID rows": changed("totals", "id", to=0),
    "negative OOD rows": changed("totals", "ood", to=[-2]),
    "totals are a list": changed("totals", to=[1, 2]),
    "totals without loss": changed("totals", "loss", to="-"),
    "totals with more": changed("totals", "more", to=1),
    "OOD totals are a number": changed("totals", "ood", to=2),
    "no totals": changed("totals", to="-"),
    "no thresholds": changed("thresholds", to="-"),
    "no rule": changed("thresholds", to=[]),
    "text as threshold": changed("thresholds", 0, to="low"),
    "NaN as threshold": changed("thresholds", 0, to="nan"),
    "inf as threshold": changed("thresholds", 0, to="inf"),
    "a threshold of 400 digits": changed("thresholds", 0, to=10**400),
    "counts as text": changed("accepted_id", to="many"),
    "a fraction as count": changed("accepted_id", 0, to=0.5),
    "a negative count": changed("accepted_ood", 0, to=-1),
    "a count beyond the total": changed("accepted_loss", 0, to=99),
    "a count of 2^70": changed("accepted_id", 0, to=2**70),
    "directions of three": changed("directions", 0, to=[1, 2, 3]),
    "directions of text": changed("directions", to="up"),
    "complete is a number": changed("complete", to=1),
    "names are text": changed("score_names", to="msp"),
    "two names of one score": changed("score_names", to=["a", "b"]),
    "a confidence that is none": changed("confidence", to=["z"]),
    "version true": changed("version", to=True),
    "version 9": changed("version", to=9),
    "other format": changed("format", to="demur.rule"),
    "NaN": json.dumps(COUNTS).replace("0.225", "NaN"),
    "a list": "[1, 2]",
    "a number": "3",
    "half": json.dumps(COUNTS)[:100],
    "deep": "[" * 100_000,
    "nothing": "",
}


@pytest.mark.parametrize("case", DAMAGED)
def test_damaged_counts(case, tmp_path):
    (tmp_path / "c.json").write_text(DAMAGED[case])
    with pytest.raises(dm.InvalidInputError):
        OperatingTable.load(tmp_path / "c.json")
    refused(tmp_path, "demur: ", "retune", "c.json", "--min-tpr", ".5", "-o", "r.json")


@pytest.mark.parametrize("load", [OperatingTable.load, dm.Rule.load])
@pytest.mark.parametrize("path", ["/dev/zero", None, 3, "a\0", "none.json", ".", "latin", "fifo"])
def test_saved_files_that_cannot_be_read(load, path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin").write_bytes(b'{"format": "\xe9"}')
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(dm.InvalidInputError):
        load(path)


def test_saved_files_have_a_largest_size(tmp_path, monkeypatch):
    from demur.guarantees import operating_tables

    monkeypatch.setattr(operating_tables, "LARGEST", 100)
    (tmp_path / "c.json").write_text(json.dumps(COUNTS))
    with pytest.raises(dm.InvalidInputError, match="larger than 100 bytes"):
        OperatingTable.load(tmp_path / "c.json")


def test_standard_input_that_is_empty_or_closed(monkeypatch):
    for content, message in ((b"", "empty"), (PNG, "PNG"), (b"\0\0", "zero bytes")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        with pytest.raises(dm.InvalidInputError, match=message):
            tables.table_columns("-")
    monkeypatch.setattr(sys, "stdin", None)
    with pytest.raises(dm.InvalidInputError, match="closed"):
        tables.table_columns("-")
