"""`duckicelake token`: tokens and client secrets that one makes for oneself, at the server."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from duckicelake.cli.catalog.connection import add_catalog_command
from duckicelake.cli.console.command import GOVERN, JsonOption, make_group
from duckicelake.cli.principal import (
    DescriptionOption,
    ScopeOption,
    SecretFileOption,
    parse_secret_id,
    print_made,
    print_secrets,
)

if TYPE_CHECKING:
    from duckicelake.client.administration import OwnTokens
    from duckicelake.client.lake import Lake

CREATE_EXAMPLES: Final = (
    "duckicelake token create --description laptop --secret-file laptop.token",
    "duckicelake token create --scope ns:sales:r --expires-in 86400 --profile work",
)
LIST_EXAMPLES: Final = ("duckicelake token list", "duckicelake token list --json | jq -r .description")
ROTATE_EXAMPLES: Final = (
    "duckicelake token rotate 0f7c61f2-6cf2-4b0c-9c0c-6c1f3f1f3a55 --end-old-in 3600 --secret-file laptop.token",
)
REVOKE_EXAMPLES: Final = ("duckicelake token revoke 0f7c61f2-6cf2-4b0c-9c0c-6c1f3f1f3a55",)
_LISTING: Final = "duckicelake token list"
IdArgument = Annotated[str, typer.Argument(help="The token's id, as `list` has it.")]
ExpiresOption = Annotated[
    int | None, typer.Option(min=1, help="Seconds that it is valid (default: as the server has it, 30 days).")
]
app: Final = make_group("token", "Tokens and client secrets of your own.", panel=GOVERN)


def create(
    lake: Lake,
    kind: Annotated[
        Literal["client-secret", "token"],
        typer.Option(help="token: sent as Bearer itself. client-secret: to log in with; of service accounts."),
    ] = "token",
    scope: ScopeOption = None,
    expires_in: ExpiresOption = None,
    description: DescriptionOption = "",
    secret_file: SecretFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a token for yourself. It is printed this once: the server keeps only its hash.

    It may no more than your login, and lives no longer than the secret or token that you logged in with.
    """
    make = partial(_connect(lake).create, kind, description=description, expires_in=expires_in, scopes=scope)
    print_made(make, secret_file, as_json=as_json)


def list_(lake: Lake, as_json: JsonOption = False) -> None:
    """List your tokens and client secrets that may no more than your login."""
    print_secrets(_connect(lake).list(), as_json=as_json)


def rotate(
    lake: Lake,
    secret_id: IdArgument,
    end_old_in: Annotated[int, typer.Option(min=0, help="Seconds for which the old one is still valid.")] = 0,
    expires_in: ExpiresOption = None,
    secret_file: SecretFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace a token or client secret of yours by a new one of the same scopes, which is printed this once."""
    found = parse_secret_id(secret_id, _LISTING)
    make = partial(_connect(lake).rotate, found, end_old_in=end_old_in, expires_in=expires_in)
    print_made(make, secret_file, as_json=as_json)


def revoke(lake: Lake, secret_id: IdArgument) -> None:
    """Revoke a token or client secret of yours, and all that were made with it. They end within a second."""
    _connect(lake).revoke(parse_secret_id(secret_id, _LISTING))
    typer.echo(f"{secret_id} is revoked")


def _connect(lake: Lake) -> OwnTokens:
    from duckicelake.client.administration import OwnTokens

    return OwnTokens(lake.client)


add_catalog_command(app, create, *CREATE_EXAMPLES)
add_catalog_command(app, list_, *LIST_EXAMPLES, name="list")
add_catalog_command(app, rotate, *ROTATE_EXAMPLES)
add_catalog_command(app, revoke, *REVOKE_EXAMPLES)
