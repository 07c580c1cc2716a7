"""What DuckDB 2.0 does to a lake whose format it migrates, as SQL: its extension can't be had from a registry yet."""

from collections.abc import Sequence

import psycopg

GUARDS = ("duckicelake_keep_version", "duckicelake_keep_versions")
_NEW_TABLE = """CREATE TABLE ducklake_view_column_tag (view_id BIGINT, column_name VARCHAR, begin_snapshot BIGINT,
    end_snapshot BIGINT, key VARCHAR, value VARCHAR)"""
_NAMES = ("row_id", "begin_snapshot", "end_snapshot")


def format_change(version: str) -> str:
    """Change the version as an operator who has taken the guard off."""
    off, on = (
        "".join(f"ALTER TABLE ducklake_metadata {act} TRIGGER {guard};" for guard in GUARDS)
        for act in ("DISABLE", "ENABLE")
    )
    return f"{off} UPDATE ducklake_metadata SET value = '{version}' WHERE key = 'version' AND scope IS NULL; {on}"


def migration_statements(connection: psycopg.Connection, *, is_guarded: bool = True) -> Sequence[str]:
    """The statements of DuckDB 2.0's migration from 1.0 to 1.1, which it sends as one REPEATABLE READ transaction."""
    inlined = [name for (name,) in connection.execute("SELECT table_name FROM ducklake_inlined_data_tables").fetchall()]
    version = "UPDATE ducklake_metadata SET value = '1.1' WHERE key = 'version'"
    return [
        *(f'ALTER TABLE "{table}" RENAME COLUMN {name} TO _ducklake_{name}' for table in inlined for name in _NAMES),
        "ALTER TABLE ducklake_data_file ADD COLUMN row_group_count BIGINT",
        "ALTER TABLE ducklake_delete_file ADD COLUMN row_group_count BIGINT",
        _NEW_TABLE,
        version if is_guarded else format_change("1.1"),
    ]


def migrate(url: str, *, is_guarded: bool = True) -> None:
    """Run that transaction; psycopg.Error, with nothing changed, if a statement is refused."""
    with psycopg.connect(url) as connection:
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        for statement in migration_statements(connection, is_guarded=is_guarded):
            connection.execute(statement)
