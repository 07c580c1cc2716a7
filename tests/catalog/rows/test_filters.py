"""Rows deleted by a filter: those of which it is true by Iceberg's expressions spec, here in plain Python."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID

import duckdb
import pytest

from duckicelake.catalog.context.idempotency import Once
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.rows.deletes import DeleteAnswer, DeleteRequest, delete_rows
from duckicelake.catalog.rows.inserts import PostedRows, append_rows
from duckicelake.errors import CatalogError, InvalidRequestError, UnsupportedError
from duckicelake.rows.bodies import JSON
from tests.support.client import new_client
from tests.support.filter_cases import Filters, Json, Row, as_json, holds, lit, no
from tests.support.lakes import Lake, iceberg_rows
from tests.support.seams import Distant


def schema(columns: dict[str, str]) -> Json:
    fields = [{"id": 1, "name": "id", "type": "long", "required": True}]
    fields += [
        {"id": number, "name": name, "type": kind, "required": False}
        for number, (name, kind) in enumerate(columns.items(), 2)
    ]
    return {"type": "struct", "schema-id": 0, "fields": fields, "identifier-field-ids": [1]}


class FilteredTable:
    """A table of both sides, and the rows that it should have by their ids."""

    def __init__(self, services: Services, duck: duckdb.DuckDBPyConnection, filters: Filters) -> None:
        self.lake, self.filters = Lake(services, duck), filters
        self.rows: dict[int, Row] = {}
        self.next_id = 0
        properties = {"format-version": str(filters.version)}
        new_client(services).create("t", schema=schema(filters.columns), properties=properties)

    def post(self, count: int) -> None:
        """Inlined up to ten rows, more become a file."""
        rows = [self._row() for _ in range(count)]
        body = [{"id": row["id"], **{name: as_json(name, row[name]) for name in self.filters.columns}} for row in rows]
        append_rows(self.lake.services, PostedRows(("ns",), "t", json.dumps(body).encode(), JSON))
        self.rows |= {row["id"]: row for row in rows}

    def _row(self) -> Row:
        self.next_id += 1
        chosen = {
            name: None if self.filters.random.random() < 0.15 else self.filters.value(name)
            for name in self.filters.columns
        }
        return {"id": self.next_id, **chosen}

    def forget(self, count: int) -> None:
        """DuckDB deletes some."""
        gone = self.filters.random.sample([*self.rows], min(count, len(self.rows)))
        self.lake.run(f"DELETE FROM lake.ns.t WHERE id IN ({', '.join(map(str, gone)) or 'NULL'})")
        self.rows = {key: row for key, row in self.rows.items() if key not in gone}

    def delete(self, predicate: Json) -> DeleteAnswer:
        answer = delete_where(self.lake.services, predicate)
        self.rows = {key: row for key, row in self.rows.items() if not holds(predicate, row)}
        return answer

    def check(self, what: object) -> None:
        wanted = sorted(self.rows)
        assert sorted(self.lake.duck.sql("SELECT id FROM lake.ns.t").fetchall()) == [(each,) for each in wanted], what
        static = self.lake.static("t", "ns").scan(selected_fields=("id",)).to_arrow()
        assert sorted(static["id"].to_pylist()) == wanted, what


def delete_where(services: Services, predicate: Json, **more: Any) -> DeleteAnswer:
    body = json.dumps({"filter": predicate}).encode()
    return delete_rows(services, DeleteRequest(("ns",), "t", body, **more))


@pytest.mark.parametrize(("seed", "version"), [(1, 2), (2, 3)])
@pytest.mark.model
def test_rows_that_a_filter_leaves_are_those_of_the_specification(
    services: Services, ducklake: duckdb.DuckDBPyConnection, seed: int, version: int
) -> None:
    table = FilteredTable(services, ducklake, Filters(seed, version))
    made = 0
    for number in range(40):
        if len(table.rows) < 15:
            table.post(20)
            table.post(5)
            table.forget(4)
        before = table.rows
        predicate = table.filters.predicate()
        answer = table.delete(predicate)
        assert (answer.snapshot_id is None) == (before == table.rows), predicate
        made += answer.snapshot_id is not None
        table.check((number, predicate))
        if number % 20 == 19:
            ducklake.execute("CALL ducklake_flush_inlined_data('lake')")
            table.check("flushed")
    assert made > 10


SAME_IN_SQL: list[tuple[str, Json]] = [
    ("id >= 18 AND NOT (id = 20)", {"type": "and", "left": lit("gt-eq", "id", 18), "right": no(lit("eq", "id", 20))}),
    (
        "day < TIMESTAMP '2026-01-05' OR price IN (1.5, 3.25)",
        {
            "type": "or",
            "left": lit("lt", "day", "2026-01-05T00:00:00"),
            "right": {"type": "in", "term": "price", "values": ["1.50", 3.25]},
        },
    ),
    (
        "NOT starts_with(name, 'n1') AND key <= '00000000-0000-0000-0000-00000000000b'",
        {
            "type": "and",
            "left": lit("not-starts-with", "name", "n1"),
            "right": lit("lt-eq", "key", "00000000-0000-0000-0000-00000000000B"),
        },
    ),
    ("true", True),
]


@pytest.mark.parametrize("number", range(len(SAME_IN_SQL)))
def test_identifiers_that_a_filter_leaves_are_those_of_duckdbs_own_delete(
    services: Services, ducklake: duckdb.DuckDBPyConnection, number: int
) -> None:
    """The columns have no nulls, of which SQL's logic is another one."""
    condition, predicate = SAME_IN_SQL[number]
    lake = Lake(services, ducklake)
    lake.run("CREATE SCHEMA lake.ns")
    for table in ("t", "u"):
        lake.run(
            f"CREATE TABLE lake.ns.{table} (id BIGINT NOT NULL, day TIMESTAMP, price DECIMAL(9, 2), "
            "name VARCHAR, key UUID)"
        )
        for low, high in ((0, 15), (15, 22), (22, 25)):
            lake.run(
                f"INSERT INTO lake.ns.{table} SELECT i, TIMESTAMP '2026-01-01' + i * INTERVAL 1 DAY, i / 4, 'n' || i, "
                f"('00000000-0000-0000-0000-' || printf('%012x', i))::UUID FROM range({low}, {high}) AS r (i)"
            )
        lake.run(f"DELETE FROM lake.ns.{table} WHERE id IN (3, 17)")
    lake.run(f"DELETE FROM lake.ns.u WHERE {condition}")
    assert delete_where(services, predicate).snapshot_id == lake.newest()
    assert lake.duck_rows("ns.t") == lake.duck_rows("ns.u")
    assert iceberg_rows(lake.static("t", "ns")) == iceberg_rows(lake.static("u", "ns"))
    before = lake.newest()
    assert delete_where(services, predicate).snapshot_id is None
    assert lake.newest() == before


REFUSED: list[tuple[Json, type[CatalogError], str]] = [
    (lit("eq", "nope", 1), InvalidRequestError, "Cannot filter by column 'nope': expected one of id, x, name"),
    (lit("eq", "l", [1]), InvalidRequestError, "by column 'l'"),
    (lit("eq", "id", "one"), InvalidRequestError, "id is compared with 'one': write a whole number"),
    (lit("eq", "id", 1.5), InvalidRequestError, "id is compared with"),
    (lit("eq", "id", None), InvalidRequestError, "is-null"),
    (lit("eq", "x", "NaN"), InvalidRequestError, "is-nan"),
    ({"type": "is-nan", "term": "id"}, InvalidRequestError, "is-nan tests a .*double.*id is a long"),
    (lit("starts-with", "id", 1), InvalidRequestError, "starts-with tests a string"),
    (
        {"type": "eq", "term": "id"},
        InvalidRequestError,
        "'eq' has term beside its type: expected left and right, or",
    ),
    ({"type": "between", "term": "id"}, InvalidRequestError, "Invalid predicate"),
    ({"type": "in", "term": "id", "values": 1}, InvalidRequestError, "Invalid values 1: expected a list"),
    ({"type": "in", "term": "id", "values": [0] * 100_001}, InvalidRequestError, "up to 100000 values"),
    (None, InvalidRequestError, "Invalid predicate None"),
    ({"type": "not"}, InvalidRequestError, "This 'not' has nothing beside its type: expected child"),
    ({"type": "eq", "left": {"type": "reference", "id": 9}, "right": 1}, InvalidRequestError, "by column 9"),
    (
        {"type": "eq", "term": "name", "value": {"type": "literal", "value": "2026-01-01", "data-type": "date"}},
        InvalidRequestError,
        "name is a string, which isn't compared with a date",
    ),
    (
        {"type": "eq", "left": {"type": "reference", "name": "id"}, "right": {"type": "reference", "name": "id"}},
        UnsupportedError,
        "filter-terms",
    ),
    (
        {"type": "eq", "term": {"type": "transform", "transform": "bucket[4]", "term": "id"}, "value": 1},
        UnsupportedError,
        "filter-terms",
    ),
]


@pytest.fixture
def lake(services: Services, ducklake: duckdb.DuckDBPyConnection) -> Lake:
    lake = Lake(services, ducklake)
    lake.run("CREATE SCHEMA lake.ns", "CREATE TABLE lake.ns.t (id BIGINT, x DOUBLE, name VARCHAR, l BIGINT[])")
    lake.run(
        "INSERT INTO lake.ns.t SELECT i, 1, 'n', [1] FROM range(20) AS r (i)",
        "INSERT INTO lake.ns.t VALUES (20, 1, 'n', NULL)",
    )
    return lake


def test_filter_that_says_nothing_of_the_table_deletes_nothing(lake: Lake) -> None:
    before = lake.newest()
    deep: Json = True
    for _ in range(200):
        deep = {"type": "not", "child": deep}
    wide: Json = lit("eq", "id", 1)
    for _ in range(12):
        wide = {"type": "or", "left": {"type": "and", "left": wide, "right": True}, "right": wide}
    for predicate, error, message in [
        *REFUSED,
        (deep, InvalidRequestError, "inside each other"),
        (wide, InvalidRequestError, "up to 1000 predicates"),
    ]:
        with pytest.raises(error, match=message):
            delete_where(lake.services, predicate)
    with pytest.raises(InvalidRequestError, match=r"leave \?key= out"):
        delete_where(lake.services, True, keys=("id",))
    for body, message in (
        (b'{"filter": true, "keys": []}', "The body is"),
        (b"{}", "The body is"),
        (b"true", "the body isn't an object"),
    ):
        with pytest.raises(InvalidRequestError, match=message):
            delete_rows(lake.services, DeleteRequest(("ns",), "t", body))
    assert lake.newest() == before


def test_columns_are_found_by_name_or_id_on_either_side(lake: Lake) -> None:
    by_id = {"type": "reference", "id": 1}
    value = {"type": "literal", "value": 18, "data-type": "int"}
    delete_where(lake.services, {"type": "lt-eq", "left": value, "right": by_id})
    delete_where(
        lake.services,
        {
            "type": "in",
            "child": {"type": "reference", "term": "id"},
            "values": {"type": "literals", "values": [0, 1], "data-type": "long"},
        },
    )
    delete_where(lake.services, {"type": "false"})
    assert [row[0] for row in lake.duck_rows("ns.t")] == sorted(range(2, 18), key=str)
    assert iceberg_rows(lake.static("t", "ns")) == lake.duck_rows("ns.t")


def test_rows_that_come_or_change_meanwhile_are_found_too(lake: Lake) -> None:
    write, times = lake.services.commits.write, [0]

    def late(*arguments: Any) -> Any:
        times[0] += 1
        if times[0] <= 2:
            lake.run(f"INSERT INTO lake.ns.t VALUES ({100 + times[0]}, 1, 'late', NULL)")
            lake.run(f"UPDATE lake.ns.t SET id = id + 200 WHERE id = {times[0]}")
        return write(*arguments)

    lake.services.commits.write = late  # type: ignore[method-assign,assignment]
    delete_where(lake.services, lit("gt", "id", 10))
    assert times[0] == 3
    assert sorted(row[0] for row in lake.duck_rows("ns.t")) == [0, *range(3, 11)]
    assert iceberg_rows(lake.static("t", "ns")) == lake.duck_rows("ns.t")


def test_filter_sent_again_with_its_key_gets_its_answer_and_deletes_no_more(lake: Lake) -> None:
    services = replace(lake.services, once=Once(UUID(int=7), b"the request"))
    first = delete_where(services, lit("gt", "id", 10))
    append_rows(lake.services, PostedRows(("ns",), "t", b'[{"id": 99}]', JSON))
    assert delete_where(services, lit("gt", "id", 10)) == first
    assert 99 in [row[0] for row in lake.duck_rows("ns.t")]


@pytest.mark.parametrize("version", [2, 3])
def test_each_file_is_read_once(services: Services, ducklake: duckdb.DuckDBPyConnection, version: int) -> None:
    """However many rows of it go, and whatever was deleted from it before; nothing else is read."""
    distant = Distant(services.store)
    lake = Lake(replace(services, store=distant), ducklake)
    lake.run("CREATE SCHEMA lake.ns", "CREATE TABLE lake.ns.t (id BIGINT, x DOUBLE)")
    lake.run(*(f"INSERT INTO lake.ns.t SELECT i, -0.0 FROM range({n}, {n + 30}) AS r (i)" for n in range(0, 90, 30)))
    append_rows(lake.services, PostedRows(("ns",), "t", b'[{"id": 90}, {"id": 91, "x": "NaN"}]', JSON))
    lake.commit({"action": "upgrade-format-version", "format-version": version}, namespace="ns")
    lake.run("DELETE FROM lake.ns.t WHERE id IN (1, 31, 90)")
    for predicate, left, read in ((lit("lt", "id", 20), 70, 1), (lit("not-eq", "id", 25), 1, 4), (True, 0, 4)):
        files = [task.file.file_path for task in lake.static("t", "ns").scan().plan_files()]
        distant.reads.clear()
        assert delete_where(lake.services, predicate).snapshot_id == lake.newest()
        assert (len(distant.reads), {*distant.reads.values()}) == (read, {1})
        assert distant.reads.keys() <= {*files}
        assert iceberg_rows(lake.static("t", "ns")) == lake.duck_rows("ns.t")
        assert len(lake.duck_rows("ns.t")) == left


@pytest.mark.parametrize("version", [2, 3])
def test_partitions_stay_as_they_are(services: Services, ducklake: duckdb.DuckDBPyConnection, version: int) -> None:
    """Rows go from files of several of them at once; the table gets no specification that it didn't have."""
    lake = Lake(services, ducklake)
    lake.run(
        "CREATE SCHEMA lake.ns",
        "CREATE TABLE lake.ns.t (id BIGINT, part VARCHAR)",
        "ALTER TABLE lake.ns.t SET PARTITIONED BY (part)",
        "INSERT INTO lake.ns.t SELECT i, 'p' || i % 3 FROM range(60) AS r (i)",
        "INSERT INTO lake.ns.t VALUES (60, 'p0'), (61, NULL)",
    )
    lake.commit({"action": "upgrade-format-version", "format-version": version}, namespace="ns")
    specs = lake.metadata("t", "ns").partition_specs
    for predicate in (lit("lt", "id", 10), lit("eq", "part", "p1"), {"type": "is-null", "term": "part"}):
        assert delete_where(services, predicate).snapshot_id == lake.newest()
        assert iceberg_rows(lake.static("t", "ns")) == lake.duck_rows("ns.t")
    assert [row[0] for row in lake.duck_rows("ns.t")] == [i for i in sorted(range(10, 61), key=str) if i % 3 != 1]
    assert lake.metadata("t", "ns").partition_specs == specs


def test_only_files_that_may_have_such_rows_are_read(lake: Lake) -> None:
    """The others are too many to be read."""
    lake.run("INSERT INTO lake.ns.t SELECT i, 1, 'n', NULL FROM range(1000, 1020) AS r (i)")
    largest = max(size for (size,) in lake.sql("SELECT file_size_bytes FROM ducklake_data_file"))
    lake.commit(
        {"action": "set-properties", "updates": {"ducklake.equality-deletes.max-bytes": str(largest + 1000)}},
        namespace="ns",
    )
    for refused in (True, lit("not-eq", "id", 5), lit("eq", "name", "n")):
        with pytest.raises(InvalidRequestError, match="raise the property"):
            delete_where(lake.services, refused)
    assert delete_where(lake.services, lit("gt", "id", 1005)).keys == 14
    assert delete_where(lake.services, {"type": "in", "term": "id", "values": [1001, 5000]}).keys == 1
    assert len(lake.duck_rows("ns.t")) == 41 - 15
