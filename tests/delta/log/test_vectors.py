"""Deletion vectors as Delta stores them, with DuckDB's delta extension as oracle."""

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote
from uuid import UUID

import duckdb
import pytest
from duckdb_extensions import import_extension
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from duckicelake.delta.log import vectors as z85
from duckicelake.delta.log.actions import DeletionVector
from duckicelake.delta.log.vectors import NATIVE_MAGIC, PORTABLE_MAGIC, decode_positions, locate_vector_file
from duckicelake.errors import DamagedLogError
from tests.delta.logs import HandMade, metadata, protocol

NAME = UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
POSITIONS = st.sets(st.integers(0, 100) | st.integers(0, 2**20) | st.integers(0, 2**34), max_size=50)


def portable(positions: set[int]) -> bytes:
    return PORTABLE_MAGIC.to_bytes(4, "little") + bytes(BitMap64(positions).serialize())


def native(positions: set[int], order: Literal["little", "big"] = "little") -> bytes:
    uppers = range(max(positions, default=-1) // 2**32 + 1)
    maps = [bytes(BitMap([each % 2**32 for each in positions if each >> 32 == upper]).serialize()) for upper in uppers]
    parts = [len(data).to_bytes(4, order) + data for data in maps]
    return NATIVE_MAGIC.to_bytes(4, order) + len(maps).to_bytes(4, order) + b"".join(parts)


def in_file(*vectors: bytes) -> bytes:
    framed = (len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big") for data in vectors)
    return b"\x01" + b"".join(framed)


def inline(data: bytes, count: int) -> DeletionVector:
    return DeletionVector("i", z85.encode_z85(data), len(data), count)


def numbers(bitmap: bytes) -> set[int]:
    return set(BitMap64.deserialize(bitmap))


@given(st.binary(max_size=40))
def test_z85_gives_back_what_it_was_given(data: bytes) -> None:
    assert z85.decode_z85(z85.encode_z85(data))[: len(data)] == data


@pytest.mark.parametrize("text", ["abcd", "abcde~", "abcd\u00e4", "abc\\d"])
def test_what_is_not_z85_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Invalid Z85|ascii"):
        z85.decode_z85(text)


@given(POSITIONS)
def test_both_formats_hold_the_same(positions: set[int]) -> None:
    for data in (portable(positions), native(positions), native(positions, "big")):
        bitmap = decode_positions(inline(data, len(positions)), None)
        assert numbers(bitmap) == positions
        assert bitmap == decode_positions(inline(portable(positions), len(positions)), None)


@given(POSITIONS, POSITIONS)
def test_each_vector_of_a_file_is_found_at_its_offset(one: set[int], other: set[int]) -> None:
    first, second = portable(one), native(other)
    stored = in_file(first, second)
    at_start = DeletionVector("u", "", len(first), len(one))
    assert (
        numbers(decode_positions(at_start, stored))
        == numbers(decode_positions(replace(at_start, offset=1), stored))
        == one
    )
    behind = DeletionVector("u", "", len(second), len(other), 1 + 8 + len(first))
    assert numbers(decode_positions(behind, stored)) == other


def test_examples_of_the_protocol_are_read() -> None:
    text = "ab^-aqEH.-t@S}K{vb[*k^"
    assert locate_vector_file("s3://t", DeletionVector("u", text, 40, 6, 4)) == f"s3://t/ab/deletion_vector_{NAME}.bin"
    assert locate_vector_file("/t/", DeletionVector("u", text[2:], 40, 6, 4)) == f"/t/deletion_vector_{NAME}.bin"
    absolute = DeletionVector("p", f"s3://t/x%20y/deletion_vector_{NAME}.bin", 40, 6, 4)
    assert locate_vector_file("s3://other", absolute) == f"s3://t/x y/deletion_vector_{NAME}.bin"
    written = DeletionVector("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 40, 6)
    assert numbers(decode_positions(written, None)) == {3, 4, 7, 11, 18, 29}


GOOD = portable({1, 5})


@pytest.mark.parametrize(
    ("vector", "stored", "why"),
    [
        (DeletionVector("u", "", len(GOOD), 2, 1), b"\x02" + in_file(GOOD)[1:], "format version 02"),
        (DeletionVector("u", "", len(GOOD), 2, 1), b"", "of an empty one"),
        (DeletionVector("u", "", len(GOOD), 2, 1), in_file(GOOD)[:-5], "its file ends after"),
        (DeletionVector("u", "", len(GOOD), 2, 10**9), in_file(GOOD), "its file ends after"),
        (DeletionVector("u", "", len(GOOD), 2, -5), in_file(GOOD), "its file ends after"),
        (DeletionVector("u", "", len(GOOD) - 4, 2, 1), in_file(GOOD), f"has {len(GOOD)} bytes, but the log says"),
        (DeletionVector("u", "", len(GOOD), 2, 1), in_file(GOOD)[:-1] + b"\x00", "checksum"),
        (DeletionVector("u", "", len(GOOD), 3, 1), in_file(GOOD), "holds 2 positions, but the log says 3"),
        (inline(b"\x00" * 8, 0), None, "magic number 0"),
        (inline(GOOD[:-4], 2), None, "(?i)deserializ"),
        (inline(native({1, 2**33})[:-8], 2), None, "its bitmap 2 of 3 is cut off"),
        (DeletionVector("i", z85.encode_z85(GOOD), 3, 2), None, "bytes with padding, but the log says 3"),
    ],
)
def test_damaged_vector_is_refused(vector: DeletionVector, stored: bytes | None, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        decode_positions(vector, stored)


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    import_extension("delta")
    connection = duckdb.connect()
    connection.execute("LOAD delta")
    return connection


def described(vector: DeletionVector) -> dict[str, Any]:
    row = {"storageType": vector.storage, "pathOrInlineDv": vector.path_or_inline, "sizeInBytes": vector.size_in_bytes}
    return row | {"cardinality": vector.cardinality} | ({} if vector.offset is None else {"offset": vector.offset})


def test_vectors_of_a_table_delete_what_duckdb_says(tmp_path: Path, duck: duckdb.DuckDBPyConnection) -> None:
    table = HandMade(tmp_path / "t")
    adds = [table.rows(f"{number}.parquet", number * 100, 100) for number in range(3)]
    table.commit(0, protocol(3, 7, ["deletionVectors"]), metadata(), *adds)
    one, two = portable({0, 99}), portable(set(range(10, 60)))
    (table.folder / "ab").mkdir()
    (table.folder / "ab" / f"deletion_vector_{NAME}.bin").write_bytes(in_file(one, two))
    elsewhere = tmp_path / "a b.bin"
    elsewhere.write_bytes(in_file(two))
    vectors = [
        DeletionVector("u", "ab" + z85.encode_z85(NAME.bytes), len(two), 50, 1 + 8 + len(one)),
        DeletionVector("p", quote(f"file://{elsewhere}", safe="/:"), len(two), 50, 1),
        inline(one, 2),
    ]
    for row, vector in zip(adds, vectors, strict=True):
        row["add"]["deletionVector"] = described(vector)
    table.commit(1, *({"remove": {"path": f"{n}.parquet", "dataChange": True}} for n in range(3)), *adds)
    log, kept = table.log, set()
    for number, add in enumerate(log.snapshot().files.values()):
        assert add.deletion_vector == vectors[number]
        deleted = numbers(log.positions(vectors[number], add.path))
        kept |= {number * 100 + row for row in range(100) if row not in deleted}
    assert kept == {row[0] for row in duck.execute("SELECT id FROM delta_scan(?)", [str(table.folder)]).fetchall()}
    (table.folder / "ab" / f"deletion_vector_{NAME}.bin").unlink()
    with pytest.raises(
        DamagedLogError, match=rf"vector of 0\.parquet .* at \d+ in .*{NAME}\.bin, can't be read: .*exist"
    ):
        table.log.positions(vectors[0], "0.parquet")
