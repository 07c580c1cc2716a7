"""Jobs of the pipeline and their leases, as rows of `duckicelake_job`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

import orjson

from duckicelake.postgres.queries import Row, Transaction, load_queries

_SQL = load_queries("lake", "jobs")


@dataclass(frozen=True, slots=True)
class NewJob:
    """What a job says of itself when it begins. lease: what it alone may do to the table while it runs, if anything."""

    id: UUID
    kind: str
    schema_name: str
    table_name: str
    run_id: str | None
    lease: str | None
    principal: str
    engine: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Job:
    """A row. result: done, unchanged, skipped, failed, or of those that haven't ended: running, lost."""

    number: int
    id: UUID
    kind: str
    schema_name: str
    table_name: str
    run_id: str | None
    lease: str | None
    principal: str
    engine: str
    parameters: Mapping[str, Any]
    started: datetime
    lease_until: datetime
    ended: datetime | None
    result: str
    message: str | None
    snapshot_ids: Sequence[int]
    counts: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """The job that has a lease."""

    id: UUID
    kind: str
    principal: str
    engine: str
    lease_until: datetime


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs to list; None: any. before: numbers of earlier ones.

    visible: schemas on whose tables, and on those below them, jobs may be seen; visible_tables: and other tables.
    """

    before: int | None = None
    schema_name: str | None = None
    table_name: str | None = None
    kind: str | None = None
    run_id: str | None = None
    result: str | None = None
    visible: Sequence[str] | None = None
    visible_tables: Sequence[tuple[str, str]] = ()


def begin_job(cursor: Transaction, new: NewJob, seconds: int) -> bool:
    """Add the job, good for so many seconds unless it is renewed; False if its id or its lease is taken."""
    lease = {"schema_name": new.schema_name, "table_name": new.table_name, "lease": new.lease}
    cursor.execute(_SQL.forget)
    cursor.execute(_SQL.give_up, {"id": new.id, **lease})
    parameters = {
        **lease,
        "id": new.id,
        "kind": new.kind,
        "run_id": new.run_id,
        "principal": new.principal,
        "engine": new.engine,
        "parameters": _encode_json(new.parameters),
        "seconds": seconds,
    }
    return cursor.execute(_SQL.begin, parameters).rowcount == 1


def find_lease_holder(cursor: Transaction, schema_name: str, table_name: str, lease: str | None) -> LeaseHolder | None:
    """Find the holder of the lease."""
    parameters = {"schema_name": schema_name, "table_name": table_name, "lease": lease}
    row = cursor.execute(_SQL.holder, parameters).fetchone()
    return None if row is None else LeaseHolder(*row)


def renew_lease(cursor: Transaction, job_id: UUID, seconds: int, counts: Mapping[str, Any]) -> bool:
    """Record that the job goes on; return False if it has ended, or another has taken over."""
    parameters = {"id": job_id, "seconds": seconds, "counts": _encode_json(counts)}
    return cursor.execute(_SQL.renew, parameters).rowcount == 1


def end_job(
    cursor: Transaction,
    job_id: UUID,
    result: str,
    message: str | None,
    snapshot_ids: Sequence[int],
    counts: Mapping[str, Any],
    added_parameters: Mapping[str, Any],
) -> bool:
    """Record the job's result; return False if it has ended before, or another has taken over."""
    parameters = {
        "id": job_id,
        "result": result,
        "message": message,
        "snapshot_ids": list(snapshot_ids),
        "counts": _encode_json(counts),
        "added_parameters": _encode_json(dict(added_parameters)),
    }
    return cursor.execute(_SQL.end, parameters).rowcount == 1


def thin_jobs(cursor: Transaction, job: Job, kept: int, *, keeps_unchanged: bool) -> None:
    """Delete the successful jobs of a job's table and kind but for so many of the newest, whatever its name was.

    keeps_unchanged: whether those that did nothing are among these; else the last one of them is kept beside.
    """
    parameters = {"id": job.id, "kind": job.kind, "kept": kept, "keeps_unchanged": keeps_unchanged}
    cursor.execute(_SQL.thin, parameters)


def find_job(cursor: Transaction, job_id: UUID, schema_name: str, table_name: str, principal: str) -> Job | None:
    """Find the job, if it is this principal's and of this table."""
    parameters = {"id": job_id, "schema_name": schema_name, "table_name": table_name, "principal": principal}
    row = cursor.execute(_SQL.job, parameters).fetchone()
    return None if row is None else _parse_job(row)


def list_jobs(cursor: Transaction, wanted: JobFilter, limit: int | None) -> list[Job]:
    """List the jobs that the filter wants, newest first. limit: None lists all."""
    parameters = {
        "before": wanted.before,
        "schema_name": wanted.schema_name,
        "table_name": wanted.table_name,
        "kind": wanted.kind,
        "run_id": wanted.run_id,
        "result": wanted.result,
        "visible": None if wanted.visible is None else list(wanted.visible),
        "schemas": [schema for schema, _ in wanted.visible_tables],
        "tables": [table for _, table in wanted.visible_tables],
        "limit": limit,
    }
    return [_parse_job(row) for row in cursor.execute(_SQL.jobs, parameters).fetchall()]


def _parse_job(row: Row) -> Job:
    return Job(*row)


def _encode_json(value: Mapping[str, Any]) -> str:
    return orjson.dumps(value).decode()


def read_job_inputs(cursor: Transaction, id_: str, principal: str | None) -> list[str]:
    """Read the inputs that a job of the principal declares; empty if there is no such job."""
    rows = cursor.execute(_SQL.inputs, {"id": id_, "principal": principal}).fetchall()
    return [column for (found,) in rows for column in found if isinstance(column, str)]
