"""Create a Spark session with the catalog attached, and with lineage if it is set up."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock
from typing import TYPE_CHECKING, Final, Literal

from duckicelake.errors import MissingSparkError
from duckicelake.pipeline.destination import CATALOG_NAME
from duckicelake.pipeline.java import Jvm
from duckicelake.pipeline.job import PipelineJob
from duckicelake.pipeline.launcher import build_launch_conf, configure, hide_secrets, launch_spark
from duckicelake.rest.connection import Connection
from duckicelake.rest.http import PIPELINE_AGENT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SNAPSHOT_PROPERTY: Final = "spark.sql.iceberg.snapshot-property."
_STAMP_LOCKS: Final[defaultdict[str, RLock]] = defaultdict(RLock)
"""By session."""
OPENLINEAGE_PACKAGE: Final = "io.openlineage:openlineage-spark_2.13:1.53.0"
"""The first that works with Spark 4.1."""
_LISTENER_CLASS: Final = "io.openlineage.spark.agent.OpenLineageSparkListener"
_LINEAGE_PATH: Final = "/api/v1/lineage"
_JAR_SETTINGS: Final = ("spark.jars.packages", "spark.jars", "spark.driver.extraClassPath")
_LISTENERS_SETTING: Final = "spark.extraListeners"
ListenerMode = Literal["auto", "on", "off"]
"""auto: where a setting of Spark's has the listener's jar. on: the jar is taken from Maven where none has."""


@contextmanager
def open_spark_session(
    connection: Connection,
    *,
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    packages: Sequence[str] = (),
) -> Iterator[SparkSession]:
    """Yield a session for a job.

    master: None is `local[*]`, or under spark-submit what that says. conf: more of Spark's settings, which win.
    packages: Maven coordinates besides Iceberg's.

    Where a Spark runs already in this process, that one is used as it was started, in a session of its own; only one
    that was started here is stopped, and its errors leave the block as ours (`failures.py`): MissingSparkError,
    MissingJavaError, …
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise MissingSparkError("pyspark isn't installed: pip install 'duckicelake[spark]'") from error
    settings = conf or {}
    running = SparkSession.getActiveSession()
    if running is not None:
        hide_secrets(running)
        yield _connect_session(running.newSession(), connection, settings)
        return
    with launch_spark(build_launch_conf(master, packages, settings)) as session:
        yield _connect_session(session, connection, settings)


def _connect_session(session: SparkSession, connection: Connection, conf: Mapping[str, str]) -> SparkSession:
    """Return the session with the catalog in it: said here and not at the start, where others would see passwords."""
    of_sql = {name: value for name, value in conf.items() if name.startswith("spark.sql.")}
    for secret in ("credential", "token"):  # of a connection before
        session.conf.unset(f"spark.sql.catalog.{CATALOG_NAME}.{secret}")
    configure(session, {**build_session_conf(connection), **of_sql})
    return session


def build_session_conf(connection: Connection) -> dict[str, str]:
    """Return what any session can be given."""
    catalog = f"spark.sql.catalog.{CATALOG_NAME}"
    return {
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "rest",
        **{f"{catalog}.{name}": value for name, value in connection.catalog_properties().items()},
        f"{catalog}.header.X-Iceberg-Access-Delegation": "vended-credentials",
        f"{catalog}.header.X-Engine": PIPELINE_AGENT,
        f"{catalog}.cache-enabled": "false",
        "spark.sql.defaultCatalog": CATALOG_NAME,
        "spark.sql.session.timeZone": "UTC",
    }


@contextmanager
def stamp_snapshots(spark: SparkSession, job: PipelineJob) -> Iterator[None]:
    """Yield every snapshot that SQL and DataFrames of the session make in the block has the job's keys in its summary.

    Only one thread at a time is in such a block of a session's, for it is the session that has the keys.
    """
    with stamp_with(spark, job.summary):
        yield


@contextmanager
def stamp_with(spark: SparkSession, summary: Mapping[str, str]) -> Iterator[None]:
    """Yield the same with any keys."""
    settings = {f"{SNAPSHOT_PROPERTY}{key}": value for key, value in summary.items()}
    with _STAMP_LOCKS[Jvm(spark).session.sessionUUID()], override_settings(spark, settings):
        yield


@contextmanager
def override_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Yield the session with other settings while the block runs."""
    before = {name: spark.conf.get(name, None) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, old in before.items():
            spark.conf.unset(name) if old is None else spark.conf.set(name, old)


@dataclass(frozen=True, slots=True)
class ListenerSettings:
    """Settings that Spark needs at its start, and the packages for them."""

    conf: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()


def build_parent_conf(environment: Mapping[str, str]) -> dict[str, str]:
    """Return settings by which snapshots and the listener's events name the run they are part of.

    Schedulers give it by `OPENLINEAGE_PARENT_ID` (`namespace/name/run id`) and `OPENLINEAGE_ROOT_PARENT_ID`.
    """
    conf: dict[str, str] = {}
    for prefix, variable in (("parent", "OPENLINEAGE_PARENT_ID"), ("rootParent", "OPENLINEAGE_ROOT_PARENT_ID")):
        front, _, run_id = environment.get(variable, "").rpartition("/")
        namespace, _, name = front.rpartition("/")
        if not namespace or not name:
            continue
        said = {f"{prefix}RunId": run_id, f"{prefix}JobName": name, f"{prefix}JobNamespace": namespace}
        for key, value in said.items():
            conf[f"spark.openlineage.{key}"] = value
            conf[f"{SNAPSHOT_PROPERTY}openlineage.{key}"] = value
    return conf


def build_listener_settings(
    wanted: ListenerMode, connection: Connection, token: str | None, conf: Mapping[str, str]
) -> ListenerSettings:
    """Have the listener send events to the catalog, in the name of the token's bearer; what `conf` says of it wins."""
    is_present = any("openlineage-spark" in conf.get(name, "") for name in _JAR_SETTINGS)
    if wanted == "off" or (wanted == "auto" and not is_present):
        return ListenerSettings(conf)
    listeners = [listener for listener in conf.get(_LISTENERS_SETTING, "").split(",") if listener]
    catalog_conf = {
        "spark.openlineage.transport.type": "http",
        "spark.openlineage.transport.url": connection.uri.rstrip("/"),
        "spark.openlineage.transport.endpoint": _LINEAGE_PATH,
        "spark.openlineage.namespace": connection.uri.rstrip("/"),
        "spark.openlineage.facets.sql.disabled": "true",  # it has the values that are in SQL
    }
    if token is not None:
        catalog_conf |= {
            "spark.openlineage.transport.auth.type": "api_key",
            "spark.openlineage.transport.auth.apiKey": token,
        }
    listener = {_LISTENERS_SETTING: ",".join(dict.fromkeys((*listeners, _LISTENER_CLASS)))}
    return ListenerSettings({**catalog_conf, **conf, **listener}, () if is_present else (OPENLINEAGE_PACKAGE,))
