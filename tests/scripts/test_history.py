"""The history checker finds what it must find in histories made by hand; `scripts/test` runs a real one."""

import io
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from scripts.history_job.chains import judge_chain, judge_ids
from scripts.history_job.closing import readers_disagree
from scripts.history_job.faults import api_plan
from scripts.history_job.history import Anomaly, Domain, History, Observation, Operation, Outcome, Token
from scripts.history_job.proxy import Fate, Proxy, Request, Spoil, running
from scripts.history_job.report import report
from scripts.history_job.verdict import judge

ROOT = Path(__file__).parents[2]
ACKNOWLEDGED, REFUSED, UNKNOWN = Outcome.ACKNOWLEDGED, Outcome.REFUSED, Outcome.UNKNOWN
ROWS: frozenset[Domain] = frozenset({("row", "t")})


def row(id_: int, table: str = "t") -> Token:
    return ("row", table, id_)


def operation(
    number: int,
    *adds: Token,
    removes: tuple[Token, ...] = (),
    outcome: Outcome = ACKNOWLEDGED,
    at: tuple[int, int] = (10, 20),
    **more: Any,
) -> Operation:
    return Operation(number, "c", "append", frozenset(adds), frozenset(removes), *at, outcome, **more)


def read(
    *tokens: Token, at: tuple[int, int] = (100, 110), domains: frozenset[Domain] = ROWS, **more: Any
) -> Observation:
    return Observation("reader", *at, domains, tokens, "t", **more)


def kinds(*events: Operation | Observation) -> list[str]:
    operations = [each for each in events if isinstance(each, Operation)]
    observations = [each for each in events if isinstance(each, Observation)]
    return [anomaly.kind for anomaly in judge(History(operations, observations))]


# --- What is right


def test_history_in_which_all_went_well_has_no_anomaly() -> None:
    both = frozenset({("row", "t"), ("row", "u")})
    assert (
        kinds(
            operation(1, row(1), row(2)),
            operation(2, row(3), outcome=REFUSED),
            operation(3, row(4), row(5, "u"), at=(21, 30)),
            operation(4, row(6), removes=(row(1),), at=(31, 40)),
            operation(5, row(7), outcome=UNKNOWN),
            operation(6, row(8), outcome=UNKNOWN),
            read(row(1), row(2), row(4), at=(32, 33)),
            read(row(2), row(4), row(6), row(7), row(5, "u"), domains=both),
        )
        == []
    )


def test_read_beside_a_write_may_show_it_or_not() -> None:
    assert kinds(operation(1, row(1)), read(at=(15, 25)), read(row(1), at=(11, 12))) == []


# --- What is wrong


def test_lost_write_is_found() -> None:
    assert kinds(operation(1, row(1)), read()) == ["lost"]


def test_stale_read_is_found() -> None:
    after = read(at=(21, 22))
    assert kinds(operation(1, row(1)), after, read(row(1))) == ["lost"]


def test_answer_that_does_not_show_its_own_change_is_found() -> None:
    assert kinds(operation(1, row(1)), read(at=(12, 19), answer_to=1)) == ["lost"]


def test_doubled_write_is_found() -> None:
    assert kinds(operation(1, row(1)), read(row(1), row(1))) == ["doubled"]


def test_doubled_write_of_unknown_outcome_is_found() -> None:
    assert kinds(operation(1, row(1), outcome=UNKNOWN), read(row(1), row(1))) == ["doubled"]


def test_refused_write_that_is_there_is_found() -> None:
    assert kinds(operation(1, row(1), outcome=REFUSED), read(row(1))) == ["refused but there"]


@pytest.mark.parametrize("outcome", [UNKNOWN, ACKNOWLEDGED])
def test_half_transaction_is_found(outcome: Outcome) -> None:
    both = frozenset({("row", "t"), ("row", "u")})
    found = kinds(operation(1, row(1), row(2, "u"), outcome=outcome), read(row(1), domains=both))
    assert "half" in found


def test_half_transaction_is_found_while_it_runs() -> None:
    both = frozenset({("row", "t"), ("row", "u")})
    assert kinds(operation(1, row(1), row(2, "u")), read(row(2, "u"), at=(12, 13), domains=both)) == ["half"]


def test_half_overwrite_is_found() -> None:
    overwrite = operation(2, row(2), removes=(row(1),), outcome=UNKNOWN, at=(30, 40))
    assert kinds(operation(1, row(1)), overwrite, read(row(1), row(2))) == ["half"]
    assert kinds(operation(1, row(1)), overwrite, read()) == ["half"]
    assert kinds(operation(1, row(1)), overwrite, read(row(2)), read(row(1))) == []


def test_removed_row_that_is_there_is_found() -> None:
    found = kinds(operation(1, row(1)), operation(2, removes=(row(1),), at=(30, 40)), read(row(1)))
    assert found == ["removed but there"]


def test_row_that_no_one_wrote_is_found() -> None:
    assert kinds(read(row(1))) == ["phantom"]


def test_row_that_was_read_before_it_was_sent_is_found() -> None:
    assert kinds(operation(1, row(1)), read(row(1), at=(5, 6))) == ["phantom"]


def test_acknowledged_operation_that_can_not_hold_is_found() -> None:
    assert kinds(operation(1, must_fail=True)) == ["wrong yes"]
    assert kinds(operation(1, must_fail=True, outcome=REFUSED)) == []


def test_older_version_after_a_newer_one_is_found() -> None:
    newer, older = read(at=(10, 20), version=3), read(at=(21, 30), version=2)
    assert kinds(newer, older) == ["stale"]
    assert kinds(newer, replace(older, invoked=19)) == []


def test_version_that_says_something_else_to_another_reader_is_found() -> None:
    one, other = read(row(1), version=3), read(row(1), row(2), version=3)
    writes = operation(1, row(1), at=(1, 2)), operation(2, row(2), outcome=UNKNOWN, at=(1, 2))
    assert kinds(*writes, one, other) == ["forked"]
    assert kinds(*writes, one, one, replace(other, domains=frozenset({("mark", "t")}), tokens=())) == []
    assert kinds(*writes, one, replace(other, version=4)) == []


def test_commit_whose_answer_is_no_newer_than_what_was_read_before_is_found() -> None:
    before, write = read(at=(1, 2), version=3), operation(1, row(1), at=(10, 20))
    answer = read(row(1), at=(12, 19), version=3, answer_to=1, domains=frozenset())
    assert kinds(before, write, answer) == ["stale"]
    assert kinds(before, write, replace(answer, version=4)) == []
    assert kinds(replace(before, answered=11), write, answer) == []


def test_version_that_misses_a_change_of_duckdb_is_found() -> None:
    before, change = read(at=(1, 2), version=3), replace(operation(1, row(1), at=(10, 20)), client="duckdb")
    after = Observation("reader", 21, 22, frozenset(), (), "t", version=3)
    assert kinds(replace(before, domains=frozenset()), change, after) == ["stale"]
    assert kinds(replace(before, domains=frozenset()), change, replace(after, version=4)) == []


@pytest.mark.parametrize("kind", ["small insert", "insert"])
@pytest.mark.parametrize("looked", [False, True])
@pytest.mark.parametrize("left", [False, True])
def test_small_insert_that_was_taken_back_before_anybody_looked_needs_no_version(
    kind: str, *, looked: bool, left: bool
) -> None:
    rows = (row(1), row(2)) if left else (row(1),)
    insert = replace(operation(1, *rows, at=(10, 20)), client="duckdb", kind=kind)
    delete = replace(operation(2, removes=(row(1),), at=(30, 40)), client="duckdb", kind="native delete")
    nothing = frozenset[Domain]()
    reads = [read(at=at, version=3, domains=nothing) for at in [(1, 2), *([(22, 25)] if looked else []), (41, 42)]]
    is_right = kind == "small insert" and not looked and not left
    assert set(kinds(insert, delete, *reads)) == (set() if is_right else {"stale"})


def test_readers_that_disagree_are_found() -> None:
    from_files = replace(read(row(1)), reader="files")
    (found,) = readers_disagree(session_of(from_files, read(row(1), row(2))), since=0)
    assert found.kind == "readers disagree"
    assert list(readers_disagree(session_of(from_files, read(row(1))), since=0)) == []


def session_of(*observations: Observation) -> Any:
    class OnlyHistory:
        history = History(observations=list(observations))

    return OnlyHistory()


# --- Chains


def chain() -> dict[str, Any]:
    snapshots = [
        {"snapshot-id": 7, "sequence-number": 1, "timestamp-ms": 5},
        {"snapshot-id": 9, "sequence-number": 2, "timestamp-ms": 5, "parent-snapshot-id": 7},
    ]
    return {
        "snapshots": snapshots,
        "snapshot-log": [{"snapshot-id": 7}, {"snapshot-id": 9}],
        "current-snapshot-id": 9,
        "refs": {"main": {"snapshot-id": 9}},
        "last-sequence-number": 2,
    }


BREAKS: dict[str, Callable[[dict[str, Any]], object]] = {
    "another parent": lambda chain: chain["snapshots"][1].update({"parent-snapshot-id": 8}),
    "a parent of the first": lambda chain: chain["snapshots"][0].update({"parent-snapshot-id": 8}),
    "a sequence number again": lambda chain: chain["snapshots"][1].update({"sequence-number": 1}),
    "time goes back": lambda chain: chain["snapshots"][1].update({"timestamp-ms": 4}),
    "an entry is missing in the log": lambda chain: chain["snapshot-log"].pop(),
    "main is elsewhere": lambda chain: chain["refs"]["main"].update({"snapshot-id": 7}),
    "the last number is too small": lambda chain: chain.update({"last-sequence-number": 1}),
}


def test_chain_that_is_whole_is_right() -> None:
    assert list(judge_chain("t", chain())) == []
    assert list(judge_chain("t", {"current-snapshot-id": -1})) == []


@pytest.mark.parametrize("breaks", BREAKS.values(), ids=BREAKS.keys())
def test_broken_chain_is_found(breaks: Callable[[dict[str, Any]], object]) -> None:
    broken = chain()
    breaks(broken)
    assert {anomaly.kind for anomaly in judge_chain("t", broken)} == {"broken chain"}


def test_chain_whose_first_snapshots_have_expired_is_right_where_they_may() -> None:
    expired = chain()
    del expired["snapshots"][0], expired["snapshot-log"][0]
    assert {anomaly.kind for anomaly in judge_chain("t", expired)} == {"broken chain"}
    assert list(judge_chain("t", expired, expires=True)) == []


@pytest.mark.parametrize("ids", [[0, 1, 3], [1, 2], [0, 0, 1]])
def test_gap_in_the_ids_is_found(ids: list[int]) -> None:
    assert [anomaly.kind for anomaly in judge_ids(ids)] == ["broken chain"]


def test_ids_without_gaps_are_right() -> None:
    assert list(judge_ids([0, 1, 2])) == []


# --- The proxy


class Echo(BaseHTTPRequestHandler):
    """Answers with the body, and counts."""

    protocol_version = "HTTP/1.1"
    bodies: list[bytes]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.bodies.append(body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002


@contextmanager
def echo() -> Iterator[tuple[str, list[bytes]]]:
    bodies: list[bytes] = []
    handler = type("Handler", (Echo,), {"bodies": bodies})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", bodies
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("spoil", "answered", "arrived"),
    [
        (None, True, 1),
        (Spoil.NEVER_SENT, False, 0),
        (Spoil.HALF_SENT, False, 0),
        (Spoil.HUNG_UP, False, 1),
        (Spoil.LOST, False, 1),
        (Spoil.CUT, False, 1),
        (Spoil.TWICE, True, 2),
        (Spoil.LATE, True, 1),
        (Spoil.LATE_ANSWER, True, 1),
    ],
)
def test_proxy_does_to_a_request_what_its_plan_says(spoil: Spoil | None, answered: bool, arrived: int) -> None:
    body = b"x" * 4000
    with echo() as (uri, bodies), running(Proxy(lambda _: Fate(spoil, 0.05), uri)) as proxy:
        try:
            got: bytes | None = httpx.post(proxy.uri, content=body, trust_env=False).content
        except httpx.TransportError:
            got = None
        until = time.monotonic() + 20
        while bodies.count(body) < arrived and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(0.1)  # and no more of them
    assert got == (body if answered else None)
    assert bodies.count(body) == arrived


def test_same_seed_has_the_same_plan_and_a_request_without_a_key_is_never_doubled() -> None:
    over = threading.Event()
    requests = [Request("POST", "/v1", {"X-History": f"{number}/0"}, b"") for number in range(300)]
    fates = [api_plan(1, 0.5, over)(request) for request in requests]
    assert fates == [api_plan(1, 0.5, over)(request) for request in requests]
    assert fates != [api_plan(2, 0.5, over)(request) for request in requests]
    assert {fate.spoil for fate in fates} == {None, *Spoil} - {Spoil.TWICE, Spoil.UNAVAILABLE}
    over.set()
    assert {api_plan(1, 0.5, over)(request).spoil for request in requests} == {None}


# --- All of it


def test_report_names_anomalies_and_counts_them() -> None:
    output = io.StringIO()
    history = History([operation(1, row(1))], faults=[(1, "worker killed")])
    report(Console(file=output, width=120), history, {"answer lost": 2}, {"seed": 7}, [Anomaly("lost", "row 1")])
    assert "ANOMALY (lost) row 1" in output.getvalue()
    assert output.getvalue().splitlines()[-1] == "operations=1 faults=3 anomalies=1"
