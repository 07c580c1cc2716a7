"""What requests with a key came to is noted once: whoever notes it again changes nothing, and hears of it."""

from uuid import uuid4

import pytest

from duckicelake.lake.conflicts import RepeatedRequestError
from duckicelake.lake.side_tables.idempotency import OUTCOME_LIFETIME, RequestOutcome, find_outcome, record_outcomes

FIRST, SECOND = RequestOutcome(b"one", [1]), RequestOutcome(b"two", [2])


@pytest.mark.parametrize("pipelined", [False, True])
def test_settling_a_settled_key_raises_and_leaves_the_first_outcome(services, pipelined):
    key, other = uuid4(), uuid4()
    with services.database.transaction(pipelined=pipelined) as cursor:
        record_outcomes(cursor, {key: FIRST})
    with pytest.raises(RepeatedRequestError), services.database.transaction(pipelined=pipelined) as cursor:
        record_outcomes(cursor, {other: SECOND, key: SECOND})
    with services.database.reading() as cursor:
        assert find_outcome(cursor, key) == FIRST
        assert find_outcome(cursor, other) is None


def test_settling_a_key_whose_outcome_is_too_old_replaces_it(services):
    key = uuid4()
    with services.database.transaction() as cursor:
        record_outcomes(cursor, {key: FIRST})
        cursor.execute("UPDATE duckicelake_idempotency SET created_at = now() - %s - interval '1s'", [OUTCOME_LIFETIME])
    with services.database.transaction() as cursor:
        record_outcomes(cursor, {key: SECOND})
    with services.database.reading() as cursor:
        assert find_outcome(cursor, key) == SECOND


def test_refusal_that_quotes_what_postgres_can_not_hold_is_noted_as_it_is(services):
    key, refusal = uuid4(), RequestOutcome(b"three", error=["InvalidRequest", 'row 3: \0 in "name" \\ \n'])
    with services.database.transaction() as cursor:
        record_outcomes(cursor, {key: refusal})
    with services.database.reading() as cursor:
        assert find_outcome(cursor, key) == refusal
