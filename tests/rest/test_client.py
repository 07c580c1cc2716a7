"""The pipeline's client where things go wrong: no one answers, another does, the caller isn't known."""

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from socketserver import StreamRequestHandler, TCPServer
from typing import BinaryIO

import pytest

from duckicelake.errors import BadCredentialsError, CatalogUnreachableError, NotAllowedError, PipelineError
from duckicelake.rest import client as client_module
from duckicelake.rest.client import CatalogClient
from duckicelake.rest.connection import Connection

Script = Sequence[tuple[int, object]]


@contextmanager
def answering(script: Script, heard: list[tuple[str, str | None]] | None = None) -> Iterator[str]:
    """A server that gives these answers, JSON or text, one after the other and the last one for ever.

    heard: gets each request's line, and its Idempotency-Key.
    """
    left = list(script)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if heard is not None:
                heard.append((self.requestline, self.headers["Idempotency-Key"]))
            status, body = left.pop(0) if len(left) > 1 else left[0]
            raw = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            self.end_headers()
            self.wfile.write(raw)

        do_POST = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "_PAUSE_SECONDS", (0.0, 0.0))


@pytest.mark.parametrize(
    "uri", ["http://127.0.0.1:1", "ftp://127.0.0.1", "127.0.0.1:8181", "http://no.such.host.invalid"]
)
def test_where_no_one_answers_the_address_is_named(uri: str) -> None:
    with pytest.raises(CatalogUnreachableError, match=uri):
        CatalogClient(Connection(uri)).config()


@pytest.mark.parametrize(
    ("script", "kind", "words"),
    [
        ([(200, "<html>")], CatalogUnreachableError, "not with JSON"),
        ([(404, "<html>")], CatalogUnreachableError, "is it the URI of an Iceberg REST catalog"),
        (
            [(404, {"error": {"type": "X", "message": "no route"}})],
            CatalogUnreachableError,
            "REST catalog, without /v1",
        ),
        ([(503, {"error": {"type": "X", "message": "Postgres is away"}})], CatalogUnreachableError, "Postgres is away"),
        ([(500, "oh")], CatalogUnreachableError, "500"),
        ([(401, {"error": {"type": "X", "message": "who?"}})], BadCredentialsError, r"who\?; give --credential"),
        ([(418, {"error": {"type": "X", "message": "tea"}})], PipelineError, "tea"),
    ],
)
def test_answer_that_is_none_becomes_an_error_that_says_why(script: Script, kind: type[Exception], words: str) -> None:
    with answering(script) as uri, pytest.raises(kind, match=words):
        CatalogClient(Connection(uri)).config()


def test_busy_catalog_is_asked_again() -> None:
    with answering([(503, ""), (429, ""), (200, {"defaults": {}})]) as uri:
        assert CatalogClient(Connection(uri)).config() == {"defaults": {}}


def test_flush_that_a_busy_catalog_is_asked_for_again_is_known_to_it() -> None:
    heard: list[tuple[str, str | None]] = []
    flushed = {"files": 1, "rows": 2, "deletes": 0, "snapshot-id": 7}
    with answering([(200, {}), (503, ""), (200, flushed), (200, flushed)], heard) as uri:
        client = CatalogClient(Connection(uri))
        assert [client.flush_rows(("a", "b"), "c d") for _ in range(2)] == [flushed] * 2
    assert {line for line, _ in heard[1:]} == {"POST /v1/namespaces/a%1Fb/tables/c%20d/rows/flush HTTP/1.1"}
    first, again, another = (key for _, key in heard[1:])
    assert first is not None
    assert first == again != another


def test_token_that_has_run_out_is_replaced() -> None:
    token = (200, {"access_token": "t"})
    refused = (401, {"error": {"type": "X", "message": "expired"}})
    with answering([token, refused, token, (200, {"defaults": {"a": "b"}})]) as uri:
        assert CatalogClient(Connection(uri, credential="me:secret")).config() == {"defaults": {"a": "b"}}


def test_credential_that_is_refused_is_named_without_its_secret() -> None:
    refusal = (401, {"error": "invalid_client", "error_description": "no such client"})
    with answering([refusal]) as uri, pytest.raises(BadCredentialsError, match="'me': no such client") as raised:
        CatalogClient(Connection(uri, credential="me:hush")).config()
    assert "hush" not in str(raised.value) + repr(Connection(uri, credential="me:hush", token="hush"))


def test_scope_that_is_refused_is_named_as_the_option_that_it_is() -> None:
    refusal = (400, {"error": "invalid_scope", "error_description": "no scope 'x'"})
    with (
        answering([refusal]) as uri,
        pytest.raises(BadCredentialsError, match="no scope 'x'; check --credential and --scope"),
    ):
        CatalogClient(Connection(uri, credential="me:hush", scope="x")).config()


def test_credential_without_a_colon_is_said_to_be_none_and_not_shown() -> None:
    with pytest.raises(BadCredentialsError, match="<id>:<secret>") as raised:
        CatalogClient(Connection("http://127.0.0.1:1", credential="hush")).config()
    assert "hush" not in str(raised.value)


def test_prefix_of_the_catalog_is_in_icebergs_paths() -> None:
    with answering([(200, {"overrides": {"prefix": "p/q"}})]) as uri:
        assert CatalogClient(Connection(uri)).iceberg("namespaces", "a") == "/v1/p/q/namespaces/a"


def test_namespaces_are_separated_as_the_catalog_says() -> None:
    heard: list[tuple[str, str | None]] = []
    config = {"defaults": {}, "overrides": {"namespace-separator": "%2E", "prefix": "p"}}
    with answering([(200, config), (200, {"namespaces": []}), (200, {"identifiers": []})], heard) as uri:
        client = CatalogClient(Connection(uri))
        assert list(client.namespaces(("a", "b"))) == []
        assert list(client.tables(("a", "b c"))) == []
    paths = [line.split()[1] for line, _ in heard]
    assert paths[1:] == ["/v1/p/namespaces?parent=a.b&pageToken=", "/v1/p/namespaces/a%2Eb%20c/tables?pageToken="]


def test_raw_answer_is_asked_for_with_a_new_token_where_the_old_one_has_expired() -> None:
    script = [(200, {"access_token": "one"}), (401, {}), (200, {"access_token": "two"}), (200, "rows")]
    with answering(script) as uri:
        client = CatalogClient(Connection(uri, "id:secret"))
        assert client.post_raw("/sql/v1/query", {}, "text/csv", 5.0) == b"rows"
        assert client.get_token() == "two"


def _read_line(body: BinaryIO) -> bytes:
    """Read no more than is wanted, as a reader of Arrow's stream does after its end."""
    return body.read(6)


@contextmanager
def answering_in_chunks(*chunks: bytes) -> Iterator[str]:
    """A server that answers each connection with these bytes behind the headers, and closes it."""

    class Handler(StreamRequestHandler):
        def handle(self) -> None:
            while self.rfile.readline() not in {b"\r\n", b""}:
                pass
            self.rfile.read(2)
            self.wfile.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"".join(chunks))

    with TCPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_answer_is_read_while_it_comes() -> None:
    with answering_in_chunks(b"4\r\nfirs\r\n", b"7\r\nt\nmore\n\r\n", b"0\r\n\r\n") as uri:
        assert CatalogClient(Connection(uri)).post_streamed("/q", {}, "text/csv", 5.0, _read_line) == b"first\n"


@pytest.mark.parametrize("chunks", [(b"6\r\nfirst\n\r\n",), (b"9\r\nfirst\nm",), (b"4\r\nfirs\r\n",)])
def test_cut_answer_is_an_error_wherever_it_is_cut(chunks: Sequence[bytes]) -> None:
    with answering_in_chunks(*chunks) as uri, pytest.raises(CatalogUnreachableError, match="doesn't answer"):
        CatalogClient(Connection(uri)).post_streamed("/q", {}, "text/csv", 5.0, _read_line)


@pytest.mark.parametrize(("script", "is_ours"), [((200, {"jobs": []}), True), ((400, {}), False), ((404, "no"), False)])
def test_duckicelake_is_known_by_its_own_routes(script: tuple[int, object], is_ours: bool) -> None:
    with answering([(200, {}), script]) as uri:
        assert CatalogClient(Connection(uri)).is_duckicelake() is is_ours


def test_changes_are_refused_where_the_connection_is_read_only() -> None:
    heard: list[tuple[str, str | None]] = []
    with answering([(200, {})], heard) as uri:
        client = CatalogClient(Connection(uri, read_only_by="profile work"))
        with pytest.raises(NotAllowedError, match=r"^profile work is read-only: DELETE /v1/x is refused$"):
            client.change("DELETE", "/v1/x")
    assert heard == []
