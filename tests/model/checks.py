"""What must hold after every step: both sides show what the model has, now and at every time that is still listed."""

from collections.abc import Iterable
from random import Random

from pyiceberg.expressions import EqualTo
from pyiceberg.table import StaticTable

from duckicelake.changelog.doctor import diagnose
from tests.model.lake import Lake, duckdb_shown
from tests.model.model import Column, Shown, Table
from tests.model.reader import Reader
from tests.model.values import literal
from tests.support.client import Json, assert_files

SAMPLE = 2
VERSIONS = 8
RARELY = 0.12
VERY_RARELY = 0.05
SOMETIMES = 0.3


def check(lake: Lake, tables: Iterable[Table], random: Random) -> None:
    """Both sides show what these tables are. Some checks that cost much are made of few."""
    for table in tables:
        check_duckdb(lake, table, random)
        answer = lake.load(table, restarted=random.random() < RARELY)
        metadata = answer["metadata"]
        check_schema(table, metadata)
        same("Iceberg", table, lake.reader.current(metadata), table.main.shown())
        check_refs(lake.reader, table, metadata)
        check_history(lake, table, metadata, random)
        if random.random() < RARELY:
            check_pyiceberg(answer, table, random)
        if random.random() < RARELY:
            assert_files(answer)
    check_catalog(lake)


def check_duckdb(lake: Lake, table: Table, random: Random) -> None:
    """DuckDB's rows, and what it answers from statistics, in one transaction; notes what the newest version shows."""
    expected, ids = table.main.shown(), table.rows.keys()
    newest = lake.newest()
    table.versions[newest] = (table.in_duckdb, expected)
    there = {id_ for (id_,) in lake.catalog_rows("SELECT snapshot_id FROM ducklake_snapshot")}
    table.versions = {id_: each for id_, each in table.versions.items() if id_ in there}
    lake.duck.execute("BEGIN")
    same("DuckDB", table, lake.duckdb_now(table), expected)
    real = (len(ids), min(ids, default=None), max(ids, default=None))
    ends = "min(id), max(id)" if not table.rewritten else f"{real[1] or 'NULL'}, {real[2] or 'NULL'}"
    known = lake.duck.execute(f"SELECT count(*), {ends} FROM {table.in_duckdb}").fetchall()
    assert known == [real], f"DuckDB's count, min and max of {table.identifier} are {known}, expected {real}"
    check_filter(lake, table, random)
    if random.random() < SOMETIMES:
        check_row_ids(lake, table)
    lake.duck.execute("COMMIT")
    if random.random() < VERY_RARELY:
        check_versions(lake, table, random.sample(list(table.versions), min(VERSIONS, len(table.versions))))


def check_row_ids(lake: Lake, table: Table) -> None:
    """No two rows have one, and rows that nobody wrote again keep theirs.

    DuckDB 1.5 gives rows that one transaction inserts and updates ids of that transaction's own, from 10^18 on.
    """
    found = dict(lake.duck.execute(f"SELECT id, rowid FROM {table.in_duckdb}").fetchall())
    lasting = [row_id for row_id in found.values() if row_id < 10**18]
    assert len(set(lasting)) == len(lasting), f"{table.identifier}: a row id is there twice"
    assert found == (table.row_ids or found), f"{table.identifier}: row ids {found}, expected {table.row_ids}"
    table.row_ids = found


def check_versions(lake: Lake, table: Table, versions: Iterable[int]) -> None:
    """What another DuckDB shows at these versions.

    DuckDB 1.5 shows rows twice where it flushed deletes of a file that had left by then: the file then has two delete
    files at once, that one and what ended with the file.
    """
    with lake.attach() as duck:
        for version in versions:
            if lake.catalog_rows(TWO_DELETE_FILES_AT, {"version": version}):
                continue
            name, expected = table.versions[version]
            found = duckdb_shown(duck, f"{name} AT (VERSION => {version})")
            same(f"DuckDB at version {version}", table, found, expected)


def check_filter(lake: Lake, table: Table, random: Random) -> None:
    """What DuckDB finds by a value: statistics rule files out, and must not be wrong."""
    column, value = some_cell(table, random)
    if column is not None:
        where = f'"{column.name}" IS NULL' if value is None else f'"{column.name}" = {literal(column, value)}'
        found = lake.duckdb_value(f"SELECT count(*) FROM {table.in_duckdb} WHERE {where}")
        assert found == matching(table, column, value), f"{table.identifier} WHERE {where}"


def some_cell(table: Table, random: Random) -> tuple[Column | None, object]:
    """A column and a value that it has somewhere.

    Not where the table has buckets of the column: of a file that was there before, DuckDB 1.5 finds nothing by a value.
    """
    simple = [column for column in table.columns if not column.children and column.key not in table.ever_bucketed]
    if not table.rows:
        return None, None
    column = random.choice(simple)
    return column, table.rows[random.choice(list(table.rows))][column.key]


def matching(table: Table, column: Column, value: object) -> int:
    return sum(row[column.key] == value for row in table.rows.values())


def check_schema(table: Table, metadata: Json) -> None:
    """Names, types, what is required, and comments; field ids stay and are never used again."""
    assert metadata["format-version"] == table.format_version, table.identifier
    schema = next(each for each in metadata["schemas"] if each["schema-id"] == metadata["current-schema-id"])
    check_fields(table, table.columns, schema["fields"])
    found = {each["id"] for each in schema["fields"] if each["required"]}
    assert found == {table.ids[key] for key in table.required}, f"{table.identifier}: required fields"
    docs = {each["id"]: each["doc"] for each in schema["fields"] if each.get("doc")}
    expected = {table.ids[key]: text for key, text in table.comments.items() if key is not None}
    assert docs == expected, f"{table.identifier}: comments"
    properties = metadata.get("properties", {})
    assert properties.get("comment") == table.comments.get(None), table.identifier
    assert {key: properties.get(key) for key in table.properties} == table.properties, table.identifier


def check_fields(table: Table, columns: Iterable[Column], fields: list[Json]) -> None:
    known = {column.name: column for column in columns}
    assert {field["name"] for field in fields} == known.keys(), table.identifier
    for field in fields:
        column = known[field["name"]]
        if column.key not in table.ids:
            assert field["id"] not in table.ids.values(), f"{table.identifier}: id {field['id']} is used again"
            table.ids[column.key] = field["id"]
        assert field["id"] == table.ids[column.key], f"{table.identifier}: id of {column.name}"
        if column.children:
            check_fields(table, column.children, field["type"]["fields"])
        else:
            assert field["type"].replace(",", ", ").replace("  ", " ") == column.type, f"{table.identifier}: {field}"


def check_refs(reader: Reader, table: Table, metadata: Json) -> None:
    """Branches show what they must under the table's schema, tags the snapshots that they were set to."""
    refs = {name: ref["snapshot-id"] for name, ref in metadata.get("refs", {}).items()}
    assert refs.keys() - {"main"} == table.branches.keys() | table.tags.keys(), table.identifier
    if "main" in refs:
        table.snapshots.setdefault(refs["main"], table.main)
    for name, version in table.branches.items():
        table.snapshots.setdefault(refs[name], version)
        found = reader.shown(metadata, refs[name], metadata["current-schema-id"])
        same(f"branch {name}", table, found, version.shown())
    assert {name: refs[name] for name in table.tags} == table.tags, table.identifier


def check_history(lake: Lake, table: Table, metadata: Json, random: Random) -> None:
    """New snapshots show what is known of them, some old ones what they always showed."""
    listed = {each["snapshot-id"]: each for each in metadata.get("snapshots", ())}
    for id_ in [id_ for id_ in listed if id_ not in table.shown]:
        found = lake.reader.at(metadata, id_)
        table.shown[id_] = expected_of(table, listed[id_], metadata, found)
    table.shown = {id_: shown for id_, shown in table.shown.items() if id_ in listed}
    table.snapshots = {id_: version for id_, version in table.snapshots.items() if id_ in listed}
    table.staged = {id_: rows for id_, rows in table.staged.items() if id_ in listed}
    new = [id_ for id_ in table.shown if listed[id_] is metadata["snapshots"][-1]]
    for id_ in {*new, *random.sample(list(table.shown), min(SAMPLE, len(table.shown)))}:
        same(f"snapshot {id_}", table, lake.reader.at(metadata, id_), table.shown[id_])


def expected_of(table: Table, snapshot: Json, metadata: Json, found: Shown) -> Shown:
    """What a snapshot must show that is seen for the first time; what it does show where that isn't known."""
    id_, version = snapshot["snapshot-id"], int(snapshot["summary"]["ducklake.snapshot-id"])
    if id_ in table.snapshots and snapshot["schema-id"] == metadata["current-schema-id"]:
        return table.snapshots[id_].shown()
    if id_ == version and version in table.versions:
        return table.versions[version][1]
    return found


def check_pyiceberg(answer: Json, table: Table, random: Random) -> None:
    """PyIceberg reads the same, counts the same and finds the same by a value."""
    static = StaticTable.from_metadata(answer["metadata-location"])
    same("PyIceberg", table, pyiceberg_shown(static), table.main.shown())
    assert static.scan().count() == len(table.rows), table.identifier
    column, value = some_cell(table, random)
    if column is not None and isinstance(value, (int, str)):
        only = EqualTo(column.name, value)  # type: ignore[call-arg, arg-type]
        found = static.scan(row_filter=only).to_arrow().num_rows
        assert found == matching(table, column, value), f"{table.identifier}: {column.name} = {value!r}"


def pyiceberg_shown(static: StaticTable, snapshot_id: int | None = None) -> Shown:
    read = static.scan(snapshot_id=snapshot_id).to_arrow()
    names = sorted(read.column_names)
    rows = [tuple(_plain(row[name]) for name in names) for row in read.to_pylist()]
    return Shown(tuple(names), tuple(sorted(rows, key=repr)))


def _plain(value: object) -> object:
    return tuple(_plain(value[name]) for name in sorted(value)) if isinstance(value, dict) else value


def check_catalog(lake: Lake) -> None:
    """Snapshot ids without gaps, one live delete file for a data file, no names that differ only by case."""
    newest = lake.newest()
    since = lake.catalog_rows("SELECT count(*) FROM ducklake_snapshot WHERE snapshot_id > %s", [lake.newest_checked])
    kept = lake.catalog_rows("SELECT 1 FROM ducklake_snapshot WHERE snapshot_id = %s", [lake.newest_checked])
    assert not kept or since[0][0] == newest - lake.newest_checked, "snapshot ids have a gap"
    lake.newest_checked = newest
    assert lake.catalog_rows(TWO_DELETE_FILES) == []
    assert lake.catalog_rows(SAME_NAMES) == []


TWO_DELETE_FILES = """
    SELECT data_file_id FROM ducklake_delete_file WHERE end_snapshot IS NULL
    GROUP BY data_file_id HAVING count(*) > 1
"""
TWO_DELETE_FILES_AT = """
    SELECT 1 FROM ducklake_delete_file
    WHERE begin_snapshot <= %(version)s AND (end_snapshot IS NULL OR end_snapshot > %(version)s)
    GROUP BY data_file_id HAVING count(*) > 1
"""
SAME_NAMES = """
    SELECT schema_id, lower(table_name) FROM ducklake_table WHERE end_snapshot IS NULL
    GROUP BY schema_id, lower(table_name) HAVING count(*) > 1
"""


def check_everything(lake: Lake, random: Random) -> None:
    """At the end: all tables, all snapshots by a reader that remembers nothing and by PyIceberg, all versions."""
    check(lake, lake.tables, random)
    for table in lake.tables:
        answer = lake.load(table, restarted=True)
        assert_files(answer)
        check_pyiceberg(answer, table, random)
        reader, static = Reader(), StaticTable.from_metadata(answer["metadata-location"])
        for id_, expected in table.shown.items():
            same(f"snapshot {id_}", table, reader.at(answer["metadata"], id_), expected)
            same(f"snapshot {id_} in PyIceberg", table, pyiceberg_shown(static, id_), expected)
        check_versions(lake, table, table.versions)
    findings = diagnose(lake.services.database)
    assert [finding for finding in findings if not finding.ok] == []


def same(reader: str, table: Table, found: Shown, expected: Shown) -> None:
    assert found == expected, f"{reader} of {table.identifier}: {expected.difference(found)}"
