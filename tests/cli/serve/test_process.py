"""A server that starts anew: what was there a moment ago may be away just now, and is waited for."""

import socket

import pytest

from duckicelake.cli.serve import server
from duckicelake.cli.serve.process import ShutdownDeadline
from duckicelake.errors import InvalidSettingsError, UnavailableError
from duckicelake.settings.model import Settings


def caused_by(cause: Exception | None) -> InvalidSettingsError:
    error = InvalidSettingsError("the warehouse can't be used")
    error.__cause__ = cause
    return error


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch) -> list[bool | Exception]:
    """What becomes of each start, in turn: whether another is due, or why it came to nothing."""
    outcomes: list[bool | Exception] = []

    def start(_: Settings, listener: socket.socket, *__: object, creates: bool) -> bool:
        assert not creates
        listener.close()
        outcome = outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    monkeypatch.setattr(server, "_serve_until_failover", start)
    monkeypatch.setattr(server, "_PAUSE_SECONDS", 0)
    return outcomes


def serve() -> None:
    with socket.socket() as listener:
        server._serve_here(Settings(), listener, lambda: None, ShutdownDeadline(60), creates=False)


def test_postgres_and_store_that_are_away_are_waited_for(starts: list[bool | Exception]) -> None:
    starts += [True, UnavailableError("Postgres"), caused_by(UnavailableError("the store")), True, False]
    serve()
    assert starts == []


def test_what_lasts_ends_the_server(starts: list[bool | Exception]) -> None:
    starts += [True, caused_by(None), False]
    with pytest.raises(InvalidSettingsError):
        serve()
