"""The two sides of a comparison: a table as an engine reads it, in one state for as long as it is compared."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import duckdb

from duckicelake.errors import BadInput, JobConflict, NoTable
from duckicelake.pipeline.canonical import Dialect, DuckSQL, SparkSQL
from duckicelake.pipeline.duck import ATTACHED, first_line
from duckicelake.pipeline.session import configured
from duckicelake.pipeline.value_types import Type, of_duckdb, of_spark
from duckicelake.rest.names import Namespace, parse_table, quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REFERENCE: Final = re.compile(r"(?:(source|duckdb):)?(.+?)(?:@(\d+))?")


@dataclass(frozen=True, slots=True)
class Reference:
    """A table to be compared. engine: `lake` and `source` are read by Spark, `duckdb` by DuckDB.

    snapshot: None is the newest.
    """

    engine: str
    namespace: Namespace
    table: str
    snapshot: int | None


def parse_reference(text: str) -> Reference:
    """`ns.t`, `source:ns.t`, `duckdb:ns.t`, each also with `@<snapshot id>`; BadInput."""
    found = _REFERENCE.fullmatch(text)
    if found is None:
        raise BadInput(f"{text!r} is no table: write ns.table, source:ns.table or duckdb:ns.table")
    namespace, table = parse_table(found[2])
    return Reference(found[1] or "lake", namespace, table, int(found[3]) if found[3] else None)


class Side(Protocol):
    """A table that answers queries in its engine's SQL."""

    @property
    def dialect(self) -> Dialect: ...

    @property
    def relation(self) -> str:
        """What queries name in FROM."""

    @property
    def columns(self) -> Mapping[str, Type]: ...

    def rows(self, query: str) -> Sequence[Sequence[Any]]:
        """All rows of an answer, which must fit into memory."""

    def check(self) -> None:
        """To be called when all is read: JobConflict if not all was of one state of the table."""


class SparkSide:
    """A table of a catalog in Spark, as it is, or at a snapshot, then with the columns of when that was made."""

    dialect = SparkSQL()

    def __init__(self, spark: SparkSession, catalog: str, reference: Reference) -> None:
        self._spark = spark
        self._name = quoted(catalog, *reference.namespace, reference.table)
        at = reference.snapshot
        self.relation = self._name if at is None else f"{self._name} VERSION AS OF {at}"
        self._newest = self._head() if at is None else None
        schema = spark.sql(f"SELECT * FROM {self.relation}").schema
        self.columns = {field["name"]: of_spark(field["type"]) for field in schema.jsonValue()["fields"]}

    def rows(self, query: str) -> Sequence[Sequence[Any]]:
        with configured(self._spark, {"spark.sql.ansi.enabled": "true", "spark.sql.session.timeZone": "UTC"}):
            return self._spark.sql(query).collect()

    def check(self) -> None:
        if self._newest is not None and self._head() != self._newest:
            told = f"compare @{self._newest[0]}, as it was, or once more" if self._newest else "compare once more"
            raise JobConflict(f"{self._name} was written to while it was read: {told}")

    def _head(self) -> list[int]:
        """The newest snapshot, if there is any."""
        refs = self._spark.sql(f"SELECT snapshot_id FROM {self._name}.refs WHERE name = 'main'")
        return [row[0] for row in refs.collect()]


class DuckSide:
    """A table of the lake as DuckDB reads it, in a transaction that sees one state of it."""

    dialect = DuckSQL()

    def __init__(self, connection: duckdb.DuckDBPyConnection, reference: Reference) -> None:
        self._connection = connection.begin()
        schema, table = (self.dialect.identifier(each) for each in (".".join(reference.namespace), reference.table))
        at = "" if reference.snapshot is None else f" AT (VERSION => {reference.snapshot})"
        self.relation = f"{ATTACHED}.{schema}.{table}{at}"
        try:
            described = connection.sql(f"SELECT * FROM {self.relation} LIMIT 0")
        except duckdb.CatalogException as error:
            raise NoTable(f"DuckDB finds no {self.relation}: {first_line(error)}") from error
        types = (of_duckdb(type_) for type_ in described.types)
        self.columns = dict(zip(described.columns, types, strict=True))

    def rows(self, query: str) -> Sequence[Sequence[Any]]:
        return self._connection.execute(query).fetchall()

    def check(self) -> None:
        """A transaction reads one state."""
