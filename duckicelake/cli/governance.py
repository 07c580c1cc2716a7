"""`duckicelake export` and `duckicelake apply`: principals, issuers, warehouses and grants as one file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Final

import typer

from duckicelake.cli.console.command import LakeOption, one_line_errors
from duckicelake.cli.principal import open_registry

EXPORT_EXAMPLES: Final = ("duckicelake export > governance.yaml",)
APPLY_EXAMPLES: Final = (
    "duckicelake apply governance.yaml --dry-run",
    "duckicelake apply governance.yaml",
    "duckicelake apply governance.yaml --prune",
)


@one_line_errors()
def export(lake: LakeOption = None) -> None:
    """Print principals, groups, roles, issuers, warehouses and grants as YAML, for `duckicelake apply`.

    It has no secrets, and no grants on what was dropped.
    """
    from duckicelake.catalog.governance import read_state
    from duckicelake.cli.wiring.governance_file import format_file
    from duckicelake.cli.wiring.services import build_warehouse_wiring

    with open_registry(lake, "export_governance") as (services, settings):
        state = read_state(services, build_warehouse_wiring(settings))
    typer.echo(format_file(state), nl=False)


@one_line_errors()
def apply(
    file: Annotated[Path, typer.Argument(help="A file as `duckicelake export` writes it; - is standard input.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change, and change nothing.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Also drop what the file's sections lack. Warehouses are never dropped.")
    ] = False,
    lake: LakeOption = None,
) -> None:
    """Make principals, groups, roles, issuers, warehouses and grants as a file says, and print what changed.

    Repeated, it changes nothing. What the file doesn't say stays as it is.
    """
    from duckicelake.catalog.governance import apply_state
    from duckicelake.cli.console.terminal import format_count
    from duckicelake.cli.wiring.governance_file import parse_file
    from duckicelake.cli.wiring.services import build_warehouse_wiring

    wanted = parse_file(_read(file), "standard input" if str(file) == "-" else str(file))
    with open_registry(lake, "apply_governance") as (services, settings):
        wanted = replace(wanted, settings_issuer=settings.oidc_issuer)
        changes = apply_state(services, build_warehouse_wiring(settings), wanted, prunes=prune, is_dry=dry_run)
    for change in changes:
        typer.echo(change)
    what = "to change" if dry_run else "changed"
    typer.echo(f"{format_count(len(changes), 'thing')} {what}" if changes else f"nothing {what}", err=True)


def _read(file: Path) -> str:
    import sys

    from duckicelake.errors import InvalidRequestError

    try:
        return sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidRequestError(f"{file} can't be read: {error}") from error
