"""Events of one dataset wait for each other; those of others go past."""

import json
import random

import pytest

from duckicelake.lineage.delivery.deliverer import DeliveryQueue, Key, PendingEvent, find_order_keys

LONG = 1 << 30


def dataset(name: str) -> dict[str, str]:
    return {"namespace": "file", "name": name}


def pending(id_: int, *outputs: str, inputs: tuple[str, ...] = (), run: str | None = None) -> PendingEvent:
    body = {
        "run": {"runId": run or f"run {id_}"},
        "job": {"namespace": "n", "name": "j"},
        "inputs": [dataset(name) for name in inputs],
        "outputs": [dataset(name) for name in outputs],
    }
    return PendingEvent(id_, json.dumps(body))


def queue_of(*events: PendingEvent) -> DeliveryQueue:
    queue = DeliveryQueue(100, LONG)
    for event in events:
        queue.add(event)
    return queue


def taken(queue: DeliveryQueue, now: float = 0.0) -> list[int]:
    """Ids of all that can be sent now, each with success."""
    found = []
    while (event := queue.take(now)) is not None:
        found.append(event.id)
        queue.done(event)
    return found


def test_events_leave_in_the_order_in_which_they_came() -> None:
    assert taken(queue_of(pending(1, "a"), pending(2, "b"), pending(3, "a"))) == [1, 2, 3]


def test_events_of_a_failing_dataset_wait_and_others_go_on() -> None:
    queue = queue_of(pending(1, "a"), pending(2, "b"), pending(3, "c", inputs=("a",)), pending(4, "c"), pending(5, "b"))
    first = queue.take(0)
    assert first is not None
    queue.again(first, 10.0)
    assert taken(queue, 9.9) == [2, 5]
    assert (queue.next_at(), queue.first(), len(queue)) == (10.0, 1, 3)
    assert taken(queue, 10.0) == [1, 3, 4]
    assert (queue.next_at(), queue.first(), len(queue)) == (None, None, 0)


def test_event_that_failed_comes_before_younger_ones_once_its_time_has_come() -> None:
    queue = queue_of(*(pending(number, str(number)) for number in range(4)))
    first = queue.take(0)
    assert first is not None
    queue.again(first, 1.0)
    second = queue.take(0)
    assert second is not None
    queue.done(second)
    assert (second.id, taken(queue, 1.0)) == (1, [0, 2, 3])


def test_start_of_a_run_comes_before_its_end_whatever_its_datasets() -> None:
    queue = queue_of(pending(1, "a", run="r"), pending(2, "b", run="r"))
    first = queue.take(0)
    assert first is not None
    assert queue.take(0) is None
    queue.done(first)
    assert taken(queue) == [2]


def test_dead_letters_have_their_turn_last_and_hold_up_no_position() -> None:
    letter = pending(1, "a")
    letter.is_letter = True
    queue = queue_of(letter, pending(7, "b"))
    assert queue.first() == 7
    assert taken(queue) == [7, 1]


def test_event_that_is_there_is_not_added_twice() -> None:
    queue = queue_of(pending(1, "a"), pending(1, "a"))
    assert taken(queue) == [1]


def test_dropping_frees_clients_that_waited() -> None:
    queue = queue_of(pending(1, "a"), pending(2, "b"), pending(3, "a"), pending(4, "b"))
    first = queue.take(0)
    assert first is not None
    queue.again(first, 100.0)
    assert queue.drop(2) == 2
    assert taken(queue) == [3, 4]
    assert queue.take(1000.0) is None


def test_room_is_of_events_and_of_characters() -> None:
    assert queue_of(pending(1, "a")).room == 99
    queue = DeliveryQueue(100, 10)
    event = pending(1, "a")
    queue.add(event)
    assert queue.room == 0
    queue.done(event)
    assert queue.room == 100


@pytest.mark.parametrize(
    ("body", "keys"),
    [
        ({"dataset": dataset("a")}, {("dataset", "file", "a")}),
        ({"job": {"namespace": "n", "name": "j"}}, {("job", "n", "j")}),
        ({"run": {"runId": "r"}, "job": {"namespace": "n", "name": "j"}}, {("run", "r")}),
        ({}, {("job", "None", "None")}),
    ],
)
def test_keys_are_of_the_dataset_the_run_or_the_job(body: dict[str, object], keys: set[Key]) -> None:
    assert find_order_keys(body) == keys


@pytest.mark.parametrize("seed", range(20))
def test_any_failures_leave_each_dataset_in_order(seed: int) -> None:
    chance = random.Random(seed)
    queue, sent, now = DeliveryQueue(10_000, LONG), [], 0.0
    ids = iter(range(1, 301))
    while True:
        for id_ in [each for _, each in zip(range(chance.randrange(5)), ids, strict=False)]:
            queue.add(pending(id_, *chance.sample("abcdefgh", chance.randrange(1, 3))))
        event = queue.take(now)
        now += 1
        if event is None:
            if not len(queue) and now > 5000:
                break
        elif chance.random() < 0.4:
            queue.again(event, now + chance.randrange(10))
        else:
            sent.append(event)
            queue.done(event)
    assert sorted(event.id for event in sent) == list(range(1, 301))
    for name in "abcdefgh":
        lane = [event.id for event in sent if ("dataset", "file", name) in event.keys]
        assert lane == sorted(lane)
