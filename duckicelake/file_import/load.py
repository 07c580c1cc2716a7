"""Load files into a table: types over all rows, bad rows aside, one commit that happens once for each run id."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.schema import Schema

from duckicelake.errors import (
    BadCredentialsError,
    BadInputError,
    BadSourceError,
    JobConflictError,
    MissingTableError,
    NotAllowedError,
    PipelineError,
    format_count,
)
from duckicelake.file_import.bad_rows import BadRows, Check, build_rows, check_rows
from duckicelake.file_import.column_types import parse_schema, quote_name
from duckicelake.file_import.data_files import (
    choose_io,
    open_catalog,
    stage_snapshot,
    translate_errors,
    write_files,
)
from duckicelake.file_import.duckdb_session import open_duckdb
from duckicelake.file_import.file_columns import check_keys, find_columns
from duckicelake.file_import.load_place import LoadPlace
from duckicelake.file_import.load_request import FileLoad, LoadPlan, LoadProgress, LoadSummary, LoadWatcher, StepMeter
from duckicelake.file_import.merge import MergeColumns, StagedRows, find_merge_columns, stage_merge
from duckicelake.file_import.source_files import InputFile, check_unchanged, fetch_files, find_files
from duckicelake.file_import.source_rows import FileGroup, read_groups
from duckicelake.file_import.table_columns import LoadColumns, choose_columns, format_path, join_columns, parse_layout
from duckicelake.file_import.text_files import read_as_utf8
from duckicelake.pipeline.destination import Target, WriteMode
from duckicelake.pipeline.epoch import SOURCE_KEY, Epoch, build_quarantine_epoch, count_rows, is_finished
from duckicelake.pipeline.job import PipelineJob, run_job
from duckicelake.pipeline.sources import compute_fingerprint, parse_source
from duckicelake.properties import JOB_KEY, RUN_EPOCH_KEY, RUN_ID_KEY
from duckicelake.rest.client import encode_namespace, encode_segment

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from pyiceberg.catalog import Catalog
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction

    from duckicelake.client.lake import Lake

_MAX_INPUTS: Final = 10
_REFUSALS: Final = (BadCredentialsError, BadInputError, JobConflictError, MissingTableError, NotAllowedError)
"""What the catalog answers to a commit that it hasn't made."""


def load_files(
    lake: Lake, request: FileLoad, watcher: LoadWatcher, *, files: Sequence[InputFile] | None = None
) -> LoadSummary:
    """Load the files once. Raises PipelineError, before anything is committed. files: instead of those of locations."""
    began = time.monotonic()
    target, kind = request.load.target, request.format
    found = files
    if found is None:
        watcher.say(f"listing {', '.join(request.locations[:3])}")
        found, kind = find_files(request.locations, request.format)
    _check_no_view(lake, target)
    fingerprint = compute_fingerprint(parse_source(["files"], "csv"), [one.identity for one in found])
    parameters = {
        "source": list(request.locations[:_MAX_INPUTS]),
        "format": kind,
        "mode": request.load.mode,
        "files": len(found),
        "inputs": [one.name for one in found[:_MAX_INPUTS]],
    }
    epoch = Epoch(request.run_id, request.epoch, {SOURCE_KEY: fingerprint})
    run = epoch.done(lake.client, target)
    aside = build_quarantine_epoch(request.load, epoch)
    size = sum(one.size for one in found)
    if run is not None and (request.epoch or is_finished(lake.client, target, request.run_id)):
        bad = aside.done(lake.client, request.load.quarantine)
        return _summarize(request, run, bad, (len(found), size), began, is_new=False)
    with (
        run_job(
            lake.client,
            "ingest",
            target.namespace,
            target.table,
            run_id=request.run_id,
            parameters=parameters,
            engine="duckdb",
        ) as job,
        open_duckdb(request) as (duck, temporary),
    ):
        epoch = replace(epoch, summary={**epoch.summary, JOB_KEY: job.id})
        with closing(_Load(lake, request, watcher, duck, temporary, epoch, job)) as load:
            run, bad = load.run(found, str(kind), run)
        summary = _summarize(request, run, bad, (len(found), size), began, is_new=True)
        summary = replace(summary, new_namespaces=load.new_namespaces)
        job.ends("done", snapshot_ids=summary.snapshot_ids, rows=summary.rows, quarantined=summary.quarantined)
    return summary


def plan_load(lake: Lake, request: FileLoad, watcher: LoadWatcher) -> LoadPlan:
    """Return what a load would do; every row is read and checked."""
    found, kind = find_files(request.locations, request.format)
    _check_no_view(lake, request.load.target)
    epoch = Epoch(request.run_id, 0, {})
    with (
        open_duckdb(request) as (duck, temporary),
        closing(_Load(lake, request, watcher, duck, temporary, epoch, None)) as load,
    ):
        return load.examine(found, kind).plan


def create_table(lake: Lake, request: FileLoad, watcher: LoadWatcher, files: Sequence[InputFile]) -> None:
    """Create the table for the columns that the files have, without rows, unless another client has just done so."""
    epoch = Epoch(request.run_id, 0, {})
    with (
        open_duckdb(request) as (duck, temporary),
        closing(_Load(lake, request, watcher, duck, temporary, epoch, None)) as load,
    ):
        load.create(files, str(request.format))


@dataclass(frozen=True, slots=True)
class _Examined:
    groups: Sequence[FileGroup]
    columns: LoadColumns
    merged: MergeColumns
    check: Check
    plan: LoadPlan
    table: Table | None


class _Load:
    """One attempt."""

    def __init__(
        self,
        lake: Lake,
        request: FileLoad,
        watcher: LoadWatcher,
        duck: DuckDBPyConnection,
        temporary: Path,
        epoch: Epoch,
        job: PipelineJob | None,
    ) -> None:
        self._lake, self._request, self._watcher, self._duck = lake, request, watcher, duck
        self._temporary, self._epoch, self._job = temporary, epoch, job
        self._meter = StepMeter(duck, watcher)
        self._catalog: Catalog = open_catalog(lake)
        self._found: Sequence[InputFile] = ()
        self.new_namespaces: tuple[str, ...] = ()

    def close(self) -> None:
        """Close the connections to the catalog."""
        self._catalog.close()

    def examine(self, found: Sequence[InputFile], kind: str) -> _Examined:
        """Read and check every row, and write nothing."""
        request, target = self._request, self._request.load.target
        table = self._load_table(target)
        self._found = found
        files = fetch_files(found, self._temporary, request.roots)
        options = {name.lower(): value for name, value in request.options.items()}
        files = read_as_utf8(files, kind, options, self._temporary)  # type: ignore[arg-type]
        groups = read_groups(self._duck, files, kind, options)  # type: ignore[arg-type]
        here = {} if table is None else {one.name.lower(): one for one in table.schema().fields}
        given = None if request.schema is None else parse_schema(request.schema)
        known = {one.name.lower(): one.field_type for one in (given.fields if given is not None else here.values())}
        self._watcher.say(f"finding columns of {format_count(len(found), 'file')}")
        followed = self._meter.follow_groups("finding columns", groups)
        described = [find_columns(self._duck, group, known) for group in followed]
        groups, shapes = [group for group, _ in described], [shape for _, shape in described]
        come = join_columns(shapes)
        check_keys(self._duck, groups, come, known)
        columns = choose_columns(request.load, table, come, given, is_text=kind in {"csv", "json"})
        if not columns.fields:
            raise BadSourceError(f"The files have no columns, so {target} can't be made: give --schema")
        merged = find_merge_columns(request.load, columns.fields, shapes)
        self._watcher.say("checking rows")
        follow = partial(self._meter.follow_groups, "checking rows")
        check = check_rows(self._duck, groups, columns.fields, merged.keys, follow)
        is_new = table is None
        plan = LoadPlan(
            table=str(target),
            creates=is_new,
            creates_namespace=is_new and not self._lake.client.namespace_exists(target.namespace),
            columns={one.name: str(one.field_type) for one in columns.fields},
            new={} if is_new else {format_path(path): str(type_) for path, type_ in columns.new.items()},
            widened={format_path(path): str(type_) for path, type_ in columns.widened.items()},
            files=len(found),
            bytes=sum(one.size for one in found),
            rows=check.rows,
            bad=check.bad,
        )
        return _Examined(check.groups, columns, merged, check, plan, table)

    def run(
        self, found: Sequence[InputFile], kind: str, done: Mapping[str, Any] | None
    ) -> tuple[Mapping[str, Any], Mapping[str, Any] | None]:
        """Write what isn't committed; return the runs of the table and of the quarantine."""
        examined = self.examine(found, kind)
        self._check_bad(examined)
        if done is None:
            self._watcher.agree(examined.plan)
            done = self._write(examined)
        bad = None
        if examined.check.bad and self._request.bad_rows not in {"fail", "table"}:
            examined.check.bad_rows.write_file(Path(self._request.bad_rows))
        elif examined.check.bad:
            bad = self._quarantine(examined.check.bad_rows)
        return done, bad

    def create(self, found: Sequence[InputFile], kind: str) -> None:
        """Create the table, if the watcher agrees."""
        examined = self.examine(found, kind)
        if examined.table is None:
            self._watcher.agree(examined.plan)
            with suppress(JobConflictError), translate_errors():
                self._begin(None, self._request.load.target, examined.columns).commit_transaction()

    def _check_bad(self, examined: _Examined) -> None:
        most = 0 if self._request.bad_rows == "fail" else self._request.max_bad
        if most is not None and examined.check.bad > most:
            first = "; ".join(examined.check.bad_rows.list_first())
            raise BadSourceError(
                f"{format_count(examined.check.bad, 'bad row')}, at most {most:,} are allowed: {first}"
            )

    def _load_table(self, target: Target) -> Table | None:
        if not self._lake.client.table_exists(target.namespace, target.table):
            return None
        with translate_errors():
            return self._catalog.load_table((*target.namespace, target.table))

    def _write(self, examined: _Examined) -> Mapping[str, Any]:
        target = self._request.load.target
        transaction = self._begin(examined.table, target, examined.columns)
        metadata = transaction.table_metadata
        rows = build_rows(examined.groups, metadata.schema(), examined.check.rule)
        mode = self._request.load.mode
        staged = StagedRows([(rows, metadata)], examined.check.good)
        if mode == "merge":
            self._watcher.say(f"matching {format_count(examined.check.good, 'row')} with {target}")
            staged = stage_merge(self._duck, transaction, rows, examined.merged, is_new=examined.table is None)
        self._watcher.say(f"writing {format_count(staged.count, 'row')}")
        return self._commit(transaction, staged, target, self._epoch, mode)

    def _commit(
        self, transaction: Transaction, staged: StagedRows, target: Target, epoch: Epoch, mode: WriteMode
    ) -> Mapping[str, Any]:
        place, is_sent = LoadPlace(transaction, self._temporary), False
        try:
            placed = self._place(staged, place)
            check_unchanged(self._found)
            if self._job is not None:
                self._job.check()
            run = {RUN_ID_KEY: epoch.run_id, RUN_EPOCH_KEY: str(epoch.number)}
            with translate_errors():
                stage_snapshot(transaction, placed, mode, {**epoch.summary, **run, **staged.summary}, staged.replaced)
                is_sent = True
                transaction.commit_transaction()
        except BaseException as error:
            if not is_sent:
                place.remove()
            if not isinstance(error, PipelineError):
                raise
            return self._find_done(epoch, target, error, place if is_sent else None)
        done = epoch.done(self._lake.client, target)
        assert done is not None
        return done

    def _place(self, staged: StagedRows, place: LoadPlace) -> list[DataFile]:
        """Write the rows as files in the table's place."""
        placed, written = [], 0
        for number, (rows, metadata) in enumerate(staged.parts):
            # DuckDB writes into a folder without files alone
            folder = place.folder / str(number) if staged.replaced else place.folder
            size = sum(one.size for one in self._found)
            with self._meter.measure(LoadProgress("writing rows", 0.0, size, staged.count)):
                files = write_files(self._duck, rows, metadata, folder)
            written += sum(one.rows for one in files)
            placed += place.place(files, metadata)
        _check_count(written, staged.count)
        return placed

    def _find_done(
        self, epoch: Epoch, target: Target, error: PipelineError, sent: LoadPlace | None
    ) -> Mapping[str, Any]:
        """Return the run if another process has committed it, or the answer to the commit got lost; else raise.

        sent: the files of the commit, if it was sent. They are removed only if it was refused: a commit without an
        answer may have been made, or may be under way.
        """
        is_refused = isinstance(error, _REFUSALS)
        try:
            done = epoch.done(self._lake.client, target)
        except PipelineError:
            done, is_refused = None, False
        if done is not None:
            return done
        if is_refused and sent is not None:
            sent.remove()
        if is_refused or sent is None:
            raise error
        raise type(error)(
            f"{error}. {target} may have the rows: run it again with the run id {self._request.run_id}"
        ) from error

    def _begin(self, table: Table | None, target: Target, columns: LoadColumns) -> Transaction:
        """Begin the transaction that makes the table, or changes its columns."""
        transaction = self._begin_changes(table, target, columns)
        choose_io(transaction)
        return transaction

    def _begin_changes(self, table: Table | None, target: Target, columns: LoadColumns) -> Transaction:
        identifier = (*target.namespace, target.table)
        if table is None:
            if self._lake.client.make_namespace(target.namespace):
                self.new_namespaces += (".".join(target.namespace),)
            schema = Schema(*columns.fields)
            spec, order = parse_layout(target, schema)
            with translate_errors():
                return self._catalog.create_table_transaction(identifier, schema, partition_spec=spec, sort_order=order)
        transaction = table.transaction()
        if columns.new or columns.widened:
            with translate_errors(), transaction.update_schema() as update:
                for path, type_ in columns.new.items():
                    update.add_column(path, type_)
                for path, type_ in columns.widened.items():
                    update.update_column(path, type_)
        return transaction

    def _quarantine(self, bad_rows: BadRows) -> Mapping[str, Any]:
        quarantine = self._request.load.quarantine
        aside = build_quarantine_epoch(self._request.load, self._epoch)
        done = aside.done(self._lake.client, quarantine)
        if done is not None:
            return done
        self._watcher.say(f"keeping {format_count(bad_rows.count, 'bad row')} in {quarantine}")
        columns = LoadColumns(bad_rows.SCHEMA.fields, {}, {})
        table = self._load_table(quarantine)
        transaction = self._begin(table, quarantine, columns)
        rows = bad_rows.select(aside.run_id, aside.number)
        names = ", ".join(quote_name(one.name) for one in transaction.table_metadata.schema().fields)
        staged = StagedRows([(f"SELECT {names} FROM ({rows})", transaction.table_metadata)], bad_rows.count)
        return self._commit(transaction, staged, quarantine, aside, "append")


def _check_count(written: int, expected: int) -> None:
    if written != expected:
        raise BadSourceError(
            f"The files changed while they were read: {format_count(written, 'row')} instead of {expected:,}"
        )


def _check_no_view(lake: Lake, target: Target) -> None:
    if not lake.client.is_duckicelake():
        raise BadInputError(f"{lake.client.connection.uri} is no duckicelake server, and runs are kept by one alone")
    if lake.client.connection.read_only_by is not None:
        raise NotAllowedError(f"{lake.client.connection.read_only_by} is read-only: rows for {target} are refused")
    path = lake.client.iceberg("namespaces", encode_namespace(target.namespace), "views", encode_segment(target.table))
    try:
        lake.client.get(path)
    except MissingTableError:
        return
    raise BadInputError(f"{target} is a view: rows go to tables")


def _summarize(
    request: FileLoad,
    run: Mapping[str, Any],
    bad: Mapping[str, Any] | None,
    read: tuple[int, int],
    began: float,
    *,
    is_new: bool,
) -> LoadSummary:
    return LoadSummary(
        table=str(request.load.target),
        run_id=request.run_id,
        result="done" if is_new else "unchanged",
        rows=count_rows(run),
        quarantined=0 if bad is None else count_rows(bad),
        quarantine=None if bad is None else str(request.load.quarantine),
        files=read[0],
        bytes=read[1],
        snapshot_ids=tuple(one["snapshot-id"] for one in (run, bad) if one is not None),
        seconds=round(time.monotonic() - began, 3),
    )
