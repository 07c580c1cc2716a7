"""`duckicelake token`: tokens and client secrets that one makes for oneself, at the server."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from duckicelake.cli.catalog.connection import add_catalog_command
from duckicelake.cli.console.command import GOVERN, JsonOption, make_group
from duckicelake.cli.console.terminal import print_json
from duckicelake.cli.principal import DescriptionOption, ScopeOption, SecretFileOption, open_secret_file, print_secret

if TYPE_CHECKING:
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
_PATH: Final = "/management/v1/me/tokens"
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
    body: dict[str, Any] = {"kind": kind, "description": description}
    body |= {} if expires_in is None else {"expires-in": expires_in}
    body |= {"scopes": scope} if scope else {}
    _make(lake, _PATH, body, secret_file, as_json=as_json)


def list_(lake: Lake, as_json: JsonOption = False) -> None:
    """List your tokens and client secrets that may no more than your login."""
    found = [secret for page in lake.client.pages(_PATH) for secret in page["secrets"]]
    if as_json:
        print_json(*found)
        return
    for secret in found:
        print_secret(secret)


def rotate(
    lake: Lake,
    secret_id: IdArgument,
    end_old_in: Annotated[int, typer.Option(min=0, help="Seconds for which the old one is still valid.")] = 0,
    expires_in: ExpiresOption = None,
    secret_file: SecretFileOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace a token or client secret of yours by a new one of the same scopes, which is printed this once."""
    body: dict[str, Any] = {"end-old-in": end_old_in}
    body |= {} if expires_in is None else {"expires-in": expires_in}
    _make(lake, f"{_PATH}/{_parse_id(secret_id)}/rotate", body, secret_file, as_json=as_json)


def revoke(lake: Lake, secret_id: IdArgument) -> None:
    """Revoke a token or client secret of yours, and all that were made with it. They end within a second."""
    lake.client.change("DELETE", f"{_PATH}/{_parse_id(secret_id)}")
    typer.echo(f"{secret_id} is revoked")


def _make(lake: Lake, path: str, body: dict[str, Any], secret_file: Path | None, *, as_json: bool) -> None:
    from duckicelake.errors import PipelineError

    with open_secret_file(secret_file) as write:
        made = lake.client.change("POST", path, body)
        text = made.pop("secret", None)
        if text is None:
            raise PipelineError(
                f"{made['secret-id']} was made, but the answer with it was lost on the way: revoke it, and try again"
            )
        write(text)
    if as_json:
        print_json(made if secret_file else made | {"secret": text})
    else:
        typer.echo(f"{made['secret-id']} is in {secret_file}" if secret_file else text)


def _parse_id(text: str) -> str:
    from uuid import UUID

    from duckicelake.errors import BadInputError

    try:
        return str(UUID(text))
    except ValueError as error:
        raise BadInputError(f"{text!r} is no id of a token: see duckicelake token list") from error


add_catalog_command(app, create, *CREATE_EXAMPLES)
add_catalog_command(app, list_, *LIST_EXAMPLES, name="list")
add_catalog_command(app, rotate, *ROTATE_EXAMPLES)
add_catalog_command(app, revoke, *REVOKE_EXAMPLES)
