"""Three real logins on one lake: the server's, one of DuckDB's that writes, and one that only reads."""

import secrets
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import duckdb
import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from psycopg.errors import InsufficientPrivilege

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.flush import flush_rows
from duckicelake.changelog.doctor import diagnose
from duckicelake.errors import StartupError, UnsupportedCatalogError
from duckicelake.lake.doctor.findings import Finding
from duckicelake.lake.ducklake.database import build_duckdb_attach, open_lake_database
from duckicelake.lake.ducklake.roles import LakeLogins, apply_grants, build_grants
from duckicelake.lake.setup.format import prepare_catalog
from tests.conftest import services_of
from tests.support.client import data_files, delete, duckdb_rows, new_client, pyiceberg_rows, set_properties
from tests.support.seams import Interrupted

Attach = Callable[..., duckdb.DuckDBPyConnection]
SIDE_TABLES = "SELECT relname FROM pg_class WHERE relkind = 'r' AND starts_with(relname, 'duckicelake_')"


@dataclass(frozen=True, slots=True)
class Shared:
    """A lake with its logins; `url` is a superuser's."""

    url: str
    logins: LakeLogins

    def as_login(self, name: str) -> str:
        return make_conninfo(self.url, user=name)

    @property
    def server(self) -> str:
        return self.as_login(self.logins.server)

    @property
    def writer(self) -> str:
        return self.as_login(self.logins.writers[0])

    @property
    def reader(self) -> str:
        return self.as_login(self.logins.readers[0])

    def roles(self) -> Finding:
        with closing(open_lake_database(self.server, 1)) as database:
            (finding,) = [each for each in diagnose(database) if each.name == "roles"]
        return finding


@pytest.fixture
def logins(database_url: str) -> Iterator[LakeLogins]:
    # Roles are the whole cluster's, and so have names of their own; some of them are hard to quote.
    tag = secrets.token_hex(4)
    made = LakeLogins(f"server_{tag}", [f"The 100% 'writer' {tag}"], [f"reader_{tag}"], f"owner {tag}")
    everybody = [made.server, *made.writers, *made.readers]
    with psycopg.connect(database_url, autocommit=True) as connection:
        for name in everybody:
            connection.execute(sql.SQL("CREATE ROLE {} LOGIN").format(sql.Identifier(name)))
        yield made
        for name in [*everybody, made.owner]:
            if connection.execute("SELECT FROM pg_roles WHERE rolname = %s", [name]).fetchone():
                connection.execute(sql.SQL("DROP OWNED BY {} CASCADE").format(sql.Identifier(name)))
                connection.execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(name)))


@pytest.fixture
def shared(database_url: str, logins: LakeLogins) -> Shared:
    for _ in range(2):  # may be run again
        apply_grants(database_url, build_grants(logins))
    return Shared(database_url, logins)


@pytest.fixture
def server(shared: Shared, warehouse: Path) -> Iterator[Services]:
    with closing(open_lake_database(shared.server, 8)) as database:
        yield services_of(database, warehouse)


@pytest.fixture
def writer(shared: Shared, attach: Attach) -> duckdb.DuckDBPyConnection:
    return attach(url=shared.writer)


@pytest.fixture
def reader(shared: Shared, attach: Attach) -> duckdb.DuckDBPyConnection:
    return read_only(shared, attach)


def read_only(shared: Shared, attach: Attach) -> duckdb.DuckDBPyConnection:
    """DuckDB with the lake attached as its reader, who may not even try to write."""
    connection = attach(url=shared.reader)
    connection.execute("USE memory")
    connection.execute("DETACH lake")
    connection.execute(build_duckdb_attach(shared.reader) + " (READ_ONLY)")
    return connection.execute("USE lake")


def ids(connection: duckdb.DuckDBPyConnection, query: str = "FROM ns.t SELECT id") -> list[int]:
    return sorted(number for (number,) in connection.execute(query).fetchall())


def test_all_three_work_on_one_lake(
    server: Services,
    writer: duckdb.DuckDBPyConnection,
    reader: duckdb.DuckDBPyConnection,
    shared: Shared,
    attach: Attach,
) -> None:
    client = new_client(server)
    client.create()
    client.append((1, "one"), (2, "two"))
    writer.execute("INSERT INTO ns.t VALUES (3, 'inlined')")
    writer.execute("INSERT INTO ns.t SELECT i, 'in a file' FROM range(100, 150) r(i)")
    writer.execute("DELETE FROM ns.t WHERE id IN (1, 100)")
    expected = [2, 3, *range(101, 150)]
    assert ids(writer) == ids(reader) == sorted(line[0] for line in pyiceberg_rows(client.load())) == expected

    client.append((200, "after DuckDB"))
    writer.execute("ALTER TABLE ns.t ADD COLUMN more INTEGER")
    writer.execute("INSERT INTO ns.t VALUES (300, 'inlined', 1)")
    client.commit(set_properties(color="blue"))
    expected += [200, 300]
    assert ids(writer) == ids(reader) == expected

    reader.close()  # a DuckDB that stays attached while another one flushes dies of it (1.5.5), whoever it is
    writer.execute("CALL ducklake_flush_inlined_data('lake')")
    writer.execute("CALL ducklake_merge_adjacent_files('lake')")
    writer.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
    writer.execute("CALL ducklake_cleanup_old_files('lake', cleanup_all => true)")
    reader = read_only(shared, attach)
    assert ids(writer) == ids(reader) == expected
    assert sorted(line[0] for line in pyiceberg_rows(client.load())) == expected

    writer.execute("CREATE TABLE ns.u AS SELECT 1 AS id")
    writer.execute("DROP TABLE ns.t")
    writer.execute("CALL ducklake_expire_snapshots('lake', older_than => now())")
    assert ids(reader, "FROM ns.u SELECT id") == [1]
    assert shared.roles().ok, shared.roles().detail


def test_duckdb_drops_tables_that_the_server_made_and_the_server_writes_those_that_duckdb_made(
    server: Services, writer: duckdb.DuckDBPyConnection, shared: Shared
) -> None:
    client = new_client(server)
    client.create()
    with psycopg.connect(shared.url) as connection:
        owners = connection.execute(
            "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE starts_with(relname, 'ducklake_inlined_data_')"
        ).fetchall()
    assert {owner for (owner,) in owners} == {shared.logins.owner}
    writer.execute("INSERT INTO ns.t VALUES (1, 'inlined'), (2, 'inlined')")
    draft = client.load()
    (inlined,) = (path for path in data_files(draft["metadata"]))
    client.commit(delete(draft["metadata"], (inlined, 0)))
    assert duckdb_rows(writer) == [(2, "inlined")]
    writer.execute("ALTER TABLE ns.t ADD COLUMN more INTEGER")
    writer.execute("CALL ducklake_flush_inlined_data('lake')")
    assert ids(writer) == [2]


def test_duckdb_reads_deletes_that_the_servers_flush_inlines(
    server: Services, writer: duckdb.DuckDBPyConnection, shared: Shared, attach: Attach
) -> None:
    client = new_client(server)
    client.create()
    writer.execute("INSERT INTO ns.t VALUES (1, 'one'), (2, 'two'), (3, 'three')")
    late: list[Callable[[], object]] = [lambda: writer.execute("DELETE FROM ns.t WHERE id = 1")]
    flush_rows(replace(server, store=Interrupted(server.store, late)), ("ns",), "t")
    with psycopg.connect(shared.url) as connection:
        made = connection.execute(
            "SELECT pg_get_userbyid(relowner) FROM pg_class WHERE starts_with(relname, 'ducklake_inlined_delete_')"
        ).fetchall()
    assert made == [(shared.logins.owner,)]
    writer.execute("DELETE FROM ns.t WHERE id = 2")
    assert ids(writer) == ids(read_only(shared, attach)) == [3]
    assert pyiceberg_rows(client.load()) == [(3, "three")]


def test_server_login_makes_and_migrates_a_lake(empty_database_url: str, logins: LakeLogins, tmp_path: Path) -> None:
    apply_grants(empty_database_url, build_grants(logins))
    url = make_conninfo(empty_database_url, user=logins.server)
    with closing(open_lake_database(url, 2)) as database:
        prepare_catalog(database, f"{tmp_path}/data/")
        apply_grants(empty_database_url, build_grants(logins))
        with database.transaction() as cursor:
            # What migrations do to DuckLake's tables, which are another's by now.
            cursor.execute("CREATE INDEX ON ducklake_tag (key)")
            cursor.execute(
                "CREATE TRIGGER another AFTER DELETE ON ducklake_tag FOR EACH STATEMENT "
                "EXECUTE FUNCTION duckicelake_raise_epoch()"
            )
            cursor.execute("DROP TRIGGER another ON ducklake_tag")
        prepare_catalog(database, f"{tmp_path}/data/")


def test_reader_writes_nothing(server: Services, writer: duckdb.DuckDBPyConnection, shared: Shared) -> None:
    new_client(server).create()
    writer.execute("INSERT INTO ns.t VALUES (1, 'inlined')")
    with psycopg.connect(shared.reader, autocommit=True) as connection:
        tables = connection.execute(SIDE_TABLES.replace("duckicelake", "ducklake")).fetchall()
        assert len(tables) > 28
        for (name,) in tables:
            connection.execute(f"SELECT count(*) FROM {name}")
            for statement in (f"DELETE FROM {name}", f"DROP TABLE {name}", f"TRUNCATE {name}"):
                with pytest.raises(InsufficientPrivilege):
                    connection.execute(statement)
        for statement in ("CREATE TABLE mine (a int)", "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'"):
            with pytest.raises(InsufficientPrivilege):
                connection.execute(statement)


def test_duckdbs_logins_touch_no_side_table(server: Services, shared: Shared) -> None:
    client = new_client(server)
    client.create()
    for url in (shared.writer, shared.reader):
        with psycopg.connect(url, autocommit=True) as connection:
            tables = [name for (name,) in connection.execute(SIDE_TABLES).fetchall()]
            assert {"duckicelake_table", "duckicelake_audit", "duckicelake_idempotency"} < set(tables)
            for name in tables:
                for statement in ("SELECT FROM {}", "INSERT INTO {} DEFAULT VALUES", "DELETE FROM {}", "DROP TABLE {}"):
                    with pytest.raises(InsufficientPrivilege):
                        connection.execute(statement.format(name))
            with pytest.raises(InsufficientPrivilege):
                connection.execute("SELECT duckicelake_is_named('/etc/passwd')")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("ALTER TABLE ducklake_tag OWNER TO {server}", "ducklake_tag is {server}'s, not {owner}'s"),
        ("GRANT SELECT ON duckicelake_audit TO {reader}", "{reader} may touch duckicelake_audit, which is the"),
        ("ALTER ROLE {writer} IN DATABASE {database} RESET role", "{writer} doesn't act as {owner}"),
        ("REVOKE SELECT ON ducklake_column FROM {reader}", "{reader} reads DuckLake's snapshots, but may not read"),
        ("REVOKE {owner} FROM {server}", "{server}, who asks, may not write DuckLake's tables, which are {owner}'s"),
    ],
)
def test_doctor_names_wrong_rights_and_grants_mends_them(shared: Shared, damage: str, said: str) -> None:
    assert shared.roles().ok, shared.roles().detail
    logins = shared.logins
    names = {"server": logins.server, "owner": logins.owner, "reader": logins.readers[0], "writer": logins.writers[0]}
    with psycopg.connect(shared.url, autocommit=True) as connection:
        quoted = {key: sql.Identifier(name).as_string(None) for key, name in names.items()}
        connection.execute(damage.format(database=connection.info.dbname, **quoted))
    found = shared.roles()
    assert not found.ok
    assert said.format(**names) in found.detail
    assert "duckicelake grants" in found.advice
    apply_grants(shared.url, build_grants(logins))
    assert shared.roles().ok, shared.roles().detail


def test_login_that_is_not_there_is_named(database_url: str) -> None:
    with pytest.raises(StartupError, match='role "nobody_here" does not exist'):
        apply_grants(database_url, build_grants(LakeLogins("nobody_here", [], [])))


def test_server_without_its_rights_says_what_it_lacks(database_url: str, logins: LakeLogins, warehouse: Path) -> None:
    lacking = pytest.raises(UnsupportedCatalogError, match=r"permission denied.*duckicelake grants")
    with closing(open_lake_database(make_conninfo(database_url, user=logins.server), 1)) as database, lacking:
        prepare_catalog(database, f"{warehouse}/ducklake/")
