"""Equality deletes as positions, against what the specification says, in plain Python."""

import json
import random
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings

from duckicelake.catalog.commit.equality_deletes import find_equality_deletes
from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidRequestError, UnsupportedError
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.state import FileRow
from duckicelake.parquet.inlined_rows import CopiedRows, ParquetColumn, write_rows
from duckicelake.storage.memory import MemoryStore
from tests.support.equality_cases import (
    Case,
    Column,
    File,
    Json,
    Row,
    Stored,
    cases,
    deleted,
    table_metadata,
    with_id,
    write,
    write_case,
)
from tests.support.examples import count_examples

ID, NAME = Stored(1, "id", "long", nested=False), Stored(2, "name", "string", nested=False)
COLUMNS = (Column(1, "id", "long"), Column(2, "name", "string"))
ROWS: list[Row] = [{1: 1, 2: "a"}, {1: 2, 2: "b"}, {1: None, 2: None}]
BY_CATEGORY: Json = {"spec-id": 1, "fields": [{"source-id": 2, "field-id": 1000, "name": "c", "transform": "identity"}]}


@pytest.fixture
def folder(warehouse: Path) -> Path:
    """The table's location."""
    return warehouse / "data" / "ns" / "t"


@pytest.fixture
def table(folder: Path) -> TableMetadata:
    return table_metadata(f"file://{folder}", COLUMNS)


def data(folder: Path, file_id: int = 1, rows: Sequence[Row] = ROWS, sequence_number: int = 1) -> FileRow:
    return write(File((ID, NAME), tuple(rows), sequence_number), folder, file_id)


def deletes(folder: Path, *ids: int | None, file_id: int = 101) -> FileRow:
    """An equality delete file by id, of sequence number 2."""
    return write(File((ID,), tuple({1: each} for each in ids), 2, equality_ids=(1,)), folder, file_id)


def resolve(
    services: Services, table: TableMetadata, delete: FileRow, *files: FileRow, folder: str = "/nowhere/"
) -> dict[int, set[int]]:
    """The positions by data file that one delete file deletes."""
    found = find_equality_deletes(services, table, [folder], [delete], files)
    assert found.keys() == {delete.file_id}
    return {file_id: set(positions) for file_id, positions in found[delete.file_id].items()}


@pytest.fixture
def settled(services: Services) -> Services:
    """The pool draws a random number for each new connection, in a thread, and Hypothesis takes that for a mistake."""
    with ExitStack() as held:
        for _ in range(services.database.statistics()["pool_max"]):
            held.enter_context(services.database.reading())
    return services


@settings(max_examples=count_examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=cases())
def test_deleted_positions_are_those_of_the_specification(settled: Services, folder: Path, case: Case) -> None:
    written = write_case(case, folder)
    found = find_equality_deletes(settled, written.table, [], written.deletes, written.data)
    expected = {
        delete.file_id: {data.file_id: rows for data, rows in zip(written.data, by_data, strict=True) if rows}
        for delete, by_data in zip(written.deletes, deleted(case), strict=True)
    }
    assert found == expected


def test_nothing_to_delete_from_still_reads_the_delete_file(
    services: Services, table: TableMetadata, folder: Path
) -> None:
    assert resolve(services, table, deletes(folder, 1)) == {}
    garbage = overwritten(deletes(folder, 1), b"no Parquet")
    with pytest.raises(InvalidRequestError, match="can't be read as Parquet"):
        resolve(services, table, garbage)


def test_partitioned_deletes_touch_their_partition_and_others_all(services: Services, folder: Path) -> None:
    void: Json = {"spec-id": 2, "fields": [{**BY_CATEGORY["fields"][0], "transform": "void"}]}
    specs = [{"spec-id": 0, "fields": []}, BY_CATEGORY, void]
    table = table_metadata(f"file://{folder}", COLUMNS, partition_specs=specs, last_partition_id=1000)
    files = [
        data(folder, number)._replace(spec_id=spec, partition=partition)
        for number, (spec, partition) in enumerate([(0, []), (1, ["a"]), (1, ["b"]), (1, [None]), (2, [None])])
    ]
    delete = deletes(folder, 1)

    def touched(spec_id: int, partition: list[Any]) -> set[int]:
        return set(resolve(services, table, delete._replace(spec_id=spec_id, partition=partition), *files))

    assert touched(1, ["a"]) == {1}
    assert touched(1, [None]) == {3}
    assert touched(0, []) == touched(2, [None]) == {0, 1, 2, 3, 4}


def test_missing_column_has_its_partition_value(services: Services, folder: Path) -> None:
    """Files of Hive tables lack what is in their folders' names."""
    specs = [{"spec-id": 0, "fields": []}, BY_CATEGORY]
    columns = (COLUMNS[0], Column(2, "name", "string", default="default"))
    table = table_metadata(f"file://{folder}", columns, partition_specs=specs, last_partition_id=1000)
    files = [
        write(File((ID,), ({1: 1},), 1), folder, number)._replace(spec_id=1, partition=[value])
        for number, value in enumerate(["a", "default", None])
    ]
    delete = write(File((NAME,), ({2: "a"}, {2: None}), 2, equality_ids=(2,)), folder, 101)
    assert resolve(services, table, delete, *files) == {0: {0}, 2: {0}}


def test_file_without_ids_is_read_by_the_name_mapping(services: Services, folder: Path) -> None:
    columns = (*COLUMNS, Column(3, "inner", "int", nested=True))
    mapping = [
        {"field-id": 2, "names": ["label", "name"]},
        {"field-id": 100, "names": ["s"], "fields": [{"field-id": 3, "names": ["deep"]}]},
        {"names": ["id"]},
    ]
    properties = {"schema.name-mapping.default": json.dumps(mapping)}
    table = table_metadata(f"file://{folder}", columns, properties=properties)
    stored = (ID, replace(NAME, name="label"), Stored(3, "deep", "int", nested=True))
    file = write(File(stored, ({1: 1, 2: "a", 3: 7}, {1: 1, 2: "b", 3: 7}), 1, has_ids=False), folder, 1)
    for keys, row, expected in [((2, 3), {2: "a", 3: 7}, {0}), ((1,), {1: 1}, set()), ((1,), {1: None}, {0, 1})]:
        columns_of_keys = tuple(each for each in (ID, NAME, stored[2]) if each.id in keys)
        delete = write(File(columns_of_keys, (row,), 2, equality_ids=keys), folder, 101)
        assert resolve(services, table, delete, file).get(1, set()) == expected


def test_bad_name_mapping_is_the_clients_error(services: Services, folder: Path) -> None:
    for text in ("no JSON", "[" * 100_000, '{"field-id": 1}', '[{"field-id": "x", "names": []}]'):
        table = table_metadata(f"file://{folder}", COLUMNS, properties={"schema.name-mapping.default": text})
        with pytest.raises(InvalidRequestError, match=r"schema.name-mapping.default isn't a name mapping"):
            resolve(services, table, deletes(folder, 1), data(folder))


def test_file_without_ids_is_read_by_the_names_of_its_time(services: Services, folder: Path) -> None:
    """The column `id` was renamed to `old`, then another `id` was added."""
    now = [Column(1, "old", "long").field(), Column(3, "id", "long").field()]
    schemas = [
        {"type": "struct", "schema-id": 0, "fields": [Column(1, "id", "long").field()]},
        {"type": "struct", "schema-id": 1, "fields": now},
    ]
    snapshots = [
        {"snapshot-id": number, "timestamp-ms": 0, "summary": {"operation": "append"}, "manifest-list": "x"}
        | {"schema-id": schema_id, "sequence-number": number}
        for number, schema_id in [(1, 0), (2, 1)]
    ]
    table = table_metadata(
        f"file://{folder}", COLUMNS, schemas=schemas, current_schema_id=1, snapshots=snapshots, last_sequence_number=9
    )
    file = File((replace(ID, name="ID"),), ({1: 5},), 1, has_ids=False)
    before, after = (write(file, folder, number)._replace(added_snapshot_id=number) for number in (1, 2))
    unknown = before._replace(file_id=3, added_snapshot_id=77)
    assert resolve(services, table, deletes(folder, 5), before, after, unknown) == {1: {0}}


def test_dropped_column_still_deletes(services: Services, folder: Path) -> None:
    schemas = [
        {"type": "struct", "schema-id": number, "fields": [column.field() for column in columns]}
        for number, columns in enumerate([COLUMNS, COLUMNS[1:]])
    ]
    table = table_metadata(f"file://{folder}", COLUMNS, schemas=schemas, current_schema_id=1)
    assert resolve(services, table, deletes(folder, 2), data(folder)) == {1: {1}}


@pytest.mark.parametrize("name", ["a*b.parquet", "a?[b].parquet", "a'b\".parquet", "year=2024/ü b%20.parquet"])
def test_any_file_name_is_read(services: Services, table: TableMetadata, folder: Path, name: str) -> None:
    file = moved(data(folder), folder / name)
    assert resolve(services, table, deletes(folder, 2), file) == {1: {1}}


def test_any_column_name_is_read(services: Services, table: TableMetadata, folder: Path) -> None:
    file = data(folder)
    names = ["file_row_number", "c0", "ID", "position", "a\"b'c", ""]
    arrays = [pa.array([number, number + 1]) for number in range(len(names))]
    fields = [with_id(pa.field(name, pa.int64()), field_id) for field_id, name in enumerate(names, 10)]
    fields[2] = with_id(pa.field("ID", pa.int64()), 1)
    pq.write_table(pa.Table.from_arrays(arrays, schema=pa.schema(fields)), path_of(file))
    assert resolve(services, table, deletes(folder, 3), file) == {1: {1}}


def test_rows_that_the_server_writes_are_read(services: Services, table: TableMetadata, folder: Path) -> None:
    """Inlined rows of DuckDB's, as Parquet."""
    columns = [ParquetColumn("id", "BIGINT", "1"), ParquetColumn("name", "VARCHAR", "2")]
    file, copy = data(folder), folder / "rows.csv"
    copy.write_text("0,1,,1,61\n1,1,,,62\n2,1,,2,\n")
    file = overwritten(file, write_rows(CopiedRows(copy, 10, columns)).data)
    assert resolve(services, table, deletes(folder, 2, None), file) == {1: {1, 2}}


def test_store_without_local_paths_is_copied_from(services: Services, table: TableMetadata, folder: Path) -> None:
    store, files = MemoryStore(), (deletes(folder, 2), data(folder))
    for file in files:
        store.write(file.path, path_of(file).read_bytes())
        path_of(file).unlink()
    assert resolve(replace(services, store=store), table, *files) == {1: {1}}


def test_file_elsewhere_is_refused_unless_it_need_not_be_read(
    services: Services, table: TableMetadata, folder: Path, tmp_path: Path
) -> None:
    foreign = data(tmp_path / "elsewhere")
    with pytest.raises(InvalidRequestError, match=foreign.path):
        resolve(services, table, deletes(folder, 1), foreign)
    with pytest.raises(InvalidRequestError, match="can't be read by the server"):
        resolve(services, table, deletes(tmp_path / "elsewhere", 1))
    assert resolve(services, table, deletes(folder, 1), foreign._replace(sequence_number=2)) == {}
    in_lake = f"{tmp_path}/elsewhere/"
    assert resolve(services, table, deletes(folder, 1), foreign, folder=in_lake) == {1: {0}}


@pytest.mark.parametrize("what", ["data", "deletes"])
def test_lost_file_is_named(services: Services, table: TableMetadata, folder: Path, what: str) -> None:
    files = {"data": data(folder), "deletes": deletes(folder, 1)}
    path_of(files[what]).unlink()
    with pytest.raises(InvalidRequestError, match=f"{files[what].path} does not exist"):
        resolve(services, table, files["deletes"], files["data"])


def test_no_more_is_read_than_the_property_allows(services: Services, folder: Path) -> None:
    file, newer, delete = data(folder), data(folder, 2, sequence_number=2), deletes(folder, 1)
    size = path_of(file).stat().st_size + path_of(delete).stat().st_size

    def limited(limit: str) -> dict[int, set[int]]:
        properties = {"ducklake.equality-deletes.max-bytes": limit}
        table = table_metadata(f"file://{folder}", COLUMNS, properties=properties)
        return resolve(services, table, delete._replace(file_size_in_bytes=1), file, newer)

    assert limited(str(size)) == {1: {0}}
    with pytest.raises(InvalidRequestError, match=r"may concern 1 data file, .* raise the property"):
        limited(str(size - 1))
    for text in ("1 GB", "", "-1", "1" * 5000):
        with pytest.raises(InvalidRequestError, match="write a number of bytes"):
            limited(text)


@pytest.mark.parametrize("file_format", ["AVRO", "orc", "puffin"])
def test_other_formats_are_unsupported(
    services: Services, table: TableMetadata, folder: Path, file_format: str
) -> None:
    with pytest.raises(UnsupportedError, match="file-formats"):
        resolve(services, table, deletes(folder, 1)._replace(file_format=file_format), data(folder))


def test_delete_file_without_its_delete_column_is_refused(
    services: Services, table: TableMetadata, folder: Path
) -> None:
    by_name = write(File((ID,), ({1: 1},), 2, has_ids=False, equality_ids=(1,)), folder, 101)
    other = deletes(folder, 1)._replace(metrics={"equality_ids": [1, 2]})
    for delete, field_id in [(by_name, 1), (other, 2)]:
        with pytest.raises(InvalidRequestError, match=f"{delete.path}: it has no column of field id {field_id}"):
            resolve(services, table, delete, data(folder))


@pytest.mark.parametrize(
    ("arrow", "values"),
    [
        (pa.string(), ["1"]),
        (pa.float64(), [1.0]),
        (pa.uint64(), [1]),
        (pa.timestamp("us"), [1]),
        (pa.decimal128(10, 0), [1]),
        (pa.list_(pa.int64()), [[1]]),
        (pa.struct([("x", pa.int64())]), [{"x": 1}]),
    ],
)
def test_column_of_another_type_is_never_converted(
    services: Services, table: TableMetadata, folder: Path, arrow: pa.DataType, values: list[Any]
) -> None:
    schema = pa.schema([with_id(pa.field("id", arrow), 1)])
    for number in range(2):
        delete, file = deletes(folder, 1), data(folder)
        wrong = (delete, file)[number]
        pq.write_table(pa.Table.from_arrays([pa.array(values, arrow)], schema=schema), path_of(wrong))
        with pytest.raises(InvalidRequestError, match=f"{wrong.path}: column id is a .*, not a BIGINT"):
            resolve(services, table, delete, file)


@pytest.mark.parametrize(
    ("kind", "arrow", "value", "stored"),
    [
        ("uuid", pa.binary(16), UUID(int=5), UUID(int=5).bytes),
        ("string", pa.binary(), "é", "é".encode()),
        ("binary", pa.string(), "é".encode(), "é"),
        ("timestamptz", pa.timestamp("us"), 5, 5),
        ("timestamp", pa.timestamp("us", "UTC"), 5, 5),
        ("time", pa.time32("ms"), 5000, 5),
        ("int", pa.int8(), 5, 5),
        ("long", pa.uint32(), 2**32 - 1, 2**32 - 1),
        ("decimal(38, 2)", pa.decimal128(3, 2), Decimal("1.23"), Decimal("1.23")),
    ],
)
def test_values_as_other_writers_store_them(
    services: Services, folder: Path, kind: str, arrow: pa.DataType, value: Any, stored: Any
) -> None:
    table = table_metadata(f"file://{folder}", [Column(1, "c", kind)])
    delete = write(File((Stored(1, "c", kind, nested=False),), ({1: value},), 2, equality_ids=(1,)), folder, 101)
    file = data(folder)
    schema = pa.schema([with_id(pa.field("c", arrow), 1)])
    pq.write_table(pa.Table.from_arrays([pa.array([None, stored], arrow)], schema=schema), path_of(file))
    assert resolve(services, table, delete, file) == {1: {1}}


def test_int96_timestamps_are_read(services: Services, folder: Path) -> None:
    table = table_metadata(f"file://{folder}", [Column(1, "c", "timestamptz")])
    kind = Stored(1, "c", "timestamptz", nested=False)
    delete, file = (
        write(File((kind,), ({1: None}, {1: 5}), number, equality_ids=ids), folder, number)
        for number, ids in [(2, (1,)), (1, ())]
    )
    pq.write_table(pq.read_table(path_of(file)), path_of(file), use_deprecated_int96_timestamps=True)
    assert resolve(services, table, delete, file) == {1: {0, 1}}


def test_two_columns_of_one_field_id_are_refused(services: Services, table: TableMetadata, folder: Path) -> None:
    twice = write(File((ID, replace(ID, name="again")), ({1: 1},), 1), folder, 1)
    with pytest.raises(InvalidRequestError, match=f"{twice.path}: id and again both are field 1"):
        resolve(services, table, deletes(folder, 1), twice)


def test_damaged_files_are_the_clients_error(services: Services, table: TableMetadata, folder: Path) -> None:
    """Whatever is in a file, it is either read or refused; DuckDB's temporary paths aren't shown."""
    choose, refusals = random.Random(4), []
    for number in range(60):
        files = [deletes(folder, 1, 2, None), data(folder)]
        victim = files[number % 2]
        content = bytearray(path_of(victim).read_bytes())
        for _ in range(choose.choice([1, 3, 20])):
            content[choose.randrange(len(content))] = choose.randrange(256)
        overwritten(victim, bytes(content[: choose.choice([len(content), len(content), 9, 0])]))
        try:
            resolve(services, table, *files)
        except InvalidRequestError as error:
            refusals.append((victim.path, str(error)))
    assert len(refusals) > 20
    for path, message in refusals:
        assert message.startswith(path)
        assert ".parquet" not in message.replace(path, "")


def path_of(file: FileRow) -> Path:
    return Path(file.path.removeprefix("file:"))


def overwritten(file: FileRow, content: bytes) -> FileRow:
    path_of(file).write_bytes(content)
    return file


def moved(file: FileRow, path: Path) -> FileRow:
    path.parent.mkdir(parents=True, exist_ok=True)
    path_of(file).rename(path)
    return file._replace(path=f"file://{path}")
