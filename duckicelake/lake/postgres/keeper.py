"""The thread that starts the embedded Postgres again when it has ended, killed by the system or by mistake."""

import threading
from collections.abc import Callable
from typing import Final

from duckicelake.errors import CatalogError
from duckicelake.lake.postgres.start import RunningPostgres

Warn = Callable[[str], object]
_LOOK_SECONDS: Final = 0.5
_MAX_PAUSE_SECONDS: Final = 30.0
"""Between two starts that fail; the first pause is `_LOOK_SECONDS`, and each is twice the one before."""


_START_SECONDS: Final = 5.0


class PostgresKeeper:
    """Looks after one Postgres, from `keep` to `release`."""

    def __init__(self, server: RunningPostgres, start: Callable[[], RunningPostgres]) -> None:
        self._server = server
        self._start = start
        self._released = threading.Event()
        self._thread: threading.Thread | None = None

    def keep(self, warn: Warn) -> None:
        """Start it again whenever it has ended. warn: gets what has happened."""
        self._thread = threading.Thread(target=self._run, args=(warn,), name="postgres-keeper", daemon=True)
        self._thread.start()

    def release(self) -> RunningPostgres:
        """The server as it is now, which isn't started again. A start under way is waited for, but not for ever."""
        self._released.set()
        if self._thread is not None:
            self._thread.join(_START_SECONDS)
        return self._server

    def _run(self, warn: Warn) -> None:
        pause = _LOOK_SECONDS
        while not self._released.wait(pause):
            if self._server.is_running():
                pause = _LOOK_SECONDS
            elif self._restart(warn):
                warn("the embedded Postgres had ended; it runs again")
            else:
                pause = min(2 * pause, _MAX_PAUSE_SECONDS)

    def _restart(self, warn: Warn) -> bool:
        try:
            self._server = self._start()
        except (CatalogError, OSError) as error:
            warn(f"the embedded Postgres has ended and can't be started: {error}")
            return False
        return True
