"""DuckLake's format under a running server: a guard keeps it, and a server that meets another one writes nothing."""

from collections.abc import Iterator

import httpx
import orjson
import psycopg
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.doctor import examine_tables
from duckicelake.changelog.doctor import diagnose
from duckicelake.errors import UnknownFormatError
from duckicelake.iceberg.puffin import write_vector
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.ducklake.snapshots import begin_snapshot
from duckicelake.server.app import create_app
from tests.conftest import Attach
from tests.support.ducklake_11 import format_change, migrate
from tests.support.lakes import Lake, assert_same_rows
from tests.support.servers import running

NAMESPACES = "/v1/namespaces"
T = f"{NAMESPACES}/main/tables/t"
PROPERTY = {"action": "set-properties", "updates": {"looked": "at"}}
SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "i", "type": "long", "required": False}]}


@pytest.fixture
def lake(services: Services, attach: Attach) -> Lake:
    made = Lake(services, attach())
    made.run("CREATE TABLE t (i BIGINT, s VARCHAR)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    return made


@pytest.fixture
def http(lake: Lake) -> Iterator[httpx.Client]:
    with running(create_app(lake.services)) as url, httpx.Client(base_url=url) as client:
        yield client


REQUESTS = {
    "load": ("GET", T, None),
    "list of namespaces": ("GET", NAMESPACES, None),
    "list of tables": ("GET", f"{NAMESPACES}/main/tables", None),
    "properties": ("POST", T, {"requirements": [], "updates": [PROPERTY]}),
    "column": ("POST", T, {"requirements": [], "updates": [{"action": "upgrade-format-version", "format-version": 3}]}),
    "namespace": ("POST", NAMESPACES, {"namespace": ["made"]}),
    "table": ("POST", f"{NAMESPACES}/main/tables", {"name": "made", "schema": SCHEMA}),
    "drop": ("DELETE", T, None),
    "rows": ("POST", f"{T}/rows", [{"i": 3, "s": "c"}]),
    "readiness": ("GET", "/readyz", None),
}


def everything(lake: Lake) -> object:
    """What a write would change."""
    return lake.sql(
        "SELECT (SELECT max(snapshot_id) FROM ducklake_snapshot), (SELECT sum(version) FROM duckicelake_table), "
        "(SELECT count(*) FROM ducklake_inlined_data_tables), (SELECT count(*) FROM duckicelake_artifact), "
        "(SELECT count(*) FROM ducklake_schema), (SELECT count(*) FROM ducklake_table WHERE end_snapshot IS NULL)"
    )


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE ducklake_metadata SET value = '1.1' WHERE key = 'version'",
        "UPDATE ducklake_metadata SET key = 'was' WHERE key = 'version'",
        "UPDATE ducklake_metadata SET scope = 'table', scope_id = 1 WHERE key = 'version'",
        "UPDATE ducklake_metadata SET key = 'version' WHERE key = 'data_path'",
        "INSERT INTO ducklake_metadata VALUES ('version', '1.1', NULL, NULL)",
        "DELETE FROM ducklake_metadata WHERE key = 'version'",
        "DELETE FROM ducklake_metadata",
        "TRUNCATE ducklake_metadata",
    ],
)
def test_a_statement_that_changes_the_version_is_refused_with_what_to_do(lake, database_url, statement):
    before = lake.sql("SELECT * FROM ducklake_metadata ORDER BY key")

    with psycopg.connect(database_url) as connection, pytest.raises(psycopg.errors.RaiseException) as refused:
        connection.execute(statement)

    assert "DuckLake format 1.0" in str(refused.value)
    assert "without AUTOMATIC_MIGRATION" in str(refused.value)
    assert lake.sql("SELECT * FROM ducklake_metadata ORDER BY key") == before


def test_options_are_set_by_duckdb_as_before(lake):
    for limit in (0, 5, 7):
        lake.run(f"CALL lake.set_option('data_inlining_row_limit', {limit})")
    lake.run("CALL lake.set_option('parquet_compression', 'zstd', table_name => 't')")

    assert ("data_inlining_row_limit", "7") in lake.sql("SELECT key, value FROM ducklake_metadata")


def test_a_backup_of_the_options_can_be_restored(lake, database_url):
    with psycopg.connect(database_url) as connection:
        rows = connection.execute("SELECT * FROM ducklake_metadata").fetchall()
        connection.execute("ALTER TABLE ducklake_metadata DISABLE TRIGGER USER")
        connection.execute("TRUNCATE ducklake_metadata")
        connection.execute("ALTER TABLE ducklake_metadata ENABLE TRIGGER USER")
        connection.cursor().executemany("INSERT INTO ducklake_metadata VALUES (%s, %s, %s, %s)", rows)
        connection.commit()

    assert sorted(lake.sql("SELECT * FROM ducklake_metadata"), key=str) == sorted(rows, key=str)


def test_the_migration_of_duckdb_2_is_undone_as_a_whole(lake, database_url, http):
    before = everything(lake)

    with pytest.raises(psycopg.errors.RaiseException):
        migrate(database_url)

    assert everything(lake) == before
    assert http.get(T).status_code == 200
    lake.run("INSERT INTO t VALUES (3, 'c')")
    assert_same_rows(lake)


@pytest.mark.parametrize("request_name", REQUESTS)
def test_a_server_that_meets_another_format_answers_503_and_writes_nothing(lake, http, database_url, request_name):
    method, path, body = REQUESTS[request_name]
    assert http.get(T).status_code == 200
    before = everything(lake)
    migrate(database_url, is_guarded=False, version="1.2")

    answer = http.request(method, path, json=body)

    assert answer.status_code == 503
    assert int(answer.headers["Retry-After"]) > 0
    assert "DuckLake format 1.2, and this server serves 1.0" in answer.json()["error"]["message"]
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT max(snapshot_id) FROM ducklake_snapshot").fetchone()[0] == before[0][0]
        assert connection.execute("SELECT count(*) FROM ducklake_inlined_data_tables").fetchone()[0] == before[0][2]


@pytest.mark.parametrize("request_name", [name for name in REQUESTS if name != "readiness"])
@pytest.mark.parametrize("version", ["1.1", "1.1-dev1"])
def test_a_version_that_was_changed_by_hand_is_refused(lake, http, database_url, request_name, version):
    method, path, body = REQUESTS[request_name]
    assert http.get(T).status_code == 200
    before = everything(lake)
    with psycopg.connect(database_url) as connection:
        connection.execute(format_change(version))
    answer = http.request(method, path, json=body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (503, "ServiceUnavailableException"), answer.text
    assert f"says DuckLake format {version}, but its tables lack columns" in answer.json()["error"]["message"]
    with psycopg.connect(database_url) as connection:
        connection.execute(format_change("1.0"))
    assert everything(lake) == before
    assert http.get(T).status_code == 200


def test_a_server_goes_on_once_it_understands_the_lake_again(lake, http, database_url):
    with psycopg.connect(database_url) as connection:
        connection.execute(format_change("1.2"))
    assert http.get(T).status_code == 503

    with psycopg.connect(database_url) as connection:
        connection.execute(format_change("1.0"))

    assert http.get(T).status_code == 200
    assert http.post(f"{T}/rows", json=[{"i": 3, "s": "c"}]).status_code == 200
    assert http.get("/readyz").status_code == 200
    assert_same_rows(lake)


def test_a_server_that_meets_a_later_migration_writes_nothing_and_serves_what_it_knows(lake, http, database_url):
    assert http.get(T).status_code == 200
    with psycopg.connect(database_url) as connection:
        connection.execute("INSERT INTO duckicelake_migration VALUES (9999, 'from the future')")

    answer = http.post(f"{T}/rows", json=[{"i": 3, "s": "c"}])

    assert answer.status_code == 503
    assert "A newer duckicelake has migrated the lake (migration 9999" in answer.json()["error"]["message"]
    assert http.get(T).status_code == 200
    assert http.post(NAMESPACES, json={"namespace": ["made"]}).status_code == 503


def test_duckdb_writes_a_lake_of_a_format_that_no_server_here_knows(lake, database_url):
    with psycopg.connect(database_url) as connection:
        connection.execute("INSERT INTO duckicelake_migration VALUES (9999, 'from the future')")

    lake.run("INSERT INTO t SELECT range, 'x' FROM range(20)")

    assert lake.one("SELECT count(*) FROM t") == (22,)


def test_a_transaction_that_began_before_a_migration_takes_no_snapshot_id_after_it(services, lake, database_url):
    def begin() -> None:
        with services.database.transaction() as cursor:
            migrate(database_url, is_guarded=False, version="1.2")
            begin_snapshot(cursor, schema_change=False)

    with pytest.raises(UnknownFormatError):
        begin()


@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_doctor_names_inlined_tables_with_the_names_of_another_format(services, lake, database_url, version):
    lake.run("CREATE TABLE other (i BIGINT)")
    migrate(database_url, is_guarded=False)
    with psycopg.connect(database_url) as connection:
        connection.execute(format_change(version))
        if version == "1.1":  # what an older server or client made since
            connection.execute("ALTER TABLE ducklake_inlined_data_1_1 RENAME COLUMN _ducklake_row_id TO row_id")
    plain = open_lake_database(database_url, pool_size=1)
    try:
        found = [*diagnose(plain), *examine_tables(services.database)[0]]
    finally:
        plain.close()

    named = [finding for finding in found if "aren't called as in DuckLake" in finding.detail]
    assert {finding.detail.split(":")[0] for finding in named} == (
        {"main.t", "main.other"} if version == "1.0" else {"main.t"}
    )
    assert not [finding for finding in found if "has the columns" in finding.detail]
    with psycopg.connect(database_url) as connection:
        for finding in named:
            connection.execute(finding.advice.split(": ", 1)[1])
    if version == "1.0":
        assert_same_rows(lake)


def test_a_container_of_cumulative_vectors_is_read_at_every_version_and_named_by_doctor(services, lake, database_url):
    lake.run(
        "CREATE TABLE deep (i BIGINT)",
        "INSERT INTO deep SELECT range FROM range(100)",
        "DELETE FROM deep WHERE i < 20",
        "DELETE FROM deep WHERE i >= 80",
    )
    first, second = lake.newest() - 1, lake.newest()
    early, late = set(range(20)), set(range(20)) | set(range(80, 100))
    blobs = [write_vector(sorted(early)), write_vector(sorted(late))]
    footer = orjson.dumps(
        {
            "blobs": [
                {
                    "type": "deletion-vector-v1",
                    "fields": [],
                    "snapshot-id": -1,
                    "sequence-number": -1,
                    "offset": 4 if index == 0 else 4 + len(blobs[0]),
                    "length": len(blob),
                    "properties": {"cardinality": str(count), "ducklake-snapshot-id": str(snapshot)},
                }
                for index, (blob, count, snapshot) in enumerate(zip(blobs, (20, 40), (first, second), strict=True))
            ],
            "properties": {},
        }
    )
    trailer = b"PFA1" + footer + len(footer).to_bytes(4, "little") + bytes(4) + b"PFA1"
    container = b"PFA1" + b"".join(blobs) + trailer
    path = f"{services.policy.data_path}/container-delete.puffin"
    services.store.write(path, container)
    with psycopg.connect(database_url) as connection:
        connection.execute(
            "UPDATE ducklake_delete_file SET path = %s, path_is_relative = false, format = 'puffin', "
            "file_size_bytes = %s, footer_size = %s WHERE end_snapshot IS NULL",
            (path, len(container), len(trailer)),
        )

    rows = lake.static("deep").scan().to_arrow()["i"].to_pylist()

    assert sorted(rows) == list(range(20, 80))
    (finding,) = [each for each in examine_tables(services.database)[0] if "Puffin container" in each.detail]
    assert finding.detail.startswith("main.deep: ")
