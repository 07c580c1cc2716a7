"""A small part of scripts/attack, always the same: every answer is one, and the lake stays whole."""

import itertools
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import duckdb
import httpx
import pytest

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.doctor import examine_tables
from duckicelake.server.app import Edge, create_app
from duckicelake.server.middleware.cross_site import AllowedHosts
from scripts.attack_job.campaigns import describe, spoil_files, spoil_requests
from scripts.attack_job.lake import build, metadata
from scripts.attack_job.mutations import spoilt_avro, spoilt_bytes, spoilt_json
from scripts.attack_job.strangers import cross_sites, half_send
from scripts.attack_job.target import Target
from tests.support.client import data_files
from tests.support.servers import running

DESCRIPTION = Path(__file__).parents[2] / "openapi" / "duckicelake.json"


@pytest.fixture
def target(services: Services) -> Iterator[Target]:
    with running(create_app(services)) as uri, httpx.Client(base_url=uri, timeout=60) as http:
        target = Target(http)
        build(target)
        yield target


def rounds(number: int) -> Callable[[], bool]:
    """Over after so many looks."""
    numbers = itertools.count(1)
    return lambda: next(numbers) > number


@pytest.mark.parametrize("campaign", ["requests", "files", "description"])
def test_attack_finds_nothing_and_leaves_the_lake_whole(
    target: Target, services: Services, ducklake: duckdb.DuckDBPyConnection, campaign: str
) -> None:
    match campaign:
        case "requests":
            spoil_requests(target, Random(11), rounds(20))
        case "files":
            spoil_files(target, Random(11), rounds(20))
        case _:
            describe(target, json.loads(DESCRIPTION.read_text()), number=11, examples=1)
    assert [str(finding) for finding in target.findings] == []
    assert sum(number for (name, _), number in target.counts.items() if name == campaign) > 25
    assert ducklake.sql("SELECT id, name FROM lake.attacked.bystander").fetchall() == [(2, "two")]
    assert len(data_files(metadata(target, "bystander"))) == 1
    assert [finding for finding in examine_tables(services.database)[0] if not finding.ok] == []


@pytest.mark.parametrize(
    ("status", "text", "problem"),
    [
        (500, '{"error": {"message": "m", "type": "t", "code": 500}}', "status 500"),
        (400, "Bad Request", "without an envelope"),
        (400, '{"error": {"message": "Traceback (most recent call last)", "type": "t", "code": 400}}', "insides"),
        (200, '{"config": {"s3.secret-access-key": "hunter2"}}', "a secret"),
    ],
)
def test_bad_answers_are_found(status: int, text: str, problem: str) -> None:
    answer = httpx.Response(status, text=text, request=httpx.Request("GET", "http://x/"))
    with httpx.Client(timeout=60) as http:
        target = Target(http, ("hunter2",))
        target.examine("GET /", answer)
    (finding,) = target.findings
    assert problem in finding.problem


def test_spoiling_is_repeatable_and_spoils() -> None:
    document = {"a": [1, {"b": "text"}], "action": "add-schema"}
    spoilt = [[spoilt_json(document, random) for _ in range(50)] for random in (Random(1), Random(1))]
    assert spoilt[0] == spoilt[1]
    assert len(set(spoilt[0])) > 25
    data = bytes(range(256))
    assert len({spoilt_bytes(data, Random(number)) for number in range(50)}) > 25
    assert spoilt_avro(b"no Avro at all", Random(1)) != b"no Avro at all"


def test_strangers_get_nothing_and_keep_no_one_waiting(services: Services) -> None:
    """Of every route in the description, so that a new one is asked, too."""
    app = create_app(services, edge=Edge(hosts=AllowedHosts(), max_requests=4))
    with running(app) as uri, httpx.Client(base_url=uri, timeout=60) as http:
        target = Target(http)
        cross_sites(target, json.loads(DESCRIPTION.read_text()))
        half_send(target)
        assert target.findings == []
        assert sum(target.counts.values()) > 200
        assert http.get("/v1/namespaces").json()["namespaces"] == [["main"]]
