"""Lakes that someone damaged: doctor finds and names each damage, and the server refuses that table only.

What doctor advises as SQL is done, and leads to a lake in which both sides read the same rows.
"""

import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pytest
from psycopg.conninfo import conninfo_to_dict

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.doctor import examine_files, examine_tables
from duckicelake.changelog.doctor import diagnose
from duckicelake.errors import DamagedTableError
from duckicelake.lake.doctor.findings import Finding
from duckicelake.lake.ducklake import inlined_rows
from duckicelake.lake.ducklake.database import build_duckdb_attach
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.app import create_app
from tests.conftest import TEMPLATE, Attach, new_duckdb, new_lake
from tests.support.foreign_catalog import CLEANERS
from tests.support.lakes import Lake, assert_same_rows
from tests.support.servers import running
from tests.support.table_history import FLUSH, MERGE, History

TABLES = "/v1/namespaces/main/tables"
T, NEIGHBOUR = f"{TABLES}/t", f"{TABLES}/neighbour"
MADE = (
    "CREATE TABLE t (id BIGINT, name VARCHAR, day DATE)",
    "ALTER TABLE t SET PARTITIONED BY (year(day))",
    "ALTER TABLE t SET SORTED BY (id)",
    "INSERT INTO t SELECT i, 'n' || i, DATE '2024-01-01' FROM range(40) r(i)",
    "DELETE FROM t WHERE id < 12",
    "DELETE FROM t WHERE id = 20",
    "INSERT INTO t VALUES (100, NULL, '2020-01-01'), (101, 'inlined', '2021-01-01')",
    "CREATE TABLE neighbour AS SELECT i AS id FROM range(20) r(i)",
    "CREATE TABLE spare (id BIGINT, name VARCHAR, day DATE)",
    "INSERT INTO spare SELECT i, 'n' || i, DATE '2024-01-01' FROM range(50, 70) r(i)",
)
ID_OF_T = "(SELECT table_id FROM ducklake_table WHERE table_name = 't')"
OF_T = f"table_id = {ID_OF_T}"
WITHOUT_TRIGGERS = "SET LOCAL session_replication_role = replica; "
DELETE_FILE = (
    "INSERT INTO ducklake_delete_file SELECT {id}, table_id, begin_snapshot, end_snapshot, {target}, path, "
    "path_is_relative, format, delete_count, file_size_bytes, footer_size, encryption_key, partial_max "
    f"FROM ducklake_delete_file WHERE {OF_T}; UPDATE ducklake_snapshot SET next_file_id = next_file_id + 1000"
)
DATA_FILE = (
    f"INSERT INTO ducklake_data_file SELECT data_file_id + 900, {ID_OF_T}, f.begin_snapshot, NULL, NULL, m.value || "
    "s.path || t.path || f.path, false, file_format, record_count, file_size_bytes, footer_size, 42, NULL, NULL, NULL, "
    "NULL FROM ducklake_data_file f JOIN ducklake_table t USING (table_id) JOIN ducklake_schema s USING (schema_id), "
    "ducklake_metadata m WHERE table_name = 'spare' AND m.key = 'data_path'; "
    f"UPDATE ducklake_table_stats SET next_row_id = 62 WHERE table_id = {ID_OF_T}; "
    "UPDATE ducklake_snapshot SET next_file_id = next_file_id + 1000"
)


def on_inlined(statement: str) -> str:
    """A statement for the newest of the table's tables of inlined rows, `%I` in it."""
    return (
        "DO $$ DECLARE n text; BEGIN SELECT table_name INTO n FROM ducklake_inlined_data_tables "
        f"WHERE {OF_T} ORDER BY schema_version DESC LIMIT 1; EXECUTE format('{statement}', n); END $$"
    )


@dataclass(frozen=True, slots=True)
class Damaged:
    """A lake with a table `t` that is damaged and a neighbour that isn't, its server, and its store."""

    services: Services
    attach: Attach
    http: httpx.Client

    def sql(self, statements: str) -> None:
        with self.services.database.transaction() as cursor:
            cursor.execute(statements)

    def findings(self) -> list[Finding]:
        """What doctor doesn't like."""
        found, files = examine_tables(self.services.database)
        lost = [finding for finding in examine_files(self.services.store, files) if finding is not None]
        return [*(finding for finding in diagnose(self.services.database) if not finding.ok), *found, *lost]

    def commit(self, path: str) -> httpx.Response:
        update = {"action": "set-properties", "updates": {"looked": "at"}}
        return self.http.post(path, json={"requirements": [], "updates": [update]})

    def file_of(self, owner: str) -> Path:
        """Where the file of the table's only data or delete file is."""
        with self.services.database.reading() as cursor:
            found = cursor.execute(
                f"SELECT m.value || s.path || t.path || f.path FROM ducklake_{owner}_file f JOIN ducklake_table t "
                f"USING (table_id) JOIN ducklake_schema s USING (schema_id), ducklake_metadata m "
                f"WHERE f.{OF_T} AND m.key = 'data_path'"
            ).fetchall()
        ((path,),) = found
        return Path(path)

    def both_sides(self) -> list[Any]:
        """The rows of the table, as both sides read them; each has its own row id."""
        lake = Lake(self.services, self.attach())
        assert_same_rows(lake)
        assert lake.one("SELECT count(*) = count(DISTINCT rowid) FROM t") == (True,)
        return lake.duck_rows()


@dataclass(frozen=True, slots=True)
class Case:
    """A damage in SQL; what doctor finds (name, detail, advice); what the server says of the table, None: it serves it.

    `repair` is whether the advice is SQL that mends it: True if all rows are there again, False if some are lost, None
    if people have to do it. `seen` is whether an Iceberg client loaded the table before.
    """

    damage: str
    finding: tuple[str, str, str] | None
    says: str | None = None
    repair: bool | None = None
    seen: bool = False
    also: frozenset[str] = frozenset()


CASES = {
    "two live delete files": Case(
        WITHOUT_TRIGGERS + DELETE_FILE.format(id="delete_file_id + 900", target="data_file_id"),
        ("delete files", "has several live delete files", "UPDATE ducklake_delete_file"),
        says="more than one live delete file",
        repair=True,
    ),
    "a delete file of no data file": Case(
        DELETE_FILE.format(id="delete_file_id + 900", target="999"),
        ("delete files", "deletes from data file 999, which isn't there", "DELETE FROM ducklake_delete_file"),
        repair=True,
    ),
    "a file without path": Case(
        f"UPDATE ducklake_data_file SET path = NULL WHERE {OF_T}",
        ("file rows", "lacks a value", "put the row right"),
        says="lacks a value",
    ),
    "a file with less than no rows": Case(
        f"UPDATE ducklake_data_file SET record_count = -1 WHERE {OF_T}",
        ("file rows", "an impossible one", "put the row right"),
        says="less than 0 rows",
    ),
    "an unknown map of names": Case(
        f"UPDATE ducklake_data_file SET mapping_id = 0 WHERE {OF_T}",
        ("name maps", "has names of map 0", "SET mapping_id = NULL"),
        says="no row of ducklake_name_mapping",
        repair=True,
    ),
    "missing schema versions": Case(
        f"DELETE FROM ducklake_schema_versions WHERE {OF_T}",
        ("schema versions", "isn't in ducklake_schema_versions", "INSERT INTO ducklake_schema_versions"),
        says="ducklake_schema_versions has no row",
        repair=True,
    ),
    "an unknown transform": Case(
        "UPDATE ducklake_partition_column SET transform = 'zorder(7)'",
        ("partition keys", "zorder(7)", "RESET PARTITIONED BY"),
    ),
    "a bucket of no width": Case(
        "UPDATE ducklake_partition_column SET transform = 'bucket(0)'",
        ("partition keys", "bucket(0)", "RESET PARTITIONED BY"),
        says="bucket[0]",
    ),
    "a partition key of no column": Case(
        "UPDATE ducklake_partition_column SET column_id = 99",
        ("partition keys", "of column 99", "RESET PARTITIONED BY"),
    ),
    "a partition value that is none": Case("UPDATE ducklake_file_partition_value SET partition_value = 'x'", None),
    "an unknown direction of sorting": Case("UPDATE ducklake_sort_expression SET sort_direction = 'UP'", None),
    "no table statistics": Case(
        f"DELETE FROM ducklake_table_stats WHERE {OF_T}",
        ("statistics", "no row in ducklake_table_stats", "INSERT INTO ducklake_table_stats"),
        says="ducklake_table_stats has 0 rows of it",
        repair=True,
    ),
    "no table statistics any more": Case(
        f"DELETE FROM ducklake_table_stats WHERE {OF_T}",
        ("statistics", "no row in ducklake_table_stats", "INSERT INTO ducklake_table_stats"),
        repair=True,
        seen=True,
    ),
    "table statistics twice": Case(
        f"INSERT INTO ducklake_table_stats SELECT * FROM ducklake_table_stats WHERE {OF_T}",
        ("statistics", "has 2 rows in ducklake_table_stats", "DELETE FROM ducklake_table_stats"),
        says="ducklake_table_stats has 2 rows of it",
        repair=True,
    ),
    "row ids that were given": Case(
        f"UPDATE ducklake_table_stats SET next_row_id = 3 WHERE {OF_T}",
        ("statistics", "its next row id is 3, but 41 is in use", "SET next_row_id = 42"),
        says="the next row id in ducklake_table_stats is 3, but 41 is in use",
        repair=True,
    ),
    "a maximum below the files'": Case(
        f"UPDATE ducklake_table_column_stats SET max_value = '5' WHERE {OF_T} AND column_id = 1",
        ("statistics", "column id: max_value is 5, but files hold more", "DELETE FROM ducklake_table_column_stats"),
        repair=True,
    ),
    "a minimum above the files'": Case(
        f"UPDATE ducklake_table_column_stats SET min_value = '2024-01-02' WHERE {OF_T} AND column_id = 3",
        ("statistics", "column day: min_value is 2024-01-02, but files hold less", "DELETE FROM ducklake_table_col"),
        repair=True,
    ),
    "bounds that are null": Case(
        f"UPDATE ducklake_table_column_stats SET min_value = NULL, max_value = NULL WHERE {OF_T} AND column_id = 2",
        ("statistics", "column name: max_value is NULL", "DELETE FROM ducklake_table_column_stats"),
        repair=True,
    ),
    "no word on nulls": Case(
        f"UPDATE ducklake_table_column_stats SET contains_null = NULL WHERE {OF_T} AND column_id = 2",
        ("statistics", "column name: contains_null is NULL", "DELETE FROM ducklake_table_column_stats"),
        repair=True,
    ),
    "a column without statistics": Case(f"DELETE FROM ducklake_table_column_stats WHERE {OF_T}", None),
    "files without statistics": Case(f"DELETE FROM ducklake_file_column_stats WHERE {OF_T}", None),
    "statistics that are no values": Case(f"UPDATE ducklake_file_column_stats SET min_value = 'x' WHERE {OF_T}", None),
    "no uuid": Case(
        f"UPDATE ducklake_table SET table_uuid = NULL WHERE {OF_T}",
        ("tables", "without one of its values", "put the rows with table_id"),
        says="it has no uuid",
    ),
    "no columns": Case(
        f"DELETE FROM ducklake_column WHERE {OF_T}",
        ("columns", "it has no columns", "put the rows of ducklake_column"),
        says="it has no columns",
        also=frozenset({"inlined rows", "partition keys"}),
    ),
    "two columns of one name": Case(
        f"UPDATE ducklake_column SET column_name = 'ID' WHERE {OF_T} AND column_id = 2",
        ("columns", "2 of its columns are named 'id'", "put the rows of ducklake_column"),
        says="2 of its columns are named 'id'",
        also=frozenset({"inlined rows"}),
    ),
    "a column twice": Case(
        f"INSERT INTO ducklake_column SELECT * FROM ducklake_column WHERE {OF_T} AND column_id = 2",
        ("columns", "it has column 2 2 times", "put the rows of ducklake_column"),
        says="it has column 2 2 times",
        also=frozenset({"inlined rows"}),
    ),
    "a list of nothing": Case(
        f"UPDATE ducklake_column SET column_type = 'list' WHERE {OF_T} AND column_id = 2",
        ("columns", "its column name, a list, has 0 fields", "put the rows of ducklake_column"),
        says="its column name, a list, has 0 fields",
    ),
    "a column in itself": Case(
        f"UPDATE ducklake_column SET parent_column = column_id WHERE {OF_T} AND column_id = 2",
        ("columns", "its columns [2] are in none", "put the rows of ducklake_column"),
        says="its columns [2] are in none",
        also=frozenset({"inlined rows"}),
    ),
    "a column without type": Case(
        f"UPDATE ducklake_column SET column_type = NULL WHERE {OF_T} AND column_id = 2",
        ("columns", "its column 2 has no name or no type", "put the rows of ducklake_column"),
        says="its column 2 has no name or no type",
    ),
    "a table of inlined rows that has gone": Case(
        on_inlined("DROP TABLE %I"),
        ("inlined rows", "isn't in Postgres", "DELETE FROM ducklake_inlined_data_tables"),
        says="isn't in Postgres",
        repair=False,
    ),
    "an unknown table of inlined rows": Case(
        f"DELETE FROM ducklake_inlined_data_tables WHERE {OF_T} AND schema_version = (SELECT max(schema_version) "
        f"FROM ducklake_inlined_data_tables WHERE {OF_T})",
        ("inlined rows", "DuckLake doesn't know it", "INSERT INTO ducklake_inlined_data_tables"),
        repair=True,
    ),
    "a table of inlined rows without a column": Case(
        on_inlined("ALTER TABLE %I DROP COLUMN name"),
        ("inlined rows", "has the columns row_id, begin_snapshot, end_snapshot, id, day instead", "give it those"),
        says="has no column name",
    ),
    "an inlined value of no type": Case(on_inlined("UPDATE %I SET day = ''x''"), None, says="a value isn't one of its"),
    "inlined deletes from another's file": Case(
        f"DO $$ BEGIN EXECUTE format('UPDATE %I SET file_id = 999', 'ducklake_inlined_delete_' || {ID_OF_T}); END $$",
        ("inlined rows", "deletes 1 row of data file 999, which isn't its", "put its file_id right"),
        repair=False,
    ),
    "a gap in the snapshot ids": Case(
        "INSERT INTO ducklake_snapshot SELECT snapshot_id + 5, now(), schema_version, next_catalog_id, next_file_id "
        "FROM ducklake_snapshot ORDER BY snapshot_id DESC LIMIT 1",
        ("snapshot ids", "is missing before it", "a writer broke DuckLake's protocol"),
    ),
    "no record of changes": Case(
        "DELETE FROM ducklake_snapshot_changes",
        ("snapshot ids", "without a record of changes", "a writer broke DuckLake's protocol"),
    ),
    "changes in another language": Case(
        "UPDATE ducklake_snapshot_changes SET changes_made = 'moved_table:1' WHERE snapshot_id = 3",
        ("snapshots", "snapshot 3 says", "SET changes_made = NULL"),
        repair=True,
    ),
    "ids of files that were given": Case(
        "UPDATE ducklake_snapshot SET next_file_id = 1",
        ("snapshots", "next_file_id of snapshot 10 is below ids in use", "SET next_file_id"),
        repair=True,
    ),
    "ids of tables that were given": Case(
        "UPDATE ducklake_snapshot SET next_catalog_id = 1",
        ("snapshots", "next_catalog_id of snapshot 10 is below ids in use", "SET next_catalog_id"),
        repair=True,
    ),
    "a table ahead of DuckLake": Case(
        f"UPDATE duckicelake_table SET caught_up_to = 99 WHERE {OF_T}",
        ("side tables", "has seen snapshot 99, but DuckLake's newest is 10", "restore both from one backup"),
        says="it has seen snapshot 99",
        seen=True,
    ),
    "a data file that nobody recorded": Case(
        DATA_FILE,
        ("side tables", "has come without a record of changes", "inserted_into_table"),
        seen=True,
        repair=False,
        also=frozenset({"statistics"}),
    ),
    "a data file that nobody recorded to have gone": Case(
        WITHOUT_TRIGGERS + f"DELETE FROM ducklake_data_file WHERE {OF_T}",
        ("side tables", "but DuckLake doesn't have it", "deleted_from_table"),
        seen=True,
        repair=False,
        also=frozenset({"delete files", "deletes"}),
    ),
    "inlined deletes that nobody recorded": Case(
        f"DO $$ BEGIN EXECUTE format('INSERT INTO %I SELECT file_id, row_id + 1, begin_snapshot FROM %1$I', "
        f"'ducklake_inlined_delete_' || {ID_OF_T}); END $$",
        ("rows", "see 1 row that DuckLake doesn't have any more", "let all of it be compared"),
        seen=True,
        repair=False,
    ),
    "inlined rows that nobody recorded to have gone": Case(
        on_inlined("DELETE FROM %I WHERE id = 100"),
        ("rows", "see 1 row that DuckLake doesn't have any more", "let all of it be compared"),
        seen=True,
        repair=False,
    ),
    "all inlined rows gone, and nobody recorded it": Case(
        on_inlined("DELETE FROM %I"),
        ("rows", "see 2 rows that DuckLake doesn't have any more", "let all of it be compared"),
        seen=True,
        repair=False,
    ),
    "inlined rows that nobody recorded": Case(
        on_inlined("INSERT INTO %I SELECT 50, begin_snapshot, end_snapshot, 102, name, day FROM %1$I WHERE id = 100")
        + f"; UPDATE ducklake_table_stats SET next_row_id = 62 WHERE {OF_T}",
        ("rows", "don't see 1 row that DuckLake has inlined", "let all of it be compared"),
        seen=True,
        repair=False,
    ),
    "a delete file that nobody recorded": Case(
        "ALTER TABLE ducklake_delete_file DISABLE TRIGGER USER; "
        + DELETE_FILE.format(id=900, target="data_file_id")
        + f"; UPDATE ducklake_delete_file SET end_snapshot = begin_snapshot WHERE {OF_T} AND delete_file_id <> 900; "
        "ALTER TABLE ducklake_delete_file ENABLE TRIGGER USER",
        ("rows", "has come without a record, and no Iceberg client knows it", "let all of it be compared"),
        seen=True,
        repair=True,
    ),
    "a size that isn't the file's": Case(
        f"UPDATE ducklake_data_file SET file_size_bytes = 7 WHERE {OF_T}",
        ("files", "in the store instead of 7", "UPDATE ducklake_data_file SET file_size_bytes"),
        repair=True,
    ),
}


@dataclass(frozen=True, slots=True)
class Made:
    """A lake made by `MADE`, of which each test that damages one gets a copy."""

    database: str
    warehouse: Path


@pytest.fixture(scope="module")
def made(postgres: EmbeddedPostgres, extensions: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    warehouse = tmp_path_factory.mktemp("made")
    with new_lake(postgres, warehouse) as url:
        with closing(new_duckdb()) as duck:
            duck.execute(build_duckdb_attach(url)).execute("USE lake")
            for statement in MADE:
                duck.execute(statement)
        yield Made(str(conninfo_to_dict(url)["dbname"]), warehouse)


@pytest.fixture
def database_url(request: pytest.FixtureRequest, postgres: EmbeddedPostgres, warehouse: Path) -> Iterator[str]:
    """A copy of the made lake for tests of `lake`, an empty one for the others."""
    template = TEMPLATE
    if "lake" in request.fixturenames:
        made: Made = request.getfixturevalue("made")
        shutil.copytree(made.warehouse, warehouse)
        template = made.database
    with new_lake(postgres, warehouse, template) as url:
        yield url


@pytest.fixture
def lake(services: Services, attach: Attach) -> Iterator[Damaged]:
    with running(create_app(services)) as uri, httpx.Client(base_url=uri, timeout=30) as http:
        yield Damaged(services, attach, http)


def check_refused(answer: httpx.Response, says: str) -> None:
    assert answer.status_code == 422, answer.text
    error = answer.json()["error"]
    assert error["type"] == "DamagedTableException"
    assert error["message"].startswith("Table main.t is damaged: ")
    assert says in error["message"]
    assert "`duckicelake doctor`" in error["message"]


def check_others(lake: Damaged) -> None:
    """The damaged table is listed and may be asked for; its neighbour is served and takes commits."""
    assert {each["name"] for each in lake.http.get(TABLES).json()["identifiers"]} == {"t", "neighbour", "spare"}
    assert lake.http.head(T).status_code == 204
    assert lake.http.get(NEIGHBOUR).json()["metadata"]["snapshots"][-1]["summary"]["total-records"] == "20"
    assert lake.commit(NEIGHBOUR).status_code == 200


def sql_of(advice: str) -> str:
    """The statement that an advice ends with."""
    found = re.search(r"(?:: |^)((?:UPDATE|DELETE FROM|INSERT INTO|WITH) .*;)$", advice)
    assert found, advice
    return found[1]


def doctored(lake: Damaged) -> None:
    """Do what doctor says until it says nothing."""
    for finding in lake.findings():
        lake.sql(sql_of(finding.advice))
    assert lake.findings() == []


ALWAYS = 6
"""One kind of damage in so many is tried always; the suite `model` has the others."""


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, id=name, marks=() if number % ALWAYS == 0 else pytest.mark.model)
        for number, (name, case) in enumerate(CASES.items())
    ],
)
def test_damage_is_named_and_confined_and_the_advice_mends_it(lake: Damaged, case: Case) -> None:
    whole = Lake(lake.services, lake.attach()).duck_rows()
    if case.seen:
        assert lake.http.get(T).status_code == 200
    lake.sql(case.damage)
    check_found(lake.findings(), case)
    for answer in (lake.http.get(T), lake.commit(T)):
        if case.says is None:
            assert answer.status_code == 200 or case.seen, answer.text
        else:
            check_refused(answer, case.says)
    check_others(lake)
    if case.repair is not None:
        doctored(lake)
        assert (lake.both_sides() == whole) is case.repair
        lake.attach().execute("INSERT INTO t SELECT i, 'more', '2024-02-02' FROM range(200, 220) r(i)")
        assert len(lake.both_sides()) >= 20
    assert lake.http.delete(T).status_code == 204
    assert lake.http.get(T).status_code == 404


def test_doctor_goes_on_after_a_table_that_it_cannot_compare(lake: Damaged) -> None:
    assert lake.http.get(T).status_code == lake.http.get(NEIGHBOUR).status_code == 200
    lake.sql(on_inlined("DROP TABLE %I"))
    first = lake.findings()
    assert [(each.name, "isn't in Postgres" in each.detail) for each in first] == [("inlined rows", True)]
    lake.sql(sql_of(first[0].advice))
    (second,) = lake.findings()
    assert "see 2 rows that DuckLake doesn't have any more" in second.detail
    lake.sql(sql_of(second.advice))
    assert lake.findings() == []
    assert lake.both_sides()


def check_found(findings: list[Finding], case: Case) -> None:
    if case.finding is None:
        assert findings == []
        return
    name, detail, advice = case.finding
    assert {finding.name for finding in findings} == {name} | case.also
    matching = [finding for finding in findings if detail in finding.detail]
    assert matching, findings
    assert all("main.t: " in each.detail or name in {"snapshots", "snapshot ids"} for each in matching)
    assert all(advice in each.advice for each in matching)


@dataclass(frozen=True, slots=True)
class Lost:
    """What happens to the table's data or delete file; what doctor finds, and the server says; and what mends it."""

    owner: str
    harm: Callable[[Path], Any]
    found: str
    says: str | None
    mends: bool


LOST = {
    "a data file": Lost("data", Path.unlink, "isn't in the store", None, mends=True),
    "a delete file": Lost("delete", Path.unlink, "isn't in the store", "doesn't exist", mends=True),
    "a delete file's content": Lost(
        "delete", lambda path: path.write_bytes(b"none"), "has 4 bytes in the store", "isn't a delete file", mends=False
    ),
}


@pytest.mark.parametrize("lost", LOST.values(), ids=LOST)
def test_file_that_vanished_or_changed_is_named_and_its_table_mended_without_it(lake: Damaged, lost: Lost) -> None:
    path = lake.file_of(lost.owner)
    lost.harm(path)
    (finding,) = lake.findings()
    assert finding.name == "files"
    assert finding.detail.startswith(f"main.t: {lost.owner} file ")
    assert str(path) in finding.detail
    assert lost.found in finding.detail
    assert "restore it from a backup" in finding.advice
    for answer in (lake.http.get(T), lake.commit(T)):
        if lost.says is None:
            assert answer.status_code == 200, answer.text
        else:
            check_refused(answer, lost.says)
    check_others(lake)
    if lost.mends:
        lake.sql(sql_of(finding.advice))
        assert lake.both_sides()
        expire_all_but_current(lake)
        assert lake.findings() == []
        assert lake.both_sides()


def expire_all_but_current(lake: Damaged) -> None:
    """What doctor advises where a file of old snapshots is lost."""
    metadata = lake.http.get(T).json()["metadata"]
    listed = {each["snapshot-id"] for each in metadata["snapshots"]}
    update = {"action": "remove-snapshots", "snapshot-ids": sorted(listed - {metadata["current-snapshot-id"]})}
    assert lake.http.post(T, json={"requirements": [], "updates": [update]}).status_code == 200


def test_data_file_that_only_listed_snapshots_have_is_missed_too(lake: Damaged) -> None:
    path = lake.file_of("data")
    assert lake.http.get(T).status_code == 200
    lake.attach().execute("CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)")
    assert lake.http.get(T).status_code == 200
    path.unlink()
    (finding,) = lake.findings()
    assert "a file of listed Iceberg snapshots" in finding.detail
    assert str(path) in finding.detail
    assert "expire the snapshots" in finding.advice
    expire_all_but_current(lake)
    assert lake.findings() == []


def test_tables_whose_names_differ_only_by_case_are_named(lake: Damaged) -> None:
    lake.sql("UPDATE ducklake_table SET table_name = 'NEIGHBOUR' WHERE table_name = 't'")
    lake.sql("INSERT INTO ducklake_schema SELECT 99, schema_uuid, 1, NULL, 'MAIN', 'x/', true FROM ducklake_schema")
    lake.sql("UPDATE ducklake_snapshot SET next_catalog_id = 100")
    assert [(finding.name, finding.detail) for finding in lake.findings()] == [
        ("names", "main.neighbour: differs from others in nothing but upper and lower case: NEIGHBOUR, neighbour"),
        ("names", "namespaces differ in nothing but upper and lower case: MAIN, main"),
    ]
    for path, count in ((f"{TABLES}/NEIGHBOUR", "42"), (NEIGHBOUR, "20")):
        loaded = lake.http.get(path).json()["metadata"]
        assert loaded["snapshots"][-1]["summary"]["total-records"] == count


def test_table_of_ours_that_ducklake_never_made_and_one_without_namespace_are_named(lake: Damaged) -> None:
    assert lake.http.get(T).status_code == 200
    lake.sql(
        "CREATE TEMP TABLE copy AS SELECT * FROM duckicelake_table; UPDATE copy SET table_id = 999; "
        "INSERT INTO duckicelake_table SELECT * FROM copy; "
        "UPDATE ducklake_table SET schema_id = 77 WHERE table_name = 'spare'"
    )
    homeless, never_made = lake.findings()
    assert homeless.detail == "table spare is in namespace 77, which isn't there"
    assert never_made.detail.startswith("table 999 at file:/")
    assert "was never made in DuckLake" in never_made.detail
    assert lake.http.get(NEIGHBOUR).status_code == 200


def test_type_that_is_not_one_is_refused_as_such_and_no_damage(lake: Damaged) -> None:
    lake.sql(f"UPDATE ducklake_column SET column_type = 'decimal(' WHERE {OF_T} AND column_id = 2")
    answer = lake.http.get(T)
    assert (answer.status_code, answer.json()["error"]["type"]) == (406, "UnsupportedOperationException")
    assert "Column name has the DuckLake type decimal(" in answer.json()["error"]["message"]
    check_others(lake)
    assert lake.findings() == []


def test_damage_that_is_mended_in_the_meantime_is_none(lake: Damaged, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when DuckDB flushes and drops a table of inlined rows between two statements of ours."""
    flushed: list[None] = []
    asked_rows = inlined_rows.build_rows_query

    def flushing(*arguments: Any) -> Any:
        if not flushed:
            flushed.append(None)
            raise DamagedTableError("its table of inlined rows isn't there")
        return asked_rows(*arguments)

    monkeypatch.setattr(inlined_rows, "build_rows_query", flushing)
    assert lake.http.get(T).status_code == 200
    assert flushed


def test_bounds_that_duckdbs_flush_forgets_after_a_change_of_type_are_found_and_mended(
    services: Services, attach: Attach, ducklake: duckdb.DuckDBPyConnection
) -> None:
    lake = Lake(services, ducklake)
    lake.run("CREATE TABLE t (id BIGINT, c INTEGER)", "INSERT INTO t VALUES (1, 5)")
    lake.run("INSERT INTO t SELECT i, i FROM range(10, 30) r(i)", "ALTER TABLE t ALTER c SET DATA TYPE BIGINT")
    lake.run("INSERT INTO t VALUES (2, 7)", FLUSH)
    findings, _ = examine_tables(services.database)
    assert [finding.detail for finding in findings] == [
        "main.t: column c: max_value is NULL, which DuckDB takes for the next file's",
        "main.t: column c: min_value is NULL, which DuckDB takes for the next file's",
    ]
    with services.database.transaction() as cursor:
        cursor.execute(sql_of(findings[0].advice))
    assert examine_tables(services.database)[0] == []
    mended = Lake(services, attach())
    mended.run("INSERT INTO t SELECT i, i FROM range(500, 520) r(i)")
    assert mended.one("SELECT count(*) FROM t WHERE c = 12") == (1,)
    assert_same_rows(mended)


WORK = (
    "CREATE SCHEMA s",
    "CREATE TABLE s.other (a INTEGER, b STRUCT(x INTEGER, y VARCHAR[]), m MAP(VARCHAR, INTEGER))",
    "INSERT INTO s.other SELECT i, {'x': i, 'y': ['y']}, MAP {'k': i} FROM range(30) r(i)",
    "CREATE VIEW s.view AS SELECT id FROM t",
    "CREATE MACRO add1(x) AS x + 1",
    "COMMENT ON TABLE t IS 'commented'",
    "INSERT INTO t VALUES (300, 'a', '2022-01-01'), (301, 'b', NULL)",
    "UPDATE t SET name = 'changed' WHERE id IN (5, 30, 300)",
    "ALTER TABLE t ADD COLUMN added INTEGER DEFAULT 7",
    "ALTER TABLE t RENAME COLUMN name TO label",
    "INSERT INTO t VALUES (302, 'c', '2023-01-01', 1)",
    "DELETE FROM t WHERE id IN (301, 31)",
    "ALTER TABLE t RENAME TO renamed",
    "ALTER TABLE renamed RENAME TO t",
    # where a file holds nothing but NULL, DuckDB's rewrite leaves bounds of NULL in some orders of files: damage indeed
    "UPDATE t SET label = 'named' WHERE label IS NULL",
    "CALL ducklake_flush_inlined_data('lake')",
    "DELETE FROM t WHERE id < 35 AND id > 20",
    "INSERT INTO t SELECT i, 'n', DATE '2024-01-01', i FROM range(400, 430) r(i)",
    "CALL ducklake_merge_adjacent_files('lake')",
    "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0)",
    "ALTER TABLE t RESET PARTITIONED BY",
    "ALTER TABLE t DROP COLUMN added",
    "INSERT INTO t VALUES (303, NULL, '2023-01-01')",
    "DROP TABLE spare",
    "DROP TABLE s.other",
    "CREATE TABLE s.other (a INTEGER)",
    *CLEANERS,
)


@pytest.mark.parametrize(
    "is_served", [pytest.param(False, id="alone", marks=pytest.mark.model), pytest.param(True, id="beside the server")]
)
def test_nothing_that_duckdb_does_is_damage(lake: Damaged, is_served: bool) -> None:
    duck = lake.attach()
    for statement in WORK:
        duck.execute(statement)
        assert lake.findings() == [], statement
        if is_served:
            assert lake.http.get(T).status_code in {200, 404}
            assert lake.findings() == [], statement


def test_nothing_that_iceberg_clients_do_is_damage(history: History, services: Services) -> None:
    lake = Damaged(services, lambda: history.duck, httpx.Client(timeout=60))
    acts: tuple[Callable[[], object], ...] = (
        history.append,
        lambda: history.insert(3),
        lambda: history.delete("main", history.ids()[:2]),
        lambda: history.set_ref("b", history.head()),
        lambda: history.append("b"),
        lambda: history.append(None),
        lambda: history.overwrite("main", history.ids()[:1]),
        lambda: history.delete_in_duckdb(history.ids()[:1]),
        lambda: history.duckdb(FLUSH),
        lambda: history.compact("main"),
        lambda: history.append("b"),
        lambda: history.set_ref("main", history.head("b")),
        lambda: history.duckdb(MERGE),
        lambda: history.expire(history.snapshot_ids() - {history.head(), history.head("b")}),
        lambda: history.remove_ref("b"),
        history.clean_in_duckdb,
    )
    for place, act in enumerate(acts):
        act()
        assert lake.findings() == [], place
