"""Run read-only checks of a lake, each with advice."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime

from duckicelake.errors import StartupError
from duckicelake.lake.doctor.damage import find_misspelled_tables
from duckicelake.lake.doctor.findings import Finding, make_finding
from duckicelake.lake.setup.format import (
    DatabaseContents,
    check_complete,
    check_migrated,
    check_reachable,
    check_supported,
    find_missing_tables,
    read_contents,
    read_options,
)
from duckicelake.lake.setup.migrations import (
    find_edited_migrations,
    load_expected_schema,
    load_migrations,
    read_applied_migrations,
    read_schema,
)
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction, load_queries

MIN_POSTGRES_VERSION = 15
TABLES_BY_TRIGGER = {
    "duckicelake_keep_named_file": "ducklake_files_scheduled_for_deletion",
    "duckicelake_keep_delta_file": "ducklake_files_scheduled_for_deletion",
    "duckicelake_raise_epoch": "ducklake_snapshot",
    "duckicelake_check_renames": "ducklake_snapshot_changes",
    "duckicelake_refuse_writes": "ducklake_snapshot_changes",
    "duckicelake_refuse_view_writes": "ducklake_snapshot_changes",
    "duckicelake_keep_version": "ducklake_metadata",
    "duckicelake_keep_versions": "ducklake_metadata",
    "duckicelake_notice_new_options": "ducklake_metadata",
    "duckicelake_notice_set_options": "ducklake_metadata",
    "duckicelake_notice_gone_options": "ducklake_metadata",
    "duckicelake_check_known": "ducklake_snapshot",
    "duckicelake_check_spelling": "ducklake_inlined_data_tables",
    "duckicelake_check_merge": "ducklake_data_file",
    "duckicelake_check_delete_files": "ducklake_delete_file",
    "duckicelake_check_inlined_deletes": "ducklake_snapshot_changes",
    "duckicelake_note_dropped": "ducklake_snapshot_changes",
    "duckicelake_keep_dropped": "ducklake_snapshot",
    "duckicelake_check_protected": "ducklake_snapshot_changes",
    "duckicelake_keep_left_schema": "ducklake_schema",
}
_DOCTOR_SQL, _ROLES_SQL = load_queries("lake", "doctor"), load_queries("lake", "roles")
_MAX_NAMES_SHOWN = 5
_DUCKDB_SETTINGS = {
    "standard_conforming_strings": ("on", "true", "yes", "1"),
    "client_encoding": ("utf8", "utf-8"),
    "session_replication_role": ("origin", "local"),
}
"""Settings that DuckDB's sessions need, which don't pin any, with the values that do."""


def diagnose(database: Database, more: Sequence[Callable[[Transaction], Iterator[Finding]]]) -> list[Finding]:
    """Run all checks; those that need a catalog are left out where there is none. UnavailableError if Postgres is down.

    more: checks of a prepared lake, which run last.
    """
    with database.reading() as cursor:
        contents = read_contents(cursor)
        if contents.lake is not None and not _can_write(cursor):
            return [_check_postgres_version(cursor), _check_roles(cursor)]
        findings = [_check_postgres_version(cursor), _check_session_settings(cursor), _check_catalog(cursor, contents)]
        if contents.lake is not None and not find_missing_tables(cursor, contents):
            checks: tuple[Callable[[Transaction], Finding], ...] = (
                _check_migrations,
                _check_triggers,
                _check_snapshots,
            )
            findings += [check(cursor) for check in checks]
            if is_prepared(findings):
                findings += [
                    _check_schema(cursor),
                    _check_roles(cursor),
                    *(finding for check in more for finding in check(cursor)),
                ]
            else:
                findings += find_misspelled_tables(cursor)
    return findings


def is_prepared(findings: list[Finding]) -> bool:
    """Return whether the lake has all tables of a lake of this server, so that further checks can run."""
    return {"DuckLake catalog", "migrations"} <= {finding.name for finding in findings if finding.ok}


def _check_postgres_version(cursor: Transaction) -> Finding:
    (text,) = cursor.execute(_DOCTOR_SQL.server_version).fetchall()[0]
    ok = int(text.split(".")[0]) >= MIN_POSTGRES_VERSION
    return make_finding("Postgres version", ok, text, f"move the catalog to Postgres {MIN_POSTGRES_VERSION} or later")


def _check_session_settings(cursor: Transaction) -> Finding:
    wrong = cursor.execute(_DOCTOR_SQL.session_settings, {"names": list(_DUCKDB_SETTINGS)}).fetchall()
    differing = [
        f"{name} is {value} for {scope}" for name, value, scope in wrong if value.lower() not in _DUCKDB_SETTINGS[name]
    ]
    detail = ", ".join(dict.fromkeys(differing)) or "DuckDB's sessions have those that it needs"
    advice = (
        "the server pins its own, but DuckDB's clients write and read other texts: ALTER DATABASE or ALTER ROLE … "
        "RESET the setting, or attach with client_encoding=UTF8 options='-c standard_conforming_strings=on'"
    )
    return make_finding("session settings", not differing, detail, advice)


def _check_catalog(cursor: Transaction, contents: DatabaseContents) -> Finding:
    options = read_options(cursor) or {}
    names = ("format", "version"), ("encrypted", "encrypted"), ("files in", "data_path")
    detail = ", ".join(f"{word} {options.get(name)}" for word, name in names) if options else "none"
    try:
        check_reachable(contents)
        check_supported(options)
        check_complete(cursor, contents)
        check_migrated(cursor, contents, options)
    except StartupError as error:
        return Finding("DuckLake catalog", ok=False, detail=detail, advice=str(error))
    return Finding("DuckLake catalog", ok=True, detail=detail, advice="")


def _check_migrations(cursor: Transaction) -> Finding:
    applied = read_applied_migrations(cursor)
    known = {migration.number for migration in load_migrations()}
    detail = f"{len(applied)} applied, {len(known)} known"
    if applied - known:
        return Finding("migrations", ok=False, detail=detail, advice="run the newer duckicelake that made them")
    edited = find_edited_migrations(cursor)
    if edited:
        detail += f"; applied in another version than this one's: {_summarize(edited)}"
        return Finding(
            "migrations", ok=False, detail=detail, advice="run the duckicelake that made them, or ask for help"
        )
    return make_finding(
        "migrations", applied == known, detail, "start the server once; it applies those that are missing"
    )


def _check_schema(cursor: Transaction) -> Finding:
    """Compare all tables, columns, indexes, constraints, triggers and functions of ours with what migrations make."""
    present, expected = set(read_schema(cursor)), set(load_expected_schema())
    missing, others = sorted(expected - present), sorted(present - expected)
    differing = [
        f"{kind} {_summarize(facts)}" for kind, facts in (("missing:", missing), ("not ours:", others)) if facts
    ]
    advice = (
        "the server's tables were changed: restore the catalog from a backup, or run the statements that make what "
        "is missing"
    )
    return make_finding(
        "schema", not missing, "; ".join(differing) or f"{len(expected)} facts as migrations make them", advice
    )


def _summarize(facts: Sequence[str]) -> str:
    more = len(facts) - _MAX_NAMES_SHOWN
    return ", ".join(facts[:_MAX_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _check_triggers(cursor: Transaction) -> Finding:
    present = set(cursor.execute(_DOCTOR_SQL.triggers).fetchall())
    missing = sorted(set(TABLES_BY_TRIGGER.items()) - present)
    detail = ", ".join(f"{name} on {table} is missing or disabled" for name, table in missing) or "present and enabled"
    advice = (
        "neither expire snapshots, nor drop, rename, merge or rewrite tables, nor write tables that follow Delta ones, "
        "nor materialized views, "
        "nor attach with AUTOMATIC_MIGRATION in DuckDB until they are back: run ALTER TABLE … ENABLE TRIGGER, or "
        "CREATE TRIGGER as migrations 0002_triggers.sql, 0008_renames.sql, 0021_delta_sources.sql, "
        "0032_format_guard.sql, 0035_lost_deletes.sql, 0046_column_spellings.sql, 0052_dropped.sql, "
        "0053_protected.sql, 0059_moved_schemas.sql and 0079_materialized_views.sql do"
    )
    return make_finding("triggers", not missing, detail, advice)


def _check_snapshots(cursor: Transaction) -> Finding:
    newest, gap, gap_at, unrecorded, behind = cursor.execute(_DOCTOR_SQL.newest_snapshots).fetchall()[0]
    detail = f"newest is {newest}"
    if gap is not None and _has_expiry_gap(cursor, gap_at):
        gap = None
    if gap is not None:
        detail += f", {gap} is missing before it"
    if behind is not None:
        detail += f", {behind} is behind the one before it"
    if unrecorded:
        detail += f", {unrecorded} without a record of changes"
    advice = "a writer broke DuckLake's protocol: stop it; conflicts with its commits went unnoticed"
    return make_finding("snapshot ids", gap is None and behind is None and not unrecorded, detail, advice)


def _has_expiry_gap(cursor: Transaction, at: datetime) -> bool:
    """Return whether DuckDB's expiry may have left a gap: it takes any snapshots by id, and records none.

    at: when the snapshot after the gap was made.
    """
    if not read_applied_migrations(cursor):
        return True
    return bool(cursor.execute(_DOCTOR_SQL.may_have_expired, {"at": at}).fetchall()[0][0])


def _can_write(cursor: Transaction) -> bool:
    """Return whether this login may write DuckLake's tables, as a member of the role that owns them."""
    return all(is_member for *_, is_member in cursor.execute(_ROLES_SQL.writable).fetchall())


def _check_roles(cursor: Transaction) -> Finding:
    user, owner, is_member = cursor.execute(_ROLES_SQL.writable).fetchall()[0]
    wrong = [] if is_member else [f"{user}, who asks, may not write DuckLake's tables, which are {owner}'s"]
    for name, other, right in cursor.execute(_ROLES_SQL.strangers).fetchall()[:_MAX_NAMES_SHOWN]:
        wrong.append(f"{name} is {other}'s, not {right}'s: others can neither alter nor drop it")
    for login, name in cursor.execute(_ROLES_SQL.trespassers).fetchall()[:_MAX_NAMES_SHOWN]:
        wrong.append(f"{login} may touch {name}, which is the server's")
    for login, right in cursor.execute(_ROLES_SQL.as_themselves).fetchall()[:_MAX_NAMES_SHOWN]:
        wrong.append(f"{login} doesn't act as {right}, so the tables that it makes will be its own")
    for login, name in cursor.execute(_ROLES_SQL.half_readers).fetchall()[:_MAX_NAMES_SHOWN]:
        wrong.append(f"{login} reads DuckLake's snapshots, but may not read {name}")
    advice = "let a superuser run what `duckicelake grants` prints for your logins; it may be run again"
    return make_finding("roles", not wrong, "; ".join(wrong) or f"DuckLake's tables are {owner}'s, all of them", advice)
