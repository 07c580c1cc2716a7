"""A server that answers changes of rows, and what DuckDB says of the same snapshots."""

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import duckdb
import httpx
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.query import service
from duckicelake.query.processes import QueryLimits
from duckicelake.server.app import create_app
from tests.support.servers import Serve

LIMITS = QueryLimits(processes=2, memory_bytes=256 * 1024**2, disk_bytes=256 * 1024**2, seconds=60.0, rows=1_000_000)
OWN = ("_change_type", "_change_ordinal", "_commit_snapshot_id", "_changed_row_id")
Change = dict[str, Any]


@dataclass
class Changes:
    """Reads the changes of `main.t`, and compares them with the states that DuckDB reads at each snapshot."""

    http: httpx.Client
    duck: duckdb.DuckDBPyConnection
    states: dict[int, Counter[str]] = field(default_factory=dict)

    def ask(self, table: str = "t", **query: Any) -> httpx.Response:
        found = {{"since": "from", "until": "to"}.get(name, name): value for name, value in query.items()}
        return self.http.get(f"/v1/namespaces/main/tables/{table}/changes", params=found, timeout=60)

    def read(self, table: str = "t", **query: Any) -> tuple[list[Change], dict[str, Any]]:
        """Read one answer: its rows, and its last line."""
        answer = self.ask(table, **query)
        assert answer.status_code == 200, answer.text
        *rows, end = [json.loads(line) for line in answer.text.splitlines()]
        assert set(end) == {"_position", "_is_complete"}
        return rows, end

    def note_state(self, table: str = "t") -> None:
        """Note what the table has now, for `check_replay`: a later rewrite may change what DuckDB reads of this."""
        ((newest,),) = self.duck.execute("SELECT max(snapshot_id) FROM ducklake_snapshots('lake')").fetchall()
        self.states[newest] = self.read_state(table)

    def check_replay(self, table: str = "t", **query: Any) -> list[Change]:
        """Check that changes lead from one state that was noted to the next one, and name nothing else."""
        self.note_state(table)
        rows, end = self.read(table, **query)
        assert end["_is_complete"]
        names = self.duck.sql(f"FROM {table} LIMIT 0").columns
        state: Counter[str] = Counter()
        for snapshot_id, noted in sorted(self.states.items()):
            for changed_at in dict.fromkeys(row["_commit_snapshot_id"] for row in rows):
                if changed_at > snapshot_id:
                    break
                found = [row for row in rows if row["_commit_snapshot_id"] == changed_at]
                rows = [row for row in rows if row["_commit_snapshot_id"] != changed_at]
                gone, come = (
                    Counter(_write(row, names) for row in found if row["_change_type"] in kinds)
                    for kinds in (("DELETE", "UPDATE_BEFORE"), ("INSERT", "UPDATE_AFTER"))
                )
                assert not gone - state, (changed_at, gone - state)
                state = state - gone + come
            assert state == noted, snapshot_id
        return self.read(table, **query)[0]

    def read_state(self, table: str) -> Counter[str]:
        found = self.duck.sql(f"FROM {table}")
        names = found.columns
        return Counter(json.dumps(dict(zip(names, row, strict=True)), default=str) for row in found.fetchall())


def _write(row: Change, names: list[str]) -> str:
    return json.dumps({name: row[name] for name in names}, default=str)


@pytest.fixture
def limits(services: Services) -> Iterator[QueryLimits]:
    service._limits[services.database] = LIMITS
    yield LIMITS
    del service._limits[services.database]
    service.end_processes()


@pytest.fixture
def http(services: Services, serve: Serve, limits: QueryLimits) -> httpx.Client:
    return serve(create_app(services))


@pytest.fixture
def changes(http: httpx.Client, ducklake: duckdb.DuckDBPyConnection) -> Changes:
    ducklake.execute("USE lake.main")
    return Changes(http, ducklake)
