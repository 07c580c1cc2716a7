"""Kinds of wrong input: each is one line that names what is right, with its exit code, and with --json an object."""

import json
import socketserver
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from duckicelake.cli.main import app
from duckicelake.errors import CatalogUnreachableError
from duckicelake.rest.http import HttpConnection, send_json
from tests.client.conftest import LiveLake, live, shared_lake

__all__ = ["live", "shared_lake"]
_PAGE = b"<html>Welcome</html>"
_ANSWERS = {
    b"/page/": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%b" % (len(_PAGE), _PAGE),
    b"/ssh/": b"SSH-2.0-OpenSSH_9.2\r\n",
    b"/closes/": b"",
}


class _OtherProgram(socketserver.BaseRequestHandler):
    """Answers as other programs do, by the path; whoever speaks TLS is answered in HTTP."""

    def handle(self) -> None:
        asked = self.request.recv(4096)
        if b"/hangs/" in asked:
            time.sleep(0.5)
            return
        answer = next((found for path, found in _ANSWERS.items() if path in asked), _ANSWERS[b"/page/"])
        self.request.sendall(answer)


@pytest.fixture(scope="module")
def other_program() -> Iterator[str]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), _OtherProgram) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def check(arguments: list[str], code: int, message: str, environment: dict[str, str] | None = None) -> None:
    """Run a command and see its error, as a line and as JSON."""
    result = CliRunner().invoke(app, arguments, env=environment)
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (code, "", 1), result.output
    assert result.stderr.startswith("duckicelake: ")
    assert message in result.stderr
    for leaked in ("object at", "Input should", "Value error", "HTTPConnection", "Errno 1"):
        assert leaked not in result.stderr
    as_json = CliRunner().invoke(app, [*arguments, "--json"], env=environment)
    if "No such option: --json" not in as_json.stderr:
        error = json.loads(as_json.stderr)["error"]
        assert (as_json.exit_code, error["exit-code"], error["message"]) == (
            code,
            code,
            result.stderr.removeprefix("duckicelake: ").rstrip("\n"),
        )


def test_what_is_no_catalog_is_named(other_program: str) -> None:
    for address, message in (
        (f"http://{other_program}/page", "is no Iceberg REST catalog: it answers, but not with JSON"),
        (f"http://{other_program}/ssh", "what it answers isn't HTTP"),
        (f"http://{other_program}/closes", "it closes the connection: is its URI https://?"),
        (f"https://{other_program}", "is its URI http://?"),
        ("http://127.0.0.1:1", "connection refused"),
        ("http://no-such-host.invalid", "there is no such host"),
    ):
        check(["ls", "--uri", address], 4, message)
    for address in ("http://127.0.0.1:99999", "ftp://lake", "http://"):
        check(["ls", "--uri", address], 2, "Invalid catalog URI")
    check(["ls", "--uri", "http://127.0.0.1:1", "--token", "wörd"], 5, "letters that no HTTP header may have")
    with pytest.raises(CatalogUnreachableError, match="it takes the request, and no answer came in time"):
        send_json(HttpConnection(f"http://{other_program}"), "GET", "/hangs/", seconds=0.1)


def test_profiles_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    for text, arguments, message in (
        ("[work]\nuri = 'http://127.0.0.1:1'", ["--profile", "wrok"], "No profile 'wrok' in"),
        ("[work]\nuri = 'http://127.0.0.1:1'", ["--uri", "wrok"], "did you mean work?"),
        ("[work]\nurl = 'x'", ["--profile", "work"], "url is unknown; did you mean uri?"),
        ("[work\n", [], "profiles.toml can't be read: Expected ']'"),
        (None, ["--profile", "work"], "profiles.toml: there is no such file"),
    ):
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text)
        check(["ls", *arguments], 2, message, {"DUCKICELAKE_CLIENT_PROFILES": str(file)})


def test_arguments_are_refused_in_words(live: LiveLake) -> None:
    uri = ["--uri", live.served.uri]
    for arguments, message in (
        (["cancel", "nope"], "Invalid query id 'nope': expected one that duckicelake queries lists"),
        (["sql", ""], "The statement is empty"),
        (["sql", "FROM 'x.parquet'"], "no file is read here, only tables and views"),
        (["role", "create", ""], "name: must have at least 1 character (got '')"),
        (["clone", live.table, "nope.x"], "Namespace does not exist: nope\n"),
        (["ls", "mian"], "Namespace does not exist: mian; did you mean main?"),
        (["ls", "--warehouse", "nope"], "No such warehouse: nope"),
        (["ls", "--nope"], "No such option: --nope"),
        (["head"], "Missing argument 'name' (duckicelake head --help)"),
        (["head", live.table, "-n", "x"], "must be a valid integer"),
        (["drop", "thing", "x"], "'thing' is not one of 'namespace', 'table', 'view'"),
        (["ingest-rows", f"{live.table}x", "/dev/null"], f"did you mean {live.table}"),
    ):
        check([*arguments, *uri], 2, message)
