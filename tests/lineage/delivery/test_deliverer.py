"""Events of lineage arrive, in order, whatever their receiver does in between."""

import json
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from duckicelake.catalog.context.services import Services
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lineage.delivery import deliverer, outbox
from duckicelake.lineage.delivery.couriers import DeliveryLimits, deliver_in_background
from duckicelake.lineage.delivery.deliverer import DeliveryObserver, compute_pause
from duckicelake.lineage.delivery.outbox import ReceiverStanding
from duckicelake.lineage.delivery.receivers import parse_receivers
from duckicelake.lineage.delivery.transports import open_outlet
from duckicelake.lineage.graph.store import record_events
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.server.telemetry.metrics import Metrics
from tests.conftest import new_lake, services_of
from tests.support.lineage_events import event, table
from tests.support.receiver import TAKEN, TIMEOUT, Answer, Json, Receiver, always, number_of, receiving

MOST = 100_000


class Courier:
    """Delivers for as long as a context lasts, and knows what is left."""

    def __init__(self, services: Services) -> None:
        self.metrics = Metrics(dict)
        self.services = replace(services, meter=self.metrics)
        self.warnings: list[tuple[str, Json]] = []

    @contextmanager
    def delivering(self, *written: str, most: int = MOST, seconds: float = 5.0) -> Iterator[None]:
        outlets = [open_outlet(receiver) for receiver in parse_receivers(written)]
        listener = DeliveryObserver(self.metrics, lambda text, **facts: self.warnings.append((text, facts)))
        outbox.register_receivers(self.services.database, [outlet.name for outlet in outlets])
        with deliver_in_background(self.services, outlets, DeliveryLimits(most, seconds), listener):
            yield

    def record(self, *events: Json, origin: str = "catalog") -> None:
        with self.services.database.transaction() as cursor:
            record_events(cursor, events, origin=origin)

    def number(self, numbers: range, name: Callable[[int], str] = str) -> None:
        """Record events, of a dataset each unless they are named alike."""
        self.record(*(event(number, outputs=(table(name(number)),)) for number in numbers))

    def standing(self) -> ReceiverStanding:
        with self.services.database.reading() as cursor:
            (found,) = outbox.read_standings(cursor)
        return found

    def until(self, is_so: Callable[[ReceiverStanding], bool], seconds: float = TIMEOUT) -> ReceiverStanding:
        deadline = time.monotonic() + seconds
        while not is_so(found := self.standing()):
            assert time.monotonic() < deadline, found
            time.sleep(0.02)
        return found

    def metric(self, outcome: str) -> float:
        for family in text_string_to_metric_families(self.metrics.render().decode()):
            for sample in family.samples:
                if family.name == "duckicelake_lineage_events" and sample.labels["outcome"] == outcome:
                    return sample.value
        return 0

    def said(self) -> list[str]:
        return [text for text, _ in self.warnings]


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as found:
        yield found


@pytest.fixture(scope="module")
def shared(postgres: EmbeddedPostgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    folder = tmp_path_factory.mktemp("deliveries")
    with new_lake(postgres, folder) as url, closing(open_lake_database(url)) as database:
        yield services_of(database, folder)


@pytest.fixture
def courier(shared: Services) -> Courier:
    """Nothing is to be delivered, and no one knows any receiver."""
    with shared.database.transaction() as cursor:
        cursor.execute("TRUNCATE duckicelake_lineage_event RESTART IDENTITY")
        cursor.execute("DELETE FROM duckicelake_lineage_run; DELETE FROM duckicelake_lineage_io")
        cursor.execute("DELETE FROM duckicelake_delivery; DELETE FROM duckicelake_dead_letter")
    return Courier(shared)


def test_new_events_arrive_at_once_and_in_order(
    courier: Courier, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliverer, "_LOOK_SECONDS", 60.0)  # so that it can only be Postgres who tells of them
    courier.number(range(1, 4))
    with courier.delivering(receiver.uri):
        courier.number(range(4, 8))
        receiver.until_taken(4)
        courier.number(range(8, 9))
        receiver.until_taken(5)
    assert receiver.numbers() == [4, 5, 6, 7, 8]
    found = courier.standing()
    assert (found.delivered, found.waiting, found.dead, found.dropped) == (5, 0, 0, 0)
    assert courier.metric("delivered") == 5
    assert courier.warnings == []


def test_what_others_sent_us_is_not_sent_on(courier: Courier, receiver: Receiver) -> None:
    with courier.delivering(receiver.uri):
        courier.record(event(1), origin="received")
        courier.record(event(2), origin="sql")
        receiver.until_taken(1)
    assert receiver.numbers() == [2]
    assert courier.standing().waiting == 0


def test_events_from_while_no_one_delivered_arrive_later_and_once(courier: Courier, receiver: Receiver) -> None:
    with courier.delivering(receiver.uri):
        courier.number(range(1, 3))
        receiver.until_taken(2)
    courier.number(range(3, 5))
    with courier.delivering(receiver.uri):
        receiver.until_taken(4)
    assert receiver.numbers() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(503, {"Retry-After": "0"}), id="503"),
        pytest.param(Answer(raw=b"HTTP/1.1 20"), id="half"),
        *(
            pytest.param(answer, id=name, marks=pytest.mark.crash)
            for name, answer in {
                "500": Answer(500),
                "429": Answer(429),
                "302": Answer(302, {"Location": "/"}),
                "reset": Answer(reset=True),
                "closed": Answer(None),
                "binary": Answer(raw=b"\x00\xff\r\n"),
                "hanging": Answer(hang=5.0),
            }.items()
        ),
    ],
)
def test_nothing_is_lost_while_a_receiver_fails(courier: Courier, receiver: Receiver, answer: Answer) -> None:
    receiver.first(answer, answer, answer)
    with courier.delivering(f"{receiver.uri}?timeout={0.5 if answer.hang else 30}"):
        courier.number(range(1, 6), lambda _: "t")
        receiver.until_taken(5)
    tries = [number_of(body) for _, body in receiver.tries]
    if not answer.hang:  # else a busy machine may be too slow, too
        assert tries == [1, 1, 1, 1, 2, 3, 4, 5]
    assert list(dict.fromkeys(receiver.numbers())) == [1, 2, 3, 4, 5]
    assert tries[:4] == [1, 1, 1, 1]
    first = [moment for moment, _ in receiver.tries[:4]]
    pauses = [later - earlier for earlier, later in pairwise(first)]
    assert all(pause >= least for pause, least in zip(pauses, (0.05, 0.1, 0.2), strict=True)), pauses
    assert courier.standing().dead == 0
    assert courier.metric("retried") >= 3


def test_retry_after_is_obeyed(courier: Courier, receiver: Receiver) -> None:
    receiver.first(Answer(429, {"Retry-After": "1"}))
    with courier.delivering(receiver.uri):
        courier.number(range(1, 3))
        receiver.until_taken(2)
    moments = [moment for moment, _ in receiver.tries]
    assert moments[1] - moments[0] >= 0.99
    assert courier.said() == ["lineage events don't arrive", "lineage events arrive again"]


def test_refused_event_is_a_dead_letter_and_the_next_follow(courier: Courier, receiver: Receiver) -> None:
    receiver.behaviour = lambda body: Answer(422, body=b"no such job") if number_of(body) == 2 else TAKEN
    with courier.delivering(receiver.uri):
        courier.number(range(1, 5), lambda _: "t")
        receiver.until_taken(3)
        courier.until(lambda found: found.waiting == 0)
    assert receiver.numbers() == [1, 3, 4]
    with courier.services.database.reading() as cursor:
        (letter,) = outbox.read_dead_letters(cursor, None, 10)
    assert (letter.status, letter.reason, letter.attempts) == (422, "422 Unprocessable Entity: no such job", 1)
    assert number_of(dict(letter.body)) == 2
    assert (courier.standing().dead, courier.metric("dead")) == (1, 1)
    assert courier.said() == ["a lineage event was refused"]


def test_dead_letter_is_tried_again_when_someone_wants_it(courier: Courier, receiver: Receiver) -> None:
    receiver.first(Answer(400), TAKEN, Answer(401))
    with courier.delivering(receiver.uri):
        courier.number(range(1, 3))
        receiver.until_taken(1)
        courier.until(lambda found: found.dead == 1)
        retry(courier, 1)
        receiver.until(lambda: len(receiver.tries) == 3)
        courier.until(lambda found: (found.dead, found.again) == (1, 0))
        with courier.services.database.reading() as cursor:
            (letter,) = outbox.read_dead_letters(cursor, receiver.uri, 10)
        assert (letter.status, letter.attempts) == (401, 2)
        retry(courier, 1)
        receiver.until_taken(2)
        courier.until(lambda found: (found.dead, found.again) == (0, 0))
    assert receiver.numbers() == [2, 1]


def test_wrong_key_is_said_once_and_fills_no_disk(
    courier: Courier, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliverer, "_FEW", 10)
    receiver.behaviour = always(Answer(401))
    with courier.delivering(receiver.uri, most=25):
        courier.number(range(1, 21))
        courier.until(lambda found: found.waiting == 0)
        courier.number(range(21, 41))
        courier.until(lambda found: found.waiting == 0)
    assert courier.said() == ["a lineage event was refused", "lineage events were dropped"]
    found = courier.standing()
    assert 25 <= found.dead < 35
    assert found.dead + found.dropped == 40


def test_events_of_writers_that_commit_late_arrive_as_well(courier: Courier, receiver: Receiver) -> None:
    """A position by ids holds because ids are in the order of commits."""

    def write(first: int) -> None:
        for number in range(first, first + 10):
            with courier.services.database.transaction() as cursor:
                record_events(cursor, [event(number)], origin="sql")
                time.sleep(0.02 if first % 20 else 0.0)

    with courier.delivering(receiver.uri), ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(0, 60, 10)))
        receiver.until_taken(60)
    assert sorted(receiver.numbers()) == list(range(60))


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.crash)])
def test_receiver_that_fails_in_every_way_gets_all_in_order(
    courier: Courier, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setattr(deliverer, "_FIRST_PAUSE", 0.005)
    failures = [
        Answer(400), Answer(500), Answer(500), Answer(501), Answer(502), Answer(503, {"Retry-After": "0"}),
        Answer(429), Answer(reset=True), Answer(None), Answer(raw=b"HTTP/1.1 2"), Answer(raw=b"\xff\x00\r\n\r\n"),
        Answer(raw=b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"), Answer(hang=0.4),
    ]  # fmt: skip
    chance = random.Random(seed)
    receiver.behaviour = lambda _: chance.choice(failures) if chance.random() < 0.3 else TAKEN
    with courier.delivering(f"{receiver.uri}?timeout=0.2"):
        for first in range(1, 301, 30):
            courier.number(range(first, first + 30), lambda number: "abcdefg"[number % 7])
        found = courier.until(lambda found: found.waiting == 0)
    with courier.services.database.reading() as cursor:
        refused = {number_of(dict(letter.body)) for letter in outbox.read_dead_letters(cursor, None, 1000)}
    arrived = receiver.numbers()
    assert (found.delivered, found.dead, found.dropped) == (300 - len(refused), len(refused), 0)
    assert {*arrived} | refused == {*range(1, 301)}
    for remainder in range(7):
        lane = [number for number in arrived if number % 7 == remainder]
        assert lane == sorted(lane)


def retry(courier: Courier, letters: int) -> None:
    with courier.services.database.transaction() as cursor:
        assert outbox.retry_dead_letters(cursor, None) == letters


def test_events_of_a_failing_dataset_wait_and_others_go_on(courier: Courier, receiver: Receiver) -> None:
    is_mended = False

    def fails_for_a(body: Json) -> Answer:
        return Answer(500) if body["outputs"][0]["name"] == "/lake/a" and not is_mended else TAKEN

    receiver.behaviour = fails_for_a
    with courier.delivering(receiver.uri):
        courier.number(range(1, 13), lambda number: "abc"[number % 3])
        receiver.until_taken(8)
        courier.until(lambda found: found.delivered == 8)
        assert courier.standing().event_id == 2
        is_mended = True
        receiver.until_taken(12)
    arrived = receiver.numbers()
    assert arrived == [1, 2, 4, 5, 7, 8, 10, 11, 3, 6, 9, 12]
    assert courier.standing().waiting == 0


def test_event_that_never_succeeds_is_given_up_when_others_do(
    courier: Courier, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliverer, "MAX_TRIES", 3)
    receiver.behaviour = lambda body: Answer(500) if body["outputs"][0]["name"] == "/lake/a" else TAKEN
    with courier.delivering(receiver.uri):
        courier.number(range(1, 2), lambda _: "a")
        receiver.until(lambda: len(receiver.tries) >= 4)
        assert courier.standing().dead == 0
        for number in range(2, 60):
            courier.number(range(number, number + 1), lambda _: "b")
            if courier.standing().dead:
                break
            time.sleep(0.1)
        assert courier.standing().dead == 1


def test_receiver_that_fails_for_all_is_left_alone(courier: Courier, receiver: Receiver) -> None:
    receiver.behaviour = always(Answer(500))
    with courier.delivering(receiver.uri, seconds=0):
        courier.number(range(1, 201))
        receiver.until(lambda: len(receiver.tries) >= 10)
        time.sleep(1)
        assert len(receiver.tries) < 40
    assert (courier.standing().dead, courier.standing().waiting) == (0, 200)


def test_of_too_many_the_oldest_are_dropped_and_counted(courier: Courier, receiver: Receiver) -> None:
    receiver.behaviour = always(Answer(503))
    with courier.delivering(receiver.uri, most=10, seconds=0):
        courier.number(range(1, 6))
        receiver.until(lambda: len(receiver.tries) >= 2)
        courier.number(range(6, 31))
        found = courier.until(lambda found: found.dropped == 20)
        assert found.waiting == 10
        receiver.behaviour = always(TAKEN)
        receiver.until_taken(10)
    assert receiver.numbers() == list(range(21, 31))
    assert courier.metric("dropped") == 20
    assert "lineage events were dropped" in courier.said()


def test_what_is_left_at_the_end_is_still_delivered(courier: Courier, receiver: Receiver) -> None:
    with courier.delivering(receiver.uri):
        courier.number(range(1, 301))
    assert receiver.numbers() == list(range(1, 301))
    assert courier.standing().waiting == 0


@pytest.mark.parametrize("answer", [Answer(hang=30.0), Answer(503)], ids=["hanging", "503"])
def test_end_does_not_wait_for_a_receiver_that_is_away(courier: Courier, receiver: Receiver, answer: Answer) -> None:
    receiver.behaviour = always(answer)
    with courier.delivering(receiver.uri, seconds=0.5):
        courier.number(range(1, 4))
        receiver.until(lambda: len(receiver.tries) >= 1)
        began = time.monotonic()
    assert time.monotonic() - began < 10
    assert courier.standing().waiting == 3


def test_receivers_do_not_wait_for_each_other(courier: Courier, receiver: Receiver, tmp_path: Path) -> None:
    receiver.behaviour = always(Answer(hang=30.0))
    path = tmp_path / "events.ndjson"
    with (
        courier.delivering(receiver.uri, f"file://{path}", seconds=0.2),
        receiving() as other,
        courier_of(courier, other),
    ):
        courier.number(range(1, 4))
        other.until_taken(3)
        deadline = time.monotonic() + TIMEOUT
        while not path.exists() or path.read_text().count("\n") < 3:
            assert time.monotonic() < deadline
            time.sleep(0.02)
    assert [number_of(json.loads(line)) for line in path.read_text().splitlines()] == [1, 2, 3]


def courier_of(courier: Courier, receiver: Receiver) -> Any:
    return courier.delivering(receiver.uri, seconds=0.2)


def test_of_several_workers_one_delivers_and_another_takes_over(courier: Courier, receiver: Receiver) -> None:
    other = Courier(replace(courier.services, database=open_lake_database(courier.services.database.url)))
    with ExitStack() as second:
        with courier.delivering(receiver.uri):
            courier.number(range(1, 2))
            receiver.until_taken(1)
            second.enter_context(other.delivering(receiver.uri))
            courier.number(range(2, 50))
            receiver.until_taken(49)
        courier.number(range(50, 60))
        receiver.until_taken(59)
    other.services.database.close()
    assert receiver.numbers() == list(range(1, 60))
    assert (courier.metric("delivered"), other.metric("delivered")) == (49, 10)


def test_lost_session_loses_no_event(courier: Courier, receiver: Receiver) -> None:
    with courier.delivering(receiver.uri):
        courier.number(range(1, 3))
        receiver.until_taken(2)
        with courier.services.database.statement() as cursor:
            cursor.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE pid <> pg_backend_pid() AND datname = current_database() AND query LIKE '%%lineage%%'"
            )
        courier.number(range(3, 6))
        receiver.until(lambda: set(receiver.numbers()) == {1, 2, 3, 4, 5})


def test_replay_sends_everything_once_more(courier: Courier, receiver: Receiver) -> None:
    courier.number(range(1, 4))
    with courier.delivering(receiver.uri):
        courier.number(range(4, 6))
        receiver.until_taken(2)
        courier.until(lambda found: found.waiting == 0)
        with courier.services.database.transaction() as cursor:
            assert outbox.replay_events(cursor, receiver.uri)
            assert not outbox.replay_events(cursor, "http://other")
        receiver.until(lambda: receiver.numbers() == [4, 5, 1, 2, 3, 4, 5])


def test_pauses_double_from_100_ms_on_up_to_half_a_minute() -> None:
    assert [compute_pause(failures, 0) for failures in (1, 2, 3, 4)] == [0.1, 0.2, 0.4, 0.8]
    assert [compute_pause(failures, 1) for failures in (1, 2)] == [0.05, 0.1]
    assert (compute_pause(10, 0), compute_pause(10_000, 0)) == (30, 30)
