"""What grants, labels and policies cost a warm load: CPU of the server for each, with and without them by turns.

Of 10,000 principals with 100,000 grants one asks, whose right comes through roles in roles. Labels are of a table and
of each of its columns. Policies are a row filter and masks of two columns, for an engine that is trusted to apply them.
"""

import json
import time
from collections.abc import Iterator, Mapping
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
_LABELS = """
WITH made AS (
    INSERT INTO ducklake_snapshot
    SELECT snapshot_id + 1, now(), schema_version + 1, next_catalog_id, next_file_id FROM ducklake_snapshot
    ORDER BY snapshot_id DESC LIMIT 1 RETURNING snapshot_id
), labelled AS (
    SELECT table_id, snapshot_id FROM made, ducklake_table WHERE table_name = %s AND end_snapshot IS NULL
), changed AS (
    INSERT INTO ducklake_snapshot_changes (snapshot_id, changes_made)
    SELECT snapshot_id, 'altered_table:' || table_id FROM labelled
), own AS (
    INSERT INTO ducklake_tag SELECT table_id, snapshot_id, NULL, 'tier', 'gold' FROM labelled
)
INSERT INTO ducklake_column_tag
SELECT l.table_id, c.column_id, l.snapshot_id, NULL, 'class', 'internal'
FROM labelled l JOIN ducklake_column c USING (table_id) WHERE c.end_snapshot IS NULL
"""


_TRUST = """
INSERT INTO duckicelake_principal (name, kind) VALUES ('bench', 'service');
INSERT INTO duckicelake_membership
SELECT c.principal_id, m.principal_id FROM duckicelake_principal c, duckicelake_principal m
WHERE (m.name, c.name) = ('bench', 'trusted-engine');
"""
_POLICY = """
INSERT INTO duckicelake_policy
    (policy_id, warehouse_id, name, table_id, schema_name, table_name, column_id, column_name, mask, filter, condition,
     created_by)
SELECT gen_random_uuid(), %(nil)s, 'p' || c.column_id, t.table_id, s.schema_name, t.table_name,
       CASE WHEN %(mask)s <> '' THEN c.column_id END, CASE WHEN %(mask)s <> '' THEN c.column_name END,
       nullif(%(mask)s, ''),
       CASE WHEN %(mask)s = '' THEN '{"type": "not-null", "child": {"type": "reference", "id": 1}}'::jsonb END,
       CASE WHEN %(mask)s = '' THEN 'not null' END, 'bench'
FROM ducklake_table t JOIN ducklake_schema s USING (schema_id) JOIN ducklake_column c USING (table_id)
WHERE t.table_name = %(table)s AND t.end_snapshot IS NULL AND c.end_snapshot IS NULL AND c.column_id = %(column)s
"""
_MASKS = {2: "replace-with-null", 3: "replace-with-null"}


def measure_grants(table: str, columns: int, connections: int, seconds: float, pairs: int) -> Iterator[Result]:
    """Compare warm loads with grants on with loads without."""
    with running_bench() as bench, closing(connect_postgres(bench)) as connection:
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


def measure_labels(columns: int, connections: int, seconds: float, pairs: int) -> Iterator[Result]:
    """Compare warm loads of a table whose columns all have a label with those of one without labels."""
    with running_bench() as bench, closing(connect_postgres(bench)) as connection:
        urls = {name: f"{bench.uri}/v1/namespaces/{NAMESPACE}/tables/{name}" for name in ("bare", "full")}
        with closing(Rest(bench.uri, bench.headers)) as rest:
            rest.create_namespace()
            for name in urls:
                rest.create_table(name, columns=columns)
            connection.execute(_LABELS, ["full"])
            loaded = {name: json.loads(rest.ask("GET", f"/namespaces/{NAMESPACE}/tables/{name}")) for name in urls}
        assert len(loaded["full"]["labels"]["fields"]) == columns
        assert "labels" not in loaded["bare"]
        found: dict[str, list[float]] = {name: [] for name in urls}
        for pair in range(pairs):
            for name in sorted(urls, reverse=bool(pair % 2)):
                found[name].append(_cpu_of_load(bench, urls[name], connections, seconds))
        ratios = [full / bare for full, bare in zip(found["full"], found["bare"], strict=True)]
        bare = median(found["bare"])
        name = f"LoadTable with {columns + 1} labels, {connections} connections"
        yield Result(name, bare * median(ratios), "µs CPU", Target("≤", 1.03, "ratio"), bare, "none")


def measure_policies(columns: int, connections: int, seconds: float, pairs: int) -> Iterator[Result]:
    """Compare warm loads of a table with policies, and of one beside it, with loads in a warehouse without policies."""
    with running_bench() as bench, closing(connect_postgres(bench)) as connection:
        urls = {name: f"{bench.uri}/v1/namespaces/{NAMESPACE}/tables/{name}" for name in ("beside", "restricted")}
        with closing(Rest(bench.uri, bench.headers)) as rest:
            rest.create_namespace()
            for name in urls:
                rest.create_table(name, columns=columns)
            connection.execute(_TRUST)
            found: dict[tuple[str, bool], list[float]] = {(name, on): [] for name in urls for on in (False, True)}
            for pair in range(pairs):
                for is_on in (False, True) if pair % 2 else (True, False):
                    turn_policies(connection, "restricted", _MASKS if is_on else {})
                    loaded = json.loads(rest.ask("GET", f"/namespaces/{NAMESPACE}/tables/restricted"))
                    assert ("read-restrictions" in loaded) == is_on
                    for name, url in urls.items():
                        found[name, is_on].append(_cpu_of_load(bench, url, connections, seconds))
        for name, limit in (("restricted", 1.10), ("beside", 1.03)):
            ratios = [on / off for on, off in zip(found[name, True], found[name, False], strict=True)]
            off = median(found[name, False])
            what = f"LoadTable of a table {'with' if name == 'restricted' else 'beside one with'} policies"
            line = f"{what}, {connections} connections"
            yield Result(line, off * median(ratios), "µs CPU", Target("≤", limit, "ratio"), off, "no policies")


def turn_policies(connection: psycopg.Connection, table: str, masks: Mapping[int, str]) -> None:
    """Put a row filter and masks of columns on a table, or without masks take all policies away; wait until it counts.

    The filter is that the first column isn't null.
    """
    connection.execute("DELETE FROM duckicelake_policy")
    for column, mask in {1: "", **masks}.items() if masks else ():
        connection.execute(_POLICY, {"nil": _NIL, "table": table, "column": column, "mask": mask})
    time.sleep(_FOLLOW_SECONDS)


def connect_postgres(bench: Bench) -> psycopg.Connection:
    """Connect to the catalog's database as its owner."""
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
