"""OpenLineage's own listener in Spark, which tells the catalog what each job reads and writes, column by column."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from duckicelake.pipeline.session import SNAPSHOT_PROPERTY
from duckicelake.rest.connection import Connection

OPENLINEAGE: Final = "io.openlineage:openlineage-spark_2.13:1.53.0"
"""The first that works with Spark 4.1."""
_LISTENER: Final = "io.openlineage.spark.agent.OpenLineageSparkListener"
_PATH: Final = "/api/v1/lineage"
_JARS: Final = ("spark.jars.packages", "spark.jars", "spark.driver.extraClassPath")
_LISTENERS: Final = "spark.extraListeners"

Wanted = Literal["auto", "on", "off"]
"""auto: where a setting of Spark's has the listener's jar. on: the jar is taken from Maven where none has."""


@dataclass(frozen=True, slots=True)
class Listening:
    """What Spark must be told when it starts, and the packages that it needs for that."""

    conf: Mapping[str, str] = field(default_factory=dict)
    packages: tuple[str, ...] = ()


def parent_conf(environment: Mapping[str, str]) -> dict[str, str]:
    """Settings by which snapshots and the listener's events say which run they are part of, as schedulers tell it.

    They do by `OPENLINEAGE_PARENT_ID` (`namespace/name/run id`) and `OPENLINEAGE_ROOT_PARENT_ID`.
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


def listening(wanted: Wanted, connection: Connection, token: str | None, conf: Mapping[str, str]) -> Listening:
    """Have the listener send events to the catalog, in the name of the token's bearer; what `conf` says of it wins."""
    is_present = any("openlineage-spark" in conf.get(name, "") for name in _JARS)
    if wanted == "off" or (wanted == "auto" and not is_present):
        return Listening(conf)
    listeners = [each for each in conf.get(_LISTENERS, "").split(",") if each]
    told = {
        "spark.openlineage.transport.type": "http",
        "spark.openlineage.transport.url": connection.uri.rstrip("/"),
        "spark.openlineage.transport.endpoint": _PATH,
        "spark.openlineage.namespace": connection.uri.rstrip("/"),
        "spark.openlineage.facets.sql.disabled": "true",  # it has the values that are in SQL
    }
    if token is not None:
        told |= {
            "spark.openlineage.transport.auth.type": "api_key",
            "spark.openlineage.transport.auth.apiKey": token,
        }
    listener = {_LISTENERS: ",".join(dict.fromkeys((*listeners, _LISTENER)))}
    return Listening({**told, **conf, **listener}, () if is_present else (OPENLINEAGE,))
