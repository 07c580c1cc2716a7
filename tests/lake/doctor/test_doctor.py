import pytest

from duckicelake.changelog.doctor import diagnose
from duckicelake.changelog.source import take_lead
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.setup.migrations import load_migrations

KNOWN = len(load_migrations())


def sick(database):
    return {finding.name: finding for finding in diagnose(database) if not finding.ok}


def test_a_prepared_lake_is_healthy(database):
    findings = diagnose(database)

    assert [finding.name for finding in findings if finding.ok] == [
        "Postgres version", "session settings", "DuckLake catalog", "migrations", "triggers", "snapshot ids",
        "schema", "roles",
        "changelog", "lineage", "deliveries", "Delta tables", "upkeep",
    ]  # fmt: skip
    assert {finding.advice for finding in findings} == {""}


def test_a_database_without_a_catalog_is_answered_so(empty_database_url):
    database = open_lake_database(empty_database_url, pool_size=1)
    try:
        assert sick(database)["DuckLake catalog"].detail == "none"
    finally:
        database.close()


@pytest.mark.parametrize(
    ("damage", "name", "detail"),
    [
        ("UPDATE ducklake_metadata SET value = 'true' WHERE key = 'encrypted'", "DuckLake catalog", "encrypted true"),
        ("DELETE FROM duckicelake_migration WHERE number = 2", "migrations", f"{KNOWN - 1} applied, {KNOWN} known"),
        ("DROP TRIGGER duckicelake_raise_epoch ON ducklake_snapshot", "triggers", "on ducklake_snapshot is missing"),
        (
            "ALTER TABLE ducklake_files_scheduled_for_deletion DISABLE TRIGGER duckicelake_keep_named_file",
            "triggers",
            "missing or disabled",
        ),
        ("INSERT INTO ducklake_snapshot VALUES (5, now(), 0, 1, 0)", "snapshot ids", "4 is missing"),
        ("DELETE FROM ducklake_snapshot_changes", "snapshot ids", "1 without a record"),
        (
            "ALTER TABLE ducklake_snapshot_changes DISABLE TRIGGER duckicelake_refuse_writes",
            "triggers",
            "duckicelake_refuse_writes on ducklake_snapshot_changes is missing",
        ),
        (
            """INSERT INTO ducklake_table VALUES (7, gen_random_uuid(), 0, NULL, 0, 't', 't/', true);
            INSERT INTO duckicelake_delta_source
            VALUES (7, '/delta/t', 'id', 3, NULL, true, '{}', '', 'too new', now())""",
            "Delta tables",
            "main.t stands still at version 3: too new",
        ),
        (
            "INSERT INTO duckicelake_left_out VALUES ('chronicle', now(), 'snapshots 5 to 6', 'DataError: too large')",
            "changelog",
            "snapshots 5 to 6: left out (DataError: too large)",
        ),
        (
            "INSERT INTO duckicelake_left_out VALUES ('lineage', now(), 'changes', 'AttributeError')",
            "lineage",
            "changes: left out",
        ),
        (
            """INSERT INTO duckicelake_delivery VALUES ('http://marquez', 0);
            INSERT INTO duckicelake_dead_letter VALUES ('http://marquez', 1, now(), 422, 'no', 1, false, '{}')""",
            "deliveries",
            "http://marquez has refused 1 event",
        ),
    ],
)
def test_damage_is_found_and_named(database, damage, name, detail):
    with database.transaction() as cursor:
        cursor.execute(damage)

    finding = sick(database)[name]

    assert detail in finding.detail
    assert finding.advice


def test_what_waits_for_long_is_a_fault_only_while_someone_follows_the_lake(database):
    with database.transaction() as cursor:
        cursor.execute("UPDATE ducklake_snapshot SET snapshot_time = now() - interval '1 hour'")
        cursor.execute(
            "INSERT INTO duckicelake_change (snapshot_id, ordinal, at, kind, namespace, source, facts)"
            " VALUES (0, 0, now() - interval '1 hour', 'create-namespace', 'main', 'duckdb', '{}')"
        )
        cursor.execute("INSERT INTO duckicelake_delivery VALUES ('http://marquez', 0)")
        cursor.execute(
            "INSERT INTO duckicelake_lineage_event (at, origin, digest, body)"
            " VALUES (now() - interval '1 hour', 'catalog', gen_random_uuid(), '{}')"
        )
    assert sick(database) == {}
    with database.open_listener(None).connect() as follower:
        assert take_lead(follower)
        assert sick(database).keys() == {"changelog", "lineage", "deliveries"}
        assert {finding.name for finding in diagnose(database, with_lineage=False) if not finding.ok} == {
            "changelog",
            "deliveries",
        }
