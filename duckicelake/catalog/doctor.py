"""Examine the tables of a lake: DuckLake's rows, side tables, store, and both sides' rows."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import count

from duckicelake.bridge.native.steps import replay_window
from duckicelake.bridge.values.statistics import FileRange, find_gaps
from duckicelake.bridge.values.types import quote_identifier, to_iceberg_type
from duckicelake.catalog.table.native_changes import NativeChanges, read_native_changes
from duckicelake.errors import DamagedTableError, FileMissingError, InvalidRequestError, UnsupportedError, format_count
from duckicelake.iceberg.identifiers import has_readable_name, parse_readable_namespace
from duckicelake.lake.doctor.damage import (
    NeededFile,
    find_damage,
    read_all_names,
    read_file_statistics,
    read_needed_files,
    read_table_names,
    read_table_statistics,
)
from duckicelake.lake.doctor.findings import (
    Finding,
    ReportProgress,
    build_file_end,
    report_nothing,
    run_check,
    wrap_in_snapshot,
)
from duckicelake.lake.doctor.inlined_damage import find_inlined_damage, find_lost_deletes
from duckicelake.lake.ducklake import native
from duckicelake.lake.model import LakeChange
from duckicelake.lake.side_tables import reader
from duckicelake.lake.state import LiveFiles
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction
from duckicelake.storage.policy import canonicalize
from duckicelake.storage.protocol import ObjectStore

_ALL = frozenset({"compacted_table"})
"""What a snapshot is said to have changed after which all files are compared."""
PARALLEL_CHECKS = 16


def find_disagreements(cursor: Transaction, names: Mapping[int, str]) -> Iterator[Finding]:
    """Yield rows that only one side shows, of tables in which nothing has happened since they were caught up."""
    for table_id, name in names.items():
        found = None
        with (
            suppress(DamagedTableError),
            cursor.connection.transaction(),
        ):  # which is another finding; the others are read on
            found = _compare(cursor, table_id)
        if found is not None:
            yield from _findings(table_id, name, found)


def _compare(cursor: Transaction, table_id: int) -> NativeChanges | None:
    upto, *_, row = reader.read_standing(cursor, table_id)
    if row is None or native.read_changes(cursor, table_id, row.caught_up_to, upto):
        return None
    everything = LakeChange(upto, native.read_snapshot_time(cursor, upto), _ALL)
    return read_native_changes(
        cursor, reader.read_table_state(cursor, row), upto, [everything], frozenset(), expired=True
    )


def _findings(table_id: int, name: str, found: NativeChanges) -> Iterator[Finding]:
    advice = "let all of it be compared when it is next loaded: " + wrap_in_snapshot(
        "", f"deleted_from_table:{table_id},compacted_table:{table_id}"
    )
    for problem in _problems(found):
        yield Finding("rows", ok=False, detail=f"{name}: {problem}", advice=advice)


def _problems(found: NativeChanges) -> Iterator[str]:
    unread = {file.file_id: dict[int, int | None]() for file in found.window.delete_files}
    for step in replay_window(found.window, found.live, unread, count()):
        deleted = sum(len(positions) for positions in step.positions.values())
        deleted += sum(_rows_left(found.live, file_id) for file_id in step.removed)
        if deleted:
            yield f"Iceberg clients see {format_count(deleted, 'row')} that DuckLake doesn't have any more"
        rows = sum(len(keys) for _, keys in step.rows)
        if rows:
            yield f"Iceberg clients don't see {format_count(rows, 'row')} that DuckLake has inlined"
    live = {file.ducklake_id for file in found.live.files}
    for file in found.window.delete_files:
        if file.target_id in live:
            yield f"delete file {file.file_id} ({file.path}) has come without a record, and no Iceberg client knows it"


def _rows_left(live: LiveFiles, file_id: int) -> int:
    """Return how many rows a file serves that DuckLake has inlined.

    0 for DuckLake's own files, which others look after.
    """
    file = live.virtual.get(file_id)
    return len(file.keys) - len(live.deleted.get(file_id, ())) if file else 0


def examine_tables(
    database: Database, report: ReportProgress = report_nothing, *, with_files: bool = True
) -> tuple[list[Finding], list[NeededFile]]:
    """Return (what is damaged in DuckLake's tables and ours, sorted; the files that must be in the store).

    with_files: list these files, which takes long of a million.
    """
    with database.reading() as cursor:
        names = read_table_names(cursor)
        found = find_damage(cursor, names, report)
        for name, check in (
            ("row ids, counts, inlined deletes", partial(find_inlined_damage, cursor, names)),
            ("lost deletes", partial(find_lost_deletes, cursor, names)),
            ("rows of both sides", partial(find_disagreements, cursor, names)),
            ("statistics of columns", partial(_stale_statistics, cursor, names)),
            ("names in requests", partial(_unreadable_names, cursor)),
        ):
            found += run_check(name, check, report)
        files = read_needed_files(cursor, names) if with_files else []
    return sorted(found, key=lambda finding: (finding.name, finding.detail)), _each_once(files)


def examine_files(store: ObjectStore, files: Sequence[NeededFile]) -> Iterator[Finding | None]:
    """Yield for each file in turn what is wrong with it in the store, if anything. Raises UnavailableError."""
    with ThreadPoolExecutor(PARALLEL_CHECKS) as pool:
        yield from pool.map(lambda file: _find_lost_file(store, file), files)


def _each_once(files: Sequence[NeededFile]) -> list[NeededFile]:
    """Return the first of each path, however it is spelled."""
    by_path: dict[str, NeededFile] = {}
    for file in files:
        with suppress(InvalidRequestError):
            by_path.setdefault(canonicalize(file.path), file)
    return list(by_path.values())


def _stale_statistics(cursor: Transaction, names: Mapping[int, str]) -> Iterator[Finding]:
    by_column = read_file_statistics(cursor)
    for column in read_table_statistics(cursor):
        files = by_column.get((column.table_id, column.stats.column_id))
        if files is None or column.table_id not in names:
            continue
        with suppress(UnsupportedError):
            type_ = to_iceberg_type(column.type, column.name)
            for gap in find_gaps(column.stats, FileRange(*files), type_, is_repeated=column.is_repeated):
                yield Finding(
                    "statistics",
                    ok=False,
                    detail=f"{names[column.table_id]}: column {column.name}: {gap}",
                    advice="queries in DuckDB miss rows; let it read the files instead, then attach anew: DELETE FROM "
                    f"ducklake_table_column_stats WHERE table_id = {column.table_id} "
                    f"AND column_id = {column.stats.column_id};",
                )


def _unreadable_names(cursor: Transaction) -> Iterator[Finding]:
    """Yield schemas, tables and views that DuckDB gave names which no request of Iceberg's clients can hold."""
    for kind, schema, name in read_all_names(cursor):
        if name is None and parse_readable_namespace(schema) is None:
            yield _unreadable(
                f"schema {quote_identifier(schema)}",
                "make another schema, CREATE TABLE … AS FROM these tables in it, and drop this one",
            )
        elif name is not None and not has_readable_name(name):
            full = f"{quote_identifier(schema)}.{quote_identifier(name)}"
            yield _unreadable(f"{kind} {full}", f'ALTER {kind.upper()} {full} RENAME TO "another name"')


def _unreadable(what: str, statement: str) -> Finding:
    detail = f"no request can name {what}, so Iceberg clients don't see it"
    return Finding("names", ok=False, detail=detail, advice=f"give it another name, in DuckDB: {statement}")


def _find_lost_file(store: ObjectStore, file: NeededFile) -> Finding | None:
    try:
        size = store.size(file.path)
    except FileMissingError:
        return _build_finding(file, "isn't in the store", _advice_if_missing(file))
    except InvalidRequestError:
        return None  # of another store than the warehouse's: registered by a client, and never read here
    if file.size is None or size == file.size:
        return None
    return _build_finding(file, f"has {size} bytes in the store instead of {file.size}", _advice_if_changed(file, size))


def _build_finding(file: NeededFile, problem: str, advice: str) -> Finding:
    kind = "a file of listed Iceberg snapshots" if file.kind == "listed" else f"{file.kind} file {file.file_id}"
    return Finding("files", ok=False, detail=f"{file.table}: {kind}, {file.path}, {problem}", advice=advice)


def _advice_if_missing(file: NeededFile) -> str:
    restore = "restore it from a backup; if there is none, "
    if file.kind == "listed":
        return restore + "let an Iceberg client expire the snapshots that list it"
    assert file.file_id is not None
    if file.kind == "data":
        return (
            restore + "its rows are lost, and it must leave the table: " + build_file_end(file.table_id, file.file_id)
        )
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
