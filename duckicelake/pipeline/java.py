"""Classes of Iceberg and Spark in Spark's JVM, through py4j. Errors are Java's; `failures.py` knows what they mean."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REWRITE_CATALOG_SETTING: Final = (
    "spark.sql.catalog.default_rewrite_catalog",
    "org.apache.iceberg.spark.SparkRewriteTableCatalog",
)


class Jvm:
    """The JVM of a session. iceberg: its package `org.apache.iceberg`. Java's objects are Any here."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        context: Any = spark.sparkContext
        self._classes, self._gateway = context._jvm, context._gateway  # noqa: SLF001
        self.session: Any = spark._jsparkSession  # noqa: SLF001
        self.iceberg = self._classes.org.apache.iceberg

    def make_active(self) -> None:
        """Make the session the thread's active one: readers find staged tasks by it; a pool may lack one."""
        self._spark.conf.set(*_REWRITE_CATALOG_SETTING)
        self._classes.org.apache.spark.sql.SparkSession.setActiveSession(self.session)

    def catalog(self, name: str) -> Any:
        """Return a catalog of the session's."""
        return self.iceberg.spark.Spark3Util.loadIcebergCatalog(self.session, name)

    def table(self, name: str) -> Any:
        """Return a table as it is now, by its name in SQL."""
        return self.iceberg.spark.Spark3Util.loadIcebergTable(self.session, name)

    def condition(self, table: str, text: str) -> Any:
        """Return Spark's SQL on a table's columns as Iceberg's expression."""
        converter = self._classes.org.apache.spark.sql.execution.datasources.SparkExpressionConverter
        resolved = converter.collectResolvedSparkExpression(self.session, table, text)
        return converter.convertToIcebergExpression(resolved)

    def try_value(self, value: Any) -> Any:
        """Return a column of Spark's that is null where the value can't be computed.

        SQL can say so of single functions.
        """
        columns = self._classes.org.apache.spark.sql.classic.ExpressionUtils
        attempt = self._classes.org.apache.spark.sql.catalyst.expressions.TryEval(columns.expression(value))
        return columns.column(attempt)

    def array(self, of: Any, values: Iterable[Any]) -> Any:
        """Return an array of a Java class."""
        listed = list(values)
        array = self._gateway.new_array(of, len(listed))
        for index, value in enumerate(listed):
            array[index] = value
        return array

    def strings(self, values: Iterable[str]) -> Any:
        """Return a String[]."""
        return self.array(self._classes.java.lang.String, values)

    @contextmanager
    def stage_tasks(self, table: Any, tasks: Iterable[Any]) -> Iterator[str]:
        """Yield a name by which Iceberg's reader and its rewriter know these scan tasks of the table, within the block.

        `spark.read.format("iceberg").load(name)` reads their rows alone. Iceberg refuses to stage none.
        """
        self.make_active()
        name, listed = str(uuid4()), self._classes.java.util.ArrayList()
        for task in tasks:
            listed.add(task)
        tables, manager = self._table_cache(), self.iceberg.spark.ScanTaskSetManager.get()
        tables.add(name, table)
        manager.stageTasks(table, name, listed)
        try:
            yield name
        finally:
            manager.removeTasks(table, name)
            tables.remove(name)

    def _table_cache(self) -> Any:
        """Find the static `get()` by reflection: py4j doesn't see it beside the other `get(String)`."""
        loader = self._classes.java.lang.Thread.currentThread().getContextClassLoader()
        cache = loader.loadClass("org.apache.iceberg.spark.SparkTableCache")
        get = cache.getMethod("get", self.array(self._classes.Class, ()))
        return get.invoke(None, self.array(self._classes.Object, ()))


def iterate_java(iterable: Any) -> Iterator[Any]:
    """Yield what a Java Iterable gives: py4j knows collections only."""
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def plan_tasks(scan: Any) -> Generator[Any, None, None]:
    """Yield the tasks of an Iceberg scan, a data file and its deletes each."""
    tasks = scan.planFiles()
    try:
        yield from iterate_java(tasks)
    finally:
        tasks.close()
