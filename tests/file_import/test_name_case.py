"""Columns, fields and keys of JSON are matched regardless of case, and need a name, in files of all formats."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest

from tests.file_import.conftest import Loads

pytestmark = pytest.mark.commands

COLUMNS = "id long, s struct<a: long, b: string>, l list<struct<a: long>>, m map<string, struct<a: long>>"
PART = pa.struct([("A", pa.int64())])
ARROW = pa.schema(
    [
        ("ID", pa.int64()),
        ("S", pa.struct([("B", pa.string()), ("A", pa.int64())])),
        ("L", pa.list_(PART)),
        ("M", pa.map_(pa.string(), PART)),
    ]
)
RECORDS: list[dict[str, Any]] = [
    {"ID": 1, "S": {"B": "x", "A": 1}, "L": [{"A": 2}, {"A": 3}], "M": {"K": {"A": 4}}},
    {"ID": 2, "S": {"B": "y", "A": None}, "L": [], "M": {}},
]
READ = [
    (1, {"a": 1, "b": "x"}, [{"a": 2}, {"a": 3}], {"K": {"a": 4}}),
    (2, {"a": None, "b": "y"}, [], {}),
]


def record(name: str, *fields: tuple[str, Any]) -> dict[str, Any]:
    """Return the Avro schema of a record."""
    return {"type": "record", "name": name, "fields": [{"name": field, "type": type_} for field, type_ in fields]}


def optional(type_: str) -> list[str]:
    return ["null", type_]


AVRO = record(
    "row",
    ("ID", "long"),
    ("S", record("s", ("B", optional("string")), ("A", optional("long")))),
    ("L", {"type": "array", "items": record("l", ("A", optional("long")))}),
    ("M", {"type": "map", "values": record("m", ("A", optional("long")))}),
)


def to_arrow(records: list[dict[str, Any]], schema: pa.Schema) -> pa.Table:
    return pa.Table.from_pylist(
        [{**row, "M": list(row["M"].items())} if "M" in row else row for row in records], schema
    )


def write_json(path: Path, records: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in records))


def write_parquet(path: Path, records: list[dict[str, Any]], schema: pa.Schema = ARROW) -> None:
    pq.write_table(to_arrow(records, schema), path)


def write_arrow(path: Path, records: list[dict[str, Any]], schema: pa.Schema = ARROW) -> None:
    table = to_arrow(records, schema)
    with ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table)


def write_avro(path: Path, records: list[dict[str, Any]], schema: dict[str, Any] = AVRO) -> None:
    with path.open("wb") as stream:
        fastavro.writer(stream, schema, records)


def make_table(loads: Loads, table: str, columns: str = COLUMNS) -> None:
    file = loads.file("none.jsonl", "")
    loads.run(file, "--table", table, "--schema", columns, "--yes")


@pytest.mark.parametrize(
    ("name", "write"),
    [("a.jsonl", write_json), ("a.parquet", write_parquet), ("a.arrow", write_arrow), ("a.avro", write_avro)],
)
def test_names_of_other_case_are_the_table_s(
    loads: Loads, table: str, name: str, write: Callable[[Path, list[dict[str, Any]]], None]
) -> None:
    make_table(loads, table)
    path = loads.new_folder() / name
    write(path, RECORDS)
    made = loads.run(str(path), "--table", table, "--evolve", "strict")
    assert (made["rows"], made["quarantined"]) == (2, 0)
    assert loads.rows(f"SELECT id, s, l, m FROM lake.{table} ORDER BY id") == READ


def test_json_in_csv_is_matched_as_json_is(loads: Loads, table: str) -> None:
    make_table(loads, table)
    rows = "".join("|".join([str(row["ID"]), *(json.dumps(row[name]) for name in "SLM")]) + "\n" for row in RECORDS)
    file = loads.file("a.csv", "ID|S|L|M\n" + rows + '3|{"a": 1, "A": 2}||\n4|{"z": 1}||\n5|{"z": null}||\n')
    made = loads.run(file, "--table", table, "--option", "quote=")
    assert (made["rows"], made["quarantined"]) == (3, 2)
    assert loads.rows(f"SELECT id, s, l, m FROM lake.{table} WHERE id < 3 ORDER BY id") == READ


@pytest.mark.parametrize("broken", ["", "no JSON\n"], ids=["parsed at once", "by lines"])
@pytest.mark.parametrize("beside", ["", '{"id": 9, "S": 5}\n'], ids=["known keys", "unknown keys"])
def test_two_keys_of_a_name_are_a_bad_record(loads: Loads, table: str, beside: str, broken: str) -> None:
    make_table(loads, table)
    bad = ['{"id": 1, "ID": 2}', '{"id": 3, "s": {"a": 1, "A": 2}}', '{"id": 4, "s": {"a": 1}, "S": {"a": 1}}']
    bad += ['{"id": 5, "l": [{"A": 1, "a": 1}]}', '{"id": 6, "m": {"k": {"A": 1, "a": 1}}}']
    good = [
        '{"Id": 7, "S": {"A": 7}, "L": [{"A": 7}]}',
        '{"iD": 8, "s": {"a": 8}, "m": {"k": {"a": 8}, "K": {"A": 9}}}',
    ]
    file = loads.file("a.jsonl", "\n".join([*bad, *good, ""]) + beside + broken)
    made = loads.run(file, "--table", table)
    assert (made["rows"], made["quarantined"]) == (2, len(bad) + len((beside + broken).splitlines()))
    assert loads.rows(f"SELECT id, s.a, l, m FROM lake.{table} ORDER BY id") == [
        (7, 7, [{"a": 7}], None),
        (8, 8, None, {"k": {"a": 8}, "K": {"a": 9}}),
    ]
    reasons = dict(loads.rows(f"SELECT record, reason FROM lake.{table}_quarantine"))
    assert reasons[bad[0]].endswith("more than one key is id, regardless of case")
    assert "s is no struct" in reasons[bad[1]]


def test_names_that_differ_by_case_alone_in_one_file_are_refused(loads: Loads, table: str) -> None:
    twice = pa.struct([("a", pa.int64()), ("A", pa.int64())])
    flat = pa.schema([("id", pa.int64()), ("ID", pa.int64())])
    nested = pa.schema([("id", pa.int64()), ("s", twice)])
    deep = pa.schema([("id", pa.int64()), ("l", pa.list_(pa.map_(pa.string(), twice)))])
    folder = loads.new_folder()
    for schema in (flat, nested, deep):
        write_parquet(folder / "a.parquet", [], schema)
        write_arrow(folder / "a.arrow", [], schema)
        for name in ("a.parquet", "a.arrow"):
            assert "there twice" in loads.run(str(folder / name), "--table", table, "--yes", code=2)["message"], schema
    pair = (("a", "long"), ("A", "long"))
    inner = record("s", *pair)
    for type_ in (inner, {"type": "array", "items": ["null", inner]}, {"type": "map", "values": inner}):
        write_avro(folder / "a.avro", [], record("r", ("c", type_)))
        assert "there twice" in loads.run(str(folder / "a.avro"), "--table", table, "--yes", code=2)["message"]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_a_field_that_a_struct_lacks_is_added_as_a_column_is(loads: Loads, table: str, name: str) -> None:
    make_table(loads, table)
    row = {"ID": 1, "S": {"A": 1, "C": 5, "D": {"x": "y"}}, "L": [{"A": 1, "C": 6}]}
    path = loads.new_folder() / name
    if name == "a.jsonl":
        write_json(path, [row])
    else:
        pq.write_table(pa.Table.from_pylist([row]), path)
    refused = loads.run(str(path), "--table", table, "--evolve", "strict", code=2)["message"]
    for added in ("new s.C long", "new s.D struct", "new l.element.C long"):
        assert added in refused
    assert "s.C, s.D" in loads.run(str(path), "--table", table, "--schema", COLUMNS, "--yes", code=2)["message"]
    made = loads.run(str(path), "--table", table, "--yes")
    assert (made["rows"], made["quarantined"]) == (1, 0)
    assert loads.rows(f"SELECT s, l FROM lake.{table}") == [
        ({"a": 1, "b": None, "C": 5, "D": {"x": "y"}}, [{"a": 1, "C": 6}])
    ]


def test_parquet_widens_fields_of_structs(loads: Loads, table: str) -> None:
    make_table(loads, table, "id long, s struct<a: int>")
    path = loads.new_folder() / "a.parquet"
    pq.write_table(pa.table({"id": [1], "s": [{"A": 1 << 40}]}), path)
    assert "s.a to long" in loads.run(str(path), "--table", table, "--evolve", "strict", code=2)["message"]
    loads.run(str(path), "--table", table, "--yes")
    assert loads.rows(f"SELECT s FROM lake.{table}") == [({"a": 1 << 40},)]


def test_files_of_other_fields_make_a_table_with_all_of_them(loads: Loads, table: str) -> None:
    folder = loads.new_folder()
    rows = [{"id": 1, "s": {"a": 1}}, {"ID": 2, "S": {"A": 2.5, "b": "x"}}, {"id": 3, "s": {"a": 3}}]
    write_json(folder / "a.jsonl", rows)
    loads.run(str(folder / "a.jsonl"), "--table", table, "--yes")
    assert loads.rows(f"SELECT * FROM lake.{table} ORDER BY 1") == [
        (1, {"a": 1.0, "b": None}),
        (2, {"a": 2.5, "b": "x"}),
        (3, {"a": 3.0, "b": None}),
    ]
    for name, row in (("a", {"id": 1, "s": {"a": 1}}), ("b", {"id": 2, "s": {"b": "x"}})):
        pq.write_table(pa.Table.from_pylist([row]), folder / f"{name}.parquet")
    loads.run(str(folder / "*.parquet"), "--table", f"{table}p", "--yes")
    assert loads.rows(f"SELECT * FROM lake.{table}p ORDER BY 1") == [
        (1, {"a": 1, "b": None}),
        (2, {"a": None, "b": "x"}),
    ]


@pytest.mark.parametrize("broken", ["", "no JSON\n"], ids=["parsed at once", "by lines"])
@pytest.mark.parametrize(
    ("record", "place"),
    [
        ('{"": 1, "b": 2}', ""),
        ('{"": {"x": 1}}', ""),
        ('{"s": {"a": 1, "": 2}}', " in s"),
        ('{"l": [{"t": {"": 1}}]}', " in l.element.t"),
    ],
)
def test_empty_keys_of_json_are_named_with_their_file(
    loads: Loads, table: str, record: str, place: str, broken: str
) -> None:
    folder = loads.new_folder()
    for name, text in (("a", '{"b": 1, "s": {"a": 0}, "l": [{"t": {"x": "\\"\\":"}}]}\n'), ("b", f"{record}\n")):
        (folder / f"{name}.jsonl").write_text(text + broken)
    refused = loads.run(str(folder), "--table", table, "--yes", code=2)["message"]
    assert f'{folder}/b.jsonl has an empty key (""){place}: no' in refused
    assert not loads.has(table)


def test_empty_keys_of_maps_and_texts_are_kept(loads: Loads, table: str) -> None:
    make_table(loads, table, "m map<string, long>, s string")
    made = loads.run(loads.file("a.jsonl", '{"m": {"": 1, "k": 2}, "s": {"": 3}}\n'), "--table", table)
    assert (made["rows"], made["quarantined"]) == (1, 0)
    assert loads.rows(f"SELECT * FROM lake.{table}") == [({"": 1, "k": 2}, '{"":3}')]


def test_empty_names_of_typed_files_are_refused(loads: Loads, table: str) -> None:
    inner = pa.struct([("a", pa.int64()), ("", pa.int64())])
    folder = loads.new_folder()
    for type_, place in ((pa.int64(), ": column 2"), (pa.list_(inner), ", b"), (inner, ", b: column 2")):
        schema = pa.schema([("a", pa.int64()), ("b" if type_ != pa.int64() else "", type_)])
        write_parquet(folder / "a.parquet", [], schema)
        write_arrow(folder / "a.arrow", [], schema)
        for name in ("a.parquet", "a.arrow"):
            refused = loads.run(str(folder / name), "--table", table, "--yes", code=2)["message"]
            assert f"{name}{place}" in refused, refused
            assert "has no name" in refused
    of_list = pa.table({"l": [[1, 2]]}, pa.schema([("l", pa.list_(pa.field("", pa.int64())))]))
    pq.write_table(of_list, folder / "l.parquet", use_compliant_nested_type=False)
    loads.run(str(folder / "l.parquet"), "--table", table, "--yes")
    assert loads.rows(f"SELECT * FROM lake.{table}") == [([1, 2],)]
