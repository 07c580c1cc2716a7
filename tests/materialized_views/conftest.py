"""A lake with materialized views, made and refreshed by the use cases; DuckDB beside it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.materialized_views.refreshes import find_view, refresh_view
from duckicelake.materialized_views.view_rows import MaterializedQuery, MaterializedView, Schedule
from duckicelake.materialized_views.views import NewView, create_view
from duckicelake.query import service
from duckicelake.query.processes import QueryLimits
from tests.support.lakes import Lake, Row, plain

LIMITS = QueryLimits(processes=2, memory_bytes=256 * 1024**2, disk_bytes=256 * 1024**2, seconds=60.0, rows=1_000_000)


@dataclass(frozen=True, slots=True)
class Views:
    """Views of `main`; their queries name tables as `{t}`, which stands for the table at a snapshot."""

    lake: Lake
    services: Services

    def create(
        self, name: str, sql: str, namespace: Namespace = ("main",), replaces: str | None = None
    ) -> MaterializedView:
        query = MaterializedQuery(write_query(sql), namespace, {})
        return create_view(self.services, NewView(namespace, name, query, Schedule(), {}, replaces))

    def refresh(self, name: str, *, is_whole: bool = False) -> MaterializedView:
        return refresh_view(self.services, ("main",), name, is_whole=is_whole)

    def find(self, name: str) -> MaterializedView:
        return find_view(self.services, ("main",), name)

    def rows(self, query: str) -> list[Row]:
        found = self.lake.duck.execute(query).fetchall()
        return sorted((tuple(map(spell, row)) for row in found), key=repr)

    def assert_exact(self, name: str, sql: str) -> None:
        """The view's table has what its query gives at the recorded snapshot, for DuckDB and for Iceberg's clients."""
        view = self.find(name)
        expected = self.rows(write_query(sql, view.last.snapshot_id))
        assert self.rows(f"FROM {name}") == expected, (name, view.last)
        arrow = self.lake.static(name).scan().to_arrow().to_pylist()
        assert sorted((tuple(map(spell, row.values())) for row in arrow), key=repr) == expected


def spell(value: Any) -> Any:
    """Spell equal values alike: a group of both zeros is shown by either."""
    return 0.0 if isinstance(value, float) and value == 0 else plain(value)


def write_query(sql: str, snapshot_id: int | None = None) -> str:
    """Write a query with its tables at a snapshot."""
    at = "" if snapshot_id is None else f" AT (VERSION => {snapshot_id})"
    names: dict[str, Any] = {name: f"{name}{at}" for name in ("t", "u", "v")}
    return sql.format(**names)


@pytest.fixture
def limits(services: Services) -> Iterator[QueryLimits]:
    service._limits[services.database] = LIMITS
    yield LIMITS
    del service._limits[services.database]
    service.end_processes()


@pytest.fixture
def views(lake: Lake, limits: QueryLimits) -> Views:
    assert limits.processes
    return Views(lake, lake.services)
