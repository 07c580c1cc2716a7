from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from duckicelake.lake.audit import Entry, Origin, Touched, Wanted, entries, prune, record
from duckicelake.lake.postgres.database import Database
from duckicelake.lake.snapshots import begin_snapshot, record_changes

ANN = Origin("ann", "10.0.0.1", "r1", "commit_table")
BEN = Origin("ben", "10.0.0.2", "r2", "drop_table")


def found(database: Database, wanted: Wanted | None = None, limit: int = 100) -> list[Entry]:
    with database.reading() as cursor:
        return entries(cursor, wanted or Wanted(), limit)


@pytest.fixture
def told(database: Database) -> Database:
    for origin, resource, result in [
        (ANN, "sales.orders", "ok"),
        (BEN, "sales.orders", "ForbiddenException 403"),
        (ANN, "sales", "ok"),
        (ANN, "sales2.orders", "unchanged"),
    ]:
        with database.transaction() as cursor:
            record(cursor, origin, [Touched(resource)], result)
    return database


def test_entries_come_oldest_first_and_the_limit_keeps_the_newest(told: Database) -> None:
    assert [entry.resource for entry in found(told)] == ["sales.orders", "sales.orders", "sales", "sales2.orders"]
    assert [entry.resource for entry in found(told, limit=2)] == ["sales", "sales2.orders"]


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (Wanted(principal="ben"), [1]),
        (Wanted(resource="sales"), [0, 1, 2]),
        (Wanted(resource="sales.orders"), [0, 1]),
        (Wanted(operation="drop_table"), [1]),
        (Wanted(result="ForbiddenException"), [1]),
        (Wanted(result="Forbidden"), []),
        (Wanted(result="ok", resource="sales2"), []),
        (Wanted(since=datetime.now(UTC) + timedelta(hours=1)), []),
        (Wanted(since=datetime.now(UTC) - timedelta(hours=1), principal="ann"), [0, 2, 3]),
    ],
)
def test_entries_are_those_that_are_wanted(told: Database, wanted: Wanted, numbers: list[int]) -> None:
    everything = found(told)
    assert found(told, wanted) == [everything[number] for number in numbers]


def test_entries_after_an_id_are_those_that_came_since(told: Database) -> None:
    second = found(told)[1].id
    assert second is not None
    assert [entry.resource for entry in found(told, Wanted(after=second))] == ["sales", "sales2.orders"]


def test_renamed_table_is_found_under_both_names(database: Database) -> None:
    with database.transaction() as cursor:
        record(cursor, ANN, [Touched("ns.old", detail={"to": "ns.new"})])
    assert found(database, Wanted(resource="ns.old")) == found(database, Wanted(resource="ns.new")) != []


def test_entry_names_only_a_snapshot_of_its_own_transaction(database: Database) -> None:
    with database.transaction() as cursor:
        made = begin_snapshot(cursor, schema_change=False)
        record_changes(cursor, made.id, [])
        record(cursor, ANN, [Touched("a")])
    with database.transaction() as cursor:
        record(cursor, ANN, [Touched("b")])
    assert [entry.snapshot_id for entry in found(database)] == [made.id, None]


def test_prune_forgets_what_is_older_in_batches(told: Database) -> None:
    with told.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_audit SET at = at - interval '100 days' WHERE principal = 'ann'")
    assert prune(told, datetime.now(UTC) - timedelta(days=90), batch=2) == 3
    assert [entry.principal for entry in found(told)] == ["ben"]
    assert prune(told, datetime.now(UTC) - timedelta(days=90)) == 0


def test_entry_may_name_what_is_longer_than_an_index_holds(database: Database) -> None:
    letters = Random(8)
    long = "".join(chr(letters.randrange(0x4E00, 0x9FFF)) for _ in range(4000))
    with database.transaction() as cursor:
        record(cursor, ANN, [Touched(long)])
    assert [entry.resource for entry in found(database, Wanted(resource=long))] == [long]
    assert found(database, Wanted(resource=long[:-1])) == []
