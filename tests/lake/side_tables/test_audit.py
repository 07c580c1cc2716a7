from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from duckicelake.lake.ducklake.snapshots import begin_snapshot, record_changes
from duckicelake.lake.side_tables.audit import (
    AuditedResource,
    AuditEntry,
    AuditFilter,
    RequestOrigin,
    prune_entries,
    read_entries,
    record_entries,
)
from duckicelake.postgres.database import Database

ANN = RequestOrigin("ann", "10.0.0.1", "r1", "commit_table")
BEN = RequestOrigin("ben", "10.0.0.2", "r2", "drop_table")


def found(database: Database, wanted: AuditFilter | None = None, limit: int = 100) -> list[AuditEntry]:
    with database.reading() as cursor:
        return read_entries(cursor, wanted or AuditFilter(), limit)


@pytest.fixture
def filled(database: Database) -> Database:
    for origin, resource, result in [
        (ANN, "sales.orders", "ok"),
        (BEN, "sales.orders", "ForbiddenException 403"),
        (ANN, "sales", "ok"),
        (ANN, "sales2.orders", "unchanged"),
    ]:
        with database.transaction() as cursor:
            record_entries(cursor, origin, [AuditedResource(resource)], result)
    return database


def test_entries_come_oldest_first_and_the_limit_keeps_the_newest(filled: Database) -> None:
    assert [entry.resource for entry in found(filled)] == ["sales.orders", "sales.orders", "sales", "sales2.orders"]
    assert [entry.resource for entry in found(filled, limit=2)] == ["sales", "sales2.orders"]


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (AuditFilter(principal="ben"), [1]),
        (AuditFilter(resource="sales"), [0, 1, 2]),
        (AuditFilter(resource="sales.orders"), [0, 1]),
        (AuditFilter(operation="drop_table"), [1]),
        (AuditFilter(result="ForbiddenException"), [1]),
        (AuditFilter(result="Forbidden"), []),
        (AuditFilter(result="ok", resource="sales2"), []),
        (AuditFilter(since=datetime.now(UTC) + timedelta(hours=1)), []),
        (AuditFilter(since=datetime.now(UTC) - timedelta(hours=1), principal="ann"), [0, 2, 3]),
    ],
)
def test_entries_are_those_that_are_wanted(filled: Database, wanted: AuditFilter, numbers: list[int]) -> None:
    everything = found(filled)
    assert found(filled, wanted) == [everything[number] for number in numbers]


def test_entries_after_an_id_are_those_that_came_since(filled: Database) -> None:
    second = found(filled)[1].id
    assert second is not None
    assert [entry.resource for entry in found(filled, AuditFilter(after=second))] == ["sales", "sales2.orders"]


def test_entries_before_an_id_are_the_page_before_it(filled: Database) -> None:
    ids = [entry.id for entry in found(filled)]
    page = found(filled, AuditFilter(before=ids[3]), limit=2)
    assert [entry.id for entry in page] == ids[1:3]
    assert [entry.id for entry in found(filled, AuditFilter(before=page[0].id), limit=2)] == ids[:1]
    assert found(filled, AuditFilter(before=ids[0])) == []
    assert [entry.id for entry in found(filled, AuditFilter(after=ids[0] or 0, before=ids[2]))] == ids[1:2]


def test_renamed_table_is_found_under_both_names(database: Database) -> None:
    with database.transaction() as cursor:
        record_entries(cursor, ANN, [AuditedResource("ns.old", detail={"to": "ns.new"})])
    assert found(database, AuditFilter(resource="ns.old")) == found(database, AuditFilter(resource="ns.new")) != []


def test_entry_names_only_a_snapshot_of_its_own_transaction(database: Database) -> None:
    with database.transaction() as cursor:
        made = begin_snapshot(cursor, schema_change=False)
        record_changes(cursor, made.id, [])
        record_entries(cursor, ANN, [AuditedResource("a")])
    with database.transaction() as cursor:
        record_entries(cursor, ANN, [AuditedResource("b")])
    assert [entry.snapshot_id for entry in found(database)] == [made.id, None]


def test_prune_forgets_what_is_older_in_batches(filled: Database) -> None:
    with filled.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_audit SET at = at - interval '100 days' WHERE principal = 'ann'")
    assert prune_entries(filled, datetime.now(UTC) - timedelta(days=90), batch=2) == 3
    assert [entry.principal for entry in found(filled)] == ["ben"]
    assert prune_entries(filled, datetime.now(UTC) - timedelta(days=90)) == 0


def test_entry_may_name_what_is_longer_than_an_index_holds(database: Database) -> None:
    letters = Random(8)
    long = "".join(chr(letters.randrange(0x4E00, 0x9FFF)) for _ in range(4000))
    with database.transaction() as cursor:
        record_entries(cursor, ANN, [AuditedResource(long)])
    assert [entry.resource for entry in found(database, AuditFilter(resource=long))] == [long]
    assert found(database, AuditFilter(resource=long[:-1])) == []
