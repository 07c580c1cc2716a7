"""A stock Spark with Iceberg in one process, that runs SQL: in a version beside the tests' own."""

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scripts.engines_job.java import JavaEngine, running_java
from scripts.engines_job.packages import spark_jars

_NAMES = (
    "util",
    "lang",
    "net",
    "nio",
    "io",
    "lang.invoke",
    "lang.reflect",
    "util.concurrent",
    "util.concurrent.atomic",
)
_OPENED = (*(f"java.{name}" for name in _NAMES), "sun.nio.ch", "sun.nio.cs", "sun.security.action", "sun.util.calendar")
"""Packages of Java's that Spark looks into."""
_SETTINGS = {
    "spark.master": "local[2]",
    "spark.app.name": "tests",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.jsonGenerator.ignoreNullFields": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
}


class SparkProcess:
    """Not for several threads."""

    def __init__(self, engine: JavaEngine) -> None:
        self._engine = engine

    def rows(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement to its end; its rows as JSON has them. EngineError says why it failed."""
        answered = self._engine.ask(b64encode(statement.encode()).decode(), statement)
        return [tuple(json.loads(row).values()) for row in answered]


@contextmanager
def running_spark(version: str, folder: Path, catalogs: Mapping[str, Mapping[str, str]]) -> Iterator[SparkProcess]:
    """Start it with the Java on the PATH; what it says goes to the folder.

    version: one of SPARKS. catalogs: settings of Iceberg catalogs.
    """
    settings = dict(_SETTINGS)
    for name, given in catalogs.items():
        settings[f"spark.sql.catalog.{name}"] = "org.apache.iceberg.spark.SparkCatalog"
        settings |= {f"spark.sql.catalog.{name}.{key}": value for key, value in given.items()}
    with running_java("SparkStatements.java", spark_jars(version), folder, _OPENED, settings) as engine:
        yield SparkProcess(engine)
