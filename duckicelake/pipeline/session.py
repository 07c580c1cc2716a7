"""A Spark with the catalog `lake` in it: stock Iceberg, UTC, quiet; `local[*]` unless something says otherwise.

with spark_session(Connection()) as spark:
    spark.sql("SELECT * FROM lake.ns.t")
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING, Final

from duckicelake.errors import NoSpark
from duckicelake.pipeline.configuring import configure, hide_secrets
from duckicelake.pipeline.java import Jvm
from duckicelake.pipeline.launching import launch_conf, launched
from duckicelake.pipeline.running import Job
from duckicelake.pipeline.spark_names import CATALOG
from duckicelake.rest.connection import Connection
from duckicelake.rest.json_http import PIPELINE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SNAPSHOT_PROPERTY: Final = "spark.sql.iceberg.snapshot-property."
_STAMPING: Final[defaultdict[str, RLock]] = defaultdict(RLock)
"""By session."""


@contextmanager
def spark_session(
    connection: Connection,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    packages: Sequence[str] = (),
) -> Iterator[SparkSession]:
    """A session for a job.

    master: None is `local[*]`, or under spark-submit what that says. conf: more of Spark's settings, which win.
    packages: Maven coordinates besides Iceberg's.

    Where a Spark runs already in this process, that one is used as it was started, in a session of its own; only one
    that was started here is stopped, and its errors leave the block as ours (`failures.py`): NoSpark, NoJava, …
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise NoSpark("pyspark isn't installed: pip install 'duckicelake[spark]'") from error
    settings = conf or {}
    running = SparkSession.getActiveSession()
    if running is not None:
        hide_secrets(running)
        yield _connected(running.newSession(), connection, settings)
        return
    with launched(launch_conf(master, packages, settings)) as session:
        yield _connected(session, connection, settings)


def _connected(session: SparkSession, connection: Connection, conf: Mapping[str, str]) -> SparkSession:
    """The session with the catalog in it: said here and not at the start, where others would see passwords."""
    of_sql = {name: value for name, value in conf.items() if name.startswith("spark.sql.")}
    for secret in ("credential", "token"):  # of a connection before
        session.conf.unset(f"spark.sql.catalog.{CATALOG}.{secret}")
    configure(session, {**session_conf(connection), **of_sql})
    return session


def session_conf(connection: Connection) -> dict[str, str]:
    """What any session can be given."""
    catalog = f"spark.sql.catalog.{CATALOG}"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "rest",
        **{f"{catalog}.{name}": value for name, value in connection.catalog_properties().items()},
        f"{catalog}.header.X-Iceberg-Access-Delegation": "vended-credentials",
        f"{catalog}.header.X-Engine": PIPELINE,
        f"{catalog}.cache-enabled": "false",
        "spark.sql.defaultCatalog": CATALOG,
        "spark.sql.session.timeZone": "UTC",
    }


@contextmanager
def stamped(spark: SparkSession, job: Job) -> Iterator[None]:
    """Every snapshot that SQL and DataFrames of the session make in the block has the job's keys in its summary.

    Only one thread at a time is in such a block of a session's, for it is the session that has the keys.
    """
    with stamped_with(spark, job.summary):
        yield


@contextmanager
def stamped_with(spark: SparkSession, summary: Mapping[str, str]) -> Iterator[None]:
    """The same with any keys."""
    settings = {f"{SNAPSHOT_PROPERTY}{key}": value for key, value in summary.items()}
    with _STAMPING[Jvm(spark).session.sessionUUID()], configured(spark, settings):
        yield


@contextmanager
def configured(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """The session with other settings while the block runs."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)
