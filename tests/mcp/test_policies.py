"""Every tool there is, called by an agent from whom policies hide rows and values: no result has them, or counts them.

A tool without a row in `CALLS` fails.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import anyio
import pytest
from mcp import ClientSession, types
from mcp.shared.exceptions import McpError
from pydantic import AnyUrl

from duckicelake.mcp.protocol import build_tools
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.query import service
from scripts.backends_job.minio import Minio
from tests.mcp.conftest import QUERIES, serving_agents, talk_http
from tests.support.guarded_lake import GuardedLake, list_needles, serve_guarded

T: Final = {"name": "sales.eu.t"}
SQL: Final = {"sql": "FROM sales.eu.t"}
VISIBLE: Final = [{"id": 1, "region": "eu", "email": None}]
REFUSED: Final = None
"""In the place of a result: the call is refused, by the code `not_allowed`."""
Call = tuple[Mapping[str, Any], Any]
CALLS: Final[Mapping[str, tuple[Call, ...]]] = {
    "list_objects": (({"namespace": "sales.eu"}, {"objects": [{"kind": "table", "name": "sales.eu.t"}]}),),
    "search": (
        ({"text": "email"}, {"matches": []}),
        ({"text": "qz9b1c"}, {"matches": []}),
        ({"text": "zone-7f3a91", "namespace": "sales"}, {"matches": []}),
    ),
    "describe": ((T, REFUSED),),
    "sample": (
        (T, {"rows": VISIBLE, "is_cut": False}),
        ({**T, "at": "first"}, {"rows": VISIBLE, "is_cut": False}),
    ),
    "run_query": (
        (SQL, "over_budget"),
        ({**SQL, "confirmed_scan_bytes": 1}, {"rows": VISIBLE, "is_cut": False}),
        (
            {"sql": "SELECT count(*) AS n, max(id) AS m FROM sales.eu.t", "confirmed_scan_bytes": 1},
            {"rows": [{"n": 1, "m": 1}]},
        ),
        ({"sql": "SELECT nope FROM sales.eu.t", "confirmed_scan_bytes": 1}, "refused"),
        ({"sql": "SELECT error(region) FROM sales.eu.t WHERE region <> 'eu'", "confirmed_scan_bytes": 1}, {"rows": []}),
        ({"sql": "SELECT CAST(email AS INT) AS n FROM sales.eu.t", "confirmed_scan_bytes": 1}, {"rows": [{"n": None}]}),
    ),
    "explain": ((SQL, REFUSED), ({**SQL, "at": "first"}, REFUSED)),
    "profile_column": (
        ({**T, "column": "id"}, REFUSED),
        ({**T, "column": "email", "at": "first"}, REFUSED),
    ),
    "history": ((T, REFUSED), ({}, {"changes": []}), ({"name": "sales.eu"}, {"changes": []})),
    "diff": ((T, REFUSED), ({**T, "since": "first"}, REFUSED)),
    "lineage": ((T, "not_found"), ({**T, "column": "email", "with_columns": True}, "not_found")),
    "jobs": (({}, {"jobs": []}), (T, {"jobs": []})),
    "maintenance_advice": (
        ({}, {"jobs": [], "tables_examined": 0}),
        ({"namespace": "sales.eu"}, {"jobs": [], "tables_examined": 0}),
    ),
    "doctor": (({}, REFUSED),),
    "create_table": (({"name": "sales.eu.t", "columns": "id long"}, "conflict"),),
    "create_branch": (({**T, "branch": "mine"}, REFUSED), ({**T, "branch": "mine", "at": "first"}, REFUSED)),
    "append_rows": (({**T, "branch": "mine", "rows": [{"id": 3}]}, REFUSED),),
    "set_comment": (({**T, "comment": "x"}, REFUSED), ({**T, "column": "email", "comment": "x"}, REFUSED)),
}
"""Of each tool: arguments, and what of its result must be; a text is the code of an error."""


@pytest.fixture(scope="module")
def guarded(postgres: EmbeddedPostgres, minio: Minio) -> Iterator[GuardedLake]:
    with serve_guarded(postgres, minio) as lake:
        lake.done("POST", "/v1/namespaces/sales%1Feu/tables/t", build_tag(lake, "first"), who="boss")
        service._limits[lake.services.database] = QUERIES
        yield lake
        service._limits.pop(lake.services.database)
        service.end_processes()


@pytest.fixture(autouse=True)
def limits() -> None:
    """Those of `guarded` count."""


def build_tag(lake: GuardedLake, name: str) -> dict[str, Any]:
    table = lake.done("GET", "/v1/namespaces/sales%1Feu/tables/t", who="boss")
    snapshot = table["metadata"]["current-snapshot-id"]
    return {
        "requirements": [],
        "updates": [{"action": "set-snapshot-ref", "ref-name": name, "type": "tag", "snapshot-id": snapshot}],
    }


def check_hidden(text: str) -> None:
    found = [needle for needle in list_needles() if needle in text.encode()]
    assert found == [], text[:2000]


async def check_call(session: ClientSession, tool: str, arguments: Mapping[str, Any], wanted: Any) -> None:
    answer = await session.call_tool(tool, dict(arguments))
    check_hidden(answer.model_dump_json())
    found = answer.structuredContent
    assert found is not None
    if isinstance(wanted, dict):
        assert not answer.isError, answer.content
        for name, value in wanted.items():
            assert found[name] == value
    else:
        assert answer.isError, found
        assert found["error"]["code"] == (wanted or "not_allowed")


def test_every_tool_has_a_row() -> None:
    assert {tool.name for tool in build_tools(has_changes=True)} == set(CALLS)


def test_no_tool_returns_what_policies_hide(guarded: GuardedLake, subtests: pytest.Subtests) -> None:
    uri = str(guarded.http.base_url).rstrip("/")

    async def use(url: str) -> None:
        async with talk_http(url, guarded.tokens["ann"]) as session:
            for tool, calls in CALLS.items():
                for arguments, wanted in calls:
                    with subtests.test(tool, arguments=arguments):
                        await check_call(session, tool, arguments, wanted)

    with serving_agents(uri, has_login=True, has_changes=True) as url:
        anyio.run(use, url)


def test_no_resource_has_what_policies_hide(guarded: GuardedLake) -> None:
    uri = str(guarded.http.base_url).rstrip("/")

    async def use(url: str) -> None:
        async with talk_http(url, guarded.tokens["ann"]) as session:
            listed = await session.read_resource(AnyUrl("lake://tables"))
            assert isinstance(listed.contents[0], types.TextResourceContents)
            assert "sales.eu.t" in listed.contents[0].text
            check_hidden(listed.model_dump_json())
            with pytest.raises(McpError) as refusal:
                await session.read_resource(AnyUrl("lake://tables/sales.eu.t"))
            check_hidden(str(refusal.value))

    with serving_agents(uri, has_login=True) as url:
        anyio.run(use, url)
