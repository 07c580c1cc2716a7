"""Queries by principals that policies hide rows and values from: no answer depends on what is hidden."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import httpx
import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog

from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.read_restrictions import Mask, Restriction
from duckicelake.iceberg.schema import Schema
from duckicelake.query.restricted import RESTRICTED_SETTINGS, write_visible_rows
from tests.support.policies import restrict

ROUTE = "/sql/v1/query"
Ask = Callable[..., httpx.Response]

IS_EU = {"type": "eq", "left": {"type": "reference", "id": 2}, "right": "EU"}
IS_NOT_ELSEWHERE = {"type": "not-in", "child": {"type": "reference", "id": 2}, "values": ["US", "eu"]}
MASKS = {3: Mask.ALPHANUM, 4: Mask.NULL, 5: Mask.YEAR, 6: Mask.FIXED_VALUE}
COLUMNS = "id BIGINT, region VARCHAR, name VARCHAR, amount INT, day DATE, place STRUCT(x INT, y VARCHAR)"
VISIBLE = "SELECT i, 'EU', {name}, {amount}, {day}, {place} FROM range(40) r(i)"
HIDDEN = "SELECT {id}, {region}, {name}, {amount}, {day}, {place} FROM range({count}) r(i)"
LAKES = {
    "a": (
        VISIBLE.format(
            name="'anna ' || i % 10", amount="i * 10", day="DATE '2026-05-05' + i::INT", place="{'x': i, 'y': 'p'}"
        ),
        HIDDEN.format(
            id="100 + i", region="'US'", name="'12'", amount="7", day="DATE '1999-01-01'", place="NULL", count=500
        ),
    ),
    "b": (
        VISIBLE.format(
            name="'otto ' || (i + 3) % 10", amount="-i", day="DATE '2026-11-05' - i::INT", place="{'x': -i, 'y': NULL}"
        ),
        HIDDEN.format(
            id="-i", region="CASE i % 2 WHEN 0 THEN NULL ELSE 'eu' END", name="'it''s'", amount="NULL", day="NULL",
            place="{'x': 5, 'y': 'q'}", count=90,
        ),
    ),
}  # fmt: skip
"""What makes a table: rows that pass the filter, and rows that don't. Masked, the first are the same in both."""


@pytest.fixture
def services(services: Services) -> Services:
    return replace(services, rights=RightsCache.of_first(services.database))


@pytest.fixture
def ask(http: httpx.Client) -> Ask:
    def post(sql: str, **body: Any) -> httpx.Response:
        return http.post(ROUTE, json={"sql": sql, **body}, timeout=60)

    return post


def read_rows(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


@pytest.fixture
def lake(ducklake: duckdb.DuckDBPyConnection, services: Services) -> duckdb.DuckDBPyConnection:
    """Tables `a.t` and `b.t`, of which the caller sees the same; each also by a view. Rows in Postgres and in files."""
    for schema, (visible, hidden) in LAKES.items():
        ducklake.execute(f"CREATE SCHEMA {schema}")
        ducklake.execute(f"CREATE TABLE {schema}.t ({COLUMNS})")
        ducklake.execute(f"INSERT INTO {schema}.t {visible}")
        ducklake.execute(f"INSERT INTO {schema}.t {hidden}")
        ducklake.execute(f"INSERT INTO {schema}.t {hidden} LIMIT 3")
        ducklake.execute(f"CREATE VIEW {schema}.v AS SELECT * FROM {schema}.t")
        restrict(services, f"{schema}.t", IS_EU, IS_NOT_ELSEWHERE, masks=MASKS)
    return ducklake


ATTACKS = [
    # what is there
    "SELECT * FROM {t} ORDER BY id",
    "SELECT count(*), count(amount), min(id), max(id), min(day), max(name), count(DISTINCT region) FROM {t}",
    "SELECT histogram(name), list(amount), approx_quantile(id, 0.5), string_agg(region) FROM {t}",
    "SELECT * FROM {v} ORDER BY id DESC LIMIT 3",
    "FROM {t} WHERE region IS DISTINCT FROM 'EU'",
    "FROM {t} WHERE name IN ('12', 'it''s', 'anna 3') OR amount = 7 OR day < DATE '2000-01-01'",
    "FROM {t} WHERE regexp_matches(name, '[a-w]')",
    "FROM {t} WHERE place.y IS NOT NULL AND place.x <> 999999999",
    "SELECT t.place.x, place['y'], place FROM {t} AS t ORDER BY id",
    "SELECT t FROM {t} AS t ORDER BY id",
    "SELECT COLUMNS('.*m.*') FROM {t} ORDER BY ALL",
    "SELECT * EXCLUDE (id) REPLACE (upper(name) AS name) FROM {t} ORDER BY id",
    "SELECT typeof(COLUMNS(*)) FROM {t} LIMIT 1",
    "SELECT region, name, sum(amount) FROM {t} GROUP BY ALL ORDER BY ALL",
    "SELECT q.* FROM {t} AS q(k, r) ORDER BY k",
    # errors and functions on hidden rows
    "FROM {t} WHERE 1 / (id - 105) > 0 ORDER BY id",
    "FROM {t} WHERE CASE WHEN id >= 100 OR id < 0 THEN error(name) END ORDER BY id",
    "SELECT count(*) FROM {t} WHERE error(region || name || amount) IS NULL AND region <> 'EU'",
    "SELECT count(*) FROM {t} WHERE CAST(name AS INT) > 0",
    "SELECT count(*) FROM {t} WHERE CAST(region AS INT) > 0",
    "SELECT count(*) FROM {t} WHERE TRY(CAST(name AS INT)) > 0",
    "SELECT count(*) FROM {t} WHERE TRY_CAST(name AS INT) = 12",
    "SELECT sum(id::TINYINT) FROM {t}",
    "SELECT list_transform([id], lambda x: CASE WHEN x >= 100 THEN error('seen') ELSE x END) FROM {t} ORDER BY id",
    "SELECT id + 9223372036854775700 FROM {t} ORDER BY id",
    "SELECT strptime(name, '%Y') FROM {t}",
    # other columns than those of the table
    *(f"SELECT {name} FROM {{t}}" for name in ("rowid", "filename", "file_row_number", "file_index", "snapshot_id")),
    "SELECT count(rowid) FROM {t}",
    # samples, orders, windows
    "SELECT count(*) FROM {t} TABLESAMPLE 100 PERCENT",
    "SELECT count(*) FROM {t} USING SAMPLE 500 ROWS",
    "SELECT id, row_number() OVER (ORDER BY amount, name, id) AS n FROM {t} ORDER BY ALL",
    "SELECT id FROM {t} ORDER BY day, amount NULLS FIRST, name, id LIMIT 5 OFFSET 2",
    "SELECT id FROM {t} ORDER BY id DESC LIMIT 1",
    "SELECT DISTINCT ON (name) name FROM {t} ORDER BY name",
    "SELECT id FROM {t} QUALIFY rank() OVER (ORDER BY id DESC) = 1",
    # joins
    "SELECT count(*) FROM {t} x JOIN {t} y USING (name)",
    "SELECT count(*) FROM {t} x, {t} y WHERE x.id < y.id AND x.region <> y.region",
    "SELECT count(*) FROM range(-90, 600) r(i) JOIN {t} ON i = id",
    "SELECT i FROM range(-90, 600) r(i) WHERE i IN (SELECT id FROM {t}) ORDER BY i",
    "SELECT i, (SELECT max(name) FROM {t} WHERE id = i) AS m FROM range(90, 110) r(i) ORDER BY i",
    "SELECT count(*) FROM range(-90, 600) r(i), LATERAL (SELECT * FROM {t} WHERE id = i)",
    "SELECT count(*) FROM range(-90, 600) r(i) ANTI JOIN {t} ON i = id",
    "SELECT count(*) FROM {t} FULL JOIN range(-90, 600) r(i) ON i = id",
    # names
    "WITH t AS (SELECT 'US' AS region) SELECT count(*) FROM {t}",
    "WITH t AS (FROM {t}) SELECT count(*), max(id) FROM t",
    "WITH x AS MATERIALIZED (FROM {t}) SELECT count(*) FROM x WHERE id > 50",
    "WITH RECURSIVE x AS (SELECT min(id) AS i FROM {t} UNION ALL SELECT i + 1 FROM x JOIN {t} ON id = i + 1) FROM x",
    "SELECT region FROM {t} EXCEPT SELECT 'EU'",
    "(SELECT id FROM {t} UNION SELECT id FROM {v}) ORDER BY id",
    "FROM (PIVOT {t} ON region IN ('EU', 'US') USING count(*) GROUP BY name) ORDER BY name",
    "SELECT count(*) FROM (FROM {t} WHERE id > 100) AS t(region, id)",
]  # fmt: skip


def test_no_answer_depends_on_what_is_hidden(ask: Ask, lake: duckdb.DuckDBPyConnection) -> None:
    """Rows, values and errors are the same of two tables that differ in nothing but what policies hide."""
    first = read_rows(ask("FROM a.t ORDER BY id"))
    assert (len(first), first[3]) == (40, {
        "id": 3, "region": "EU", "name": "xxxxxn", "amount": None, "day": "2026-01-01",
        "place": {"x": 999999999, "y": "XXXXXXXX"},
    })  # fmt: skip
    for attack in ATTACKS:
        texts = []
        for schema in LAKES:
            answer = ask(attack.format(t=f"{schema}.t", v=f"{schema}.v"))
            texts.append((answer.status_code, answer.text))
        assert texts[0][0] in {200, 400}, (attack, texts)
        assert texts[0] == texts[1], attack


PLANNED = [
    "SELECT * FROM {t} WHERE id > 1000000",
    "SELECT * FROM {t} WHERE id < 50 AND amount IS NULL ORDER BY id",
    "SELECT * FROM {t} WHERE name LIKE 'a%' OR error(name) IS NULL",
    "SELECT * FROM {t} JOIN range(3, 7) r(i) ON i = id",
    "SELECT * FROM {t} WHERE id IN (SELECT unnest([3, 5, 100000]))",
    "SELECT * FROM {t} ORDER BY id LIMIT 3",
    "SELECT id, count(*) FROM {t} GROUP BY ALL",
]
SCHEMA = Schema.model_validate(
    {
        "type": "struct",
        "fields": [
            {"id": number, "name": name, "type": kind, "required": False}
            for number, (name, kind) in enumerate([("id", "long"), ("region", "string"), ("name", "string")], 1)
        ],
    }
)


@pytest.mark.parametrize("query", PLANNED)
def test_nothing_of_a_query_is_planned_below_the_barrier(ducklake: duckdb.DuckDBPyConnection, query: str) -> None:
    """Neither its conditions, nor those that joins and orders make; and nothing is left out by statistics."""
    ducklake.execute("CREATE TABLE t AS SELECT i AS id, 'EU' AS region, 'n' || i AS name FROM range(3000) r(i)")
    restriction = Restriction((IS_NOT_ELSEWHERE,), {3: Mask.ALPHANUM})
    visible = f"({write_visible_rows('lake.main.t', SCHEMA, restriction, bytes(32))})"
    statement = query.format(t=f"(SELECT *, NULL AS amount FROM {visible})")

    def explain() -> str:
        kind = "EXPLAIN" if "error" in query else "EXPLAIN ANALYZE"
        (row,) = ducklake.execute(f"{kind} {statement}").fetchall()
        return str(row[1])

    for name, value in RESTRICTED_SETTINGS.items():
        ducklake.execute(f"SET {name} = '{value}'")
    above, barrier, below = explain().partition("STREAMING_LIMIT")
    assert barrier, above
    assert "EMPTY_RESULT" not in above
    assert "compress" not in above
    assert "Dynamic" not in below
    conditions = [part for part in ("id>", "id<", "(id ", "error", "~~", "prefix") if part in below]
    assert conditions == []


def test_restriction_follows_columns_through_their_history(
    ask: Ask, ducklake: duckdb.DuckDBPyConnection, services: Services
) -> None:
    """Renamed and widened columns keep filter and mask; a column that lacks in a snapshot leaves no rows."""

    def read(version: str = "") -> list[tuple[Any, ...]]:
        return [tuple(row.values()) for row in read_rows(ask(f"FROM main.t {version} ORDER BY ALL"))]

    def find_version() -> str:
        return f"AT (VERSION => {ask('SELECT 1').headers['Duckicelake-Snapshot']})"

    ducklake.execute("CREATE TABLE t (id INT, secret INT)")
    ducklake.execute("INSERT INTO t VALUES (1, 11), (2, NULL)")
    first = find_version()
    ducklake.execute("ALTER TABLE t ADD COLUMN region VARCHAR")
    ducklake.execute("INSERT INTO t VALUES (3, 33, 'EU'), (4, 44, 'US')")
    second = find_version()
    restrict(services, "main.t", {**IS_EU, "left": {"type": "reference", "id": 3}}, masks={2: Mask.FIXED_VALUE})
    ducklake.execute("ALTER TABLE t RENAME COLUMN region TO area")
    ducklake.execute("ALTER TABLE t RENAME COLUMN secret TO shown")
    ducklake.execute("ALTER TABLE t ALTER COLUMN shown TYPE BIGINT")
    ducklake.execute("ALTER TABLE t ADD COLUMN region VARCHAR DEFAULT 'EU'")
    assert read() == [(3, 999999999, "EU", "EU")]
    assert read(second) == [(3, 999999999, "EU")]
    assert read(first) == []
    ducklake.execute("ALTER TABLE t DROP COLUMN shown")
    assert read() == [(3, "EU", "EU")]
    ducklake.execute("ALTER TABLE t ADD COLUMN shown BIGINT DEFAULT 5")
    assert [row[-1] for row in read()] == [None]
    ducklake.execute("ALTER TABLE t DROP COLUMN area")
    assert read() == []
    assert read(second) == [(3, 999999999, "EU")]


def test_local_hashes_are_alike_within_one_query_alone(
    ask: Ask, ducklake: duckdb.DuckDBPyConnection, services: Services
) -> None:
    ducklake.execute("CREATE TABLE t AS SELECT 'n' || i % 3 AS name FROM range(9) r(i)")
    ducklake.execute("CREATE TABLE u AS FROM t")
    for name in ("main.t", "main.u"):
        restrict(services, name, masks={1: Mask.SHA_256_LOCAL})
    sql = "SELECT DISTINCT t.name FROM t JOIN u USING (name)"
    found = [{row["name"] for row in read_rows(ask(sql))} for _ in range(2)]
    assert [len(names) for names in found] == [3, 3]
    assert not found[0] & found[1]


def test_plans_and_missing_files_show_nothing(
    ask: Ask, ducklake: duckdb.DuckDBPyConnection, services: Services, warehouse: Path
) -> None:
    ducklake.execute("CREATE TABLE t (id INT, region VARCHAR)")
    ducklake.execute("ALTER TABLE t SET PARTITIONED BY (region)")
    ducklake.execute("INSERT INTO t SELECT i, 'hidden-' || i % 2 FROM range(3000) r(i)")
    ducklake.execute("CREATE VIEW v AS FROM t")
    assert ask("FROM t", explain=True).status_code == 200
    restrict(services, "main.t", {"type": "gt-eq", "left": {"type": "reference", "id": 1}, "right": 0})
    for name in ("t", "v"):
        answer = ask(f"SELECT 1 FROM range(2), {name}", explain=True)
        assert answer.status_code == 403
        assert "Policies hide rows or values of main.t from the caller, and a plan tells of them" in answer.text
    for file in warehouse.rglob("*.parquet"):
        file.unlink()
    answer = ask("FROM t")
    assert answer.status_code == 503
    assert "hidden" not in answer.text
    assert "…" in answer.text


def test_branches_are_restricted_like_their_table(
    http: httpx.Client, ask: Ask, ducklake: duckdb.DuckDBPyConnection, services: Services
) -> None:
    """Also those that DuckLake doesn't have, which DuckDB reads from the table's Iceberg metadata."""
    ducklake.execute("CREATE SCHEMA ns")
    ducklake.execute("CREATE TABLE ns.t AS SELECT i AS id, 'n' || i AS name FROM range(5) r(i)")
    table = RestCatalog("lake", uri=str(http.base_url)).load_table("ns.t")
    head = table.current_snapshot()
    assert head is not None
    with table.manage_snapshots() as manage:
        manage.create_branch(head.snapshot_id, "side").create_branch(head.snapshot_id, "still")
    table.append(pa.table({"id": [7, 8], "name": ["branch", None]}), branch="side")
    ducklake.execute("ALTER TABLE ns.t RENAME COLUMN name TO called")
    above_3 = {"type": "gt", "left": {"type": "reference", "id": 1}, "right": 3}
    restrict(services, "ns.t", above_3, masks={2: Mask.ALPHANUM})
    on_main = [(4, "xn")]
    for ref, wanted in {"side": [*on_main, (7, "xxxxxx"), (8, None)], "still": on_main, "main": on_main}.items():
        for sql, at in ((f"FROM ns.t AT (VERSION => '{ref}') ORDER BY id", {}), ("FROM ns.t ORDER BY id", {"at": ref})):
            assert [tuple(row.values()) for row in read_rows(ask(sql, **at))] == wanted, (ref, at)
        assert ask("SELECT filename FROM ns.t", at=ref).status_code == 400
        assert ask("FROM ns.t", at=ref, explain=True).status_code == 403


TYPED = {
    "UTINYINT": ("200", Mask.FIXED_VALUE, "INTEGER"),
    "BIGINT": ("7", Mask.SHA_256, "BIGINT"),
    "DECIMAL(9, 2)": ("1.5", Mask.FIXED_VALUE, "DECIMAL(9,2)"),
    "DOUBLE": ("1e300", Mask.NULL, "DOUBLE"),
    "BOOLEAN": ("true", Mask.FIXED_VALUE, "BOOLEAN"),
    "VARCHAR": ("'it''s'", Mask.LAST_4, "VARCHAR"),
    "UUID": ("'00000000-0000-0000-0000-00000000000b'", Mask.FIXED_VALUE, "UUID"),
    "BLOB": ("unhex('ab')", Mask.SHA_256_LOCAL, "BLOB"),
    "TIME": ("'01:02:03'", Mask.FIXED_VALUE, "TIME"),
    "TIMESTAMPTZ": ("'2026-05-05 23:00:00-05'", Mask.MONTH, "TIMESTAMP WITH TIME ZONE"),
    "TIMESTAMP_NS": ("'2026-05-05 01:02:03.123456789'", Mask.YEAR, "TIMESTAMP_NS"),
    "INT[]": ("[1, NULL]", Mask.FIXED_VALUE, "INTEGER[]"),
    "MAP(VARCHAR, INT)": ("MAP {'a': 1}", Mask.NULL, "MAP(VARCHAR, INTEGER)"),
}
"""By DuckDB's type: a value, a mask, and the type that is left: Iceberg's, where DuckLake's is narrower."""


def test_masked_columns_keep_their_types_and_filters_see_what_is_masked(
    ask: Ask, ducklake: duckdb.DuckDBPyConnection, services: Services
) -> None:
    columns = {f"c{number}": kind for number, kind in enumerate(TYPED)}
    ducklake.execute(f"CREATE TABLE t ({', '.join(f'{name} {kind}' for name, kind in columns.items())})")
    ducklake.execute(f"INSERT INTO t VALUES ({', '.join(value for value, _, _ in TYPED.values())})")
    ducklake.execute("INSERT INTO t (c1) VALUES (8)")
    ids = {name: number for number, name in ducklake.execute(
        "SELECT column_id, column_name FROM __ducklake_metadata_lake.ducklake_column WHERE parent_column IS NULL"
    ).fetchall()}  # fmt: skip
    is_seven = {"type": "eq", "left": {"type": "reference", "id": ids["c1"]}, "right": 7}
    masks = {ids[name]: TYPED[kind][1] for name, kind in columns.items()}
    restrict(services, "main.t", is_seven, masks=masks)
    (types,) = read_rows(ask("SELECT typeof(COLUMNS(*)) FROM t"))
    assert [*types.values()] == [kind for _, _, kind in TYPED.values()]
    (row,) = read_rows(ask("FROM t"))
    assert (row["c0"], row["c2"], row["c3"], row["c5"], row["c9"]) == (
        999999999, "0.00", None, "it's", "2026-05-01T00:00:00+00:00",
    )  # fmt: skip
    assert (row["c11"], row["c12"], row["c1"] == 7) == ([], None, False)


def test_masks_in_structs_lists_and_maps_leave_the_rest(
    ask: Ask, ducklake: duckdb.DuckDBPyConnection, services: Services
) -> None:
    """Also of fields that were renamed, dropped or made again; and nothing is left of them for conditions."""
    ducklake.execute(
        "CREATE TABLE t (id INT, person STRUCT(email VARCHAR, age INT), "
        "homes STRUCT(street VARCHAR, code INT)[], tags MAP(VARCHAR, STRUCT(secret VARCHAR, level INT)[]))"
    )
    ducklake.execute(
        "INSERT INTO t VALUES (1, {'email': 'ann@x.org', 'age': 7}, [{'street': 'Elm 12', 'code': 5}, NULL], "
        "MAP {'k': [{'secret': 'deep', 'level': 1}], 'n': NULL}), (2, NULL, NULL, NULL), "
        "(3, {'email': NULL, 'age': 8}, [], MAP {})"
    )
    first = f"AT (VERSION => {ask('SELECT 1').headers['Duckicelake-Snapshot']})"
    ids = {name: number for number, name in ducklake.execute(
        "SELECT column_id, column_name FROM __ducklake_metadata_lake.ducklake_column"
    ).fetchall()}  # fmt: skip
    masks = {ids["email"]: Mask.ALPHANUM, ids["street"]: Mask.FIXED_VALUE, ids["secret"]: Mask.NULL}
    restrict(services, "main.t", masks={**masks, ids["level"]: Mask.SHA_256})

    def read(version: str = "") -> list[dict[str, Any]]:
        return read_rows(ask(f"SELECT person, homes, tags FROM main.t {version} ORDER BY id"))

    (one, two, three) = read()
    assert one["person"] == {"email": "xxx@x.xxx", "age": 7}
    assert one["homes"] == [{"street": "XXXXXXXX", "code": 5}, None]
    ((key, (tag,)), nothing) = one["tags"]
    assert (key, tag["secret"], tag["level"] == 1, nothing) == ("k", None, False, ["n", None])
    assert [*two.values()] == [None, None, None]
    assert [*three.values()] == [{"email": None, "age": 8}, [], []]
    for condition in ("person.email LIKE 'ann%'", "homes[1].street = 'Elm 12'", "tags['k'][1].secret = 'deep'"):
        assert read_rows(ask(f"SELECT count(*) AS n FROM t WHERE {condition}")) == [{"n": 0}]
    ducklake.execute("ALTER TABLE t RENAME COLUMN person.email TO address")
    ducklake.execute("ALTER TABLE t ADD COLUMN person.email VARCHAR")
    assert read()[0]["person"] == {"address": "xxx@x.xxx", "age": 7, "email": None}
    ducklake.execute("ALTER TABLE t DROP COLUMN person.address")
    ducklake.execute("INSERT INTO t VALUES (0, {'age': 1, 'email': 'new@x.org'}, NULL, NULL)")
    assert read()[0]["person"] == {"age": 1, "email": "new@x.org"}
    assert read(first)[0]["person"] == {"email": "xxx@x.xxx", "age": 7}
    ducklake.execute("ALTER TABLE t ADD COLUMN person.address VARCHAR")
    ducklake.execute("INSERT INTO t VALUES (-1, {'age': 1, 'email': NULL, 'address': 'again'}, NULL, NULL)")
    assert read()[0]["person"] == {"age": 1, "email": None, "address": None}
