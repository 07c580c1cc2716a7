"""What web pages of others make browsers send to a server without logins is refused; what programs send is served."""

import json
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.server.api import App
from duckicelake.server.app import Edge, create_app
from duckicelake.server.auth.authentication import Authentication
from duckicelake.server.middleware.cross_site import AllowedHosts
from tests.support.client import SCHEMA
from tests.support.logins import Server

Serve = Callable[[Any], httpx.Client]
NAMESPACES = "/v1/namespaces"
PAGES = ("/", "/ui", "/ui/w/lake/tables", "/ui/lineage")
CLIENTS = json.loads((Path(__file__).parent / "client_requests.json").read_text())
LOCAL = "127.0.0.1"


def local(services: Services, authentication: Authentication | None = None, **edge: Any) -> App:
    return create_app(services, edge=Edge(hosts=AllowedHosts(), **edge), authentication=authentication)


def refused(answer: httpx.Response, status: int, *named: str) -> None:
    error = answer.json()["error"]
    kind = {403: "ForbiddenException", 421: "MisdirectedRequestException"}[status]
    assert (answer.status_code, error["code"], error["type"]) == (status, status, kind), answer.text
    for text in named:
        assert text in error["message"]


def test_requests_of_stock_clients_are_let_through(services: Services, serve: Serve) -> None:
    """Recorded from the clients; those of ClickHouse, Prometheus and the kubelet are as their sources have them."""
    http = serve(local(services))
    for client in CLIENTS:
        headers = {name: value.replace("{port}", str(http.base_url.port)) for name, value in client["headers"].items()}
        answer = http.request(
            client["method"], client["path"], headers=headers, content=client.get("body", "").encode()
        )
        assert answer.status_code == client["status"], client["client"]


FOREIGN: dict[str, dict[str, str]] = {
    "origin of another site": {"origin": "https://evil.example"},
    "another server of this machine": {"origin": "http://localhost:3000"},
    "origin without a name": {"origin": "null"},
    "empty origin": {"origin": ""},
    "cross-site": {"sec-fetch-site": "cross-site"},
    "cross-site that claims our origin": {"sec-fetch-site": "cross-site", "origin": "http://localhost"},
    "site that no browser knows": {"sec-fetch-site": "whatever"},
    "browser's form": {"origin": "https://evil.example", "content-type": "application/x-www-form-urlencoded"},
    "link to data": {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"},
}


def test_requests_that_foreign_pages_cause_are_refused(services: Services, serve: Serve) -> None:
    http = serve(local(services))
    for headers, method in product(FOREIGN.values(), ("GET", "HEAD", "POST", "DELETE")):
        sent = {"host": "localhost", "content-type": "application/json", **headers}
        path = f"{NAMESPACES}/main" if method == "DELETE" else NAMESPACES
        answer = http.request(
            method, path, headers=sent, content=b'{"namespace": ["stolen"]}' if method == "POST" else b""
        )
        if method == "HEAD":
            assert answer.status_code == 403
        else:
            refused(answer, 403, "Origin" if "origin" in headers else "Sec-Fetch-Site", "DUCKICELAKE_CORS_ORIGINS")
    assert http.get(NAMESPACES).json()["namespaces"] == [["main"]]


SIMPLE = (
    "text/plain",
    "text/plain; application/json",
    "application/x-www-form-urlencoded",
    "Text/PLAIN",
    "multipart/form-data; boundary=x",
    None,
)


def test_bodies_that_any_page_may_send_are_refused_from_browsers_alone(services: Services, serve: Serve) -> None:
    http = serve(local(services))
    for content_type, browser in product(SIMPLE, ({"origin": "http://localhost"}, {"sec-fetch-site": "none"})):
        sent = {"host": "localhost", **({} if content_type is None else {"content-type": content_type})}
        answer = http.post(NAMESPACES, headers={**sent, **browser}, content=b'{"namespace": ["stolen"]}')
        refused(answer, 403, "Content-Type", "application/json")
        assert http.post(NAMESPACES, headers=sent, content=b'{"namespace": ["main"]}').status_code == 409


OWN: dict[str, dict[str, str]] = {
    "same origin": {"sec-fetch-site": "same-origin", "sec-fetch-mode": "cors"},
    "address that was typed in": {"sec-fetch-site": "none", "sec-fetch-mode": "navigate"},
    "old browser": {"origin": "http://localhost"},
    "new browser": {"origin": "http://localhost", "sec-fetch-site": "same-origin"},
    "behind a proxy that ends TLS and has a name of its own": {
        "origin": "https://lake.example",
        "sec-fetch-site": "same-origin",
    },
}


def test_own_pages_are_served(services: Services, serve: Serve) -> None:
    http = serve(local(services))
    for number, headers in enumerate(OWN.values()):
        sent = {"host": "localhost", **headers}
        assert http.get(NAMESPACES, headers=sent).status_code == 200, headers
        assert http.post(NAMESPACES, headers=sent, json={"namespace": [f"made{number}"]}).status_code == 200, headers


def test_links_from_elsewhere_lead_to_pages_which_show_nothing_by_themselves(services: Services, serve: Serve) -> None:
    http = serve(local(services))
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert [http.get(path, headers=link).status_code for path in PAGES] == [307, 200, 200, 307]
    refused(http.get("/ui/lineage", headers={**link, "origin": "https://evil.example"}), 403)
    refused(http.get(NAMESPACES, headers=link), 403)


def test_origins_of_the_setting_may_call_and_no_others(services: Services, serve: Serve) -> None:
    http = serve(local(services, cors_origins=("https://ui.example",)))
    page = {"origin": "https://ui.example", "sec-fetch-site": "cross-site"}
    assert http.post(NAMESPACES, headers=page, json={"namespace": ["made"]}).status_code == 200
    refused(http.get(NAMESPACES, headers={**page, "origin": "https://ui.example.evil.example"}), 403, "Origin")
    asking = {"origin": "https://ui.example", "access-control-request-method": "POST", "sec-fetch-site": "cross-site"}
    assert http.options(NAMESPACES, headers=asking).headers["access-control-allow-origin"] == "https://ui.example"


HOSTS = {
    # bound, more, the end of the connection that is ours: (served, refused)
    ("127.0.0.1", (), LOCAL): (
        ["localhost", "LOCALHOST:8181", "localhost.", "lake.localhost:1", "127.0.0.1", "127.9.9.9:8181", "[::1]:8181",
         "[::ffff:127.0.0.1]", "0.0.0.0:8181"],
        ["evil.example", "evil.example:8181", "localhost.evil.example", "127.0.0.1.evil.example", "10.1.2.3", "evil",
         "", "localhost@evil.example", "localhost:8181:1", "http://localhost", "[::2]", "localhost, evil.example",
         "a" * 300],
    ),
    ("0.0.0.0", (), "10.1.2.3"): (
        ["10.1.2.3:8181", "localhost", "{own}", "{own}.local:8181", "{own}.example.internal"],
        ["10.1.2.4", "evil.example"],
    ),
    ("::", (), "2001:db8::1"): (["[2001:db8::1]:8181", "[::1]"], ["[2001:db8::2]"]),
    ("127.0.0.1", (), "10.1.2.3"): ([], ["10.1.2.3", "{own}x"]),
    ("lake.internal", (), LOCAL): (["lake.internal:8181", "localhost"], ["other.internal"]),
    ("127.0.0.1", ("Lake.Example", "*.svc.cluster.local", "10.0.0.0/8", "2001:db8::1"), LOCAL): (
        ["lake.example:443", "lake.example.", "lake.prod.svc.cluster.local", "10.9.8.7", "[2001:db8::1]:1"],
        ["x.lake.example", "svc.cluster.local.evil.example", "11.0.0.1"],
    ),
    ("127.0.0.1", ("*",), LOCAL): (["evil.example"], []),
}  # fmt: skip


@pytest.mark.parametrize(("case", "expected"), HOSTS.items(), ids=lambda case: str(case[0])[:20])
def test_hosts_are_allowed_by_what_the_server_listens_on(
    case: tuple[str, tuple[str, ...], str], expected: tuple[list[str], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "lakehouse")
    monkeypatch.setattr("socket.getfqdn", lambda: "lakehouse.example.internal")
    bound, more, address = case
    hosts = AllowedHosts(bound, more)
    for allowed, names in zip((True, False), expected, strict=True):
        for name in names:
            assert hosts.allows(name.format(own="lakehouse").encode(), address) is allowed, name


def test_foreign_host_is_misdirected_and_the_error_names_the_setting(services: Services, serve: Serve) -> None:
    http = serve(local(services))
    for path in (NAMESPACES, "/", "/ui/lineage", "/metrics", "/v1/config", "/nothing"):
        answer = http.get(path, headers={"host": "evil.example", "sec-fetch-site": "same-origin"})
        refused(answer, 421, "evil.example", "Host", "DUCKICELAKE_ALLOWED_HOSTS")
        assert answer.headers["x-request-id"]
    probes = [http.get(path, headers={"host": "10.2.3.4:8181"}).status_code for path in ("/healthz", "/readyz")]
    assert probes == [200, 200]


def test_load_that_was_answered_before_is_refused_under_another_name(services: Services, serve: Serve) -> None:
    http = serve(local(services))
    assert http.post(f"{NAMESPACES}/main/tables", json={"name": "t", "schema": SCHEMA}).status_code == 200
    table, named = f"{NAMESPACES}/main/tables/t", {"host": "localhost"}
    for _ in range(4):
        assert http.get(table, headers=named).status_code == 200
        refused(http.get(table, headers={"host": "evil.example"}), 421)
        refused(http.get(table, headers={**named, "origin": "https://evil.example"}), 403)
        refused(http.get(table, headers={**named, "sec-fetch-site": "cross-site"}), 403)


def test_nothing_of_this_counts_with_logins_where_no_browser_has_the_token(services: Services, serve: Serve) -> None:
    server = Server()
    http = serve(local(services, server.authentication()))
    answer = http.get(NAMESPACES, headers={"host": "evil.example", "origin": "https://evil.example"})
    assert answer.status_code == 401
