"""What Iceberg raises in Spark's JVM, told apart by its classes."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from duckicelake.errors import JobConflictError
from duckicelake.pipeline.failures import explain_failure, is_conflict
from duckicelake.pipeline.java import Jvm, plan_tasks

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]


def test_conflict_with_others_is_distinguished_from_what_iceberg_never_does(
    spark: SparkSession, namespace: str
) -> None:
    name, jvm = f"lake.{namespace}.t", Jvm(spark)
    spark.sql(f"CREATE TABLE {name} (id int) TBLPROPERTIES ('gc.enabled' = 'false')")
    spark.sql(f"INSERT INTO {name} VALUES (1)")
    mine: Any = jvm.table(name)
    rewrite = mine.newRewrite().validateFromSnapshot(mine.currentSnapshot().snapshotId())
    for task in plan_tasks(mine.newScan()):
        rewrite.deleteFile(task.file())
    spark.sql(f"DELETE FROM {name}")
    with pytest.raises(Exception, match="Missing required files to delete") as raised:
        rewrite.commit()
    assert is_conflict(raised.value)
    assert type(explain_failure(raised.value)) is JobConflictError
    with pytest.raises(Exception, match="GC is disabled") as raised:
        jvm.table(name).expireSnapshots()
    assert not is_conflict(raised.value)
