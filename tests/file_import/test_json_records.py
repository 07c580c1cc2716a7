"""JSON records that DuckDB parses at once, beside the scan that knows the line of each: the same rows and flaws."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from duckicelake.errors import BadSourceError
from duckicelake.file_import.bad_rows import KeyRule, build_good_rows, check_rows
from duckicelake.file_import.column_types import build_schema, parse_schema
from duckicelake.file_import.file_columns import find_columns
from duckicelake.file_import.roots import Roots
from duckicelake.file_import.source_files import fetch_files, find_files
from duckicelake.file_import.source_rows import read_groups

GOOD = (
    b'{"a": 1, "b": "x"}',
    b'{"a": -2, "b": "\\u00e9\\n\\"", "c": 1.5}',
    b'{"c": 1e5, "a": null}',
    b"{}",
    b'{"c": 3, "b": ""}',
    b'{"d": true, "e": {"x": 1, "y": [1, 2]}}',
    b'{"e": {"y": []}, "f": [{"g": "z"}, null]}',
    b'{"b": "2026-01-01T00:00:00", "h": "  7 "}',
    b'  {"h": "8"}  ',
    b'{"A b": 0.1, "i/~j": "k"}',
    b'{"n": null}',
)
FLAT = (
    b'{"a": 1, "b": "x", "c": 1.5, "d": true, "i/~j": 1, "A b": 2}',
    b'{"a": -2, "b": "\\u00e9\\n\\"", "c": 7}',
    b'{"b": "", "c": -1e5, "a": null, "d": null}',
    b"{}",
    b'  {"d": false, "b": " 8 ", "A b": 9223372036854775807}  ',
)
ODD = (
    b'{"a": 9223372036854775807}',
    b'{"a": -9223372036854775809}',
    b'{"z": null}',
    b'{"A": 1}',
    b'{"a": 9223372036854775808}',
    b'{"a": 12345678901234567890123}',
    b'{"a": "text"}',
    b'{"a": 1.5}',
    b'{"a": [1]}',
    b'{"e": 5}',
    b'{"b": {"x": 1}}',
    b'{"c": 1e400}',
    b'{"c": -0.0}',
    b'{"d": "true"}',
    b"[1]",
    b"5",
    b"null",
    b'"text"',
    b"{",
    b'{"a": 1} trailing',
    b'{"a": 1}{"a": 2}',
    b'{"a": 1} {"a": 2}',
    b"{'a': 1}",
    b'{"a": NaN}',
    b'{"a": 1, "a": 2}',
    b'{"a": 1,}',
    b'{"b": "\xff"}',
    b'{"b": "\\u0000"}',
    b'{"b": "\\ud800"}',
    b"",
    b"   ",
    b'{"a":',
    b"1}",
    b'{"z": 1, "y": 2, "a": 3}',
)
WANTED = (
    "a long, b string, c double, d boolean, e string",
    "a int, b timestamp, c decimal(9, 2), h long, e struct<x: long>",
)


class Read:
    """What came of reading a file: its columns, the numbers of rows, the bad rows, and the good ones."""

    def __init__(self, file: Path, schema: str | None, *, is_quick: bool) -> None:
        found, kind = find_files([str(file)], "json")
        with duckdb.connect(config={"preserve_insertion_order": "false"}) as duck:
            duck.execute("SET TimeZone = 'UTC'")
            (group,) = read_groups(duck, fetch_files(found, file.parent, Roots()), kind, {})
            group, columns = find_columns(duck, group if is_quick else replace(group, quick=None), {})
            self.has_quick = group.quick is not None
            self.columns = [(name, str(type_)) for name, type_ in columns.items()]
            fields = (build_schema(columns) if schema is None else parse_schema(schema)).fields
            check = check_rows(duck, [group], fields)
            self.counts = (check.good, check.bad)
            self.bad = duck.execute("FROM bad_rows ORDER BY ALL").fetchall()
            (read,) = check.groups
            self.is_uniform = bool(read.rows)
            self.is_clean = read.is_clean
            self.rows = repr(
                duck.execute(f"SELECT * FROM ({build_good_rows(read, fields, KeyRule())}) ORDER BY ALL").fetchall()
            )


def compare(file: Path, lines: Sequence[bytes], schema: str | None, end: bytes = b"\n") -> Read | None:
    """Compare both ways; return the quick one, None if both refuse the file."""
    file.write_bytes(end.join([*lines, b""]))
    found: list[Any] = []
    for is_quick in (True, False):
        try:
            found.append(Read(file, schema, is_quick=is_quick))
        except (duckdb.Error, BadSourceError) as error:
            found.append(str(error).split("\n", 1)[0])
    quick, exact = found
    if isinstance(exact, str):
        assert quick == exact, lines
        return None
    assert isinstance(quick, Read), (quick, lines)
    named = [vars(one) | {"has_quick": None, "is_uniform": None} for one in found]
    assert named[0] == named[1], lines
    return quick


@pytest.mark.parametrize("schema", [None, *WANTED], ids=["found", "given", "narrow"])
@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_one_odd_line(tmp_path: Path, odd: bytes, schema: str | None) -> None:
    compare(tmp_path / "rows.jsonl", [*GOOD[:3], odd, *GOOD[3:]], schema)


@pytest.mark.parametrize("odd", ODD, ids=repr)
def test_one_odd_line_behind_those_that_are_looked_at_first(tmp_path: Path, odd: bytes) -> None:
    compare(tmp_path / "rows.jsonl", [*FLAT * 450, odd], None)


@pytest.mark.parametrize("schema", [None, *WANTED], ids=["found", "given", "narrow"])
def test_random_lines(tmp_path: Path, schema: str | None) -> None:
    chance = random.Random(11)
    clean = 0
    for _ in range(15):
        lines = chance.choices(GOOD, k=chance.randint(1, 8)) + chance.choices(ODD, k=chance.choice([0, 0, 1, 2]))
        chance.shuffle(lines)
        read = compare(tmp_path / "rows.jsonl", lines, schema)
        clean += read is not None and read.has_quick and read.is_clean
    assert clean > 3


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    "first", [[GOOD[0]], [b"\xef\xbb\xbf" + GOOD[0]], [b"", b"", GOOD[0]]], ids=["nothing", "a mark", "empty lines"]
)
def test_ends_and_beginnings(tmp_path: Path, first: list[bytes], end: bytes) -> None:
    read = compare(tmp_path / "rows.jsonl", [*first, *GOOD[1:]], None, end)
    assert read is not None
    assert read.counts == (len(GOOD), 0)


def test_flat_records_are_counted_with_their_types(tmp_path: Path) -> None:
    read = compare(tmp_path / "rows.jsonl", FLAT * 3, None)
    assert read is not None
    assert (read.counts, read.is_uniform) == ((3 * len(FLAT), 0), True)
    types = {"a": "long", "b": "string", "c": "double", "d": "boolean", "i/~j": "long", "A b": "long"}
    assert dict(read.columns) == types


@pytest.mark.parametrize("beside", [b"{}", b'{"e": {}}'], ids=["flat", "nested"])
def test_integers_below_and_above_zero_are_longs(tmp_path: Path, beside: bytes) -> None:
    """DuckDB's structure of them is a HUGEINT."""
    read = compare(tmp_path / "rows.jsonl", [b'{"a": -1}', b'{"a": 9223372036854775807}', beside], None)
    assert read is not None
    assert (read.columns[0], read.counts) == (("a", "long"), (3, 0))


def test_the_columns_of_most_records_come_first(tmp_path: Path) -> None:
    lines = [b'{"z": 1}', *[b'{"b": 1, "c": 1}'] * 2, b'{"a": 1}']
    read = compare(tmp_path / "rows.jsonl", lines, None)
    assert read is not None
    assert [name for name, _ in read.columns] == ["b", "c", "a", "z"]
