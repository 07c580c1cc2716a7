"""Look up tables and views for lineage: places, owners, columns, and view definitions as jobs."""

import re
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from openlineage.client.event_v2 import JobEvent
from openlineage.client.facet_v2 import BaseFacet, job_type_job, sql_job

from duckicelake.bridge.values.columns import to_schema
from duckicelake.changelog.entries import START_POSITION, LoggedChange, LogPosition
from duckicelake.errors import CatalogError
from duckicelake.lake.ducklake import native
from duckicelake.lake.model import ViewDefinition
from duckicelake.lineage.events import progress as lineage_progress
from duckicelake.lineage.openlineage.changes import CatalogChange, Json, KnownObject, TableSchema
from duckicelake.lineage.openlineage.facets import build_outputs, encode_facet, strip_to_names
from duckicelake.lineage.openlineage.names import PRODUCER, NamedLake, name_location
from duckicelake.lineage.openlineage.runs import RunChanges, add_hash, format_utc
from duckicelake.lineage.sql.dialects import MAX_MASKED_CHARS, mask_sql, may_show_values
from duckicelake.lineage.sql.lineage import LAKE, build_column_lineage, read_view_lineage
from duckicelake.lineage.sql.model import Lookup, SqlDataset, StatementLineage
from duckicelake.postgres.queries import Transaction

_LRU_ENTRIES: Final = 2000
"""Tables that are kept in memory."""
DEFINING: Final = frozenset({"create-view", "alter-view"})
_SCHEMA_URL: Final = JobEvent._get_schema()  # noqa: SLF001 - as the library itself would say it
_ALIAS: Final = re.compile(r'"((?:[^"]|"")*)"')
_MAIN: Final = "main"
"""DuckDB's schema for names that name none."""
TablePlaces = Callable[[int], str | None]
"""Finds a table's location by its id; None if no event had it so far."""


@dataclass(frozen=True, slots=True)
class _KnownTable:
    location: str | None = None
    schema: TableSchema | None = None


class KnownTables:
    """Tables after the last resolved change, valid while no other process resolves changes."""

    def __init__(self) -> None:
        self._tables: OrderedDict[int, _KnownTable] = OrderedDict()
        self._upto: LogPosition = START_POSITION

    def resolve(self, cursor: Transaction, after: LogPosition, changes: Sequence[LoggedChange]) -> list[CatalogChange]:
        """Resolve changes after a position: each with its table at that time."""
        if after != self._upto:
            self._tables.clear()
        self._upto = changes[-1].position if changes else after
        of_tables = {
            change.object_id for change in changes if _is_table_change(change) and change.object_id is not None
        }
        owners = lineage_progress.read_owners(cursor, of_tables) if of_tables else {}
        unknown = of_tables - self._tables.keys()
        places = lineage_progress.read_places(cursor, unknown) if unknown else {}
        self._tables |= {table_id: _KnownTable(places.get(table_id)) for table_id in unknown}
        catalog_change = [CatalogChange(change, self._find_object(cursor, change, owners)) for change in changes]
        while len(self._tables) > _LRU_ENTRIES:
            self._tables.popitem(last=False)
        return catalog_change

    def place(self, table_id: int) -> str | None:
        """Return the location of a table that was changed."""
        table = self._tables.get(table_id)
        return None if table is None else table.location

    def _find_object(self, cursor: Transaction, change: LoggedChange, owners: dict[int, str]) -> KnownObject:
        if not _is_table_change(change) or change.object_id is None:
            return KnownObject()
        table = self._tables[change.object_id]
        schema, location = change.facts.get("schema"), change.facts.get("location")
        if schema is None and table.schema is None:
            schema = _build_schema(cursor, change)
        table = _KnownTable(location or table.location, TableSchema(schema) if schema else table.schema)
        self._tables[change.object_id] = table
        self._tables.move_to_end(change.object_id)
        return KnownObject(table.location, owners.get(change.object_id), table.schema)


def read_column_names(schema: dict[str, Any] | None) -> tuple[str, ...] | None:
    """Read the column names in a schema's JSON."""
    return None if schema is None else tuple(field["name"] for field in schema["fields"])


def read_schema_at(cursor: Transaction, table_id: int, at: int) -> dict[str, Any] | None:
    """Read Iceberg's JSON of a table's schema at a DuckLake snapshot, as far as DuckLake's columns have it."""
    try:
        definition = native.read_definition(cursor, table_id, at)
        return None if definition is None else to_schema(definition.columns, 0).to_json()
    except CatalogError:  # columns that Iceberg doesn't have, or that make no sense
        return None


def _build_schema(cursor: Transaction, change: LoggedChange) -> dict[str, Any] | None:
    assert change.object_id is not None
    at = change.snapshot_id - 1 if change.kind == "drop-table" else change.snapshot_id
    return read_schema_at(cursor, change.object_id, at)


def _is_table_change(change: LoggedChange) -> bool:
    return change.name is not None and not change.kind.endswith("-view")


@dataclass(frozen=True, slots=True)
class DefinedView:
    """A view's definition. sql: as in DuckLake. shown: for people. columns: names, if the view has any.

    literals: whether events may contain literals of its SQL.
    """

    sql: str
    shown: str
    dialect: str
    columns: tuple[str, ...] | None
    literals: bool = False


def build_definition_event(
    catalog_change: CatalogChange, definition: DefinedView, lookup: Lookup, lake: NamedLake
) -> Json:
    """Build the event of a created or altered view, with its SQL, and its lineage as far as known."""
    view = SqlDataset(*catalog_change.dataset(lake), definition.columns)
    found = read_view_lineage(definition.sql, definition.dialect, view, lookup) or StatementLineage(())
    (output,) = strip_to_names(build_outputs([catalog_change], lake))
    columns = build_column_lineage(found if definition.literals else _hide_valued_columns(found))
    facets = output["facets"] if columns is None else {**output["facets"], "columnLineage": columns}
    return {
        "eventTime": format_utc(catalog_change.change.at),
        "producer": PRODUCER,
        "schemaURL": _SCHEMA_URL,
        "job": _build_job(catalog_change, definition, lake),
        "inputs": [{"namespace": input_.namespace, "name": input_.name, "facets": {}} for input_ in found.inputs],
        "outputs": [{**output, "facets": facets}],
    }


def _build_job(catalog_change: CatalogChange, definition: DefinedView, lake: NamedLake) -> Json:
    facets: dict[str, BaseFacet] = {"jobType": job_type_job.JobTypeJobFacet("BATCH", "DUCKICELAKE", "VIEW")}
    sql = definition.shown[:MAX_MASKED_CHARS] if definition.literals else mask_sql(definition.shown, definition.dialect)
    if sql:
        facets["sql"] = sql_job.SQLJobFacet(sql, definition.dialect)
    name = add_hash(lake, "duckicelake", "view", [catalog_change.change.resource], None)
    return {"namespace": lake.uri, "name": name, "facets": {key: encode_facet(facet) for key, facet in facets.items()}}


def _hide_valued_columns(found: StatementLineage) -> StatementLineage:
    """Remove columns whose names contain their expression."""
    fields = {name: flow for name, flow in (found.fields or {}).items() if not may_show_values(name)}
    return replace(found, fields=fields)


def build_definitions(
    cursor: Transaction, run: RunChanges, lake: NamedLake, places: TablePlaces, *, literals: bool
) -> list[Json]:
    """Build the events of the views that the run defined."""
    events = []
    for catalog_change in run:
        change = catalog_change.change
        if change.kind not in DEFINING or change.object_id is None:
            continue
        view = lineage_progress.read_view(cursor, change.object_id, change.snapshot_id)
        if view is not None:
            definition = DefinedView(view.sql, view.query, view.dialect, _read_columns(view), literals)
            lookup = _build_lookup(cursor, change.snapshot_id, lake, places)
            events.append(build_definition_event(catalog_change, definition, lookup, lake))
    return events


def _build_lookup(cursor: Transaction, at: int, lake: NamedLake, places: TablePlaces) -> Lookup:
    def find(parts: tuple[str, ...]) -> SqlDataset | None:
        for schema_name, name in _list_readings(parts):
            found = lineage_progress.find_named(cursor, schema_name, name, at)
            if found is not None:
                return _dataset(cursor, *found, f"{schema_name}.{name}")
        return None

    def _dataset(cursor: Transaction, object_id: int, is_view: bool, resource: str) -> SqlDataset:
        if is_view:
            view = lineage_progress.read_view(cursor, object_id, at)
            return SqlDataset(*lake.name_dataset(resource), None if view is None else _read_columns(view))
        place = places(object_id) or lineage_progress.read_places(cursor, [object_id]).get(object_id)
        name = lake.name_dataset(resource) if place is None else name_location(place)
        return SqlDataset(*name, read_column_names(read_schema_at(cursor, object_id, at)))

    return find


def _list_readings(parts: Sequence[str]) -> list[tuple[str, str]]:
    """List the possible meanings of a name.

    They are levels of a namespace and a table, with or without the catalog's name in front.
    """
    *levels, name = parts
    if levels[:1] == [LAKE]:
        return [(".".join(levels[1:]) or _MAIN, name)]
    return [(".".join(levels[cut:]) or _MAIN, name) for cut in range(min(2, len(levels) + 1))]


def _read_columns(view: ViewDefinition) -> tuple[str, ...] | None:
    return tuple(alias.replace('""', '"') for alias in _ALIAS.findall(view.column_aliases)) or None
