"""The cost of grants for a warm load: CPU of the server for each, with grants on and off by turns.

Of 10,000 principals with 100,000 grants one asks, whose right comes through roles in roles.
"""

import time
from collections.abc import Iterator
from contextlib import closing
from statistics import median

import psycopg

from scripts.bench_job.client import NAMESPACE, Rest
from scripts.bench_job.results import Result, Target
from scripts.bench_job.servers import Bench, running_bench
from scripts.bench_job.wrk import wrk

PRINCIPALS, GRANTS, ROLES, TABLES = 10_000, 100_000, 100, 1000
_FOLLOW_SECONDS = 2.5
"""After which a server has noticed that grants are on or off."""
_FILL = """
INSERT INTO duckicelake_principal (name, kind) VALUES ('bench', 'service');
INSERT INTO duckicelake_principal (name, kind)
SELECT 'role' || n, 'role' FROM generate_series(1, {roles}) n;
INSERT INTO duckicelake_principal (name, kind)
SELECT 'user' || n, 'user' FROM generate_series(1, {users}) n;
INSERT INTO duckicelake_membership
SELECT c.principal_id, m.principal_id FROM duckicelake_principal c, duckicelake_principal m
WHERE (m.name, c.name) IN (('bench', 'role1'), ('role1', 'role2'), ('role2', 'role3'));
INSERT INTO duckicelake_membership
SELECT c.principal_id, m.principal_id FROM duckicelake_principal m
JOIN duckicelake_principal c ON c.name = 'role' || 1 + m.principal_id % {roles} WHERE m.kind = 'user';
INSERT INTO duckicelake_grant (grantee_id, warehouse_id, object_kind, object_id, privilege, granted_by)
SELECT p.principal_id, '{nil}', 'table', 1000000 + (p.principal_id * 7 + n) % {tables}, 'select', 'bench'
FROM duckicelake_principal p, generate_series(1, {each}) n WHERE p.kind = 'user';
INSERT INTO duckicelake_grant (grantee_id, warehouse_id, object_kind, object_id, privilege, granted_by)
SELECT p.principal_id, '{nil}', 'table', t.table_id, 'select', 'bench'
FROM duckicelake_principal p, ducklake_table t WHERE p.name = 'role3' AND t.end_snapshot IS NULL;
"""
_NIL = "00000000-0000-0000-0000-000000000000"


def measure_grants(table: str, columns: int, connections: int, seconds: float, pairs: int) -> Iterator[Result]:
    """Compare warm loads with grants on with loads without."""
    with running_bench() as bench, closing(_connect(bench)) as connection:
        with closing(Rest(bench.uri, bench.headers)) as rest:
            rest.create_namespace()
            rest.create_table(table, columns=columns)
        users = PRINCIPALS - ROLES - 1
        connection.execute(_FILL.format(roles=ROLES, users=users, nil=_NIL, tables=TABLES, each=-(-GRANTS // users)))
        url = f"{bench.uri}/v1/namespaces/{NAMESPACE}/tables/{table}"
        found: dict[str, list[float]] = {"off": [], "on": []}
        for pair in range(pairs):
            for state in ("off", "on") if pair % 2 else ("on", "off"):
                _turn(connection, state)
                found[state].append(_cpu_of_load(bench, url, connections, seconds))
        ratios = [on / off for on, off in zip(found["on"], found["off"], strict=True)]
        off = median(found["off"])
        name = f"LoadTable with {GRANTS:,} grants on, of {PRINCIPALS:,} principals, {connections} connections"
        yield Result(name, off * median(ratios), "µs CPU", Target("≤", 1.03, "ratio"), off, "grants off")


def _connect(bench: Bench) -> psycopg.Connection:
    return psycopg.connect(bench.ducklake_attach.removeprefix("ducklake:").removeprefix("postgres:"), autocommit=True)


def _turn(connection: psycopg.Connection, state: str) -> None:
    connection.execute(
        "INSERT INTO duckicelake_warehouse_option VALUES (%s, 'grants', %s) "
        "ON CONFLICT (warehouse_id, name) DO UPDATE SET value = excluded.value",
        (_NIL, state),
    )
    time.sleep(_FOLLOW_SECONDS)


def _cpu_of_load(bench: Bench, url: str, connections: int, seconds: float) -> float:
    """Microseconds of the server's CPU for one load."""
    wrk(url, headers=bench.headers, connections=connections, seconds=1)
    before = bench.cpu_seconds()
    load = wrk(url, headers=bench.headers, connections=connections, seconds=seconds)
    return (bench.cpu_seconds() - before) / (load.per_second * max(1, round(seconds))) * 1e6
