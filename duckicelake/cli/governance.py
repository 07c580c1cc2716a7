"""`duckicelake export` and `duckicelake apply`: principals, issuers, warehouses and grants as one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

if TYPE_CHECKING:
    from duckicelake.client.administration import Administrator

EXPORT_EXAMPLES: Final = ("duckicelake export > governance.yaml",)
APPLY_EXAMPLES: Final = (
    "duckicelake apply governance.yaml --dry-run",
    "duckicelake apply governance.yaml",
    "duckicelake apply governance.yaml --prune",
)


def export(server: Administrator) -> None:
    """Print principals, groups, roles, issuers, warehouses and grants as YAML, for `duckicelake apply`.

    It has no secrets, and no grants on what was dropped.
    """
    from duckicelake.cli.wiring.governance_file import format_file

    typer.echo(format_file(server.export()), nl=False)


def apply(
    server: Administrator,
    file: Annotated[Path, typer.Argument(help="A file as `duckicelake export` writes it; - is standard input.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would change, and change nothing.")] = False,
    prune: Annotated[
        bool, typer.Option("--prune", help="Also drop what the file's sections lack. Warehouses are never dropped.")
    ] = False,
) -> None:
    """Make principals, groups, roles, issuers, warehouses and grants as a file says, and print what changed.

    Repeated, it changes nothing. What the file doesn't say stays as it is.
    """
    from duckicelake.cli.wiring.governance_file import parse_file
    from duckicelake.errors import format_count

    document = parse_file(_read(file), "standard input" if str(file) == "-" else str(file))
    changes = server.apply(document, prunes=prune, is_dry=dry_run)
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
