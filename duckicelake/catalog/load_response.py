"""LoadTable responses, and the fast path that answers from memory."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import orjson

from duckicelake.catalog.context.cache import CachedResponse, CachedTable, LoadedTable, Materialized
from duckicelake.catalog.context.caller import Principal
from duckicelake.catalog.context.meter import NO_METER, Meter
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.delegation import AccessRequest, Delegated
from duckicelake.catalog.table.load import TableCheck, build_freshness_query, check_freshness, is_current
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.side_tables.freshness import FreshnessLine, open_freshness_line
from duckicelake.lake.state import Freshness, FreshnessQuery

Deliver = Callable[[Freshness | None], object]
"""Hears how the table is at a moment after the question; None if it isn't there, or can't be asked about this way."""
ALL: Final = "all"
REFS: Final = "refs"
"""The representations: with all snapshots, or only those that refs name."""
LoadCallback = Callable[[LoadedTable | TableCheck | None], object]


class FreshnessChecks:
    """For one event loop. While a check is under way, those who ask are gathered for the next."""

    def __init__(self, line: FreshnessLine, meter: Meter = NO_METER) -> None:
        self._line = line
        self._meter = meter
        self._waiting: defaultdict[FreshnessQuery, list[Deliver]] = defaultdict(list)
        self._checking: asyncio.Task[None] | None = None

    def ask(self, asked: FreshnessQuery, deliver: Deliver) -> None:
        """Check, and deliver once, later: whatever happens."""
        self._waiting[asked].append(deliver)
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check_all())

    async def _check_all(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # who is being read from the sockets just now shall have a share in this check
            waiting, self._waiting = self._waiting, defaultdict(list)
            answers = await self._answers(list(waiting))
            for deliveries, fresh in zip(waiting.values(), answers, strict=True):
                _deliver_all(deliveries, fresh)

    async def _answers(self, asked: Sequence[FreshnessQuery]) -> Sequence[Freshness | None]:
        """As many as were asked for: None sends the request the slow way, which names the error."""
        sent = time.perf_counter()
        try:
            answers = await self._line.freshness(asked)
            self._meter.took("freshness", time.perf_counter() - sent)
        except Exception:  # noqa: BLE001
            answers = []
        return answers if len(answers) == len(asked) else [None] * len(asked)


def build_freshness_checks(services: Services) -> FreshnessChecks:
    """Return checks over a connection that is closed with the database."""
    return FreshnessChecks(open_freshness_line(services.database), services.meter)


def _deliver_all(deliveries: Iterable[Deliver], fresh: Freshness | None) -> None:
    for deliver in deliveries:
        try:
            deliver(fresh)
        except Exception as error:  # noqa: BLE001 - a bug of one who listens must not be felt by the others
            loop = asyncio.get_running_loop()
            loop.call_exception_handler({"message": "Who asked for a check failed at its answer", "exception": error})


def commit_response(table: Materialized) -> tuple[bytes, ...]:
    """Return the pieces of the answer to a commit."""
    return (b'{"metadata-location":', orjson.dumps(table.location), b',"metadata":', table.body, b"}")


def load_response(table: Materialized, metadata: bytes, representation: str, given: Delegated) -> LoadedTable:
    """Return the answer to a load; metadata: that representation of it."""
    more = orjson.dumps({"config": given.config, **given.members})
    location = orjson.dumps(table.location)
    tag = etag(table, representation)
    pieces = (b'{"metadata-location":', location, b',"metadata":', metadata, b",", more[1:])
    return LoadedTable(pieces, f"{tag}-{given.tag}" if given.tag else tag)


def etag(table: Materialized, representation: str) -> str:
    """Return unique for each representation and equal on all workers.

    A table that is registered again begins at version 0, and a failover may give a version's number to another: the
    name of its file says what is in it.
    """
    name = table.location.rpartition("/")[2].removesuffix(".metadata.json")
    return f"{table.row.table_uuid}-{table.row.table_id}-{name}-{representation}"


def metadata_of(services: Services, table: CachedTable, representation: str) -> bytes:
    """Return the table's metadata in JSON, in this representation."""
    if representation == ALL:
        return table.materialized.body
    kept = table.answers.bodies.get(representation)
    if kept is None:
        kept = _with_refs_only(table.materialized.metadata)
        services.cache.keep_body(table, representation, kept)
    return kept


def build_response_key(
    services: Services,
    principal: Principal,
    address: str,
    wish: AccessRequest,
    named_as: tuple[str, str],
    representation: str,
) -> Hashable:
    """Build the key of the response to this request, for one version of a table; named_as: its schema and name."""
    if not wish or services.access.gives_nothing:
        return representation
    return representation, principal, address, wish, named_as


def keep_response(
    services: Services, table: CachedTable, asking: Hashable, answer: LoadedTable, given: Delegated
) -> LoadedTable:
    """Return the answer, which whoever asks so again may get again."""
    response = CachedResponse(answer, given.until_ms, table.seen if given.may_change else None)
    services.cache.keep_response(table, asking, response)
    return answer


def _with_refs_only(metadata: TableMetadata) -> bytes:
    named_snapshots = {ref.snapshot_id for ref in metadata.refs.values()}
    return metadata.encoded(s for s in metadata.snapshots if s.snapshot_id in named_snapshots)


@dataclass(frozen=True, slots=True)
class LoadTableFastPath:
    """Answer loads from memory: the responses that `tables.load_table` and `tables.table_exists` gave before."""

    services: Services
    checks: FreshnessChecks

    def load(
        self,
        principal: Principal,
        address: str,
        wish: AccessRequest,
        named_as: tuple[str, str],
        representation: str,
        deliver: LoadCallback,
    ) -> bool:
        """Look for the cached response to a load, and ask Postgres whether it is current.

        `named_as` is the table's schema and name. `deliver` receives the response; or the check, if the response is
        out of date; or None, if Postgres has no such table or doesn't answer. The route must answer in these two cases.

        Returns:
            Whether `deliver` will be called. It is called after this function has returned.

        """
        services, asked_at = self.services, time.monotonic()
        known = services.cache.find(*named_as)
        if known is None:
            return False
        cached = known.answers.responses.get(
            build_response_key(services, principal, address, wish, named_as, representation)
        )
        if cached is None or services.clock() >= cached.until_ms:
            return False

        def answer(fresh: Freshness | None) -> None:
            deliver(None if fresh is None else self._find_response(cached, TableCheck(known, fresh, asked_at)))

        self.checks.ask(build_freshness_query(*named_as, known), answer)
        return True

    def exists(self, named_as: tuple[str, str], deliver: Callable[[bool], object]) -> None:
        """Deliver whether Postgres answers that the table exists."""
        self.checks.ask(FreshnessQuery(*named_as), lambda fresh: deliver(fresh is not None))

    def _find_response(self, cached: CachedResponse, check: TableCheck) -> LoadedTable | TableCheck:
        known, fresh = check.table, check.fresh
        if known is None or not is_current(known, fresh) or (cached.seen is not None and cached.seen != fresh.seen):
            return check
        self.services.cache.count(hit=True)
        check_freshness(self.services, known, fresh)
        return cached.loaded
