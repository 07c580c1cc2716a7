"""Tables that an older release served: the first load replaces what Iceberg clients misread."""

import duckdb
import psycopg
import pytest
from pyiceberg.table import StaticTable

from duckicelake.catalog.context.services import Services
from tests.support.client import Client, Json, data_files, delete, local, new_client
from tests.support.lakes import Row, iceberg_rows
from tests.support.seams import fresh

MISREAD = "COPY (SELECT range AS b, range * 100 AS a FROM range(6)) TO '{}' (FIELD_IDS {{b: 1, a: 2}})"
FIELD = {"id": 1, "name": "a", "type": "long", "required": False}
SCHEMA: Json = {"type": "struct", "fields": [FIELD, {**FIELD, "id": 2, "name": "b"}]}
SERVED_AS_IT_IS = """
UPDATE duckicelake_file f SET path = d.path, file_size_in_bytes = d.file_size_bytes
FROM ducklake_data_file d WHERE d.data_file_id = f.ducklake_id AND d.mapping_id IS NOT NULL AND NOT d.path_is_relative
"""


def forget(url: str, *statements: str, examined: bool = False) -> None:
    """Make the lake what an older release left: rows as these statements say, no file written, nothing examined.

    examined: the tables are still served as they were then.
    """
    with psycopg.connect(url) as connection:
        for statement in statements:
            connection.execute(statement.encode())
        connection.execute("DELETE FROM duckicelake_artifact")
        connection.execute("UPDATE duckicelake_table SET version = version + 1")
        if not examined:
            connection.execute("INSERT INTO duckicelake_unexamined SELECT table_id FROM duckicelake_table")


def rows(answer: Json) -> list[Row]:
    return iceberg_rows(StaticTable.from_metadata(answer["metadata-location"]))


@pytest.mark.parametrize("version", [2, 3])
def test_misread_files_are_replaced_with_the_deletes_that_there_are(
    services: Services, ducklake: duckdb.DuckDBPyConnection, database_url: str, version: int
) -> None:
    client = new_client(services)
    client.create(schema=SCHEMA, properties={"format-version": str(version)})
    path = local(client.metadata()["location"]) / "data" / "f.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    ducklake.execute(MISREAD.format(path))
    ducklake.execute(f"CALL ducklake_add_data_files('lake', 't', '{path}', schema => 'ns')")
    ducklake.execute("INSERT INTO lake.ns.t VALUES (7, 7)")
    client.load()
    forget(database_url, SERVED_AS_IT_IS, examined=True)
    client = Client(fresh(services))
    if version == 2:
        (served,) = (each for each in data_files(client.metadata()) if each.endswith("/f.parquet"))
        client.commit(delete(client.metadata(), (served, 1)))
    ducklake.execute("DELETE FROM lake.ns.t WHERE b = 2")
    assert rows(client.load()) != sorted(ducklake.sql("FROM lake.ns.t").fetchall(), key=repr)
    forget(database_url)

    client = Client(fresh(services))
    before = client.metadata()
    current = before["current-snapshot-id"]
    expected = sorted(ducklake.sql("FROM lake.ns.t").fetchall(), key=repr)
    assert before["snapshots"][-1]["summary"]["operation"] == "replace"
    assert rows(client.load()) == expected
    assert str(path) not in str(data_files(before))
    ducklake.execute("DELETE FROM lake.ns.t WHERE b = 3")
    ducklake.execute("INSERT INTO lake.ns.t VALUES (8, 8)")
    assert rows(Client(fresh(services)).load()) == sorted(ducklake.sql("FROM lake.ns.t").fetchall(), key=repr)
    assert current in [snapshot["snapshot-id"] for snapshot in client.metadata()["snapshots"]]


def test_requirements_that_files_do_not_prove_are_taken_back(
    services: Services, ducklake: duckdb.DuckDBPyConnection, database_url: str
) -> None:
    client = new_client(services)
    ducklake.execute("CREATE TABLE lake.ns.t (id BIGINT NOT NULL, s STRUCT(x BIGINT) NOT NULL)")
    ducklake.execute("INSERT INTO lake.ns.t VALUES (1, NULL), (2, {'x': 3})")
    snapshots = client.metadata()["snapshots"]
    forget(
        database_url,
        """UPDATE duckicelake_table SET metadata = replace(replace(metadata::text,
        '"required":false', '"required":true'), '"required": false', '"required":true')::json""",
    )
    found = Client(fresh(services)).metadata()
    schema = next(each for each in found["schemas"] if each["schema-id"] == found["current-schema-id"])
    assert [field["required"] for field in schema["fields"]] == [True, False]
    assert len(found["snapshots"]) == len(snapshots)


def test_tables_without_faults_stay_as_they_are(
    services: Services, ducklake: duckdb.DuckDBPyConnection, database_url: str
) -> None:
    client = new_client(services)
    client.create(schema=SCHEMA)
    ducklake.execute("INSERT INTO lake.ns.t SELECT range, range FROM range(20)")
    before = client.metadata()
    forget(database_url)
    after = Client(fresh(services)).metadata()
    assert after["snapshots"][0]["snapshot-id"] == before["snapshots"][0]["snapshot-id"]
    assert (len(after["snapshots"]), len(after["schemas"])) == (1, 1)
    with psycopg.connect(database_url) as connection:
        assert connection.execute("SELECT count(*) FROM duckicelake_unexamined").fetchone() == (0,)
