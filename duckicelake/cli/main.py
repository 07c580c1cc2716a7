"""The `duckicelake` command: every command on one app."""

from typing import Annotated, Final

import typer

from duckicelake import __version__
from duckicelake.cli import (
    explain,
    flush,
    gc,
    governance,
    grant,
    history,
    issuer,
    lake,
    migrate,
    policy,
    principal,
    snapshots,
    storage_profile,
    tokens,
    warehouse,
)
from duckicelake.cli.catalog import changes, description, session
from duckicelake.cli.catalog.connection import (
    add_administration_command,
    add_catalog_command,
    add_connected_command,
    add_lake_command,
)
from duckicelake.cli.console.command import (
    CHANGE,
    DATA,
    GOVERN,
    LOOK,
    SERVE,
    UPKEEP,
    add_command,
    add_group,
    make_group,
)
from duckicelake.cli.console.terminal import HAS_PAGER
from duckicelake.cli.pipeline.main import app as pipeline_app
from duckicelake.cli.rows import command as ingest_rows
from duckicelake.cli.serve import command as serve
from duckicelake.features.registry import load_hooks

app: Final = make_group(
    "duckicelake", "An Iceberg REST catalog whose truth is a DuckLake catalog in Postgres.", is_root=True
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        version()
        raise typer.Exit


def version() -> None:
    """Print the version."""
    from duckicelake.lake.formats import NEW_LAKE_FORMAT

    typer.echo(f"duckicelake {__version__} (DuckLake {NEW_LAKE_FORMAT.version})")


@app.callback()
def _add_root_options(
    version_: Annotated[  # noqa: ARG001 - its callback prints and ends
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
    no_pager: Annotated[bool, typer.Option("--no-pager", help="Print long output as it is, not by $PAGER.")] = False,
) -> None:
    """Read the options that stand before a command."""
    if no_pager:
        HAS_PAGER.set(False)


add_command(app, serve.serve, *serve.EXAMPLES, has_warehouse_option=False, panel=SERVE)
add_command(app, lake.init, *lake.INIT_EXAMPLES, has_warehouse_option=False, panel=SERVE)
add_command(app, lake.config, *lake.CONFIG_EXAMPLES, has_warehouse_option=False, panel=SERVE)
add_command(app, lake.info, *lake.INFO_EXAMPLES, panel=SERVE)
add_lake_command(app, lake.doctor, lake.doctor_over_rest, *lake.DOCTOR_EXAMPLES, panel=SERVE)
add_catalog_command(app, description.list_objects, *description.LS_EXAMPLES, name="ls", panel=LOOK)
add_catalog_command(app, description.search, *description.SEARCH_EXAMPLES, panel=LOOK)
add_catalog_command(app, description.show, *description.SHOW_EXAMPLES, panel=LOOK)
add_catalog_command(app, description.list_snapshots, *description.SNAPSHOTS_EXAMPLES, name="snapshots", panel=LOOK)
add_catalog_command(app, description.list_files, *description.FILES_EXAMPLES, name="files", panel=LOOK)
add_catalog_command(app, description.list_partitions, *description.PARTITIONS_EXAMPLES, name="partitions", panel=LOOK)
add_catalog_command(app, description.diff, *description.DIFF_EXAMPLES, panel=LOOK)
add_catalog_command(app, session.login, *session.LOGIN_EXAMPLES, panel=LOOK)
add_catalog_command(app, session.logout, *session.LOGOUT_EXAMPLES, panel=LOOK)
add_catalog_command(app, session.status, *session.STATUS_EXAMPLES, panel=LOOK)
add_catalog_command(app, session.whoami, *session.WHOAMI_EXAMPLES, panel=LOOK)
add_catalog_command(app, session.open_page, *session.OPEN_EXAMPLES, name="open", panel=LOOK)
add_group(app, changes.refs_app)
add_group(app, changes.create_app)
add_catalog_command(app, changes.drop, *changes.DROP_EXAMPLES, panel=CHANGE)
add_catalog_command(app, changes.rename, *changes.RENAME_EXAMPLES, panel=CHANGE)
add_group(app, changes.props_app)
add_catalog_command(app, changes.alter, *changes.ALTER_EXAMPLES, panel=CHANGE)
add_catalog_command(app, changes.comment, *changes.COMMENT_EXAMPLES, panel=CHANGE)
add_lake_command(app, history.history, history.history_over_rest, *history.HISTORY_EXAMPLES, panel=LOOK)
add_lake_command(app, history.audit, history.audit_over_rest, *history.AUDIT_EXAMPLES, panel=LOOK)
add_command(app, lake.adopt, *lake.ADOPT_EXAMPLES, panel=SERVE)
add_command(app, migrate.migrate, *migrate.EXAMPLES, panel=SERVE)
add_lake_command(app, gc.gc, gc.gc_over_rest, *gc.EXAMPLES, panel=UPKEEP)
add_lake_command(app, flush.flush, flush.flush_over_rest, *flush.EXAMPLES, panel=UPKEEP)
add_lake_command(app, snapshots.restore, snapshots.restore_over_rest, *snapshots.RESTORE_EXAMPLES, panel=CHANGE)
add_lake_command(app, snapshots.clone, snapshots.clone_over_rest, *snapshots.CLONE_EXAMPLES, panel=CHANGE)
add_lake_command(app, snapshots.expire, snapshots.expire_over_rest, *snapshots.EXPIRE_EXAMPLES, panel=UPKEEP)
add_lake_command(
    app,
    snapshots.list_dropped,
    snapshots.list_dropped_over_rest,
    *snapshots.DROPPED_EXAMPLES,
    name="dropped",
    panel=LOOK,
)
add_lake_command(app, snapshots.undrop, snapshots.undrop_over_rest, *snapshots.UNDROP_EXAMPLES, panel=CHANGE)
add_lake_command(app, explain.explain, explain.explain_over_rest, *explain.EXAMPLES, panel=LOOK)
add_connected_command(app, ingest_rows.ingest_rows, *ingest_rows.EXAMPLES, name="ingest-rows", panel=DATA)
add_administration_command(app, grant.grant, *grant.GRANT_EXAMPLES, panel=GOVERN, has_warehouse_option=True)
add_administration_command(app, grant.revoke, *grant.REVOKE_EXAMPLES, panel=GOVERN, has_warehouse_option=True)
add_administration_command(
    app, grant.list_grants, *grant.LIST_EXAMPLES, name="list-grants", panel=GOVERN, has_warehouse_option=True
)
add_administration_command(app, grant.why, *grant.WHY_EXAMPLES, panel=GOVERN, has_warehouse_option=True)
add_command(app, lake.grants, *lake.GRANTS_EXAMPLES, has_warehouse_option=False, panel=GOVERN)
add_command(app, serve.hash_client_secret, *serve.HASH_SECRET_EXAMPLES, name="hash-secret", panel=SERVE)
add_command(app, version, "duckicelake version", panel=SERVE)
add_command(
    app,
    storage_profile.rotate,
    *storage_profile.ROTATE_EXAMPLES,
    name="rotate-secrets",
    has_warehouse_option=False,
    panel=SERVE,
)
add_group(app, warehouse.app)
add_group(app, storage_profile.app)
add_group(app, policy.app)
add_administration_command(app, governance.export, *governance.EXPORT_EXAMPLES, panel=GOVERN)
add_administration_command(app, governance.apply, *governance.APPLY_EXAMPLES, panel=GOVERN)
for group in (principal.app, principal.group_app, principal.role_app, issuer.app, tokens.app):
    add_group(app, group)
add_group(app, pipeline_app)
for feature_app in load_hooks(typer.Typer, "commands"):
    add_group(app, feature_app)

if __name__ == "__main__":
    app()
