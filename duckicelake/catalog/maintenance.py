"""Read the state of tables that maintenance depends on, and find orphan files of a table."""

from collections.abc import Sequence
from dataclasses import fields
from typing import Annotated, Final

from pydantic import Field

from duckicelake.catalog import gc
from duckicelake.catalog.context.page import ListPage, PageRequest, cut_page
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.upkeep_tasks import UpkeepSource, WatchedTable
from duckicelake.errors import NoSuchTableError
from duckicelake.features.registry import load_hooks
from duckicelake.iceberg.identifiers import Namespace, format_full_name, parse_schema_name, to_schema_name
from duckicelake.iceberg.model import Long, SpecModel
from duckicelake.lake.ducklake import maintenance
from duckicelake.lake.ducklake.maintenance import InlinedRowStats, UpkeepStatistics
from duckicelake.lake.ducklake.snapshots import read_clock
from duckicelake.storage.policy import canonicalize, is_within
from duckicelake.storage.protocol import StoredFile

_ASKED_AT_ONCE: Final = 10_000


class TableStatistics(SpecModel):
    """What a table's upkeep is decided by; `lake.maintenance.Statistics` says what the numbers are.

    policies: what the table's properties, its namespaces', DuckLake's options and the catalog's settings come to.
    """

    namespace: tuple[str, ...]
    table: str
    format_version: int | None = None
    location: str | None = None
    target_size: int
    policies: dict[str, str]
    files: int
    bytes: int
    records: int
    deleted: int
    files_with_deletes: int
    delete_files: int
    unsorted_bytes: int
    unfiltered_bytes: int
    sorted_by: str | None = None
    sortable_columns: tuple[str, ...] | None = None
    by_deleted_tenths: tuple[int, ...]
    small_by_partition: dict[str, int]
    small_files: int
    small_bytes: int
    inlined_rows: int
    inlined_oldest_ms: int | None = None
    snapshots: int
    oldest_ms: int | None = None
    refs_end_ms: int | None = None
    branch_age_ms: int | None = None
    current_ms: int | None = None
    described_ms: int | None = None
    cleaned_ms: int | None = None
    manifests: int
    small_manifests: int
    plain_deletes: int
    has_single_values: bool


class FoundFile(SpecModel):
    """A file that lies in a table's folders. modified_ms: when it was last written, since the epoch."""

    location: Annotated[str, Field(min_length=1, max_length=4000)]
    size: Annotated[int, Field(ge=0)]
    modified_ms: Long


class FindOrphans(SpecModel):
    """Files that may be orphans."""

    files: Annotated[tuple[FoundFile, ...], Field(max_length=_ASKED_AT_ONCE)]


def table_statistics(
    services: Services, page: PageRequest, namespace: Namespace | None = None, table: str | None = None
) -> ListPage[TableStatistics]:
    """Return tables that the caller may read, of a namespace and those below it, or one.

    NoSuchTableError for one that isn't there, or isn't the caller's to read. InvalidRequestError.
    """
    after = page.after_number or 0
    schema = None if namespace is None else to_schema_name(namespace)
    reader = services.caller.principal
    at_most = reader.without_outside()
    visible = at_most.readable_schemas(), at_most.readable_ids()
    with services.database.statement(only_reads=True) as cursor:
        found = maintenance.read_table_ids(cursor, schema, table, after, page.fetch, *visible)
        listed = cut_page([table_id for table_id, _ in found], page, str)
        rows = maintenance.read_statistics(cursor, listed.items, services.maintenance) if listed.items else []
    answers = reader.filter_readable([_answer(*row) for row in rows], lambda row: (row.namespace, row.table))
    if table is not None and not answers:
        raise NoSuchTableError(f"Table does not exist: {format_full_name(namespace or (), table)}")
    return ListPage(answers, listed.next_token)


def list_watched(services: Services, tables: Sequence[tuple[Namespace, str]]) -> list[WatchedTable]:
    """List those of the tables for which features look by themselves whether something is due. No store is asked."""
    names = [(to_schema_name(namespace), table) for namespace, table in tables]
    with services.database.statement(only_reads=True) as cursor:
        return [
            watched
            for source in load_hooks(UpkeepSource, "upkeep_source")
            for watched in source.list_watched(cursor, names)
        ]


def read_now_ms(services: Services) -> int:
    """Read Postgres's time: by a clock of this machine that is ahead, too much would be old enough to go."""
    with services.database.statement(only_reads=True) as cursor:
        return read_clock(cursor)


def find_orphans(services: Services, namespace: Namespace, table: str, files: Sequence[FoundFile]) -> tuple[str, ...]:
    """Find the orphan files below the table's location: of writers that failed or were killed.

    A file that no row of the catalog names, neither live nor past nor scheduled for deletion. What a writer is yet to
    commit looks the same: ask for old ones only. NoSuchTableError, InvalidRequestError.
    """
    with services.database.statement(only_reads=True) as cursor:
        location = maintenance.read_location(cursor, to_schema_name(namespace), table)
    if location is None:
        raise NoSuchTableError(
            f"Table does not exist, or no Iceberg client knows it: {format_full_name(namespace, table)}"
        )
    given = {canonicalize(file.location): file for file in files}
    inside = [place for place in given if is_within(place, canonicalize(location))]
    stored = [StoredFile(place, given[place].size, given[place].modified_ms) for place in inside]
    return tuple(given[file.location].location for file in gc.list_unneeded(services, stored))


_AS_THEY_ARE: Final = TableStatistics.model_fields.keys() & {field.name for field in fields(UpkeepStatistics)}


def _answer(row: UpkeepStatistics, inlined: InlinedRowStats) -> TableStatistics:
    return TableStatistics(
        **{name: getattr(row, name) for name in _AS_THEY_ARE},
        namespace=parse_schema_name(row.schema_name),
        table=row.table_name,
        inlined_rows=inlined.rows,
        inlined_oldest_ms=inlined.oldest_ms,
    )
