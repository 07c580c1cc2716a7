"""Footers that would end the process, or take its memory, are refused before DuckDB sees them; others pass."""

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duckicelake.errors import InvalidRequestError
from duckicelake.parquet import inlined_rows
from duckicelake.parquet.copy import open_parquet_source
from duckicelake.parquet.footer import MAX_SCHEMA_DEPTH, MAX_SCHEMA_ELEMENTS, check_footer, limit_time
from duckicelake.parquet.inlined_rows import read_position_deletes
from duckicelake.parquet.position_deletes import write_position_deletes
from duckicelake.parquet.schema import read_names
from tests.support.examples import count_examples

I32, BINARY, LIST, STRUCT = 5, 8, 9, 12


def varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*encoded, number))


def zigzag(number: int) -> bytes:
    return varint(number * 2 if number >= 0 else -2 * number - 1)


def element(name: bytes, children: int | None = None) -> bytes:
    """A schema element: a group with so many children, or a required int32."""
    kind = b"" if children is not None else bytes([0x10 | I32]) + zigzag(1)
    last = 1 if kind else 0
    group = b"" if children is None else bytes([0x10 | I32]) + zigzag(children)
    return kind + bytes([(4 - last) << 4 | BINARY]) + varint(len(name)) + name + group + b"\0"


def list_of(members: Sequence[bytes], count: int | None = None, kind: int = STRUCT) -> bytes:
    return bytes([0xF0 | kind]) + varint(len(members) if count is None else count) + b"".join(members)


def file_of(schema: bytes) -> bytes:
    footer = bytes([0x10 | I32]) + zigzag(1) + bytes([0x10 | LIST]) + schema + bytes([0x16]) + zigzag(0)
    footer += bytes([0x10 | LIST, STRUCT]) + b"\0"
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def nested(depth: int) -> bytes:
    return file_of(list_of([element(b"root", 1), *[element(b"a", 1)] * depth, element(b"x")]))


def wide(columns: int) -> bytes:
    return file_of(list_of([element(b"root", columns), *[element(b"c")] * columns]))


@pytest.mark.parametrize("act", ["check", "read_names", "parquet_source", "read_position_deletes"])
def test_schema_so_deep_that_duckdb_would_crash_is_refused_wherever_files_are_read(tmp_path: Path, act: str) -> None:
    file = tmp_path / "x.parquet"
    file.write_bytes(nested(60_000))
    acts: dict[str, Callable[[], object]] = {
        "check": lambda: check_footer(file, "x"),
        "read_names": lambda: read_names(file),
        "parquet_source": lambda: open_parquet_source(file).__enter__(),
        "read_position_deletes": lambda: read_position_deletes(file.read_bytes(), "x"),
    }
    with pytest.raises(InvalidRequestError, match=f"more than {MAX_SCHEMA_DEPTH} levels"):
        acts[act]()


def test_schema_as_deep_as_is_read(tmp_path: Path) -> None:
    file = tmp_path / "x.parquet"
    file.write_bytes(nested(MAX_SCHEMA_DEPTH - 1))
    check_footer(file, "x")
    assert len(read_names(file)) == MAX_SCHEMA_DEPTH
    file.write_bytes(nested(MAX_SCHEMA_DEPTH))
    with pytest.raises(InvalidRequestError, match="levels"):
        check_footer(file, "x")


REFUSED = {
    "nothing": (b"", "it has 0 bytes"),
    "text": (b"no Parquet, and long enough to be one", "doesn't end with PAR1"),
    "footer longer than the file": (b"PAR1" + (99).to_bytes(4, "little") + b"PAR1", "99 bytes"),
    "empty footer": (b"PAR1" + (0).to_bytes(4, "little") + b"PAR1", "damaged"),
    "no schema": (b"PAR1\0" + (1).to_bytes(4, "little") + b"PAR1", "no schema"),
    "too wide": (wide(MAX_SCHEMA_ELEMENTS), f"{MAX_SCHEMA_ELEMENTS + 1:,} elements"),
    "a list that says it is huge": (file_of(list_of([], 1 << 40)), f"{1 << 40:,} elements"),
    "fewer elements than it says": (file_of(list_of([element(b"root", 1)], 90)), "damaged"),
    "a group of countless fields": (file_of(list_of([element(b"root", 1 << 30)])), "fields"),
    "a group of negative fields": (file_of(list_of([element(b"root", -1)])), "-1 fields"),
    "a list of numbers": (file_of(list_of([zigzag(1)], kind=I32)), "isn't a list of elements"),
    "a number without end": (file_of(b"\xfc" + b"\xff" * 12), "64 bits"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_footer_that_is_none_is_refused_saying_why(tmp_path: Path, name: str) -> None:
    data, message = REFUSED[name]
    file = tmp_path / "x.parquet"
    file.write_bytes(data)
    with pytest.raises(InvalidRequestError, match=re.escape(message)):
        check_footer(file, "x")


def test_schema_may_come_after_other_fields_and_they_may_not_be_deep(tmp_path: Path) -> None:
    for depth, refused in ((3, False), (100, True)):
        schema = list_of([element(b"root", 1), element(b"x")])
        before = bytes([0x10 | STRUCT]) + bytes([0x10 | STRUCT]) * depth + b"\0" * (depth + 1)
        footer = before + bytes([0x10 | LIST]) + schema + b"\0"
        file = tmp_path / "x.parquet"
        file.write_bytes(b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1")
        if refused:
            with pytest.raises(InvalidRequestError, match="too deeply"):
                check_footer(file, "x")
        else:
            check_footer(file, "x")


def test_files_of_real_writers_pass(tmp_path: Path) -> None:
    by_arrow, by_duckdb = tmp_path / "arrow.parquet", tmp_path / "duckdb.parquet"
    schema = pa.schema([("m", pa.map_(pa.string(), pa.list_(pa.struct([("x", pa.decimal128(9, 2))])))),
                        ("t", pa.timestamp("us", "UTC"))])  # fmt: skip
    pq.write_table(pa.table({"m": [[("a", [{"x": None}])]], "t": [0]}, schema), by_arrow)
    duckdb.sql(f"COPY (SELECT [{{'a': 1}}] AS l, uuid() AS u, '1'::JSON AS j) TO '{by_duckdb}'")
    for file in (by_arrow, by_duckdb):
        check_footer(file, "x")


@settings(max_examples=count_examples(150))
@given(at=st.integers(0, 400), byte=st.integers(0, 255))
def test_spoilt_footer_passes_or_is_refused(tmp_path_factory: pytest.TempPathFactory, at: int, byte: int) -> None:
    data = bytearray(write_position_deletes([("/x", 1)]))
    data[-1 - at % len(data)] = byte
    file = tmp_path_factory.getbasetemp() / "spoilt.parquet"
    file.write_bytes(data)
    with suppress(InvalidRequestError):
        check_footer(file, "x")


def test_more_rows_than_positions_are_taken_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inlined_rows, "MAX_POSITIONS", 3)
    assert read_position_deletes(write_position_deletes([("/x", n) for n in range(3)]), "x") == {"/x": [0, 1, 2]}
    with pytest.raises(InvalidRequestError, match="has 4 rows"):
        read_position_deletes(write_position_deletes([("/x", n) for n in range(4)]), "x")


def test_duckdb_is_interrupted_in_time() -> None:
    with duckdb.connect(config={"threads": 1}) as connection:
        began = time.monotonic()
        with pytest.raises(duckdb.InterruptException), limit_time(connection, 0.2):
            connection.execute("SELECT count(DISTINCT i * j) FROM range(1000000) a(i), range(1000000) b(j)").fetchall()
        assert time.monotonic() - began < 20
        with limit_time(connection, 10):
            assert connection.execute("SELECT 1").fetchall() == [(1,)]
