"""Queries over HTTP: the rows are DuckDB's, at one snapshot; no one reads more than a token allows; limits hold."""

import csv
import io
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pyarrow as pa
import pytest
from typer.testing import CliRunner

import duckicelake
from duckicelake.catalog import grants
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.grants import GrantChange, parse_object
from duckicelake.cli.main import app
from duckicelake.errors import BadInputError
from duckicelake.query import processes, service
from duckicelake.query.processes import QueryLimits, find_extension
from duckicelake.query.protocol import open_lake
from duckicelake.query.queries import build_open_order
from duckicelake.server.app import create_app
from duckicelake.server.auth.oauth_clients import OAuthClient
from tests.support.ducklake_11 import migrate
from tests.support.logins import SECRET, Server, bearing, token
from tests.support.servers import Serve
from tests.support.waits import wait_until

ROUTE = "/sql/v1/query"
SMALL = QueryLimits(processes=2, memory_bytes=128 * 1024**2, disk_bytes=0, seconds=20.0, rows=1_000_000)

Ask = Callable[..., httpx.Response]


@pytest.fixture(autouse=True)
def limits(services: Services) -> Iterator[QueryLimits]:
    service._limits[services.database] = SMALL
    yield SMALL
    del service._limits[services.database]
    service.end_processes()


@pytest.fixture
def lake(ducklake: duckdb.DuckDBPyConnection) -> duckdb.DuckDBPyConnection:
    """Namespaces `open` and `shut`, each with a table `t` whose rows are in Postgres and in files."""
    for name in ("open", "shut"):
        ducklake.execute(f"CREATE SCHEMA {name}")
        ducklake.execute(f"CREATE TABLE {name}.t AS SELECT i AS id, 'n' || i AS name FROM range(100) r(i)")
        ducklake.execute(f"INSERT INTO {name}.t VALUES (1000, NULL)")
        ducklake.execute(f"DELETE FROM {name}.t WHERE id = 5")
    return ducklake


@pytest.fixture
def http(services: Services, serve: Serve, lake: duckdb.DuckDBPyConnection) -> httpx.Client:
    return serve(create_app(services))


@pytest.fixture
def ask(http: httpx.Client) -> Ask:
    def post(sql: str, accept: str = "application/x-ndjson", **body: Any) -> httpx.Response:
        return http.post(ROUTE, json={"sql": sql, **body}, headers={"Accept": accept}, timeout=60)

    return post


def read_rows(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def read_problem(answer: httpx.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["message"]


def test_rows_are_those_of_duckdb(ask: Ask, lake: duckdb.DuckDBPyConnection) -> None:
    """Rows of files, inlined rows, deletes of both; and what DuckDB writes meanwhile, at once."""
    sql = "SELECT count(*) AS n, sum(id) AS s, count(name) AS names FROM open.t"
    for change in ("SELECT 1", "INSERT INTO open.t VALUES (7, 'x')", "UPDATE open.t SET name = NULL WHERE id < 10"):
        lake.execute(change)
        expected = lake.execute(sql).fetchone()
        (row,) = read_rows(ask(sql))
        assert (row["n"], int(row["s"]), row["names"]) == expected


def test_formats(ask: Ask) -> None:
    columns = "id, name, [id] AS l, encode('ä') AS b, 1.5::DECIMAL(4, 2) AS d, 'nan'::DOUBLE AS f"
    sql = f"SELECT {columns} FROM open.t ORDER BY id DESC LIMIT 2"
    arrow = ask(sql, "application/vnd.apache.arrow.stream")
    assert arrow.headers["content-type"] == "application/vnd.apache.arrow.stream"
    table = pa.ipc.open_stream(arrow.content).read_all()
    assert table.column("id").to_pylist() == [1000, 99]
    assert table.schema.field("l").type == pa.list_(pa.int64())
    lines = read_rows(ask(sql))
    assert lines[0] == {"id": 1000, "name": None, "l": [1000], "b": "c3a4", "d": "1.50", "f": "nan"}
    rows = [*csv.reader(io.StringIO(ask(sql, "text/csv").text))]
    assert rows[0] == ["id", "name", "l", "b", "d", "f"]
    assert rows[2][:4] == ["99", "n99", "[99]", "c3a4"]
    assert read_problem(ask(sql, "image/png"))[0] == 400


def test_empty_answers_have_their_columns(ask: Ask) -> None:
    sql = "SELECT id, name FROM open.t WHERE false"
    assert pa.ipc.open_stream(ask(sql, "application/vnd.apache.arrow.stream").content).schema.names == ["id", "name"]
    assert ask(sql, "text/csv").text == '"id","name"\n'
    assert read_rows(ask(sql)) == []


def test_limit_cuts_rows(ask: Ask) -> None:
    assert len(read_rows(ask("FROM open.t", limit=3))) == 3
    assert read_rows(ask("FROM open.t", limit=0)) == []
    assert len(read_rows(ask("SELECT unnest(range(20000)) AS i", limit=10_000))) == 10_000


def test_all_tables_are_read_at_one_snapshot(ask: Ask, lake: duckdb.DuckDBPyConnection) -> None:
    answer = ask("SELECT count(*) AS n FROM open.t")
    snapshot = answer.headers["Duckicelake-Snapshot"]
    ((then,),) = lake.execute("SELECT snapshot_time FROM ducklake_snapshots('lake') ORDER BY 1 DESC LIMIT 1").fetchall()
    lake.execute("DELETE FROM open.t WHERE id < 50")
    lake.execute("ALTER TABLE open.t RENAME TO u")
    sql = "SELECT count(*) AS n FROM open.u"
    assert read_rows(ask(sql)) == [{"n": 51}]
    assert read_rows(ask(sql, at=snapshot)) == read_rows(answer) == [{"n": 100}]
    assert read_rows(ask(sql, at=then.isoformat())) == [{"n": 100}]
    assert read_rows(ask(f"SELECT count(*) AS n FROM open.u AT (VERSION => {snapshot})")) == [{"n": 100}]
    assert read_problem(ask(sql, at="99999")) == (404, "DuckLake has no snapshot 99999, or it has expired")
    assert read_problem(ask(sql, at="1999-01-01"))[0] == 404
    assert "did not exist at snapshot 0" in read_problem(ask(sql, at="0"))[1]


def test_tags_and_branches(ask: Ask, http: httpx.Client, lake: duckdb.DuckDBPyConnection) -> None:
    path = "/v1/namespaces/open/tables/t"
    snapshot = http.get(path).json()["metadata"]["current-snapshot-id"]
    for name, kind in (("old", "tag"), ("side", "branch")):
        update = {"action": "set-snapshot-ref", "ref-name": name, "type": kind, "snapshot-id": snapshot}
        http.post(path, json={"requirements": [], "updates": [update]}).raise_for_status()
    lake.execute("DELETE FROM open.t")
    sql = "SELECT count(*) AS n FROM open.t"
    assert (read_rows(ask(sql)), read_rows(ask(sql, at="old")), read_rows(ask(sql, at="side"))) == (
        [{"n": 0}],
        [{"n": 100}],
        [{"n": 100}],
    )
    assert read_problem(ask(sql, at="nope"))[0] in {400, 404}


def test_names(ask: Ask, http: httpx.Client, lake: duckdb.DuckDBPyConnection) -> None:
    http.post("/v1/namespaces", json={"namespace": ["open", "in"]}).raise_for_status()
    lake.execute('CREATE TABLE "open.in"."T x" AS SELECT 1 AS a')
    for sql in (
        'SELECT a FROM open."in"."T x"',
        'SELECT a FROM "open.in"."T x"',
        'SELECT "T x".a FROM lake."open.in"."T x"',
    ):
        assert read_rows(ask(sql)) == [{"a": 1}]
    assert read_rows(ask("SELECT count(*) AS n FROM t", namespace=["open"])) == [{"n": 100}]
    assert read_problem(ask("FROM t"))[0] == 404
    assert read_problem(ask("FROM nope.t"))[0] == 404


def test_views_are_read_with_the_rights_of_the_reader(
    services: Services, serve: Serve, lake: duckdb.DuckDBPyConnection
) -> None:
    lake.execute("CREATE VIEW open.mine (x) AS SELECT count(*) FROM open.t")
    lake.execute("CREATE VIEW open.theirs AS SELECT * FROM shut.t")
    lake.execute("CREATE VIEW open.file AS SELECT 1 AS a")
    escape = "SELECT * FROM read_text(''/etc/passwd'')"
    lake.execute(f"UPDATE __ducklake_metadata_lake.ducklake_view SET sql = '{escape}' WHERE view_name = 'file'")
    server = Server()
    client = OAuthClient("reader", SECRET, ("ns:open:r",))
    http = serve(server.app(services, server.authentication(client)))
    headers = bearing(token(http, "reader"))

    def ask(sql: str) -> httpx.Response:
        return http.post(ROUTE, json={"sql": sql}, headers=headers, timeout=60)

    assert read_rows(ask("SELECT x FROM open.mine")) == [{"x": 100}]
    refusals = {
        *(read_problem(ask(f"FROM {name}")) for name in ("shut.t", "shut.nothing", "open.theirs")),
        read_problem(ask("SELECT (SELECT count(*) FROM shut.t)")),
        read_problem(ask("WITH x AS (FROM shut.t) SELECT 1")),
    }
    assert {status for status, _ in refusals} == {403}
    assert len({message for _, message in refusals}) == 1  # whether it exists or not
    assert "the table function read_text" in read_problem(ask("FROM open.file"))[1]
    assert http.post(ROUTE, json={"sql": "SELECT 1"}).status_code == 401


def test_grants_on_one_table_count(services: Services, serve: Serve, lake: duckdb.DuckDBPyConnection) -> None:
    lake.execute("CREATE TABLE open.other AS SELECT 1 AS a")
    services = replace(services, rights=RightsCache.of_first(services.database))
    server = Server()
    http = serve(server.app(services, server.authentication(OAuthClient("reader", SECRET, ("grants",)))))
    with services.database.transaction() as cursor:
        cursor.execute("INSERT INTO duckicelake_principal (name, kind) VALUES ('reader', 'service')")
    grants.change_grants(services, [GrantChange("reader", ("select",), parse_object("table:open.t"))])
    grants.set_grants(services, is_on=True)
    assert services.rights is not None
    services.rights.look()
    headers = bearing(token(http, "reader"))
    found = [
        http.post(ROUTE, json={"sql": f"SELECT count(*) AS n FROM {name}"}, headers=headers, timeout=60).status_code
        for name in ("open.t", "open.other", "open.nothing", "shut.t")
    ]
    assert found == [200, 403, 403, 403]


@pytest.mark.parametrize(
    ("sql", "hint"),
    [
        ("FROM open.tt", "Table or view does not exist: open.tt; did you mean open.t?"),
        ("FROM opne.t", "Table or view does not exist: opne.t; did you mean open.t or shut.t?"),
        ("FROM T", "Table or view does not exist: main.T; did you mean open.t or shut.t?"),
        ("FROM open.nothing_like_it", "Table or view does not exist: open.nothing_like_it"),
        ("SELECT nam FROM open.t", 'Candidate bindings: "name"'),
    ],
)
def test_misspelled_name_is_answered_by_those_like_it(ask: Ask, sql: str, hint: str) -> None:
    assert read_problem(ask(sql))[1].endswith(hint)


def test_names_that_the_caller_may_not_read_are_not_suggested(
    services: Services, serve: Serve, lake: duckdb.DuckDBPyConnection
) -> None:
    services = replace(services, rights=RightsCache.of_first(services.database))
    server = Server()
    http = serve(server.app(services, server.authentication(OAuthClient("reader", SECRET, ("ns:open:r",)))))
    lake.execute("CREATE TABLE shut.tt (id INT)")
    answer = http.post(ROUTE, json={"sql": "FROM open.tt"}, headers=bearing(token(http, "reader")), timeout=60)
    assert read_problem(answer) == (404, "Table or view does not exist: open.tt; did you mean open.t?")


def test_errors_of_duckdb_name_nothing_that_the_query_does_not(ask: Ask, warehouse: Path) -> None:
    """DuckDB suggests names like an unknown one, of all that it has attached."""
    wrong = (
        "SELECT shu FROM open.t",
        "SELECT shut.id FROM open.t",
        "SELECT shut.t.id FROM open.t",
        "SELECT lake.shut.t FROM open.t",
        "SELECT 1::shu",
        "SELECT 1::lake.shut.t",
        "SELECT 'a' COLLATE shu",
        "SELECT shu(1)",
        "SELECT COLUMNS('shu.*') FROM open.t",
        "SELECT * EXCLUDE (shu) FROM open.t",
        "SELECT id::INTEGER[3] FROM open.t",
        "SELECT * FROM open.t PIVOT (count(*) FOR shu IN (1))",
        "SELECT * FROM open.t PIVOT (count(*) FOR id IN shu)",
        "SELECT error(current_setting('temp_directory'))",
        "SELECT * FROM open.t a JOIN open.t b USING (shu)",
    )
    for sql in wrong:
        status, message = read_problem(ask(sql))
        leaked = [name for name in ("ducklake", "postgres", str(warehouse), "duckicelake-query") if name in message]
        assert (status, leaked, message.replace("shut.t", "").count("shut")) == (400, [], sql.count("shut.id")), message


def test_old_rows_of_a_table_that_was_moved_away_are_not_read(
    services: Services, serve: Serve, http: httpx.Client, lake: duckdb.DuckDBPyConnection
) -> None:
    """Today's name decides, also for snapshots at which the table had one that the caller may read."""
    snapshot = http.post(ROUTE, json={"sql": "SELECT 1"}).headers["Duckicelake-Snapshot"]
    body = {"source": {"namespace": ["open"], "name": "t"}, "destination": {"namespace": ["shut"], "name": "moved"}}
    http.post("/v1/tables/rename", json=body).raise_for_status()
    server = Server()
    other = serve(server.app(services, server.authentication(OAuthClient("reader", SECRET, ("ns:open:r",)))))
    headers = bearing(token(other, "reader"))
    for order in ({"sql": "FROM open.t", "at": snapshot}, {"sql": f"FROM open.t AT (VERSION => {snapshot})"}):
        assert other.post(ROUTE, json=order, headers=headers, timeout=60).status_code == 404
        order["sql"] = order["sql"].replace("open.t", "shut.moved")
        assert other.post(ROUTE, json=order, headers=headers, timeout=60).status_code == 403


def test_wrong_requests_are_refused_with_the_reason(ask: Ask, http: httpx.Client) -> None:
    for sql, message in {
        "SELECT nope FROM open.t": '"nope" not found',
        "SELECT sum(name) FROM open.t": "No function matches",
        "SELECT 1 +": "syntax error",
        "DROP TABLE open.t": "Only SELECT is run here, also with WITH, FROM or VALUES at its begin, and this is DROP",
        "/* a */ EXPLAIN FROM open.t": 'and this is EXPLAIN: send the SELECT alone, with "explain": true',
        "SELECT 'x'::INT": "Could not convert",
    }.items():
        status, found = read_problem(ask(sql))
        assert (status, message in found) == (400, True), found
        assert "LINE 1" not in found
    for body in ({}, {"sql": ""}, {"sql": 5}, {"sql": "SELECT 1", "more": 1}, {"sql": "SELECT 1", "limit": -1}):
        assert http.post(ROUTE, json=body).status_code == 400
    assert read_problem(ask(f"SELECT '{'x' * 2**20}'")) == (400, "The statement is longer than 1 MiB")


def test_slow_query_ends_in_its_time_and_its_process_with_it(ask: Ask) -> None:
    began = time.monotonic()
    sql = "SELECT count(*) FROM range(1000000) a, range(1000000) b"
    assert "took longer" in read_problem(ask(sql, **{"timeout-seconds": 0.5}))[1]
    assert time.monotonic() - began < 15
    assert read_rows(ask("SELECT 1 AS a")) == [{"a": 1}]


def test_large_query_ends_alone(ask: Ask) -> None:
    status, message = read_problem(ask("SELECT list(i) FROM range(200000000) r(i)"))
    assert (status, "memory" in message) == (400, True)
    assert read_rows(ask("SELECT 1 AS a")) == [{"a": 1}]


def test_answer_of_one_huge_value_comes_in_pieces(ask: Ask) -> None:
    """The server holds small parts of an answer, whatever one value takes."""
    (row,) = read_rows(ask("SELECT repeat('x', 20000000) AS x"))
    assert len(row["x"]) == 20_000_000
    assert read_rows(ask("SELECT 1 AS a")) == [{"a": 1}]


def test_long_statement_is_refused_before_the_server_reads_its_tree(ask: Ask) -> None:
    status, message = read_problem(ask(f"SELECT [{'1,' * 60_000}1]"))
    assert (status, message) == (400, "The query is too deep or too long")


def test_killed_process_is_one_error(ask: Ask) -> None:
    def kill() -> None:
        time.sleep(1.5)
        for process in pids():
            os.kill(process, signal.SIGKILL)

    read_rows(ask("SELECT 1"))
    thread = threading.Thread(target=kill)
    thread.start()
    status, message = read_problem(ask("SELECT count(*) FROM range(1000000) a, range(1000000) b"))
    thread.join()
    assert (status, "has ended" in message) == (503, True)
    assert read_rows(ask("SELECT 1 AS a")) == [{"a": 1}]


def test_client_that_goes_away_ends_its_query_and_keeps_its_process(ask: Ask, http: httpx.Client) -> None:
    read_rows(ask("SELECT 1"))
    (process,) = running = owned_pids()
    for _ in range(2):
        with pytest.raises(httpx.ReadTimeout):
            http.post(ROUTE, json={"sql": "SELECT count(*) FROM range(1000000) a, range(1000000) b"}, timeout=1)
        wait_until(lambda: not is_busy(process), 20)
    with http.stream("POST", ROUTE, json={"sql": "SELECT repeat('x', 1000) AS x FROM range(1000000)"}) as answer:
        next(answer.iter_raw())
    assert read_rows(ask("SELECT 1 AS a")) == [{"a": 1}]
    assert owned_pids() == running


def test_error_behind_the_first_rows_cuts_the_answer_and_keeps_the_process(ask: Ask) -> None:
    read_rows(ask("SELECT 1"))
    running = owned_pids()
    with pytest.raises(httpx.RemoteProtocolError):
        ask("SELECT CASE WHEN i = 900000 THEN 'x' ELSE '1' END::INTEGER AS n FROM range(1000000) r(i)")
    assert read_rows(ask("SELECT 1 AS a")) == [{"a": 1}]
    assert owned_pids() == running


def test_process_that_takes_no_notice_is_killed(ask: Ask, http: httpx.Client) -> None:
    read_rows(ask("SELECT 1"))
    (process,) = owned_pids()
    os.kill(process, signal.SIGSTOP)
    with pytest.raises(httpx.ReadTimeout):
        http.post(ROUTE, json={"sql": "SELECT 1"}, timeout=1)
    assert read_rows(ask("SELECT 1 AS a")) == [{"a": 1}]
    assert process not in owned_pids()


def owned_pids() -> list[int]:
    """Return the processes that have opened the lake for a principal."""
    found = (one for kept in service._processes.values() for one in kept._started)
    return sorted(one.pid for one in found if one.key and one.is_alive)


def test_processes_of_more_principals_than_run_at_once_are_kept(services: Services, serve: Serve) -> None:
    service._limits[services.database] = replace(SMALL, memory_bytes=1024**3)
    server, names = Server(), ("ann", "bob", "cyd")
    http = serve(server.app(services, server.authentication(*(OAuthClient(name, SECRET, ("*",)) for name in names))))
    headers = [bearing(token(http, name)) for name in names]

    def ask_as_each() -> list[int]:
        for header in headers:
            assert http.post(ROUTE, json={"sql": "SELECT 1"}, headers=header, timeout=60).status_code == 200
        return owned_pids()

    kept = ask_as_each()
    assert len(kept) == len(names) > SMALL.processes
    assert ask_as_each() == kept


def test_process_knows_nothing_of_the_server_and_leaves_nothing(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DUCKICELAKE_SECRET", "secret")
    read_rows(ask("SELECT 1"))
    found = pids()
    folders = [Path(f"/proc/{pid}/cwd").resolve() for pid in found]
    for pid in found:
        assert set(Path(f"/proc/{pid}/environ").read_text().strip("\0").split("\0")) <= {
            "TZ=UTC",
            *map("HOME={}".format, folders),
        }
    service.end_processes()
    assert not any(folder.exists() for folder in folders)


def test_settings_are_locked_and_files_are_out_of_reach(services: Services, warehouse: Path) -> None:
    """Even what no query can say: the whitelist isn't the only wall."""
    order = build_open_order(services, is_restricted=False)
    duck = duckdb.connect()
    opening = {"settings": {"threads": 1}, "extensions": order.extensions, "statements": order.statements}
    open_lake(duck, opening | {"directories": order.directories})
    for escape in (
        "FROM read_text('/etc/hostname')",
        "FROM read_csv('/etc/hostname')",
        "COPY (SELECT 1) TO '/tmp/duckicelake-escape'",
        f"COPY (SELECT 1) TO '{warehouse}/../escape'",
        "ATTACH '/tmp/duckicelake-escape.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET memory_limit = '100GB'",
        "SET enable_external_access = true",
        "RESET lock_configuration",
        "FROM glob('/etc/*')",
        "EXPORT DATABASE '/tmp/duckicelake-escape'",
        "INSERT INTO lake.main.t VALUES (1)",
        "CREATE TABLE lake.main.escape (a INT)",
        "FROM read_text('https://127.0.0.1:1/x')",
    ):
        with pytest.raises(duckdb.Error):
            duck.execute(escape)


def test_queries_run_side_by_side_up_to_the_limit_and_wait_beyond(http: httpx.Client) -> None:
    answers: list[int] = []

    def post() -> None:
        answers.append(
            http.post(ROUTE, json={"sql": "SELECT sum(i) AS s FROM range(3000000) r(i)"}, timeout=60).status_code
        )

    threads = [threading.Thread(target=post) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [200] * 6
    assert len(pids()) <= SMALL.processes + 2  # and one ahead


def test_idle_processes_end_by_themselves(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "IDLE_SECONDS", 1.0)
    read_rows(ask("SELECT 1 AS a"))
    assert pids()
    wait_until(lambda: not pids(), 20)
    assert read_rows(ask("SELECT 1 AS a")) == [{"a": 1}]


def test_idle_process_that_holds_much_memory_ends_sooner(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "LARGE_IDLE_SECONDS", 0.5)
    read_rows(ask("SELECT 1 AS a"))
    kept = pids()
    time.sleep(1.5)
    assert pids() == kept
    monkeypatch.setattr(processes, "MAX_IDLE_BYTES", 1024)
    wait_until(lambda: not pids(), 20)
    assert read_rows(ask("SELECT 1 AS a")) == [{"a": 1}]


def test_queries_can_be_off(services: Services, ask: Ask) -> None:
    service._limits[services.database] = QueryLimits(0, 1, 1, 1.0, 1)
    assert read_problem(ask("SELECT 1")) == (
        406,
        "This server runs no queries: DUCKICELAKE_QUERY_PROCESSES is 0 (MISSING.md, queries)",
    )


def test_lake_that_duckdb_cannot_attach_is_refused(ask: Ask, database_url: str) -> None:
    migrate(database_url, is_guarded=False)
    assert read_problem(ask("FROM open.t")) == (
        406,
        "The lake is of DuckLake 1.1, and this server's DuckDB attaches those of 1.0 only (MISSING.md, queries)",
    )


def explain(ask: Ask, sql: str, **body: Any) -> dict[str, Any]:
    answer = ask(sql, explain=True, **body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    found: dict[str, Any] = answer.json()
    return found


def describe_scans(plan: dict[str, Any]) -> list[tuple[Any, ...]]:
    return [
        (scan["table"], scan.get("where"), scan["read"]["files"], scan["total"]["files"], scan["read"]["rows"])
        for scan in plan["scans"]
    ]


@pytest.fixture
def days(lake: duckdb.DuckDBPyConnection) -> None:
    """Table `open.days`: five files of 100 rows, each of another day."""
    lake.execute('CREATE TABLE open.days (id BIGINT, day DATE, moment TIMESTAMP, name VARCHAR, "a b" INTEGER)')
    for day in range(5):
        lake.execute(
            f"INSERT INTO open.days SELECT {day} * 100 + i, DATE '2026-01-01' + {day}, "
            f"TIMESTAMP '2026-01-01 10:00:00' + INTERVAL {day} DAY, 'it''s ' || {day}, {day} FROM range(100) r(i)"
        )


def test_past_is_read_as_it_was_though_rows_have_left_since(lake: duckdb.DuckDBPyConnection, ask: Ask) -> None:
    """DuckDB alone plans by the newest statistics, and reads 65,536 in place of 0."""
    lake.execute("CALL lake.set_option('data_inlining_row_limit', 0)")
    lake.execute("CREATE TABLE open.past AS SELECT i AS id, 'x' AS name FROM range(200) r(i)")
    (before,) = lake.execute("SELECT max(snapshot_id) FROM lake.snapshots()").fetchone() or (0,)
    lake.execute("DELETE FROM open.past WHERE id < 150")
    lake.execute("CALL ducklake_rewrite_data_files('lake', 'past', schema => 'open', delete_threshold => 0)")
    past = f"open.past AT (VERSION => {before})"
    rows = read_rows(ask(f"SELECT id FROM {past} ORDER BY id, name"))
    assert [row["id"] for row in rows] == list(range(200))
    assert read_rows(ask(f"SELECT count(*) AS n FROM {past} WHERE id = 5")) == [{"n": 1}]


@pytest.mark.usefixtures("days")
@pytest.mark.parametrize(
    ("sql", "files", "where"),
    [
        ("FROM open.days", 5, None),
        ("SELECT id FROM open.days WHERE id BETWEEN 150 AND 199", 1, "(id>=150 AND id<=199)"),
        ("FROM open.days WHERE day = DATE '2026-01-03' AND id % 2 = 0", 1, "(day='2026-01-03'::DATE)"),
        ("FROM open.days WHERE moment > '2026-01-04'", 2, "(moment>'2026-01-04 00:00:00'::TIMESTAMP)"),
        ("FROM open.days WHERE name = 'it''s 2'", 1, "(name='it''s 2')"),
        ("FROM open.days WHERE id < 50 OR id > 450", 2, "(id<50 OR id>450)"),
        ("FROM open.days WHERE id IN (3, 407)", 2, "(id IN (3, 407))"),
        ("WITH d AS (FROM open.days) SELECT max(id) FROM d WHERE id < 100", 1, "(id<100)"),
        ("FROM (SELECT id + 1 AS i, day AS d FROM open.days) WHERE d < '2026-01-02'", 1, "(day<'2026-01-02'::DATE)"),
        ('FROM open.days WHERE "a b" = 3', 5, None),
        ("FROM open.days WHERE id = (SELECT max(id) FROM open.t)", 5, None),
    ],
)
def test_plan_says_how_many_files_are_read(ask: Ask, sql: str, files: int, where: str | None) -> None:
    plan = explain(ask, sql)
    (scan,) = [scan for scan in describe_scans(plan) if scan[0] == "open.days"]
    assert scan == ("open.days", where, files, 5, 100 * files)
    assert "DUCKLAKE_SCAN" in plan["plan"]


@pytest.mark.usefixtures("days")
def test_plan_of_joins_views_and_older_states(ask: Ask, lake: duckdb.DuckDBPyConnection) -> None:
    first = ask("SELECT 1").headers["Duckicelake-Snapshot"]
    joined = describe_scans(explain(ask, "FROM open.days d JOIN open.t t USING (id) WHERE id < 100"))
    assert min(joined) == ("open.days", "(id<100)", 1, 5, 100)
    lake.execute("CREATE VIEW open.v AS SELECT id, day FROM open.days WHERE id >= 100")
    viewed = describe_scans(explain(ask, "FROM open.v WHERE day <= '2026-01-03'"))
    assert viewed == [("open.days", "(id>=100) AND (day<='2026-01-03'::DATE)", 2, 5, 200)]
    lake.execute("DELETE FROM open.days WHERE id < 100")
    assert describe_scans(explain(ask, "FROM open.days"))[0][2:4] == (4, 4)
    assert describe_scans(explain(ask, "FROM open.days", at=first))[0][2:4] == (5, 5)
    assert describe_scans(explain(ask, f"FROM open.days AT (VERSION => {first}) WHERE id < 99"))[0][2:4] == (1, 5)
    two = describe_scans(explain(ask, "FROM open.t a JOIN shut.t b USING (id) WHERE a.id = 3"))
    assert [(scan[0], scan[1]) for scan in two] == [("open.t", None), ("shut.t", None)]


def test_extensions_are_found() -> None:
    assert find_extension("ducklake").endswith("ducklake.duckdb_extension")


def pids() -> list[int]:
    return [process.pid for one in service._processes.values() for process in one._started if process.is_alive]


def is_busy(pid: int) -> bool:
    """Whether the process takes CPU."""
    try:
        before = read_cpu(pid)
        time.sleep(0.3)
        return read_cpu(pid) - before > 10
    except FileNotFoundError:
        return False


def read_cpu(pid: int) -> int:
    """Ticks of CPU."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_client_and_commands_read_rows(http: httpx.Client) -> None:
    uri = str(http.base_url).rstrip("/")
    with duckicelake.connect(uri) as lake:
        assert lake.sql("SELECT count(*) AS n FROM t", namespace="open").rows() == [{"n": 100}]
        assert lake.sql("SELECT 1.5 AS d").to_arrow().column_names == ["d"]
        with pytest.raises(BadInputError, match="Only SELECT"):
            lake.sql("DROP TABLE open.t")
    for arguments in (["head", "open.t", "-n", "2"], ["sql", "FROM open.t", "--limit", "2"]):
        found = CliRunner().invoke(app, [*arguments, "--json", "--uri", uri])
        assert [set(json.loads(line)) for line in found.stdout.splitlines()] == [{"id", "name"}] * 2
    printed = CliRunner().invoke(app, ["sql", "SELECT id, name FROM open.t WHERE id = 1000", "--uri", uri])
    assert printed.stdout.split() == ["id", "name", "1000", "NULL"]
    refused = CliRunner().invoke(app, ["sql", "DROP TABLE open.t", "--uri", uri])
    assert (refused.exit_code, refused.stderr.count("\n")) == (2, 1)
    missing = CliRunner().invoke(app, ["head", "open.tt", "--uri", uri])
    assert (missing.exit_code, "did you mean open.t?" in missing.stderr) == (2, True)
