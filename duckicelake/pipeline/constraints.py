"""The CHECK constraints of a table as the catalog knows them, and which rows violate them.

The catalog takes only expressions that Spark and DuckDB evaluate alike, so Spark evaluates their text.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from duckicelake.pipeline.destination import Target
from duckicelake.pipeline.java import Jvm
from duckicelake.rest.client import CatalogClient

PREFIX: Final = "constraint."


def constraints_on(
    spark: SparkSession, client: CatalogClient, target: Target, columns: StructType, written: Sequence[str]
) -> dict[str, str]:
    """The texts of the table's constraints over columns that are written, by name; the catalog judges the others."""
    metadata = client.load_table(target.namespace, target.table, "refs")["metadata"]
    properties: Mapping[str, str] = metadata.get("properties", {})
    found = {key.removeprefix(PREFIX): text for key, text in properties.items() if key.startswith(PREFIX)}
    if not found:
        return {}
    come = spark.createDataFrame([], StructType([each for each in columns.fields if each.name in set(written)]))

    def resolves(text: str) -> bool:
        try:
            come.select(F.expr(text))
        except AnalysisException:
            return False
        return True

    return {name: text for name, text in found.items() if resolves(text)}


def violates(text: str) -> Column:
    """Whether a row violates a constraint, which is never null: NULL is a violation, too, and so is an overflow."""
    condition: Any = F.expr(text)
    tried = Jvm(SparkSession.active()).tried(condition._jc)  # noqa: SLF001
    return ~F.coalesce(Column(tried), F.lit(False))
