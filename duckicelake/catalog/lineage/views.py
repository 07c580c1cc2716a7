"""What views are made of, looked up in the lake as it was when they were defined."""

import re
from collections.abc import Callable, Sequence
from typing import Final

from duckicelake.catalog.lineage.tables import column_names, schema_at
from duckicelake.lake.lineage import follower as lineage_follower
from duckicelake.lake.model import ViewDefinition
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lineage.definitions import DEFINING, Definition, definition_event
from duckicelake.lineage.naming import Lake, located
from duckicelake.lineage.runs import Run
from duckicelake.lineage.sql.lineage import LAKE
from duckicelake.lineage.sql.model import Dataset, Lookup
from duckicelake.lineage.told import Json

_ALIAS: Final = re.compile(r'"((?:[^"]|"")*)"')
_MAIN: Final = "main"
"""DuckDB's schema for names that name none."""

Places = Callable[[int], str | None]
"""Where a table lies, by its id; None if the events didn't say so far."""


def definitions(cursor: Transaction, run: Run, lake: Lake, places: Places, *, literals: bool) -> list[Json]:
    """Events of the views that the run defined."""
    events = []
    for told in run:
        change = told.change
        if change.kind not in DEFINING or change.object_id is None:
            continue
        view = lineage_follower.view(cursor, change.object_id, change.snapshot_id)
        if view is not None:
            definition = Definition(view.sql, view.query, view.dialect, _columns(view), literals)
            lookup = _lookup(cursor, change.snapshot_id, lake, places)
            events.append(definition_event(told, definition, lookup, lake))
    return events


def _lookup(cursor: Transaction, at: int, lake: Lake, places: Places) -> Lookup:
    def find(parts: tuple[str, ...]) -> Dataset | None:
        for schema_name, name in _readings(parts):
            found = lineage_follower.named(cursor, schema_name, name, at)
            if found is not None:
                return _dataset(cursor, *found, f"{schema_name}.{name}")
        return None

    def _dataset(cursor: Transaction, object_id: int, is_view: bool, resource: str) -> Dataset:
        if is_view:
            view = lineage_follower.view(cursor, object_id, at)
            return Dataset(*lake.named(resource), None if view is None else _columns(view))
        place = places(object_id) or lineage_follower.places(cursor, [object_id]).get(object_id)
        name = lake.named(resource) if place is None else located(place)
        return Dataset(*name, column_names(schema_at(cursor, object_id, at)))

    return find


def _readings(parts: Sequence[str]) -> list[tuple[str, str]]:
    """What a name may mean: levels of a namespace and a table, with the catalog's name in front or without it."""
    *levels, name = parts
    if levels[:1] == [LAKE]:
        return [(".".join(levels[1:]) or _MAIN, name)]
    return [(".".join(levels[cut:]) or _MAIN, name) for cut in range(min(2, len(levels) + 1))]


def _columns(view: ViewDefinition) -> tuple[str, ...] | None:
    return tuple(each.replace('""', '"') for each in _ALIAS.findall(view.column_aliases)) or None
