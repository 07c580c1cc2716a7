"""What a login can't do with psql: read, write, lock, stay, or become more. Marks stand in all that it mustn't see."""

from collections.abc import Iterator
from contextlib import suppress

import duckdb
import psycopg
import pytest
from psycopg import errors, sql

from duckicelake.catalog.context.services import Services
from duckicelake.duckdb_login import logins
from duckicelake.duckdb_login.attachment import Attachment
from duckicelake.duckdb_login.service import LoginCaretaker
from tests.support.duckdb_logins import LoginSite, login_site

MARK = "zzmark"
CATALOGS_WITH_NAMES = {
    *("pg_catalog.pg_attribute", "pg_catalog.pg_stats", "information_schema.columns"),
    *("information_schema.column_privileges", "information_schema.role_column_grants"),
}
"""What Postgres shows to every role: the names of columns of tables, here of those for inlined rows."""

Session = psycopg.Connection[tuple[object, ...]]


@pytest.fixture
def site(services: Services, ducklake: duckdb.DuckDBPyConnection) -> Iterator[LoginSite]:
    """A namespace that may be read, and one full of marks: names, comments, values, bounds, SQL, messages, options."""
    for statement in (
        "CREATE SCHEMA open",
        "CREATE TABLE open.t AS SELECT i AS id FROM range(50) r(i)",
        "INSERT INTO open.t VALUES (1000)",
        f"CREATE SCHEMA {MARK}",
        f"CREATE TABLE {MARK}.t (id BIGINT, {MARK}_column VARCHAR, part VARCHAR)",
        f"INSERT INTO {MARK}.t SELECT i, '{MARK}' || i, '{MARK}' FROM range(50) r(i)",
        f"ALTER TABLE {MARK}.t SET PARTITIONED BY (part)",
        f"ALTER TABLE {MARK}.t SET SORTED BY ({MARK}_column)",
        f"INSERT INTO {MARK}.t SELECT i, '{MARK}', '{MARK}' FROM range(50) r(i)",
        f"INSERT INTO {MARK}.t VALUES (1000, '{MARK} inlined', '{MARK}')",
        f"DELETE FROM {MARK}.t WHERE id = 3",
        f"COMMENT ON TABLE {MARK}.t IS '{MARK}'",
        f"COMMENT ON COLUMN {MARK}.t.id IS '{MARK}'",
        f"CREATE VIEW {MARK}.v AS SELECT '{MARK}' AS a",
        f"CREATE MACRO {MARK}.m(a) AS a || '{MARK}'",
        "BEGIN",
        f"CALL ducklake_set_commit_message('lake', '{MARK}', '{MARK}', extra_info => '{MARK}')",
        f"INSERT INTO {MARK}.t VALUES (1001, 'x', 'y')",
        "COMMIT",
    ):
        ducklake.execute(statement)
    with services.database.statement() as cursor:
        cursor.execute("ANALYZE")
    with login_site(services) as site:
        yield site


@pytest.fixture
def attachment(site: LoginSite) -> Attachment:
    return site.open("ns:open:r")


@pytest.fixture
def session(site: LoginSite, attachment: Attachment) -> Session:
    connection = site.connect(attachment)
    connection.execute("SET default_transaction_read_only = off")
    return connection


def test_no_relation_shows_a_mark(session: Session) -> None:
    """All tables and views of all schemas that Postgres lets it read, its statistics included."""
    relations = session.execute(
        "SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE c.relkind IN ('r', 'v', 'm', 'p') AND has_schema_privilege(n.oid, 'USAGE') "
        "AND has_any_column_privilege(c.oid, 'SELECT')"
    ).fetchall()
    assert len(relations) > 150
    shown = set()
    for schema, name in relations:
        query = sql.SQL("SELECT string_agg(r::text, ' ') FROM {} r").format(sql.Identifier(str(schema), str(name)))
        with suppress(errors.InsufficientPrivilege, errors.ObjectNotInPrerequisiteState):
            ((text,),) = session.execute(query).fetchall()
            if MARK in str(text or ""):
                shown.add(f"{schema}.{name}")
    assert shown <= CATALOGS_WITH_NAMES
    statistics = session.execute("SELECT DISTINCT tablename FROM pg_stats s WHERE s::text LIKE '%zzmark%'").fetchall()
    assert statistics in ([], [("pg_attribute",)])


def test_side_tables_and_inlined_rows_are_shut(session: Session) -> None:
    names = [name for (name,) in session.execute("SELECT relname FROM pg_class WHERE relname ~ '^duckicelake_'")]
    tables = [name for (name,) in session.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")]
    assert len(names) > 50
    for name in tables:
        if str(name).startswith("duckicelake_"):
            with pytest.raises(errors.InsufficientPrivilege):
                session.execute(f"SELECT FROM {name}")
    inlined = [
        str(name) for name in tables if str(name).startswith("ducklake_inlined_data_") and "tables" not in str(name)
    ]
    rows = {name: session.execute(f"SELECT count(*) FROM {name}").fetchone() for name in inlined}
    assert sum(count != (0,) for count in rows.values()) == 1  # open.t has one row
    with pytest.raises(errors.InsufficientPrivilege):
        session.execute("SELECT * FROM ducklake_files_scheduled_for_deletion")


def test_attack_fails(session: Session, attachment: Attachment, subtests: pytest.Subtests) -> None:
    for attack in [
        "INSERT INTO ducklake_snapshot SELECT snapshot_id + 1, now(), 1, 1, 1 FROM ducklake_snapshot",
        "UPDATE ducklake_data_file SET path = 'x'",
        "DELETE FROM ducklake_table",
        "TRUNCATE ducklake_table",
        "SELECT * FROM ducklake_table FOR UPDATE",
        "SELECT * FROM ducklake_table FOR KEY SHARE",
        "LOCK TABLE ducklake_table IN ROW SHARE MODE",
        "LOCK TABLE ducklake_table IN SHARE MODE",
        "LOCK TABLE ducklake_table IN ACCESS EXCLUSIVE MODE",
        "CREATE TABLE public.x (a int)",
        "CREATE SCHEMA x",
        "CREATE FUNCTION public.x() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE EXTENSION dblink",
        "CREATE ROLE x",
        "ALTER TABLE ducklake_table DISABLE ROW LEVEL SECURITY",
        "DROP POLICY duckicelake_logins ON ducklake_table",
        "CREATE POLICY x ON ducklake_table USING (true)",
        "ALTER ROLE {login} VALID UNTIL 'infinity'",
        "ALTER ROLE {login} CONNECTION LIMIT -1",
        "ALTER ROLE {login} SUPERUSER",
        "ALTER ROLE {login} BYPASSRLS",
        "SET ROLE postgres",
        "SET SESSION AUTHORIZATION postgres",
        "COPY ducklake_table TO '/tmp/x'",
        "COPY ducklake_table TO PROGRAM 'cat'",
        "SELECT pg_read_file('postgresql.conf')",
        "SELECT lo_import('/etc/hostname')",
        "ANALYZE ducklake_snapshot; SELECT 1/0",
        "SELECT duckicelake_login_reads_of('another', 'table')",
        "SELECT duckicelake_is_named('x')",
        "SELECT duckicelake_read_only(1)",
        "SET row_security = off; SELECT * FROM ducklake_table",
        "SET session_replication_role = replica",
    ]:
        with subtests.test(attack):
            with pytest.raises(psycopg.Error) as raised:
                session.execute(attack.replace("{login}", attachment.login.name))
            assert MARK not in str(raised.value)


def test_only_one_function_with_the_servers_rights_can_be_called(session: Session) -> None:
    found = session.execute(
        "SELECT proname FROM pg_proc WHERE prosecdef AND pronamespace = 'public'::regnamespace "
        "AND has_function_privilege(oid, 'EXECUTE')"
    ).fetchall()
    assert found == [("duckicelake_login_reads",)]


def test_temporary_things_change_nothing(session: Session) -> None:
    """Neither tables before those of the lake, nor a function that would hear of each row before a policy does."""
    notices: list[str] = []
    session.add_notice_handler(lambda diagnostic: notices.append(str(diagnostic.message_primary)))
    for table in ("duckicelake_duckdb_login", "ducklake_table", "duckicelake_warehouse_option"):
        session.execute(f"CREATE TEMP TABLE {table} (role_name text, warehouse_id uuid, table_id bigint)")
    session.execute(
        "CREATE FUNCTION pg_temp.hear(text) RETURNS boolean LANGUAGE plpgsql COST 0.0000001 AS "
        "$$ BEGIN RAISE NOTICE '%', $1; RETURN true; END $$"
    )
    found = session.execute("SELECT table_name FROM public.ducklake_table WHERE pg_temp.hear(table_name || table_id)")
    assert [name for (name,) in found.fetchall()] == ["t"]
    assert len(notices) == 1
    for guess in ("1 / (record_count - 100)", "1 / (next_row_id - 102)"):
        session.execute(f"SELECT {guess} FROM public.ducklake_table_stats")
    session.execute("SELECT max_value::bigint FROM public.ducklake_file_column_stats")


def test_other_roles_of_the_group_dont_help(session: Session, site: LoginSite) -> None:
    """In the group's role, what counts is still who logged in."""
    ((group,),) = session.execute(
        "SELECT r.rolname FROM pg_auth_members m JOIN pg_roles r ON r.oid = m.roleid "
        "JOIN pg_roles u ON u.oid = m.member WHERE u.rolname = session_user"
    ).fetchall()
    with suppress(errors.InsufficientPrivilege):
        session.execute(f"SET ROLE {group}")
    assert session.execute("SELECT count(*) FROM ducklake_table").fetchone() == (1,)
    session.execute("RESET ROLE")
    with site.services.database.statement() as cursor:
        cursor.execute(f"SET ROLE {group}")
        assert cursor.execute("SELECT count(*) FROM ducklake_table").fetchone() == (0,)
        cursor.execute("RESET ROLE")


def test_session_that_could_block_others_ends(
    site: LoginSite, attachment: Attachment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An advisory lock, as the server takes; a transaction that is open for too long, whatever its settings say."""
    caretaker = LoginCaretaker(site.services)
    for hold in ("SELECT pg_advisory_lock(1)", "BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0"):
        connection = site.connect(attachment)
        connection.execute(hold)
        if hold.startswith("BEGIN"):
            connection.execute("LOCK TABLE ducklake_table IN ACCESS SHARE MODE")
            caretaker.look()
            assert connection.execute("SELECT 1").fetchone() == (1,)
            monkeypatch.setattr(logins, "TRANSACTION_SECONDS", 0.001)
        caretaker.look()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")


def test_connections_are_limited(site: LoginSite, attachment: Attachment) -> None:
    for _ in range(logins.MAX_CONNECTIONS):
        site.connect(attachment)
    with pytest.raises(psycopg.OperationalError, match="too many connections"):
        site.connect(attachment)


def test_login_that_owns_things_is_dropped(site: LoginSite, attachment: Attachment, session: Session) -> None:
    session.execute("SELECT lo_from_bytea(0, 'x')")
    logins.end_login(site.services.database, logins.find_place(site.services), attachment.login.name)
    with site.services.database.statement() as cursor:
        assert cursor.execute("SELECT count(*) FROM pg_largeobject_metadata").fetchone() == (0,)
        assert cursor.execute("SELECT FROM pg_roles WHERE rolname = %s", [attachment.login.name]).fetchone() is None


def test_postgres_never_hears_the_password(site: LoginSite, attachment: Attachment) -> None:
    with site.services.database.statement() as cursor:
        row = cursor.execute("SELECT rolpassword FROM pg_authid WHERE rolname = %s", [attachment.login.name]).fetchone()
    assert row is not None
    assert str(row[0]).startswith("SCRAM-SHA-256$")
    assert attachment.login.password not in repr(attachment)
