"""Manifests that are cut, flipped, foreign or hostile: the answer is a parse or InvalidRequestError, soon and small."""

import contextlib
import io
import random
import tracemalloc
import zlib
from collections.abc import Callable
from typing import Any

import fastavro
import orjson
import pyarrow as pa
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg import avro_decoder
from duckicelake.iceberg.avro import encode_bytes, encode_long, unpack_block
from duckicelake.iceberg.manifest import reader
from duckicelake.iceberg.manifest.entry import (
    DataFile,
    EntryStatus,
    FieldSummary,
    FileContent,
    ManifestContent,
    ManifestEntry,
    ManifestFile,
)
from duckicelake.iceberg.manifest.reader import read_manifest, read_manifest_list
from duckicelake.iceberg.manifest.schema import build_manifest_list_schema, build_manifest_schema
from duckicelake.iceberg.manifest.writer import write_manifest, write_manifest_list
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import StructType
from tests.support.examples import count_examples

TYPES = ("boolean", "double", "string", "uuid", "decimal(9, 2)", "fixed[3]", "timestamptz")
SCHEMA = Schema.model_validate(
    {
        "type": "struct",
        "fields": [
            {"id": number, "name": f"c{number}", "required": False, "type": kind}
            for number, kind in enumerate(TYPES, start=1)
        ],
    }
)
SPEC = PartitionSpec.model_validate(
    {
        "spec-id": 0,
        "fields": [
            {"source-id": number, "field-id": 999 + number, "name": f"c{number}", "transform": "identity"}
            for number in range(1, len(TYPES) + 1)
        ],
    }
)


def manifest() -> bytes:
    metrics: dict[int, int] = dict.fromkeys(range(1, 8), 1000)
    bounds = dict.fromkeys(range(1, 8), b"bound")
    file = DataFile(
        FileContent.DATA,
        "s3://b/x.parquet",
        "PARQUET",
        (None,) * len(TYPES),
        10,
        100,
        metrics,
        metrics,
        metrics,
        metrics,
        bounds,
        bounds,
        split_offsets=(4, 5000),
    )
    entries = [ManifestEntry(EntryStatus.ADDED, 7, None, None, file)] * 5
    return write_manifest(format_version=3, content=ManifestContent.DATA, schema=SCHEMA, spec=SPEC, entries=entries)


def manifest_list() -> bytes:
    summary = (FieldSummary(False, False, b"a", b"b"),) * 2
    line = ManifestFile("/m.avro", 5, 0, ManifestContent.DATA, 3, 3, 7, 1, 0, 0, 10, 0, 0, summary)
    return write_manifest_list(
        format_version=3, snapshot_id=7, parent_snapshot_id=None, sequence_number=3, manifests=[line] * 5
    )


def container(schema: Any, /, *blocks: tuple[int, bytes], codec: str = "null", **metadata: str) -> bytes:
    """A container with any schema and any declared counts."""
    header = {"avro.schema": orjson.dumps(schema).decode(), "avro.codec": codec, **metadata}
    pairs = [encode_bytes(key.encode()) + encode_bytes(value.encode()) for key, value in header.items()]
    sync = b"synchronisation!"
    parts = [b"Obj\x01", encode_long(len(pairs)), *pairs, b"\x00", sync]
    for count, data in blocks:
        parts += [encode_long(count), encode_bytes(data), sync]
    return b"".join(parts)


def uncompressed(data: bytes) -> bytes:
    """The same container with codec null, so that damage reaches the decoder."""
    opened = avro_decoder.read_container(data)
    metadata = {key: value for key, value in opened.metadata.items() if key != "avro.codec"}
    return container(opened.schema, *opened.blocks(), **metadata)


FILES: dict[str, tuple[Callable[[bytes], Any], bytes]] = {
    "manifest": (read_manifest, manifest()),
    "plain manifest": (read_manifest, uncompressed(manifest())),
    "list": (read_manifest_list, manifest_list()),
    "plain list": (read_manifest_list, uncompressed(manifest_list())),
}


@pytest.mark.parametrize("name", FILES)
def test_file_cut_anywhere_is_refused(name: str) -> None:
    read, data = FILES[name]
    assert read(data)
    header = data.index(data[-16:]) + 16
    for length in range(len(data)):
        if length == header:
            continue  # a container without blocks is whole
        with pytest.raises(InvalidRequestError, match="can't be read"):
            read(data[:length])


@pytest.mark.parametrize("name", FILES)
def test_flipped_bits_give_a_parse_or_a_refusal(name: str) -> None:
    read, data = FILES[name]
    source = random.Random(name)
    refused = 0
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << source.randrange(8)
        try:
            read(bytes(damaged))
        except InvalidRequestError:
            refused += 1
    assert refused > len(data) // 20


@settings(max_examples=count_examples(300))
@given(st.sampled_from(sorted(FILES)), st.data())
def test_spliced_bytes_give_a_parse_or_a_refusal(name: str, source: st.DataObject) -> None:
    read, data = FILES[name]
    start = source.draw(st.integers(0, len(data)))
    end = source.draw(st.integers(start, min(len(data), start + 20)))
    huge = st.sampled_from(
        [b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\xff" * 12, b"\x01", b"\x80\x80\x80\x80\x10"]
    )
    insertion = source.draw(st.binary(max_size=20) | huge)
    with contextlib.suppress(InvalidRequestError):
        assert read(data[:start] + insertion + data[end:]) is not None


ENTRY = build_manifest_schema(2, StructType(fields=()))
HUGE = 2**62


def nested(depth: int) -> Any:
    schema: Any = "int"
    for _ in range(depth):
        schema = {"type": "array", "items": schema}
    return schema


def with_field(kind: Any) -> Any:
    return {**ENTRY, "fields": [*ENTRY["fields"], {"name": "extra", "field-id": 999, "type": kind}]}


def entry_without(field_id: int) -> Any:
    return {**ENTRY, "fields": [field for field in ENTRY["fields"] if field["field-id"] != field_id]}


RECURSIVE = {"type": "record", "name": "r", "fields": [{"name": "again", "field-id": 1, "type": "r"}]}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is empty"),
        (b"PAR1 and so on", "isn't an Avro file"),
        (b"Obj\x01", "ends before"),
        (b"Obj\x01" + b"\xff" * 20, "more than 64 bits"),
        (b"Obj\x01\x00" + bytes(16), "no readable avro.schema"),
        (container("string"), "no field 0"),
        (container(build_manifest_list_schema(2)), r"no field 0 \(status\)"),
        (container(entry_without(2)), r"no field 2 \(data_file\)"),
        (container({"type": "record", "name": "x"}), "no manifest holds"),
        (container(with_field(RECURSIVE)), "no manifest holds: r"),
        (container(with_field("manifest_entry")), "no manifest holds: manifest_entry"),
        (container(with_field(nested(200))), "nested too deeply"),
        (container(with_field(["int", "string"])), "union of 2 types"),
        (container(with_field([])), "union of 0 types"),
        (container(with_field({"type": "array", "items": "null"})), "items have no bytes"),
        (container(with_field({"type": "array", "items": {"type": "fixed", "name": "f", "size": 0}})), "no manifest"),
        (container(with_field({"type": "enum", "name": "e", "symbols": ["a"]})), "enum"),
        (container(with_field(7)), "no manifest holds: 7"),
        (container({**ENTRY, "fields": [*ENTRY["fields"], ENTRY["fields"][0]]}), "two fields 0"),
        (container(ENTRY, **{"format-version": "4"}), "format version is 4"),
        (container(ENTRY, **{"format-version": "two"}), "'two', not a number"),
        (container(ENTRY, content="both"), "'both', not data or deletes"),
        (container(ENTRY, schema="{"), "schema isn't JSON"),
        (container(ENTRY, (HUGE, b"\x00" * 10)), f"it has {HUGE} records"),
        (container(ENTRY, (-1, b"")), "declares -1 records"),
        (container(ENTRY, (1, b"\x02")), "ends after its block"),
        (container(ENTRY, (0, b"\x02")), "1 bytes after its last record"),
        (container(ENTRY, (1, b"\x0a" + b"\x00" * 50)), "5 isn't a EntryStatus"),
        (container(ENTRY, (1, b"\x02\x06")), "chooses type 3 of a union of 2"),
        (
            container(ENTRY, (1, b"x"), codec="brotli"),
            "codec is 'brotli'; this server reads null, deflate, snappy and zstandard",
        ),
    ],
)
def test_what_is_no_manifest_is_refused_saying_why(data: bytes, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=f"the manifest can't be read: .*{message}"):
        read_manifest(data)


def test_manifest_is_no_manifest_list() -> None:
    with pytest.raises(InvalidRequestError, match=r"the manifest list can't be read: .*500 \(manifest_path\)"):
        read_manifest_list(manifest())


@pytest.mark.parametrize("field", [100, 101, 103, 108])
def test_field_of_another_type_is_refused(field: int) -> None:
    file = ENTRY["fields"][-1]["type"]
    fields = [{**each, "type": "boolean"} if each["field-id"] == field else each for each in file["fields"]]
    schema = {**ENTRY, "fields": [*ENTRY["fields"][:-1], {**ENTRY["fields"][-1], "type": {**file, "fields": fields}}]}
    with pytest.raises(InvalidRequestError, match=f"field {field} is a boolean"):
        read_manifest(container(schema))


def peak_of(act: Callable[[], object]) -> int:
    """Bytes that were allocated at once while acting."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "declared", [b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\xfd\xff\xff\xff\xff\xff\xff\x7f\x02"]
)
@pytest.mark.parametrize("field", ["path", "map", "list"])
def test_huge_declared_lengths_cost_nothing(field: str, declared: bytes) -> None:
    start = b"\x02\x00\x00\x00\x00"  # status, snapshot, two sequence numbers, content
    path = encode_bytes(b"/x") + encode_bytes(b"PARQUET") + encode_long(1) + encode_long(1)
    records = {
        "path": start + declared,
        "map": start + path + b"\x02" + declared,
        "list": start + path + b"\x00" * 7 + b"\x02" + declared,
    }
    data = container(ENTRY, (1, records[field] + b"\x02" * 1000))

    def read() -> None:
        with pytest.raises(InvalidRequestError):
            read_manifest(data)

    assert peak_of(read) < 4 << 20


def test_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_decoder, "MAX_UNPACKED_BYTES", 1 << 20)
    bomb = zlib.compress(bytes(50 << 20), wbits=-15)
    data = container(ENTRY, (1, bomb), codec="deflate")

    def read() -> None:
        with pytest.raises(InvalidRequestError, match="more than 1048576 bytes"):
            read_manifest(data)

    assert peak_of(read) < 8 << 20
    half = zlib.compress(bytes(600 << 10), wbits=-15)
    with pytest.raises(InvalidRequestError, match="more than 1048576 bytes"):
        list(avro_decoder.read_container(container(ENTRY, (1, half), (1, half), codec="deflate")).blocks())


def test_blocks_are_unpacked_one_after_the_other() -> None:
    packed = zlib.compress(bytes(1 << 20), wbits=-15)
    opened = avro_decoder.read_container(container(ENTRY, *[(1, packed)] * 7, codec="deflate"))

    def read() -> None:
        assert [(count, len(block)) for count, block in opened.blocks()] == [(1, 1 << 20)] * 7

    assert peak_of(read) < 4 << 20


def pack_snappy(block: bytes) -> bytes:
    return bytes(pa.Codec("snappy").compress(block)) + zlib.crc32(block).to_bytes(4)


def test_snappy_is_read_with_every_kind_of_copy() -> None:
    opened = avro_decoder.read_container(manifest())
    ((count, block),) = opened.blocks()
    metadata = {key: value for key, value in opened.metadata.items() if key != "avro.codec"}
    data = container(opened.schema, (count, pack_snappy(block)), codec="snappy", **metadata)
    assert read_manifest(data) == read_manifest(manifest())
    noise = random.Random(7).randbytes(70_000)
    for plain in (b"", b"a", b"a" * 100_000, noise, noise + b"ab" * 9 + noise[:300], noise[:61] * 3):
        assert unpack_block(pack_snappy(plain), "snappy", 1 << 20) == plain
    literal_then_far_copy = b"\x08\x0cabcd" + b"\x0f\x04\x00\x00\x00" + zlib.crc32(b"abcdabcd").to_bytes(4)
    assert unpack_block(literal_then_far_copy, "snappy", 8) == b"abcdabcd"


@pytest.mark.parametrize(
    "packed",
    [
        *(b"", b"packed", b"\x80\x80", b"\x04\x0cab" + bytes(4), b"\x04\xf0" + bytes(4)),
        *(b"\x04\x0cabce" + bytes(4), b"\x08\x0cabcd\x01\x09" + bytes(4), b"\x08\x0cabcd\x01\x00" + bytes(4)),
        b"\x01\x0cabcd" + bytes(4),
    ],
)
def test_damaged_snappy_is_refused(packed: bytes) -> None:
    with pytest.raises(InvalidRequestError, match="codec snappy"):
        unpack_block(packed, "snappy", 1 << 20)


def test_zstandard_is_read_of_one_frame_or_many() -> None:
    opened = avro_decoder.read_container(manifest())
    ((count, block),) = opened.blocks()
    metadata = {key: value for key, value in opened.metadata.items() if key != "avro.codec"}
    pack = zstandard.compress
    for packed in (pack(block), pack(block[:9]) + pack(block[9:])):
        data = container(opened.schema, (count, packed), codec="zstandard", **metadata)
        assert read_manifest(data) == read_manifest(manifest())
    for packed in (b"packed", pack(block)[:-3]):
        with pytest.raises(InvalidRequestError):
            read_manifest(container(opened.schema, (count, packed), codec="zstandard", **metadata))


@pytest.mark.parametrize("codec", ["zstandard", "snappy", "deflate"])
def test_small_file_that_unpacks_to_much_is_not_unpacked(codec: str) -> None:
    zeros = bytes(64 << 20)
    bombs = {
        "zstandard": zstandard.compress(zeros) * 3,
        "snappy": b"\xff\xff\xff\xff\x0f" + bytes(100),
        "deflate": zlib.compress(zeros, wbits=-15),
    }
    data = container(ENTRY, (1, bombs[codec]), codec=codec)
    del zeros

    def read() -> None:
        with pytest.raises(InvalidRequestError, match=r"unpacks? to"):
            read_manifest(data)

    assert peak_of(read) < 24 << 20


def test_blocks_of_one_item_each_do_not_add_up_to_more_than_is_read() -> None:
    block = b"\x02" * (8 << 20)

    def read() -> None:
        with pytest.raises(InvalidRequestError, match="list or map of 200001 items"):
            read_manifest(container(ENTRY, (1, block)))

    assert peak_of(read) < 64 << 20


def test_more_records_than_are_read_are_refused_before_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = avro_decoder.read_container(manifest())
    ((count, block),) = opened.blocks()
    with pytest.raises(InvalidRequestError, match="records; this server reads up to"):
        read_manifest(container(opened.schema, *[(count, block)] * (1 + reader.MAX_RECORDS // count)))
    monkeypatch.setattr(reader, "MAX_ITEMS", 1)
    with pytest.raises(InvalidRequestError, match="more than 1 metrics"):
        read_manifest(manifest())


def test_fields_of_a_later_version_and_missing_optional_ones_are_fine() -> None:
    opened = avro_decoder.read_container(manifest())
    rows: list[Any] = list(fastavro.reader(io.BytesIO(manifest())))
    schema = {**opened.schema, "fields": [{"name": "new", "field-id": 147, "type": ["null", "long"]}]}
    schema["fields"] += [field for field in opened.schema["fields"] if field["field-id"] not in {3, 4}]
    output = io.BytesIO()
    fastavro.writer(output, schema, [{**row, "new": 5} for row in rows], codec="null")
    assert read_manifest(output.getvalue()).entries == read_manifest(manifest()).entries
