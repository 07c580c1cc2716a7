"""`referenced-by`: loads through views are answered as others are, whatever it says, and the caller has the views."""

from typing import Any
from urllib.parse import quote

import httpx
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.tables import load_table
from duckicelake.server.app import create_app
from duckicelake.server.http.scope import parse_view_chain
from duckicelake.server.routes import tables
from tests.support.client import new_client
from tests.support.servers import Serve

TABLE = "/v1/namespaces/ns/tables/t"
CHAINS = [
    "ns%1Fv",
    "prod%1Fanalytics%1Fquarterly,prod%1Fanalytics%1Fmonthly",
    "a%20b%1Fv%2Cw",
    "",
    ",",
    "v",
    "%1F",
    "%FF%1Fv",
    "ns%1Fv" * 500,
    "ns\x1fv",
]


@pytest.mark.parametrize(
    ("text", "views"),
    [
        ("ns%1Fv", [(("ns",), "v")]),
        ("p%1Fa%1Fouter,p%1Fa%1Finner", [(("p", "a"), "outer"), (("p", "a"), "inner")]),
        ("a%20b%1Fv%2Cw+x", [(("a b",), "v,w+x")]),
        ("ns\x1fv", [(("ns",), "v")]),
        ("v", []),
        ("", []),
        ("%FF%1Fv", []),
    ],
)
def test_views_are_read_as_java_writes_them(text: str, views: list[Any]) -> None:
    assert [tuple(view) for view in parse_view_chain(text)] == views


def test_loads_through_views_are_answered_as_others_are(
    services: Services, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    new_client(services).create("t")
    seen = []

    def note(asked: Services, *arguments: Any) -> Any:
        seen.append(asked.caller.referenced_by)
        return load_table(asked, *arguments)

    monkeypatch.setattr(tables.tables, "load_table", note)
    http: httpx.Client = serve(create_app(services))
    plain = http.get(TABLE)
    answers = [http.get(f"{TABLE}?snapshots=all&referenced-by={quote(chain, safe='')}") for chain in CHAINS]
    assert {(answer.status_code, answer.content, answer.headers["etag"]) for answer in answers} == {
        (200, plain.content, plain.headers["etag"])
    }
    assert set(seen) <= {(), *map(parse_view_chain, CHAINS)}
    credentials = http.get(f"{TABLE}/credentials?referenced-by=ns%251Fv")
    assert credentials.status_code == http.get(f"{TABLE}/credentials").status_code
    missing = http.get("/v1/namespaces/ns/views/none?referenced-by=ns%251Fv")
    assert missing.json()["error"]["type"] == "NoSuchViewException"
