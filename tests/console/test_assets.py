"""What is sent for the console, and that it is all there is to it: nothing inline or from elsewhere, and not much."""

import gzip
import re
from pathlib import Path

import httpx
import pytest

from duckicelake.console.routes import ASSETS_FOLDER, load_files
from duckicelake.server.app import create_app
from tests.support.logins import no_lake
from tests.support.servers import Serve

SOURCE = Path(__file__).parents[2] / "console" / "src"
PAGE = (ASSETS_FOLDER / "index.html").read_text()
FIRST_LOAD_BYTES = 600_000
SINKS = re.compile(r"[iI]nnerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function")


@pytest.fixture
def http(serve: Serve) -> httpx.Client:
    with no_lake() as services:
        return serve(create_app(services))


@pytest.mark.parametrize("path", ["/ui", "/ui/w/duckicelake", "/ui/w/a%2Fb/tables/x.y"])
def test_page_finds_its_files_from_every_address_and_below_any_prefix(http: httpx.Client, path: str) -> None:
    answer = http.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.headers["cache-control"] == "no-cache"
    named = re.findall(r'(?:href|src)="([^"]+)"', answer.text)
    assert len(named) == 3
    assert not [link for link in named if link.startswith("/") or "{" in link]
    assert {http.get(str(answer.url.join(link))).status_code for link in named} == {200}


def test_file_is_kept_for_ever_and_compressed_as_the_browser_likes(http: httpx.Client) -> None:
    name = max(load_files(), key=lambda name: len(load_files()[name].body))
    answers = {
        coding: http.get(f"/ui/console/{name}", headers={"Accept-Encoding": coding})
        for coding in ("identity", "gzip", "zstd")
    }
    assert [answer.headers.get("content-encoding") for answer in answers.values()] == [None, "gzip", "zstd"]
    assert {answer.content for answer in answers.values()} == {load_files()[name].body}
    assert {answer.headers["cache-control"] for answer in answers.values()} == {"public, max-age=31536000, immutable"}
    assert {answer.headers["vary"] for answer in answers.values()} == {"Accept-Encoding"}


@pytest.mark.parametrize("path", ["nothing.js", "index.html", "..%2Froutes.py", "%2e%2e/routes.py"])
def test_what_is_no_file_of_the_console_is_404(http: httpx.Client, path: str) -> None:
    answer = http.get(f"/ui/console/{path}")
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NotFoundException")


def test_address_with_very_many_folders_is_404(http: httpx.Client) -> None:
    assert http.get("/ui/w" + "/x" * 100).status_code == 404


def test_everything_that_is_named_is_there_and_the_first_load_is_small() -> None:
    files = {name: asset.body.decode() for name, asset in load_files().items()}
    first = set(re.findall(r"ui/console/([^\"]+)", PAGE))
    named = set(first)
    for text in files.values():
        named |= set(re.findall(r'"\./([\w-]+\.js)"', text))
    assert named | {"licenses.txt"} == set(files)
    waiting = list(first)
    while waiting:
        static = set(re.findall(r'(?:from|import)\s?"\./([\w-]+\.js)"', files[waiting.pop()]))
        waiting += static - first
        first |= static
    size = sum(len(gzip.compress(files[name].encode())) for name in first)
    assert size < FIRST_LOAD_BYTES, f"{size} bytes come before the first page"


def test_page_has_nothing_inline() -> None:
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:", PAGE)
    assert re.findall(r"<script[^>]*>(.*?)</script>", PAGE) == [""]


def test_no_source_makes_markup_or_code_of_text() -> None:
    for path in (*SOURCE.rglob("*.ts"), *SOURCE.rglob("*.tsx")):
        assert not SINKS.search(path.read_text()), path
