"""The server's flush: the same rows, row ids and history as before it, whatever others do meanwhile."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.parquet as pq
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.doctor import examine_tables
from duckicelake.catalog.flush import Flushed, flush_rows
from duckicelake.changelog.doctor import diagnose
from duckicelake.errors import (
    CommitFailedError,
    CommitStateUnknownError,
    NoSuchTableError,
    UnavailableError,
    UnsupportedError,
)
from tests.conftest import Attach
from tests.parquet.test_temporary_files import full_disk
from tests.support.client import NS, Client, assert_whole, data_files, delete, duckdb_rows, pyiceberg_rows
from tests.support.seams import FusedDatabase, Interrupted, fresh

Duck = duckdb.DuckDBPyConnection
LIMIT = "CALL lake.set_option('data_inlining_row_limit', 100000)"


@pytest.fixture
def duck(attach: Attach, client: Client) -> Duck:
    """DuckDB, beside an Iceberg client, that keeps all rows in Postgres."""
    attach().execute(LIMIT)
    return attach()


def history(duck: Duck, table: str = "lake.ns.t") -> dict[int, str]:
    """What every version of a table shows DuckDB, with row ids; whatever it says where there is no such table."""
    found: dict[int, str] = {}
    for (version,) in duck.sql("SELECT snapshot_id FROM lake.snapshots() WHERE snapshot_id > 1").fetchall():
        try:
            rows = duck.sql(f"SELECT rowid, * FROM {table} AT (VERSION => {version}) ORDER BY ALL").fetchall()
        except duckdb.CatalogException:
            rows = []
        found[version] = repr(rows)
    return found


def changes(duck: Duck) -> list[str]:
    """What changed in each version; of several together DuckDB tells it otherwise once rows lie in files."""
    versions = range(3, flush_id(duck) + 1)
    return [
        repr(duck.sql(f"FROM ducklake_table_changes('lake', 'ns', 't', {at}, {at}) ORDER BY ALL").fetchall())
        for at in versions
    ]


def inlined(duck: Duck, table: str = "t") -> int:
    """How many rows and deletes of the table are in Postgres."""
    found = duck.sql(
        "FROM postgres_query('__ducklake_metadata_lake', $$SELECT c.relname FROM pg_class c "
        f"JOIN ducklake_table t ON t.table_name = '{table}' AND t.end_snapshot IS NULL "
        "WHERE c.relname ~ ('^ducklake_inlined_(data_' || t.table_id || '_[0-9]+|delete_' || t.table_id || ')$')$$)"
    ).fetchall()
    counts = (duck.sql(f"SELECT count(*) FROM __ducklake_metadata_lake.{name}").fetchone() for (name,) in found)
    return sum(count[0] for count in counts if count is not None)


def files_of(services: Services, table: str = "t") -> list[Path]:
    folder = Path(services.policy.warehouse, "ducklake", "ns", table)
    return sorted(path for path in folder.rglob("*.parquet") if not path.name.endswith("-delete.parquet"))


def assert_sound(services: Services) -> None:
    damage, _ = examine_tables(services.database)
    assert [finding for finding in (*diagnose(services.database), *damage) if not finding.ok] == []


def fill_and_change(duck: Duck) -> None:
    """Rows of three schema versions, some updated and some deleted; deletes of rows in a file; values of all sorts."""
    for column in ("s STRUCT(a INTEGER, b VARCHAR[], w DATE[])", "m MAP(VARCHAR, DECIMAL(9, 2))", "b BLOB"):
        duck.execute(f"ALTER TABLE lake.ns.t ADD COLUMN {column}")
    duck.execute(
        "INSERT INTO lake.ns.t (id, name) VALUES (100, 'in a file'), (101, 'deleted'), (102, 'updated'), (103, NULL)"
    )
    duck.execute("CALL ducklake_flush_inlined_data('lake', schema_name => 'ns', table_name => 't')")
    duck.execute(
        "INSERT INTO lake.ns.t VALUES (1, 'one', NULL, NULL, NULL), (2, '', NULL, NULL, ''), "
        "(3, NULL, NULL, MAP {}, NULL), "
        ""
        "(4, chr(0) || 'nul', {'a': NULL, 'b': [], 'w': NULL}, NULL, '\\x00\\xFF'::BLOB), "
        "(5, 'ünï ☃ \"quoted\", a\nline', {'a': 1, 'b': ['x', NULL, 'y,\"z'], 'w': NULL}, "
        "MAP {'k': 1.25, 'k,\"2': NULL}, 'plain'::BLOB)"
    )
    duck.execute("DELETE FROM lake.ns.t WHERE id IN (2, 101)")
    duck.execute("UPDATE lake.ns.t SET name = 'changed' WHERE id IN (3, 102)")
    duck.execute("UPDATE lake.ns.t SET name = 'again' WHERE id = 3")
    duck.execute("ALTER TABLE lake.ns.t ADD COLUMN d DOUBLE DEFAULT 1.5")
    duck.execute("INSERT INTO lake.ns.t (id, name, d) VALUES (6, 'ä', 'nan'), (7, 'x', '-inf'), (8, '', -0.0)")
    duck.execute("ALTER TABLE lake.ns.t RENAME COLUMN d TO e")
    duck.execute("ALTER TABLE lake.ns.t ADD COLUMN ts TIMESTAMPTZ")
    duck.execute("INSERT INTO lake.ns.t (id, e, ts) VALUES (9, 0, '2024-01-01 00:00:00+02'), (10, NULL, NULL)")
    duck.execute("DELETE FROM lake.ns.t WHERE id IN (1, 9, 103)")


@pytest.mark.parametrize("version", ["2", "3"])
def test_flush_keeps_rows_row_ids_and_history(services: Services, client: Client, duck: Duck, version: str) -> None:
    client.create(properties={"format-version": version})
    fill_and_change(duck)
    before, changed, rows = history(duck), changes(duck), pyiceberg_rows(Client(fresh(services)).load())
    flushed = flush_rows(services, NS, "t")
    assert (flushed.rows, flushed.deletes, flushed.files) == (13, 3, 3)
    after = history(duck)
    assert {key: after[key] for key in before} == before
    assert changes(duck)[: len(changed)] == changed
    assert inlined(duck) == 0
    answer = Client(fresh(services)).load()
    assert pyiceberg_rows(answer) == rows
    assert_whole(answer)
    assert answer["metadata"]["snapshots"][-1]["summary"]["operation"] == "replace"
    assert_sound(services)


def test_flushed_files_are_what_duckdb_makes_of_the_same_rows(services: Services, client: Client, duck: Duck) -> None:
    for name in ("t", "u"):
        duck.execute(f"CREATE TABLE lake.ns.{name} (id BIGINT, name VARCHAR, x DOUBLE, s STRUCT(a INTEGER, l DATE[]))")
        duck.execute(f"ALTER TABLE lake.ns.{name} SET PARTITIONED BY (name, bucket(4, id))")
        duck.execute(
            f"INSERT INTO lake.ns.{name} SELECT i, CASE WHEN i % 3 > 0 THEN 'p /' || (i % 3) END, i / 7, "
            "{'a': i, 'l': [DATE '2024-01-01' + i::INTEGER]} FROM range(50) r (i)"
        )
    ids = dict(duck.sql("SELECT table_name, table_id FROM ducklake_table_info('lake')").fetchall())
    flush_rows(services, NS, "t")
    duck.execute("CALL ducklake_flush_inlined_data('lake', schema_name => 'ns', table_name => 'u')")

    def described(table_id: int) -> list[Any]:
        """All that DuckLake says of the files, but for what tells them apart and how well they are compressed."""
        return duck.sql(
            "SELECT regexp_replace(f.path, 'ducklake-.*', ''), f.record_count, f.row_id_start, "
            "f.begin_snapshot - c.at, "
            "f.partial_max - c.at, list_sort(list((v.partition_key_index, v.partition_value))), "
            "(SELECT list_sort(list((column_id, value_count, null_count, min_value, max_value, contains_nan))) "
            " FROM __ducklake_metadata_lake.ducklake_file_column_stats s WHERE s.data_file_id = f.data_file_id) "
            "FROM __ducklake_metadata_lake.ducklake_data_file f JOIN "
            "__ducklake_metadata_lake.ducklake_file_partition_value v USING (data_file_id), "
            "(SELECT min(begin_snapshot) AS at FROM __ducklake_metadata_lake.ducklake_table "
            f"WHERE table_id = {table_id}) c "
            f"WHERE f.table_id = {table_id} GROUP BY ALL ORDER BY ALL"
        ).fetchall()

    assert described(ids["t"]) == described(ids["u"])
    assert len(described(ids["t"])) == 12
    duck.execute("INSERT INTO lake.ns.t SELECT * FROM lake.ns.u")
    duck.execute("CALL ducklake_flush_inlined_data('lake', schema_name => 'ns', table_name => 't')")
    duck.execute("CALL ducklake_merge_adjacent_files('lake', 't', schema => 'ns')")
    assert len(described(ids["t"])) == 12, "DuckDB merges its files with ours, as they lie in the same folders"
    assert duck.sql("SELECT count(*), sum(id), count(name) FROM lake.ns.t").fetchall() == [(100, 2450, 66)]
    assert_sound(services)


def test_flushed_files_are_sorted_and_partitioned_as_the_table_is_now(
    services: Services, client: Client, duck: Duck
) -> None:
    client.create()
    duck.execute("INSERT INTO lake.ns.t SELECT (i * 37) % 100, 'n' || i FROM range(100) r (i)")
    duck.execute("ALTER TABLE lake.ns.t ADD COLUMN p INTEGER DEFAULT 7")
    duck.execute("INSERT INTO lake.ns.t SELECT 100 + (i * 37) % 100, 'n' || i, i % 2 FROM range(100) r (i)")
    duck.execute("DELETE FROM lake.ns.t WHERE id % 10 = 3")
    duck.execute("ALTER TABLE lake.ns.t SET PARTITIONED BY (p)")
    duck.execute("ALTER TABLE lake.ns.t SET SORTED BY (id DESC NULLS LAST)")
    before, rows = history(duck), duckdb_rows(duck)
    assert flush_rows(services, NS, "t").files == 3
    after = history(duck)
    assert {key: after[key] for key in before} == before
    assert {path.parent.name for path in files_of(services)} == {"p=7", "p=0", "p=1"}
    for path in files_of(services):
        ids = pq.read_table(path, partitioning=None).column("id").to_pylist()
        assert ids == sorted(ids, reverse=True)
    assert duck.sql("SELECT count(*) FROM lake.ns.t WHERE p = 7").fetchall() == [(90,)]
    metadata = Client(fresh(services)).load()
    assert_whole(metadata)
    assert pyiceberg_rows(metadata) == rows


def test_flush_of_nothing_makes_no_snapshot(services: Services, client: Client, duck: Duck) -> None:
    client.create()
    before = duck.sql("SELECT max(snapshot_id) FROM lake.snapshots()").fetchall()
    assert flush_rows(services, NS, "t") == Flushed()
    assert duck.sql("SELECT max(snapshot_id) FROM lake.snapshots()").fetchall() == before
    with pytest.raises(NoSuchTableError, match=r"ns\.absent"):
        flush_rows(services, NS, "absent")


def test_partitions_that_only_duckdb_computes_are_left_to_it(services: Services, client: Client, duck: Duck) -> None:
    duck.execute("CREATE TABLE lake.ns.t (id DECIMAL(9, 2))")
    duck.execute("ALTER TABLE lake.ns.t SET PARTITIONED BY (bucket(4, id))")
    duck.execute("INSERT INTO lake.ns.t VALUES (1.5)")
    with pytest.raises(
        UnsupportedError, match=r"bucket\(4\) of column id \(decimal\(9,2\)\), which only DuckDB computes"
    ):
        flush_rows(services, NS, "t")
    assert inlined(duck) == 1


def test_values_of_megabytes_are_flushed(services: Services, client: Client, duck: Duck) -> None:
    client.create()
    duck.execute("INSERT INTO lake.ns.t VALUES (1, repeat('\"ä,', 700000)), (2, NULL), (3, repeat('x', 3000000))")
    query = "SELECT id, length(name), md5(name) FROM lake.ns.t ORDER BY id"
    before = duck.sql(query).fetchall()
    assert flush_rows(services, NS, "t").rows == 3
    assert inlined(duck) == 0
    assert duck.sql(query).fetchall() == before


MEANWHILE = {
    "insert": "INSERT INTO lake.ns.t VALUES (50, 'meanwhile')",
    "delete": "DELETE FROM lake.ns.t WHERE id IN (1, 11)",
    "update": "UPDATE lake.ns.t SET name = 'meanwhile' WHERE id IN (1, 11)",
    "delete all": "DELETE FROM lake.ns.t",
    "add a column": "ALTER TABLE lake.ns.t ADD COLUMN x INTEGER DEFAULT 3",
    "drop a column": "ALTER TABLE lake.ns.t DROP COLUMN name",
    "partition": "ALTER TABLE lake.ns.t SET PARTITIONED BY (id)",
    "rename": "ALTER TABLE lake.ns.t RENAME TO u",
    "flush": "CALL ducklake_flush_inlined_data('lake')",
    "merge": "CALL ducklake_merge_adjacent_files('lake')",
    "rewrite": "CALL ducklake_rewrite_data_files('lake', 't', schema => 'ns', delete_threshold => 0)",
    "expire": "CALL ducklake_expire_snapshots('lake', older_than => now() + INTERVAL 1 DAY)",
}


@pytest.mark.parametrize("is_loaded", [False, pytest.param(True, marks=pytest.mark.model)])
@pytest.mark.parametrize("act", MEANWHILE)
def test_what_others_do_while_rows_are_written_stays(
    services: Services, client: Client, duck: Duck, act: str, is_loaded: bool
) -> None:
    client.create()
    duck.execute("INSERT INTO lake.ns.t SELECT 10 + i, 'file' FROM range(5) r (i)")
    duck.execute("CALL ducklake_flush_inlined_data('lake', schema_name => 'ns', table_name => 't')")
    duck.execute("INSERT INTO lake.ns.t VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    duck.execute("DELETE FROM lake.ns.t WHERE id IN (3, 13)")
    Client(fresh(services)).load()
    seen: list[dict[int, str]] = []
    name = "u" if act == "rename" else "t"

    def meanwhile() -> None:
        duck.execute(MEANWHILE[act])
        seen.append(history(duck, f"lake.ns.{name}"))
        if is_loaded:
            Client(fresh(services)).load(name)

    flush_rows(replace(fresh(services), store=Interrupted(services.store, [meanwhile])), NS, "t")
    after = history(duck, f"lake.ns.{name}")
    assert {key: after[key] for key in seen[0]} == seen[0]
    assert (
        after[max(key for key in after if isinstance(key, int))]
        == seen[0][max(key for key in seen[0] if isinstance(key, int))]
    )
    answer = Client(fresh(services)).load(name)
    assert_whole(answer)
    if act != "drop a column":
        assert pyiceberg_rows(answer) == duckdb_rows(duck, name)
    flush_rows(fresh(services), NS, name)
    assert inlined(duck, name) == 0
    again = history(duck, f"lake.ns.{name}")
    assert {key: again[key] for key in after} == after
    assert_sound(services)


def test_table_dropped_while_its_rows_are_written_is_gone(services: Services, client: Client, duck: Duck) -> None:
    client.create()
    duck.execute("INSERT INTO lake.ns.t VALUES (1, 'one')")
    interrupted = Interrupted(services.store, [lambda: duck.execute("DROP TABLE lake.ns.t")])
    with pytest.raises(NoSuchTableError):
        flush_rows(replace(fresh(services), store=interrupted), NS, "t")


def test_rows_are_found_by_the_partitions_that_a_table_gets_while_they_are_written(
    services: Services, client: Client, duck: Duck
) -> None:
    duck.execute("CREATE TABLE lake.ns.t (id BIGINT, name VARCHAR)")
    duck.execute("ALTER TABLE lake.ns.t SET PARTITIONED BY (name)")
    duck.execute("INSERT INTO lake.ns.t SELECT i, 'n' FROM range(8) r (i)")
    other_keys: list[Callable[[], object]] = [
        lambda: duck.execute("ALTER TABLE lake.ns.t SET PARTITIONED BY (bucket(4, id))")
    ]
    assert flush_rows(replace(services, store=Interrupted(services.store, other_keys)), NS, "t").rows == 8
    assert [duck.sql(f"SELECT id FROM lake.ns.t WHERE id = {i}").fetchall() for i in range(8)] == [
        [(i,)] for i in range(8)
    ]
    assert pyiceberg_rows(Client(fresh(services)).load()) == duckdb_rows(duck)


def test_files_of_a_flush_that_comes_to_nothing_are_deleted(services: Services, client: Client, duck: Duck) -> None:
    client.create()
    duck.execute("INSERT INTO lake.ns.t SELECT i, 'file' FROM range(5) r (i)")
    duck.execute("CALL ducklake_flush_inlined_data('lake')")
    duck.execute("INSERT INTO lake.ns.t VALUES (10, 'ten'), (11, 'gone')")
    duck.execute("DELETE FROM lake.ns.t WHERE id IN (1, 11)")
    superseding: list[Callable[[], object]] = [lambda: duck.execute("CALL ducklake_flush_inlined_data('lake')")]
    assert flush_rows(replace(services, store=Interrupted(services.store, superseding)), NS, "t") == Flushed()
    known = duck.sql(
        "SELECT path FROM __ducklake_metadata_lake.ducklake_data_file "
        "UNION ALL SELECT path FROM __ducklake_metadata_lake.ducklake_delete_file"
    ).fetchall()
    folder = Path(services.policy.warehouse, "ducklake")
    assert sorted(path.name for path in folder.rglob("*.parquet")) == sorted(Path(path).name for (path,) in known)


def test_files_of_a_flush_whose_outcome_is_unknown_stay(services: Services, client: Client, duck: Duck) -> None:
    client.create()
    duck.execute("INSERT INTO lake.ns.t VALUES (1, 'one')")

    class Lost:
        def burn(self, step: str) -> None:
            if step == "after COMMIT":
                raise CommitStateUnknownError(step)

    lost: Any = Lost()
    database: Any = FusedDatabase(services.database, lost)
    with pytest.raises(CommitStateUnknownError):
        flush_rows(replace(services, database=database), NS, "t")
    assert inlined(duck) == 0
    assert duckdb_rows(duck) == [(1, "one")]


def test_client_that_deletes_from_the_file_that_served_flushed_rows_is_refused(
    services: Services, client: Client, duck: Duck
) -> None:
    client.create()
    duck.execute("INSERT INTO lake.ns.t VALUES (1, 'one'), (2, 'two')")
    seen = Client(fresh(services)).metadata()
    body = delete(seen, (data_files(seen)[0], 0))
    flush_rows(services, NS, "t")
    with pytest.raises(CommitFailedError):
        Client(fresh(services)).commit(body)
    assert duckdb_rows(duck) == [(1, "one"), (2, "two")]


def test_deletes_by_both_sides_become_one_delete_file(services: Services, client: Client, duck: Duck) -> None:
    client.create()
    duck.execute("INSERT INTO lake.ns.t SELECT i, 'file' FROM range(10) r (i)")
    duck.execute("CALL ducklake_flush_inlined_data('lake', schema_name => 'ns', table_name => 't')")
    metadata = Client(fresh(services)).metadata()
    Client(fresh(services)).commit(delete(metadata, (data_files(metadata)[0], 4)))
    duck.execute("DELETE FROM lake.ns.t WHERE id = 5")
    duck.execute("DELETE FROM lake.ns.t WHERE id = 6")
    before = history(duck)
    assert flush_rows(services, NS, "t") == Flushed(0, 2, 0, flush_id(duck))
    after = history(duck)
    assert {key: after[key] for key in before} == before
    assert [id_ for id_, _ in duckdb_rows(duck)] == [0, 1, 2, 3, 7, 8, 9]
    answer = Client(fresh(services)).load()
    assert_whole(answer)
    assert pyiceberg_rows(answer) == duckdb_rows(duck)
    assert_sound(services)


def flush_id(duck: Duck) -> int:
    ((number,),) = duck.sql("SELECT max(snapshot_id) FROM lake.snapshots()").fetchall()
    return int(number)


def test_flush_that_finds_no_room_changes_nothing(services: Services, client: Client, duck: Duck) -> None:
    client.create()
    duck.execute("INSERT INTO lake.ns.t SELECT range, repeat('x', 100) FROM range(1000)")
    with full_disk(), pytest.raises(UnavailableError, match="no room for a temporary file"):
        flush_rows(services, NS, "t")
    assert inlined(duck) == 1000
    assert flush_rows(services, NS, "t").rows == 1000
