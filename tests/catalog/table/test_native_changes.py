"""What is read to catch up with DuckDB is what changed; all files compared with each other would give the same."""

from dataclasses import dataclass
from itertools import count, product

import pytest

from duckicelake.bridge.native.steps import LiveDeletes, NativeStep, replay_window
from duckicelake.catalog.table.derived_files import read_lake_deletes
from duckicelake.catalog.table.native_changes import NativeChanges, read_native_changes
from duckicelake.lake.ducklake import native
from duckicelake.lake.side_tables import reader
from duckicelake.lake.state import LiveFiles
from tests.lake.test_replay import Plan, suppress_duckdbs_own_bugs
from tests.support.lakes import Lake

READ = (
    "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int FROM pg_stat_xact_user_tables WHERE relname = ANY(%s)"
)
OF_FILES = ["ducklake_data_file", "ducklake_delete_file", "ducklake_file_column_stats", "duckicelake_file"]


@dataclass(frozen=True)
class Found:
    missed: NativeChanges
    steps: tuple[NativeStep, ...]
    rows_read: int


def found(lake: Lake, table: str = "t", *, expired: bool) -> Found | None:
    """What a load would find, and how many rows about files it would read; None where the table wasn't touched."""
    query = "SELECT table_id FROM ducklake_table WHERE table_name = %s AND end_snapshot IS NULL"
    ((table_id,),) = lake.sql(query, table)
    with lake.services.database.reading() as cursor:
        row, upto = reader.read_table_row(cursor, table_id), native.read_newest_snapshot(cursor)
        assert row is not None
        touching = native.read_changes(cursor, table_id, row.caught_up_to, upto)
        if not touching:
            return None
        state = reader.read_table_state(cursor, row)
        (before,) = cursor.execute(READ, [OF_FILES]).fetchone()
        result = read_native_changes(
            cursor, state, upto, touching, frozenset(), expired=expired or row.epoch != reader.read_epoch(cursor)
        )
        (after,) = cursor.execute(READ, [OF_FILES]).fetchone()
    deleted = {file.file_id: read_lake_deletes(lake.services, file) for file in result.window.delete_files}
    return Found(result, replay_window(result.window, result.live, deleted, count(1_000_000)), after - before)


def leaving(live: LiveFiles, steps: tuple[NativeStep, ...]) -> tuple[set[int], dict[int, set[int]]]:
    """The delete files that leave with what the steps remove or delete from, and what was deleted of that before."""
    named = {file_id for step in steps for file_id in (*step.removed, *step.positions)}
    deletes, dangling = LiveDeletes(live), LiveDeletes(live).find_idle(frozenset())
    return set(deletes.find_idle(named) - dangling), {each: deletes.deleted.get(each, set()) for each in named}


def assert_finds_all(lake: Lake) -> bool:
    """Both ways find the same; whether they were two."""
    little, everything = found(lake, expired=False), found(lake, expired=True)
    if little is None or everything is None:
        return False
    assert little.steps == everything.steps
    assert leaving(little.missed.live, little.steps) == leaving(everything.missed.live, little.steps)
    assert little.missed.window.next_row_id == everything.missed.window.next_row_id
    return len(little.missed.live.files) < len(everything.missed.live.files)


@pytest.mark.parametrize(("version", "seed"), [*product((2, 3), range(100, 103))])
def test_any_sequence_of_duckdb_statements_is_followed_as_if_all_files_were_compared(
    lake: Lake, version: int, seed: int
) -> None:
    plan, differed = Plan(seed), 0
    lake.run("CREATE TABLE t (id BIGINT, name VARCHAR, amount INTEGER)", plan.large(), plan.small(), plan.large())
    lake.metadata()
    for number in range(18):
        if number == 9:
            lake.upgrade(version)  # position delete files of before get vectors beside them
        with suppress_duckdbs_own_bugs():
            lake.run(plan.statement())
        if plan.random.random() < 0.6:
            differed += assert_finds_all(lake)
            lake.metadata()
    assert differed > 2


SMALL_CHANGES = [
    "INSERT INTO {} SELECT i, 'x', 0 FROM range(1000, 1040) r(i)",
    "INSERT INTO {} VALUES (1000, 'inlined', 0)",
    "DELETE FROM {} WHERE id = -1",
    "DELETE FROM {} WHERE id < -1 AND id > -30",
    "UPDATE {} SET name = 'changed' WHERE id = -32",
    "ALTER TABLE {} ADD COLUMN more INTEGER",
    "CALL ducklake_flush_inlined_data('lake', table_name => '{}')",
]


def test_rows_read_for_a_small_change_are_as_few_in_a_table_of_many_files(lake: Lake) -> None:
    tables = {"few": 4, "many": 400}
    for name, files in tables.items():
        lake.run(
            f"CREATE TABLE {name} (id BIGINT, name VARCHAR, amount INTEGER)",
            f"INSERT INTO {name} SELECT -i, 'x', -1 FROM range(1, 51) r(i)",
            f"ALTER TABLE {name} SET PARTITIONED BY (amount)",
            f"INSERT INTO {name} SELECT i, 'x', i FROM range({files}) r(i)",
            f"DELETE FROM {name} WHERE id = -40",
        )
    for statement in SMALL_CHANGES:
        read = []
        for name, files in tables.items():
            lake.metadata(name)
            with lake.services.database.statement() as cursor:
                cursor.execute("ANALYZE")
            lake.run(statement.format(name))
            little, everything = found(lake, name, expired=False), found(lake, name, expired=True)
            assert little is not None
            assert everything is not None
            assert everything.rows_read > files
            read.append(little.rows_read)
        assert read[1] <= read[0] + 8, statement
