"""A test that its timeout interrupts in a call of the JVM, or whose JVM ends, takes nothing from the tests after it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pyspark.sql import SparkSession

from tests.support.renewal import renew_connection

pytestmark = [pytest.mark.more_engines, pytest.mark.engine, pytest.mark.spark]


class InterruptionError(BaseException):
    """As pytest-timeout's, which it raises from a signal's handler: py4j handles exceptions of other kinds."""


@contextmanager
def interrupted(seconds: float) -> Iterator[None]:
    def end(*_: object) -> None:
        raise InterruptionError

    before = signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_answers_after_an_interruption_are_those_that_were_asked_for(spark: SparkSession) -> None:
    jvm = spark._jvm
    assert jvm is not None
    with (
        pytest.raises(InterruptionError) as kept,
        interrupted(0.5),
    ):  # what pytest keeps of a failure keeps the connection
        jvm.java.lang.Thread.sleep(20_000)
    renew_connection()
    assert [jvm.java.lang.Long.parseLong(str(number)) for number in range(50)] == list(range(50))
    assert spark.sql("SELECT 1 AS one").collect() == [(1,)]
    assert kept.type is InterruptionError


def test_a_connection_that_is_closed_already_is_renewed(spark: SparkSession) -> None:
    renew_connection()
    renew_connection()
    assert spark.sql("SELECT 2 AS two").collect() == [(2,)]


def test_a_jvm_that_ended(spark: SparkSession) -> None:
    """What it leaves is for the next test."""
    process = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    process.kill()
    assert process.wait(30) == -signal.SIGKILL


def test_has_another_started_for_the_next_test(spark: SparkSession) -> None:
    assert spark.sql("SELECT 3 AS three").collect() == [(3,)]
