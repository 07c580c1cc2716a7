"""Run one query for a caller: resolve its tables at one snapshot, check what the caller may read, stream the answer."""

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import AbstractContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from functools import partial
from itertools import islice
from secrets import token_bytes
from typing import Any, Final
from uuid import UUID

from anyio.to_thread import run_sync

from duckicelake.bridge.values.columns import to_schema
from duckicelake.bridge.values.types import quote_identifier
from duckicelake.catalog.authz.definers import find_lender, lend, read_view
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.caller import build_refusal
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.time_travel import resolve_snapshot
from duckicelake.errors import (
    ForbiddenError,
    InvalidRequestError,
    NoSuchTableError,
    NotFoundError,
    UnsupportedError,
)
from duckicelake.extras import import_extra
from duckicelake.iceberg.identifiers import (
    Namespace,
    format_full_name,
    parse_readable_namespace,
    parse_schema_name,
    to_schema_name,
)
from duckicelake.iceberg.snapshot import Snapshot, SnapshotLogEntry
from duckicelake.lake.ducklake import native
from duckicelake.lake.ducklake.database import build_attach_source, quote_literal
from duckicelake.lake.ducklake.snapshots import read_lake_format
from duckicelake.lake.formats import FORMAT_1_0, LakeFormat
from duckicelake.lake.side_tables import reader
from duckicelake.postgres.queries import Transaction, load_queries
from duckicelake.query.plan import QueryExplanation, TableRead, build_plan
from duckicelake.query.pool import ProcessTurn, QueryProcesses
from duckicelake.query.processes import EXTENSIONS, Message, OpenOrder, QueryProcess, find_extension
from duckicelake.query.reach import (
    build_bucket_settings,
    build_secrets,
    find_vendor,
    is_in_buckets,
    list_directories,
    load_queried_table,
)
from duckicelake.query.registry import run_reported
from duckicelake.query.restricted import RESTRICTED_SETTINGS, take_exact_types, write_visible_rows
from duckicelake.query.statement import (
    LAKE,
    ResolvedSnapshot,
    ResolvedTable,
    ResolvedView,
    RestrictedTable,
    TableUse,
    check_statement,
)
from duckicelake.query.statement_errors import explain_errors

_SQL = load_queries("query", "tables")
_MAX_SUGGESTIONS: Final = 3
_MAX_COMPARED_NAMES: Final = 10
_MAX_STATEMENT_BYTES: Final = 1024 * 1024
_FOREIGN_FILE: Final = re.compile(r"\.(parquet|csv|tsv|json|ndjson|arrow|avro|xlsx)(\.gz|\.zst)?$|://", re.IGNORECASE)
_SALT_BYTES: Final = 32
GRACE_SECONDS: Final = 2.0
"""How long a query may go on after its time, until its process is killed."""
_SNAPSHOT_SETTINGS: Final[Mapping[str, Any]] = {"disabled_optimizers": "statistics_propagation"}
"""DuckDB 1.5.5 plans a read of a snapshot by the statistics of the newest one: it loses and changes values of rows that
have left the table since. Every query reads one snapshot, whatever is committed meanwhile."""
_QUOTED_NAME: Final = re.compile(r'"((?:[^"]|"")*)"')


@dataclass(frozen=True, slots=True)
class QueryOrder:
    """A query, as a request asks for it.

    Attributes:
        namespace: where tables are looked up that the query names without one.
        at: a DuckLake snapshot, a time, or a branch or tag of each table; None is now.
        format: arrow, csv or json.
        rows: at most so many are answered.
        query_id: by which it is listed and cancelled.

    """

    query_id: UUID
    sql: str
    namespace: Namespace
    at: str | None
    format: str
    rows: int
    seconds: float
    is_explain: bool = False


@dataclass(frozen=True, slots=True)
class QueryAnswer:
    """An answer that has begun. snapshot_id: DuckLake's, of all tables, unless `at` named a branch or tag."""

    snapshot_id: int
    pieces: AsyncIterator[memoryview]


@dataclass(slots=True)
class TableResolver:
    """Resolve the tables of a query in one transaction, at one snapshot; refuse those that the caller may not read.

    tables: those that were found, by id. reads: what was found for each name, with the table's name of today.
    is_restricted: policies hide a part of one of them, or a definer view does. salt: of hashes that are alike within
    this query alone.
    """

    services: Services
    cursor: Transaction
    order: QueryOrder
    snapshot_id: int
    process: QueryProcess
    tables: dict[int, tuple[Namespace, str]] = field(default_factory=dict)
    reads: list[TableRead] = field(default_factory=list)
    is_restricted: bool = False
    salt: bytes = field(default_factory=lambda: token_bytes(_SALT_BYTES), repr=False)

    def resolve(self, use: TableUse) -> ResolvedTable | ResolvedSnapshot | RestrictedTable | ResolvedView:
        """Find a table or view. Raises ForbiddenError, NoSuchTableError, UnsupportedError."""
        namespace, name = self._parse(use)
        self._check_caller(use.view, namespace, name)
        table_id = reader.find_table_id(self.cursor, to_schema_name(namespace), name)
        if table_id is not None:
            found = self._find_version(use, table_id, namespace, name)
            self.reads.append(TableRead(namespace, name, found))
            return self._restrict(found, table_id)
        defined = read_view(self.cursor, namespace, name)
        if defined is None:
            is_file = _FOREIGN_FILE.search(name) is not None
            hint = "; no file is read here, only tables and views" if is_file else self._suggest(namespace, name)
            raise NoSuchTableError(f"Table or view does not exist: {format_full_name(namespace, name)}{hint}")
        view = defined.lake
        if view.definition.dialect != "duckdb":
            raise UnsupportedError("queries", f"The view {name} has no SQL of DuckDB, only {view.definition.dialect}'s")
        if use.version is not None:
            raise InvalidRequestError(f"AT is for tables; {name} is a view")
        tree = self.process.parse(view.definition.query)
        if tree["error"]:
            raise UnsupportedError("queries", f"DuckDB can't parse the view {name}: {tree.get('error_message')}")
        has_grants = self.services.caller.principal.has_grants
        own = find_lender(self.services, self.cursor, defined) if has_grants else None
        self.is_restricted |= own is not None
        lender = own or (None if use.view is None else use.view.lender)
        return ResolvedView(
            format_full_name(namespace, name),
            tree["statements"][0],
            tuple(_parse_aliases(view.definition.column_aliases)),
            namespace,
            lender,
            frozenset() if lender is None else defined.find_sources(),
            is_barrier=own is not None,
        )

    def explain_errors(self) -> AbstractContextManager[None]:
        """Explain the errors of the query in a block, after its tables have been resolved."""
        return explain_errors(self.services, self.tables, is_restricted=self.is_restricted)

    def _check_caller(self, view: ResolvedView | None, namespace: Namespace, name: str) -> None:
        """Check that the caller may read a table or view, or that the view which names it lends the right.

        A plan shows what statistics say of tables, which no view lends.
        """
        principal, place = self.services.caller.principal, (namespace, name)
        if principal.may_query(namespace, name):
            return
        is_lent = view is not None and place in view.sources and not self.order.is_explain
        lender = view.lender if view is not None and is_lent else None
        if lender is None or lend(principal, lender, place, is_query=True) is None:
            raise build_refusal(namespace, name, principal)

    def _suggest(self, namespace: Namespace, name: str) -> str:
        """Return "; did you mean …?" with names like this one that the caller may read; empty if there are none."""
        rows = self.cursor.execute(_SQL.like_names, {"schema_name": to_schema_name(namespace), "name": name}).fetchall()
        places = {f"{schema}.{found}": (parse_readable_namespace(schema), found) for schema, found in rows}
        same = [full for full, (_, found) in places.items() if found.lower() == name.lower()]
        alike = get_close_matches(f"{to_schema_name(namespace)}.{name}", [*places], n=_MAX_COMPARED_NAMES)
        near = (places[full] for full in dict.fromkeys([*same[:_MAX_COMPARED_NAMES], *alike]))
        may_query = self.services.caller.principal.may_query
        seen = (format_full_name(of, found) for of, found in near if of is not None and may_query(of, found))
        names = [*islice(seen, _MAX_SUGGESTIONS)]
        return f"; did you mean {' or '.join(names)}?" if names else ""

    def _parse(self, use: TableUse) -> tuple[Namespace, str]:
        """Parse a name: `t`, `ns.t`, `a.b.t` or `"a.b".t`; `lake` before it says nothing.

        `t` is in the namespace of the view that names it, or in that of the query.
        """
        *levels, name = use.parts
        if len(levels) == 2 and levels[0] == LAKE:
            levels = levels[1:]
        if not levels:
            return self.order.namespace if use.view is None else use.view.namespace, name
        return parse_schema_name(".".join(levels)), name

    def _find_version(
        self, use: TableUse, table_id: int, namespace: Namespace, name: str
    ) -> ResolvedTable | ResolvedSnapshot:
        self.tables[table_id] = (namespace, name)
        version = use.version if use.version is not None else self._choose_version()
        if isinstance(version, str):
            found_version = self._find_ref(namespace, name, version)
            if isinstance(found_version, ResolvedSnapshot):
                return found_version
            version = found_version
        found = self.cursor.execute(_SQL.name_at, {"table_id": table_id, "snapshot_id": version}).fetchone()
        if found is None:
            full_name = format_full_name(namespace, name)
            raise NoSuchTableError(f"Table {full_name} did not exist at snapshot {version} of DuckLake")
        return ResolvedTable(str(found[0]), str(found[1]), version)

    def _restrict(
        self, found: ResolvedTable | ResolvedSnapshot, table_id: int
    ) -> ResolvedTable | ResolvedSnapshot | RestrictedTable:
        """Return what the caller sees of a table, whichever view names it: no one lends rights to hidden rows."""
        namespace, name = self.tables[table_id]
        restriction = self.services.caller.principal.find_restriction(table_id)
        if restriction is None:
            return found
        self.is_restricted = True
        if self.order.is_explain:
            hidden = f"Policies hide rows or values of {format_full_name(namespace, name)} from the caller"
            raise ForbiddenError(f"{hidden}, and a plan tells of them: run the query without explain")
        if isinstance(found, ResolvedSnapshot):
            source = f"iceberg_scan({quote_literal(found.location)}, snapshot_from_id => {found.snapshot_id}::UBIGINT)"
            select = write_visible_rows(source, found.schema, restriction, self.salt)
        else:
            levels = ".".join(map(quote_identifier, (LAKE, found.schema, found.name)))
            schema = to_schema(native.read_columns(self.cursor, table_id, found.version), 0)
            known = load_queried_table(self.services, namespace, name).metadata.schema()
            source = f"{levels} AT (VERSION => {found.version})"
            select = write_visible_rows(source, take_exact_types(schema, known), restriction, self.salt)
        return RestrictedTable(self.process.parse(select)["statements"][0])

    def _choose_version(self) -> int | str:
        """Return the snapshot of the query, or the branch or tag of each table."""
        at = self.order.at
        return self.snapshot_id if at is None or parse_moment(at) is not None else at

    def _find_ref(self, namespace: Namespace, name: str, ref: str) -> int | ResolvedSnapshot:
        """Return DuckLake's snapshot of a branch or tag, or Iceberg's of what was committed to a branch alone."""
        table = load_queried_table(self.services, namespace, name)
        snapshot = resolve_snapshot(self.services, table, ref)
        number = find_main_number(table, snapshot)
        if number is not None:
            return number
        find_extension("iceberg")
        schema = table.metadata.schema(snapshot.schema_id)
        return ResolvedSnapshot(table.location, snapshot.snapshot_id, schema)


def find_main_number(table: TableVersion, snapshot: Snapshot) -> int | None:
    """Return the DuckLake snapshot at which main was this snapshot; None if no such number is sure.

    A snapshot that was committed to a branch has a number, too, at which main was another. Main may have got it later.
    """
    entry = SnapshotLogEntry(snapshot_id=snapshot.snapshot_id, timestamp_ms=snapshot.timestamp_ms)
    if entry not in table.metadata.snapshot_log:
        return None
    number = next(row.ducklake_id for row in table.state.snapshots if row.snapshot_id == snapshot.snapshot_id)
    is_only = sum(row.ducklake_id == number for row in table.state.snapshots) == 1
    return number if is_only else None


def parse_moment(at: str) -> int | datetime | None:
    """Parse a snapshot's number or a time, in UTC unless it has an offset; None for what is neither."""
    if at.isdecimal():
        return int(at)
    try:
        moment = datetime.fromisoformat(at)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


@asynccontextmanager
async def run_query(services: Services, processes: QueryProcesses, order: QueryOrder) -> AsyncIterator[QueryAnswer]:
    """Run a query; the block reads the pieces of its answer, and ends the query with them.

    Raises InvalidRequestError, ForbiddenError, NoSuchTableError, NotFoundError, UnsupportedError, UnavailableError,
    TooManyRequestsError, ConflictError.
    """
    async with _take_turn(services, processes, order) as turn:
        snapshot_id, first = await processes.work_anew(turn, partial(_begin_answer, services, processes, order, turn))
        async with aclosing(_read_pieces(turn.process, first, order.seconds + GRACE_SECONDS)) as pieces:
            yield QueryAnswer(snapshot_id, pieces)


async def explain_query(services: Services, processes: QueryProcesses, order: QueryOrder) -> QueryExplanation:
    """Plan a query without running it; raises as `run_query`."""
    async with _take_turn(services, processes, order) as turn:

        async def explain() -> QueryExplanation:
            return await turn.process.work(partial(_explain, services, order, turn.process))

        return await processes.work_anew(turn, explain)


async def _begin_answer(
    services: Services, processes: QueryProcesses, order: QueryOrder, turn: ProcessTurn
) -> tuple[int, Message]:
    """Check a query and run it; return its snapshot, and the first message of the answer."""
    resolver, message = await turn.process.work(partial(check_query, services, order, turn.process))
    if resolver.is_restricted and not services.caller.principal.has_restrictions:
        await processes.change(turn, await run_sync(partial(build_open_order, services, is_restricted=True)))
    return resolver.snapshot_id, await turn.process.work(partial(_begin, resolver, message, turn.process))


@asynccontextmanager
async def _take_turn(services: Services, processes: QueryProcesses, order: QueryOrder) -> AsyncIterator[ProcessTurn]:
    check_length(order.sql)
    is_restricted = services.caller.principal.has_restrictions
    opening = await run_sync(partial(build_open_order, services, is_restricted=is_restricted))
    async with (
        processes.take(opening) as turn,
        run_reported(services, order.query_id, order.sql, turn),
    ):
        yield turn


def check_length(sql: str) -> None:
    """Check that a statement isn't longer than 1 MiB. Raises InvalidRequestError."""
    if len(sql.encode()) > _MAX_STATEMENT_BYTES:
        raise InvalidRequestError("The statement is longer than 1 MiB")


async def _read_pieces(process: QueryProcess, message: Message, seconds: float) -> AsyncGenerator[memoryview, None]:
    while message[0] == b"D":
        yield process.find_piece(message[1])
        process.free_place()
        message = await process.work(partial(process.receive, seconds))


def _begin(resolver: TableResolver, message: Mapping[str, Any], process: QueryProcess) -> Message:
    """Send a checked query to its process; return the first message of the answer."""
    order = resolver.order
    process.send(b"Q", json.dumps({**message, "format": order.format, "rows": order.rows}).encode())
    with resolver.explain_errors():
        return process.receive(order.seconds + GRACE_SECONDS)


def _explain(services: Services, order: QueryOrder, process: QueryProcess) -> QueryExplanation:
    """Check the query, have it planned, and look up the files of its scans."""
    resolver, message = check_query(services, order, process)
    _, answer = process.ask(b"L", json.dumps(message).encode(), order.seconds + GRACE_SECONDS)
    newest = resolver.snapshot_id if order.at is None else None
    return build_plan(services, json.loads(answer), resolver.reads, newest)


def check_query(
    services: Services, order: QueryOrder, process: QueryProcess
) -> tuple[TableResolver, Mapping[str, Any]]:
    """Check the query; return what it reads, and what its process is sent."""
    parsed = process.parse(order.sql)
    with services.database.reading() as cursor:
        resolver = TableResolver(services, cursor, order, _find_snapshot(cursor, order.at), process)
        tree = check_statement(parsed, resolver.resolve, order.sql)
    secrets = build_secrets(services, resolver.tables.values()) if is_in_buckets(services) else {}
    return resolver, {"tree": tree, "secrets": secrets, "seconds": order.seconds}


def _find_snapshot(cursor: Transaction, at: str | None) -> int:
    """Find DuckLake's snapshot of a moment; the newest for a tag."""
    moment = None if at is None else parse_moment(at)
    if isinstance(moment, int):
        found = cursor.execute(_SQL.has_snapshot, {"snapshot_id": moment}).fetchone() if moment < 2**63 else None
        if found != (True,):
            raise NotFoundError(f"DuckLake has no snapshot {moment}, or it has expired")
        return moment
    query = _SQL.newest if moment is None else _SQL.at_time
    row = cursor.execute(query, {} if moment is None else {"time": moment}).fetchone()
    if row is None or row[0] is None:
        raise NotFoundError(f"DuckLake keeps no snapshot of {at} or before")
    return int(row[0])


def build_open_order(services: Services, *, is_restricted: bool) -> OpenOrder:
    """Build the order by which a process opens the lake, for this principal alone.

    is_restricted: its queries read tables or views of which rows are hidden.
    """
    import_extra("pyarrow")  # the process imports it
    url = services.database.url
    with services.database.statement(only_reads=True) as cursor:
        (schema,) = cursor.execute(_SQL.schema).fetchone() or (None,)
        _check_format(read_lake_format(cursor))
    options = f"READ_ONLY, METADATA_SCHEMA {quote_literal(str(schema))}"
    attach = f"ATTACH {quote_literal(build_attach_source(url))} AS {LAKE} ({options})"
    key = (services.caller.principal.name, url, str(is_restricted))
    names: tuple[str, ...] = EXTENSIONS
    settings = RESTRICTED_SETTINGS if is_restricted else _SNAPSHOT_SETTINGS
    if is_in_buckets(services):
        find_vendor(services)
        names, settings = (*EXTENSIONS, "httpfs"), {**settings, **build_bucket_settings(services)}
    return OpenOrder(key, tuple(map(find_extension, names)), (attach,), list_directories(services), settings)


def _check_format(found: LakeFormat) -> None:
    """Raise UnsupportedError for a lake that the installed DuckDB can't attach."""
    if found != FORMAT_1_0:
        raise UnsupportedError(
            "queries", f"The lake is of DuckLake {found.version}, and this server's DuckDB attaches those of 1.0 only"
        )


def _parse_aliases(text: str) -> Iterator[str]:
    """Yield the names of a view's columns, which DuckLake keeps in double quotes."""
    for match in _QUOTED_NAME.finditer(text):
        yield match[1].replace('""', '"')
