"""Decisions of an OPA-compatible service: what it is asked, what is kept, and that nothing is allowed without it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from time import monotonic

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


def test_token_stands_in_no_message() -> None:
    options = OpaOptions("http://127.0.0.1:1/v1/data/x", token="geheim", seconds=0.2)
    assert "geheim" not in repr(options)
    with closing(OpaDecisions(options)) as decisions, pytest.raises(UnavailableError) as failure:
        ask(decisions, OutsideQuestion(SELECT, ORDERS))
    assert "geheim" not in str(failure.value)
