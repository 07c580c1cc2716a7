"""What Spark Delta reads of a table at each version, kept for tests that have no JVM with Delta."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import VariantType

COMMIT = re.compile(r"^(\d{20})(\.[^.]*)?(\.checkpoint.*|\.json)$")


def versions_of(table: Path) -> list[int]:
    """All whose commit or checkpoint is in the log."""
    found = (COMMIT.match(each.name) for each in (table / "_delta_log").iterdir())
    return sorted({int(match[1]) for match in found if match})


def record(session: SparkSession, table: Path, folder: Path) -> None:
    """`<version>.arrow` for what can be read, and `read.json`: each version's schema or error, and the history."""
    folder.mkdir(parents=True)
    told = {str(version): _version(session, table, version, folder) for version in versions_of(table)}
    history = list(_history(session, table))
    (folder / "read.json").write_text(json.dumps({"root": str(table), "versions": told, "history": history}))


def _version(session: SparkSession, table: Path, version: int, folder: Path) -> dict[str, Any]:
    try:
        frame = session.read.format("delta").option("versionAsOf", version).load(str(table))
        rows = with_texts(frame).toArrow()
    except (PySparkException, Py4JError) as error:
        return {"error": str(error).strip().splitlines()[0][:300]}
    with pa.OSFile(str(folder / f"{version}.arrow"), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)
    return {"schema": frame.schema.jsonValue()}


def with_texts(frame: DataFrame) -> DataFrame:
    """Variants as their JSON: Arrow has no type for them."""
    for field in frame.schema.fields:
        if isinstance(field.dataType, VariantType):
            frame = frame.withColumn(field.name, frame[field.name].cast("string"))
    return frame


def _history(session: SparkSession, table: Path) -> Iterator[dict[str, Any]]:
    frame = session.sql(f"DESCRIBE HISTORY delta.`{table}`")
    for row in frame.selectExpr("version", "unix_millis(timestamp) AS ms", "operation", "userMetadata").collect():
        yield row.asDict()
