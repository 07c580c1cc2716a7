"""PURE. Write what DuckDB reads of a table, in SQL: its rows as of a snapshot, and those of some files."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from duckicelake.bridge.values.types import quote_identifier
from duckicelake.iceberg.identifiers import Namespace, to_schema_name
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.rewrites.selection import RewriteGroup

_SKETCHED_AS: Final = {"boolean": "TINYINT", "int": "INTEGER", "long": "BIGINT", "timestamp": "TIMESTAMP"}
"""DuckDB's types of columns that it may have in several."""


TABLE_COPY: Final = "table_copy"
"""The process's copy of a table's catalog."""


@dataclass(frozen=True, slots=True)
class RewrittenTable:
    """The table whose rows are rewritten, as of a snapshot of DuckLake's. catalog: by which DuckDB reads it."""

    namespace: Namespace
    name: str
    metadata: TableMetadata
    ducklake_id: int
    codec: str
    catalog: str = TABLE_COPY

    @property
    def source(self) -> str:
        """What DuckDB reads, called t."""
        levels = (self.catalog, to_schema_name(self.namespace), self.name)
        return f"{'.'.join(map(quote_identifier, levels))} t AT (VERSION => {self.ducklake_id})"

    @property
    def keeps_updates(self) -> bool:
        """Whether rows say when they were last updated."""
        return self.metadata.format_version >= ROW_LINEAGE_VERSION


@dataclass(frozen=True, slots=True)
class SketchedColumn:
    """A column whose distinct values are counted."""

    name: str
    type: PrimitiveType

    @property
    def expression(self) -> str:
        """SQL of its values, whose bytes in Arrow are those of Iceberg's single-value serialization."""
        column = f"t.{quote_identifier(self.name)}"
        if self.type.traits.family == "uuid":
            return f"unhex(replace({column}::VARCHAR, '-', ''))"
        wanted = str(self.type) if self.type.traits.family == "decimal" else _SKETCHED_AS.get(self.type.name)
        return column if wanted is None else f"{column}::{wanted}"


def quote_all(texts: Iterable[str]) -> str:
    return f"[{', '.join(map(quote, texts))}]"


def write_rows(table: RewrittenTable, group: RewriteGroup) -> str:
    """Write what stands behind FROM for the rows of a group, called t."""
    listed = f"SELECT unnest({quote_all(file.path for file in group.files)}) AS filename"
    return f"{table.source} SEMI JOIN ({listed}) f ON t.filename = f.filename WHERE {write_path_filter(group)}"


def write_path_filter(group: RewriteGroup) -> str:
    """Write a filter of the table's files to those of a group, or to few others between them.

    DuckDB compares each file of the table with each name of a list, and stops at a range that it isn't in: 5,000 names
    take as long for each file as to read a small one. Names that writers make one after the other are a range.
    """
    paths = [file.path for file in group.files]
    span = f"t.filename BETWEEN {quote(min(paths))} AND {quote(max(paths))}"
    return span if group.is_dense else f"{span} AND t.filename IN {as_tuple(quote_all(paths))}"


def as_tuple(quoted: str) -> str:
    return f"({quoted[1:-1]})"


def quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
