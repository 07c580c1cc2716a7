"""How long requests pause before they are sent again."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from duckicelake.rest.retry import MAX_PAUSE_SECONDS, RetryPolicy, parse_retry_after


def test_pauses_double_differ_and_end() -> None:
    now = [0.0]
    least, most = (RetryPolicy(3600, lambda: now[0], lambda chance=chance: chance) for chance in (0.0, 1.0))
    pauses = [(least.pause(), most.pause()) for _ in range(9)]
    assert pauses[:3] == [(0.05, 0.1), (0.1, 0.2), (0.2, 0.4)]
    assert pauses[-1] == (MAX_PAUSE_SECONDS / 2, MAX_PAUSE_SECONDS)
    now[0] = 3599
    assert most.pause() == 1
    now[0] = 3600
    assert most.pause() is None


def test_pauses_stay_as_long_for_days() -> None:
    policy = RetryPolicy(10**6, lambda: 0.0, lambda: 1.0)
    assert [policy.pause() for _ in range(2000)][-1] == MAX_PAUSE_SECONDS


def test_what_the_server_asks_for_is_the_least_pause() -> None:
    assert RetryPolicy(60, lambda: 0.0, lambda: 1.0).pause(7) == 7.1


def test_a_server_that_asks_for_more_than_is_left_is_asked_at_the_end() -> None:
    now = [0.0]
    policy = RetryPolicy(5, lambda: now[0], lambda: 1.0)
    assert (policy.pause(7), policy.attempts) == (5, 1)
    now[0] = 5
    assert policy.pause(7) is None
    assert RetryPolicy(0, lambda: 0.0, lambda: 1.0).pause(7) is None


def test_retry_after_is_a_number_or_a_time() -> None:
    now = datetime.now(UTC)
    assert (parse_retry_after("7"), parse_retry_after(" 0 ")) == (7.0, 0.0)
    later = parse_retry_after(format_datetime(now + timedelta(seconds=90), usegmt=True))
    assert later is not None
    assert 60 < later <= 90
    assert parse_retry_after(format_datetime(now - timedelta(days=1), usegmt=True)) == 0


@pytest.mark.parametrize("text", [None, "", "soon", "-1", "1.5", "\u00b2", "9" * 400, "Mon, 99 Xyz 2026 99:99:99 GMT"])
def test_another_retry_after_is_none(text: str | None) -> None:
    assert parse_retry_after(text) in {None, float("inf")}
