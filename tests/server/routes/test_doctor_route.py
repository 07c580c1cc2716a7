"""`GET /v1/doctor` in JSON lines: each check as it begins and as it ends, and at last the report."""

import json
from typing import Any

import httpx

from duckicelake.catalog.context.services import Services
from duckicelake.server.app import create_app
from tests.support.servers import running

LINES = {"Accept": "application/x-ndjson"}


def read_lines(uri: str, **query: str) -> list[dict[str, Any]]:
    with httpx.stream("GET", f"{uri}/v1/doctor", params=query, headers=LINES, timeout=60) as answer:
        assert answer.headers["content-type"] == "application/x-ndjson"
        return [json.loads(line) for line in answer.iter_lines()]


def test_each_check_is_a_line_when_it_begins_and_one_with_what_it_found(services: Services) -> None:
    with running(create_app(services)) as uri:
        *lines, report = read_lines(uri)
        checks = [line["check"] for line in lines if "findings" not in line and "done" not in line]
        ended = [line for line in lines if "findings" in line]
        assert [line["check"] for line in ended] == checks
        assert {"database", "delete files", "rows of both sides", "warehouse", "files"} <= set(checks)
        assert len(set(checks)) == len(checks)
        assert [finding for line in ended for finding in line["findings"]] == report["findings"]
        whole = httpx.get(f"{uri}/v1/doctor", timeout=60).json()
        assert [(one["name"], one["ok"]) for one in whole["findings"]] == [
            (one["name"], one["ok"]) for one in report["findings"]
        ]
        assert "files" not in {line.get("check") for line in read_lines(uri, files="false")}


def test_damage_comes_with_its_check(services: Services) -> None:
    with services.database.transaction() as cursor:
        cursor.execute("UPDATE ducklake_snapshot_changes SET changes_made = 'no such language'")
    with running(create_app(services)) as uri:
        *lines, report = read_lines(uri, files="false")
    (found,) = [line for line in lines if line["check"] == "snapshots" and "findings" in line]
    assert {finding["ok"] for finding in found["findings"]} == {False}
    assert found["findings"][0] in report["findings"]
    assert "all tables" not in {line["check"] for line in lines}
