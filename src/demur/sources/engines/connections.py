"""Connections to databases, by DB-API, ADBC or SQLAlchemy, and what comes of a query.

The only place that imports SQLAlchemy.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from decimal import Decimal
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from demur.errors import DemurError, InvalidInputError, MissingExtraError
from demur.sources.engines import is_connection
from demur.sources.engines.expressions import Table
from demur.sources.files import DATABASES

_BY_PACKAGE = {
    "psycopg": "postgres",
    "psycopg2": "postgres",
    "pg8000": "postgres",
    "sqlite3": "sqlite",
    "duckdb": "duckdb",
    "_duckdb": "duckdb",
    "snowflake": "snowflake",
    "google": "bigquery",
    "trino": "trino",
}
"""Dialects by the package of a connection."""

# What helps against some failures that drivers tell.
_LOST = ": nothing was kept of what was counted; try again once the server is there"
_WHAT_TO_DO = (
    ("permission denied", ": ask its owner for the right to read it (GRANT SELECT)"),
    ("terminating connection", _LOST),
    ("server closed the connection", _LOST),
    ("connection is lost", _LOST),
)
_NAMES = {
    "postgres": "PostgreSQL",
    "sqlite": "SQLite",
    "duckdb": "DuckDB",
    "snowflake": "Snowflake",
    "bigquery": "BigQuery",
    "trino": "Trino",
}
_KNOWN = "PostgreSQL, SQLite, DuckDB, Snowflake, BigQuery and Trino"
_BATCH = 1 << 16
_LISTED = {
    "sqlite": "SELECT 'main' AS q_place, name AS q_name FROM sqlite_master "
    "WHERE type IN ('table', 'view') ORDER BY name",
}
_LISTED_ELSEWHERE = (
    "SELECT table_schema AS q_place, table_name AS q_name FROM information_schema.tables "
    "WHERE LOWER(table_schema) NOT IN ('pg_catalog', 'information_schema') "
    "ORDER BY table_schema, table_name LIMIT 1000"
)
_USUAL = ("public", "PUBLIC", "main")


@dataclass(slots=True)
class Database:
    """A connection, the dialect of its database, and what there is to close in the end."""

    connection: Any
    dialect: str
    _end: Callable[[], None] | None = None

    @classmethod
    def of(cls, data: Any) -> Database:
        """Return the database of a connection, a SQLAlchemy engine, or a URL.

        Examples
        --------
        >>> import sqlite3
        >>> with sqlite3.connect(":memory:") as connection:
        ...     Database.of(connection).dialect
        'sqlite'
        >>> connection.close()
        """
        if isinstance(data, str):
            return _opened(data)
        if _package(data) == "sqlalchemy":
            return _of_sqlalchemy(data)
        if not is_connection(data):
            raise InvalidInputError(
                f"data is a {type(data).__name__}: give a connection (DB-API or ADBC), a "
                "SQLAlchemy engine, or a URL such as postgresql://host/database"
            )
        return cls(data, _dialect_of(data))

    def close(self) -> None:
        """Close what was opened here; a connection of somebody else's is left as it is."""
        if self._end is not None:
            self._end()
            self._end = None

    def columns(self, query: str) -> tuple[list[str], dict[str, str]]:
        """Return the names of the columns of a query, and of the types that the driver tells."""
        with self._cursor(query) as cursor:
            told = list(cursor.description or ())
        return [str(c[0]) for c in told], {str(c[0]): str(c[1]) for c in told}

    def select(self, query: str) -> Table:
        """Return the columns that a query has, by their names without "q_"."""
        with self._cursor(query) as cursor:
            names = [str(c[0]).lower().removeprefix("q_") for c in cursor.description]
            if hasattr(cursor, "fetch_arrow_table") and self.dialect != "duckdb":
                found = cursor.fetch_arrow_table()
                columns = [_array(column.to_pylist()) for column in found.columns]
            else:
                columns = _joined(cursor, len(names))
        return dict(zip(names, columns, strict=True))

    def tells_md5(self) -> bool:
        """Return whether MD5 is to be had; SQLite is taught it, where its connection can be."""
        query = "SELECT MD5('') AS q_mark"
        with suppress(DemurError):
            return str(self.select(query)["mark"][0]) == _MD5_OF_NOTHING
        teach = getattr(self.connection, "create_function", None)
        if self.dialect != "sqlite" or teach is None:
            return False
        teach("MD5", 1, _md5, deterministic=True)
        return True

    def tables(self) -> list[str]:
        """Return tables and views that the user sees; those of the usual schema by name alone."""
        if self._end is not None:
            # A query that failed has ended the transaction.
            self.connection.rollback()
        found = self.select(_LISTED.get(self.dialect, _LISTED_ELSEWHERE))
        pairs = zip(found["place"].tolist(), found["name"].tolist(), strict=True)
        return [name if place in _USUAL else f"{place}.{name}" for place, name in pairs]

    @contextmanager
    def _cursor(self, query: str) -> Iterator[Any]:
        """Run a query; what a driver says of a failure becomes one of our errors."""
        # A failed query would end the transaction that somebody is in the middle of. Psycopg makes
        # a savepoint, or a transaction that ends with the query where there was none.
        nested = getattr(self.connection, "transaction", None) if self._end is None else None
        try:
            with nested() if callable(nested) else nullcontext():
                cursor = self.connection.cursor()
                try:
                    cursor.execute(query)
                    yield cursor
                finally:
                    cursor.close()
        except DemurError:
            raise
        except Exception as error:
            raise self._told(error) from None

    def _told(self, error: Exception) -> InvalidInputError:
        # SQLAlchemy adds its query and a link to what the driver says.
        said = str(getattr(error, "orig", None) or error)
        words = " ".join(said.split())[:1000] or type(error).__name__
        todo = next((todo for sign, todo in _WHAT_TO_DO if sign in words), "")
        return InvalidInputError(f"{_NAMES[self.dialect]}: {words}{todo}")


def _md5(text: Any) -> str | None:
    if text is None:
        return None
    return hashlib.md5(str(text).encode(), usedforsecurity=False).hexdigest()


_MD5_OF_NOTHING = _md5("")


def _package(data: Any) -> str:
    return type(data).__module__.partition(".")[0]


def _dialect_of(connection: Any) -> str:
    """Return the dialect of a DB-API or ADBC connection."""
    package = _package(connection)
    if package.startswith("adbc"):
        name = str(connection.adbc_get_info().get("vendor_name", "")).lower()
        found = next((known for known in DATABASES if known in name), None)
        dialect = DATABASES[found] if found else None
    else:
        bases = [base.__module__.partition(".")[0] for base in type(connection).__mro__]
        dialect = next((_BY_PACKAGE[base] for base in bases if base in _BY_PACKAGE), None)
        name = package
    if dialect is None:
        raise InvalidInputError(f"demur knows {_KNOWN}, and not the database of {name!r}")
    return dialect


def _of_sqlalchemy(data: Any) -> Database:
    """Return the database of an engine or a connection of SQLAlchemy."""
    dialect = getattr(data, "dialect", None)
    if dialect is None or getattr(dialect, "is_async", False):
        raise InvalidInputError(
            f"data is a {type(data).__name__} of SQLAlchemy: give an engine or a connection that "
            "is not asynchronous"
        )
    if dialect.name not in DATABASES:
        raise InvalidInputError(f"demur knows {_KNOWN}, and not {dialect.name!r}")
    known = DATABASES[dialect.name]
    if hasattr(data, "exec_driver_sql"):
        return Database(data.connection.dbapi_connection, known)
    database = Database(None, known)
    try:
        pooled = data.raw_connection()
    except Exception as error:
        raise database._told(error) from None
    database.connection, database._end = pooled.dbapi_connection, pooled.close
    return database


def _opened(text: str) -> Database:
    """Return the database at a URL, opened to be read: all passes see the rows of one moment."""
    try:
        alchemy = import_module("sqlalchemy")
    except ModuleNotFoundError:
        raise MissingExtraError("sqlalchemy", "sql") from None
    try:
        url = alchemy.make_url(text)
    except Exception:
        raise InvalidInputError(
            "the URL of a database is written as postgresql://user@host:port/database, or "
            "sqlite:///file.db"
        ) from None
    name = url.get_backend_name()
    options: dict[str, Any] = {}
    if name in ("postgresql", "postgres"):
        driver = url.drivername.partition("+")[2] or "psycopg"
        url = url.set(drivername=f"postgresql+{driver}")
        options["isolation_level"] = "REPEATABLE READ"
    if name == "sqlite":
        url = _read_only(url)
    try:
        # Nothing is reset when it is closed: where the server is gone, the pool would log that.
        engine = alchemy.create_engine(
            url, poolclass=alchemy.pool.NullPool, pool_reset_on_return=None, **options
        )
    except ModuleNotFoundError as error:
        raise MissingExtraError(str(error.name), "sql") from None
    except Exception as error:
        raise InvalidInputError(
            f"the URL {url.render_as_string(hide_password=True)!r}: {' '.join(str(error).split())}"
        ) from None
    database = _of_sqlalchemy(engine)
    if name == "sqlite":
        # PostgreSQL is in a transaction anyway.
        database.connection.execute("BEGIN")
    return database


def _read_only(url: Any) -> Any:
    """Return the URL of a file of SQLite that must exist, and stays as it is."""
    file = url.database
    if not file or not os.path.isfile(file):
        raise InvalidInputError(f"there is no file {file!r}: sqlite:///file.db, or sqlite:////path")
    place = "file:" + os.path.abspath(file).replace("?", "%3f").replace("#", "%23")
    return url.set(database=place, query={"mode": "ro", "uri": "true"})


def _joined(cursor: Any, width: int) -> list[npt.NDArray[Any]]:
    """Return the columns of all rows, which are taken in batches."""
    parts: list[list[npt.NDArray[Any]]] = [[] for _ in range(width)]
    while batch := cursor.fetchmany(_BATCH):
        for part, column in zip(parts, zip(*batch, strict=True), strict=True):
            part.append(_array(list(column)))
    if not parts[0]:
        return [np.empty(0, object) for _ in range(width)]
    return [np.concatenate(part) for part in parts]


def _array(values: list[Any]) -> npt.NDArray[Any]:
    """Return values as numbers where all of them are, NULL as NaN."""
    kinds = {type(value) for value in values}
    if kinds in ({int}, {bool}):
        return np.array(values)
    if {float, int, Decimal} & kinds and kinds <= {int, float, Decimal, type(None)}:
        return np.array([np.nan if value is None else float(value) for value in values])
    column = np.empty(len(values), object)
    column[:] = values
    return column
