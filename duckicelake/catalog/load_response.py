"""LoadTable responses, and the fast path that answers from memory."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Final

import orjson

from duckicelake.bridge.labels import build_table_labels, compute_tags_digest
from duckicelake.catalog.context.cache import LoadedTable, TableVersion
from duckicelake.catalog.context.caller import Principal
from duckicelake.catalog.context.meter import NO_METER, Meter
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.delegation import AccessRequest, Delegated
from duckicelake.catalog.table.load import TableCheck, build_freshness_query, check_freshness, is_current
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake.side_tables.freshness import FreshnessLine, SchemaLine, open_freshness_line
from duckicelake.lake.state import Freshness, FreshnessQuery
from duckicelake.postgres.shared_pools import LeasedDatabase, SchemaDatabase
from duckicelake.properties import get_scan_planning_mode

Deliver = Callable[[Freshness | None], object]
"""Receives what Postgres answered about a table; None if there is no such table, or no answer."""
ALL: Final = "all"
REFS: Final = "refs"
BRIEF: Final = "brief"
"""The representations: with all snapshots, or only those that refs name; brief ones have no logs, either."""
_SCAN_PLANNING_MODE: Final = "scan-planning-mode"
"""The key of a table's config which clients obey over their own setting; PyIceberg alone doesn't."""
LoadCallback = Callable[[LoadedTable | TableCheck | None], object]


class FreshnessChecks:
    """Ask Postgres about tables from one event loop; questions that come during one check share the next."""

    def __init__(self, line: FreshnessLine | SchemaLine, meter: Meter = NO_METER) -> None:
        self.line = line
        self._meter = meter
        self._waiting: defaultdict[FreshnessQuery, list[Deliver]] = defaultdict(list)
        self._checking: asyncio.Task[None] | None = None

    def ask(self, asked: FreshnessQuery, deliver: Deliver) -> None:
        """Ask, and call `deliver` once, after this function has returned."""
        self._waiting[asked].append(deliver)
        if self._checking is None or self._checking.done():
            self._checking = asyncio.create_task(self._check_all())

    async def _check_all(self) -> None:
        while self._waiting:
            await asyncio.sleep(0)  # requests that the loop is reading now share this check
            waiting, self._waiting = self._waiting, defaultdict(list)
            answers = await self._answers(list(waiting))
            for deliveries, fresh in zip(waiting.values(), answers, strict=True):
                _deliver_all(deliveries, fresh)

    async def _answers(self, asked: Sequence[FreshnessQuery]) -> Sequence[Freshness | None]:
        """Return one answer for each question. After None the route answers the request, and names the error."""
        sent = time.perf_counter()
        try:
            answers = await self.line.freshness(asked)
            self._meter.took("freshness", time.perf_counter() - sent)
        except Exception:  # noqa: BLE001
            answers = []
        return answers if len(answers) == len(asked) else [None] * len(asked)


def build_freshness_checks(services: Services, shared: FreshnessChecks | None = None) -> FreshnessChecks:
    """Return checks over a connection that is closed with the database.

    shared: those of the first warehouse's database whose connection the warehouses beside it share.
    """
    database = services.database
    if shared is None or not isinstance(database, SchemaDatabase) or isinstance(database, LeasedDatabase):
        return FreshnessChecks(open_freshness_line(database), services.meter)
    assert isinstance(shared.line, FreshnessLine)
    return FreshnessChecks(SchemaLine(shared.line, database.search_path), services.meter)


def _deliver_all(deliveries: Iterable[Deliver], fresh: Freshness | None) -> None:
    for deliver in deliveries:
        try:
            deliver(fresh)
        except Exception as error:  # noqa: BLE001 - an error of one callback must not reach the others
            loop = asyncio.get_running_loop()
            loop.call_exception_handler(
                {"message": "A callback failed at the answer to a freshness check", "exception": error}
            )


@dataclass(frozen=True, slots=True)
class TableLoad:
    """A request to load a table: what the response depends on besides the table's version.

    Attributes:
        named_as: The table's schema and name.
        representation: `ALL`, `REFS` or `BRIEF`.

    """

    principal: Principal
    address: str
    wish: AccessRequest
    named_as: tuple[str, str]
    representation: str


def load_response(services: Services, table: TableVersion, request: TableLoad, given: Delegated) -> LoadedTable:
    """Build the response to a load, and keep it in the cache."""
    given = _add_restriction(table, request.principal, given)
    response = build_response(table, _read_metadata(services, table, request), request.representation, given)
    if request.principal.loan is None:  # lent rights are those of one request
        services.cache.keep_response(table, _find_key(services, request, table.row.table_id), response)
    return response


def _add_restriction(table: TableVersion, principal: Principal, given: Delegated) -> Delegated:
    """Add what policies make a trusted engine hide."""
    restriction = principal.find_restriction(table.row.table_id)
    if restriction is None:
        return given
    members = {"read-restrictions": restriction.fit(table.metadata.schema(), table.metadata.schemas).to_json()}
    tag = sha256(orjson.dumps([given.tag, members])).hexdigest()[:16]
    return replace(given, members={**given.members, **members}, tag=tag)


def build_response(table: TableVersion, metadata: bytes, representation: str, given: Delegated) -> LoadedTable:
    """Build the response to a load. metadata: that representation of the table's metadata."""
    location, config = table.location, _build_planning_config(table) | given.config
    labels = build_table_labels(table.metadata, table.tags)
    more = orjson.dumps({"config": config, **given.members, **({"labels": labels} if labels else {})})
    pieces = (b'{"metadata-location":', orjson.dumps(location), b',"metadata":', metadata, b",", more[1:])
    tag = _build_etag(table, representation)
    return LoadedTable(
        pieces,
        etag=f"{tag}-{given.tag}" if given.tag else tag,
        until_ms=given.until_ms,
        seen=table.seen if given.may_change else None,
    )


def _build_planning_config(table: TableVersion) -> dict[str, str]:
    mode = get_scan_planning_mode(table.metadata.properties, table.metadata.format_version)
    return {} if mode is None else {_SCAN_PLANNING_MODE: mode}


def commit_response(table: TableVersion) -> LoadedTable:
    """Build the response to a commit."""
    location = table.location
    pieces = (b'{"metadata-location":', orjson.dumps(location), b',"metadata":', table.body, b"}")
    return LoadedTable(pieces, _build_etag(table, ALL))


def _build_etag(table: TableVersion, representation: str) -> str:
    """Build a tag that is unique for each representation and equal on all workers.

    A table that is registered again begins at version 0, and a failover may give a version's number to another: the
    name of its file says what is in it. DuckLake's tags are in no file.
    """
    name, row = table.location.rpartition("/")[2].removesuffix(".metadata.json"), table.row
    tags = f"-{compute_tags_digest(table.tags)}" if table.tags else ""
    return f"{row.table_uuid}-{row.table_id}-{name}{tags}-{representation}"


def _read_metadata(services: Services, table: TableVersion, request: TableLoad) -> bytes:
    """Return the table's metadata in JSON, in the representation that is requested."""
    if request.representation == ALL:
        return table.body
    kept = table.responses.metadata.get(request.representation)
    if kept is None:
        kept = _encode_with_refs_only(table.metadata, has_logs=request.representation == REFS)
        services.cache.keep_metadata(table, request.representation, kept)
    return kept


def _find_key(services: Services, request: TableLoad, table_id: int) -> Hashable:
    """Find the key of the response to a request, among the responses of one version of a table.

    Restrictions, like keys, are those of the request's principal, with the rights that it had.
    """
    is_own = request.wish and not services.access.gives_nothing
    is_own = is_own or request.principal.find_restriction(table_id) is not None
    return request if is_own else request.representation


def _encode_with_refs_only(metadata: TableMetadata, *, has_logs: bool) -> bytes:
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    snapshots = tuple(snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in named)
    if has_logs:
        return metadata.encode(snapshots)
    return metadata.replace_fields(snapshots=snapshots, snapshot_log=(), metadata_log=()).encode()


@dataclass(frozen=True, slots=True)
class LoadTableFastPath:
    """Answer loads from memory: the responses that `tables.load_table` and `tables.table_exists` gave before."""

    services: Services
    checks: FreshnessChecks

    def load(self, request: TableLoad, deliver: LoadCallback) -> bool:
        """Look for the cached response to a load, and ask Postgres whether it is current.

        `deliver` receives the response; or the check, if the response is out of date; or None, if Postgres has no such
        table or doesn't answer. The route must answer in these two cases.

        Returns:
            Whether `deliver` will be called. It is called after this function has returned.

        """
        services, asked_at = self.services, time.monotonic()
        known, principal = services.cache.find(*request.named_as), request.principal
        if known is None or not principal.knows(known.row.table_id) or principal.is_kept_from(known.row.table_id):
            return False
        response = known.responses.by_request.get(_find_key(services, request, known.row.table_id))
        if response is None or services.clock() >= response.until_ms:
            return False

        def answer(fresh: Freshness | None) -> None:
            deliver(None if fresh is None else self._check_response(response, TableCheck(known, fresh, asked_at)))

        self.checks.ask(build_freshness_query(*request.named_as, known), answer)
        return True

    def exists(self, named_as: tuple[str, str], deliver: Callable[[bool], object]) -> None:
        """Deliver whether Postgres answers that the table exists."""
        self.checks.ask(FreshnessQuery(*named_as), lambda fresh: deliver(fresh is not None))

    def _check_response(self, response: LoadedTable, check: TableCheck) -> LoadedTable | TableCheck:
        """Return the response if it is current, else the check."""
        known, fresh = check.table, check.fresh
        if known is None or not is_current(known, fresh) or (response.seen is not None and response.seen != fresh.seen):
            return check
        self.services.cache.count(hit=True)
        check_freshness(self.services, known, fresh)
        return response
