"""Read and change tables of another Iceberg catalog, through Iceberg's code in Spark's JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import TYPE_CHECKING, Any, Final

from duckicelake.errors import BadInputError
from duckicelake.pipeline.java import Jvm
from duckicelake.pipeline.launcher import configure
from duckicelake.properties import GC_ENABLED
from duckicelake.rest.names import Namespace, quote_name

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REQUIRED_PROPERTIES: Final[Mapping[str, Sequence[str]]] = {
    "rest": ("uri",),
    "hadoop": ("warehouse",),
    "jdbc": ("uri", "warehouse"),
}
"""What Iceberg's catalogs of these types don't do without; Hive's and Glue's take it from where they run."""


@dataclass(frozen=True, slots=True)
class ForeignTable:
    """A table as its catalog has it now. snapshot: the current one; None for a table without rows ever."""

    namespace: Namespace
    name: str
    uuid: str
    metadata_location: str
    format_version: int
    properties: Mapping[str, str]
    snapshot: int | None


def check_source(properties: Mapping[str, str]) -> None:
    """Raise BadInputError names what is missing, as far as that is known without asking the catalog."""
    missing = [name for name in _REQUIRED_PROPERTIES.get(properties.get("type", ""), ()) if name not in properties]
    if not {"type", "catalog-impl"} & set(properties):
        missing = ["type (rest, hive, hadoop, glue, jdbc)"]
    if missing:
        raise BadInputError(
            "The other catalog is described by properties, as --source type=rest --source uri=http://…: "
            f"{' and '.join(missing)} is missing"
        )


def attach_source(spark: SparkSession, properties: Mapping[str, str]) -> str:
    """Make the catalog known to Spark; the name that it has there, of which other properties have another."""
    check_source(properties)
    name = f"source_{md5(repr(sorted(properties.items())).encode(), usedforsecurity=False).hexdigest()[:8]}"
    catalog_conf = {f"spark.sql.catalog.{name}.{key}": value for key, value in properties.items()}
    configure(spark, {**catalog_conf, f"spark.sql.catalog.{name}.cache-enabled": "false"})
    spark.conf.set(f"spark.sql.catalog.{name}", "org.apache.iceberg.spark.SparkCatalog")
    return name


class ForeignCatalog:
    """A catalog of Spark's, as Iceberg's Java classes show it. Errors are Java's, through py4j."""

    def __init__(self, spark: SparkSession, name: str) -> None:
        self.name = name
        self._jvm = Jvm(spark)
        spark.sql(
            f"SHOW NAMESPACES IN {quote_name(name)}"
        )  # SQL alone takes the settings of this session, not the active one
        self._catalog = self._jvm.catalog(name)

    def namespaces(self) -> Iterator[Namespace]:
        """Yield all namespaces, each after those that it is in.

        None where the catalog has none, but one that is empty.
        """
        yield from self._below(())

    def _below(self, parent: Namespace) -> Iterator[Namespace]:
        for found in self._catalog.listNamespaces(self._namespace(parent)):
            levels = tuple(found.levels())
            if len(levels) == len(parent) + 1:  # Glue and Hive, which have one level, answer with the parent itself
                yield levels
                yield from self._below(levels)

    def has_namespace(self, namespace: Namespace) -> bool:
        return bool(self._catalog.namespaceExists(self._namespace(namespace)))

    def namespace_properties(self, namespace: Namespace) -> dict[str, str]:
        return dict(self._catalog.loadNamespaceMetadata(self._namespace(namespace)))

    def tables(self, namespace: Namespace) -> list[str]:
        """Return names of its Iceberg tables; others of Hive's aren't listed."""
        return sorted(found.name() for found in self._catalog.listTables(self._namespace(namespace)))

    def views(self, namespace: Namespace) -> list[str]:
        """Return names of its views, where the catalog knows any."""
        if not self._is_a("catalog.ViewCatalog"):
            return []
        return sorted(found.name() for found in self._catalog.listViews(self._namespace(namespace)))

    def load(self, namespace: Namespace, name: str) -> ForeignTable:
        """Return the table as it is now."""
        return _describe_table(namespace, name, self.java_table(namespace, name))

    def guard(self, namespace: Namespace, name: str) -> ForeignTable:
        """Return all engines that use the catalog to delete no files of the table; the table then."""
        table = self.java_table(namespace, name)
        if not is_guarded(table.properties()):
            table.updateProperties().set(GC_ENABLED, "false").commit()
        return self.load(namespace, name)

    def unguard(self, namespace: Namespace, name: str) -> None:
        """Take `guard` back."""
        self.java_table(namespace, name).updateProperties().remove(GC_ENABLED).commit()

    def create_like(
        self, namespace: Namespace, name: str, model: Any, format_version: int, properties: Mapping[str, str]
    ) -> None:
        """Make a table with the schema, partitions and order of a Java table, which may be another catalog's."""
        builder = self._catalog.buildTable(self._identifier(namespace, name), model.schema())
        builder = builder.withPartitionSpec(model.spec()).withSortOrder(model.sortOrder())
        for key, value in {**properties, "format-version": str(format_version)}.items():
            builder = builder.withProperty(key, value)
        builder.create()

    def java_table(self, namespace: Namespace, name: str) -> Any:
        return self._catalog.loadTable(self._identifier(namespace, name))

    def _is_a(self, kind: str) -> bool:
        loader = self._catalog.getClass().getClassLoader()
        return bool(loader.loadClass(f"org.apache.iceberg.{kind}").isInstance(self._catalog))

    def _namespace(self, levels: Namespace) -> Any:
        return self._jvm.iceberg.catalog.Namespace.of(self._jvm.strings(levels))

    def _identifier(self, namespace: Namespace, name: str) -> Any:
        return self._jvm.iceberg.catalog.TableIdentifier.of(self._namespace(namespace), name)


def is_guarded(properties: Mapping[str, str]) -> bool:
    """Return whether engines must delete no files of a table with these properties."""
    return str(properties.get(GC_ENABLED, "true")).lower() == "false"


def _describe_table(namespace: Namespace, name: str, table: Any) -> ForeignTable:
    metadata = table.operations().current()
    current = table.currentSnapshot()
    return ForeignTable(
        namespace=namespace,
        name=name,
        uuid=metadata.uuid(),
        metadata_location=metadata.metadataFileLocation(),
        format_version=metadata.formatVersion(),
        properties=dict(table.properties()),
        snapshot=None if current is None else current.snapshotId(),
    )
