"""Examines the tables of a lake: what DuckLake's rows and ours say against each other, and against the store."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from duckicelake.bridge.parquet_types import quoted
from duckicelake.bridge.stale_stats import FileRange, gaps
from duckicelake.bridge.types import iceberg_type
from duckicelake.catalog.agreement import disagreements
from duckicelake.errors import FileMissing, InvalidRequest, Unsupported
from duckicelake.iceberg.names import has_readable_name, readable_namespace
from duckicelake.lake.doctor.damage import damaged, names_of_all, table_names
from duckicelake.lake.doctor.examination import NeededFile, file_statistics, needed_files, table_wide_statistics
from duckicelake.lake.doctor.findings import Finding
from duckicelake.lake.doctor.inlined_damage import damaged_inlining
from duckicelake.lake.doctor.lost_deletes import lost_deletes
from duckicelake.lake.doctor.repairs import end_data_file
from duckicelake.lake.postgres.database import Database, Transaction
from duckicelake.storage.objects import ObjectStore
from duckicelake.storage.policy import canonical

PARALLEL_CHECKS = 16


def examine_tables(database: Database) -> tuple[list[Finding], list[NeededFile]]:
    """(What is damaged in DuckLake's tables and ours, sorted; the files that must be in the store)."""
    with database.reading() as cursor:
        names = table_names(cursor)
        found = [
            *damaged(cursor),
            *damaged_inlining(cursor, names),
            *lost_deletes(cursor, names),
            *disagreements(cursor, names),
            *_stale_statistics(cursor, names),
            *_unreadable_names(cursor),
        ]
        files = needed_files(cursor, names)
    return sorted(found, key=lambda finding: (finding.name, finding.detail)), _each_once(files)


def examine_files(store: ObjectStore, files: Sequence[NeededFile]) -> Iterator[Finding | None]:
    """For each file in turn what is wrong with it in the store, if anything. Raises Unavailable."""
    with ThreadPoolExecutor(PARALLEL_CHECKS) as pool:
        yield from pool.map(lambda file: _lost(store, file), files)


def _each_once(files: Sequence[NeededFile]) -> list[NeededFile]:
    """The first of each path, however it is spelled."""
    by_path: dict[str, NeededFile] = {}
    for file in files:
        with suppress(InvalidRequest):
            by_path.setdefault(canonical(file.path), file)
    return list(by_path.values())


def _stale_statistics(cursor: Transaction, names: Mapping[int, str]) -> Iterator[Finding]:
    by_column = file_statistics(cursor)
    for column in table_wide_statistics(cursor):
        files = by_column.get((column.table_id, column.stats.column_id))
        if files is None or column.table_id not in names:
            continue
        with suppress(Unsupported):
            type_ = iceberg_type(column.type, column.name)
            for gap in gaps(column.stats, FileRange(*files), type_, is_repeated=column.is_repeated):
                yield Finding(
                    "statistics",
                    ok=False,
                    detail=f"{names[column.table_id]}: column {column.name}: {gap}",
                    advice="queries in DuckDB miss rows; let it read the files instead, then attach anew: DELETE FROM "
                    f"ducklake_table_column_stats WHERE table_id = {column.table_id} "
                    f"AND column_id = {column.stats.column_id};",
                )


def _unreadable_names(cursor: Transaction) -> Iterator[Finding]:
    """Schemas, tables and views that DuckDB gave names which no request of Iceberg's clients can hold."""
    for kind, schema, name in names_of_all(cursor):
        if name is None and readable_namespace(schema) is None:
            yield _unreadable(
                f"schema {quoted(schema)}",
                "make another schema, CREATE TABLE … AS FROM these tables in it, and drop this one",
            )
        elif name is not None and not has_readable_name(name):
            full = f"{quoted(schema)}.{quoted(name)}"
            yield _unreadable(f"{kind} {full}", f'ALTER {kind.upper()} {full} RENAME TO "another name"')


def _unreadable(what: str, statement: str) -> Finding:
    detail = f"no request can name {what}, so Iceberg clients don't see it"
    return Finding("names", ok=False, detail=detail, advice=f"give it another name, in DuckDB: {statement}")


def _lost(store: ObjectStore, file: NeededFile) -> Finding | None:
    try:
        size = store.size(file.path)
    except FileMissing:
        return _finding(file, "isn't in the store", _advice_if_missing(file))
    except InvalidRequest:
        return None  # of another store than the warehouse's: registered by a client, and never read here
    if file.size is None or size == file.size:
        return None
    return _finding(file, f"has {size} bytes in the store instead of {file.size}", _advice_if_changed(file, size))


def _finding(file: NeededFile, problem: str, advice: str) -> Finding:
    kind = "a file of listed Iceberg snapshots" if file.kind == "listed" else f"{file.kind} file {file.file_id}"
    return Finding("files", ok=False, detail=f"{file.table}: {kind}, {file.path}, {problem}", advice=advice)


def _advice_if_missing(file: NeededFile) -> str:
    restore = "restore it from a backup; if there is none, "
    if file.kind == "listed":
        return restore + "let an Iceberg client expire the snapshots that list it"
    assert file.file_id is not None
    if file.kind == "data":
        return restore + "its rows are lost, and it must leave the table: " + end_data_file(file.table_id, file.file_id)
    return (
        restore + "and if the table still loads, let an Iceberg client rewrite the data file; else the rows that it "
        f"deletes come back: DELETE FROM ducklake_delete_file WHERE delete_file_id = {file.file_id};"
    )


def _advice_if_changed(file: NeededFile, size: int) -> str:
    restore = "files never change: restore it from a backup"
    if file.kind == "listed":
        return restore
    return (
        f"{restore}; if it is the right one: UPDATE ducklake_{file.kind}_file SET file_size_bytes = {size}, "
        f"footer_size = NULL WHERE {file.kind}_file_id = {file.file_id};"
    )
