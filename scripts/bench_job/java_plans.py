"""Plans that Iceberg's Java library makes by itself, in the JVM of a Spark that brings the library and runs no job."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import psutil  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from scripts.demo_job.connect import ICEBERG, stop

MEMORY: Final = "2g"


class JavaPlans:
    """A table of a metadata.json, as Iceberg's Java library reads it from local files. process: the JVM."""

    def __init__(self, jvm: Any, process: int, location: str) -> None:
        iceberg = jvm.org.apache.iceberg
        self._process = psutil.Process(process)
        self._expressions = iceberg.expressions.Expressions
        self._iterables = iceberg.relocated.com.google.common.collect.Iterables
        io = iceberg.hadoop.HadoopFileIO(jvm.org.apache.hadoop.conf.Configuration())
        self._table = iceberg.BaseTable(iceberg.StaticTableOperations(location, io), "big")

    def cpu_ms(self, column: str | None = None, value: object = None, times: int = 1) -> float:
        """Mean CPU of the whole JVM, its compiler and collector among it, for a plan of `column = value`, or of all."""
        wanted = self._expressions.alwaysTrue() if column is None else self._expressions.equal(column, value)
        before = self._cpu_seconds()
        for _ in range(times):
            tasks = self._table.newScan().filter(wanted).planFiles()
            self.files = int(self._iterables.size(tasks))
            tasks.close()
        return (self._cpu_seconds() - before) / times * 1e3

    def _cpu_seconds(self) -> float:
        processes = [self._process, *self._process.children(recursive=True)]
        return float(sum(sum(process.cpu_times()[:2]) for process in processes))


@contextmanager
def java_plans(location: str) -> Iterator[JavaPlans]:
    """A JVM that ends with the block."""
    settings: dict[str, str | bool | float | None] = {
        "spark.jars.packages": ICEBERG,
        "spark.driver.memory": MEMORY,
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    session = SparkSession.builder.master("local[2]").appName("duckicelake").config(map=settings).getOrCreate()
    try:
        gateway = session.sparkContext._gateway  # noqa: SLF001
        yield JavaPlans(gateway.jvm, gateway.proc.pid, location)  # type: ignore[union-attr]
    finally:
        stop(session)
