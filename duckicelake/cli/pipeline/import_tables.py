"""`duckicelake pipeline import`: register or copy tables of another Iceberg catalog."""

from dataclasses import asdict
from typing import Annotated

import typer

from duckicelake.cli.pipeline.app import SourceOption, command, list_packages, parse_properties
from duckicelake.cli.pipeline.run import PipelineRun, Summary

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
        typer.echo(f"duckicelake: {result.failed} of {len(result.tables)} tables weren't imported", err=True)
        raise typer.Exit(FAILED_EXIT_CODE)
    return None
