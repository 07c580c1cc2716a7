"""Files that others wrote, without field ids: all engines read them by their names, whatever columns are called now."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable

from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.manifest.entry import DataFile, FileContent
from duckicelake.storage.policy import LocationPolicy
from tests.support.client import Client, Draft, Json, new_client, set_ref
from tests.support.lakes import Row, iceberg_rows, sorted_rows
from tests.support.seams import fresh


def pair(first_id: int) -> Json:
    names = {first_id: "x", first_id + 1: "y"}
    fields = [{"id": field_id, "name": name, "type": "int", "required": False} for field_id, name in names.items()]
    return {"type": "struct", "fields": fields}


LIST = {"type": "list", "element-id": 8, "element": pair(9), "element-required": False}
MAP = {"type": "map", "key-id": 11, "key": "string", "value-id": 12, "value": pair(13), "value-required": False}
COLUMNS = [(1, "id", "long"), (2, "s", pair(6)), (3, "l", LIST), (4, "m", MAP), (5, "other", "long")]


def mapped(field_id: int, name: str, *inside: Json) -> Json:
    return {"field-id": field_id, "names": [name], "fields": list(inside)}


MAPPING = [
    mapped(1, "id"),
    mapped(2, "s", mapped(6, "x"), mapped(7, "y")),
    mapped(3, "l", mapped(8, "element", mapped(9, "x"), mapped(10, "y"))),
    mapped(4, "m", mapped(11, "key"), mapped(12, "value", mapped(13, "x"), mapped(14, "y"))),
    mapped(5, "other"),
]
PAIR = pa.struct([("y", pa.int32()), ("x", pa.int32())])
TYPES = {"other": pa.int64(), "m": pa.map_(pa.string(), PAIR), "l": pa.list_(PAIR), "s": PAIR, "id": pa.int64()}
ONE: Json = {"x": 1, "y": 2}
ROWS: list[Json] = [
    {"id": 1, "other": 10, "s": ONE, "l": [ONE, None], "m": [("k", ONE)]},
    {"id": 2, "s": ONE, "l": [], "m": []},
]
XY = (("x", 1), ("y", 2))
EXPECTED: list[Row] = [(1, XY, (XY, None), (("k", ONE),), 10), (2, XY, (), (), None)]
NO_MAPPING: Json = {"action": "remove-properties", "removals": ["schema.name-mapping.default"]}
Check = Callable[[list[Row]], Json]


@pytest.fixture
def client(services: Services) -> Client:
    client = new_client(services)
    schema = {
        "type": "struct",
        "schema-id": 0,
        "fields": [{"id": n, "name": name, "type": kind, "required": False} for n, name, kind in COLUMNS],
    }
    client.create(schema=schema, properties={"schema.name-mapping.default": json.dumps(MAPPING)})
    return client


@pytest.fixture
def check(services: Services, ducklake: duckdb.DuckDBPyConnection) -> Check:
    def holds(expected: list[Row]) -> Json:
        answer = Client(fresh(services)).load()
        assert iceberg_rows(StaticTable.from_metadata(answer["metadata-location"])) == expected
        assert sorted_rows(ducklake.sql("FROM lake.ns.t").to_arrow_table()) == expected
        metadata: Json = answer["metadata"]
        return metadata

    return holds


def foreign(path: Path, rows: list[Json], types: dict[str, pa.DataType] = TYPES, **options: Any) -> DataFile:
    """A file with its columns in an order of its own, and no field ids."""
    path.parent.mkdir(parents=True, exist_ok=True)
    arrays = {name: pa.array([row.get(name) for row in rows], type_) for name, type_ in types.items()}
    pq.write_table(pa.table(arrays), path, **options)
    return DataFile(FileContent.DATA, f"file://{path}", "PARQUET", (), len(rows), path.stat().st_size)


def add(client: Client, *files: DataFile) -> Json:
    draft = Draft(client.metadata())
    return client.commit(draft.body([draft.manifest(files), *draft.parent_manifests]))["metadata"]


def within(client: Client, name: str = "f.parquet") -> Path:
    return Path(client.metadata()["location"].removeprefix("file:")) / "data" / name


@pytest.mark.parametrize("options", [{}, {"use_compliant_nested_type": False}], ids=["element", "item"])
def test_fields_are_found_by_name_at_any_depth(client: Client, check: Check, options: Any) -> None:
    add(client, foreign(within(client), ROWS, **options))
    check(EXPECTED)


def test_renamed_columns_are_found_by_their_old_names(
    client: Client, check: Check, ducklake: duckdb.DuckDBPyConnection
) -> None:
    first = add(client, foreign(within(client), ROWS))["current-snapshot-id"]
    ducklake.execute("ALTER TABLE lake.ns.t RENAME COLUMN other TO id2")
    ducklake.execute("ALTER TABLE lake.ns.t RENAME COLUMN id TO other")
    ducklake.execute("DELETE FROM lake.ns.t WHERE other = 2")
    check(EXPECTED[:1])
    client.commit({"requirements": [], "updates": [set_ref("main", first)]})
    check(EXPECTED)
    ducklake.execute("INSERT INTO lake.ns.t VALUES (3, NULL, [], MAP {}, 30)")
    ducklake.execute("CALL ducklake_flush_inlined_data('lake')")
    ducklake.execute("CALL ducklake_merge_adjacent_files('lake')")
    check([*EXPECTED, (3, None, (), (), 30)])


def test_files_with_and_without_ids_lie_beside_each_other(client: Client, check: Check) -> None:
    named = {"other": pa.int64(), "id": pa.int64()}
    with_ids = within(client, "ids.parquet")
    foreign(with_ids, [])
    ids = {"id": "5", "x": "1"}
    fields = [pa.field(name, pa.int64(), metadata={"PARQUET:field_id": field_id}) for name, field_id in ids.items()]
    pq.write_table(pa.table({"id": [70], "x": [7]}, pa.schema(fields)), with_ids)
    file = DataFile(FileContent.DATA, f"file://{with_ids}", "PARQUET", (), 1, with_ids.stat().st_size)
    add(client, file, foreign(within(client, "a.parquet"), [{"id": 8, "other": 80}], named))
    add(client, foreign(within(client, "b.parquet"), [{"id": 9, "other": 90}], named))
    check([(7, None, None, None, 70), (8, None, None, None, 80), (9, None, None, None, 90)])


def test_files_that_duckdb_adds_are_found_by_name(
    client: Client, check: Check, ducklake: duckdb.DuckDBPyConnection
) -> None:
    client.commit({"requirements": [], "updates": [NO_MAPPING]})
    foreign(within(client), ROWS)
    ducklake.execute(adding(client))
    before = check(EXPECTED)["current-snapshot-id"]
    ducklake.execute("ALTER TABLE lake.ns.t RENAME COLUMN other TO later")
    foreign(within(client, "later.parquet"), [{"id": 3, "later": 30}], {"later": pa.int64(), "id": pa.int64()})
    ducklake.execute(adding(client, "later.parquet"))
    now = check([*EXPECTED, (3, None, None, None, 30)])
    mapping = json.loads(now["properties"]["schema.name-mapping.default"])
    assert [field["names"] for field in mapping if field["field-id"] == 5] == [["later", "other"]]
    client.commit({"requirements": [], "updates": [set_ref("main", before)]})
    check(EXPECTED)
    client.commit({"requirements": [], "updates": [set_ref("main", now["current-snapshot-id"])]})
    check([*EXPECTED, (3, None, None, None, 30)])


def adding(client: Client, name: str = "f.parquet") -> str:
    options = f"schema => 'ns', allow_missing => true, hive_partitioning => {'=' in name}"
    return f"CALL ducklake_add_data_files('lake', 't', '{within(client, name)}', {options})"


def test_files_that_duckdb_adds_may_mean_two_columns_by_one_name(
    client: Client, check: Check, ducklake: duckdb.DuckDBPyConnection
) -> None:
    for name in ("first.parquet", "second.parquet"):
        foreign(within(client, name), [{"id": 1, "other": 2}], {"id": pa.int64(), "other": pa.int64()})
    ducklake.execute(adding(client, "first.parquet"))
    ducklake.execute("ALTER TABLE lake.ns.t RENAME COLUMN other TO old")
    ducklake.execute("ALTER TABLE lake.ns.t ADD COLUMN other BIGINT")
    ducklake.execute(adding(client, "second.parquet"))
    check([(1, None, None, None, 2, None), (1, None, None, None, None, 2)])


def test_hive_folders_of_files_that_duckdb_adds_need_no_partition(
    client: Client, check: Check, ducklake: duckdb.DuckDBPyConnection
) -> None:
    for value in (7, 8):
        foreign(within(client, f"other={value}/f.parquet"), [ROWS[1]], {"id": pa.int64(), "s": PAIR})
    ducklake.execute("ALTER TABLE lake.ns.t SET PARTITIONED BY (other)")
    ducklake.execute(adding(client, "other=7/f.parquet"))
    check([(2, XY, None, None, 7)])
    ducklake.execute("ALTER TABLE lake.ns.t RESET PARTITIONED BY")
    ducklake.execute(adding(client, "other=8/f.parquet"))
    check([(2, XY, None, None, 7), (2, XY, None, None, 8)])


def test_only_files_that_the_server_may_read_are_taken(
    client: Client, services: Services, check: Check, tmp_path: Path
) -> None:
    outside = foreign(tmp_path / "outside" / "f.parquet", ROWS)
    with pytest.raises(InvalidRequestError, match=r"must lie in .*/data/ns/t-"):
        add(client, outside)
    allowing = LocationPolicy(services.policy.warehouse, allowed=(str(tmp_path / "outside"),))
    add(Client(replace(fresh(services), policy=allowing)), outside)
    check(EXPECTED)


def test_file_that_is_no_parquet_is_refused_and_a_missing_one_taken(client: Client) -> None:
    path = within(client)
    file = foreign(path, ROWS)
    path.write_bytes(b"PAR1 but no more")
    with pytest.raises(InvalidRequestError, match="can't be read as Parquet"):
        add(client, file)
    path.unlink()
    add(client, file)


def test_tables_without_a_name_mapping_may_have_files_anywhere(client: Client, tmp_path: Path) -> None:
    client.commit({"requirements": [], "updates": [NO_MAPPING]})
    add(client, foreign(tmp_path / "outside" / "f.parquet", ROWS))
