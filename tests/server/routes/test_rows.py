"""The rows endpoint at the edge: what it takes and answers, and how much of it."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from fastapi import FastAPI

from duckicelake.catalog.context.services import Services
from duckicelake.server.app import Edge, create_app
from duckicelake.server.middleware.quotas import Quota, Quotas, Rates
from duckicelake.server.telemetry.shared_files import QuotaAccounts
from tests.server.telemetry.test_metrics import counts
from tests.support.client import new_client

ROWS = "/v1/namespaces/ns/tables/t/rows"
KEY = "01999999-0000-7000-8000-000000000001"
Serve = Callable[[FastAPI], httpx.Client]


@pytest.fixture
def http(services: Services, serve: Serve) -> httpx.Client:
    new_client(services).create()
    return serve(create_app(services))


def stream(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


BODIES = {
    "application/json": b'[{"id": 1, "name": "one"}, {"id": 2}]',
    "application/x-ndjson": b'{"id": 1, "name": "one"}\n{"id": 2}\n',
    "application/vnd.apache.arrow.stream": stream(pa.table({"id": [1, 2], "name": ["one", None]})),
}


@pytest.mark.parametrize("kind", BODIES)
def test_rows_of_every_kind_are_stored_and_answered(http: httpx.Client, kind: str, ducklake: Any) -> None:
    answer = http.post(ROWS, content=BODIES[kind], headers={"Content-Type": kind})
    ((newest,),) = ducklake.execute("SELECT max(snapshot_id) FROM lake.snapshots()").fetchall()
    assert answer.json() == {"snapshot-id": newest, "rows": 2, "row-ids": {"first": 0, "count": 2}}
    assert ducklake.execute("FROM lake.ns.t ORDER BY id").fetchall() == [(1, "one"), (2, None)]
    assert counts(http, "rows_total") == {"": 2.0}
    assert counts(http, "row_batches_together_sum") == {"": 1.0}


def test_refusals_say_what_would_be_right(http: httpx.Client) -> None:
    def refused(status: int, content: bytes = b"[]", /, **parameters: Any) -> str:
        headers = {"Content-Type": parameters.pop("kind", "application/json")}
        answer = http.post(parameters.pop("path", ROWS), content=content, params=parameters, headers=headers)
        assert answer.status_code == answer.json()["error"]["code"] == status
        return str(answer.json()["error"]["message"])

    assert "row 0, column id" in refused(400, b'[{"id": "one"}]')
    assert "application/x-ndjson" in refused(400, kind="text/csv")
    assert "together" in refused(400, b"[]", **{"app-id": "a"})
    assert "sequence" in refused(400, b"[]", **{"app-id": "a", "sequence": "-1"})
    assert "reject" in refused(400, b"[]", **{"on-unknown": "maybe"})
    assert "query.sequnce: there is no such parameter" in refused(400, **{"app-id": "a", "sequnce": 1})
    assert "key goes with mode=upsert" in refused(400, key="id")
    assert "ns.no" in refused(404, path="/v1/namespaces/ns/tables/no/rows")


def test_producer_reads_back_how_far_it_is(http: httpx.Client) -> None:
    kind = {"Content-Type": "application/json"}
    path = f"{ROWS}/producers/a%2Fb"
    assert http.get(path).json() == {"app-id": "a/b", "sequence": None, "snapshot-id": None, "applied": None}
    sent: dict[str, Any] = {"content": b'[{"id": 1}]', "params": {"app-id": "a/b", "sequence": 4}, "headers": kind}
    written = http.post(ROWS, **sent).json()
    assert http.post(ROWS, **sent).json()["error"]["type"] == "AlreadyAppliedException"
    found = http.get(path).json()
    assert (found["sequence"], found["snapshot-id"]) == (4, written["snapshot-id"])


def test_keys_are_deleted_and_replaced(http: httpx.Client, ducklake: Any) -> None:
    kind = {"Content-Type": "application/json"}
    http.post(ROWS, content=b'[{"id": 1, "name": "one"}, {"id": 2}, {"id": 3}]', headers=kind)
    upserted = http.post(
        ROWS, content=b'[{"id": 2, "name": "two"}]', headers=kind, params={"mode": "upsert", "key": "id"}
    )
    assert upserted.json()["rows"] == 1
    deleted = http.request("DELETE", ROWS, content=b'{"keys": [{"id": 3}]}', headers=kind, params={"key": "id"})
    ((newest,),) = ducklake.execute("SELECT max(snapshot_id) FROM lake.snapshots()").fetchall()
    assert deleted.json() == {"snapshot-id": newest, "keys": 1}
    again = http.request("DELETE", ROWS, content=b'{"keys": [{"id": 3}]}', headers=kind, params={"key": "id"})
    assert again.json() == {"snapshot-id": None, "keys": 1}
    assert ducklake.execute("FROM lake.ns.t ORDER BY id").fetchall() == [(1, "one"), (2, "two")]
    where = b'{"filter": {"type": "eq", "term": "id", "value": 2}}'
    filtered = http.request("DELETE", ROWS, content=where, headers=kind)
    assert filtered.json() == {"snapshot-id": newest + 1, "keys": 1}
    assert ducklake.execute("FROM lake.ns.t").fetchall() == [(1, "one")]
    overlooked = http.request("DELETE", ROWS, content=where, headers=kind, params={"dry-run": "true"})
    assert "query.dry-run: there is no such parameter" in overlooked.json()["error"]["message"]
    refused = http.request("DELETE", ROWS, content=b'{"keys": [{"id": 3}]}', headers=kind)
    assert "identifier fields" in refused.json()["error"]["message"]


def test_batch_sent_again_with_its_key_gets_the_same_answer(http: httpx.Client, ducklake: Any) -> None:
    headers = {"Content-Type": "application/json", "Idempotency-Key": KEY}
    first, again = (http.post(ROWS, content=b'[{"id": 1}]', headers=headers) for _ in range(2))
    assert first.json() == again.json()
    assert ducklake.execute("SELECT count(*) FROM lake.ns.t").fetchall() == [(1,)]
    assert http.post(ROWS, content=b'[{"id": 2}]', headers=headers).status_code == 422


def test_batches_that_are_written_together_get_an_answer_each(http: httpx.Client, ducklake: Any) -> None:
    def post(number: int) -> httpx.Response:
        kind = {"Content-Type": "application/json"}
        match number % 8:
            case 0:
                return http.post(ROWS, content=b'[{"id": "no number"}]', headers=kind)
            case 1:
                return http.post(ROWS, content=b"[]", headers=kind)
            case 2:
                return http.post(ROWS, content=b'[{"id": -2}]', headers={**kind, "Idempotency-Key": KEY})
            case 3:
                return http.post(f"{ROWS}?app-id=a&sequence=1", content=b'[{"id": -1}]', headers=kind)
            case _:
                return http.post(ROWS, content=b'[{"id": %d}]' % number, headers=kind)

    assert post(4).status_code == 200
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(post, range(160)))
    by_case = [[answer.status_code for answer in answers[case::8]] for case in range(8)]
    assert by_case[0] == [400] * 20
    assert sorted(by_case[3]) == [200] + [409] * 19
    assert [by_case[case] for case in (1, 2, 4, 5, 6, 7)] == [[200] * 20] * 6
    assert len({answer.text for answer in answers[2::8]}) == 1
    ids = sorted([4, -1, -2, *(number for number in range(160) if number % 8 > 3)])
    assert [id_ for (id_,) in ducklake.execute("SELECT id FROM lake.ns.t ORDER BY id").fetchall()] == ids
    rows = [answer.json()["row-ids"]["first"] for case in (4, 5, 6, 7) for answer in answers[case::8]]
    assert len(set(rows)) == 80


@pytest.mark.parametrize("rates", [Rates(requests=0.01), Rates(bytes=10)])
def test_principal_over_its_quota_is_reported_when_to_come_before_its_body_is_read(
    services: Services, serve: Serve, rates: Rates
) -> None:
    new_client(services).create()
    http = serve(create_app(services, edge=Edge(rows=rates)))
    kind = {"Content-Type": "application/json"}
    body = b'[{"id": 1, "name": "%s"}]' % (b"x" * 100)
    assert http.post(ROWS, content=body, headers=kind).status_code == 200
    answer = http.post(ROWS, content=body, headers={**kind, "Idempotency-Key": "not looked at"})
    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) > 1
    assert answer.json()["error"]["type"] == "TooManyRequestsException"


def test_workers_count_together_what_a_principal_sends(tmp_path: Path) -> None:
    """Each has an account book of its own that it opens by the same path."""
    first, second = (Quotas.of(Rates(requests=4), lambda: 100.0, tmp_path) for _ in range(2))
    assert [quotas.wait("ann") for quotas in (first, second, first, second)] == [0, 0, 0, 0]
    assert (first.wait("ann"), second.wait("ann"), first.wait("ben")) == (0, 1, 0)


def test_accounts_distinguish_principals_however_many_there_are() -> None:
    accounts = QuotaAccounts()
    for number in range(1000):
        accounts.change(f"early {number}", (number + 1.0).__add__)
    assert [accounts.get(f"early {number}") for number in range(1000)] == [number + 1.0 for number in range(1000)]
    for number in range(100_000):
        accounts.change(f"late {number}", (1e6 + number).__add__)
    assert accounts.get("late 99999") == 1e6 + 99_999
    assert accounts.get("early 0") in {0.0, 1.0}  # forgotten, or not; never another's


def test_quota_gives_a_second_worth_at_once_and_then_as_much_as_its_rate() -> None:
    now = 100.0
    quota = Quota(4, lambda: now)
    for _ in range(4):
        assert quota.wait("ann") == 0
        quota.spend("ann", 1)
    quota.spend("ann", 6)
    assert (quota.wait("ann"), quota.wait("ben")) == (2, 0)
    now += 1.5
    assert quota.wait("ann") == 0
    quota.spend("ann", 1)
    assert quota.wait("ann") == 1
