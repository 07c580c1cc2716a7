"""Every route there is, asked by one from whom policies hide rows and values of a table: no answer has them.

A route of a table is refused unless `ANSWERED` says what it answers; any other is in `BESIDE`. So a new route without a
row fails. Each answer is searched for the hidden values, whatever its status is: for their bounds and hashes, too.
"""

from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest

from duckicelake.changelog.writer import write_all_changes
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.query import service
from duckicelake.query.processes import QueryLimits
from duckicelake.server.hooks import list_needs
from scripts.backends_job.minio import Minio
from tests.server.auth.test_permissions import BODIES, path_of
from tests.support.guarded_lake import GuardedLake, list_needles, serve_guarded

LIMITS: Final = QueryLimits(processes=2, memory_bytes=256 * 1024**2, disk_bytes=0, seconds=60.0, rows=1000)
ROUTES: Final = sorted(f"{method} {path}" for method, path in list_needs())
_TABLE: Final = "/v1/namespaces/{namespace}/tables/{table}"
ANSWERED: Final = {
    f"HEAD {_TABLE}": "that it is there, as lists do",
    f"GET {_TABLE}/actions": "what may be done",
    f"GET {_TABLE}/changes": "the rows that the caller sees, before and after",
}
"""Routes of the guarded table that aren't refused, and what they answer."""
BESIDE: Final = {
    "shows only names": (
        "/v1/namespaces", "/v1/namespaces/{namespace}", "/v1/namespaces/{namespace}/properties",
        "/v1/namespaces/{namespace}/tables", "/v1/namespaces/{namespace}/views", "/v1/namespaces/{namespace}/actions",
        "/v1/actions", "/v1/whoami", "/v1/config", "/v1/oauth/tokens", "/v1/oauth/logins",
        "/v1/namespaces/{namespace}/rename", "/v1/search",
    ),
    "leaves the table out, or isn't about tables' content": (
        "/v1/events", "/v1/history", "/v1/namespaces/{namespace}/history", "/v1/dropped",
        "/v1/dropped/{kind}/{object_id}", "/pipeline/v1/jobs", "/pipeline/v1/plan",
        "/pipeline/v1/tables", "/pipeline/v1/upkeep", "/pipeline/v1/policies",
        "/pipeline/v1/namespaces/{namespace}/policies",
    ),
    "names the table in its body, and is refused": (
        "/v1/namespaces/{namespace}/clone", "/v1/namespaces/{namespace}/register", "/v1/tables/rename",
        "/v1/transactions/commit", "/v1/namespaces/{namespace}/undrop", "/v1/views/rename",
        "/v1/namespaces/{namespace}/register-view",
    ),
    "is about a view, by its SQL": (
        "/v1/namespaces/{namespace}/views/{view}", "/v1/namespaces/{namespace}/views/{view}/actions",
        "/v1/namespaces/{namespace}/views/{view}/history",
    ),
    "reads no guarded table": ("/v1/materialized-views", "/v1/namespaces/{namespace}/materialized-views"),
    "runs SQL with filter and masks": ("/sql/v1/", "/v1/namespaces/{namespace}/query-results"),
    "asks what these routes answer, for the same caller": ("/mcp/v1", "/mcp/v1/calls"),
    "gives logins, which don't see the table": ("/duckdb/v1/",),
    "says which tables runs read and wrote": ("/lineage/v1/", "/api/v1/"),
    "is for administrators": ("/management/v1/", "/metrics", "/v1/audit", "/v1/doctor", "/v1/orphans"),
    "is no lake's": ("/healthz", "/readyz", "/openapi.json", "/", "/ui", "/ui/", "/.well-known/"),
}  # fmt: skip
"""Why routes without the table in their path are no way round it, by path or by the beginning of paths."""
BODY_ROUTES: Final = {
    "POST /v1/namespaces/{namespace}/clone": {"name": "mine", "source": {"namespace": ["sales", "eu"], "name": "t"}},
    "POST /v1/tables/rename": {
        "source": {"namespace": ["sales", "eu"], "name": "t"},
        "destination": {"namespace": ["sales", "eu"], "name": "mine"},
    },
    "POST /v1/transactions/commit": {
        "table-changes": [
            {"identifier": {"namespace": ["sales", "eu"], "name": "t"}, "requirements": [], "updates": []},
        ]
    },
}
"""Bodies that would do something with the table, if they weren't refused."""


@pytest.fixture(scope="module")
def guarded(postgres: EmbeddedPostgres, minio: Minio) -> Iterator[GuardedLake]:
    with serve_guarded(postgres, minio) as lake:
        view = {
            "name": "v",
            "schema": {"type": "struct", "schema-id": 0, "fields": []},
            "view-version": {
                "version-id": 1, "timestamp-ms": 1, "schema-id": 0, "summary": {}, "default-namespace": ["sales", "eu"],
                "representations": [{"type": "sql", "sql": "SELECT * FROM t", "dialect": "duckdb"}],
            },
            "properties": {},
        }  # fmt: skip
        lake.done("POST", "/v1/namespaces/sales%1Feu/views", view)
        write_all_changes(lake.services)
        yield lake


def check_hidden(answer: httpx.Response) -> None:
    """Check that neither the body nor a header has what policies hide."""
    headers = "\n".join(f"{name}: {value}" for name, value in answer.headers.items()).encode()
    found = [needle for needle in list_needles() if needle in answer.content or needle in headers]
    assert found == [], answer.text[:2000]


def is_of_table(route: str) -> bool:
    return "{table}" in route


def find_reason(route: str) -> str | None:
    path = route.split(maxsplit=1)[1]
    for reason, paths in BESIDE.items():
        if any(path == known or (known.endswith("/") and known != "/" and path.startswith(known)) for known in paths):
            return reason
    return None


def test_every_route_has_a_row() -> None:
    assert [route for route in ROUTES if not is_of_table(route) and find_reason(route) is None] == []
    assert ANSWERED.keys() <= set(ROUTES)


@pytest.mark.parametrize("route", ROUTES)
def test_no_answer_has_what_policies_hide(guarded: GuardedLake, route: str) -> None:
    method, body = route.split(maxsplit=1)[0], BODY_ROUTES.get(route, BODIES.get(route))
    answer = guarded.ask("ann", method, path_of(route), body)
    check_hidden(answer)
    if is_of_table(route):
        expected = {200, 204} if route in ANSWERED else {403}
        assert answer.status_code in expected, answer.text
    if route in BODY_ROUTES:
        assert answer.status_code == 403, answer.text


@pytest.mark.parametrize(
    "path", ["/v1/history", "/v1/events?limit=100", "/pipeline/v1/tables", "/pipeline/v1/plan", "/v1/dropped"]
)
def test_lists_leave_the_table_out(guarded: GuardedLake, path: str) -> None:
    assert '"t"' in guarded.ask("boss", "GET", path).text or path == "/v1/dropped"
    answer = guarded.ask("ann", "GET", path)
    check_hidden(answer)
    assert '"t"' not in answer.text


def test_values_are_in_what_others_are_answered(guarded: GuardedLake) -> None:
    """Else the search would find nothing whatever there was."""
    plan: Any = guarded.ask(
        "boss", "POST", "/v1/namespaces/sales%1Feu/tables/t/plan", {"stats-fields": ["id", "region"]}
    )
    assert any(needle in plan.content for needle in list_needles()), plan.text


@pytest.fixture
def queries(guarded: GuardedLake) -> Iterator[None]:
    service._limits[guarded.services.database] = LIMITS
    yield
    service._limits.pop(guarded.services.database)
    service.end_processes()


FORMATS: Final = ("application/vnd.apache.arrow.stream", "text/csv", "application/x-ndjson")
QUERIES: Final = (
    "FROM {t} ORDER BY id",
    "FROM sales.eu.v",
    "SELECT min(id), max(id), min(email), max(region), list(region), string_agg(email) FROM {t}",
    "SELECT count(*) FROM {t} WHERE error(id || region || email) IS NULL",
    "SELECT count(*) FROM {t} WHERE error(region) IS NULL AND region <> 'eu'",
    "SELECT CAST(email AS INT), CAST(id AS TINYINT) FROM {t}",
    "FROM {t} WHERE 1 // (id - 7316425911037) = 1 OR email LIKE 'qz9%'",
    "SELECT sha256(region), hash(email), md5(id::VARCHAR) FROM {t}",
    "SELECT filename FROM {t}",
    "SELECT rowid FROM {t}",
    "SELECT r.email FROM {t} l FULL JOIN {t} r ON l.id <> r.id",
    "DESCRIBE {t}",
    "SUMMARIZE {t}",
    "EXPLAIN ANALYZE FROM {t}",
    "FROM sales.eu.t AT (VERSION => 1)",
    "FROM duckdb_tables()",
    "FROM ducklake_table_info('lake')",
    "FROM __ducklake_metadata_lake.ducklake_file_column_stats",
)


@pytest.mark.usefixtures("queries")
@pytest.mark.parametrize("statement", QUERIES)
def test_no_query_answers_what_policies_hide(guarded: GuardedLake, statement: str) -> None:
    for accept in FORMATS:
        for more in ({}, {"explain": True}):
            body = {"sql": statement.format(t="sales.eu.t"), **more}
            answer = guarded.ask("ann", "POST", "/sql/v1/query", body, Accept=accept)
            check_hidden(answer)
            assert answer.status_code != 200 or not more


VALUES: Final = {
    "email": "'qz9b1c.secret@example.org'", "card": "'5105-1051-0510-5100'", "code": "'zone-7f3a91'",
    "born": "DATE '1987-06-15'", "seen": "TIMESTAMPTZ '2019-03-21 04:05:06+00'", "number": "7316425911037",
    "name": "'Quirin Zebulon'", "salary": "918273645", "token": "'tok_4f9aa1'",
}  # fmt: skip
ACTIONS: Final = {
    "email": ("mask-alphanum", "xxnxnx.xxxxxx@xxxxxxx.xxx"),
    "card": ("show-last-4", "nnnn-nnnn-nnnn-5100"),
    "code": ("show-first-4", "zone-nxnxnn"),
    "born": ("truncate-to-year", "1987-01-01"),
    "seen": ("truncate-to-month", "2019-03-01T00:00:00+00:00"),
    "number": ("sha-256-query-local", None),
    "name": ("mask-to-fixed-value", "XXXXXXXX"),
    "salary": ("replace-with-null", None),
    "token": ("sha-256-global", None),
}
"""Of each column: its mask, and what the mask leaves; None: not the value."""


@pytest.mark.usefixtures("queries")
def test_each_action_hides_its_column_in_each_format(guarded: GuardedLake) -> None:
    kinds = {"born": "date", "seen": "timestamptz", "number": "long", "salary": "int"}
    fields = [
        {"id": number, "name": name, "type": kinds.get(name, "string"), "required": False}
        for number, name in enumerate(VALUES, 1)
    ]
    schema = {"type": "struct", "schema-id": 0, "fields": fields}
    path = "/v1/namespaces/sales%1Feu/tables"
    guarded.done("POST", path, {"name": "people", "schema": schema})
    with guarded.duckdb() as duck:
        duck.execute(f'INSERT INTO lake."sales.eu".people SELECT {", ".join(VALUES.values())}')
    for name, (mask, _) in ACTIONS.items():
        guarded.add_policy(f"people-{name}", "people", column=name, mask=mask, exempt=["boss"])
    needles = [b"qz9b1c", b"5105", b"7f3a", b"-06-15", b"04:05:06", b"7316425911037", b"Quirin", b"918273645", b"tok_"]
    for accept in FORMATS:
        answer = guarded.ask("ann", "POST", "/sql/v1/query", {"sql": "FROM sales.eu.people"}, Accept=accept)
        assert answer.status_code == 200, answer.text
        assert [needle for needle in needles if needle in answer.content] == []
    row = answer.json()
    assert {name: row[name] for name, (_, left) in ACTIONS.items() if left} == {
        name: left for name, (_, left) in ACTIONS.items() if left
    }
    assert row["salary"] is None
    assert row["number"] != 7316425911037
    assert len(row["token"]) == 64
