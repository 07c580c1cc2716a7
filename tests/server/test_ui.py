"""What is sent for the pages of `server/ui`, and that it is all there is to them: nothing inline or from elsewhere."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from duckicelake.console.routes import load_files
from duckicelake.server.app import create_app
from duckicelake.server.routes.operations import ASSETS_FOLDER, load_assets
from tests.support.logins import Server, no_lake
from tests.support.servers import Serve

ROOT = Path(__file__).parents[2]
INDEX = (ASSETS_FOLDER / "index.html").read_text()
NAMESPACES = {"http://www.w3.org/2000/svg"}
"""What looks like an address and is none that anybody visits."""

MARKUP_OR_CODE = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function")


@pytest.fixture
def http(serve: Serve) -> httpx.Client:
    with no_lake() as services:
        return serve(create_app(services))


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/ui", "text/html; charset=utf-8"),
        ("/ui/assets/index.css", "text/css; charset=utf-8"),
        ("/ui/assets/icon.svg", "image/svg+xml"),
    ],
)
def test_file_is_sent_once_and_asked_for_each_time(http: httpx.Client, path: str, kind: str) -> None:
    answer = http.get(path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, kind)
    assert answer.headers["cache-control"] == "no-cache"
    again = http.get(path, headers={"If-None-Match": answer.headers["etag"]})
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", answer.headers["etag"])
    assert http.get(path, headers={"If-None-Match": '"other"'}).content == answer.content
    head = http.head(path)
    assert (head.status_code, head.content, head.headers["etag"]) == (200, b"", answer.headers["etag"])


def test_page_may_use_scripts_styles_and_answers_of_its_own_server_alone(http: httpx.Client) -> None:
    headers = http.get("/ui").headers
    policies = [value for name, value in headers.multi_items() if name == "content-security-policy"]
    assert len(policies) == 1
    policy = dict(part.strip().split(" ", 1) for part in policies[0].split(";"))
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == policy["frame-ancestors"] == "'none'"
    assert {policy[f"{kind}-src"] for kind in ("script", "style", "connect", "img")} == {"'self'"}
    assert (policy["require-trusted-types-for"], policy["trusted-types"]) == ("'script'", "'none'")
    assert (headers["x-content-type-options"], headers["x-frame-options"]) == ("nosniff", "DENY")


@pytest.mark.parametrize("path", ["nothing.js", "..%2Fpages.py", "%2e%2e/pages.py", "index.css/x"])
def test_what_is_no_file_of_a_page_is_404(http: httpx.Client, path: str) -> None:
    answer = http.get(f"/ui/assets/{path}")
    assert (answer.status_code, answer.json()["error"]["type"]) == (404, "NotFoundException")


def test_address_of_the_server_leads_to_the_console(http: httpx.Client) -> None:
    answer = http.get("/")
    assert (answer.status_code, answer.headers["location"]) == (307, "ui")
    assert http.get("/ui").status_code == 200
    slash = http.get("/ui/")
    assert (slash.status_code, slash.headers["location"]) == (307, "../ui")


def test_address_of_lineage_leads_to_the_page_in_the_console(http: httpx.Client) -> None:
    answer = http.get("/ui/lineage?node=sales.orders%23id&depth=2")
    assert answer.status_code == 307
    assert answer.headers["location"] == "w/duckicelake/lineage?node=sales.orders%23id&depth=2"


def test_index_names_what_is_there(http: httpx.Client) -> None:
    paths = re.findall(r'<a href="([^"]+)"', INDEX)
    assert {path: http.get(f"/{path}").status_code for path in paths} == {
        "ui/lineage": 307,
        "openapi.json": 200,
        "v1/config": 200,
        "metrics": 200,
        "readyz": 503,  # there is no lake
    }


def test_page_is_sent_to_clients_that_have_no_token_yet(serve: Serve) -> None:
    server = Server()
    with no_lake() as services:
        http = serve(server.app(services, server.authentication()))
        assert http.get("/ui").status_code == 200
        assert http.get("/ui/assets/index.css").status_code == 200
        assert http.get("/v1/config").status_code == 401


def test_page_has_nothing_inline() -> None:
    assert not re.search(r"<style|\sstyle=|\son\w+=|javascript:|<script", INDEX)


def test_everything_that_is_named_is_there_and_nothing_is_elsewhere() -> None:
    texts = {name: asset.body.decode() for name, asset in load_assets().items()}
    named = set(re.findall(r'(?:href|src)="(?:ui/)?assets/([^"]+)"', INDEX))
    for name, text in texts.items():
        named |= set(re.findall(r'from\s?"\./([^"]+)"', text))
        assert set(re.findall(r"[a-z]+://[\w./-]+", text)) <= NAMESPACES, name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text), (
            name
        )
    assert named <= set(texts)
    assert set(texts) - named == {"index.html", "not-found.html"}


def test_wheel_has_every_file_of_the_page(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    inside = set(zipfile.ZipFile(wheel).namelist())
    assert {f"duckicelake/server/ui/{name}" for name in load_assets()} <= inside
    assert {f"duckicelake/console/assets/{name}" for name in (*load_files(), "index.html")} <= inside


def test_lock_files_name_no_addresses() -> None:
    kept = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    locks = [name for name in kept if name.endswith((".lock", "-lock.json", "go.sum"))]
    assert {"requirements.lock", "scripts/ui/package-lock.json"} <= set(locks)
    assert [name for name in locks if "://" in (ROOT / name).read_text()] == []


@pytest.mark.console
@pytest.mark.skipif(shutil.which("npm") is None, reason="npm isn't installed, from which the layout of graphs comes")
def test_what_came_from_npm_is_what_npm_gives_and_scripts_are_right_by_their_types() -> None:
    checked = subprocess.run([ROOT / "scripts/ui/build", "--check"], check=False, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout + checked.stderr
