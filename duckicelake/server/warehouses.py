"""Route requests to the warehouses beside the first: opened at their first request, closed when idle.

The path of such a request has the warehouse's name behind `/v1/`, or another root of routes. The routes see the path
without it, and a context of their own.
"""

import asyncio
import re
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Final

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.warehouses import (
    FIRST_WAREHOUSE_NAME,
    Warehouse,
    WarehouseWiring,
    close_warehouse,
    is_database_lost,
    is_lake_gone,
    is_warehouse_name,
    list_warehouses,
    open_warehouse,
    parse_prefix,
    prepare_warehouse,
)
from duckicelake.errors import CatalogError, NoSuchWarehouseError, UnavailableError
from duckicelake.server.fast_path import LoadTableResponder
from duckicelake.server.http.errors import answer_catalog_error, build_error_response
from duckicelake.server.http.scope import CONTEXT_KEY, WAREHOUSE_KEY
from duckicelake.server.middleware.quotas import Quota
from duckicelake.server.routes.dependencies import ServerContext

ROUTE_ROOTS: Final = ("/v1/", "/pipeline/v1/", "/lineage/v1/", "/sql/v1/", "/duckdb/v1/", "/mcp/v1/", "/api/v1/")
"""Beginnings of paths behind which a warehouse's name may stand."""
_WAREHOUSES: Final = "/management/v1/warehouses/"
_OF_WAREHOUSE: Final = re.compile(r"(grants|decision|policies|policies/[^/]+|column-tags)")
"""What is managed by warehouse: behind the name of one, or without it for the first."""
REGISTRY_SECONDS: Final = 1.0
"""Seconds for which the registry counts as read: so long after a drop, other workers may still serve the warehouse."""
_MISS_SECONDS: Final = 0.05
"""Seconds between two looks for unknown names, which anybody may ask for."""


def split_warehouse(path: str) -> tuple[str, str] | None:
    """Split the path of a route into a warehouse's name and the path without it; None if it has no such name."""
    if path.startswith(_WAREHOUSES):
        name, _, what = path[len(_WAREHOUSES) :].partition("/")
        if _OF_WAREHOUSE.fullmatch(what) and is_warehouse_name(name):
            return name, f"/management/v1/{what}"
    for root in ROUTE_ROOTS:
        if path.startswith(root):
            segment, slash, rest = path[len(root) :].partition("/")
            found = parse_prefix(segment) if slash else None
            return None if found is None else (found, root + rest)
    return None


@dataclass(frozen=True, slots=True)
class WarehouseThrottle:
    """Refuse requests for a warehouse beyond its limits. rate: of all workers, by a name that is always the same."""

    at_once: int | None
    rate: Quota

    def find_refusal(self, under_way: int) -> ASGIApp | None:
        """Return the answer to a request that is refused; count one that isn't."""
        if self.at_once is not None and under_way >= self.at_once:
            return _refuse(
                f"This warehouse may have {self.at_once} requests answered by a worker at a time (max-requests), and "
                f"that many are under way; try again, nothing was done"
            )
        wait = self.rate.wait("")
        if wait:
            return _refuse(
                f"This warehouse may send {self.rate.rate:g} requests in a second (requests-per-second), and has sent "
                f"more: come again in {wait} s, nothing was done",
                wait,
            )
        self.rate.spend("", 1)
        return None


def _refuse(message: str, wait: int = 1) -> ASGIApp:
    headers = {"Retry-After": str(wait), "Connection": "close"}
    return build_error_response(429, "TooManyRequestsException", message, headers)


@dataclass(slots=True)
class WarehouseApp:
    """The app of one open warehouse.

    Attributes:
        layers: the middleware around the routes, made for its context.
        resources: what closing it ends: background tasks, connections.
        requests: how many are under way.
        used_at: when the last one ended, by time.monotonic.
        throttle: what its options let it take of the server.

    """

    row: Warehouse
    context: ServerContext
    layers: ASGIApp
    responder: LoadTableResponder
    resources: ExitStack
    throttle: WarehouseThrottle
    requests: int = 0
    used_at: float = field(default_factory=time.monotonic)
    is_retired: bool = False

    def is_idle_since(self, moment: float) -> bool:
        """Return whether no request came after a moment; answers from memory count."""
        return not self.requests and max(self.used_at, self.responder.replayed_at) < moment


BuildApp = Callable[[Warehouse, Services, ExitStack], WarehouseApp]


class WarehouseRouter:
    """Hand requests to the first warehouse's app or to another's; a `WarehouseDirectory`.

    All of it but opening and closing runs in the event loop.
    """

    def __init__(
        self,
        app: ASGIApp,
        services: Services,
        wiring: WarehouseWiring,
        build: BuildApp,
        most: int,
        idle_seconds: float,
        note_open: Callable[[int], object],
        note_failure: Callable[[str, Exception], object],
        note_refusal: Callable[[str], object],
    ) -> None:
        """Make the router.

        app: of the first warehouse, as its services. most: how many others may be open at a time. note_open: gets how
        many are open whenever that changes. note_failure: gets the name of a warehouse that failed to close.
        note_refusal: gets that of one that was sent more than it may have.
        """
        self.wiring = wiring
        self._app = app
        self._services = services
        self._build = build
        self._most = most
        self._idle_seconds = idle_seconds
        self._note_open = note_open
        self._note_failure = note_failure
        self._note_refusal = note_refusal
        self._rows: dict[str, Warehouse] = {}
        self._read_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._open: dict[str, WarehouseApp] = {}
        self._opening: dict[str, asyncio.Task[WarehouseApp]] = {}
        self._closing: set[asyncio.Future[None]] = set()
        self._sweeping: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = split_warehouse(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        name, path = found
        whole_path = scope["path"]
        scope["path"] = path
        try:
            if name == FIRST_WAREHOUSE_NAME:
                await self._app(scope, receive, send)
            else:
                await self._serve(name, path, scope, receive, send)
        finally:
            scope["path"] = whole_path

    async def _serve(self, name: str, path: str, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            opened = await self._find(name)
        except CatalogError as error:
            await answer_catalog_error(scope, error)(scope, receive, send)
            return
        scope[WAREHOUSE_KEY], scope[CONTEXT_KEY] = name, opened.context
        is_managed = path.startswith("/management/")
        refusal = None if is_managed else opened.throttle.find_refusal(opened.requests)
        if refusal is not None:
            self._note_refusal(name)
            await refusal(scope, receive, send)
            return
        opened.requests += 1
        try:
            await self._answer(opened, scope, receive, send)
        finally:
            opened.requests -= 1
            opened.used_at = time.monotonic()
            if opened.is_retired and not opened.requests:
                self._close(opened)

    async def _answer(self, opened: WarehouseApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; with the error of a warehouse that is gone, if its tables were dropped meanwhile."""
        has_started = False

        async def forward(message: Message) -> None:
            nonlocal has_started
            has_started = True
            await send(message)

        try:
            await opened.layers(scope, receive, forward)
        except Exception as error:
            self.forget()
            gone = await self._explain_gone(opened) if is_lake_gone(error) else None
            if gone is None or has_started:
                raise
            self._retire(opened)
            await answer_catalog_error(scope, gone)(scope, receive, send)

    async def _explain_gone(self, opened: WarehouseApp) -> CatalogError | None:
        """Return the error of a warehouse that is another one by now, or none any more; None for the same."""
        try:
            row = await self._find_row(opened.row.name)
        except CatalogError as error:
            return error
        return None if row == opened.row else UnavailableError(f"Warehouse {row.name} was made anew; try again")

    async def find_context(self, name: str) -> ServerContext:
        return (await self._find(name)).context

    def forget(self) -> None:
        self._read_at = float("-inf")

    def count_open(self) -> int:
        """Return how many warehouses beside the first are open in this worker."""
        return len(self._open)

    async def _find(self, name: str) -> WarehouseApp:
        row = await self._find_row(name)
        opened = self._open.get(name)
        if opened is not None:
            return opened
        if name not in self._opening:
            self._make_room()
            self._opening[name] = asyncio.create_task(self._open_row(row))
        return await asyncio.shield(self._opening[name])

    async def _find_row(self, name: str) -> Warehouse:
        """Find an active warehouse in the registry; NoSuchWarehouseError if there is none, UnavailableError."""
        asked_at = time.monotonic()
        if self._read_at < asked_at - REGISTRY_SECONDS:
            await self._read()
        while name not in self._rows and self._read_at < asked_at:
            await asyncio.sleep(max(0.0, self._read_at + _MISS_SECONDS - time.monotonic()))
            await self._read()
        if name not in self._rows:
            raise NoSuchWarehouseError(f"No such warehouse: {name}")
        return self._rows[name]

    async def _read(self) -> None:
        """Read the registry once, for all requests that wait for it, and close warehouses that aren't in it."""
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_registry())
        await asyncio.shield(self._reading)

    async def _read_registry(self) -> None:
        begun = time.monotonic()
        rows = await run_in_threadpool(list_warehouses, self._services)
        self._rows = {row.name: row for row in rows if row.is_active}
        self._read_at = begun
        for name, opened in list(self._open.items()):
            if self._rows.get(name) != opened.row or is_database_lost(opened.context.services):
                self._retire(opened)

    def _make_room(self) -> None:
        """Close the warehouse that was used longest ago, if as many are open as may be; UnavailableError."""
        if len(self._open) + len(self._opening) < self._most:
            return
        idle = [opened for opened in self._open.values() if not opened.requests]
        if not idle:
            raise UnavailableError(f"{self._most} warehouses are in use on this worker; nothing was done, try again")
        self._retire(min(idle, key=lambda opened: max(opened.used_at, opened.responder.replayed_at)))

    async def _open_row(self, row: Warehouse) -> WarehouseApp:
        try:
            opened = await run_in_threadpool(self._open_in_thread, row)
        finally:
            del self._opening[row.name]
        self._open[row.name] = opened
        self._note_open(len(self._open))
        if self._sweeping is None or self._sweeping.done():
            self._sweeping = asyncio.create_task(self._sweep())
        return opened

    def _open_in_thread(self, row: Warehouse) -> WarehouseApp:
        with ExitStack() as stack:
            services = open_warehouse(self._services, self.wiring, row)
            stack.callback(close_warehouse, self._services, services)
            prepare_warehouse(services)
            opened = self._build(row, services, stack)
            stack.enter_context(self.wiring.run_tasks(row, opened.context.services))
            opened.resources = stack.pop_all()
            return opened

    async def _sweep(self) -> None:
        """Close warehouses that are idle or not in the registry any more, again and again while any are open."""
        while self._open:
            await asyncio.sleep(min(self._idle_seconds / 2, REGISTRY_SECONDS))
            with suppress(CatalogError):  # Postgres may answer the next time
                await self._read()
            moment = time.monotonic() - self._idle_seconds
            for opened in list(self._open.values()):
                if opened.is_idle_since(moment):
                    self._retire(opened)

    def _retire(self, opened: WarehouseApp) -> None:
        """Give no more requests to a warehouse, and close it after those under way."""
        if self._open.get(opened.row.name) is opened:
            del self._open[opened.row.name]
            self._note_open(len(self._open))
        opened.is_retired = opened.responder.is_closed = True
        if not opened.requests:
            self._close(opened)

    def _close(self, opened: WarehouseApp) -> None:
        closing = asyncio.ensure_future(run_in_threadpool(self._close_in_thread, opened))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _close_in_thread(self, opened: WarehouseApp) -> None:
        try:
            opened.resources.close()
        except Exception as error:  # noqa: BLE001 - its lake may be gone; what there is to close is closed
            self._note_failure(opened.row.name, error)

    def close(self) -> None:
        """Close all warehouses, after the last request."""
        for opened in list(self._open.values()):
            opened.responder.is_closed = True
            self._close_in_thread(opened)
        self._open.clear()
