"""Answer the changes of a table to a caller: what it may see of them, in a process with the limits of a query."""

import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from secrets import token_bytes
from typing import Any, Final
from uuid import UUID

from anyio.to_thread import run_sync

from duckicelake.bridge.scan.explanation import parse_row_condition
from duckicelake.catalog.context.caller import build_refusal
from duckicelake.catalog.context.services import Services
from duckicelake.errors import ConflictError, InvalidRequestError
from duckicelake.iceberg.expressions import parse_predicate
from duckicelake.iceberg.identifiers import Namespace, format_full_name
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.iceberg.read_restrictions import Restriction
from duckicelake.iceberg.types import IcebergType, walk_fields
from duckicelake.lake.model import find_children
from duckicelake.query.pool import ProcessTurn, QueryProcesses
from duckicelake.query.processes import Message, OpenOrder, QueryProcess
from duckicelake.query.queries import GRACE_SECONDS, build_open_order
from duckicelake.query.reach import build_secrets, is_in_buckets, load_queried_table
from duckicelake.query.registry import run_reported
from duckicelake.query.statement_errors import explain_errors
from duckicelake.row_changes.masks import leave_out_hashes, write_defaults, write_hashes
from duckicelake.row_changes.pairs import Pairing
from duckicelake.row_changes.position import RowChangePosition
from duckicelake.row_changes.statements import (
    VARIANT,
    ChangeStep,
    TableSide,
    TargetColumns,
    write_answer_condition,
    write_step,
    write_target,
)
from duckicelake.row_changes.steps import ChangeHistory, ChangeRange, StepSnapshots, TableAtSnapshot, check_order
from duckicelake.rows.bodies import parse_object

_WORKER: Final = Path(__file__).with_name("worker.py")
_SALT_BYTES: Final = 32
_MAX_STEPS: Final = 256
"""Queries of an answer; the reader goes on behind them."""


@dataclass(frozen=True, slots=True)
class ChangesOrder:
    """A request for changes.

    Attributes:
        table_uuid: of the table that is meant; None for whichever has the name.
        since: behind what they begin; None for the table's beginning.
        until: the last snapshot; None for the newest.
        columns: those of the answer; none for all.
        key: columns that identify a row; none for row ids.
        where: a condition in SQL, or as JSON an expression of Iceberg's; None for all rows.
        format: arrow or json.
        rows, seconds: at most so much; the reader goes on behind it.

    """

    change_id: UUID
    namespace: Namespace
    table: str
    table_uuid: str | None
    since: str | None
    until: str | None
    columns: Sequence[str]
    key: Sequence[str]
    where: str | None
    format: str
    rows: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ChangesAnswer:
    """An answer that has begun.

    Attributes:
        table_uuid: which table it is.
        upto: the snapshot at which it ends, if it isn't cut.
        seen: the newest snapshot of the lake when it began.

    """

    table_uuid: str
    begin: RowChangePosition
    upto: int
    seen: int
    pieces: AsyncIterator[memoryview]


@dataclass(frozen=True, slots=True)
class _ChangesPlan:
    """What is read, as the process is asked for it."""

    table_id: int
    place: tuple[Namespace, str]
    table_uuid: str
    is_restricted: bool
    found: ChangeRange
    message: dict[str, Any]

    @property
    def rest(self) -> tuple[str, str] | None:
        """What a process has left of the answer before, if this one goes on within a snapshot.

        An answer that saw another snapshot as the newest is none before: its rows may have another order.
        """
        begin = self.found.begin
        return (self.table_uuid, str(begin)) if begin.rows > 0 else None


@asynccontextmanager
async def open_changes(
    services: Services, processes: QueryProcesses, order: ChangesOrder
) -> AsyncIterator[ChangesAnswer]:
    """Begin an answer; the block reads its pieces, and ends it with them.

    Raises InvalidRequestError, ForbiddenError, NoSuchTableError, NotFoundError, ExpiredError, UnsupportedError,
    UnavailableError, TooManyRequestsError, ConflictError.
    """
    plan = await run_sync(_plan, services, order)
    opening = await run_sync(_build_opening, services)
    statement = f"changes of {format_full_name(order.namespace, order.table)} after {plan.found.begin}"
    async with (
        processes.take(opening, plan.rest) as turn,
        run_reported(services, order.change_id, statement, turn),
    ):
        wait = order.seconds + 2 * GRACE_SECONDS
        first = await processes.work_anew(turn, partial(_begin_anew, services, turn, plan, wait))
        if plan.found.begin.rows > 0:
            await run_sync(_check_order, services, order, plan)
        async with aclosing(_read_pieces(turn.process, first, wait, plan)) as pieces:
            found = plan.found
            yield ChangesAnswer(plan.table_uuid, found.begin, found.upto, found.newest, pieces)


def _check_order(services: Services, order: ChangesOrder, plan: _ChangesPlan) -> None:
    with services.database.reading() as cursor:
        check_order(cursor, plan.table_id, format_full_name(order.namespace, order.table), plan.found.begin)


def _build_opening(services: Services) -> OpenOrder:
    """Build the order of a process that answers changes to this principal."""
    is_restricted = services.caller.principal.has_restrictions
    opening = build_open_order(services, is_restricted=is_restricted)
    return replace(opening, key=(*opening.key, "changes"), worker=_WORKER)


async def _begin_anew(services: Services, turn: ProcessTurn, plan: _ChangesPlan, seconds: float) -> Message:
    """Begin an answer in the process that the turn has by then."""
    return await turn.process.work(partial(_begin, services, turn.process, plan, seconds))


def _begin(services: Services, process: QueryProcess, plan: _ChangesPlan, seconds: float) -> Message:
    message = {**plan.message, "has_rest": process.rest is not None and process.rest == plan.rest}
    process.rest = None
    process.send(b"H", json.dumps(message).encode())
    with explain_errors(services, {plan.table_id: plan.place}, is_restricted=plan.is_restricted):
        return process.receive(seconds)


async def _read_pieces(
    process: QueryProcess, message: Message, seconds: float, plan: _ChangesPlan
) -> AsyncGenerator[memoryview, None]:
    while message[0] == b"D":
        yield process.find_piece(message[1])
        process.free_place()
        message = await process.work(partial(process.receive, seconds))
    end = json.loads(message[1])
    process.is_broken |= end["is_broken"]
    process.rest = None if end["rest"] is None else (plan.table_uuid, f"{end['rest']}.{plan.found.newest}")


def _plan(services: Services, order: ChangesOrder) -> _ChangesPlan:
    principal, place = services.caller.principal, (order.namespace, order.table)
    if not principal.may_query(*place):
        raise build_refusal(*place, principal)
    table = load_queried_table(services, *place)
    with services.database.reading() as cursor:
        history = ChangeHistory.find(services, cursor, table, format_full_name(*place))
        if order.table_uuid not in {None, history.uuid}:
            raise ConflictError(f"{history.full_name} is another table now: {history.uuid}, not {order.table_uuid}")
        found = history.find_range(order.since, order.until)
        steps = [*islice(history.list_steps(found), _MAX_STEPS + 1)]
        is_last = len(steps) <= _MAX_STEPS
        del steps[_MAX_STEPS:]
        upto = found.upto if is_last else steps[-1].snapshots[-1]
        restriction = principal.find_restriction(table.row.table_id)
        builder = _MessageBuilder(
            history,
            order,
            restriction,
            history.find_table(max(found.upto, history.created_at)),
            table.metadata,
        )
        message = builder.build(found, steps)
    secrets = build_secrets(services, [place]) if is_in_buckets(services) else {}
    limits = {"rows": order.rows, "seconds": order.seconds, "grace_seconds": GRACE_SECONDS}
    ends = {"upto": upto, "is_last": is_last}
    return _ChangesPlan(
        table.row.table_id,
        place,
        history.uuid,
        restriction is not None,
        found,
        {**message, **limits, **ends, "format": order.format, "secrets": secrets},
    )


class _MessageBuilder:
    """Builds what the process is asked: its queries, and what it says of their rows."""

    def __init__(
        self,
        history: ChangeHistory,
        order: ChangesOrder,
        restriction: Restriction | None,
        latest: TableAtSnapshot,
        metadata: TableMetadata,
    ) -> None:
        """latest: the table at the last snapshot. Raises InvalidRequestError for columns that it lacks."""
        self._history, self._restriction, self._latest = history, restriction, latest
        self._salt = token_bytes(_SALT_BYTES)
        self._names = {field.name: at for at, field in enumerate(latest.schema.fields)}
        self._shown = [self._find_column(name, "columns") for name in order.columns] or [*self._names.values()]
        self._check_shown()
        self._target = TargetColumns(
            fields=latest.schema.fields,
            defaults=self._write_defaults(latest),
            condition=self._write_condition(order),
            **self._choose_pairing(order.key, metadata),
        )

    def build(self, found: ChangeRange, steps: Sequence[StepSnapshots]) -> dict[str, Any]:
        """Build the message for the steps of a range."""
        begin = found.begin
        ordinal, messages = begin.ordinal, list[dict[str, Any]]()
        for step in steps:
            skip = begin.rows if step.snapshots[0] == begin.snapshot_id else 0
            messages.append({**self._build_step(step), "ordinal": ordinal, "skip": skip})
            ordinal += len(step.snapshots)
        upto = max(found.upto, self._history.created_at)
        return {
            "target": write_target(replace(self._build_side((upto,), self._latest), restriction=self._restriction)),
            "shown": self._shown,
            "hashed": write_hashes(self._latest.schema.fields, self._restriction, self._salt),
            "steps": messages,
            "position": [begin.snapshot_id, begin.rows, begin.ordinal],
            "seen": found.newest,
            "has_row_ids": self._restriction is None,
        }

    def _build_step(self, step: StepSnapshots) -> dict[str, Any]:
        table = self._history.find_table(step.snapshots[-1])
        side, before = self._build_side(step.snapshots, table), None
        if step.is_rearranged:
            at = step.snapshots[0] - 1
            before = self._build_side((at,), self._history.find_table(at))
        side = replace(side, before=before, defaults=self._write_defaults(table))
        query, shape = (
            write_step(ChangeStep(one, step.has_additions, step.has_removals), self._target)
            for one in (side, replace(side, first=0, last=0))
        )
        return {
            **asdict(query),
            "snapshots": step.snapshots,
            "shape": hashlib.sha256(shape.sql.encode()).hexdigest(),
        }

    def _build_side(self, snapshots: Sequence[int], table: TableAtSnapshot) -> TableSide:
        restriction = self._leave_out_hashes(table)
        return TableSide(
            snapshots[0], snapshots[-1], table.schema_name, table.name, table.schema, restriction, self._salt
        )

    def _write_defaults(self, table: TableAtSnapshot) -> dict[int, str]:
        """Write the values of rows that are older than their columns, by field id."""
        defaults = {
            column.column_id: column.initial_default
            for column in find_children(table.columns, None)
            if column.initial_default is not None
        }
        return write_defaults(table.schema.fields, defaults, self._leave_out_hashes(table), self._salt)

    def _leave_out_hashes(self, table: TableAtSnapshot) -> Restriction | None:
        return None if self._restriction is None else leave_out_hashes(self._restriction, table.schema)

    def _write_condition(self, order: ChangesOrder) -> str:
        """Write the condition of an order. Raises InvalidRequestError, UnsupportedError for one that can't be."""
        if order.where is None:
            return "true"
        if order.where.lstrip().startswith("{"):
            predicate = parse_predicate(parse_object(order.where.encode(), "where"))
        else:
            predicate = parse_row_condition(order.where, self._latest.schema)
        return write_answer_condition(predicate, self._latest.schema.fields, self._restriction)

    def _find_column(self, name: str, what: str) -> int:
        if name not in self._names:
            raise InvalidRequestError(f"Invalid {what}: {self._history.full_name} has no column {name!r}")
        return self._names[name]

    def _check_shown(self) -> None:
        """Check that the answer's columns have types in Arrow. Raises InvalidRequestError."""
        variants = [name for name, at in self._names.items() if _holds_variant(self._latest.schema.fields[at].type)]
        shown = [name for name in variants if self._names[name] in self._shown]
        if shown:
            others = ",".join(name for name in self._names if name not in variants)
            raise InvalidRequestError(
                f"Row changes can't show {', '.join(shown)} of {self._history.full_name}, as Arrow has no type for a "
                f"VARIANT: ask for other columns{f', columns={others}' if others else ''}"
            )

    def _choose_pairing(self, key: Sequence[str], metadata: TableMetadata) -> dict[str, Any]:
        """Choose by what an update is recognised, as the pipeline does."""
        for name in key:
            self._find_column(name, "key")
        if key:
            return {"pairing": "key", "key": tuple(key)}
        if metadata.format_version >= ROW_LINEAGE_VERSION:
            return {"pairing": "row-id"}
        names = {field.id: field.name for field in self._latest.schema.fields}
        fields = [names[id_] for id_ in metadata.schema().identifier_field_ids if id_ in names]
        pairing: Pairing = "key" if fields else "values"
        return {"pairing": pairing, "key": tuple(fields)}


def _holds_variant(kind: IcebergType) -> bool:
    return any(type_ == VARIANT for type_ in (kind, *(part.type for part, _ in walk_fields(kind))))
