"""SQL of the graph as one reader may see it: datasets, edges, columns and runs."""

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

from duckicelake.catalog.context.caller import Principal
from duckicelake.iceberg.identifiers import parse_schema_name
from duckicelake.lineage.graph.parsed_event import EventName
from duckicelake.postgres.queries import Row, Transaction, load_queries

_SQL: Final = load_queries("lineage.graph", "graph")
_RUNS_OF_AN_EDGE: Final = 5
_SPECIAL: Final = re.compile(r"[\\%_]")
Field = tuple[int, str]
"""A field of a dataset."""


class DatasetRow(NamedTuple):
    """A dataset. schema_name, table_name: for tables of the lake."""

    id: int
    namespace: str
    name: str
    kind: str
    schema_name: str | None
    table_name: str | None
    lifecycle: str | None
    last_seen: datetime
    fields: list[dict[str, Any]] | None


class EdgeRow(NamedTuple):
    """An edge with the newest runs behind it."""

    source: int
    target: int
    job_id: int
    job_namespace: str | None
    job_name: str | None
    job_type: dict[str, Any] | None
    first_seen: datetime
    last_seen: datetime
    confidence: float | None
    runs: list[dict[str, Any]] | None


class ColumnRow(NamedTuple):
    """An edge between fields."""

    source: int
    target: int
    job_id: int
    source_field: str
    target_field: str
    kind: str
    subtype: str
    description: str | None
    is_masked: bool
    confidence: float | None


class RunRow(NamedTuple):
    """A run with its job. may_be_shown: whether the reader may see its events."""

    id: UUID
    origin: str
    state: str
    started: datetime
    ended: datetime | None
    facets: dict[str, Any]
    job_namespace: str
    job_name: str
    job_facets: dict[str, Any]
    may_be_shown: bool


class IoRow(NamedTuple):
    """A dataset of a run. may_be_known: by the reader."""

    is_output: bool
    dataset_id: int
    namespace: str
    name: str
    schema_name: str | None
    table_name: str | None
    version: str | None
    lifecycle: str | None
    confidence: float | None
    may_be_known: bool


@dataclass(frozen=True, slots=True)
class GraphView:
    """The graph as one reader may see it at a time; None: now.

    granted: patterns of what the reader may read; None: everything.
    """

    cursor: Transaction
    granted: Sequence[str] | None
    at: datetime | None = None

    @classmethod
    def of_reader(cls, cursor: Transaction, reader: Principal, at: datetime | None = None) -> "GraphView":
        """Make the view of a reader: of the schemas, and the single tables, that it may read."""
        schemas = reader.readable_schemas()
        if schemas is None:
            return cls(cursor, None, at)
        objects = reader.filter_readable(
            reader.readable_objects(), lambda found: (parse_schema_name(found[0]), found[1])
        )
        return cls(cursor, [*_build_patterns(schemas), *_build_object_patterns(objects)], at)

    def find(self, table: str) -> int | None:
        """Find the dataset of a table's full name."""
        return self._one(_SQL.find, name=table)

    def find_named(self, names: Iterable[EventName]) -> int | None:
        """Find the dataset of the first name that exists."""
        return self._one(_SQL.find_named, keys=[name.key for name in names])

    def datasets(self, ids: Collection[int]) -> list[DatasetRow]:
        return [DatasetRow(*row) for row in self.rows(_SQL.datasets, ids=list(ids))]

    def search(self, text: str, limit: int) -> list[DatasetRow]:
        return [DatasetRow(*row) for row in self.rows(_SQL.search, text=text, limit=limit)]

    def upstream(self, ids: Collection[int], limit: int) -> list[Row]:
        """Read pairs of a dataset and its source."""
        return self.rows(_SQL.upstream, ids=list(ids), limit=limit)

    def downstream(self, ids: Collection[int], limit: int) -> list[Row]:
        """Read pairs of a dataset and one made from it."""
        return self.rows(_SQL.downstream, ids=list(ids), limit=limit)

    def upstream_columns(self, fields: Collection[Field], limit: int) -> list[tuple[Field, Field]]:
        """Read pairs of a field and its source."""
        return self._fields(_SQL.upstream_columns, fields, limit)

    def downstream_columns(self, fields: Collection[Field], limit: int) -> list[tuple[Field, Field]]:
        """Read pairs of a field and one made from it; the field '' is any, or all."""
        return self._fields(_SQL.downstream_columns, fields, limit)

    def edges(self, ids: Collection[int], limit: int) -> list[EdgeRow]:
        """Read the edges between the datasets."""
        rows = self.rows(_SQL.edges, ids=list(ids), limit=limit, runs=_RUNS_OF_AN_EDGE)
        return [EdgeRow(*row) for row in rows]

    def columns(self, ids: Collection[int], limit: int) -> list[ColumnRow]:
        """Read the edges between the datasets."""
        return [ColumnRow(*row) for row in self.rows(_SQL.columns, ids=list(ids), limit=limit)]

    def run(self, run_id: UUID) -> RunRow | None:
        row = next(iter(self.rows(_SQL.run, id=run_id)), None)
        return None if row is None else RunRow(*row)

    def io(self, run_id: UUID) -> list[IoRow]:
        return [IoRow(*row) for row in self.rows(_SQL.io, id=run_id)]

    def events_of_run(self, run_id: UUID, limit: int) -> list[dict[str, Any]]:
        return [body for (body,) in self.rows(_SQL.events_of_run, id=run_id, limit=limit)]

    def events_of(self, ids: Collection[int], limit: int) -> list[dict[str, Any]]:
        """Read events of runs that touched the datasets and nothing hidden: the newest ones, oldest first."""
        return [body for (body,) in reversed(self.rows(_SQL.events_of, ids=list(ids), limit=limit))]

    def _fields(self, query: str, fields: Collection[Field], limit: int) -> list[tuple[Field, Field]]:
        ids, names = [number for number, _ in fields], [name for _, name in fields]
        rows = self.rows(query, ids=ids, fields=names, limit=limit)
        return [((number, name), (other, field)) for number, name, other, field in rows]

    def _one(self, query: str, **parameters: Any) -> int | None:
        row = next(iter(self.rows(query, **parameters)), None)
        return None if row is None else int(row[0])

    def rows(self, query: str, **parameters: Any) -> list[Row]:
        """Run a query for this reader, who is `granted` and `at` in it."""
        granted = None if self.granted is None else list(self.granted)
        return self.cursor.execute(query, {"granted": granted, "at": self.at, **parameters}).fetchall()


def _build_object_patterns(objects: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield LIKE patterns for tables, as migration 0065 reads them."""
    for schema, name in objects:
        yield f"{_escape(schema)}\x1f{_escape(name)}"


def _escape(text: str) -> str:
    return _SPECIAL.sub(r"\\\g<0>", text)


def _build_patterns(schemas: Sequence[str]) -> Iterator[str]:
    """Yield LIKE patterns for the schemas and those below them."""
    for schema in schemas:
        literal = _escape(schema)
        yield literal
        yield f"{literal}.%"
