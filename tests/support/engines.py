"""Real engines for the tests: one Spark session and one Dask cluster a test process."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from contextlib import contextmanager

import pytest


def need_java():
    """Skip where Spark cannot start."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        pytest.skip("Spark needs Java 17, and there is no java on the PATH")


def spark_session():
    """Return a local Spark session of two threads that tries a failed task up to four times."""
    need_java()
    # The workers must be of this Python, and Spark must not look for other hosts.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2,4]")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.memory", "1g")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("OFF")
    return session


def without_pandas_warning(function, *arguments):
    """Call PySpark where it warns that it does not know this pandas yet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        return function(*arguments)


@contextmanager
def dask_client():
    """Yield a client of a cluster of two worker processes."""
    from distributed import Client, LocalCluster

    with (
        LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs="CRITICAL"
        ) as cluster,
        Client(cluster) as client,
    ):
        yield client
