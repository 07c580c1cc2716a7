"""The thread of `duckicelake serve` that looks whose the warehouse is, and says that this server runs."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from duckicelake.catalog import warehouse
from duckicelake.catalog.background import in_thread
from duckicelake.catalog.services import Services
from duckicelake.catalog.warehouse import WarehouseStanding
from duckicelake.cli.assembly.opening import running_server
from duckicelake.errors import CatalogError
from duckicelake.lake.identity import RunningServer
from duckicelake.server.telemetry.logging import make_logger
from duckicelake.settings import Settings

_LOOK_SECONDS: Final = 30.0


@contextmanager
def warehouse_watch_of(settings: Settings, services: Services) -> Iterator[None]:
    """Close the gate while the warehouse is another lake's, and warn of it, for as long as the context lasts.

    Raises InvalidSettings as `RunningServer.check`, Unavailable.
    """
    watch = _Watch(settings, services, running_server(services))
    watch.look()
    try:
        with in_thread("warehouse-watch", watch.run):
            yield
    finally:
        watch.end()


class _Watch:
    def __init__(self, settings: Settings, services: Services, server: RunningServer) -> None:
        self._log = make_logger(sys.stderr, settings.log_format)
        self._services = services
        self._server = server
        self._last = WarehouseStanding()

    def run(self, ended: threading.Event) -> None:
        while not ended.wait(_LOOK_SECONDS):
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - whatever it was, the next look may succeed
                self._log.warning("it couldn't be seen whose the warehouse is", error=str(error))

    def look(self) -> None:
        """Register the server, and warn where the standing is another than at the last look."""
        with self._services.database.transaction() as cursor:
            self._server.register(cursor)
        standing = warehouse.look(self._services)
        reason = standing.refusal or standing.doubt
        if reason is not None and reason != (self._last.refusal or self._last.doubt):
            effect = "tables are served, but nothing is written" if standing.refusal else "gc deletes nothing"
            self._log.warning("whose the warehouse is isn't clear", effect=effect, reason=reason)
        self._last = standing

    def end(self) -> None:
        with suppress(CatalogError), self._services.database.transaction() as cursor:
            self._server.forget(cursor)
