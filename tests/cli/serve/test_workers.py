"""The parent of workers waits for none that was killed, or starts when all is to end, nor for ever for one to end."""

import os
import signal
from collections.abc import Iterator

import pytest
from uvicorn import Config
from uvicorn.supervisors.multiprocess import SIGNALS, Process

from duckicelake.cli.serve.supervisor import Supervisor

FOR_EVER = 3600.0


@pytest.fixture
def supervisor() -> Iterator[Supervisor]:
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    yield Supervisor(Config("tests.no.such:app", workers=1), [])
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture
def stuck(supervisor: Supervisor) -> Iterator[Process]:
    """A worker that never answers."""
    worker = Process(supervisor.config, [])
    worker.start()
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGSTOP)
    yield worker
    worker.kill()
    worker.join()


def test_worker_that_is_killed_after_it_was_asked_is_not_waited_for(supervisor: Supervisor, stuck: Process) -> None:
    stuck.process.kill()
    assert not supervisor.is_well(stuck, FOR_EVER)


def test_worker_that_does_not_answer_is_not_waited_for_once_all_is_to_end(
    supervisor: Supervisor, stuck: Process
) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    assert supervisor.is_well(stuck, FOR_EVER)
    assert not supervisor.should_exit.is_set(), "the signal is still to be handled"


def test_worker_that_does_not_answer_in_time_is_not_well(supervisor: Supervisor, stuck: Process) -> None:
    assert not supervisor.is_well(stuck, 0.0)


def test_worker_that_does_not_end_is_killed_at_last(supervisor: Supervisor, stuck: Process) -> None:
    supervisor.processes.append(stuck)
    supervisor.join_all(grace=0.1)
    assert stuck.exitcode == -signal.SIGKILL
