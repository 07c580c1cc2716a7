import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadataUtil

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.metadata import TableMetadata, parse_table_metadata

Json = Any

SCHEMA = {"type": "struct", "schema-id": 0, "fields": [{"id": 1, "name": "a", "required": False, "type": "int"}]}
VERSION_2: dict[str, Json] = {
    "format-version": 2,
    "table-uuid": "9c12d441-03fe-4693-9a96-a0705ddf69c1",
    "location": "s3://lake/t",
    "last-sequence-number": 4,
    "last-updated-ms": 1_700_000_000_000,
    "last-column-id": 1,
    "schemas": [SCHEMA],
    "current-schema-id": 0,
    "partition-specs": [{"spec-id": 0, "fields": []}],
    "default-spec-id": 0,
    "last-partition-id": 999,
    "sort-orders": [{"order-id": 0, "fields": []}],
    "default-sort-order-id": 0,
}
SNAPSHOT = {"snapshot-id": 9, "sequence-number": 4, "timestamp-ms": 1, "manifest-list": "m.avro"}
VERSION_1: dict[str, Json] = {
    "format-version": 1,
    "location": "s3://lake/t",
    "last-updated-ms": 1,
    "last-column-id": 1,
    "schema": {"type": "struct", "fields": SCHEMA["fields"]},
    "partition-spec": [{"source-id": 1, "name": "a", "transform": "identity"}],
    "current-snapshot-id": -1,
}

longs = st.integers(0, 2**63 - 1)
names = st.text(min_size=1, max_size=8)
strings = st.dictionaries(names, st.text(max_size=8), max_size=3)


snapshots = st.fixed_dictionaries(
    {"snapshot-id": longs, "sequence-number": st.integers(0, 4), "timestamp-ms": longs, "manifest-list": st.text()},
    optional={
        "parent-snapshot-id": longs,
        "summary": strings.map(lambda summary: {"operation": "append"} | summary),
        "schema-id": st.just(0),
        "first-row-id": longs,
        "added-rows": longs,
        "key-id": names,
    },
)


@st.composite
def metadata(draw: st.DrawFn) -> Json:
    version = draw(st.sampled_from([2, 3]))
    listed = draw(st.lists(snapshots, max_size=4, unique_by=lambda each: each["snapshot-id"]))
    ids = [each["snapshot-id"] for each in listed]
    refs: dict[str, Json] = {}
    if ids:
        pointing = st.fixed_dictionaries(
            {"snapshot-id": st.sampled_from(ids), "type": st.just("branch")},
            optional={"max-ref-age-ms": st.integers(1, 2**62)},
        )
        refs = draw(st.dictionaries(names | st.just("main"), pointing, max_size=3))
    lists: dict[str, Json] = {
        "properties": draw(strings),
        "snapshots": listed,
        "refs": refs,
        "snapshot-log": [{"snapshot-id": each, "timestamp-ms": draw(longs)} for each in ids],
        "metadata-log": [{"metadata-file": draw(names), "timestamp-ms": draw(longs)} for _ in ids],
        "statistics": [],
        "partition-statistics": [
            {"snapshot-id": each, "statistics-path": "p", "file-size-in-bytes": draw(longs)} for each in ids[:1]
        ],
    }
    current = {"current-snapshot-id": refs["main"]["snapshot-id"]} if "main" in refs else {}
    return (
        VERSION_2
        | {"format-version": version}
        | lists
        | current
        | ({"next-row-id": draw(longs)} if version == 3 else {})
    )


@given(metadata())
def test_metadata_written_and_read_is_the_same(data: Json) -> None:
    read = parse_table_metadata(data)
    assert read.to_json() == data
    assert parse_table_metadata(orjson.loads(orjson.dumps(read.to_json()))) == read


@given(metadata())
def test_pyiceberg_reads_what_is_written(data: Json) -> None:
    ours = parse_table_metadata(data)
    oracle = TableMetadataUtil.parse_raw(json.dumps(ours.to_json()))
    assert oracle.current_snapshot_id == ours.current_snapshot_id
    assert [each.snapshot_id for each in oracle.snapshots] == [each.snapshot_id for each in ours.snapshots]
    assert str(oracle.table_uuid) == ours.table_uuid
    assert {name: ref.snapshot_id for name, ref in oracle.refs.items()} == {
        name: ref.snapshot_id for name, ref in ours.refs.items()
    }


@given(metadata())
def test_pieces_that_are_encoded_once_make_the_same_bytes(data: Json) -> None:
    parsed = parse_table_metadata(data)
    assert parsed.encode() == parsed.encode() == orjson.dumps(parsed.to_json())
    few = parsed.snapshots[1:3]
    assert parsed.encode(few) == orjson.dumps(parsed.replace_fields(snapshots=few).to_json())


@pytest.mark.parametrize("format_version", [1, 2])
@given(st.integers(0, 4), st.integers(0, 4), st.integers(0, 6), st.booleans())
def test_history_that_goes_on_from_an_older_one_is_encoded_as_anew(
    format_version: int, old_end: int, start: int, end: int, are_sorted: bool
) -> None:
    entries = [SNAPSHOT | {"snapshot-id": number} for number in range(6)]
    log = [{"snapshot-id": number, "timestamp-ms": 1} for number in range(6)]
    whole = parse_table_metadata(VERSION_2 | {"snapshots": entries, "snapshot-log": log})
    whole = whole.replace_fields(format_version=format_version)
    snapshots = whole.snapshots if are_sorted else whole.snapshots[::-1]
    before = whole.replace_fields(snapshots=whole.snapshots[:old_end], snapshot_log=whole.snapshot_log[:old_end])
    after = whole.replace_fields(snapshots=snapshots[start:end], snapshot_log=whole.snapshot_log[start:end])
    after.reuse_history(before)
    anew = after.replace_fields()
    assert after.encode() == anew.encode()
    assert list(after.snapshots_by_id.items()) == list(anew.snapshots_by_id.items())


def test_version_1_metadata_of_an_old_writer_is_completed() -> None:
    read = parse_table_metadata(VERSION_1)
    assert (read.current_snapshot_id, read.refs, read.last_sequence_number) == (None, {}, 0)
    assert [each.field_id for each in read.spec().fields] == [1000]
    assert (read.last_partition_id, read.sort_order().order_id) == (1000, 0)
    assert read.table_uuid == parse_table_metadata(VERSION_1).table_uuid
    assert parse_table_metadata(read.to_json()) == read


def test_version_1_metadata_is_written_with_its_old_keys_too() -> None:
    written = parse_table_metadata(VERSION_1).to_json()
    assert written["schema"] == SCHEMA
    assert written["partition-spec"][0]["field-id"] == 1000
    assert "last-sequence-number" not in written
    assert "next-row-id" not in written
    TableMetadataUtil.parse_raw(json.dumps(written))


def test_current_snapshot_without_refs_is_main() -> None:
    read = parse_table_metadata(VERSION_2 | {"snapshots": [SNAPSHOT], "current-snapshot-id": 9, "refs": None})
    assert read.refs["main"].to_json() == {"snapshot-id": 9, "type": "branch"}
    assert read.current_snapshot() == read.snapshot(9)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format-version": 4}, "format-version 4, expected 1, 2 or 3"),
        ({"format-version": "2"}, "format-version '2'"),
        ({"last-sequence-number": None}, "last-sequence-number: Field required"),
        ({"current-schema-id": 7}, "no schema 7"),
        ({"default-spec-id": 7}, "no partition spec 7"),
        ({"default-sort-order-id": 7}, "no sort order 7"),
        ({"schemas": [SCHEMA, SCHEMA]}, "schema-id 0 is listed 2 times"),
        ({"schemas": None, "schema": SCHEMA}, "schemas: Field required"),
        ({"snapshots": [SNAPSHOT, SNAPSHOT]}, "snapshot-id 9 is listed 2 times"),
        ({"snapshots": [SNAPSHOT | {"sequence-number": 5}]}, "beyond the last, 4"),
        ({"snapshots": [SNAPSHOT | {"manifest-list": None}]}, "no manifest-list"),
        ({"current-snapshot-id": 9}, "main points to unknown snapshot 9"),
        ({"refs": {"dev": {"snapshot-id": 9, "type": "branch"}}}, "dev points to unknown snapshot 9"),
        ({"snapshots": [SNAPSHOT], "refs": {"main": {"snapshot-id": 9, "type": "branch"}}}, "main isn't the current"),
        ({"format-version": 3}, "next-row-id"),
        ({"table-uuid": "x"}, "not a UUID"),
        ({"last-updated-ms": 2**63}, "last-updated-ms"),
    ],
)
def test_metadata_that_contradicts_itself_is_refused(changes: Json, said: str) -> None:
    with pytest.raises(InvalidRequestError, match=said):
        parse_table_metadata(VERSION_2 | changes)


@pytest.mark.parametrize("data", [None, [], "{}", {}])
def test_what_is_no_metadata_at_all_is_refused(data: Json) -> None:
    with pytest.raises(InvalidRequestError, match="format-version"):
        parse_table_metadata(data)


@pytest.mark.parametrize("key", ["schema", "partition-spec", "partition-specs", "schemas", "sort-orders"])
@pytest.mark.parametrize("value", [7, [7], {"fields": 7}, [{"fields": [7]}], [{"fields": [{"field-id": "x"}]}]])
def test_malformed_version_1_metadata_is_an_invalid_request(key: str, value: Json) -> None:
    with pytest.raises(InvalidRequestError):
        parse_table_metadata(VERSION_1 | {key: value})


def test_unknown_ids_are_invalid_requests_and_unknown_snapshots_are_none() -> None:
    table = parse_table_metadata(VERSION_2)
    assert table.snapshot(1) is None
    assert table.current_snapshot() is None
    for accessor in (table.schema, table.spec, table.sort_order):
        with pytest.raises(InvalidRequestError, match=r"the table has no .* 42"):
            accessor(42)


def test_changed_copy_forgets_the_index_of_the_snapshots() -> None:
    table = parse_table_metadata(VERSION_2 | {"snapshots": [SNAPSHOT]})
    assert table.snapshot(9) is not None
    changed = table.replace_fields(snapshots=())
    assert changed.snapshot(9) is None
    assert isinstance(changed, TableMetadata)
