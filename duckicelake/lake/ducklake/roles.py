"""Owners and grants in Postgres: who owns DuckLake's tables, and who may read or write (design §6.12)."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import Cursor, sql

from duckicelake.errors import StartupError, UnavailableError
from duckicelake.lake.ducklake.database import open_lake_session
from duckicelake.postgres.queries import Row, load_queries

_SQL = load_queries("lake", "roles")


@dataclass(frozen=True, slots=True)
class LakeLogins:
    """Roles that can log in: the server's, and those of DuckDB's writers and readers. owner: of DuckLake's tables."""

    server: str
    writers: Sequence[str]
    readers: Sequence[str]
    owner: str = "ducklake"


@contextmanager
def act_as_owner(cursor: Cursor[Row]) -> Iterator[None]:
    """Become the owner of DuckLake's tables within the block, if that is another role."""
    row = cursor.execute(_SQL.other_owner).fetchone()
    if row is None:
        yield
        return
    cursor.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(row[0])))
    yield
    cursor.execute("RESET ROLE")


def build_grants(logins: LakeLogins, schema: str = "public") -> list[str]:
    """Build SQL that gives each login the rights it needs and no others. It may run repeatedly, as a superuser.

    The logins must exist.
    """
    names = {
        "server": _quote_identifier(logins.server),
        "owner": _quote_identifier(logins.owner),
        "owner_text": _quote_text(logins.owner),
        "server_text": _quote_text(logins.server),
        "schema": _quote_identifier(schema),
        "schema_text": _quote_text(schema),
        "duckdb": ", ".join(map(_quote_identifier, [*logins.writers, *logins.readers])),
        "members": ", ".join(map(_quote_identifier, [logins.server, *logins.writers])),
        "readers": ", ".join(map(_quote_identifier, logins.readers)),
        "strangers": _quote_for_format(
            ["PUBLIC", *map(_quote_identifier, [logins.owner, *logins.writers, *logins.readers])]
        ),
        "quoted_readers": _quote_for_format(map(_quote_identifier, logins.readers)),
    }
    statements = [
        _OWNER_SQL,
        _SCHEMA_SQL,
        _DUCKDB_SCHEMA_SQL if names["duckdb"] else "",
        "GRANT {owner} TO {members}",
        _OWNERSHIP_SQL,
    ]
    statements += [_SIDE_TABLES_SQL, _READERS_SQL if logins.readers else ""]
    made = [statement.format(**names) for statement in statements if statement]
    return made + [
        _ACT_AS_OWNER_SQL.format(writer=_quote_for_format([_quote_identifier(writer)]), **names)
        for writer in logins.writers
    ]


def apply_grants(url: str, statements: Sequence[str]) -> None:
    """Run the statements in one transaction; StartupError: Postgres refuses one."""
    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            open_lake_session().pin(connection)
            for statement in statements:
                connection.execute(statement)
    except psycopg.OperationalError as error:
        raise UnavailableError(f"Postgres does not answer: {error}") from error
    except psycopg.Error as error:
        raise StartupError(f"nothing was granted: {error.diag.message_primary}") from error


def _quote_identifier(text: str) -> str:
    return sql.Identifier(text).as_string(None)


def _quote_for_format(names: Iterable[str]) -> str:
    """Quote names for the text that Postgres' `format` takes."""
    return ", ".join(names).replace("'", "''").replace("%", "%%")


def _quote_text(text: str) -> str:
    return sql.Literal(text).as_string(None)


_OWNER_SQL = """\
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {owner_text}) THEN
        CREATE ROLE {owner} NOLOGIN;
    END IF;
END $$"""

_SCHEMA_SQL = """\
REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA {schema} TO {owner}, {server}"""

_DUCKDB_SCHEMA_SQL = """\
REVOKE CREATE ON SCHEMA {schema} FROM {duckdb};
GRANT USAGE ON SCHEMA {schema} TO {duckdb}"""

_OWNERSHIP_SQL = """\
DO $$
DECLARE object record;
BEGIN
    FOR object IN
        SELECT c.oid::regclass AS name, starts_with(c.relname, 'ducklake_') AS is_lakes
        FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = {schema_text} AND c.relkind = 'r' AND c.relname ~ '^(ducklake|duckicelake)_'
    LOOP
        EXECUTE format('ALTER TABLE %s OWNER TO %I', object.name,
                       CASE WHEN object.is_lakes THEN {owner_text} ELSE {server_text} END);
    END LOOP;
    FOR object IN
        SELECT p.oid::regprocedure AS name FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = {schema_text} AND starts_with(p.proname, 'duckicelake_')
    LOOP
        EXECUTE format('ALTER FUNCTION %s OWNER TO %I', object.name, {server_text});
    END LOOP;
END $$"""

_SIDE_TABLES_SQL = """\
DO $$
DECLARE object record;
BEGIN
    FOR object IN
        SELECT c.oid::regclass AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = {schema_text} AND c.relkind IN ('r', 'S') AND starts_with(c.relname, 'duckicelake_')
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM {strangers}', object.name);
    END LOOP;
    -- Triggers need no one's leave to run them.
    FOR object IN
        SELECT p.oid::regprocedure AS name FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = {schema_text} AND starts_with(p.proname, 'duckicelake_') AND p.prosecdef
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM {strangers}', object.name);
    END LOOP;
END $$"""

_READERS_SQL = """\
DO $$
DECLARE object record;
BEGIN
    FOR object IN
        SELECT c.oid::regclass AS name FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = {schema_text} AND c.relkind = 'r' AND starts_with(c.relname, 'ducklake_')
    LOOP
        EXECUTE format('REVOKE ALL ON %s FROM PUBLIC, {quoted_readers}', object.name);
        EXECUTE format('GRANT SELECT ON %s TO {quoted_readers}', object.name);
    END LOOP;
END $$;
ALTER DEFAULT PRIVILEGES FOR ROLE {owner} IN SCHEMA {schema} GRANT SELECT ON TABLES TO {readers}"""

_ACT_AS_OWNER_SQL = """\
DO $$ BEGIN
    EXECUTE format('ALTER ROLE {writer} IN DATABASE %I SET role TO %L', current_database(), {owner_text});
END $$"""
