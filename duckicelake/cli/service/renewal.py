"""A server's new start after Postgres has failed over: what it remembers may be of commits that are lost."""

import threading
from collections.abc import Callable

from uvicorn import Server

from duckicelake.errors import CatalogError, Unavailable

FAILED_OVER = "Postgres has failed over: this server starts anew, as it may remember commits that are lost"


def may_pass(error: CatalogError) -> bool:
    """Whether the next start may do: database and store answered before, so they are only away for a while."""
    return isinstance(error, Unavailable) or isinstance(error.__cause__, Unavailable)


class Renewal:
    """Ends one server so that another can begin in the same process."""

    def __init__(self, warn: Callable[[str], object]) -> None:
        self._warn = warn
        self._lock = threading.Lock()
        self._server: Server | None = None
        self.is_due = False

    def ask_for(self) -> None:
        """Have the server answer what is under way, and end."""
        self._warn(FAILED_OVER)
        with self._lock:
            self.is_due = True
            if self._server is not None:
                self._server.should_exit = True

    def watch(self, server: Server) -> None:
        """It is this server that is to end, at once if that was asked for before."""
        with self._lock:
            self._server = server
            server.should_exit = self.is_due
