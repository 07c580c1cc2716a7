"""Rows deleted and replaced by their keys, wherever they are: inlined, in DuckDB's files and in those of clients."""

import json
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.deletes import DeleteAnswer, DeleteRequest, delete_rows
from duckicelake.catalog.rows.inserts import PostedRows, RowsAnswer, append_rows
from duckicelake.catalog.rows.upserts import upsert_rows
from duckicelake.errors import InvalidRequestError, TxnAlreadyAppliedError
from duckicelake.lake.txn import TxnId
from duckicelake.rows.bodies import ARROW, JSON, JSON_LINES
from tests.support.client import NS, new_client, set_ref
from tests.support.lakes import Lake, iceberg_rows
from tests.support.seams import superseded

SETUPS = {
    "plain": "",
    "identity": "ALTER TABLE lake.t SET PARTITIONED BY (name)",
    "bucket": "ALTER TABLE lake.t SET PARTITIONED BY (bucket(3, id))",
}


@pytest.fixture(params=[2, 3])
def lake(request: pytest.FixtureRequest, services: Services, ducklake: duckdb.DuckDBPyConnection) -> Lake:
    ducklake.execute("CREATE TABLE lake.t (id BIGINT NOT NULL, name VARCHAR)")
    lake = Lake(services, ducklake)
    lake.upgrade(request.param)
    return lake


@pytest.fixture
def nulls(services: Services, ducklake: duckdb.DuckDBPyConnection) -> Lake:
    """A row that has nothing but nulls, inlined and in a file."""
    ducklake.execute("CREATE TABLE lake.t (id BIGINT, name VARCHAR DEFAULT 'there', x DOUBLE, l BIGINT[])")
    lake = Lake(services, ducklake)
    lake.run("INSERT INTO lake.t VALUES (NULL, NULL, NULL, NULL)", "CALL ducklake_flush_inlined_data('lake')")
    lake.run("INSERT INTO lake.t VALUES (NULL, NULL, NULL, NULL), (1, 'there', 0.0, NULL)")
    return lake


def posted(*rows: tuple[int, str | None], **more: Any) -> PostedRows:
    body = json.dumps([{"id": number, "name": name} for number, name in rows]).encode()
    return PostedRows(("main",), "t", body, "application/json", **more)


def delete(lake: Lake, *keys: dict[str, Any], by: tuple[str, ...] = ("id",)) -> int | None:
    body = json.dumps({"keys": keys}).encode()
    return delete_rows(lake.services, DeleteRequest(("main",), "t", body, by)).snapshot_id


def assert_rows(lake: Lake, *rows: tuple[int, str | None]) -> None:
    assert lake.duck_rows() == sorted(rows, key=repr)
    assert iceberg_rows(lake.static()) == sorted(rows, key=repr)


@pytest.mark.parametrize("setup", SETUPS)
def test_keys_are_deleted_and_replaced_inlined_and_in_files(lake: Lake, setup: str) -> None:
    if SETUPS[setup]:
        lake.run(SETUPS[setup])
    append_rows(lake.services, posted(*((n, "file") for n in range(20))))
    append_rows(lake.services, posted((20, "row"), (21, "row")))
    lake.run("INSERT INTO lake.t VALUES (22, 'duck'), (23, NULL)")
    assert delete(lake, {"id": 3}, {"id": 20}, {"id": 99}) == lake.newest()
    before = [*((n, "file") for n in range(20) if n != 3), (21, "row"), (22, "duck"), (23, None)]
    assert_rows(lake, *before)
    answer = upsert_rows(lake.services, posted((5, "new"), (21, "new"), (50, "new")), ("id",))
    assert answer == RowsAnswer(lake.newest(), 3, answer.first_row_id)
    replaced = [row for row in before if row[0] not in (5, 21)]
    assert_rows(lake, *replaced, (5, "new"), (21, "new"), (50, "new"))
    lake.run("UPDATE lake.t SET name = 'duck' WHERE id = 50", "CALL ducklake_flush_inlined_data('lake')")
    upsert_rows(lake.services, posted(*((n, "all") for n in range(40, 60))), ("id",))
    assert delete(lake, {"name": "file"}, by=("name",)) is not None
    lake.run("CHECKPOINT lake")
    assert_rows(lake, (22, "duck"), (23, None), (5, "new"), (21, "new"), *((n, "all") for n in range(40, 60)))


def test_upsert_into_an_empty_table_inserts(lake: Lake) -> None:
    assert delete(lake, {"id": 1}) is None
    assert upsert_rows(lake.services, posted((1, "a")), ("id",)).rows == 1
    assert_rows(lake, (1, "a"))


def test_main_keeps_its_retention(services: Services) -> None:
    client = new_client(services)
    client.create()
    head = client.append((1, "a"))["metadata"]["current-snapshot-id"]
    limits = {"min_snapshots_to_keep": 7, "max_snapshot_age_ms": 1 << 50}
    client.commit({"requirements": [], "updates": [set_ref("main", head, **limits)]})
    before = client.metadata()["refs"]["main"]
    delete_rows(services, DeleteRequest(NS, "t", b'{"keys": [{"id": 1}]}', ("id",)))
    after = client.metadata()["refs"]["main"]
    assert after["snapshot-id"] != head
    assert after == {**before, "snapshot-id": after["snapshot-id"]}


def test_upsert_while_another_table_is_made_is_computed_again_once(lake: Lake) -> None:
    lake.run("INSERT INTO lake.t VALUES (1, 'a'), (2, 'b')")
    server = superseded(lake.services, lambda: lake.run("CREATE TABLE lake.other (i INTEGER)"))
    upsert_rows(server, posted((1, "A")), ("id",))
    assert_rows(lake, (1, "A"), (2, "b"))


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE lake.other (id BIGINT)",
        "ALTER TABLE lake.t ADD COLUMN more VARCHAR DEFAULT 'as well'",
        "CALL lake.set_option('data_inlining_row_limit', 1, table_name => 't')",
        "CALL ducklake_flush_inlined_data('lake')",
    ],
)
def test_upsert_is_computed_anew_if_its_rows_were_prepared_for_another_table(lake: Lake, change: str) -> None:
    append_rows(lake.services, posted((1, "old"), (2, "old")))
    write, times = lake.services.commits.write, [0]

    def late(*arguments: Any) -> Any:
        times[0] += 1
        if times[0] == 1:
            lake.run(change)
        return write(*arguments)

    lake.services.commits.write = late  # type: ignore[method-assign,assignment]
    upsert_rows(lake.services, posted((2, "new"), (3, "new")), ("id",))
    assert times[0] <= 3
    assert [row[:2] for row in lake.duck_rows()] == [(1, "old"), (2, "new"), (3, "new")]
    assert iceberg_rows(lake.static()) == lake.duck_rows()


def test_upsert_that_is_refused_deletes_nothing(lake: Lake) -> None:
    append_rows(lake.services, posted((1, "a"), txn=TxnId("p", 4)))
    with pytest.raises(TxnAlreadyAppliedError):
        upsert_rows(lake.services, posted((1, "b"), txn=TxnId("p", 4)), ("id",))
    with pytest.raises(InvalidRequestError, match="Rows 0 and 1 have the same key"):
        upsert_rows(lake.services, posted((1, "b"), (1, "c")), ("id",))
    with pytest.raises(InvalidRequestError, match="identifier fields"):
        upsert_rows(lake.services, posted((1, "b")))
    with pytest.raises(InvalidRequestError, match="'nope'"):
        delete(lake, {"nope": 1}, by=("nope",))
    assert_rows(lake, (1, "a"))


NO_KEYS = [
    ("[{}]", "id", "value for each of id.* row 0, column id"),
    ('[{"id": 1}, {"id": null}]', "id", "row 1, column id: null"),
    ('[{"id": 1}]', "id,name", "row 0, column name"),
    ('[{"id": 1, "name": "x"}]', "id", "row 0: 'name'"),
    ('[{"id": 2, "id": 1}]', "id", "'id' comes twice"),
    ('[{"id": 1.0}]', "id", "row 0, column id: .*whole number"),
    ('[{"id": 1}], "more": []', "id", "The body is"),
    ('{"id": 1}', "id", "The body is"),
    ("[1]", "id", "row 0: 1"),
    ("[" * 300 + "]" * 300, "id", "row 0: .* write an object"),
    ("[" * 90_000 + "]" * 90_000, "id", "isn't JSON"),
    ('[{"x": 0.0}]', "x", "x is a double"),
    ('[{"l": [1]}]', "l", "by column 'l'"),
    ("[]", "no", "by column 'no'"),
]


def test_keys_that_do_not_distinguish_rows_delete_nothing(nulls: Lake) -> None:
    before, rows = nulls.newest(), nulls.duck_rows()
    for keys, by, message in NO_KEYS:
        body = b'{"keys": %s}' % keys.encode()
        with pytest.raises(InvalidRequestError, match=message):
            delete_rows(nulls.services, DeleteRequest(("main",), "t", body, tuple(by.split(","))))
    assert (nulls.newest(), nulls.duck_rows()) == (before, rows)


def arrow(values: dict[str, list[Any]]) -> bytes:
    batch, sink = pa.record_batch(values), pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write(batch)
    body: bytes = sink.getvalue().to_pybytes()
    return body


WITHOUT_KEYS = [
    (b'[{"Idd": 1, "name": "x"}]', JSON, "id", "row 0, column id"),
    (b'{"id": null, "name": "x"}', JSON_LINES[0], "id", "row 0, column id: null"),
    (b'[{"id": 1}]', JSON, "name", "row 0, column name: it isn't there"),
    (arrow({"id": [1, None]}), ARROW, "id", "row 1, column id: null"),
    (arrow({"id": [1]}), ARROW, "id,name", "column name: it isn't there"),
    (arrow({"x": [0.0]}), ARROW, "x", "x is a double"),
]


def test_row_without_a_value_in_a_key_column_replaces_nothing(nulls: Lake) -> None:
    before, rows = nulls.newest(), nulls.duck_rows()
    for body, kind, by, message in WITHOUT_KEYS:
        request = PostedRows(("main",), "t", body, kind, on_unknown="ignore")
        with pytest.raises(InvalidRequestError, match=message):
            upsert_rows(nulls.services, request, tuple(by.split(",")))
    assert (nulls.newest(), nulls.duck_rows()) == (before, rows)


def test_keys_lose_no_digit_and_a_delete_of_no_row_makes_no_snapshot(
    services: Services, ducklake: duckdb.DuckDBPyConnection
) -> None:
    lake = Lake(services, ducklake)
    lake.run("CREATE TABLE lake.t (c DECIMAL(38, 2), name VARCHAR)")
    lake.run("INSERT INTO lake.t VALUES (12345678901234567.89, 'this')", "CALL ducklake_flush_inlined_data('lake')")
    lake.run("INSERT INTO lake.t VALUES (12345678901234567.89, 'this'), (12345678901234568.00, 'other')")
    body = b'{"keys": [{"c": 12345678901234567.89}, {"c": 0.5}]}'
    request = DeleteRequest(("main",), "t", body, ("c",))
    assert delete_rows(services, request) == DeleteAnswer(lake.newest(), 2)
    assert lake.duck_rows() == iceberg_rows(lake.static()) == [(Decimal("12345678901234568.00"), "other")]
    before, listed = lake.newest(), lake.metadata().snapshots
    assert delete_rows(services, request) == DeleteAnswer(None, 2)
    assert (lake.newest(), lake.metadata().snapshots) == (before, listed)


def test_keys_are_of_all_identifier_fields_and_none_of_them_in_a_struct(
    services: Services, ducklake: duckdb.DuckDBPyConnection
) -> None:
    inner = {"type": "struct", "fields": [{"id": 3, "name": "x", "type": "long", "required": True}]}
    fields = [
        {"id": 1, "name": "id", "type": "long", "required": True},
        {"id": 2, "name": "s", "type": inner, "required": True},
    ]
    schema = {"type": "struct", "schema-id": 0, "fields": fields}
    client = new_client(services)
    client.create("u", schema={**schema, "identifier-field-ids": [1]})
    rows = b'[{"id": 1, "s": {"x": 1}}, {"id": 2, "s": {"x": 1}}]'
    append_rows(services, PostedRows(("ns",), "u", rows, JSON))
    lake = Lake(services, ducklake)
    request = DeleteRequest(("ns",), "u", b'{"keys": [{"id": 1}]}')
    assert delete_rows(services, request) == DeleteAnswer(lake.newest(), 1)
    upsert_rows(services, PostedRows(("ns",), "u", b'[{"id": 2, "s": {"x": 3}}]', JSON))
    assert iceberg_rows(lake.static("u", "ns")) == lake.duck_rows("ns.u") == [(2, (("x", 3),))]
    client.create("t", schema={**schema, "identifier-field-ids": [1, 3]})
    with pytest.raises(InvalidRequestError, match=r"by column 's\.x'"):
        delete_rows(services, DeleteRequest(("ns",), "t", b'{"keys": [{"id": 1}]}'))
