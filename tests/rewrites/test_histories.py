"""Rewrites of tables with a history: every version of old schemas, partitionings and format versions stays."""

import random
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyiceberg.table import StaticTable

from duckicelake.catalog.clone import CloneRequest, clone_table
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.doctor import examine_tables
from duckicelake.catalog.flush import flush_rows
from duckicelake.catalog.table import load
from duckicelake.catalog.table.catch_up import catch_up
from duckicelake.changelog.doctor import diagnose
from duckicelake.maintenance.policy import parse_policy
from duckicelake.maintenance.task import UpkeepTask
from duckicelake.rewrites.actions import compact
from duckicelake.rewrites.metadata_files import pack_manifests, rewrite_deletes
from duckicelake.rewrites.statistics import compute_statistics
from tests.conftest import Attach
from tests.support.client import (
    NS,
    Client,
    Draft,
    Row,
    assert_whole,
    data_files,
    delete,
    duckdb_rows,
    pyiceberg_rows,
)
from tests.support.seams import fresh

Duck = duckdb.DuckDBPyConnection
MB = 2**20


@dataclass
class Control:
    """A worker's control, which does something between a group's files and its commit."""

    meanwhile: Callable[[], object] = lambda: None
    memory_bytes: int = 256 * MB
    scratch_bytes: int = 4096 * MB
    share: float = 1.0
    checks: int = 0

    def check(self) -> None:
        self.checks += 1
        if self.checks == 2:  # the group's files are written, and not committed
            self.meanwhile()

    def report(self, counts: Mapping[str, int]) -> None:
        assert all(count >= 0 for count in counts.values())


@pytest.fixture
def control(tmp_path: Path) -> Control:
    return Control()


@pytest.fixture
def duck(attach: Attach, client: Client) -> Duck:
    """DuckDB, beside an Iceberg client, that writes all rows to files."""
    attach().execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    return attach()


def task(kind: str = "compact", target_size: int = 128 * MB, **policy: Any) -> UpkeepTask:
    wanted = replace(parse_policy({}), min_files=2, **policy)
    return UpkeepTask(kind, NS, "t", "asked for", wanted, target_size)


def history(duck: Duck, order: str = "ALL") -> dict[int, str]:
    """What every version of the table shows DuckDB, with row ids."""
    found: dict[int, str] = {}
    for (version,) in duck.sql("SELECT snapshot_id FROM lake.snapshots() WHERE snapshot_id > 1").fetchall():
        try:
            rows = duck.sql(f"SELECT rowid, * FROM lake.ns.t AT (VERSION => {version}) ORDER BY {order}").fetchall()
        except duckdb.CatalogException:
            rows = []
        found[version] = repr(rows)
    return found


def assert_sound(services: Services) -> None:
    damage, _ = examine_tables(services.database)
    assert [finding for finding in (*diagnose(services.database), *damage) if not finding.ok] == []


def append(client: Client, version: str, *rows: Row) -> None:
    """Append as an Iceberg client of that format version does."""
    draft = Draft(client.metadata(), format_version=int(version))
    client.commit(draft.body([draft.manifest([draft.data_file(rows)]), *draft.parent_manifests]))


def fill(client: Client, duck: Duck, version: str) -> None:
    """Files of DuckDB and of an Iceberg client, of several schemas, with updates and deletes."""
    for column in ("s STRUCT(a INTEGER, b VARCHAR[], w DATE[])", "m MAP(VARCHAR, DECIMAL(9, 2))", "b BLOB"):
        duck.execute(f"ALTER TABLE lake.ns.t ADD COLUMN {column}")
    append(client, version, (200, "iceberg"), (201, None), (202, "deleted"))
    duck.execute(
        "INSERT INTO lake.ns.t VALUES (1, 'one', NULL, NULL, NULL), (2, '', NULL, NULL, ''), "
        "(3, NULL, NULL, MAP {}, NULL), "
        "(4, chr(0) || 'nul', {'a': NULL, 'b': [], 'w': NULL}, NULL, '\\x00\\xFF'::BLOB), "
        "(5, 'ünï ☃ \"quoted\"', {'a': 1, 'b': ['x', NULL, 'y,\"z'], 'w': [DATE '2024-02-29']}, "
        "MAP {'k': 1.25, 'k,\"2': NULL}, 'plain'::BLOB)"
    )
    duck.execute("DELETE FROM lake.ns.t WHERE id IN (2, 202)")
    duck.execute("UPDATE lake.ns.t SET name = 'changed' WHERE id IN (3, 200)")
    duck.execute("ALTER TABLE lake.ns.t ADD COLUMN d DOUBLE DEFAULT 1.5")
    duck.execute("ALTER TABLE lake.ns.t ADD COLUMN s.c BIGINT")
    duck.execute("INSERT INTO lake.ns.t (id, name, d, s) VALUES (6, 'ä', 'nan', {'a': 7, 'b': ['q'], 'w': [], 'c': 9})")
    duck.execute("ALTER TABLE lake.ns.t RENAME COLUMN d TO e")
    duck.execute("ALTER TABLE lake.ns.t RENAME COLUMN s.a TO aa")
    duck.execute("ALTER TABLE lake.ns.t DROP COLUMN b")
    duck.execute("INSERT INTO lake.ns.t (id, name, e) VALUES (7, 'x', '-inf'), (8, '', -0.0), (9, 'z', 0)")
    duck.execute("DELETE FROM lake.ns.t WHERE id IN (1, 9)")


@pytest.mark.parametrize("version", [pytest.param("2", marks=pytest.mark.model), "3"])
def test_compaction_keeps_rows_row_ids_and_history(
    services: Services, client: Client, duck: Duck, control: Control, version: str
) -> None:
    client.create(properties={"format-version": version})
    fill(client, duck, version)
    before, answer = history(duck), client.load()
    rows, old = pyiceberg_rows(answer), answer["metadata"]["current-snapshot-id"]
    outcome = compact(services, task(delete_ratio=0.1), control)
    assert outcome.result == "done", outcome
    assert outcome.counts["added files"] == 1
    after = history(duck)
    assert {key: after[key] for key in before} == before
    assert after[max(after)] == before[max(before)]
    answer = Client(fresh(services)).load()
    assert pyiceberg_rows(answer) == rows
    assert pyiceberg_rows(answer, old) == rows
    assert_whole(answer)
    summary = answer["metadata"]["snapshots"][-1]["summary"]
    assert (summary["operation"], summary["added-data-files"]) == ("replace", "1")
    assert int(summary["deleted-records"]) > int(summary["added-records"]) == len(rows)
    assert len(data_files(answer["metadata"])) == 1
    assert_sound(services)
    assert compact(services, task(delete_ratio=0.1), control).result == "unchanged"


@pytest.mark.model
@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("rows_in_postgres", ["0", "100"])
def test_deletes_and_appends_that_arrive_meanwhile_are_kept(
    services: Services, client: Client, duck: Duck, control: Control, version: str, rows_in_postgres: str
) -> None:
    client.create(properties={"format-version": version})
    for start in range(4):
        duck.execute(f"INSERT INTO lake.ns.t SELECT 10 * {start} + i, 'n' || i FROM range(10) r (i)")
    duck.execute("DELETE FROM lake.ns.t WHERE id IN (3, 17)")
    duck.execute(f"CALL lake.set_option('data_inlining_row_limit', {rows_in_postgres}, schema => 'ns')")
    duck.execute("FROM lake.ns.t").fetchall()

    def meanwhile() -> None:
        other = Client(fresh(services))
        metadata = other.metadata()
        if version == "2":
            other.commit(delete(metadata, (data_files(metadata)[0], 0), (data_files(metadata)[3], 9)))
        duck.execute("DELETE FROM lake.ns.t WHERE id IN (11, 12, 20)")
        duck.execute("UPDATE lake.ns.t SET name = 'changed' WHERE id = 25")
        append(other, version, (100, "new"))

    control.meanwhile = meanwhile
    assert compact(services, task(), control).result == "done"
    gone = {3, 17, 11, 12, 20} | ({0, 39} if version == "2" else set())
    wanted = [(i, "changed" if i == 25 else f"n{i % 10}") for i in range(40) if i not in gone] + [(100, "new")]
    assert duckdb_rows(duck) == wanted
    answer = Client(fresh(services)).load()
    assert pyiceberg_rows(answer) == wanted
    ((count, distinct),) = duck.sql("SELECT count(*), count(DISTINCT rowid) FROM lake.ns.t").fetchall()
    assert count == distinct == len(wanted)
    assert_whole(answer)
    assert_sound(services)


def test_a_file_that_is_rewritten_meanwhile_is_left_out(
    services: Services, client: Client, duck: Duck, control: Control
) -> None:
    client.create()
    for start in range(3):
        duck.execute(f"INSERT INTO lake.ns.t SELECT {start}, 'n'")
    control.meanwhile = lambda: duck.execute("CALL ducklake_merge_adjacent_files('lake', 't', schema => 'ns')")
    outcome = compact(services, task(), control)
    assert outcome.result == "skipped"
    assert duckdb_rows(duck) == pyiceberg_rows(Client(fresh(services)).load()) == [(0, "n"), (1, "n"), (2, "n")]
    assert not list(Path(services.policy.warehouse).rglob("data/*-rows.parquet"))
    assert_sound(services)


@pytest.mark.parametrize("version", [pytest.param("2", marks=pytest.mark.model), "3"])
def test_files_of_older_partitionings_move_into_the_present_one(
    services: Services, client: Client, duck: Duck, control: Control, version: str
) -> None:
    client.create(properties={"format-version": version})
    duck.execute("ALTER TABLE lake.ns.t ADD COLUMN day TIMESTAMP")
    for start in range(6):
        moments = "[TIMESTAMP '1969-12-31 23:00', '2024-02-29 01:00', NULL]"
        duck.execute(f"INSERT INTO lake.ns.t SELECT {start}, unnest(['a', 'b', NULL]), unnest({moments}::TIMESTAMP[])")
    duck.execute("ALTER TABLE lake.ns.t SET PARTITIONED BY (name, year(day), month(day), day(day))")
    duck.execute("INSERT INTO lake.ns.t VALUES (7, 'a', '2020-01-01')")
    duck.execute("UPDATE lake.ns.t SET name = 'c' WHERE id = 5 AND name = 'a'")
    before, rows = history(duck), pyiceberg_rows_with_nulls(client)
    outcome = compact(services, task(), control)
    assert (outcome.counts["rewritten files"], outcome.counts["added files"]) == (6, 3)
    after = history(duck)
    assert {key: after[key] for key in before} == before
    assert pyiceberg_rows_with_nulls(client) == rows
    metadata = Client(fresh(services)).metadata()
    scan = StaticTable.from_metadata(Client(fresh(services)).load()["metadata-location"]).scan("name = 'b'")
    (planned,) = scan.plan_files()
    assert (planned.file.spec_id, [planned.file.partition[0], planned.file.partition[1]]) == (
        metadata["default-spec-id"],
        ["b", 19782],
    )
    assert duck.sql("SELECT count(*) FROM lake.ns.t WHERE name = 'a' AND day < '1970-01-01'").fetchall() == [(5,)]
    assert_sound(services)


@pytest.mark.model
def test_infinite_days_keep_files_where_they_are(
    services: Services, client: Client, duck: Duck, control: Control
) -> None:
    client.create()
    duck.execute("ALTER TABLE lake.ns.t ADD COLUMN day DATE")
    for start in range(3):
        duck.execute(f"INSERT INTO lake.ns.t SELECT {start}, 'n', unnest(['infinity'::DATE, NULL])")
    duck.execute("ALTER TABLE lake.ns.t SET PARTITIONED BY (month(day))")
    rows = duckdb_rows(duck)
    assert compact(services, task(), control).counts["added files"] == 1
    assert duckdb_rows(duck) == rows
    assert duck.sql("SELECT count(*) FROM lake.ns.t WHERE day IS NOT NULL").fetchall() == [(3,)]
    assert_sound(services)


@pytest.mark.model
def test_files_of_older_partitionings_stay_where_more_files_would_come(
    services: Services, client: Client, duck: Duck, control: Control
) -> None:
    client.create()
    for start in range(3):
        duck.execute(f"INSERT INTO lake.ns.t SELECT range, 'n' || range FROM range({start}, 10)")
    duck.execute("ALTER TABLE lake.ns.t SET PARTITIONED BY (name)")
    assert compact(services, task(), control).counts["added files"] == 1


def test_files_of_older_partitionings_are_merged_by_themselves(
    services: Services, client: Client, duck: Duck, control: Control
) -> None:
    client.create()
    for start in range(2):
        duck.execute(f"INSERT INTO lake.ns.t SELECT {start}, 'old'")
    duck.execute("ALTER TABLE lake.ns.t SET PARTITIONED BY (name)")
    for start in range(2, 5):
        duck.execute(f"INSERT INTO lake.ns.t SELECT {start}, unnest(['a', 'b', NULL])")
    before = history(duck)
    rows = pyiceberg_rows_with_nulls(client)
    outcome = compact(services, task(), control)
    assert (outcome.counts["rewritten files"], outcome.counts["added files"]) == (11, 4)
    after = history(duck)
    assert {key: after[key] for key in before} == before
    assert pyiceberg_rows_with_nulls(client) == rows
    assert duck.sql("SELECT count(*) FROM lake.ns.t WHERE name = 'a'").fetchall() == [(3,)]
    assert_sound(services)


def pyiceberg_rows_with_nulls(client: Client) -> list[Any]:
    answer = Client(fresh(client.services)).load()
    return sorted(StaticTable.from_metadata(answer["metadata-location"]).scan().to_arrow().to_pylist(), key=repr)


@pytest.mark.model
@pytest.mark.parametrize("version", ["2", "3"])
def test_rewrites_and_statistics_of_a_clone_leave_its_source_and_both_feeds_as_they_are(
    services: Services, client: Client, duck: Duck, control: Control, version: str
) -> None:
    client.create(properties={"format-version": version})
    fill(client, duck, version)
    clone_table(services, NS, "clone", CloneRequest((NS, "t"), None, False))
    source, rows = history(duck), duckdb_rows(duck)
    duck.execute("INSERT INTO lake.ns.clone (id, name) VALUES (300, 'clone')")
    duck.execute("DELETE FROM lake.ns.clone WHERE id = 8")
    (since,) = duck.sql("SELECT max(snapshot_id) + 1 FROM lake.snapshots()").fetchall()[0]
    duck.execute("INSERT INTO lake.ns.clone (id, name) VALUES (301, 'after')")
    cloned = duckdb_rows(duck, "clone")
    work = replace(task(delete_ratio=0.01), table="clone")
    assert compact(services, work, control).result == "done"
    assert compute_statistics(services, work, control).result == "done"
    assert duckdb_rows(duck, "clone") == cloned == pyiceberg_rows(Client(fresh(services)).load("clone"))
    (upto,) = duck.sql("SELECT max(snapshot_id) FROM lake.snapshots()").fetchall()[0]
    net = "sum(CASE WHEN change_type IN ('insert', 'update_postimage') THEN 1 ELSE -1 END) AS net"
    feed = f"SELECT id, {net} FROM ducklake_table_changes('lake', 'ns', 'clone', {since}, {upto}) GROUP BY id"
    assert duck.sql(f"FROM ({feed}) WHERE net <> 0").fetchall() == [(301, 1)], "the rest changes nothing"
    after = history(duck)
    assert {key: after[key] for key in source} == source
    assert duckdb_rows(duck) == rows
    assert_sound(services)


def test_commit_of_another_process_while_the_table_is_loaded_is_rewritten_too(
    services: Services, client: Client, duck: Duck, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The version that is loaded is then newer than the snapshot up to which DuckDB's changes were looked for."""
    client.create()
    for number in range(4):
        client.append((number, "n"))
    worker = fresh(services)

    def catch_up_late(*arguments: Any) -> Any:
        caught_up = catch_up(*arguments)
        if arguments[0] is worker and len(data_files(client.metadata())) == 4:
            client.append((4, "meanwhile"))
        return caught_up

    monkeypatch.setattr(load, "catch_up", catch_up_late)
    assert compact(worker, task(), control).counts["rewritten files"] == 5
    assert [id_ for id_, _ in duckdb_rows(duck)] == [0, 1, 2, 3, 4]
    assert_sound(services)


def test_rows_in_postgres_are_left_to_the_flush(
    services: Services, client: Client, attach: Attach, control: Control
) -> None:
    client.create()
    duck = attach()
    for start in range(3):
        duck.execute(f"INSERT INTO lake.ns.t VALUES ({start}, 'n')")
    assert compact(services, task(), control).result == "unchanged"
    flush_rows(services, NS, "t")
    duck.execute("INSERT INTO lake.ns.t VALUES (3, 'n')")
    flush_rows(services, NS, "t")
    before = history(duck)
    assert compact(services, task(), control).counts["rewritten files"] == 2
    after = history(duck)
    assert {key: after[key] for key in before} == before


STATEMENTS = (
    "INSERT INTO lake.ns.t (id, name) SELECT {n} + range, 'n' || range FROM range({few})",
    "INSERT INTO lake.ns.t (id) SELECT {n} + range FROM range(30)",
    "DELETE FROM lake.ns.t WHERE id % 7 = {few}",
    "UPDATE lake.ns.t SET name = 'u{n}' WHERE id % 11 = {few}",
    "ALTER TABLE lake.ns.t ADD COLUMN c{n} INTEGER DEFAULT {few}",
    "ALTER TABLE lake.ns.t SET PARTITIONED BY (name)",
    "ALTER TABLE lake.ns.t RESET PARTITIONED BY",
    "ALTER TABLE lake.ns.t SET SORTED BY (id DESC)",
    "CALL ducklake_merge_adjacent_files('lake', 't', schema => 'ns')",
    "CALL ducklake_rewrite_data_files('lake', 't', schema => 'ns', delete_threshold => 0.2)",
    "CALL lake.set_option('data_inlining_row_limit', {few}, schema => 'ns')",
)


@pytest.mark.model
@pytest.mark.parametrize("version", ["2", "3"])
@pytest.mark.parametrize("seed", range(4))
def test_random_histories_stay_whatever_is_rewritten_between(
    services: Services, client: Client, duck: Duck, control: Control, seed: int, version: str
) -> None:
    """Every version keeps its rows and row ids through rewrites; DuckDB's own merges may renumber nothing either."""
    chance = random.Random(seed)
    client.create(properties={"format-version": version})
    for number in range(1, 21):
        statement = chance.choice(STATEMENTS).format(n=100 * number, few=chance.randrange(1, 7))
        with suppress(duckdb.Error):  # DuckDB refuses some, as a merge of files that lie elsewhere
            duck.execute(statement)
        if chance.random() < 0.2:
            flush_rows(services, NS, "t")
        if chance.random() < 0.3:
            before = history(duck)
            compact(services, task(delete_ratio=chance.choice([0.01, 0.5])), control)
            after = history(duck)
            assert {key: after[key] for key in before} == before, statement
        if chance.random() < 0.2:
            rewrite_deletes(services, task("rewrite-deletes"), control)
        if chance.random() < 0.2:
            pack_manifests(services, task("pack-manifests"), control)
    rows = StaticTable.from_metadata(Client(fresh(services)).load()["metadata-location"]).scan().to_arrow()
    found = zip(rows["id"].to_pylist(), rows["name"].to_pylist(), strict=True)
    assert sorted(found, key=repr) == sorted(duckdb_rows(duck), key=repr)
    assert_sound(services)
