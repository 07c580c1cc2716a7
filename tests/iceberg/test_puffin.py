"""Deletion vectors and the Puffin files that hold them, with Java (1.12) and PyIceberg as oracles."""

import json
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile as OracleFile
from pyroaring import BitMap64

from duckicelake.errors import InvalidRequestError
from duckicelake.iceberg.manifest.entry import (
    EntryStatus,
    FileContent,
    ManifestContent,
    ManifestFile,
    inherit_all_numbers,
)
from duckicelake.iceberg.manifest.reader import read_manifest
from duckicelake.iceberg.puffin import (
    MAX_POSITION,
    VECTOR_MAGIC,
    read_bitmap,
    read_deletion_vector,
    read_footer,
    read_vector,
    write_bitmap,
    write_deletion_vectors,
    write_vector,
)

JAVA = Path(__file__).parent / "testdata" / "java"
POSITIONS = {
    "few": frozenset({0, 5, 7, 70_000}),
    "run": frozenset(range(10, 200_000)),
    "every third": frozenset(range(0, 180_000, 3)),
    "far": frozenset({1, (3 << 32) + 9}),
}
OURS = write_deletion_vectors(POSITIONS.items())
JAVAS = (JAVA / "vectors.puffin").read_bytes()


def test_vectors_of_java_are_read_and_equal_ours_byte_for_byte() -> None:
    blobs = read_footer(JAVAS).blobs
    assert [blob.type for blob in blobs] == ["deletion-vector-v1"] * 4
    for blob in blobs:
        path = blob.properties["referenced-data-file"]
        assert read_deletion_vector(JAVAS, path, blob.offset, blob.length) == POSITIONS[path]
        if path != "far":  # Java writes the empty bitmaps in between, too
            assert write_vector(POSITIONS[path]) == JAVAS[blob.offset : blob.offset + blob.length]


def test_footer_says_what_javas_says() -> None:
    ours = {blob.properties["referenced-data-file"]: blob for blob in OURS.blobs}
    for java in read_footer(JAVAS).blobs:
        mine = ours[java.properties["referenced-data-file"]]
        assert mine.replace_fields(offset=0, length=0) == java.replace_fields(offset=0, length=0)
    assert read_footer(OURS.data).blobs == OURS.blobs


def test_java_lists_a_vector_by_what_its_footer_says() -> None:
    manifest = read_manifest((JAVA / "vectors-m1.avro").read_bytes())
    assert manifest.content is ManifestContent.DELETES
    blobs = {blob.properties["referenced-data-file"]: blob for blob in read_footer(JAVAS).blobs}
    for entry in manifest.entries:
        file = entry.data_file
        blob = blobs[file.referenced_data_file or ""]
        assert (file.content_offset, file.content_size_in_bytes) == (blob.offset, blob.length)
        assert (file.content, file.file_format) == (FileContent.POSITION_DELETES, "PUFFIN")
        assert (file.record_count, file.file_size_in_bytes) == (int(blob.properties["cardinality"]), len(JAVAS))
        assert (file.first_row_id, entry.status) == (None, EntryStatus.ADDED)


def test_row_ids_are_inherited_as_java_reads_them() -> None:
    manifest = read_manifest((JAVA / "rows-m0.avro").read_bytes())
    with_ids, without = json.loads((JAVA / "rows-m0.json").read_bytes())
    line = ManifestFile("m", 1, 0, ManifestContent.DATA, 9, 2, 7, 0, 0, 0, 0, 0, 0, first_row_id=1000)
    assert [entry.data_file.first_row_id for entry in inherit_all_numbers(manifest.entries, line)] == with_ids
    unnumbered = inherit_all_numbers(manifest.entries, replace(line, first_row_id=None))
    assert [entry.data_file.first_row_id for entry in unnumbered] == without


def test_pyiceberg_reads_our_vectors() -> None:
    theirs = deletion_vectors_from_puffin_file(OracleFile(OURS.data))
    found = {vector.referenced_data_file: frozenset(vector.to_vector().to_pylist()) for vector in theirs}
    assert found == POSITIONS


@given(st.frozensets(st.integers(0, 3 << 33) | st.integers(0, 9) | st.integers(65_530, 65_540)))
def test_positions_are_read_back(positions: frozenset[int]) -> None:
    assert read_vector(write_vector(positions)) == positions
    assert write_vector(sorted(positions, reverse=True)) == write_vector(positions)


def test_file_without_vectors_is_a_puffin_file() -> None:
    assert read_footer(write_deletion_vectors([]).data).blobs == ()


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body + zlib.crc32(body).to_bytes(4, "big")


GOOD = write_vector({1, 2, 3})
BITMAP = write_bitmap({1, 2, 3})


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (b"", "0 bytes"),
        (GOOD[:11], "11 bytes"),
        (GOOD[:-1], "its length says 38 bytes, but it has 37"),
        (GOOD + b"\0", "its length says"),
        (framed(b"PFA1" + BITMAP), "begins with 50464131"),
        (GOOD[:-1] + bytes([GOOD[-1] ^ 1]), "checksum"),
        (framed(VECTOR_MAGIC), "bitmap can't be read"),
        (framed(VECTOR_MAGIC + BITMAP[:-1]), "bitmap can't be read"),
        (framed(VECTOR_MAGIC + b"\xff" * 8), "bitmap can't be read"),
        (framed(VECTOR_MAGIC + write_bitmap([2**63])), f"position {2**63}"),
        (framed(VECTOR_MAGIC + write_bitmap([MAX_POSITION + 1])), "highest"),
    ],
)
def test_blob_that_is_no_vector_is_refused(blob: bytes, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        read_vector(blob)


def test_highest_position_is_taken() -> None:
    assert read_vector(framed(VECTOR_MAGIC + write_bitmap([MAX_POSITION]))) == {MAX_POSITION}


def test_small_blob_of_countless_positions_is_refused_before_it_is_unpacked() -> None:
    bitmap = BitMap64()
    bitmap.add_range(0, 2**36)
    bitmap.run_optimize()
    hostile = bytes(bitmap.serialize())
    assert len(hostile) < 20_000_000
    tracemalloc.start()
    with pytest.raises(InvalidRequestError, match="68719476736 positions; this server takes up to 16777216"):
        read_bitmap(hostile, 1 << 24)
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


@given(st.binary(max_size=60), st.integers(0, 40))
def test_spoilt_bitmap_is_read_or_refused(noise: bytes, at: int) -> None:
    spoilt = BITMAP[:at] + noise + BITMAP[at + len(noise) :]
    try:
        assert all(position >= 0 for position in read_bitmap(spoilt, 1000))
    except InvalidRequestError:
        return


def with_footer(change: Callable[[dict[str, Any]], None]) -> bytes:
    """Our file with another footer."""
    length = int.from_bytes(OURS.data[-12:-8], "little")
    footer = orjson.loads(OURS.data[-12 - length : -12])
    change(footer)
    text = orjson.dumps(footer)
    return OURS.data[: -12 - length] + text + len(text).to_bytes(4, "little") + bytes(4) + b"PFA1"


def blob_with(**changes: object) -> bytes:
    return with_footer(lambda footer: footer["blobs"][0].update(changes))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "isn't a Puffin file"),
        (b"PFA1" * 4, "isn't a Puffin file"),
        (b"XXXX" + OURS.data[4:], "isn't a Puffin file"),
        (OURS.data[:-1], "isn't a Puffin file"),
        (OURS.data[:-8] + b"\x01\0\0\0PFA1", "compressed"),
        (OURS.data[:-12] + b"\xff\xff\xff\xff" + OURS.data[-8:], "no magic"),
        (OURS.data[:-12] + b"\0\0\0\0" + OURS.data[-8:], "no magic"),
        (with_footer(lambda footer: footer.pop("blobs")), "blobs"),
        (blob_with(offset="x"), "offset"),
        (blob_with(offset=0), "isn't within"),
        (blob_with(length=-1), "isn't within"),
        (blob_with(length=2**40), "isn't within"),
    ],
)
def test_file_that_is_no_puffin_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        read_footer(data)


def test_footer_that_is_no_json_is_refused() -> None:
    data = b"PFA1PFA1" + b"{blobs" + (6).to_bytes(4, "little") + bytes(4) + b"PFA1"
    with pytest.raises(InvalidRequestError, match="isn't JSON"):
        read_footer(data)


FIRST = OURS.blobs[0]


@pytest.mark.parametrize(
    ("data", "path", "offset", "message"),
    [
        (OURS.data, "few", FIRST.offset + 1, "names no plain"),
        (OURS.data, "run", FIRST.offset, "is of few, but its manifest entry says run"),
        (blob_with(type="apache-datasketches-theta-v1"), "few", FIRST.offset, "names no plain"),
        (blob_with(**{"compression-codec": "zstd"}), "few", FIRST.offset, "names no plain"),
        (blob_with(properties={"referenced-data-file": "few"}), "few", FIRST.offset, "its footer says None"),
    ],
)
def test_vector_that_is_not_what_its_entry_says_is_refused(data: bytes, path: str, offset: int, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        read_deletion_vector(data, path, offset, FIRST.length)
