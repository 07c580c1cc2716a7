"""Each kind of damage as a query, and the statistics and files that a whole check reads."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import groupby

from duckicelake.lake.doctor.findings import Finding, ReportProgress, run_check, wrap_in_snapshot
from duckicelake.lake.model import Column, ColumnStats, find_flaw
from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("lake", "damage")


@dataclass(frozen=True, slots=True)
class ExaminedColumn:
    """A live primitive column with its row of table-wide statistics. is_repeated: it is in a list or map."""

    table_id: int
    name: str
    type: str
    is_repeated: bool
    stats: ColumnStats


@dataclass(frozen=True, slots=True)
class NeededFile:
    """A file that a client reads: `kind` is data or delete for those of DuckLake, and listed for those of Iceberg's."""

    table_id: int
    table: str
    kind: str
    file_id: int | None
    path: str
    size: int | None


def read_table_statistics(cursor: Transaction) -> Iterator[ExaminedColumn]:
    """Read the table-wide statistics of all live tables."""
    for table_id, name, type_, is_repeated, *row in cursor.execute(_SQL.table_wide_statistics).fetchall():
        yield ExaminedColumn(table_id, name, type_, is_repeated, ColumnStats(*row))


def read_file_statistics(
    cursor: Transaction,
) -> dict[tuple[int, int], tuple[bool | None, bool | None, list[str], list[str]]]:
    """Read (has nulls, has NaN, lower bounds, upper bounds) of the live files, by table and column id."""
    rows = cursor.execute(_SQL.file_statistics).fetchall()
    return {(table_id, column_id): (nulls, nans, lows, highs) for table_id, column_id, nulls, nans, lows, highs in rows}


def read_needed_files(cursor: Transaction, names: dict[int, str]) -> list[NeededFile]:
    """Read the files of the current state, then those of listed Iceberg snapshots only; each path once."""
    live = cursor.execute(_SQL.live_files).fetchall()
    listed = cursor.execute(_SQL.listed_files).fetchall()
    rows = [*live, *((table_id, "listed", None, path, size) for table_id, path, size in listed)]
    return [NeededFile(table_id, names[table_id], *row) for table_id, *row in rows if table_id in names]


@dataclass(frozen=True, slots=True)
class Damage:
    """A kind of damage; `detail` and `advice` say a case: braces hold columns of the query, and the table's name."""

    name: str
    query: str
    detail: str
    advice: str


SPELLING_DAMAGE = Damage(
    "inlined rows",
    _SQL.spelled_inlined_tables,
    "{table}: the first columns of its table of inlined rows {name} aren't called as in DuckLake {format}, the lake's "
    "format: a DuckDB client has migrated the lake, or was attached when another did",
    "no client reads these rows until the columns have the names of the lake's format: {renames}",
)

DAMAGE_KINDS = (
    Damage(
        "delete files",
        _SQL.doubled_delete_files,
        "{table}: data file {data_file_id} has several live delete files: {delete_file_ids}",
        "every client reads its rows once for each. Where two DuckDB transactions made them, none holds all deletes: "
        "end all but the last, and run in DuckDB, for each of the others ({others}), DELETE FROM {table} WHERE "
        "filename LIKE '%{path}' AND file_row_number IN (SELECT pos FROM read_parquet('<its whole path>')). End them: "
        "UPDATE ducklake_delete_file SET end_snapshot = {last_begin} "
        "WHERE data_file_id = {data_file_id} AND delete_file_id <> {last_id} AND end_snapshot IS NULL;",
    ),
    Damage(
        "delete files",
        _SQL.dangling_delete_files,
        "{table}: delete file {delete_file_id} ({path}) deletes from data file {data_file_id}, which isn't there",
        "put its data_file_id right; if that data file has gone: "
        "DELETE FROM ducklake_delete_file WHERE delete_file_id = {delete_file_id};",
    ),
    Damage(
        "file rows",
        _SQL.incomplete_files,
        "{table}: the row of file {file_id} ({path}) in {owner} lacks a value, or has an impossible one",
        "put the row right: path, format, size and record count as the file itself has them",
    ),
    Damage(
        "name maps",
        _SQL.missing_name_maps,
        "{table}: data file {data_file_id} ({path}) has names of map {mapping_id}, which isn't there",
        "if the file has field ids it needs none: "
        "UPDATE ducklake_data_file SET mapping_id = NULL WHERE data_file_id = {data_file_id};",
    ),
    Damage(
        "schema versions",
        _SQL.missing_schema_versions,
        "{table}: the version that begins at snapshot {at} isn't in ducklake_schema_versions",
        "DuckDB can't merge the table's files, nor anybody read inlined rows of that version: "
        "INSERT INTO ducklake_schema_versions VALUES ({at}, {schema_version}, {table_id});",
    ),
    Damage(
        "partition keys",
        _SQL.broken_partition_keys,
        "{table}: partition key {partition_key_index} is {transform} of column {column_id}",
        "DuckLake has no such transform, or the table no such column; partition it anew in DuckDB: "
        "ALTER TABLE {table} RESET PARTITIONED BY; ALTER TABLE {table} SET PARTITIONED BY (…);",
    ),
    Damage(
        "statistics",
        _SQL.repeated_statistics,
        "{table}: has {count} rows in ducklake_table_stats",
        "keep the one with the highest next_row_id: DELETE FROM ducklake_table_stats WHERE table_id = {table_id} "
        "AND ctid <> (SELECT ctid FROM ducklake_table_stats WHERE table_id = {table_id} "
        "ORDER BY next_row_id DESC LIMIT 1);",
    ),
    Damage(
        "tables",
        _SQL.broken_tables,
        "{table}: is in ducklake_table more than once, or without one of its values",
        "put the rows with table_id = {table_id} right: one that hasn't ended, with uuid, name and path",
    ),
    Damage(
        "names",
        _SQL.like_named_tables,
        "{table}: differs from others in nothing but upper and lower case: {names}",
        "to DuckDB they are one; rename one: UPDATE ducklake_table SET table_name = '…' WHERE table_id = {table_id};",
    ),
    Damage(
        "names",
        _SQL.like_named_namespaces,
        "namespaces differ in nothing but upper and lower case: {names}",
        "to DuckDB they are one; rename one: UPDATE ducklake_schema SET schema_name = '…' WHERE schema_id = …;",
    ),
    Damage(
        "names",
        _SQL.same_named_namespaces,
        "the schemas {schema_ids} are one namespace to Iceberg clients: {name}",
        "rename one: UPDATE ducklake_schema SET schema_name = '…' WHERE schema_id = …;",
    ),
    Damage(
        "names",
        _SQL.homeless_schemas,
        "schema {schema_name} ({schema_id}) is in one that isn't there",
        "put it into one that is, or at the top: "
        "UPDATE ducklake_schema SET parent_schema_id = … WHERE schema_id = {schema_id};",
    ),
    Damage(
        "names",
        _SQL.homeless_tables,
        "table {table_name} is in namespace {schema_id}, which isn't there",
        "put it into one that is: UPDATE ducklake_table SET schema_id = … WHERE table_name = '{table_name}';",
    ),
    Damage(
        "inlined rows",
        _SQL.missing_inlined_tables,
        "{table}: its table of inlined rows {name} isn't in Postgres",
        "restore it from a backup; if there is none its rows are lost: "
        "DELETE FROM ducklake_inlined_data_tables WHERE table_name = '{name}';",
    ),
    Damage(
        "inlined rows",
        _SQL.unregistered_inlined_tables,
        "{table}: its table of inlined rows {name} is in Postgres, but DuckLake doesn't know it",
        "no client reads its rows: if it is empty, DROP TABLE {name}; if not: "
        + wrap_in_snapshot(
            "INSERT INTO ducklake_inlined_data_tables VALUES ({table_id}, '{name}', {version})",
            "inlined_insert:{table_id}",
        ),
    ),
    Damage(
        "inlined rows",
        _SQL.unfit_inlined_tables,
        "{table}: its table of inlined rows {name} has the columns {own} instead of {expected}",
        "give it those columns in that order: DuckDB writes them by place",
    ),
    SPELLING_DAMAGE,
    Damage(
        "delete files",
        _SQL.containers,
        "{table}: delete file {delete_file_id} ({path}) is a Puffin container of DuckDB 2.0",
        "DuckDB 1.5 can't read that table; in DuckDB 2.0: CALL lake.set_option('write_deletion_vectors', false); "
        "CALL ducklake_rewrite_data_files('lake', delete_threshold => 0);",
    ),
    Damage(
        "views",
        _SQL.stray_view_column_tags,
        "column {column_name} of view {view_id} has {tags} live tags of one key, or the view isn't live",
        "end what doesn't hold: UPDATE ducklake_view_column_tag SET end_snapshot = (SELECT max(snapshot_id) FROM "
        "ducklake_snapshot) WHERE view_id = {view_id} AND column_name = '{column_name}' AND end_snapshot IS NULL;",
    ),
    Damage(
        "side tables",
        _SQL.unlike_files,
        "{table}: data file {data_file_id} ({path}) {problem}",
        "if DuckLake's rows are to be as they are, record it: "
        + wrap_in_snapshot("", "{change}:{table_id},compacted_table:{table_id}"),
    ),
    Damage(
        "side tables",
        _SQL.ahead_of_ducklake,
        "{table}: has seen snapshot {caught_up_to}, but DuckLake's newest is {newest}",
        "DuckLake's tables are older than duckicelake's: restore both from one backup",
    ),
    Damage(
        "side tables",
        _SQL.never_created,
        "table {table_id} at {location} was never made in DuckLake, whose next id is {next_catalog_id}",
        "DuckLake's tables are older than duckicelake's: restore both from one backup",
    ),
    Damage(
        "snapshots",
        _SQL.unknown_changes,
        "what snapshot {snapshot_id} says that it changed isn't DuckLake's language: {changes_made}",
        "DuckDB clients fail when they commit; if nothing else needs it: "
        "UPDATE ducklake_snapshot_changes SET changes_made = NULL WHERE snapshot_id = {snapshot_id};",
    ),
    Damage(
        "snapshots",
        _SQL.low_next_ids,
        "{counter} of snapshot {snapshot_id} is below ids in use, which would be given again",
        "UPDATE ducklake_snapshot SET {counter} = {least} WHERE snapshot_id = {snapshot_id};",
    ),
)


def find_damage(cursor: Transaction, names: Mapping[int, str], report: ReportProgress) -> list[Finding]:
    """Find every case of every kind of damage in the lake itself and in its live tables, one check for each name."""
    findings = run_check("columns", partial(_find_flawed_columns, cursor, names), report)
    for name, kinds in groupby(sorted(DAMAGE_KINDS, key=lambda damage: damage.name), key=lambda damage: damage.name):
        findings += run_check(name, partial(_find_all_cases, cursor, kinds, names), report)
    return findings


def find_misspelled_tables(cursor: Transaction) -> list[Finding]:
    """Find tables of inlined rows with the column names of another format, in a lake of any format and migration."""
    names: dict[int, str] = dict(cursor.execute(_SQL.unprepared_table_names).fetchall())
    return _find_cases(cursor, SPELLING_DAMAGE, names)


def read_table_names(cursor: Transaction) -> dict[int, str]:
    """Read the names of the live tables, by id."""
    return dict(cursor.execute(_SQL.table_names).fetchall())


def read_all_names(cursor: Transaction) -> list[tuple[str, str, str | None]]:
    """Read (kind, schema, name) of all live schemas, tables and views; schemas have no other name."""
    return [(kind, schema, name) for kind, schema, name in cursor.execute(_SQL.names_of_all).fetchall()]


def _find_all_cases(cursor: Transaction, kinds: Iterable[Damage], names: Mapping[int, str]) -> Iterator[Finding]:
    for damage in kinds:
        yield from _find_cases(cursor, damage, names)


def _find_cases(cursor: Transaction, damage: Damage, names: Mapping[int, str]) -> list[Finding]:
    rows = cursor.execute(damage.query).fetchall()
    columns = [column.name for column in cursor.description or ()]
    cases = [dict(zip(columns, row, strict=True)) for row in rows]
    return [
        Finding(damage.name, ok=False, detail=damage.detail.format(**facts), advice=damage.advice.format(**facts))
        for facts in ({"table": names.get(case.get("table_id", 0)), **case} for case in cases)
        if facts["table"] is not None or "{table}" not in damage.detail
    ]


def _find_flawed_columns(cursor: Transaction, names: Mapping[int, str]) -> list[Finding]:
    columns: dict[int, list[Column]] = {table_id: [] for table_id in names}
    for table_id, *row in cursor.execute(_SQL.columns).fetchall():
        if table_id in columns:
            columns[table_id].append(Column(*row))
    advice = "put the rows of ducklake_column with table_id = {} right: until then no DuckDB client can attach the lake"
    flaws = ((table_id, find_flaw(found)) for table_id, found in columns.items())
    return [
        Finding("columns", ok=False, detail=f"{names[table_id]}: {flaw}", advice=advice.format(table_id))
        for table_id, flaw in flaws
        if flaw is not None
    ]
