"""OpenLineage's own listener in Spark, which tells the catalog what each job reads and writes, column by column."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

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
