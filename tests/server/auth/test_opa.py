"""Decisions of an OPA-compatible service: what it is asked, what is kept, and that nothing is allowed without it."""

import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from time import monotonic, sleep
from typing import Any

import pytest

from duckicelake.catalog.context.outside import OutsideQuestion
from duckicelake.catalog.context.privileges import ALL_PRIVILEGES, NO_PRIVILEGE, Privilege
from duckicelake.errors import UnavailableError
from duckicelake.server.auth.opa import OpaDecisions, OpaOptions
from tests.support.opa import OpaServer, deciding

SELECT, INSERT = Privilege.SELECT, Privilege.INSERT
ORDERS, SALES, WHOLE = (("sales",), "orders"), (("sales",), ""), ((), "")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def opa() -> Iterator[OpaServer]:
    with deciding() as server:
        yield server


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def decisions(opa: OpaServer, clock: Clock) -> Iterator[OpaDecisions]:
    options = OpaOptions(opa.url, token="t0ken", seconds=1, cache_seconds=5, cache_max=1000)
    with closing(OpaDecisions(options, clock)) as found:
        yield found


def ask(decisions: OpaDecisions, *asked: OutsideQuestion, user: str = "ann") -> list[Privilege]:
    return decisions.decide(user, ("staff",), "lake", asked)


def test_many_objects_are_one_request_in_the_form_of_trinos(opa: OpaServer, decisions: OpaDecisions) -> None:
    opa.policy = lambda user, operation, name: user == "ann" and (operation, name) != ("insert", "sales.orders")
    asked = [OutsideQuestion(SELECT | INSERT, ORDERS), OutsideQuestion(SELECT, SALES), OutsideQuestion(INSERT, WHOLE)]
    assert ask(decisions, *asked) == [SELECT, SELECT, INSERT]
    schema = {"catalogName": "lake", "schemaName": "sales", "namespace": ["sales"]}
    assert opa.inputs == [
        {
            "context": {
                "identity": {"user": "ann", "groups": ["staff"]},
                "softwareStack": {"name": "duckicelake"},
            },
            "action": {
                "operation": "FilterResources",
                "filterResources": [
                    {"operation": "select", "table": {**schema, "tableName": "orders"}},
                    {"operation": "insert", "table": {**schema, "tableName": "orders"}},
                    {"operation": "select", "schema": schema},
                    {"operation": "insert", "catalog": {"name": "lake"}},
                ],
            },
        }
    ]
    assert opa.tokens == ["Bearer t0ken"]
    assert ask(decisions, OutsideQuestion(ALL_PRIVILEGES, ORDERS), user="bob") == [NO_PRIVILEGE]
    assert decisions.statistics()["refused"] == 2


def test_decisions_are_kept_for_the_same_question_alone(opa: OpaServer, decisions: OpaDecisions, clock: Clock) -> None:
    both = OutsideQuestion(SELECT | INSERT, ORDERS)
    for _ in range(3):
        assert ask(decisions, both) == [SELECT | INSERT]
        assert ask(decisions, OutsideQuestion(SELECT, ORDERS)) == [SELECT]
    assert len(opa.inputs) == 1
    ask(decisions, OutsideQuestion(SELECT | Privilege.DROP, ORDERS))  # more than it was asked
    ask(decisions, both, user="bob")
    ask(decisions, OutsideQuestion(SELECT, SALES))
    decisions.decide("ann", ("other",), "lake", [both])
    decisions.decide("ann", ("staff",), "north", [both])
    assert len(opa.inputs) == 6
    clock.now = 5.1
    opa.policy = lambda *_: False
    assert ask(decisions, both) == [NO_PRIVILEGE]
    assert len(opa.inputs) == 7


def test_kept_decisions_are_bounded(opa: OpaServer, decisions: OpaDecisions) -> None:
    questions = [OutsideQuestion(SELECT, (("sales",), f"t{number}")) for number in range(1500)]
    assert ask(decisions, *questions) == [SELECT] * 1500
    assert len(opa.inputs) == 1
    assert len(decisions._kept) == 1000
    ask(decisions, questions[-1])
    assert len(opa.inputs) == 1
    ask(decisions, questions[0])
    assert len(opa.inputs) == 2


@pytest.mark.parametrize(
    ("answer", "status", "why"),
    [
        (b'{"result": true}', 200, "isn't a list of indexes"),
        (b'{"result": {"allow": true}}', 200, "isn't a list of indexes"),
        (b'{"result": [true]}', 200, "isn't a list of indexes"),
        (b'{"result": [1]}', 200, "isn't a list of indexes"),
        (b'{"result": [-1]}', 200, "isn't a list of indexes"),
        (b'{"result": ["0"]}', 200, "isn't a list of indexes"),
        (b'{"result": null}', 200, "isn't a list of indexes"),
        (b"{}", 200, "no such rule.*DUCKICELAKE_OPA_URL"),
        (b"[0]", 200, "no JSON object"),
        (b"", 200, "no such rule"),
        (b"<html>", 200, "no JSON object"),
        (b"[" * 200_000, 200, "no JSON object"),
        (b'{"result": ' + b"[" * 200_000, 200, "no JSON object"),
        (b'{"result": [' + b"9" * 10_000 + b"]}", 200, "no JSON object"),
        (b'{"result": [0.0]}', 200, "isn't a list of indexes"),
        (b'{"result": "0"}', 200, "isn't a list of indexes"),
        (b'{"result": [[0]]}', 200, "isn't a list of indexes"),
        (b'{"error": {"code": "internal"}, "result": null}', 200, "isn't a list of indexes"),
        (b'{"result": [0]}', 500, "status 500"),
        (b'{"result": [0]}', 401, "status 401"),
        (b'{"result": [0]}', 302, "status 302"),
        (b" " * (2 << 20) + b'{"result": [0]}', 200, "more than 1048576 bytes"),
    ],
)
def test_unclear_answer_allows_nothing(
    opa: OpaServer, decisions: OpaDecisions, clock: Clock, answer: bytes, status: int, why: str
) -> None:
    opa.answer, opa.status = answer, status
    with pytest.raises(UnavailableError, match=rf"outside decision can't be had now.*{why}"):
        ask(decisions, OutsideQuestion(SELECT, ORDERS))
    opa.answer, opa.status, clock.now = None, 200, 1.0
    assert ask(decisions, OutsideQuestion(SELECT, ORDERS)) == [SELECT]


def test_service_that_is_away_is_not_asked_for_a_moment(opa: OpaServer, decisions: OpaDecisions, clock: Clock) -> None:
    opa.seconds = 2
    start = monotonic()
    with pytest.raises(UnavailableError, match="doesn't answer"):
        ask(decisions, OutsideQuestion(SELECT, ORDERS))
    first = monotonic() - start
    for _ in range(50):
        with pytest.raises(UnavailableError, match="doesn't answer"):
            ask(decisions, OutsideQuestion(SELECT, ORDERS))
    assert monotonic() - start - first < 0.5
    assert decisions.statistics()["failed"] == 51
    opa.seconds, clock.now = 0, 0.6
    assert ask(decisions, OutsideQuestion(SELECT, ORDERS)) == [SELECT]


def test_known_decisions_are_given_while_the_service_is_away(
    opa: OpaServer, decisions: OpaDecisions, clock: Clock
) -> None:
    assert ask(decisions, OutsideQuestion(SELECT, ORDERS)) == [SELECT]
    opa.status = 503
    assert ask(decisions, OutsideQuestion(SELECT, ORDERS)) == [SELECT]
    clock.now = 5.1
    with pytest.raises(UnavailableError, match="status 503"):
        ask(decisions, OutsideQuestion(SELECT, ORDERS))


def test_requests_under_way_are_bounded(opa: OpaServer, decisions: OpaDecisions) -> None:
    opa.seconds = 0.02
    questions = [OutsideQuestion(SELECT, (("sales",), f"t{number}")) for number in range(80)]
    with ThreadPoolExecutor(40) as threads:
        found = list(threads.map(lambda question: ask(decisions, question), questions))
    assert found == [[SELECT]] * 80
    assert 1 < opa.most_at_once <= 8


Speak = Callable[[socket.socket], None]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
RIGHT = json.dumps({"result": [0]}).encode()


@contextmanager
def speaking(speak: Speak) -> Iterator[str]:
    """The URL of a rule of a server that answers each connection as it likes, once it has read something."""

    def serve(client: socket.socket) -> None:
        with client, suppress(OSError):
            client.recv(65536)
            speak(client)

    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:

        def accept() -> None:
            with suppress(OSError):
                while True:
                    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}/v1/data/duckicelake/allow"
        server.shutdown(socket.SHUT_RDWR)


def trickle(head: bytes, piece: bytes, end: bytes = b"") -> Speak:
    """Send pieces for much longer than is waited for, each within the timeout of the socket."""

    def speak(client: socket.socket) -> None:
        client.sendall(head)
        for _ in range(100):
            client.sendall(piece)
            sleep(0.1)
        client.sendall(end)

    return speak


def flood(client: socket.socket) -> None:
    client.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    for _ in range(100_000):
        client.sendall(b"100000\r\n" + b" " * 0x100000 + b"\r\n")


def say(data: bytes) -> Speak:
    return lambda client: client.sendall(data)


ZIPPED = gzip.compress(b" " * (64 << 20))
LENGTH = b"Content-Length: %d\r\n\r\n"
FAULTS: dict[str, tuple[str, Speak, str]] = {
    "a slow head": ("http", trickle(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"), "takes too long|doesn't answer"),
    "a slow status": ("http", trickle(b"HTTP/1.1 200 O", b"K"), "takes too long|doesn't answer"),
    "a slow body": ("http", trickle(HEAD + LENGTH % 4096, b" "), "takes too long|doesn't answer"),
    "a slow body without length": ("http", trickle(HEAD + b"\r\n", b" ", RIGHT), "takes too long|doesn't answer"),
    "a slow handshake": ("https", trickle(b"\x16\x03\x03\x40\x00", b"\x00"), "TLS|too long|doesn't answer"),
    "an endless body": ("http", flood, "more than 1048576 bytes"),
    "a body that unzips to 64 MiB": (
        "http", say(HEAD + b"Content-Encoding: gzip\r\n" + LENGTH % len(ZIPPED) + ZIPPED), "more than 1048576 bytes",
    ),
    "a wrong encoding": ("http", say(HEAD + b"Content-Encoding: gzip\r\n" + LENGTH % len(RIGHT) + RIGHT), "answer"),
    "an end in the middle": ("http", say(HEAD + LENGTH % (len(RIGHT) + 1) + RIGHT), "doesn't answer"),
    "an end in the head": ("http", say(b"HTTP/1.1 200 OK\r\nContent-"), "answer|rule"),
    "an end at once": ("http", say(b""), "closes the connection"),
    "no HTTP": ("http", say(b"SSH-2.0-OpenSSH_9.9\r\n"), "isn't HTTP|answer"),
    "endless heads": ("http", say(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 20_000), "answer"),
    "no TLS": ("https", say(HEAD + LENGTH % len(RIGHT) + RIGHT), "TLS"),
    "an informational answer for ever": ("http", trickle(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), "too long|answer"),
}  # fmt: skip


@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_the_service_does_the_answer_is_no_and_comes_in_time(fault: str) -> None:
    scheme, speak, why = FAULTS[fault]
    with speaking(speak) as place:
        options = OpaOptions(f"{scheme}://{place}", seconds=0.5)
        with closing(OpaDecisions(options)) as decisions:
            start = monotonic()
            with pytest.raises(UnavailableError, match=rf"nothing is allowed; try again: .*({why})"):
                ask(decisions, OutsideQuestion(SELECT, ORDERS))
            assert monotonic() - start < 5


def test_resolver_that_hangs_takes_no_more_time_than_the_service_may(monkeypatch: pytest.MonkeyPatch) -> None:
    real, goes_on = socket.getaddrinfo, threading.Event()

    def hang(host: str, *args: Any, **options: Any) -> Any:
        if host == "opa.example":
            goes_on.wait(20)
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return real(host, *args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", hang)
    clock = Clock()
    with closing(OpaDecisions(OpaOptions("http://opa.example:8181/v1/data/x/y", seconds=0.2), clock)) as decisions:
        try:
            start = monotonic()
            for number in range(10):  # more than there are turns
                clock.now = 10.0 * number
                with pytest.raises(UnavailableError, match=r"doesn't answer|more than it answers"):
                    ask(decisions, OutsideQuestion(SELECT, ORDERS))
            assert monotonic() - start < 10
            assert decisions.statistics()["requests"] <= 8
        finally:
            goes_on.set()


def test_who_waited_for_a_turn_learns_of_the_failure(opa: OpaServer, decisions: OpaDecisions) -> None:
    """Else each of them would ask a service that hangs, one behind the other."""
    opa.seconds = 3

    def fail(number: int) -> float:
        start = monotonic()
        with pytest.raises(UnavailableError):
            ask(decisions, OutsideQuestion(SELECT, (("sales",), f"t{number}")))
        return monotonic() - start

    with ThreadPoolExecutor(24) as threads:
        assert len(list(threads.map(fail, range(24)))) == 24
    assert decisions.statistics()["requests"] <= 8


def test_decision_is_as_old_as_its_question(opa: OpaServer, decisions: OpaDecisions, clock: Clock) -> None:
    def slow(*_: str) -> bool:
        clock.now += 3
        return True

    opa.policy = slow
    assert ask(decisions, OutsideQuestion(SELECT, ORDERS)) == [SELECT]
    opa.policy, clock.now = (lambda *_: False), 5.1
    assert ask(decisions, OutsideQuestion(SELECT, ORDERS)) == [NO_PRIVILEGE]


def test_token_stands_in_no_message() -> None:
    options = OpaOptions("http://127.0.0.1:1/v1/data/x", token="geheim", seconds=0.2)
    assert "geheim" not in repr(options)
    with closing(OpaDecisions(options)) as decisions, pytest.raises(UnavailableError) as failure:
        ask(decisions, OutsideQuestion(SELECT, ORDERS))
    assert "geheim" not in str(failure.value)
