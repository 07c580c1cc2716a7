"""Small appends of Iceberg clients as inlined rows: what DuckDB reads, and what the client finds of its commit."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from duckicelake.catalog import doctor
from duckicelake.catalog.context.idempotency import Once
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.tables import commit_transaction
from duckicelake.errors import CommitFailedError, InvalidRequestError
from duckicelake.iceberg.manifest.entry import DataFile, FileContent
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.iceberg.rest import CommitTransactionRequest
from tests.catalog.commit.test_append_rebase import at_once
from tests.support.client import Client, Draft, Json, data_files, local, new_client, remove, set_properties, set_ref
from tests.support.equality_cases import TYPES, array
from tests.support.killed_process import Work, mortal
from tests.support.lakes import Lake, assert_same_rows, iceberg_rows
from tests.support.seams import fresh

Row = tuple[int, str | None]
ABSORBING = {"ducklake.absorb-rows": "5"}


@pytest.fixture(params=["2", "3"])
def lake(request: pytest.FixtureRequest, services: Services, ducklake: duckdb.DuckDBPyConnection) -> Lake:
    """A table that absorbs up to five rows."""
    new_client(services).create(properties={"format-version": request.param, **ABSORBING})
    return Lake(services, ducklake)


def drafted(metadata: Json, *rows: Row, **more: Any) -> Json:
    """An append as engines send it."""
    draft = Draft(metadata, format_version=metadata["format-version"], **more)
    summary = {"operation": draft.operation, "added-records": str(len(rows)), "engine": "a"}
    return draft.body([draft.manifest([draft.data_file(rows)]), *draft.parent_manifests], summary=summary)


def append(lake: Lake, *rows: Row) -> Json:
    client = Client(lake.services)
    answer: Json = client.commit(drafted(client.metadata(), *rows))["metadata"]
    return answer


def rows_of(first: int, count: int) -> list[Row]:
    return [(number, f"it's {number}" if number % 3 else None) for number in range(first, first + count)]


def inlined(lake: Lake, table: str = "t") -> int:
    """How many rows DuckLake keeps in Postgres."""
    tables = lake.sql(
        "SELECT i.table_name FROM ducklake_inlined_data_tables i JOIN ducklake_table t USING (table_id) "
        "WHERE t.table_name = %s AND t.end_snapshot IS NULL",
        table,
    )
    return sum(int(lake.sql(f"SELECT count(*) FROM {name} WHERE end_snapshot IS NULL")[0][0]) for (name,) in tables)


def lake_files(lake: Lake) -> int:
    ((count,),) = lake.sql("SELECT count(*) FROM ducklake_data_file WHERE end_snapshot IS NULL")
    return int(count)


def assert_rows(lake: Lake, *rows: Row) -> None:
    assert lake.duck_rows("ns.t") == sorted(rows, key=repr)
    assert_same_rows(lake, "t", "ns")
    findings, files = doctor.examine_tables(lake.services.database)
    assert findings + [each for each in doctor.examine_files(lake.services.store, files) if each is not None] == []


def test_small_append_is_inlined_and_the_client_finds_its_snapshot(lake: Lake) -> None:
    client = Client(lake.services)
    request = drafted(client.metadata(), *rows_of(0, 3))
    snapshot = request["updates"][0]["snapshot"]
    answer = client.commit(request)["metadata"]
    assert answer["current-snapshot-id"] == snapshot["snapshot-id"]
    (made,) = answer["snapshots"]
    assert made["summary"].items() >= snapshot["summary"].items()
    assert client.metadata() == answer
    assert (inlined(lake), lake_files(lake)) == (3, 0)
    assert_rows(lake, *rows_of(0, 3))
    with pytest.raises((CommitFailedError, InvalidRequestError)):
        client.commit(request)
    append(lake, *rows_of(10, 5))
    append(lake, *rows_of(20, 6))
    assert (inlined(lake), lake_files(lake)) == (8, 1)
    lake.run("INSERT INTO lake.ns.t VALUES (30, 'duck')")
    append(lake, (31, "more"))
    assert inlined(lake) == 10
    assert_rows(lake, *rows_of(0, 3), *rows_of(10, 5), *rows_of(20, 6), (30, "duck"), (31, "more"))
    ids = lake.duck.sql("SELECT rowid, id FROM lake.ns.t ORDER BY rowid").fetchall()
    assert [id_ for _, id_ in ids] == [0, 1, 2, *range(10, 15), *range(20, 26), 30, 31]
    assert [row_id for row_id, _ in ids] == list(range(16))
    tokens = [
        row[0] for row in lake.sql("SELECT changes_made FROM ducklake_snapshot_changes ORDER BY snapshot_id DESC")
    ]
    assert tokens[0].startswith("inlined_insert:")
    for sql in ("id > 13", "id = 31", "name IS NULL", "name = 'it''s 11'"):
        ((count,),) = lake.duck.execute(f"SELECT count(*) FROM lake.ns.t WHERE {sql}").fetchall()
        assert count == len(lake.duck.sql("FROM lake.ns.t").filter(sql).fetchall()) > 0


def test_duckdb_goes_on_with_absorbed_rows_as_with_its_own(lake: Lake) -> None:
    append(lake, *rows_of(0, 5))
    append(lake, *rows_of(5, 5))
    before = lake.newest()
    lake.run("DELETE FROM lake.ns.t WHERE id = 1", "UPDATE lake.ns.t SET name = 'new' WHERE id IN (2, 7)")
    now: list[Row] = [(id_, "new" if id_ in (2, 7) else name) for id_, name in rows_of(0, 10) if id_ != 1]
    assert_rows(lake, *now)
    lake.run("CALL ducklake_flush_inlined_data('lake')")
    assert (inlined(lake), lake_files(lake)) == (0, 1)
    assert_rows(lake, *now)
    append(lake, *rows_of(20, 2))
    lake.run("ALTER TABLE lake.ns.t ADD COLUMN more BIGINT", "CHECKPOINT lake")
    assert lake.duck_rows("ns.t", at=before) == sorted(rows_of(0, 10), key=repr)
    assert iceberg_rows(lake.static("t", "ns")) == lake.duck_rows("ns.t")


def test_iceberg_clients_go_on_with_absorbed_files_as_with_any(lake: Lake) -> None:
    client = Client(lake.services)
    first = append(lake, *rows_of(0, 5))["current-snapshot-id"]
    metadata = append(lake, *rows_of(5, 5))
    file = data_files(metadata)[0]
    draft = Draft(metadata, operation="delete")
    if metadata["format-version"] == 2:
        client.commit(
            draft.body([draft.manifest([draft.delete_file([(file, 0), (file, 4)])]), *draft.parent_manifests])
        )
        assert inlined(lake) == 8
        assert_rows(lake, *rows_of(1, 3), *rows_of(5, 5))
    second = client.metadata()["current-snapshot-id"]
    client.commit({"requirements": [], "updates": [set_ref("main", first)]})
    assert inlined(lake) == (0 if metadata["format-version"] == 2 else 5)
    assert_rows(lake, *rows_of(0, 5))
    client.commit({"requirements": [], "updates": [set_ref("main", second)]})
    kept = rows_of(1, 3) if metadata["format-version"] == 2 else rows_of(0, 5)
    assert_rows(lake, *kept, *rows_of(5, 5))
    if metadata["format-version"] == 2:
        client.commit(remove(client.metadata(), file))
        assert_rows(lake, *rows_of(5, 5))


def test_table_that_becomes_version_3_keeps_the_row_ids_of_absorbed_rows(lake: Lake) -> None:
    append(lake, *rows_of(0, 5))
    append(lake, *rows_of(10, 6))
    upgrade = {"action": "upgrade-format-version", "format-version": 3}
    Client(lake.services).commit({"requirements": [], "updates": [upgrade]})
    append(lake, *rows_of(20, 1))
    assert_rows(lake, *rows_of(0, 5), *rows_of(10, 6), *rows_of(20, 1))
    ids = [row[0] for row in lake.duck.sql("SELECT rowid FROM lake.ns.t ORDER BY id").fetchall()]
    assert ids == list(range(12))


def file_of(table: pa.Table) -> Callable[[Draft], DataFile]:
    def write(draft: Draft) -> DataFile:
        path = f"{draft.metadata['location']}/data/{uuid4()}.parquet"
        local(path).parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, local(path))
        size = local(path).stat().st_size
        return DataFile(FileContent.DATA, path, "PARQUET", (), table.num_rows, size)

    return write


def fields(*names: str, ids: Sequence[int | None] = (1, 2)) -> pa.Schema:
    return pa.schema(
        pa.field(name, pa.int64() if name == "id" else pa.string(), metadata=id_ and {"PARQUET:field_id": str(id_)})
        for name, id_ in zip(names, ids, strict=True)
    )


OTHERS = {
    "too many rows": pa.table([[1] * 6, ["x"] * 6], fields("id", "name")),
    "a column less": pa.table([[1]], fields("id", ids=[1])),
    "a column more": pa.table([[1], ["x"], ["y"]], fields("id", "name", "more", ids=[1, 2, 9])),
    "a text that is none": pa.table(
        [[1], pa.Array.from_buffers(pa.string(), 1, pa.array([b"\xff"], pa.binary()).buffers())], fields("id", "name")
    ),
    "no field ids": pa.table([[1], ["x"]], fields("id", "name", ids=[None, None])),
}


@pytest.mark.parametrize("what", OTHERS)
def test_file_that_is_not_as_the_table_is_is_committed_as_it_is(lake: Lake, what: str) -> None:
    client = Client(lake.services)
    draft = Draft(client.metadata(), format_version=client.metadata()["format-version"])
    client.commit(draft.body([draft.manifest([file_of(OTHERS[what])(draft)])]))
    assert (inlined(lake), lake_files(lake)) == (0, 1)
    ((count,),) = lake.duck.sql("SELECT count(*) FROM lake.ns.t").fetchall()
    assert count == OTHERS[what].num_rows


def test_other_names_in_the_file_are_those_of_the_fields(lake: Lake) -> None:
    client = Client(lake.services)
    draft = Draft(client.metadata(), format_version=client.metadata()["format-version"])
    table = pa.table([["x"], [1]], fields("was", "id", ids=[2, 1]))
    client.commit(draft.body([draft.manifest([file_of(table)(draft)])]))
    assert inlined(lake) == 1
    assert_rows(lake, (1, "x"))


def test_commits_that_do_more_or_elsewhere_are_not_absorbed(lake: Lake) -> None:
    client = Client(lake.services)
    metadata = append(lake, (1, "one"))
    client.commit({"requirements": [], "updates": [set_ref("b", metadata["current-snapshot-id"])]})
    client.commit(drafted(client.metadata(), (2, "branch"), branch="b"))
    client.commit(drafted(client.metadata(), (3, "staged"), branch=None))
    client.commit(drafted(client.metadata(), (4, "overwrite"), operation="overwrite"))
    more = drafted(client.metadata(), (5, "and more"))
    more["updates"].append({"action": "set-properties", "updates": {"a": "b"}})
    client.commit(more)
    lost = drafted(client.metadata(), (6, "lost"))
    assert (inlined(lake), lake_files(lake)) == (1, 2)
    assert_rows(lake, (1, "one"), (4, "overwrite"), (5, "and more"))
    client.commit(set_properties(**{"ducklake.absorb-rows": "0"}))
    append(lake, (7, "off"))
    assert (inlined(lake), lake_files(lake)) == (1, 3)
    with pytest.raises(CommitFailedError):
        client.commit(lost)


@pytest.mark.parametrize("damaged", [b"", b"PAR1 no Parquet PAR1", b"PAR1" * 200])
def test_file_that_the_server_can_not_read_is_registered_as_ever(lake: Lake, damaged: bytes) -> None:
    client = Client(lake.services)
    request = drafted(client.metadata(), (1, "one"))
    (path,) = local(client.metadata()["location"]).glob("data/*.parquet")
    content = path.read_bytes()
    path.write_bytes(damaged)
    client.commit(request)
    assert (inlined(lake), lake_files(lake)) == (0, 1)
    path.write_bytes(content)
    assert_rows(lake, (1, "one"))


def test_property_that_is_no_number_is_refused(lake: Lake) -> None:
    client = Client(lake.services)
    for text in ("", "-1", "many", "1e3", "1000000", "٣"):
        with pytest.raises(InvalidRequestError, match=r"ducklake\.absorb-rows is .*: write a number of rows"):
            client.commit(set_properties(**{"ducklake.absorb-rows": text}))
    with pytest.raises(InvalidRequestError, match=r"ducklake\.absorb-rows"):
        client.create("u", properties={"ducklake.absorb-rows": "x"})


def test_appends_put_on_top_of_each_other_are_absorbed_each(
    services: Services, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client, lake = new_client(services), Lake(services, ducklake)
    rebasing = {"ducklake.append-rebase": "true", "format-version": "3", **ABSORBING}
    metadata = client.create(properties=rebasing)["metadata"]
    bodies = [drafted(metadata, *rows_of(number * 10, 2)) for number in range(6)]
    assert not [each for each in at_once(bodies, [client] * 6) if isinstance(each, Exception)]
    lake.run("INSERT INTO lake.ns.t VALUES (100, 'duck')")
    client.commit(drafted(metadata, *rows_of(110, 1)))
    assert (inlined(lake), lake_files(lake)) == (14, 0)
    assert_rows(lake, *(row for number in range(6) for row in rows_of(number * 10, 2)), (100, "duck"), *rows_of(110, 1))
    assert len(ducklake.sql("SELECT DISTINCT rowid FROM lake.ns.t").fetchall()) == 14


def test_insert_of_duckdbs_meanwhile_is_a_conflict_as_ever_and_nothing_is_there_twice(lake: Lake) -> None:
    client = Client(lake.services)
    append(lake, (1, "one"))
    late = drafted(client.metadata(), (2, "late"))
    write = lake.services.commits.write

    def superseded(*arguments: Any) -> Any:
        lake.services.commits.write = write  # type: ignore[method-assign]
        lake.run("INSERT INTO lake.ns.t VALUES (3, 'duck')")
        return write(*arguments)

    lake.services.commits.write = superseded  # type: ignore[method-assign,assignment]
    with pytest.raises(CommitFailedError):
        client.commit(late)
    append(lake, (2, "again"))
    assert_rows(lake, (1, "one"), (3, "duck"), (2, "again"))


def test_commit_sent_again_with_its_key_gets_its_answer_and_is_there_once(lake: Lake) -> None:
    client = Client(replace(lake.services, once=Once(UUID(int=7), b"it")))
    request = drafted(client.metadata(), (1, "one"))
    first, again = (client.commit(request)["metadata"] for _ in range(2))
    assert (first["current-snapshot-id"], inlined(lake)) == (again["current-snapshot-id"], 1)
    assert_rows(lake, (1, "one"))


@pytest.mark.parametrize("lake", ["2", pytest.param("3", marks=pytest.mark.crash)], indirect=True)
def test_server_killed_at_any_step_has_absorbed_all_rows_or_none(lake: Lake) -> None:
    client, expected, step, answered = Client(lake.services), list[Row](), 0, False
    with mortal(lake.services) as server:
        while not answered:
            client = Client(fresh(lake.services))
            rows = rows_of(step * 10, 2)
            ending = server.serve(Work("commit", steps=step, body=drafted(client.metadata(), *rows)))
            found = [row for row in lake.duck_rows("ns.t") if row in rows]
            assert len(found) in (0, 2)
            assert found or not ending.answered
            expected += rows if found else []
            answered, step = ending.answered, step + 1
    assert inlined(lake) == len(expected)
    assert_rows(replace(lake, services=fresh(lake.services)), *expected)
    assert step > 2


NESTED = pa.struct(
    [
        pa.field("s", pa.string(), metadata={"PARQUET:field_id": "51"}),
        pa.field(
            "l",
            pa.list_(pa.field("element", pa.int64(), metadata={"PARQUET:field_id": "53"})),
            metadata={"PARQUET:field_id": "52"},
        ),
    ]
)
STRUCTS = [{"s": 'it\'s "a", b\\', "l": [1, None]}, {"s": None, "l": []}, None, {"s": "null", "l": None}]


def every_type(version: str) -> tuple[Json, pa.Table]:
    """A schema with a column of each type and nested ones, and rows of theirs."""
    kinds = {f"c{number}": kind for number, kind in enumerate(TYPES) if version == "3" or kind != "timestamp_ns"}
    count = max(len(values) for _, values in TYPES.values()) + 1
    columns, schema = [], []
    for number, (name, kind) in enumerate(kinds.items(), 1):
        values = [*TYPES[kind][1], *[None] * count][:count]
        columns.append(array(kind, values))
        schema.append(pa.field(name, TYPES[kind][0], metadata={"PARQUET:field_id": str(number)}))
    columns.append(pa.array([*STRUCTS, *[None] * count][:count], NESTED))
    schema.append(pa.field("n", NESTED, metadata={"PARQUET:field_id": "50"}))
    fields: list[Json] = [
        {"id": number, "name": name, "type": kind, "required": False}
        for number, (name, kind) in enumerate(kinds.items(), 1)
    ]
    parts = [
        {"id": 51, "name": "s", "type": "string", "required": False},
        {
            "id": 52,
            "name": "l",
            "required": False,
            "type": {"type": "list", "element-id": 53, "element": "long", "element-required": False},
        },
    ]
    fields.append({"id": 50, "name": "n", "type": {"type": "struct", "fields": parts}, "required": False})
    table = pa.Table.from_arrays(columns, schema=pa.schema(schema))
    return {"type": "struct", "schema-id": 0, "fields": fields}, table


def renumbered(table: pa.Table, schema: Json) -> pa.Table:
    """The table with the field ids that the server gave: those of fields in structs come after all others."""
    nested = schema["fields"][-1]
    text, items = nested["type"]["fields"]
    element = pa.field("element", pa.int64(), metadata=field_id(items["type"]["element-id"]))
    kind = pa.struct(
        [
            pa.field("s", pa.string(), metadata=field_id(text["id"])),
            pa.field("l", pa.list_(element), metadata=field_id(items["id"])),
        ]
    )
    last = pa.field("n", kind, metadata=field_id(nested["id"]))
    fields = [*(table.schema.field(index) for index in range(table.num_columns - 1)), last]
    return pa.Table.from_arrays([*table.columns[:-1], pa.array(table["n"].to_pylist(), kind)], schema=pa.schema(fields))


def field_id(number: int) -> dict[bytes, bytes]:
    return {b"PARQUET:field_id": str(number).encode()}


def texts(lake: Lake, table: str) -> list[Any]:
    """Postgres has one NaN only."""
    rows = lake.duck.sql(f"SELECT COLUMNS(*)::VARCHAR FROM lake.ns.{table}").fetchall()
    return sorted((tuple("nan" if value == "-nan" else value for value in row) for row in rows), key=repr)


def zeros(rows: list[Any]) -> list[Any]:
    """DuckDB's Parquet writer takes -0.0 for 0.0 where both are in a column."""
    return sorted((tuple("0.0" if value == "-0.0" else value for value in row) for row in rows), key=repr)


@pytest.mark.parametrize("version", ["2", "3"])
def test_values_of_every_type_are_those_of_the_file(
    services: Services, ducklake: duckdb.DuckDBPyConnection, version: str
) -> None:
    client, lake = new_client(services), Lake(services, ducklake)
    schema, table = every_type(version)
    for name, most in (("t", "100"), ("u", "0")):
        properties = {"format-version": version, "ducklake.absorb-rows": most}
        metadata = client.create(name, schema=schema, properties=properties)["metadata"]
        draft = Draft(metadata, format_version=int(version))
        own = renumbered(table, metadata["schemas"][-1])
        client.commit(draft.body([draft.manifest([file_of(own)(draft)])]), name)
    assert (inlined(lake), inlined(lake, "u"), lake_files(lake)) == (table.num_rows, 0, 1)
    assert texts(lake, "t") == texts(lake, "u")
    lake.run("CALL ducklake_flush_inlined_data('lake')")
    assert inlined(lake) == 0
    assert zeros(texts(lake, "t")) == zeros(texts(lake, "u"))
    findings, files = doctor.examine_tables(services.database)
    assert findings + [each for each in doctor.examine_files(services.store, files) if each is not None] == []


def test_files_of_flushed_rows_are_scheduled_for_deletion_once_history_has_left_them(
    services: Services, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client, lake = new_client(services), Lake(services, ducklake)
    client.create(properties={"ducklake.history.hold": "0 seconds", **ABSORBING})
    paths = data_files(append(lake, *rows_of(0, 5))) + data_files(append(lake, *rows_of(5, 5)))[1:]
    lake.run("CALL ducklake_flush_inlined_data('lake')")
    (now,) = data_files(client.metadata())
    assert now not in paths
    append(lake, *rows_of(20, 6))
    client.metadata()
    scheduled = [path for (path,) in lake.sql("SELECT path FROM ducklake_files_scheduled_for_deletion")]
    assert set(paths) <= set(scheduled)
    assert_rows(lake, *rows_of(0, 10), *rows_of(20, 6))


def test_appends_to_many_tables_at_once_have_each_the_snapshot_that_it_got(
    services: Services, ducklake: duckdb.DuckDBPyConnection
) -> None:
    """On tables of version 3 sequence numbers are DuckLake's, and others may take those that were expected."""
    client, lake = new_client(services), Lake(services, ducklake)
    names = [f"t{number}" for number in range(6)]
    for name in names:
        client.create(name, properties={"format-version": "3", **ABSORBING})
    for first in (0, 10):
        bodies = [drafted(client.metadata(name), *rows_of(first, 3)) for name in names]
        with ThreadPoolExecutor(len(names)) as threads:
            list(threads.map(client.commit, bodies, names))
    assert lake_files(lake) == 0
    for name in names:
        assert lake.duck_rows(f"ns.{name}") == sorted((*rows_of(0, 3), *rows_of(10, 3)), key=repr)
        assert_same_rows(lake, name, "ns")
        for snapshot in client.metadata(name)["snapshots"]:
            assert snapshot["sequence-number"] == int(snapshot["summary"]["ducklake.snapshot-id"])


def test_transaction_over_tables_absorbs_into_each(services: Services, ducklake: duckdb.DuckDBPyConnection) -> None:
    client, lake = new_client(services), Lake(services, ducklake)
    changes = []
    for name in ("t", "u"):
        metadata = client.create(name, properties=ABSORBING)["metadata"]
        identifier = {"namespace": ["ns"], "name": name}
        changes.append({"identifier": identifier, **drafted(metadata, *rows_of(0, 3))})
    commit_transaction(services, CommitTransactionRequest.model_validate({"table-changes": changes}))
    assert (inlined(lake), inlined(lake, "u"), lake_files(lake)) == (3, 3, 0)
    for name in ("t", "u"):
        assert lake.duck_rows(f"ns.{name}") == sorted(rows_of(0, 3), key=repr)
        assert_same_rows(lake, name, "ns")


@pytest.mark.parametrize("version", ["2", "3"])
def test_where_snapshot_ids_are_ducklakes_the_clients_is_an_alias_as_ever(
    services: Services, ducklake: duckdb.DuckDBPyConnection, version: str
) -> None:
    services = replace(services, snapshot_ids="ducklake")
    client, lake = new_client(services), Lake(services, ducklake)
    client.create(properties={"format-version": version, **ABSORBING})
    for first in (0, 10, 20):
        assert append(lake, *rows_of(first, 2))["current-snapshot-id"] == lake.newest()
    lake.run("DELETE FROM lake.ns.t WHERE id = 10")
    append(lake, *rows_of(30, 1))
    assert (inlined(lake), lake_files(lake)) == (6, 0)
    assert_rows(lake, *rows_of(0, 2), *rows_of(11, 1), *rows_of(20, 2), *rows_of(30, 1))


def test_append_to_a_partitioned_table_is_not_absorbed(lake: Lake) -> None:
    """DuckDB's flush would bring rows back that were deleted from some partitions."""
    client = Client(lake.services)
    lake.run("ALTER TABLE lake.ns.t SET PARTITIONED BY (name)")
    metadata = client.metadata()
    spec = PartitionSpec.model_validate(metadata["partition-specs"][-1])
    draft = Draft(metadata, format_version=metadata["format-version"])
    files = [replace(draft.data_file([(number, name)]), partition=(name,)) for number, name in ((1, "a"), (2, None))]
    client.commit(draft.body([draft.manifest(files, spec)]))
    assert (inlined(lake), lake_files(lake)) == (0, 2)
    assert_rows(lake, (1, "a"), (2, None))
