"""DuckDB with a login reads what the caller may read, as the owner's does, at every snapshot, and nothing else."""

import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import duckdb
import psycopg
import pytest
from psycopg.errors import LockNotAvailable

from duckicelake.catalog import grants
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.grants import GrantChange, parse_object
from duckicelake.duckdb_login.attachment import LoginOptions, close_attachment, open_attachment
from duckicelake.duckdb_login.logins import MAX_LOGINS, find_place, list_roles
from duckicelake.duckdb_login.rules import apply_rules
from duckicelake.duckdb_login.service import LOOK_SECONDS, LoginCaretaker, look_after_logins
from duckicelake.errors import ForbiddenError, NotFoundError, TooManyRequestsError, UnsupportedError
from duckicelake.lake.side_tables import reader
from duckicelake.lake.side_tables.policies import GuardedColumn, NewPolicy, insert_policy
from tests.conftest import Attach
from tests.support.duckdb_logins import LoginSite, login_site

Row = tuple[Any, ...]


@pytest.fixture
def lake(ducklake: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Namespaces `open` and `shut`, alike: tables with files, inlined rows, deletes of both, and all else."""
    for name in ("open", "shut"):
        for statement in (
            f"CREATE SCHEMA {name}",
            f"CREATE TABLE {name}.t AS SELECT i AS id, 'n' || i AS name FROM range(100) r(i)",
            f"INSERT INTO {name}.t VALUES (1000, NULL), (1001, 'x')",
            f"DELETE FROM {name}.t WHERE id IN (5, 1001)",
            f"ALTER TABLE {name}.t ADD COLUMN more INTEGER DEFAULT 7",
            f"INSERT INTO {name}.t VALUES (2000, 'late', 1)",
            f"CREATE TABLE {name}.parts (day DATE, n INTEGER)",
            f"ALTER TABLE {name}.parts SET PARTITIONED BY (day)",
            f"INSERT INTO {name}.parts SELECT DATE '2026-01-01' + (i % 3)::INTEGER, i FROM range(60) r(i)",
            f"CREATE VIEW {name}.v AS SELECT id FROM {name}.t",
            f"CREATE MACRO {name}.plus(a) AS a + 1",
            f"COMMENT ON TABLE {name}.t IS 'about {name}'",
        ):
            ducklake.execute(statement)
    return ducklake


@pytest.fixture
def site(services: Services, lake: duckdb.DuckDBPyConnection) -> Iterator[LoginSite]:
    with login_site(services) as site:
        yield site


def grant(site: LoginSite, *objects: str, principal: str = "ann") -> None:
    """Turn grants on, and give a principal `select` on objects alone."""
    with site.services.database.transaction() as cursor:
        cursor.execute("INSERT INTO duckicelake_principal (name, kind) VALUES (%s, 'user')", [principal])
    changes = [GrantChange(principal, ("select",), parse_object(object_)) for object_ in objects]
    grants.change_grants(site.services, changes)
    grants.set_grants(site.services, is_on=True)
    assert site.services.rights is not None
    site.services.rights.look()


def revoke(site: LoginSite, object_: str) -> None:
    grants.change_grants(site.services, (), [GrantChange("ann", ("select",), parse_object(object_))])


def list_seen(connection: duckdb.DuckDBPyConnection) -> list[str]:
    """List tables and views."""
    query = "SELECT table_schema || '.' || table_name FROM information_schema.tables WHERE table_catalog = 'lake'"
    rows = connection.execute(f"{query} ORDER BY 1")
    return [name for (name,) in rows.fetchall()]


def test_table_with_policies_is_not_there_nor_one_that_takes_its_name(
    site: LoginSite, lake: duckdb.DuckDBPyConnection
) -> None:
    before = site.attach(site.open("ns:open:r"))
    assert "open.t" in list_seen(before)
    add_policy(site)
    assert before.execute("SELECT count(*) FROM lake.open.t").fetchall() == [(0,)]  # it has the schema in memory
    ours = site.attach(site.open("ns:open:r"))
    assert [name for name in list_seen(ours) if name.startswith("open.")] == ["open.parts", "open.v"]
    with pytest.raises(duckdb.Error):
        ours.execute("FROM lake.open.t")
    lake.execute("DROP TABLE open.t; CREATE TABLE open.t AS SELECT 1 AS id")
    assert "open.t" not in list_seen(ours)


def add_policy(site: LoginSite) -> None:
    """Hide all rows of `open.t` from everyone."""
    with site.services.database.transaction() as cursor:
        table_id = reader.find_table_id(cursor, "open", "t")
        assert table_id is not None
        new = NewPolicy("p", GuardedColumn(table_id, "open", "t"), None, None, False, "false", ("ann",), ())
        assert insert_policy(cursor, find_place(site.services), new, "root") is not None


@pytest.mark.commands
def test_policy_ends_logins_that_saw_its_table_with_what_they_have_open(site: LoginSite) -> None:
    """A transaction that is open sees what it saw, until the server's look ends the login."""
    failures: list[Exception] = []
    with look_after_logins(site.services, failures.append):
        attachment = site.open("ns:open:r")
        held = site.connect(attachment)
        held.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        count = "SELECT count(*) FROM ducklake_table WHERE table_name = 't'"
        assert held.execute(count).fetchone() == (1,)
        time.sleep(2 * LOOK_SECONDS)  # the thread has seen what the login may read
        add_policy(site)
        seconds = measure_end(held, count, 5)
    assert (seconds < 2, failures) == (True, [])
    with pytest.raises(psycopg.OperationalError):
        site.connect(attachment)


def measure_end(connection: psycopg.Connection, query: str, seconds: float) -> float:
    """Measure until a connection is ended."""
    began = time.monotonic()
    with suppress(psycopg.OperationalError):
        while time.monotonic() < began + seconds:
            connection.execute(query)
            time.sleep(0.01)
    return time.monotonic() - began


def test_rows_are_the_owners_at_every_snapshot(site: LoginSite, lake: duckdb.DuckDBPyConnection) -> None:
    ours = site.attach(site.open("ns:open:r"))
    snapshots = [id_ for (id_,) in lake.execute("SELECT snapshot_id FROM ducklake_snapshots('lake')").fetchall()]
    compared = 0
    for snapshot in snapshots:
        for name in ("t", "parts", "v"):
            query = f"SELECT * FROM open.{name} AT (VERSION => {snapshot}) ORDER BY ALL"
            if name == "v":
                query = "SELECT * FROM open.v ORDER BY ALL"
            try:
                expected = lake.execute(query).fetchall()
            except duckdb.Error:
                continue
            assert ours.execute(query).fetchall() == expected
            compared += 1
    assert compared > 40
    for query in (
        "SELECT id FROM open.t WHERE id BETWEEN 3 AND 7 ORDER BY ALL",
        "SELECT n FROM open.parts WHERE day = '2026-01-02' ORDER BY ALL",
        "SELECT min(id), max(id), count(*), count(name) FROM open.t",
        "SELECT open.plus(1)",
        "FROM ducklake_table_changes('lake', 'open', 't', 0, 12) ORDER BY ALL",
        "SELECT comment FROM duckdb_tables() WHERE schema_name = 'open' ORDER BY ALL",
        "SELECT count(*) FROM ducklake_list_files('lake', 't', schema => 'open')",
    ):
        assert ours.execute(query).fetchall() == lake.execute(query).fetchall()


def test_later_changes_are_seen(site: LoginSite, lake: duckdb.DuckDBPyConnection) -> None:
    """Also tables of inlined rows that weren't there: the caretaker lets logins read them."""
    ours = site.attach(site.open("ns:open:r"))
    caretaker = LoginCaretaker(site.services)
    for change in (
        "INSERT INTO open.t VALUES (3000, 'z', 2)",
        "DELETE FROM open.parts WHERE n = 4",
        "ALTER TABLE open.t RENAME COLUMN name TO label",
        "INSERT INTO open.t VALUES (3001, 'y', 2)",
        "CREATE TABLE open.new AS SELECT 1 AS a",
        "DELETE FROM open.t WHERE id < 20",
        "UPDATE open.t SET label = 'u' WHERE id > 2000",
    ):
        lake.execute(change)
        caretaker.look()
        for name in ("t", "parts"):
            query = f"SELECT * FROM open.{name} ORDER BY ALL"
            assert ours.execute(query).fetchall() == lake.execute(query).fetchall(), change
    lake.execute("CALL ducklake_flush_inlined_data('lake')")
    ours = site.attach(site.open("ns:open:r"))  # after another's flush, the owner's DuckDB has to attach anew, too
    assert ours.execute("FROM open.t ORDER BY ALL").fetchall() == lake.execute("FROM open.t ORDER BY ALL").fetchall()
    assert ours.execute("FROM open.new").fetchall() == [(1,)]
    assert list_seen(ours) == ["open.new", "open.parts", "open.t", "open.v"]


def test_new_inlined_deletes_are_refused_until_covered(site: LoginSite, lake: duckdb.DuckDBPyConnection) -> None:
    """An error, and not the rows that were deleted."""
    ours = site.attach(site.open("ns:open:r"))
    query = "SELECT count(*) FROM open.parts"
    assert ours.execute(query).fetchall() == [(60,)]
    lake.execute("DELETE FROM open.parts WHERE n = 4")
    with pytest.raises(duckdb.Error, match=r"Logins may not read ducklake_inlined_delete_\d+ yet: try again"):
        ours.execute(query)
    LoginCaretaker(site.services).look()
    assert ours.execute(query).fetchall() == [(59,)]


def test_grants_on_one_table_and_one_view(site: LoginSite) -> None:
    grant(site, "table:open.t", "view:shut.v")
    ours = site.attach(site.open("grants"))
    assert list_seen(ours) == ["open.t", "shut.v"]
    assert ours.execute("SELECT count(*) FROM open.t").fetchone() == (101,)
    for hidden in ("FROM open.parts", "FROM shut.t", "FROM shut.v", "SELECT open.plus(1)"):
        with pytest.raises(duckdb.Error):
            ours.execute(hidden)


def test_scopes_bound_grants_and_names_bound_both(site: LoginSite) -> None:
    grant(site, "warehouse")
    assert list_seen(site.attach(site.open("ns:shut:r"))) == ["shut.parts", "shut.t", "shut.v"]
    assert list_seen(site.attach(site.open("*", within=(("open",),)))) == ["open.parts", "open.t", "open.v"]
    with pytest.raises(ForbiddenError):
        site.open("ns:shut:r", within=(("open",),))


def test_grants_follow_groups_roles_and_renames(site: LoginSite, lake: duckdb.DuckDBPyConnection) -> None:
    grant(site, principal="ann")
    with site.services.database.transaction() as cursor:
        cursor.execute("INSERT INTO duckicelake_principal (name, kind) VALUES ('staff', 'group'), ('readers', 'role')")
        cursor.execute(
            "INSERT INTO duckicelake_membership SELECT c.principal_id, m.principal_id FROM duckicelake_principal c, "
            "duckicelake_principal m WHERE (c.name, m.name) IN (('staff', 'ann'), ('readers', 'staff'))"
        )
    grants.change_grants(site.services, [GrantChange("readers", ("select",), parse_object("table:open.t"))])
    ours, caretaker = site.attach(site.open("grants")), LoginCaretaker(site.services)
    assert list_seen(ours) == ["open.t"]
    lake.execute("ALTER TABLE open.t RENAME TO renamed")
    caretaker.look()
    assert list_seen(ours) == ["open.renamed"]
    lake.execute("CREATE TABLE open.t AS SELECT 'another' AS secret")
    assert list_seen(ours) == ["open.renamed"]
    lake.execute("CREATE TABLE open.third AS SELECT 3 AS a")  # DuckDB reads definitions anew only when one changes
    assert list_seen(ours) == ["open.renamed"]
    with site.services.database.transaction() as cursor:
        cursor.execute("UPDATE duckicelake_principal SET is_disabled = true WHERE name = 'readers'")
    lake.execute("CREATE TABLE open.fourth AS SELECT 4 AS a")
    assert list_seen(ours) == []


def test_new_grants_count_from_the_next_attach(site: LoginSite) -> None:
    grant(site, "namespace:open")
    attachment = site.open("grants")
    assert list_seen(site.attach(attachment)) == ["open.parts", "open.t", "open.v"]
    grants.change_grants(site.services, [GrantChange("ann", ("select",), parse_object("table:shut.t"))])
    LoginCaretaker(site.services).look()
    assert list_seen(site.attach(attachment)) == ["open.parts", "open.t", "open.v", "shut.t"]


def test_revocation_ends_the_login_with_what_it_has_open(site: LoginSite, lake: duckdb.DuckDBPyConnection) -> None:
    grant(site, "namespace:open", "table:shut.t")
    caretaker = LoginCaretaker(site.services)
    attachment = site.open("grants")
    caretaker.look()
    held = site.connect(attachment)
    held.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    assert held.execute("SELECT count(*) FROM ducklake_table").fetchone() is not None
    grants.change_grants(site.services, [GrantChange("ann", ("insert",), parse_object("table:shut.t"))])
    lake.execute("DROP TABLE open.parts")
    caretaker.look()
    assert held.execute("SELECT 1").fetchone() == (1,)  # a right was added, a table went: nothing was revoked
    ours = site.attach(attachment)
    assert ours.execute("SELECT count(*) FROM open.t").fetchone() == (101,)
    revoke(site, "namespace:open")
    assert ours.execute("SELECT count(*) FROM open.t").fetchone() != (101,)
    caretaker.look()
    with pytest.raises(psycopg.OperationalError):
        held.execute("SELECT count(*) FROM ducklake_table")
    with pytest.raises(duckdb.Error):
        ours.execute("SELECT count(*) FROM open.t")


@pytest.mark.parametrize("change", ["DELETE FROM", "UPDATE"])
def test_principal_that_goes_ends_its_logins(site: LoginSite, change: str) -> None:
    grant(site, "namespace:open")
    attachment = site.open("grants")
    ours = site.connect(attachment)
    assert ours.execute("SELECT count(*) > 0 FROM ducklake_table").fetchone() == (True,)
    with site.services.database.transaction() as cursor:
        setting = "SET is_disabled = true" if change == "UPDATE" else ""
        cursor.execute(f"{change} duckicelake_principal {setting} WHERE name = 'ann'")
    for table in ("ducklake_table", "ducklake_snapshot", "ducklake_metadata"):
        assert ours.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_login_ends_with_its_time(site: LoginSite) -> None:
    attachment = site.open("ns:open:r", seconds=1)
    ours = site.connect(attachment)
    assert ours.execute("SELECT count(*) > 0 FROM ducklake_table").fetchone() == (True,)
    with ours.transaction():
        ours.execute("SELECT 1")
        time.sleep(1.1)
        assert ours.execute("SELECT count(*) FROM ducklake_table").fetchone() == (0,)
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        site.connect(attachment)
    LoginCaretaker(site.services).look()
    with pytest.raises(psycopg.OperationalError):
        ours.execute("SELECT 1")
    assert list_roles(site.services.database, find_place(site.services)) == []


def test_role_that_a_crash_left_is_dropped(site: LoginSite) -> None:
    attachment = site.open("ns:open:r")
    with site.services.database.transaction() as cursor:
        cursor.execute("DELETE FROM duckicelake_duckdb_login")
    assert [role.is_over for role in list_roles(site.services.database, find_place(site.services))] == [True]
    LoginCaretaker(site.services).look()
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        site.connect(attachment)


def test_own_login_can_be_ended_others_cannot(site: LoginSite) -> None:
    attachment = site.open("ns:open:r")
    with pytest.raises(NotFoundError):
        close_attachment(site.as_caller("*", name="bob"), attachment.login.name)
    close_attachment(site.as_caller("ns:open:r"), attachment.login.name)
    with pytest.raises(psycopg.OperationalError):
        site.connect(attachment)


def test_logins_of_one_principal_are_limited(site: LoginSite) -> None:
    for _ in range(MAX_LOGINS):
        site.open("ns:open:r")
    with pytest.raises(TooManyRequestsError, match="has 20 logins"):
        site.open("ns:open:r")


def test_off_unless_enabled(site: LoginSite) -> None:
    with pytest.raises(UnsupportedError, match="set DUCKICELAKE_DUCKDB_LOGIN_URL"):
        open_attachment(site.as_caller("*"), LoginOptions(None, 600), ())


def test_owner_pays_nothing(site: LoginSite, lake: duckdb.DuckDBPyConnection) -> None:
    """Plans of the owner are what they were, and those of any other role have no filter, either."""
    query = (
        "EXPLAIN (COSTS OFF) SELECT * FROM ducklake_column c JOIN ducklake_table t USING (table_id) WHERE table_id = 1"
    )

    def explain() -> dict[str, list[Row]]:
        with site.services.database.transaction() as cursor:
            cursor.execute("ANALYZE ducklake_column, ducklake_table")
            cursor.execute("CREATE ROLE plain; GRANT SELECT ON ALL TABLES IN SCHEMA public TO plain")
            plans = {"owner": cursor.execute(query).fetchall()}
            cursor.execute("SET LOCAL ROLE plain")
            plans["plain"] = cursor.execute(query).fetchall()
            cursor.execute("RESET ROLE; DROP OWNED BY plain; DROP ROLE plain")
            return plans

    before = explain()
    site.open("ns:open:r")
    assert explain() == before


def test_rules_wait_for_no_one_longer_than_a_moment(site: LoginSite, attach: Attach) -> None:
    """A reader of DuckDB has the tables; a writer behind us goes on after 0.2 s."""
    reader = attach()
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM open.t")
    with site.services.database.transaction() as cursor:
        cursor.execute("SET LOCAL lock_timeout = '200ms'")
        with pytest.raises(LockNotAvailable), cursor.connection.transaction():
            cursor.execute("LOCK TABLE ducklake_data_file")
    started = time.monotonic()
    pause = 1.0

    def end_soon() -> None:
        time.sleep(pause)
        reader.execute("COMMIT")

    thread = threading.Thread(target=end_soon)
    thread.start()
    rules = apply_rules(site.services.database, find_place(site.services))
    thread.join()
    assert time.monotonic() - started >= pause
    assert rules.schema == "public"


def test_writers_of_duckdb_go_on_while_logins_come_and_go(site: LoginSite, attach: Attach) -> None:
    """Inserts, deletes and changes of columns beside a login that reads: no error but the one for new tables."""
    writer, errors = attach(), []
    writer.execute("CREATE TABLE open.busy (id INTEGER)")

    def write() -> None:
        try:
            for number in range(40):
                writer.execute(f"INSERT INTO open.busy (id) VALUES ({number})")
                if number % 8 == 3:
                    writer.execute(f"ALTER TABLE open.busy ADD COLUMN c{number} INTEGER")
                if number % 10 == 9:
                    writer.execute(f"DELETE FROM open.busy WHERE id = {number}")
        except duckdb.Error as error:
            errors.append(str(error))

    thread = threading.Thread(target=write)
    ours, caretaker = site.attach(site.open("ns:open:r")), LoginCaretaker(site.services)
    thread.start()
    while thread.is_alive():
        caretaker.look()
        try:
            ours.execute("SELECT count(*) FROM open.busy").fetchall()
        except duckdb.Error as error:
            if "Logins may not read ducklake_inlined" not in str(error):
                errors.append(str(error))
    thread.join()
    caretaker.look()
    assert errors == []
    assert ours.execute("SELECT count(*) FROM open.busy").fetchone() == (36,)
