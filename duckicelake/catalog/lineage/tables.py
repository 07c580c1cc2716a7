"""What lineage must know of tables besides their changes: where they lie, whose they are, and of what columns."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from duckicelake.bridge.columns import schema_of
from duckicelake.errors import CatalogError
from duckicelake.lake import native
from duckicelake.lake.chronicle.entries import START, Change, Position
from duckicelake.lake.lineage import follower as lineage_follower
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lineage.told import Known, Schema, Told

_MOST: Final = 2000
"""Tables that are kept in memory."""


@dataclass(frozen=True, slots=True)
class _Table:
    location: str | None = None
    schema: Schema | None = None


class Tables:
    """Tables as of the last change that was told, for as long as nobody else tells of the changes in between."""

    def __init__(self) -> None:
        self._tables: OrderedDict[int, _Table] = OrderedDict()
        self._upto: Position = START

    def tell(self, cursor: Transaction, after: Position, changes: Sequence[Change]) -> list[Told]:
        """The changes that come after a position, each with what its table was with it."""
        if after != self._upto:
            self._tables.clear()
        self._upto = changes[-1].position if changes else after
        of_tables = {each.object_id for each in changes if _is_of_table(each) and each.object_id is not None}
        owners = lineage_follower.owners(cursor, of_tables) if of_tables else {}
        unknown = of_tables - self._tables.keys()
        places = lineage_follower.places(cursor, unknown) if unknown else {}
        self._tables |= {table_id: _Table(places.get(table_id)) for table_id in unknown}
        told = [Told(each, self._known(cursor, each, owners)) for each in changes]
        while len(self._tables) > _MOST:
            self._tables.popitem(last=False)
        return told

    def place(self, table_id: int) -> str | None:
        """Where a table lies of which there was a change."""
        table = self._tables.get(table_id)
        return None if table is None else table.location

    def _known(self, cursor: Transaction, change: Change, owners: dict[int, str]) -> Known:
        if not _is_of_table(change) or change.object_id is None:
            return Known()
        table = self._tables[change.object_id]
        schema, location = change.facts.get("schema"), change.facts.get("location")
        if schema is None and table.schema is None:
            schema = _schema(cursor, change)
        table = _Table(location or table.location, Schema(schema) if schema else table.schema)
        self._tables[change.object_id] = table
        self._tables.move_to_end(change.object_id)
        return Known(table.location, owners.get(change.object_id), table.schema)


def column_names(schema: dict[str, Any] | None) -> tuple[str, ...] | None:
    """The columns of a schema as Iceberg's JSON has it."""
    return None if schema is None else tuple(field["name"] for field in schema["fields"])


def schema_at(cursor: Transaction, table_id: int, at: int) -> dict[str, Any] | None:
    """Iceberg's JSON of a table's schema at a DuckLake snapshot, as far as DuckLake's columns say it."""
    try:
        definition = native.definition(cursor, table_id, at)
        return None if definition is None else schema_of(definition.columns, 0).to_json()
    except CatalogError:  # columns that Iceberg doesn't have, or that make no sense
        return None


def _schema(cursor: Transaction, change: Change) -> dict[str, Any] | None:
    assert change.object_id is not None
    at = change.snapshot_id - 1 if change.kind == "drop-table" else change.snapshot_id
    return schema_at(cursor, change.object_id, at)


def _is_of_table(change: Change) -> bool:
    return change.name is not None and not change.kind.endswith("-view")
