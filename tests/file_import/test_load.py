"""`duckicelake load`: files into tables of a real server, good ones and wrong ones; DuckDB reads what came of it."""

import gzip
import io
import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.ipc as ipc
import pyarrow.parquet as pq
import pytest
import zstandard

from tests.file_import.conftest import Content, Loads
from tests.file_import.killed_watch import LOAD_STEPS
from tests.support.commands import invoke

pytestmark = pytest.mark.commands
compress = partial(gzip.compress, mtime=0)
"""Without the time, so that each process of a run names the cases alike."""


def test_types_are_those_of_all_rows(loads: Loads, table: str) -> None:
    rows = [f"{n},{n}.5,2026-01-01,2026-01-01 10:00:00,true,0{n},{n}" for n in range(5000)]
    rows.append('6,1,2026-01-02,,false,1,"late, text"')
    file = loads.file("a.csv", "i,d,day,at,flag,zip,text\n" + "\n".join(rows) + "\n")
    made = loads.run(file, "--table", table, "--yes")
    assert (made["rows"], made["quarantined"]) == (5001, 0)
    described = dict(loads.rows(f"SELECT column_name, column_type FROM (DESCRIBE lake.{table})"))
    types = {"i": "BIGINT", "d": "DOUBLE", "day": "DATE", "at": "TIMESTAMP", "flag": "BOOLEAN"}
    assert described == types | {"zip": "VARCHAR", "text": "VARCHAR"}
    assert loads.rows(f"SELECT zip FROM lake.{table} WHERE i = 17") == [("017",)]


def test_bad_rows_go_to_quarantine_with_file_and_line(loads: Loads, table: str) -> None:
    file = loads.file("a.csv", 'id,x\n1,a\nx,b\n3,c,d\n4,"two\nlines"\n1.5,e\n')
    made = loads.run(file, "--table", table, "--schema", "id long, x string", "--yes")
    assert (made["rows"], made["quarantined"]) == (2, 3)
    found = loads.rows(f"SELECT source, split_part(reason, ':', 1), reason FROM lake.{table}_quarantine ORDER BY ALL")
    assert [(source, line) for source, line, _ in found] == [(file, "line 3"), (file, "line 4"), (file, "line 7")]
    assert "id is no long: x" in found[0][2]
    assert loads.rows(f"SELECT id, x FROM lake.{table} ORDER BY id") == [(1, "a"), (4, "two\nlines")]


def test_a_run_is_loaded_once(loads: Loads, table: str) -> None:
    file = loads.file("a.csv", "id\n1\n2\n")
    assert loads.run(file, "--table", table, "--yes", "--run-id", "r")["result"] == "done"
    assert loads.run(file, "--table", table, "--run-id", "r")["result"] == "unchanged"
    Path(file).write_text("id\n3\n")
    assert "other content" in loads.run(file, "--table", table, "--run-id", "r", code=2)["message"]
    assert loads.rows(f"SELECT count(*) FROM lake.{table}") == [(2,)]


def test_two_at_once_load_once(loads: Loads, table: str) -> None:
    file = loads.file("a.csv", "id\n" + "\n".join(map(str, range(1000))))
    with ThreadPoolExecutor(2) as pool:
        command = ("load", file, "--table", table, "--yes", "--run-id", "both", "--uri", loads.lake.uri)
        codes = {one.exit_code for one in pool.map(lambda _: invoke(*command), range(2))}
    assert codes == {0}
    assert loads.rows(f"SELECT count(*) FROM lake.{table}") == [(1000,)]


def write_parquet(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink)
    return bytes(sink.getvalue())


def write_arrow(rows: pa.Table, *, is_stream: bool) -> bytes:
    sink = pa.BufferOutputStream()
    with (ipc.new_stream if is_stream else ipc.new_file)(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


TYPED = pa.table(
    {
        "id": pa.array([1, 2], pa.int32()),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
        "tags": pa.array([["a", "b"], []], pa.list_(pa.string())),
        "at": pa.array([{"x": 1.5, "y": 2.5}, None], pa.struct([("x", pa.float64()), ("y", pa.float64())])),
    }
)


def write_avro(codec: str, **types: Any) -> bytes:
    """Write the rows of TYPED, with these columns."""
    fields = [{"name": name, "type": kind} for name, kind in types.items()]
    sink = io.BytesIO()
    schema = fastavro.parse_schema({"type": "record", "name": "row", "fields": fields})
    fastavro.writer(sink, schema, TYPED.to_pylist(), codec=codec)
    return sink.getvalue()


LOCAL = "local-timestamp-micros"
PLACE = {"type": "record", "name": "at", "fields": [{"name": name, "type": "double"} for name in "xy"]}
PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}
TAGS = {"type": "array", "items": "string"}


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_avro(loads: Loads, table: str, codec: str) -> None:
    file = loads.file("a.avro", write_avro(codec, id="int", tags=TAGS, at=["null", PLACE]))
    assert loads.run(file, "--table", table, "--yes")["rows"] == 2
    found = loads.rows(f"FROM lake.{table} ORDER BY id")
    assert found == [(1, ["a", "b"], {"x": 1.5, "y": 2.5}), (2, [], None)]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.parquet", write_parquet(TYPED)),
        ("a.arrow", write_arrow(TYPED, is_stream=False)),
        ("a.arrows", write_arrow(TYPED, is_stream=True)),
    ],
)
def test_files_with_types(loads: Loads, table: str, name: str, content: bytes) -> None:
    file = loads.file(name, content)
    assert loads.run(file, "--table", table, "--yes")["rows"] == 2
    found = loads.rows(f"FROM lake.{table} ORDER BY id")
    assert found == [(1, Decimal("1.50"), ["a", "b"], {"x": 1.5, "y": 2.5}), (2, None, [], None)]


@pytest.mark.parametrize(
    ("name", "content", "options", "expected"),
    [
        ("bom.csv", b"\xef\xbb\xbfid,x\r\n1,\xc3\xa9\r\n", [], [(1, "é")]),
        ("utf16.csv", "id,x\n1,é\n".encode("utf-16"), [], [(1, "é")]),
        ("utf16.csv", b"\xfe\xff" + "id,x\n1,é\n".encode("utf-16-be"), [], [(1, "é")]),
        ("utf16.csv", "id,x\n1,\U0001f600\n".encode("utf-16"), [], [(1, "\U0001f600")]),
        ("utf16.csv.gz", compress("id,x\n1,é\n".encode("utf-16")), [], [(1, "é")]),
        ("utf16.csv.zst", zstandard.compress("id,x\n1,é\n".encode("utf-16")), [], [(1, "é")]),
        ("utf16.json", '{"id": 1, "x": "é"}\n'.encode("utf-16"), [], [(1, "é")]),
        ("utf16.csv", "id,x\n1,é\n".encode("utf-16-be"), ["--option", "encoding=UTF-16BE"], [(1, "é")]),
        ("latin.csv", "id,x\n1,é\n".encode("latin-1"), ["--option", "encoding=latin-1"], [(1, "é")]),
        ("latin.csv", "id,x\n1,é\n".encode("latin-1"), ["--option", "charset=ISO-8859-1"], [(1, "é")]),
        ("latin.json", '{"id": 1, "x": "é"}\n'.encode("latin-1"), ["--option", "encoding=latin-1"], [(1, "é")]),
        ("windows.csv", "id,x\n1,€\n".encode("cp1252"), ["--option", "encoding=windows-1252"], [(1, "€")]),
        ("semicolon.csv", "id;x\n1;a,b\n", [], [(1, "a,b")]),
        ("tabs.tsv", "id\tx\n1\ta\n", [], [(1, "a")]),
        ("packed.csv.gz", compress(b"id,x\n1,a\n"), [], [(1, "a")]),
        ("packed.csv.zst", zstandard.compress(b"id,x\n1,a\n"), [], [(1, "a")]),
        ("packed.json.gz", compress(b'{"id":1,"x":"a"}\n{"id":2}\n'), [], [(1, "a"), (2, None)]),
        ("packed.ndjson.zst", zstandard.compress(b'{"id":1,"x":"a"}\n'), [], [(1, "a")]),
        ("null.csv", 'id,x\nNA,""\n1,NA\n', ["--option", "nullValue=NA"], [(1, None), (None, "")]),
        ("bare.csv", "1,a\n", ["--option", "header=false"], [(1, "a")]),
        ("lines.json", '{"id":1,"x":"a"}\n\n{"id":2}\n', [], [(1, "a"), (2, None)]),
        ("array.json", '[{"id":1,"x":"a"},\n {"id":2}]', [], [(1, "a"), (2, None)]),
        ("mixed.json", '{"id":1,"x":"a"}\n{"id":2,"x":{"y":1}}\n', [], [(1, "a"), (2, '{"y":1}')]),
        ("huge.csv", "id,x\n1,123456789012345678901\n", [], [(1, "123456789012345678901")]),
        ("zeros.csv", "id,x\n1,007\n", [], [(1, "007")]),
        ("quotes.csv", 'id,x\n1,"say ""hi"""\n', [], [(1, 'say "hi"')]),
        ("dates.csv", "id,x\n1,31.12.2026\n", [], [(1, "31.12.2026")]),
    ],
)
def test_forms_of_text(
    loads: Loads, table: str, name: str, content: Content, options: Sequence[str], expected: list[tuple[Any, ...]]
) -> None:
    loads.run(loads.file(name, content), "--table", table, "--yes", *options)
    assert loads.rows(f"FROM lake.{table} ORDER BY 1") == expected
    assert not loads.has(f"{table}_quarantine")


@pytest.mark.parametrize(
    ("name", "content", "options", "message"),
    [
        ("empty.csv", "", [], "no columns"),
        ("empty.parquet", b"", [], "is empty"),
        ("cut.csv.gz", compress(b"id,x\n" + b"1,a\n" * 9999)[:-9], [], "cut off"),
        ("cut.csv.zst", zstandard.compress(b"id,x\n" + b"1,abc\n" * 99_999)[:-9], [], "cut off"),
        ("no.csv.zst", "id,x\n1,a\n", [], "damaged"),
        ("cut.avro", write_avro("deflate", id="int")[:-20], [], "cut.avro"),
        ("decimal.avro", write_avro("null", id="int", price=["null", PRICE]), [], "column price has decimals"),
        ("local.avro", write_avro("null", id={"type": "long", "logicalType": LOCAL}), [], "DuckDB can't read"),
        ("text.avro", "id,x\n1,a\n", [], "damaged"),
        ("no.csv.gz", "id,x\n1,a\n", [], "damaged"),
        ("cut.parquet", write_parquet(TYPED)[:-20], [], "damaged"),
        ("text.parquet", "id,x\n1,a\n", [], "damaged"),
        ("cut.arrow", write_arrow(TYPED, is_stream=False)[:-40], [], "damaged"),
        ("twice.csv", "id,ID\n1,2\n", [], "there twice"),
        ("binary.csv", b"a\0b\0\n", [], "NUL"),
        ("strange.xyz", "a", [], "Unknown format"),
        ("half.csv", "id,x\n1,é\n".encode("utf-16")[:-1], [], "no text of utf-16"),
        ("a.csv", "id\n1\n", ["--option", "encoding=klingon"], "Invalid --option encoding=klingon"),
        ("a.csv", "id\n1\n", ["--option", "encoding=hex"], "Invalid --option encoding=hex"),
        ("cut.csv.gz", compress("id,x\n".encode("utf-16") * 9999)[:-9], [], "cut off"),
        ("a.csv", "id\n1\n", ["--format", "xml"], "Invalid --format"),
        ("a.csv", "id\n1\n", ["--option", "dateFormat=x"], "Invalid --option"),
        ("a.csv", "id\n1\n", ["--option", "sep"], "write <name>=<value>"),
        ("a.csv", "id\n1\n", ["--schema", "id wat"], "Invalid --schema"),
        ("a.csv", "id,x\n1,2\n", ["--schema", "id long"], "--schema lacks: x"),
        ("a.csv", "id\n1\n", ["--partition-by", "day(nope)"], "no column 'nope'"),
        ("a.csv", "id\n1\n", ["--mode", "merge", "--bad-rows", "fail"], "--key go together"),
        ("a.csv", "id\n1\n", ["--key", "id"], "--key go together"),
        ("a.csv", "id\n1\n", ["--mode", "merge", "--key", "nr"], "--key nr: "),
        ("a.json", '{"id":[1]}\n', ["--mode", "merge", "--key", "id"], "no type of a key"),
        ("a.csv", "id\n1\n", ["--mode", "upsert"], "there are append"),
        ("a.csv", "id\n1\n", ["--evolve", "maybe"], "expected add or strict"),
        ("a.csv", "id\nx\n", ["--schema", "id long", "--bad-rows", "fail"], "line 2: id is no long: x"),
        ("a.csv", "id\nx\ny\n", ["--schema", "id long", "--max-bad", "1"], "2 bad rows, at most 1"),
        ("latin.csv", "id,x\n1,é\n".encode("latin-1"), ["--bad-rows", "fail"], "line 2: "),
        ("code.csv", b"id,x\n1,\x81\n", ["--option", "encoding=cp1252", "--bad-rows", "fail"], "line 2: "),
        ("quote.csv", 'id,x\n1,"open\n', ["--bad-rows", "fail"], "line 2: "),
        ("ragged.csv", "id,x\n1\n", ["--bad-rows", "fail"], "line 2: "),
        ("broken.json", '{"id":1}\n{"id":\n', ["--bad-rows", "fail"], "line 2: no JSON object"),
        ("list.json", '{"id":1}\n[1]\n', ["--bad-rows", "fail"], "line 2: no JSON object"),
        ("deep.json", '{"a":{"b":"x"}}\n', ["--schema", "a struct<b long>", "--bad-rows", "fail"], "line 1: a is no"),
        ("d.csv", "d\n1234.5\n", ["--schema", "d decimal(5, 2)", "--bad-rows", "fail"], "d is no decimal"),
        ("d.csv", "d\n1.555\n", ["--schema", "d decimal(5, 2)", "--bad-rows", "fail"], "d is no decimal"),
        ("d.csv", "d\n31.12.2026\n", ["--schema", "d date", "--bad-rows", "fail"], "d is no date: 31.12.2026"),
        ("n.csv", "id\n\"\"\n", ["--schema", "id long not null", "--bad-rows", "fail"], "id must have a value"),
        ("n.csv", "x\n1\n", ["--schema", "id long not null, x long"], "has no column id"),
    ],
)  # fmt: skip
def test_wrong_inputs_load_nothing(
    loads: Loads, table: str, name: str, content: Content, options: Sequence[str], message: str
) -> None:
    error = loads.run(loads.file(name, content), "--table", table, "--yes", *options, code=2)
    assert message in error["message"], error
    assert not loads.has(table)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("id long, x long", "--schema has x long, and "),
        ("id date, x string", "--schema has id date, and "),
        ("id long not null, x string", "--schema has id NOT NULL, and "),
        ("id long, x string, s struct<a string>", "--schema has s struct<"),
        ("id long, x struct<a long>", "--schema has x struct<"),
        ("id long, x string, d double not null", "a new column can't be NOT NULL"),
    ],
)
def test_schema_that_a_table_does_not_have_loads_nothing(loads: Loads, table: str, given: str, message: str) -> None:
    schema = "id long, x string, s struct<a long>"
    file = loads.file("a.csv", "id,x\n1,2\n")
    loads.run(file, "--table", table, "--yes", "--schema", schema)
    error = loads.run(file, "--table", table, "--yes", "--schema", given, code=2)
    assert message in error["message"], error
    assert loads.rows(f"SELECT count(*) FROM lake.{table}") == [(1,)]
    made = loads.run(file, "--table", table, "--yes", "--schema", f"{schema}, d double")
    assert made["rows"] == 1
    loads.run(file, "--table", table, "--yes", "--schema", "ID int, x string")
    assert loads.rows(f"SELECT count(*), count(d) FROM lake.{table}") == [(3, 0)]
    error = loads.run(file, "--table", table, "--schema", "id long, x string, e date", "--evolve", "strict", code=2)
    assert "would need new e date" in error["message"]
    error = loads.run(file, "--table", table, "--schema", "id long, s struct<b long>", "--evolve", "strict", code=2)
    assert "The files have columns that --schema lacks: x" in error["message"]
    given = "id long, x string, s struct<b long>"
    error = loads.run(file, "--table", table, "--schema", given, "--evolve", "strict", code=2)
    assert "would need new s.b long" in error["message"]


def test_schema_that_a_table_holds_or_is_widened_for_loads(loads: Loads, table: str) -> None:
    """What load itself has made of a table's columns is no reason to refuse the same --schema again."""
    columns = (
        "id long, p decimal(10, 4), q decimal(12, 4), d double, t timestamp, s struct<a long, b string>, l list<long>"
    )
    file = loads.file("a.json", '{"id": 1, "p": 1.25, "q": 2.5, "d": 3, "t": "2026-01-02", "s": {"a": 4}, "l": [5]}\n')
    given = "id int, p decimal(12, 2), q decimal(10, 2), d int, t date, s struct<a int>, l list<int>"
    loads.run(file, "--table", table, "--yes", "--schema", columns)
    for _ in range(2):
        loads.run(file, "--table", table, "--yes", "--schema", given)
    row = (1, Decimal("1.25"), Decimal("2.5"), 3.0, datetime(2026, 1, 2), {"a": 4, "b": None}, [5])
    assert loads.rows(f"SELECT * FROM lake.{table}") == [row] * 3
    ((widened,),) = loads.rows(f"SELECT column_type FROM (DESCRIBE lake.{table}) WHERE column_name = 'p'")
    assert widened == "DECIMAL(14,4)"
    error = loads.run(file, "--table", table, "--schema", given.replace("12", "38"), "--yes", code=2)
    assert "has p decimal(38, 2), and " in error["message"]
    assert "has p decimal(14, 4)" in error["message"]


def test_places_without_files(loads: Loads, table: str) -> None:
    (loads.folder / "nothing").mkdir(exist_ok=True)
    for place in (loads.folder / "nothing", loads.folder / "absent.csv", loads.folder / "*.nope"):
        assert str(place) in loads.run(str(place), "--table", table, "--yes", code=2)["message"]


def test_columns_evolve(loads: Loads, table: str) -> None:
    loads.run(
        loads.file("a.parquet", write_parquet(pa.table({"id": pa.array([1], pa.int32())}))), "--table", table, "-y"
    )
    wider = loads.file("b.parquet", write_parquet(pa.table({"ID": [1 << 40], "x": ["new"]})))
    assert "strict" in loads.run(wider, "--table", table, "--yes", "--evolve", "strict", code=2)["message"]
    assert "no terminal" in loads.run(wider, "--table", table, code=2)["message"]
    loads.run(wider, "--table", table, "--yes")
    assert loads.rows(f"FROM lake.{table} ORDER BY id") == [(1, None), (1 << 40, "new")]
    assert "None of" in loads.run(loads.file("c.csv", "other\n1\n"), "--table", table, "--yes", code=2)["message"]


def test_files_of_other_columns(loads: Loads, table: str) -> None:
    folder = Path(loads.file("a.csv", "id,x\n1,a\n")).parent
    (folder / "b.csv").write_text("y;ID\n2.5;2\n")
    (folder / "_ignored.csv").write_text("z\n1\n")
    assert loads.run(str(folder), "--table", table, "--yes")["files"] == 2
    assert loads.rows(f"SELECT id, x, y FROM lake.{table} ORDER BY id") == [(1, "a", None), (2, None, 2.5)]


@pytest.mark.parametrize(
    "partition_by", ["part", "day", "month(day)", "bucket(4, part)", "truncate(1, part)", "year(day), flag"]
)
def test_partitions_and_overwrites(loads: Loads, table: str, partition_by: str) -> None:
    lines = [f"{n},p{n % 3},2026-0{1 + n % 2}-01,{str(n % 2 == 0).lower()}" for n in range(60)]
    file = loads.file("a.csv", "id,part,day,flag\n" + "\n".join([*lines, "99,,,"]) + "\n")
    loads.run(file, "--table", table, "--yes", "--partition-by", partition_by, "--sort-by", "id desc")
    assert loads.rows(f"SELECT count(*), count(part), max(id) FROM lake.{table} WHERE id < 90") == [(60, 60, 59)]
    assert loads.rows(f"SELECT id FROM lake.{table} WHERE part = 'p1' AND id < 5 ORDER BY id") == [(1,), (4,)]
    again = loads.file("b.csv", "id,part,day,flag\n" + "\n".join(lines) + "\n")
    loads.run(again, "--table", table, "--mode", "overwrite-partitions")
    assert loads.rows(f"SELECT count(*), max(id) FROM lake.{table}") == [(61, 99)]
    loads.run(again, "--table", table, "--mode", "overwrite")
    assert loads.rows(f"SELECT count(*), max(id) FROM lake.{table}") == [(60, 59)]


def test_many_columns(loads: Loads, table: str) -> None:
    names = [f"c{number}" for number in range(200)]
    loads.run(loads.file("wide.csv", f"{','.join(names)}\n{','.join('1' * 200)}\n"), "--table", table, "--yes")
    assert loads.rows(f"SELECT c0 + c199 FROM lake.{table}") == [(2,)]


def test_hostile_names(loads: Loads, table: str) -> None:
    file = loads.file('it\'s "here" [1].csv', 'a\'b,"say ""hi""",semi;colon,{files}\n1,2,3,4\n')
    loads.run(file, "--table", table, "--yes", "--option", "sep=,")
    assert loads.rows(f"FROM lake.{table}") == [(1, 2, 3, 4)]


def test_dry_run_writes_nothing(loads: Loads, table: str) -> None:
    plan = loads.run(loads.file("a.csv", "id,x\n1,a\n2\n"), "--table", table, "--dry-run")
    assert (plan["columns"], plan["rows"], plan["bad"], plan["creates"]) == ({"id": "long", "x": "string"}, 2, 1, True)
    assert not loads.has(table)


def test_a_namespace_that_is_new_is_named(loads: Loads, table: str) -> None:
    file, new = loads.file("a.csv", "id\n1\n"), table.replace("loads.", "loads_new.")
    assert loads.run(file, "--table", new, "--dry-run")["creates-namespace"] is True
    assert f"{new} and its namespace would be created" in loads.run(file, "--table", new, code=2)["message"]
    assert loads.run(file, "--table", new, "--yes")["new-namespaces"] == ["loads_new"]
    assert loads.run(file, "--table", new)["new-namespaces"] == []
    assert loads.run(file, "--table", f"{new}_more", "--dry-run")["creates-namespace"] is False
    words = ("load", file, "--yes", "--uri", loads.lake.uri, "--table")
    assert "created the namespace loads_newer\n" in invoke(*words, "loads_newer.t").stdout
    assert "created the namespace" not in invoke(*words, "loads_newer.u").stdout


def test_a_view_takes_no_rows(loads: Loads) -> None:
    loads.duck.execute("CREATE SCHEMA IF NOT EXISTS lake.loads")
    loads.duck.execute("CREATE OR REPLACE VIEW lake.loads.v AS SELECT 1 AS id")
    assert "is a view" in loads.run(loads.file("a.csv", "id\n1\n"), "--table", "loads.v", "--yes", code=2)["message"]


def test_bad_rows_go_to_a_file(loads: Loads, table: str) -> None:
    bad = loads.folder / f"{table}.jsonl"
    file = loads.file("a.csv", "id\n1\nx\n")
    loads.run(file, "--table", table, "--yes", "--schema", "id int", "--bad-rows", str(bad))
    found = json.loads(bad.read_text())
    assert found == {"source": file, "line": 3, "reason": "id is no int: x", "record": "x"}


def test_progress_counts_bytes_and_rows(loads: Loads, table: str) -> None:
    """Each step goes from its begin to its end, on standard error; the summary stays alone on standard output."""
    rows = "".join(f"{n},{n / 7},text {n}\n" for n in range(200_000))
    file = loads.file("a.csv", "id,x,t\n" + rows)
    other = loads.file("b.csv", "id,x,t,more\n1,2,c,d\n")
    ran = invoke("load", file, other, "--table", table, "--yes", "--json", "--uri", loads.lake.uri)
    assert ran.exit_code == 0, ran.output
    assert json.loads(ran.stdout)["rows"] == 200_001
    noted = [json.loads(line) for line in ran.stderr.splitlines()]
    size = Path(file).stat().st_size + Path(other).stat().st_size
    for step in ("finding columns", "checking rows", "writing rows"):
        own = [line for line in noted if line["step"] == step]
        done = [line["bytes"] for line in own]
        assert done == sorted(done)
        assert (done[-1], own[-1]["all_bytes"]) == (size, size)
    assert (noted[-1]["rows"], noted[-1]["all_rows"]) == (200_001, 200_001)


def test_a_full_disk_is_named_and_the_next_run_loads_all(loads: Loads, table: str) -> None:
    """No file may have more than 8 blocks here, as where the disk is full; what was written is removed."""
    rows = "".join(f"{n},{n / 7},text {n}\n" for n in range(50_000))
    file = loads.file("a.csv", "id,x,t\n" + rows)
    command = ["load", file, "--table", table, "--yes", "--run-id", "full", "--uri", loads.lake.uri]
    limited = ["bash", "-c", 'trap "" XFSZ; ulimit -f 8; exec "$@"', "-", sys.executable, "-m", "duckicelake.cli.main"]
    ran = subprocess.run([*limited, *command], check=False, capture_output=True, text=True, timeout=120)
    assert ran.returncode == 1, ran.stderr
    assert "Traceback" not in ran.stderr
    assert "nothing was committed" in ran.stderr
    assert not loads.has(table)
    assert loads.run(*command[1:-2])["rows"] == 50_000
    assert loads.rows(f"SELECT count(*), count(DISTINCT id) FROM lake.{table}") == [(50_000, 50_000)]


@pytest.mark.parametrize(
    ("name", "record", "bad"),
    [("csv", "1,x\n", "n,x\n"), ("csv", "1,x\n", "1\n"), ("jsonl", '{"id": 1, "t": "x"}\n', "{\n")],
)
def test_many_small_files_take_little_memory(loads: Loads, table: str, name: str, record: str, bad: str) -> None:
    folder = loads.new_folder()
    for number in range(40):
        header = "id,t\n" if name == "csv" else ""
        (folder / f"{number}.{name}").write_text(header + record * 3 + (bad if number % 2 else ""))
    schema = ("--schema", "id long, t string")
    found = loads.run(str(folder), "--table", table, "--yes", "--memory", "700MB", "--threads", "8", *schema)
    assert (found["rows"], found["quarantined"]) == (120, 20)
    assert loads.rows(f"SELECT count(*), sum(id) FROM lake.{table}") == [(120, 120)]


def test_json_of_more_rows_than_memory_holds(loads: Loads, table: str) -> None:
    text = "".join(f'{{"id":{n},"note":"{n:0200}"}}\n' for n in range(300_000))
    file = loads.file("a.jsonl", text + '{"id":1.5,"more":[true]}\n')
    found = loads.run(file, "--table", table, "--yes", "--memory", "400MB", "--threads", "1")
    assert found["rows"] == 300_001
    assert loads.rows(f"SELECT count(note), max(id), count(more) FROM lake.{table}") == [(300_000, 299_999.0, 1)]


@pytest.mark.crash
@pytest.mark.parametrize("mode", ["append", "overwrite", "overwrite-partitions"])
@pytest.mark.parametrize(
    "step", [*LOAD_STEPS, "behind the files", "before the commit", "behind the commit", "behind the quarantine"]
)
def test_killed_load_is_made_good_by_the_next_run(loads: Loads, table: str, mode: str, step: str) -> None:
    """Neither rows nor bad rows are lost or doubled, and the killed run leaves no row of its own."""
    loads.run(loads.file("old.csv", "id,p\n1,0\n2,1\n"), "--table", table, "--yes", "--partition-by", "p")
    file = loads.file("new.csv", "id,p\n3,1\n4,1\nbad,1\n5,2\n")
    command = ["load", file, "--table", table, "--mode", mode, "--run-id", "r", "--uri", loads.lake.uri]
    killed = subprocess.run([sys.executable, "-m", "tests.file_import.killed_watch", step, *command], check=False)
    assert killed.returncode == -9
    loads.expire_leases()
    for _ in range(2):
        found = loads.run(*command[1:-2])
        assert (found["rows"], found["quarantined"]) == (3, 1)
    kept = {"append": [1, 2], "overwrite": [], "overwrite-partitions": [1]}[mode]
    assert loads.rows(f"SELECT id FROM lake.{table} ORDER BY ALL") == [(id_,) for id_ in (*kept, 3, 4, 5)]
    assert loads.rows(f"SELECT record FROM lake.{table}_quarantine") == [("bad,1",)]
