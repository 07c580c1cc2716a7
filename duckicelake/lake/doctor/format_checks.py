"""Check whether DuckDB 2's migration of a lake would succeed, and whether it has."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from duckicelake.lake.doctor.findings import Finding, make_finding
from duckicelake.lake.setup.format import read_options
from duckicelake.lake.setup.format_change import FormatChange
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import load_queries

_SQL = load_queries("lake", "format_change")
OLD_VERSION: Final = "1.0"
"""The format that can be migrated."""
_OLD_NAMES: Final = ("row_id", "begin_snapshot", "end_snapshot")
_NEW_NAMES: Final = tuple(f"_ducklake_{name}" for name in _OLD_NAMES)
_COUNT_COLUMN: Final = "row_group_count"
_COUNTED_TABLES: Final = ("ducklake_data_file", "ducklake_delete_file")
_TAG_TABLE: Final = "ducklake_view_column_tag"
_TAG_COLUMNS: Final = frozenset({"view_id", "column_name", "begin_snapshot", "end_snapshot", "key", "value"})
_MAX_NAMES_SHOWN: Final = 5


class _InlinedTable(NamedTuple):
    """A registered table of inlined rows. first: its first three columns, none if it isn't there. others: the rest."""

    name: str
    belongs_to: str
    is_dropped: bool
    first: Sequence[str]
    others: Sequence[str]


class _Rights(NamedTuple):
    """Rights in Postgres. strangers: tables of DuckLake's that another role owns."""

    owner: str
    login: str
    is_member: bool
    may_create: bool
    may_make_temporary: bool
    strangers: Sequence[str]


def find_obstacles(change: FormatChange) -> list[Finding]:
    """Return what the migration needs, with `ok` false where it would fail; nothing is changed."""
    return [
        *_check_columns(change),
        *_check_inlined_tables(change),
        *_check_rights(change),
        _count_puffin_files(change),
        *_list_sessions(change),
    ]


def read_version(database: Database) -> str:
    """Read the lake's format."""
    with database.reading() as cursor:
        return (read_options(cursor) or {}).get("version", "")


def read_stored_version(change: FormatChange) -> str:
    """Read the lake's format, known to this server or not."""
    return ", ".join(version for (version,) in change.read(_SQL.version))


def find_owner(change: FormatChange) -> str | None:
    """Return the role that DuckLake's tables belong to, if it isn't this login."""
    rights = _read_rights(change)
    return None if rights.owner == rights.login else rights.owner


def verify_migrated(change: FormatChange) -> list[Finding]:
    """Return whether the lake has all that DuckLake 1.1 has, columns by name and not by place."""
    columns = _read_columns(change)
    lacking = [table for table in _COUNTED_TABLES if _COUNT_COLUMN not in columns.get(table, ())]
    lacking += [] if columns.get(_TAG_TABLE, frozenset()) >= _TAG_COLUMNS else [_TAG_TABLE]
    old = [table for table in _read_inlined_tables(change) if tuple(table.first) != _NEW_NAMES]
    rights = _read_rights(change)
    restore = "restore the backup, and report what DuckDB did"
    return [
        make_finding(
            "columns", not lacking, f"not as in DuckLake 1.1: {', '.join(lacking)}" if lacking else "as in 1.1", restore
        ),
        make_finding(
            "inlined tables",
            not old,
            _summarize([table.name for table in old], "with other names than in 1.1: ") if old else "as in 1.1",
            "`duckicelake doctor` prints the statements that rename their columns",
        ),
        make_finding(
            "owners",
            not rights.strangers,
            _summarize(rights.strangers, f"not {rights.owner}'s: ") if rights.strangers else f"all {rights.owner}'s",
            "let a superuser run what `duckicelake grants` prints",
        ),
    ]


def _check_columns(change: FormatChange) -> Iterator[Finding]:
    columns = _read_columns(change)
    there = [f"{table}.{_COUNT_COLUMN}" for table in _COUNTED_TABLES if _COUNT_COLUMN in columns.get(table, ())]
    there += [_TAG_TABLE] if _TAG_TABLE in columns else []
    yield make_finding(
        "tables",
        not there,
        f"there already, so that the migration can't make it: {', '.join(there)}" if there else "as in DuckLake 1.0",
        "the lake is half migrated: restore a backup, or drop what is named if it is empty",
    )


def _check_inlined_tables(change: FormatChange) -> Iterator[Finding]:
    tables = _read_inlined_tables(change)
    wrong = [(table, *problem) for table in tables if (problem := _find_problem(table))]
    for table, detail, advice in wrong:
        yield Finding("inlined tables", ok=False, detail=f"{table.belongs_to}: {table.name} {detail}", advice=advice)
    if not wrong:
        yield Finding("inlined tables", ok=True, detail=f"{len(tables)}, all as DuckLake makes them", advice="")


def _find_problem(table: _InlinedTable) -> tuple[str, str] | None:
    """Return why the migration can't rename the table's columns, and what to do; None if it can."""
    if not table.first:
        forget = f"DELETE FROM ducklake_inlined_data_tables WHERE table_name = '{table.name}';"
        return "is registered, but isn't there", f"restore it from a backup, or forget it: {forget}"
    taken = sorted(set(_NEW_NAMES) & set(table.others))
    if taken:
        advice = "rename them, and flush the table in DuckDB (CALL ducklake_flush_inlined_data('lake');)"
        detail = f"has the user's columns {', '.join(taken)}, names that DuckLake 1.1 keeps for itself"
    elif tuple(table.first) in (_OLD_NAMES, _NEW_NAMES):
        return None
    else:
        advice = f"ALTER TABLE {table.name} RENAME COLUMN … until they are"
        detail = f"begins with the columns {', '.join(table.first)} instead of {', '.join(_OLD_NAMES)}"
    if table.is_dropped:
        advice = (
            "its table is dropped: expire the snapshots that show it and clean up in DuckDB "
            "(CALL ducklake_expire_snapshots('lake', older_than => …); CALL ducklake_cleanup_old_files('lake', …);)"
        )
    return detail, advice


def _check_rights(change: FormatChange) -> Iterator[Finding]:
    rights = _read_rights(change)
    wrong = [] if rights.is_member else [f"{rights.login} is no member of {rights.owner}, who owns DuckLake's tables"]
    wrong += [] if rights.may_create else [f"{rights.owner} may not create tables in the lake's schema"]
    wrong += [] if rights.may_make_temporary else [f"{rights.owner} may not create temporary tables in the database"]
    wrong += [_summarize(rights.strangers, f"not {rights.owner}'s: ")] if rights.strangers else []
    yield make_finding(
        "rights",
        not wrong,
        "; ".join(wrong) or f"{rights.owner} owns all tables and may make temporary ones",
        "let a superuser run what `duckicelake grants` prints, and GRANT TEMPORARY ON DATABASE … where that is missing",
    )


def _count_puffin_files(change: FormatChange) -> Finding:
    ((count,),) = change.read(_SQL.puffin)
    detail = f"{count} live delete files are Puffin, which stay as they are" if count else "no delete file is Puffin"
    return Finding("deletion vectors", ok=True, detail=detail, advice="")


def _list_sessions(change: FormatChange) -> Iterator[Finding]:
    """List the sessions that the migration would wait for now, and those that must attach again after it."""
    for session in change.find_lockers():
        if not session.is_ours:
            yield Finding(
                "sessions",
                ok=True,
                detail=f"{session}: {'writes' if session.writes else 'reads'} {session.table} now",
                advice="the migration waits until its transaction ends; --end-sessions ends it",
            )
    attached = change.find_attached(datetime.now(UTC) + timedelta(days=1), None)
    if attached:
        yield Finding(
            "attached",
            ok=True,
            detail=_summarize([session.identity for session in attached], f"{len(attached)} other sessions: "),
            advice="DETACH the lake where they are DuckDB's: DuckDB 1.5 ends with an INTERNAL error when it reads "
            "inlined rows of a lake that was migrated under it",
        )


def _read_inlined_tables(change: FormatChange) -> list[_InlinedTable]:
    return [_InlinedTable(*row) for row in change.read(_SQL.inlined)]


def _read_columns(change: FormatChange) -> dict[str, frozenset[str]]:
    return {table: frozenset(names) for table, names in change.read(_SQL.columns)}


def _read_rights(change: FormatChange) -> _Rights:
    (row,) = change.read(_SQL.rights)
    return _Rights(*row)


def _summarize(names: Sequence[str], head: str) -> str:
    more = len(names) - _MAX_NAMES_SHOWN
    return head + "; ".join(names[:_MAX_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
