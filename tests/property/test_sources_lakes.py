"""Tables of Delta Lake and Iceberg, and object stores: only live rows, the same as in memory."""

import json
import shutil
import socket
import threading
import time
from contextlib import suppress

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import run_here

import demur as dm
from demur.sources import lakes
from demur.sources.tables import read_table, table_columns

MODEL = dm.TprFprModel(0.6, 0.5)
ROLES = {"loss": "wrong", "ood": "ood"}
COLUMNS = ["--scores", "iso,conf", "--loss", "wrong", "--ood", "ood"]
BOUNDS = ["--min-tpr", ".6", "--max-fpr", ".5"]


def scored(n=400, seed=4):
    rng = np.random.default_rng(seed)
    wrong, ood = rng.random(n) < 0.2, rng.random(n) < 0.3
    return pa.table(
        {
            "iso": rng.normal(size=n) + 1.5 * ood,
            "conf": np.round(rng.random(n) + 0.3 * wrong, 3),
            "wrong": wrong.astype(int),
            "ood": ood,
            "day": np.where(np.arange(n) % 2, "mon", "tue"),
        }
    )


def write_delta(folder):
    deltalake = pytest.importorskip("deltalake")
    # Overwritten rows stay in the folder, and so do deleted ones.
    deltalake.write_deltalake(folder, scored(seed=9), partition_by=["day"])
    deltalake.write_deltalake(folder, scored(), mode="overwrite", partition_by=["day"])
    deltalake.DeltaTable(folder).delete("day = 'mon' AND wrong = 1")


def write_iceberg(folder):
    catalogs = pytest.importorskip("pyiceberg.catalog.sql")
    folder.parent.mkdir(parents=True, exist_ok=True)
    catalog = catalogs.SqlCatalog(
        "x", uri=f"sqlite:///{folder.parent}/catalog.db", warehouse=f"file://{folder.parent}"
    )
    catalog.create_namespace("n")
    table = catalog.create_table("n.t", schema=scored().schema, location=f"file://{folder}")
    table.append(scored(seed=9))
    table.overwrite(scored())
    table.delete("day == 'mon' and wrong == 1")
    catalog.engine.dispose()


WRITERS = {"delta": write_delta, "iceberg": write_iceberg}
quiet = pytest.mark.filterwarnings("ignore")


def live_rows():
    table = scored()
    kept = ~(
        (table["day"].to_numpy(zero_copy_only=False) == "mon") & (table["wrong"].to_numpy() == 1)
    )
    return table.filter(pa.array(kept))


@quiet
@pytest.mark.parametrize("kind", WRITERS)
def test_only_live_rows_count(kind, tmp_path):
    folder = tmp_path / "lake"
    WRITERS[kind](folder)
    expected = live_rows()
    source = dm.open_source(folder, ["iso", "conf"], **ROLES)
    here = dm.tune(dm.Sample.from_frame(expected, ["iso", "conf"], **ROLES), MODEL)
    assert source.overview().rows == len(expected) < 400
    found = dm.tune(source, MODEL)
    assert (found.rule, found.point) == (here.rule, here.point)
    assert set(dm.evaluate(found.rule, source, by="day")) == {"mon", "tue"}
    source.close()
    assert sorted(table_columns(folder)) == sorted(expected.column_names)
    read = read_table(folder, ["iso", "day"])
    assert sorted(read["iso"].tolist()) == sorted(expected["iso"].to_pylist())
    # A part of the folder is still refused: its files hold dead rows.
    with pytest.raises(dm.InvalidInputError, match="also holds deleted"):
        dm.open_source(f"{folder}/**/*.parquet", "iso", **ROLES)


@quiet
@pytest.mark.parametrize("kind", WRITERS)
def test_rows_are_those_of_the_moment_of_opening(kind, tmp_path):
    folder = tmp_path / "lake"
    WRITERS[kind](folder)
    source = dm.open_source(folder, "iso", **ROLES)
    rows = source.overview().rows
    if kind == "delta":
        import deltalake

        deltalake.write_deltalake(folder, scored(seed=5), mode="append", partition_by=["day"])
    else:
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("x", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse="file:///x")
        catalog.load_table("n.t").append(scored(seed=5))
        catalog.engine.dispose()
    assert dm.tune(source, MODEL).totals is not None and source.overview().rows == rows
    assert dm.open_source(folder, "iso", **ROLES).overview().rows == rows + 400
    source.close()


@quiet
@pytest.mark.parametrize("kind", WRITERS)
def test_the_command_line(kind, tmp_path):
    WRITERS[kind](tmp_path / "lake")
    pq.write_table(live_rows(), tmp_path / "f.parquet")
    told = []
    for data, more in (("f.parquet", []), ("lake", []), ("lake", ["--engine", "memory"])):
        done = run_here(tmp_path, "tune", data, *COLUMNS, *BOUNDS, "--json", *more)
        assert done.returncode == 0, done.stderr
        told.append(json.loads(done.stdout))
    assert told[0]["tuned"] == told[1]["tuned"] == told[2]["tuned"]
    assert told[1]["work"]["engine"] == "duckdb"


@quiet
@pytest.mark.parametrize("kind", WRITERS)
def test_damaged_tables_are_refused(kind, tmp_path):
    folder = tmp_path / "lake"
    WRITERS[kind](folder)
    for file in folder.rglob("*.parquet"):
        file.write_bytes(b"PAR1 and no more")
    with pytest.raises(dm.InvalidInputError, match="cannot read"):
        dm.tune(dm.open_source(folder, "iso", **ROLES), MODEL)
    logs = [*folder.glob("_delta_log/*.json"), *folder.glob("metadata/*.json")]
    for file in logs:
        file.write_text("{")
    with pytest.raises(dm.InvalidInputError, match=r"cannot read .* as a table of"):
        dm.open_source(folder, "iso", **ROLES)


def test_two_newest_snapshots_are_not_guessed_between(tmp_path):
    write_iceberg(tmp_path / "lake")
    newest = max((tmp_path / "lake" / "metadata").glob("*.metadata.json"))
    shutil.copy(newest, newest.with_name(newest.name[:6] + "other.metadata.json"))
    with pytest.raises(dm.InvalidInputError, match="two newest metadata files"):
        dm.open_source(tmp_path / "lake", "iso", **ROLES)


@pytest.fixture(scope="module")
def server():
    """Yield the address of an S3 server on this machine, and a file system on it."""
    moto = pytest.importorskip("moto.server")
    import pyarrow.fs

    running = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    known = {"access_key": "a", "secret_key": "b", "region": "us-east-1", "scheme": "http"}
    system = pyarrow.fs.S3FileSystem(
        endpoint_override=f"{host}:{port}", allow_bucket_creation=True, **known
    )
    system.create_dir("bucket")
    yield f"{host}:{port}", system
    running.stop()


@pytest.fixture
def stored(server, monkeypatch):
    """Yield the end of a URL of the server, with files at bucket/lake."""
    address, system = server
    for name, value in {"ACCESS_KEY_ID": "a", "SECRET_ACCESS_KEY": "b"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    table = scored().drop_columns(["day"])
    for k, day in enumerate(("mon", "tue")):
        part = table.slice(200 * k, 200)
        if k:
            # One file of a folder may have other types of numbers.
            part = part.set_column(2, "wrong", part["wrong"].cast(pa.float64()))
        pq.write_table(part, f"bucket/lake/day={day}/x.parquet", filesystem=system)
    yield f"?endpoint_override={address}&scheme=http&region=us-east-1"


def test_object_stores(stored, server, tmp_path):
    here = dm.tune(dm.Sample.from_frame(scored(), ["iso", "conf"], **ROLES), MODEL)
    for place, rows in (
        ("lake", 400),
        ("lake/day=*/*.parquet", 400),
        ("lake/day=mon/x.parquet", 200),
    ):
        source = dm.open_source(f"s3://bucket/{place}{stored}", ["iso", "conf"], **ROLES)
        assert source.overview().rows == rows
        if rows == 400:
            assert dm.tune(source, MODEL).point == here.point
            assert set(dm.evaluate(here.rule, source, by="day")) == {"mon", "tue"}
        source.close()
    url = f"s3://bucket/lake{stored}"
    assert sorted(read_table(url, ["iso"])["iso"].tolist()) == sorted(scored()["iso"].to_pylist())
    done = run_here(tmp_path, "tune", url, *COLUMNS, *BOUNDS, "--json")
    assert json.loads(done.stdout)["tuned"]["accepted_id"] == here.point.accepted_id


def test_failures_of_object_stores(stored, server, monkeypatch):
    system = server[1]
    options = {"loss": "wrong"}
    for place in ("bucket/nothing", "nobucket/x.parquet", "bucket/lake/*.csv"):
        with pytest.raises(dm.InvalidInputError, match=r"cannot read|holds no Parquet"):
            dm.open_source(f"s3://{place}{stored}", "iso", **options)
    with system.open_output_stream("bucket/text/a.csv") as file:
        file.write(b"iso,wrong\n1,0\n")
    with pytest.raises(dm.InvalidInputError, match="only Parquet is read from object stores"):
        dm.open_source(f"s3://bucket/text{stored}", "iso", **options)
    with pytest.raises(dm.InvalidInputError, match=r"cannot read .*nowhere://"):
        dm.open_source("nowhere://x/y", "iso", **options)
    source = dm.open_source(f"s3://bucket/lake{stored}", "iso", **options)
    assert source.overview().rows == 400
    pq.write_table(scored(10), "bucket/lake/day=mon/x.parquet", filesystem=system)
    with pytest.raises(dm.InvalidInputError, match="changed while it was read"):
        dm.tune(source, dm.TprFprModel(0.6))
    source.close()


class Wire:
    """Passes on what an S3 server says: slowly, or until so many bytes were said by all.

    Then connections are cut or, if it is to stall, left open without a word.
    """

    def __init__(self, address, *, seconds=0.0, limit=None, most=1000, stalls=False):
        self._stalls, self._over = stalls, threading.Event()
        host, _, port = address.partition(":")
        self._server, self._seconds, self._limit = (host, int(port)), seconds, limit
        self._said, self.cuts, self._most = 0, 0, most
        self._door = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._door.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                asks = self._door.accept()[0]
            except OSError:
                return
            tells = socket.create_connection(self._server)
            for ends in ((asks, tells, False), (tells, asks, True)):
                threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source, to, counted):
        with suppress(OSError):
            while said := source.recv(1 << 14):
                if counted:
                    time.sleep(self._seconds)
                    self._said += len(said)
                    if self._limit and self._said > self._limit and self.cuts < self._most:
                        self._said, self.cuts = 0, self.cuts + 1
                        if self._stalls:
                            # Half of what there was to say, and no more.
                            to.sendall(said[: len(said) // 2])
                            self._over.wait()
                        break
                to.sendall(said)
        for end in (source, to):
            # A socket that is only closed would leave the other thread waiting.
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def close(self):
        self._over.set()
        self._door.close()


def tuned_over(address, place="lake"):
    url = f"s3://bucket/{place}?endpoint_override={address}&scheme=http&region=us-east-1"
    source = dm.open_source(url, ["iso", "conf"], **ROLES)
    try:
        return dm.tune(source, MODEL).point
    finally:
        source.close()


def test_slow_reads_and_connections_that_break(stored, server):
    """They are tried again; what fails at last is told, and no row is lost."""
    address, system = server
    table = scored(24_000)
    for k in range(3):
        part = table.slice(8_000 * k, 8_000)
        pq.write_table(part, f"bucket/wide/{k}.parquet", filesystem=system, row_group_size=5000)
    here = dm.tune(dm.Sample.from_frame(table, ["iso", "conf"], **ROLES), MODEL).point
    slow, broken = Wire(address, seconds=0.005), Wire(address, limit=100_000, most=2)
    for wire in (slow, broken):
        assert tuned_over(wire.address, "wide") == here
        wire.close()
    assert broken.cuts == 2
    dead = Wire(address, limit=30_000)
    with pytest.raises(dm.InvalidInputError, match=r"NETWORK_CONNECTION.*is the address right"):
        tuned_over(dead.address, "wide")
    dead.close()


def test_connections_that_stall_end_in_a_line(stored, server, monkeypatch, tmp_path):
    """A server that accepts and says nothing more, at once or amid a body."""
    monkeypatch.setattr(lakes, "PATIENCE", 1.0)
    address, system = server
    pq.write_table(scored(24_000), "bucket/long/a.parquet", filesystem=system)
    mute, amid = Wire(address, limit=1, stalls=True), Wire(address, limit=60_000, stalls=True)
    for wire in (mute, amid):
        url = f"s3://bucket/long?endpoint_override={wire.address}&scheme=http&region=us-east-1"
        start = time.monotonic()
        done = run_here(tmp_path, "tune", url, *COLUMNS, *BOUNDS)
        assert time.monotonic() - start < 60
        assert done.returncode == 2
        (line,) = done.stderr.strip().splitlines()
        assert "in 1 seconds nothing came, 3 times in a row" in line
        assert wire.cuts >= 3
        wire.close()


def test_what_is_said_of_places_in_stores(stored, server):
    for place, words in {
        "bucket/lakes": r"holds no Parquet file.*'bucket' holds .*'lake'",
        "bucket/lake/day=wed": r"'bucket/lake' holds 'day=mon', 'day=tue'",
        "nobucket/lake": "there is no bucket 'nobucket', or these keys may not see it",
        "key:secret@bucket/lakes": "s3://...@bucket/lakes",
    }.items():
        with pytest.raises(dm.InvalidInputError, match=words) as caught:
            dm.open_source(f"s3://{place}{stored}", "iso", **ROLES)
        assert "secret" not in str(caught.value)
    pq.write_table(scored(0), "bucket/none/a.parquet", filesystem=server[1])
    with pytest.raises(dm.InvalidInputError, match=r"'s3://bucket/none.*' has no rows"):
        dm.open_source(f"s3://bucket/none{stored}", "iso", **ROLES).overview()


@quiet
def test_tables_that_were_emptied_or_vacuumed(tmp_path):
    deltalake = pytest.importorskip("deltalake")
    deltalake.write_deltalake(tmp_path / "lake", scored())
    source = dm.open_source(tmp_path / "lake", "iso", **ROLES)
    source.overview()
    table = deltalake.DeltaTable(tmp_path / "lake")
    table.delete()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    with pytest.raises(dm.InvalidInputError, match="were its files vacuumed") as caught:
        dm.tune(source, MODEL)
    assert "\x1b" not in str(caught.value)
    with pytest.raises(dm.InvalidInputError, match="lake' has no rows"):
        dm.open_source(tmp_path / "lake", "iso", **ROLES).overview()
    for engine in ("dask", "spark"):
        with pytest.raises(dm.InvalidInputError, match="it is a table of Delta Lake, whose"):
            dm.open_source(tmp_path / "lake", "iso", **ROLES, engine=engine)
