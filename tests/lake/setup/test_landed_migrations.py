"""Lakes of every state of `lake/migrations` that ever landed become today's; landed migrations stay as they are.

`landed_migrations.json` has the states in which a migration had another text than today, and these texts: null stands
for today's. All other states are beginnings of today's sequence.
"""

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import pytest
from psycopg import Cursor
from psycopg.errors import RaiseException

from duckicelake.changelog.doctor import diagnose
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.ducklake.dropped import read_retention
from duckicelake.lake.setup.migrations import (
    apply_migrations,
    find_edited_migrations,
    load_expected_schema,
    load_migrations,
    load_repairs,
    read_schema,
)
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import load_queries

FOLDER: Final = Path(__file__).parents[3] / "duckicelake" / "lake" / "migrations"
LANDED: Final = json.loads(Path(__file__).with_name("landed_migrations.json").read_text())
DIGESTS: Final = 37
"""The migration since which digests are recorded."""
TXNS: Final = next(each.number for each in load_migrations() if each.name.endswith("_txns.sql"))
"""The migration that put producers and runs into one table."""
OPTIONS: Final = 47
"""The migration since which options and properties are the same."""
DROPPED: Final = next(each.number for each in load_migrations() if each.name.endswith("_dropped.sql"))
"""The migration since which dropped tables can be brought back."""
BEFORE_DIGESTS: Final = {each.name: None for each in load_migrations() if each.number < DIGESTS}
STATES: Final = LANDED["states"] | {"before digests": BEFORE_DIGESTS}


class _UndoneError(Exception):
    """Has a transaction rolled back that was to be tried alone."""


@contextmanager
def empty_lake(database: Database) -> Iterator[Cursor[Any]]:
    """DuckLake's tables in a schema of their own, which is gone at the end."""
    with suppress(_UndoneError), database.transaction() as cursor:
        cursor.execute("CREATE SCHEMA landed; SET LOCAL search_path TO landed, pg_temp")
        cursor.execute(load_queries("lake", "format").create_tables)
        cursor.execute(load_queries("lake", "format").insert_initial_rows, {"data_path": "/nowhere/"})
        yield cursor
        raise _UndoneError


def apply(cursor: Cursor[Any], state: dict[str, str | None]) -> None:
    """Migrate as the version that had this state did."""
    cursor.execute(load_queries("lake", "migrate").create_table)
    today = {each.name: each.sql for each in load_migrations()}
    for name, text in state.items():
        cursor.execute(today[name] if text is None else LANDED["texts"][text])
        cursor.execute(load_queries("lake", "migrate").record, {"number": int(name[:4]), "name": name})


@pytest.mark.parametrize("state", STATES)
def test_lake_of_a_landed_state_becomes_todays(database: Database, state: str) -> None:
    with empty_lake(database) as cursor:
        apply(cursor, STATES[state])
        apply_migrations(cursor)
        assert read_schema(cursor) == load_expected_schema()
        assert find_edited_migrations(cursor) == []


def test_new_lake_has_the_expected_schema(database: Database) -> None:
    """Where it has another: python -m tests.lake.setup.test_landed_migrations writes down what a new lake has."""
    with database.reading() as cursor:
        assert read_schema(cursor) == load_expected_schema()


def test_rows_of_old_states_are_carried_over(database: Database) -> None:
    old = LANDED["states"]
    with empty_lake(database) as cursor:
        apply(cursor, old["7e0c07a"] if "7e0c07a" in old else old["a2227a8"])
        cursor.execute(
            "INSERT INTO duckicelake_delta_source (table_id, root, delta_id, version, following, state) "
            "VALUES (7, '/delta/t', 'id', 3, true, '{}')"
        )
        apply_migrations(cursor)
        assert cursor.execute("SELECT root, shape FROM duckicelake_delta_source").fetchall() == [("/delta/t", "")]
    with empty_lake(database) as cursor:
        apply(cursor, old["abcfb30"])
        cursor.execute(
            "INSERT INTO duckicelake_lineage_job (key, namespace, name, first_seen, last_seen, facets) "
            "VALUES (gen_random_uuid(), 'n', 'j', now(), now(), '{}')"
        )
        apply_migrations(cursor)
        assert cursor.execute("SELECT name, origin FROM duckicelake_lineage_job").fetchall() == [("j", "received")]


OLD_READS: Final = {
    "producer": "SELECT sequence, snapshot_id FROM duckicelake_producer WHERE table_id = 7 AND app_id = 'a'",
    "run": "SELECT epoch, snapshot_id, summary FROM duckicelake_run WHERE table_id = 7 AND run_id = 'a'",
    "lost run": "SELECT epoch, snapshot_id, summary FROM duckicelake_run WHERE table_id = 7 AND run_id = 'b'",
    "request": "SELECT result FROM duckicelake_idempotency",
    "undelivered": "SELECT origin, job_name, body FROM duckicelake_lineage_event",
    "delivered": "SELECT event_id, delivered FROM duckicelake_delivery",
    "lineage": "SELECT snapshot_id, ordinal, audit_id FROM duckicelake_lineage_follower",
    "changelog": "SELECT snapshot_id, ordinal FROM duckicelake_chronicle",
}
"""Reads of servers from before txns had one table, which go on beside newer servers."""


def test_what_is_applied_once_and_cursors_are_carried_over(database: Database) -> None:
    before = {each.name: None for each in load_migrations() if each.number < TXNS}
    with empty_lake(database) as cursor:
        apply(cursor, before)
        cursor.execute("""
            INSERT INTO duckicelake_snapshot
                (table_id, snapshot_id, ducklake_id, sequence_number, timestamp_ms, summary, manifest_ids)
            VALUES (7, 70, 17, 1, 0, '{}', '{}');
            INSERT INTO duckicelake_producer (table_id, app_id, sequence, snapshot_id) VALUES (7, 'a', 5, 16);
            INSERT INTO duckicelake_run (table_id, run_id, epoch, snapshot_id, summary)
            VALUES (7, 'a', 3, 70, '{"k": "v"}'), (7, 'b', 0, 60, '{}');
            INSERT INTO duckicelake_idempotency (key, fingerprint, result) VALUES (gen_random_uuid(), '\\x00', '[1]');
            INSERT INTO duckicelake_lineage_event (at, origin, job_name, digest, body)
            VALUES (now(), 'catalog', 'j', gen_random_uuid(), '{"eventType": "START"}');
            INSERT INTO duckicelake_delivery (transport, event_id, delivered) VALUES ('t', 0, 4);
            UPDATE duckicelake_lineage_follower SET snapshot_id = 3, ordinal = 1, audit_id = 9;
            UPDATE duckicelake_chronicle SET snapshot_id = 17, ordinal = 2
        """)
        old = {what: cursor.execute(query).fetchall() for what, query in OLD_READS.items()}
        assert all(old.values())
        apply_migrations(cursor)
        assert {what: cursor.execute(query).fetchall() for what, query in OLD_READS.items()} == old
        rows = "SELECT app_id, is_run, version, snapshot_id, iceberg_snapshot_id FROM duckicelake_txn ORDER BY 2, 1"
        assert cursor.execute(rows).fetchall() == [
            ("a", False, 5, 16, None),
            ("a", True, 3, 17, 70),
            ("b", True, 0, None, 60),
        ]


def test_options_and_properties_of_before_are_brought_together(database: Database) -> None:
    properties = {
        1: {"write.parquet.compression-codec": "ZSTD", "write.target-file-size-bytes": "536870912"},
        2: {"write.parquet.compression-codec": "lzo", "write.target-file-size-bytes": "512 MB"},
        3: {"write.parquet.compression-codec": "gzip"},
        4: {"write.parquet.compression-codec": "gzip"},  # dropped
        5: None,
    }
    with empty_lake(database) as cursor:
        apply(cursor, {each.name: None for each in load_migrations() if each.number < OPTIONS})
        for table_id, found in properties.items():
            name = f"00000000-0000-0000-0000-00000000000{table_id}"
            cursor.execute(
                "INSERT INTO ducklake_table VALUES (%s, %s, 0, %s, 0, 't', 't/', true)",
                [table_id, name, 1 if table_id == 4 else None],
            )
            cursor.execute(
                """INSERT INTO duckicelake_table (table_id, table_uuid, location, version, caught_up_to, epoch,
                       ducklake_id, format_version, last_sequence_number, next_row_id, last_updated_ms, metadata)
                   VALUES (%s, %s, 's3://b/t', 0, 0, 0, 0, 2, 0, 0, 0, %s)""",
                [table_id, name, {} if found is None else {"properties": found}],
            )
        cursor.execute("INSERT INTO ducklake_metadata VALUES ('parquet_compression', 'snappy', 'table', 3)")
        apply_migrations(cursor)
        found = cursor.execute("SELECT scope_id, key, value FROM ducklake_metadata WHERE scope = 'table' ORDER BY 1, 2")
        assert found.fetchall() == [
            (1, "parquet_compression", "zstd"),
            (1, "target_file_size", "536870912"),
            (3, "parquet_compression", "snappy"),
        ]
        assert cursor.execute("SELECT epoch, options FROM duckicelake_epoch").fetchall() == [(1, 1)]


def test_deletes_that_can_not_be_carried_over_are_refused(database: Database) -> None:
    with empty_lake(database) as cursor:
        apply(cursor, LANDED["states"]["7cbdd33"])
        cursor.execute("INSERT INTO duckicelake_deletion (delete_file_id, data_file_id, table_id) VALUES (1, 2, 3)")
        with pytest.raises(RaiseException, match="copy its tables"), cursor.connection.transaction():
            apply_migrations(cursor)


@pytest.mark.parametrize("has_tables", [False, True])
def test_lakes_that_had_tables_go_on_keeping_nothing_that_is_dropped(database: Database, has_tables: bool) -> None:
    with empty_lake(database) as cursor:
        apply(cursor, {each.name: None for each in load_migrations() if each.number < DROPPED})
        if has_tables:
            cursor.execute("INSERT INTO ducklake_table VALUES (1, gen_random_uuid(), 0, NULL, 0, 't', 't/', true)")
        apply_migrations(cursor)
        assert read_retention(cursor) == (0 if has_tables else 7 * 86_400)


def test_landed_migrations_are_never_edited() -> None:
    landed = dict(line.split() for line in (FOLDER / "digests.txt").read_text().splitlines())
    today = {each.name: each.digest for each in load_migrations()}
    changed = [name for name, digest in landed.items() if today.get(name) != digest]
    assert changed == [], "write another migration instead: lakes have these already"
    missing = [f"{name} {digest}" for name, digest in today.items() if name not in landed]
    assert missing == [], "add these lines to digests.txt: python -m tests.lake.setup.test_landed_migrations does"


def test_no_two_migrations_have_one_number() -> None:
    assert [n for n, count in Counter(each.number for each in load_migrations()).items() if count > 1] == []


def test_repairs_are_of_migrations_that_had_other_texts() -> None:
    edited = {int(name[:4]) for state in LANDED["states"].values() for name, text in state.items() if text is not None}
    assert load_repairs().keys() <= edited


@pytest.mark.parametrize(
    ("damage", "name", "detail"),
    [
        ("ALTER TABLE duckicelake_table DROP COLUMN outlives_drop", "schema", "column duckicelake_table outlives_drop"),
        ("DROP INDEX duckicelake_file_by_hash", "schema", "index CREATE INDEX duckicelake_file_by_hash"),
        ("ALTER TABLE duckicelake_job ALTER COLUMN kind TYPE varchar(9)", "schema", "column duckicelake_job kind"),
        ("DROP TRIGGER duckicelake_notify_snapshot ON ducklake_snapshot", "schema", "duckicelake_notify_snapshot"),
        (
            "CREATE OR REPLACE FUNCTION duckicelake_name_hash(path text) RETURNS integer LANGUAGE sql AS 'SELECT 1'",
            "schema",
            "function duckicelake_name_hash",
        ),
        ("UPDATE duckicelake_migration SET digest = 'x' WHERE number = 5", "migrations", "0005_idempotency.sql"),
    ],
)
def test_doctor_names_what_differs_from_what_migrations_make(
    database: Database, damage: str, name: str, detail: str
) -> None:
    with database.transaction() as cursor:
        cursor.execute(damage)
    findings = {finding.name: finding for finding in diagnose(database)}
    assert not findings[name].ok
    assert detail in findings[name].detail


def _write_down() -> None:
    """Write what a new lake has to schema.txt, and the digests of migrations that have none yet to digests.txt."""
    import tempfile  # noqa: PLC0415 - as a program alone

    from duckicelake.lake.setup.format import prepare_catalog  # noqa: PLC0415
    from duckicelake.postgres.embedded import EmbeddedPostgres  # noqa: PLC0415

    with tempfile.TemporaryDirectory() as folder, EmbeddedPostgres(Path(folder)) as server:
        Path(folder).chmod(0o755)
        database = open_lake_database(server.url, pool_size=1)
        prepare_catalog(database, "/nowhere/", creates=True)
        with database.reading() as cursor:
            (FOLDER / "schema.txt").write_text("".join(f"{fact}\n" for fact in read_schema(cursor)))
        database.close()
    with (FOLDER / "digests.txt").open("a+") as digests:
        digests.seek(0)
        landed = {line.split()[0] for line in digests}
        digests.writelines(f"{each.name} {each.digest}\n" for each in load_migrations() if each.name not in landed)


if __name__ == "__main__":
    _write_down()
