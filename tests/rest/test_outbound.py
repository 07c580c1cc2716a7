"""URLs of callers: where they may lead, whatever their host is called and whatever its name resolves to."""

import socket
from contextlib import closing
from http.server import BaseHTTPRequestHandler
from time import monotonic, sleep
from typing import Any

import pytest

from duckicelake.errors import InvalidSettingsError, RefusedAddressError
from duckicelake.rest.http import HttpConnection, HttpResponse, NoAnswerError
from duckicelake.rest.outbound import OutboundGuard
from tests.rest.test_http import say, serving

STRICT = OutboundGuard()
LOCAL = OutboundGuard.parse(("127.0.0.1",))
PUBLIC = "93.184.215.14"


@pytest.fixture
def resolving(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[list[str]]]:
    """Names and, for each time they are resolved, their addresses; the last ones stay. Other hosts: as ever."""
    names: dict[str, list[list[str]]] = {}
    real = socket.getaddrinfo

    def resolve(host: str, port: int, *args: Any, **options: Any) -> list[Any]:
        known = names.get(host.lower().rstrip("."))
        if known is None:
            return list(real(host, port, *args, **options))
        addresses = known.pop(0) if len(known) > 1 else known[0]
        return [found for address in addresses for found in real(address, port, *args, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return names


def ask(uri: str, guard: OutboundGuard, path: str = "/", **options: Any) -> HttpResponse:
    with closing(HttpConnection(uri, guard)) as http:
        return http.ask("GET", path, {}, **{"seconds": 5.0, **options})


REFUSED_ADDRESSES = (
    *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1"),
    *("169.254.169.254", "100.64.0.1", "100.100.100.200", "192.0.0.192", "198.18.0.1", "224.0.0.1", "240.0.0.1"),
    *("255.255.255.255", "168.63.129.16", "192.88.99.1", "192.0.2.1"),
    *("::1", "::", "fe80::1", "fc00::1", "fd00:ec2::254", "fec0::1", "ff02::1", "2001:db8::1", "3fff::1"),
    *("::ffff:127.0.0.1", "::ffff:a9fe:a9fe", "::127.0.0.1", "::ffff:0:7f00:1", "64:ff9b::7f00:1", "64:ff9b::a00:1"),
    *("64:ff9b:1::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "2001:0:53aa:64c:0:0:80ff:fffe", "100::1"),
)


@pytest.mark.parametrize("address", REFUSED_ADDRESSES)
def test_url_to_an_address_that_is_not_public_is_refused(address: str, resolving: dict[str, list[list[str]]]) -> None:
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(RefusedAddressError, match=r"isn't public.*DUCKICELAKE_ALLOWED_ADDRESSES"):
        STRICT.check_url(f"https://{host}:8443/x")
    resolving["evil.example"] = [[PUBLIC, address]]
    with pytest.raises(RefusedAddressError, match=r"^evil\.example has an address that isn't public"):
        STRICT.check_url("http://evil.example/")
    with pytest.raises(NoAnswerError, match="isn't public"):
        ask("http://evil.example", STRICT)
    with pytest.raises(NoAnswerError, match="isn't public"):
        ask(f"https://{host}", STRICT)


@pytest.mark.parametrize(
    "address", [PUBLIC, "8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8", "2002:808:808::1"]
)
def test_url_to_a_public_address_is_taken(address: str, resolving: dict[str, list[list[str]]]) -> None:
    resolving["good.example"] = [[address]]
    assert STRICT.check_url("https://good.example/realms/x") == "https://good.example/realms/x"


@pytest.mark.parametrize(
    "url",
    [
        *("http://2130706433/", "http://0x7f000001/", "http://0177.0.0.1/", "http://127.1/", "http://0x7f.1/"),
        *("http://127.0.0.1./", "http://127.0.0.01/", "http://1.2.3.4.5/", "http://0/", "http://017700000001/"),
        *("http://[fe80::1%25eth0]/", "http://[fe80::1%eth0]/", "http://[::1%25lo]/", "http://[::ffff:1.2.3]/"),
        *(
            "http://a@127.0.0.1/",
            "http://user:pw@good.example/",
            "http://good.example@127.0.0.1/",
            "http://@x.example/",
        ),
        *("http://good.example\\@127.0.0.1/", "http://good.example#@127.0.0.1/", "http://x.example/\r\nHost: y"),
        *("ftp://good.example/", "file:///etc/passwd", "gopher://x.example/", "s3://bucket/", "//good.example/"),
        *("good.example", "", "http://", "http:///path", "http://good.example:99999/", "http://good.example:0x50/"),
        *("http://①②⑦.0.0.1/", "http://good.example\t/", "http://good example/", "http://" + "a" * 3000),
        *("http://%6c%6f%63alhost/", "http://127.0.0.1%2f@good.example/", "http://127。0。0。1/"),
    ],
)
def test_url_in_an_odd_spelling_is_refused(url: str) -> None:
    with pytest.raises(RefusedAddressError):
        STRICT.check_url(url)
    with pytest.raises(RefusedAddressError):
        OutboundGuard.parse(("0.0.0.0/0", "*.example")).check_url(url)


def test_host_without_an_address_is_refused(resolving: dict[str, list[list[str]]]) -> None:
    with pytest.raises(RefusedAddressError, match="its host has no address"):
        STRICT.check_url("https://none.invalid/")


def test_settings_list_networks_addresses_and_hosts(resolving: dict[str, list[list[str]]]) -> None:
    resolving["sso.corp.example"] = [["10.1.2.3"]]
    resolving["mapped.example"] = [["::ffff:10.1.2.3"]]
    for listed in ("10.0.0.0/8", "10.1.2.3"):
        guard = OutboundGuard.parse((listed,))
        assert guard.check_url("https://sso.corp.example/")
        assert guard.check_url("https://mapped.example/")
        with pytest.raises(RefusedAddressError):
            guard.check_url("http://127.0.0.1/")
    for listed in ("sso.corp.example", "*.example", "SSO.corp.example."):
        guard = OutboundGuard.parse((listed,))
        assert guard.check_url("https://sso.corp.example/")
        assert guard.check_url("https://SSO.Corp.example./")
    for other in ("corp.example", "*.sso.corp.example", "xsso.corp.example"):
        with pytest.raises(RefusedAddressError):
            OutboundGuard.parse((other,)).check_url("https://sso.corp.example/")


@pytest.mark.parametrize("wrong", ["*", "10.0.0.1/8", "http://x", "a..b", "x/y", "127.1", "*.*", "-a"])
def test_settings_that_list_nothing_sensible_are_refused(wrong: str) -> None:
    with pytest.raises(InvalidSettingsError, match="allowed_addresses"):
        OutboundGuard.parse((wrong,))


def test_name_that_changes_after_the_check_leads_nowhere_else(resolving: dict[str, list[list[str]]]) -> None:
    with serving(say) as (uri, asked):
        port = uri.rpartition(":")[2]
        resolving["rebind.example"] = [[PUBLIC], ["127.0.0.1"]]
        STRICT.check_url(f"http://rebind.example:{port}/")
        with pytest.raises(NoAnswerError, match="isn't public"):
            ask(f"http://rebind.example:{port}", STRICT)
        assert asked == []


def test_socket_connects_to_the_address_that_was_checked(resolving: dict[str, list[list[str]]]) -> None:
    with serving(say) as (uri, asked):
        port = uri.rpartition(":")[2]
        resolving["rebind.example"] = [["127.0.0.1"], ["203.0.113.1"]]  # a second look would lead to the second
        assert ask(f"http://rebind.example:{port}", LOCAL).status == 200
        assert len(asked) == 1


def test_all_addresses_are_tried(resolving: dict[str, list[list[str]]]) -> None:
    with serving(say) as (uri, _):
        resolving["two.example"] = [["127.0.0.2", "127.0.0.1"]]
        guard = OutboundGuard.parse(("127.0.0.0/8",))
        assert ask(f"http://two.example:{uri.rpartition(':')[2]}", guard).status == 200


@pytest.mark.parametrize("target", ["http://127.0.0.2:{port}/in", "http://169.254.169.254/latest", "http://[::1]/"])
def test_redirect_to_another_address_is_not_followed(target: str) -> None:
    with serving(lambda handler: say(handler, b"", 302, target.format(port=uri.rpartition(":")[2]))) as (uri, asked):
        answer = ask(uri, LOCAL)
    assert (answer.status, len(asked)) == (302, 1)


def test_redirect_within_the_host_is_checked_again(resolving: dict[str, list[list[str]]]) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        say(handler) if handler.path == "/in" else say(handler, b"", 302, "/in")

    with serving(answer) as (uri, asked):
        port = uri.rpartition(":")[2]
        resolving["turn.example"] = [["127.0.0.1"]]
        assert ask(f"http://turn.example:{port}", LOCAL).status == 200
        asked.clear()
        resolving["turn.example"] = [["127.0.0.1"], ["127.0.0.2"]]
        with pytest.raises(NoAnswerError, match="isn't public"):
            ask(f"http://turn.example:{port}", LOCAL)
        assert [path for path, _ in asked] == ["/"]


def test_redirects_in_a_circle_end_with_a_guard() -> None:
    with serving(lambda handler: say(handler, b"", 301, handler.path)) as (uri, asked):
        assert ask(uri, LOCAL).status == 301
    assert len(asked) == 4


@pytest.mark.parametrize("part", ["headers", "body", "open-body"])
def test_slow_answer_ends_in_time(part: str) -> None:
    def drip(handler: BaseHTTPRequestHandler) -> None:
        handler.close_connection = True
        if part == "body":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        elif part == "open-body":
            handler.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        else:
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        for _ in range(100):
            handler.wfile.write(b"x")
            sleep(0.05)

    with serving(drip) as (uri, _):
        start = monotonic()
        with pytest.raises(NoAnswerError, match="takes too long"):
            ask(uri, LOCAL, seconds=0.5)
        assert monotonic() - start < 2


def test_long_answer_is_refused_without_a_limit_by_the_caller() -> None:
    with serving(lambda handler: say(handler, b"x" * (2 << 20))) as (uri, _):
        with pytest.raises(NoAnswerError, match="more than 1048576 bytes"):
            ask(uri, LOCAL)
        assert len(ask(uri, LOCAL, most_bytes=2 << 20).body) == 2 << 20


def test_proxy_of_the_environment_serves_listed_hosts_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "")
    with serving(say) as (proxy, by_proxy), serving(say) as (uri, asked):
        monkeypatch.setenv("http_proxy", proxy)
        assert ask(uri, LOCAL).status == 200
        assert (len(by_proxy), len(asked)) == (0, 1)
        assert ask("http://sso.example", OutboundGuard.parse(("sso.example",))).status == 200
        assert [path for path, _ in by_proxy] == ["http://sso.example/"]
