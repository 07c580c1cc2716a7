"""Tables for DuckDB and a client to change at the same time, all alike, in a lake that is copied for each test."""

from collections.abc import Sequence

import duckdb

from duckicelake.catalog.context.services import Services
from tests.catalog.commit.conflict_operations import FOREIGN, new_rows
from tests.catalog.commit.conflicts import COMPANION, Subject
from tests.support import engine
from tests.support.client import Json, Row, new_client
from tests.support.table_history import listed

SCHEMA: Json = {
    "type": "struct",
    "fields": [
        {"id": 1, "name": "id", "type": "long", "required": False},
        {"id": 2, "name": "name", "type": "string", "required": False},
        {"id": 3, "name": "extra", "type": "int", "required": False},
    ],
}


def prepare(services: Services, duck: duckdb.DuckDBPyConnection, format_version: int) -> dict[str, Subject]:
    """A table for each operation of a client: rows in files of both sides and in the catalog, some of each deleted."""
    client = new_client(services)
    client.create(COMPANION)
    subjects = {}
    for number, operation in enumerate(FOREIGN):
        name = f"t{number}"
        client.create(name, schema=SCHEMA, properties={"format-version": str(format_version)})
        duck.execute(_inserted(name, new_rows(1, 40, "duck")))
        client.commit(engine.append(*new_rows(41, 6, "client"))(client.metadata(name)), name)
        for rows in (new_rows(91, 4, "inlined"), new_rows(51, 12, "duck"), new_rows(65, 12, "duck")):
            duck.execute(_inserted(name, rows))
        for ids in (range(25, 41), (20, 94)):
            duck.execute(f"DELETE FROM lake.ns.{name} WHERE id IN ({listed(ids)})")
        answer = client.commit(engine.delete_rows([46, 18])(client.metadata(name)), name)
        subjects[operation] = _subject(name, answer["metadata"], duck)
    return subjects


def _inserted(name: str, rows: Sequence[Row]) -> str:
    return f"INSERT INTO lake.ns.{name} (id, name) VALUES {', '.join(map(str, rows))}"


def _subject(name: str, metadata: Json, duck: duckdb.DuckDBPyConnection) -> Subject:
    """The table, with what DuckDB reads at each of its snapshots."""
    versions = {each["snapshot-id"]: int(each["summary"]["ducklake.snapshot-id"]) for each in metadata["snapshots"]}
    at = f"SELECT id, name FROM lake.ns.{name} AT (VERSION => {{}})"
    shown = {snapshot: frozenset(duck.sql(at.format(version)).fetchall()) for snapshot, version in versions.items()}
    return Subject(name, shown, versions)
