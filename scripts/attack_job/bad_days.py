"""Bad days of an operator: settings of Postgres turned wrong, a Postgres that hangs, a warehouse of another lake."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import duckdb
import psycopg
from duckdb_extensions import import_extension
from psycopg import sql

from scripts.attack_job.lake import NAMESPACE, TABLES
from scripts.attack_job.target import Target
from scripts.demo_job.server import PROGRAM, info

STATEMENT_SECONDS: Final = 3
"""Deadline of the attacked server's statements, short so that a Postgres that hangs costs little time."""
_HANG_SECONDS: Final = 12
_WRONG_SETTINGS: Final = {
    "client_encoding": "LATIN1",
    "standard_conforming_strings": "off",
    "extra_float_digits": "0",
    "array_nulls": "off",
    "transform_null_equals": "on",
    "DateStyle": "SQL, DMY",
    "IntervalStyle": "sql_standard",
    "TimeZone": "Asia/Kathmandu",
    "bytea_output": "escape",
    "search_path": "elsewhere",
}
_FIELDS: Final = [
    {"id": 1, "name": "id", "required": False, "type": "long"},
    {"id": 2, "name": "amount", "required": False, "type": "double"},
    {"id": 3, "name": "moment", "required": False, "type": "timestamptz"},
    {"id": 4, "name": "words", "required": False,
     "type": {"type": "list", "element-id": 5, "element": "string", "element-required": False}},
    {"id": 6, "name": "day", "required": False, "type": "date"},
]  # fmt: skip
_VALUES: Final = (
    {
        "id": 1,
        "amount": 0.30000000000000004,
        "moment": "2026-02-03T04:05:06.123456+00:00",
        "words": ["NULL", None, "ü\\"],
    },
    {
        "id": 2,
        "amount": -5e-324,
        "moment": "1969-12-31T23:59:59.999999+00:00",
        "words": ["'", '"', "{}"],
        "day": "2026-03-04",
    },
)


@dataclass(frozen=True, slots=True)
class AttackedServer:
    """The process under attack, its lake's folder and its environment."""

    process: "subprocess.Popen[bytes]"
    folder: Path
    environment: Mapping[str, str]

    def attach_source(self) -> str:
        """Return the source that DuckDB attaches."""
        return str(info(self.folder, self.environment)["ducklake-attach"])

    def connect_postgres(self) -> "psycopg.Connection[Any]":
        """Open a connection to the lake's Postgres, outside of transactions."""
        return psycopg.connect(self.attach_source().removeprefix("ducklake:postgres:"), autocommit=True)


def live_bad_days(target: Target, server: AttackedServer) -> None:
    """Run all of them; each leaves the server as it was."""
    turn_settings_wrong(target, server)
    hang_postgres(target, server)
    name_foreign_warehouse(target, server)
    target.watch_memory()


def turn_settings_wrong(target: Target, server: AttackedServer) -> None:
    """Post, flush and read the same values before and while the database's settings are wrong."""
    target.campaign = "settings"
    body = {"name": "values", "schema": {"type": "struct", "schema-id": 0, "fields": _FIELDS}}
    target.send("POST", TABLES, json.dumps(body).encode())
    _post_values(target)
    before = _read_values(server)
    with server.connect_postgres() as connection, _wrong_settings(connection):
        _post_values(target)
        if (now := _read_values(server)) != sorted(before * 2):
            target.found("inlined values change with settings", str(before), str(now))
        _must_succeed(target, "POST", f"{TABLES}/values/rows/flush")
        if (now := _read_values(server)) != sorted(before * 2):
            target.found("flushed values change with settings", str(before), str(now))
        _must_succeed(target, "GET", f"{TABLES}/values")


def hang_postgres(target: Target, server: AttackedServer) -> None:
    """Stop all processes of Postgres for a while: requests end with 503, none with 500, and all is well afterwards."""
    target.campaign = "hung Postgres"
    pids = list(_list_postgres(server.process.pid))
    if not pids:
        target.found("no Postgres of the server's session", "", "")
    requests = [
        ("GET", f"{TABLES}/bystander", None),
        ("POST", "/v1/namespaces", json.dumps({"namespace": ["hung"]}).encode()),
        ("POST", f"{TABLES}/values/rows", _encode_values()),
        ("GET", "/v1/history", None),
    ]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        began = time.monotonic()
        with ThreadPoolExecutor(2 * len(requests)) as pool:
            for request, answer in [(it, pool.submit(target.send, *it)) for it in requests * 2]:
                _check_hung(target, request[:2], answer.result())
        time.sleep(max(0.0, began + _HANG_SECONDS - time.monotonic()))
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)
    deadline = time.monotonic() + 30
    while not target.is_fine() and time.monotonic() < deadline:
        time.sleep(0.2)
    for _ in range(5):
        _must_succeed(target, "GET", NAMESPACE)


def name_foreign_warehouse(target: Target, server: AttackedServer) -> None:
    """Let another lake collect garbage in this lake's warehouse: it refuses, and no file is gone."""
    target.campaign = "foreign warehouse"
    other = server.folder.with_name("other")
    other.mkdir(exist_ok=True)
    environment = {key: value for key, value in server.environment.items() if "OAUTH" not in key}
    subprocess.run([PROGRAM, "init", "--lake", str(other)], env=environment, check=True, capture_output=True)
    warehouse = server.folder / "warehouse"
    before = _list_files(warehouse)
    for path in before:
        os.utime(path, (yesterday := time.time() - 86400, yesterday))
    foreign = {**environment, "DUCKICELAKE_WAREHOUSE": str(warehouse)}
    for command in (["gc", "--delete", "--older-than", "1h"], ["doctor"]):
        arguments = [PROGRAM, *command, "--lake", str(other)]
        ended = subprocess.run(arguments, env=foreign, capture_output=True, text=True, check=False, timeout=120)
        if ended.returncode == 0 or "belongs to" not in ended.stdout + ended.stderr:
            target.found("a foreign warehouse is taken", " ".join(command), ended.stdout + ended.stderr)
    if gone := before - _list_files(warehouse):
        target.found("files of another lake are gone", "gc --delete", str(sorted(gone)[:5]))


@contextmanager
def _wrong_settings(connection: "psycopg.Connection[Any]") -> Iterator[None]:
    """Turn the database's settings wrong for all new sessions, and end the old ones."""
    database = sql.Identifier(connection.info.dbname)
    for name, value in _WRONG_SETTINGS.items():
        statement = sql.SQL("ALTER DATABASE {} SET {} = {}").format(database, sql.Identifier(name), sql.Literal(value))
        connection.execute(statement)
    _end_sessions(connection)
    try:
        yield
    finally:
        connection.execute(sql.SQL("ALTER DATABASE {} RESET ALL").format(database))
        _end_sessions(connection)


def _end_sessions(connection: "psycopg.Connection[Any]") -> None:
    connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    time.sleep(1)


def _encode_values() -> bytes:
    return "\n".join(json.dumps(row) for row in _VALUES).encode()


def _post_values(target: Target) -> None:
    _must_succeed(target, "POST", f"{TABLES}/values/rows", _encode_values(), {"Content-Type": "application/x-ndjson"})


def _must_succeed(target: Target, method: str, path: str, *rest: Any) -> None:
    answer = target.send(method, path, *rest)
    if answer is None or answer.status_code >= 300:
        target.found("a good request fails", f"{method} {path}", answer.text if answer is not None else "")


def _check_hung(target: Target, request: tuple[str, str], answer: Any) -> None:
    """Keep an answer that a Postgres that hangs doesn't excuse."""
    if answer is not None and answer.status_code not in {200, 503}:
        target.found(f"status {answer.status_code} of a Postgres that hangs", " ".join(request), answer.text)


def _read_values(server: AttackedServer) -> list[tuple[object, ...]]:
    import_extension("ducklake")
    import_extension("postgres_scanner")
    with duckdb.connect() as connection:
        connection.execute("LOAD ducklake; LOAD postgres_scanner; SET TimeZone = 'UTC'")
        source = server.attach_source().replace("'", "''")
        connection.execute(f"ATTACH '{source}' AS lake")
        query = (
            "SELECT id, amount::VARCHAR, moment::VARCHAR, words::VARCHAR, day FROM lake.attacked.values ORDER BY ALL"
        )
        return connection.execute(query).fetchall()


def _list_postgres(session: int) -> Iterator[int]:
    """Process ids of Postgres below the server: its postmaster leads a session of its own or shares the server's."""
    children: dict[int, list[int]] = {}
    names: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            head, _, rest = (folder / "stat").read_text().partition(") ")
        except OSError:
            continue
        number, _, name = head.partition(" (")
        names[int(number)] = name
        children.setdefault(int(rest.split()[1]), []).append(int(number))
    waiting = [session]
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        if "postgres" in names.get(pid, ""):
            yield pid


def _list_files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}
