"""Who owns what in Postgres (design §6.12): DuckLake's tables a role without login, the side tables the server's login.

DuckDB makes, alters and drops tables of inlined rows at run time, and the server makes some. Only their owner may, so
all who write act as the one owner: DuckDB's logins from the start, the server where it makes such a table.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import psycopg
from psycopg import Cursor, sql

from duckicelake.errors import StartupError, Unavailable
from duckicelake.lake.postgres.database import Row
from duckicelake.lake.postgres.queries import queries
from duckicelake.lake.postgres.session import PinnedSession

_SQL = queries("roles")


@dataclass(frozen=True, slots=True)
class Logins:
    """Roles that can log in: the server's, and DuckDB's that write or only read. owner: has DuckLake's tables."""

    server: str
    writers: Sequence[str]
    readers: Sequence[str]
    owner: str = "ducklake"


@contextmanager
def as_owner(cursor: Cursor[Row]) -> Iterator[None]:
    """Be the owner of DuckLake's tables while the block runs, where that is another role; else nothing changes."""
    row = cursor.execute(_SQL.other_owner).fetchone()
    if row is None:
        yield
        return
    cursor.execute(sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(row[0])))
    yield
    cursor.execute("RESET ROLE")


def grants(logins: Logins, schema: str = "public") -> list[str]:
    """SQL that gives each login what it needs and no more; a superuser may run it as often as wanted, in this order.

    The logins must exist.
    """
    names = {
        "server": _name(logins.server),
        "owner": _name(logins.owner),
        "owner_text": _text(logins.owner),
        "server_text": _text(logins.server),
        "schema": _name(schema),
        "schema_text": _text(schema),
        "duckdb": ", ".join(map(_name, [*logins.writers, *logins.readers])),
        "members": ", ".join(map(_name, [logins.server, *logins.writers])),
        "readers": ", ".join(map(_name, logins.readers)),
        "strangers": _inside(["PUBLIC", *map(_name, [logins.owner, *logins.writers, *logins.readers])]),
        "quoted_readers": _inside(map(_name, logins.readers)),
    }
    statements = [_OWNER, _SCHEMA, _DUCKDB_SCHEMA if names["duckdb"] else "", "GRANT {owner} TO {members}", _OWNERSHIP]
    statements += [_SIDE_TABLES, _READERS if logins.readers else ""]
    made = [statement.format(**names) for statement in statements if statement]
    return made + [_ACT_AS_OWNER.format(writer=_inside([_name(writer)]), **names) for writer in logins.writers]


def apply(url: str, statements: Sequence[str]) -> None:
    """Run them in one transaction; StartupError if Postgres refuses one."""
    try:
        with psycopg.connect(url, connect_timeout=5) as connection:
            PinnedSession().pin(connection)
            for statement in statements:
                connection.execute(statement)
    except psycopg.OperationalError as error:
        raise Unavailable(f"Postgres does not answer: {error}") from error
    except psycopg.Error as error:
        raise StartupError(f"nothing was granted: {error.diag.message_primary}") from error


def _name(text: str) -> str:
    return sql.Identifier(text).as_string(None)


def _inside(names: Iterable[str]) -> str:
    """Names in the text that Postgres' `format` takes."""
    return ", ".join(names).replace("'", "''").replace("%", "%%")


def _text(text: str) -> str:
    return sql.Literal(text).as_string(None)


_OWNER = """\
DO $$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = {owner_text}) THEN
        CREATE ROLE {owner} NOLOGIN;
    END IF;
END $$"""

_SCHEMA = """\
REVOKE CREATE ON SCHEMA {schema} FROM PUBLIC;
GRANT USAGE, CREATE ON SCHEMA {schema} TO {owner}, {server}"""

_DUCKDB_SCHEMA = """\
REVOKE CREATE ON SCHEMA {schema} FROM {duckdb};
GRANT USAGE ON SCHEMA {schema} TO {duckdb}"""

_OWNERSHIP = """\
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

_SIDE_TABLES = """\
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

_READERS = """\
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

_ACT_AS_OWNER = """\
DO $$ BEGIN
    EXECUTE format('ALTER ROLE {writer} IN DATABASE %I SET role TO %L', current_database(), {owner_text});
END $$"""
