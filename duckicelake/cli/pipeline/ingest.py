"""`duckicelake pipeline import` and `ingest`: bring tables, files or a database by JDBC into the lake."""

from __future__ import annotations

import os
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from duckicelake.cli.pipeline.app import SourceOption, command, list_packages, parse_properties
from duckicelake.cli.pipeline.run import PipelineRun, Summary
from duckicelake.errors import format_count

if TYPE_CHECKING:
    from duckicelake.pipeline.sources import PipelineSource

FAILED_EXIT_CODE = 1


@command(
    "duckicelake pipeline import --source type=rest --source uri=http://other:8181",
    "duckicelake pipeline import --source type=hive --source uri=thrift://metastore:9083 --namespace sales",
    "duckicelake pipeline import --source type=hadoop --source warehouse=/data/lake --table sales.orders --copy",
    name="import",
)
def import_(
    run: PipelineRun,
    source: SourceOption,
    table: Annotated[list[str] | None, typer.Option(help="Table to import, as ns.t; may be repeated.")] = None,
    namespace: Annotated[
        list[str] | None, typer.Option(help="Namespace to import, with all below it; may be repeated.")
    ] = None,
    copy: Annotated[
        bool, typer.Option("--copy", help="Copy the current rows, without history, instead of sharing files.")
    ] = False,
    leave_source: Annotated[
        bool, typer.Option("--leave-source", help="Don't set gc.enabled=false in the other catalog.")
    ] = False,
) -> Summary:
    """Import tables of another Iceberg catalog into the lake: all of them, or the named ones.

    Tables are registered: history and files stay as they are, and nothing is copied. Both catalogs set gc.enabled=false
    for them, because each would delete files that only the other needs. The files must lie below the server's
    DUCKICELAKE_ALLOWED_LOCATIONS. Existing tables are left alone, so an interrupted run can be repeated.
    """
    from duckicelake.pipeline.foreign_catalog import check_source
    from duckicelake.pipeline.importer import ImportRequest, import_tables
    from duckicelake.rest.names import parse_name, parse_table

    properties = parse_properties(source)
    check_source(properties)
    request = ImportRequest(
        source=properties,
        tables=[parse_table(text) for text in table or ()],
        namespaces=[parse_name(text) for text in namespace or ()],
        copy=copy,
        leave_source=leave_source,
    )
    with run.spark(list_packages(properties)) as spark:
        result = import_tables(spark, run.client, request, run.reporter)
    if run.as_json:
        run.print_summary(asdict(result) | {"failed": result.failed})
    elif result.views:
        typer.echo(f"Views aren't imported, as their SQL is about the other catalog: {', '.join(result.views)}")
    if result.failed:
        typer.echo(
            f"duckicelake: {result.failed} of {format_count(len(result.tables), 'table')} not imported", err=True
        )
        raise typer.Exit(FAILED_EXIT_CODE)
    return None


class EvolveOption(StrEnum):
    """How a load may change the table's columns."""

    ADD = "add"
    STRICT = "strict"


@command(
    "duckicelake pipeline ingest flights.csv --table air.flights --partition-by 'month(time_hour)'",
    "duckicelake pipeline ingest 's3a://bucket/day=*/*.parquet' --table air.flights --mode merge --key id",
    "duckicelake pipeline ingest jdbc:postgresql://db/shop --option dbtable=orders --table shop.orders",
    "duckicelake pipeline ingest ./incoming --format json --table web.events --follow --checkpoint ./events.checkpoint",
)
def ingest(
    run: PipelineRun,
    sources: Annotated[list[str], typer.Argument(help="Files, folders, patterns of files, or a JDBC URL.")],
    table: Annotated[str, typer.Option(help="The table for the rows, as ns.t; created if missing.")],
    format_: Annotated[
        str | None, typer.Option("--format", help="csv, json, parquet, orc, avro or jdbc (default: by the suffix).")
    ] = None,
    schema: Annotated[
        str | None, typer.Option(help="Columns and types, as 'id long, name string' (default: inferred).")
    ] = None,
    option: Annotated[
        list[str] | None, typer.Option(help="<name>=<value> of Spark's reader, as sep=; may be repeated.")
    ] = None,
    mode: Annotated[str, typer.Option(help="append, overwrite, overwrite-partitions or merge.")] = "append",
    key: Annotated[
        list[str] | None, typer.Option(help="Column that identifies rows, for merge; may be repeated.")
    ] = None,
    partition_by: Annotated[
        str | None, typer.Option(help="Partitions of a new table, as 'month(time), bucket(8, id)'.")
    ] = None,
    sort_by: Annotated[str | None, typer.Option(help="Sort order of a new table, as 'time desc, id'.")] = None,
    evolve: Annotated[
        EvolveOption, typer.Option(help="add: add new columns and widen types; strict: refuse them.")
    ] = EvolveOption.ADD,
    quarantine: Annotated[
        str | None, typer.Option(help="Table for bad records (default: the table's name with _quarantine).")
    ] = None,
    run_id: Annotated[
        str | None, typer.Option(help="Id of the run: repeated runs with one id ingest once (default: a new id).")
    ] = None,
    follow_: Annotated[bool, typer.Option("--follow", help="Continue with new files as they come.")] = False,
    checkpoint: Annotated[
        str | None, typer.Option(help="Folder in which --follow stores which files it has read.", show_default=False)
    ] = None,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="With --follow: stop once all files are read.")
    ] = False,
    every: Annotated[float, typer.Option(min=0, help="Seconds between checks for new files.")] = 10.0,
) -> Summary:
    """Ingest files or a database's table, exactly once; bad records go to quarantine with the reason."""
    from duckicelake.errors import BadInputError
    from duckicelake.pipeline.destination import Target, build_load_request
    from duckicelake.pipeline.ingest import IngestRequest
    from duckicelake.pipeline.ingest import ingest as ingest_source
    from duckicelake.pipeline.sources import parse_source
    from duckicelake.pipeline.stream import FollowRequest, follow_files
    from duckicelake.rest.names import parse_table

    source = parse_source(sources, format_, option or (), schema)
    beside = None if quarantine is None else Target(*parse_table(quarantine))
    target = Target(*parse_table(table), partition_by, sort_by)
    load = build_load_request(target, mode, tuple(key or ()), may_change=evolve is EvolveOption.ADD, quarantine=beside)
    if not follow_:
        _check_files_here(source, run)
        request = IngestRequest(source, load, run_id or str(uuid4()))
        with run.spark(source.packages()) as spark:
            return asdict(ingest_source(spark, run.client, request, run.reporter))
    if run_id is not None:
        raise BadInputError("--follow has its checkpoint instead of a --run-id")
    wanted = FollowRequest(source, load, _require_checkpoint(checkpoint), every, until_idle)
    with run.spark(source.packages()) as spark:
        return asdict(follow_files(spark, run.client, wanted, run.reporter))


def _check_files_here(source: PipelineSource, run: PipelineRun) -> None:
    """Raise BadSourceError for a missing file before Spark starts, if Spark reads files of this machine.

    Patterns and URIs are left to Spark, which checks all sources again.
    """
    from duckicelake.errors import BadSourceError
    from duckicelake.pipeline.launcher import is_submitted

    master = run.conf.get("spark.master", run.master or "local")
    is_elsewhere = "HADOOP_CONF_DIR" in os.environ or any("fs.defaultFS" in name for name in run.conf)
    if is_submitted() or is_elsewhere or not master.startswith("local"):
        return
    for location in source.locations:
        path = location.removeprefix("file://")
        if not set(":*?[{\\") & set(path) and not Path(path).exists():
            raise BadSourceError(f"{location} isn't there: check the path")


def _require_checkpoint(checkpoint: str | None) -> str:
    from duckicelake.errors import BadInputError

    if checkpoint is None:
        raise BadInputError("--follow needs a --checkpoint: a folder that stays, as ./events.checkpoint")
    return checkpoint
