"""How long a stream waits for its catalog."""

from duckicelake.pipeline.stream import MAX_OUTAGE_SECONDS, Outage


def test_the_retry_time_is_measured_from_the_first_failure_of_a_row_of_failures() -> None:
    outage, long_after_the_start = Outage(), 10 * MAX_OUTAGE_SECONDS
    moments = [long_after_the_start + waited for waited in (0, MAX_OUTAGE_SECONDS, MAX_OUTAGE_SECONDS + 1)]
    assert [outage.is_too_long(moment) for moment in moments] == [False, False, True]
    outage.end()
    assert not outage.is_too_long(moments[-1] + 1)
