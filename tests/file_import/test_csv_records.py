"""Records of CSV that are checked as their types are found, beside the check by itself: the same rows and flaws."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from duckicelake.file_import.bad_rows import KeyRule, build_good_rows, check_rows
from duckicelake.file_import.column_types import build_schema, parse_schema
from duckicelake.file_import.file_columns import find_columns
from duckicelake.file_import.roots import Roots
from duckicelake.file_import.source_files import fetch_files, find_files
from duckicelake.file_import.source_rows import read_groups

HEADER = b"n,d,day,at,ok,text"
GOOD = (
    b"1,1.5,2026-01-01,2026-01-01 10:00:00,true,x",
    b' -2 , 1e5,2026-02-03,2026-01-01T10:00:00.5,FALSE,"a, ""b"""',
    b",,,,,",
    b'0,-7,9999-12-31,1970-01-01 00:00:00,True,"two\nlines"',
)
ODD = (
    b"1.5,1,2026-01-01,2026-01-01 10:00:00,true,x",
    b"007,1,2026-01-01,2026-01-01 10:00:00,true,x",
    b"9223372036854775808,1,2026-01-01,2026-01-01 10:00:00,true,x",
    b"1,nan,2026-02-30,25:00,yes,x",
    b"1,1,2026-01-01 10:00:00,2026-01-01,1,x",
    b"1,2,2026-01-01",
    b"1,2,2026-01-01,2026-01-01 10:00:00,true,x,more",
    b"1,2,2026-01-01,2026-01-01 10:00:00,true,\xff",
    b"\xff,2,2026-01-01,2026-01-01 10:00:00,true,x",
    b'1,2,2026-01-01,2026-01-01 10:00:00,true,"x" y',
    b"   ,  ,  ,  ,  ,  ",
    b"",
)


class Read:
    """What came of reading files: their columns, the numbers of rows, the bad rows, and the good ones."""

    def __init__(self, folder: Path, schema: str | None, *, is_counted: bool) -> None:
        found, kind = find_files([str(folder)], "csv")
        with duckdb.connect(config={"preserve_insertion_order": "false"}) as duck:
            duck.execute("SET TimeZone = 'UTC'")
            (group,) = read_groups(duck, fetch_files(found, folder, Roots()), kind, {})
            group, columns = find_columns(duck, group, {})
            self.is_counted = group.rows > 0
            group = group if is_counted else replace(group, rows=0)
            self.columns = [(name, str(type_)) for name, type_ in columns.items()]
            fields = (build_schema(columns) if schema is None else parse_schema(schema)).fields
            check = check_rows(duck, [group], fields)
            self.counts = (check.good, check.bad)
            self.bad = duck.execute("FROM bad_rows ORDER BY ALL").fetchall()
            (read,) = check.groups
            query = f"SELECT * FROM ({build_good_rows(read, fields, KeyRule())}) ORDER BY ALL"
            self.rows = repr(duck.execute(query).fetchall())


def compare(folder: Path, lines: list[bytes], schema: str | None = None) -> Read:
    """Compare both ways; return the one that counts rows with their types."""
    for number in range(2):
        (folder / f"{number}.csv").write_bytes(b"\n".join([HEADER, *lines[number::2], b""]))
    counted, plain = (Read(folder, schema, is_counted=is_counted) for is_counted in (True, False))
    found: list[dict[str, Any]] = [vars(counted), vars(plain)]
    assert found[0] == found[1], lines
    return counted


@pytest.mark.parametrize("schema", [None, "n int, d string, day date, at timestamp not null, ok boolean, text string"])
@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_one_odd_line(tmp_path: Path, odd: bytes, schema: str | None) -> None:
    read = compare(tmp_path, [*GOOD[:2] * 1500, odd, *GOOD], schema)
    assert sum(read.counts) >= 3004
    are_records = all(" is no " in reason or "must have" in reason for *_, reason in read.bad)
    assert read.is_counted == are_records


@pytest.mark.parametrize("columns", [1, 3, 5, 7, 9])
def test_wrong_number_of_columns_is_given_once(tmp_path: Path, columns: int) -> None:
    line = ",".join(["1", "2", "2026-01-01", "2026-01-01", "true", "x", "y", "z", "more"][:columns]).encode()
    read = compare(tmp_path, [*GOOD, line])
    assert [reason for *_, reason in read.bad] == [f"Expected Number of Columns: 6 Found: {columns}"]


def test_good_records_are_counted_with_their_types(tmp_path: Path) -> None:
    read = compare(tmp_path, [*GOOD] * 2)
    types = {"n": "long", "d": "double", "day": "date", "at": "timestamp", "ok": "boolean", "text": "string"}
    assert (read.is_counted, read.counts, dict(read.columns)) == (True, (8, 0), types)


def test_records_of_text_alone_are_checked_by_themselves(tmp_path: Path) -> None:
    read = compare(tmp_path, [b"a,b,c,d,e,f"])
    assert (read.is_counted, read.counts) == (False, (1, 0))
