"""What many tests share is set up again after a test in which it failed: one failure on a busy machine stays one.

pytest keeps the failure of a session's or module's fixture, and gives it to each test after. A JVM's answers are off by
one once a call was interrupted, as a test's timeout does.
"""

import sys
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import suppress
from functools import partial
from typing import Any, Final

import pytest

MAX_SETUPS: Final = 3
"""A fixture that fails this often stays failed."""
_FAILURES: Final = pytest.StashKey[Counter[str]]()
_FAILED: Final = pytest.StashKey[list[Callable[[], None]]]()
"""Calls that end fixtures which have failed in the running test."""


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Note that a shared fixture failed, so that the next test sets it up again."""
    try:
        return (yield)
    except pytest.skip.Exception:
        raise
    except BaseException:
        failures = request.config.stash.setdefault(_FAILURES, Counter())
        name = f"{fixturedef.baseid}::{fixturedef.argname}"
        failures[name] += 1
        if fixturedef.scope != "function" and failures[name] < MAX_SETUPS:
            request.config.stash.setdefault(_FAILED, []).append(partial(fixturedef.finish, request))  # type: ignore[arg-type]
        raise


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """After a failure, ask the JVM by a new connection; once it has ended, start another one for the next test."""
    report = yield
    if report.when == "teardown":
        for end in item.config.stash.get(_FAILED, []):
            with suppress(Exception):  # its failure is in the report of the test that it failed for
                end()
        item.config.stash[_FAILED] = []
    if "pyspark" in sys.modules and item.get_closest_marker("spark"):
        if report.failed:
            renew_connection()
        if report.when == "teardown":
            _end_dead_spark(item)
    return report


def renew_connection() -> None:
    """Let this thread's next call of the JVM use a new connection: on the old one an answer may still come."""
    from pyspark import SparkContext  # noqa: PLC0415, most tests have no Spark

    gateway = SparkContext._gateway
    client: Any = gateway._gateway_client if gateway is not None else None
    connection = client.get_thread_connection() if client is not None else None
    if connection is not None:
        connection.close(reset=True)


def _end_dead_spark(item: pytest.Item) -> None:
    from pyspark import SparkContext  # noqa: PLC0415

    gateway: Any = SparkContext._gateway
    process = getattr(gateway, "proc", None)
    if process is None or process.poll() is None:
        return
    for fixture in item.session._fixturemanager.getfixturedefs("spark", item) or ():
        with suppress(Exception):  # whoever closes a session asks the JVM, which has ended
            fixture.finish(item._request)  # type: ignore[attr-defined]
    SparkContext._gateway = SparkContext._jvm = SparkContext._active_spark_context = None
