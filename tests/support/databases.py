"""Real databases for the tests: a PostgreSQL server of our own, and tables put into databases."""

from __future__ import annotations

import atexit
import functools
import glob
import itertools
import math
import os
import pwd
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from decimal import Decimal

import pyarrow as pa
import pytest

_TYPES = {
    "postgres": {"double": "double precision", "float": "real", "bool": "boolean"},
    "sqlite": {"double": "REAL", "float": "REAL", "bool": "INTEGER", "int64": "INTEGER"},
    "duckdb": {"double": "DOUBLE", "float": "REAL", "bool": "BOOLEAN"},
}
_NUMBER = itertools.count()


def _binaries():
    """Return the folder of the newest server, of Debian's package or of the PATH."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
    return os.path.dirname(found[-1] if found else shutil.which("initdb") or "")


def _owner():
    """Return whom the server runs as: it refuses root."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            user = pwd.getpwnam(name)
        except KeyError:
            continue
        return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    return None


@functools.cache
def postgres_url(password=None):
    """Return the URL of a server that listens on a socket of its own until the tests end.

    With a password it asks for that, and the URL does not tell it.
    """
    binaries, owner = _binaries(), _owner()
    if not binaries or owner is None:
        pytest.skip("no PostgreSQL server is installed: there is no initdb")
    pytest.importorskip("psycopg")
    folder = tempfile.mkdtemp(prefix="demur-pg-", dir="/tmp")
    if owner:
        os.chown(folder, owner["user"], owner["group"])
    options = "-c listen_addresses= -c fsync=off -c full_page_writes=off -c max_connections=20"
    options += f" -c unix_socket_directories={folder}"

    def run(program, *arguments):
        command = [os.path.join(binaries, program), "-D", os.path.join(folder, "data"), *arguments]
        done = subprocess.run(
            command, cwd=folder, check=False, capture_output=True, text=True, timeout=120, **owner
        )
        return done.returncode == 0 or pytest.skip(f"no PostgreSQL server started: {done.stderr}")

    def stop():
        run("pg_ctl", "stop", "-m", "immediate", "-s")
        shutil.rmtree(folder, ignore_errors=True)

    # Trust: only this user can reach the socket.
    known = ["-A", "trust"]
    if password is not None:
        file = os.path.join(folder, "password")
        with open(file, "w") as to:
            to.write(password)
        os.chmod(file, 0o644)
        known = ["-A", "scram-sha-256", f"--pwfile={file}"]
    run("initdb", *known, "-U", "tester", "--no-sync", "-E", "UTF8", "--locale=C")
    atexit.register(stop)
    run("pg_ctl", "start", "-s", "-w", "-l", os.path.join(folder, "log"), "-o", options)
    return f"postgresql://tester@/postgres?host={folder}"


@contextmanager
def postgres():
    """Yield a connection to the server; nothing of what is done there is kept."""
    import psycopg

    with psycopg.connect(postgres_url()) as connection:
        yield connection
        connection.rollback()


def put(connection, table, dialect, name=None, types=None):
    """Write an Arrow table into a database and return its name."""
    name = name or f"rows{next(_NUMBER)}"
    kinds = {column.name: _type(column.type, dialect) for column in table.schema} | (types or {})
    listed = ", ".join(f"{quoted(column)} {kind}" for column, kind in kinds.items())
    place = ".".join(map(quoted, name.split(".")))
    cursor = connection.cursor()
    cursor.execute(f"CREATE TABLE {place} ({listed})")
    values = [table.column(name).to_pylist() for name in table.column_names]
    if dialect == "sqlite":
        # It has no decimals.
        values = [[float(v) if isinstance(v, Decimal) else v for v in one] for one in values]
    rows = list(zip(*values, strict=True))
    if dialect == "postgres":
        with cursor.copy(f"COPY {place} FROM STDIN") as copy:
            for row in rows:
                copy.write_row(row)
    elif rows:
        marks = ", ".join("?" * len(kinds))
        cursor.executemany(f"INSERT INTO {place} VALUES ({marks})", rows)
    cursor.close()
    return name


def quoted(name):
    return '"' + name.replace('"', '""') + '"'


def _type(kind, dialect):
    if pa.types.is_string(kind):
        return "TEXT"
    known = _TYPES[dialect]
    if pa.types.is_decimal(kind) or kind == pa.uint64():
        return {"postgres": "numeric", "sqlite": "NUMERIC", "duckdb": "DECIMAL(38, 20)"}[dialect]
    return known.get(str(kind), "BIGINT" if pa.types.is_integer(kind) else str(kind))


def same(a, b):
    """Return whether two numbers are the same, NaN included."""
    return a == b or (math.isnan(a) and math.isnan(b))
