"""`duckicelake issuer`: OpenID Connect issuers that are trusted beside that of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake.cli.catalog.connection import add_administration_command
from duckicelake.cli.console.command import GOVERN, make_group
from duckicelake.cli.console.terminal import print_json
from duckicelake.cli.principal import list_facts, print_facts

if TYPE_CHECKING:
    from duckicelake.client.administration import Administrator

ADD_EXAMPLES: Final = ("duckicelake issuer add corp https://id.example --audience lake --group-claim groups",)
LIST_EXAMPLES: Final = ("duckicelake issuer list",)
SHOW_EXAMPLES: Final = ("duckicelake issuer show corp --json",)
DROP_EXAMPLES: Final = ("duckicelake issuer drop corp",)
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
NameArgument = Annotated[str, typer.Argument(help="The issuer's name.")]
app: Final = make_group("issuer", "OpenID Connect issuers that are trusted beside that of the settings.", panel=GOVERN)


def add(
    server: Administrator,
    name: Annotated[str, typer.Argument(help="Its name: lower-case letters, digits, _, . and -.")],
    url: Annotated[str, typer.Argument(help="The claim iss of its tokens.")],
    audience: Annotated[str, typer.Option(help="What its tokens call this server, by the claim aud.")],
    jwks_url: Annotated[
        str | None, typer.Option(help="Address of its keys (default: as its discovery document says).")
    ] = None,
    subject_claim: Annotated[str, typer.Option(help="The claim that names the caller.")] = "sub",
    group_claim: Annotated[str | None, typer.Option(help="The claim whose values are names of groups.")] = None,
    scope_claim: Annotated[str | None, typer.Option(help="The claim whose values are scopes, beside --scope.")] = None,
    scope: Annotated[
        list[str] | None, typer.Option(help="What each of its tokens has; may be repeated (default: grants).")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Trust an issuer. A server that runs without logins needs them from its next start on."""
    from duckicelake.client.governance import IssuerInfo

    scopes = tuple(scope or ("grants",))
    issuer = IssuerInfo(name, url, audience, jwks_url, subject_claim, group_claim, scope_claim, scopes)
    print_facts(list_facts(server.create_issuer(issuer)), as_json=as_json)


def list_(server: Administrator, as_json: JsonOption = False) -> None:
    """List the issuers beside that of the settings."""
    rows = server.list_issuers()
    if as_json:
        print_json(*map(list_facts, rows))
        return
    for row in rows:
        typer.echo(f"{row.name:24} {row.url:40} for {row.audience}")


def show(server: Administrator, name: NameArgument, as_json: JsonOption = False) -> None:
    """Print how the tokens of an issuer are read."""
    print_facts(list_facts(server.load_issuer(name)), as_json=as_json)


def drop(server: Administrator, name: NameArgument) -> None:
    """Trust an issuer no more. Its tokens end within a second; its users stay registered."""
    server.drop_issuer(name)
    typer.echo(f"{name} is dropped")


add_administration_command(app, add, *ADD_EXAMPLES)
add_administration_command(app, list_, *LIST_EXAMPLES, name="list")
add_administration_command(app, show, *SHOW_EXAMPLES)
add_administration_command(app, drop, *DROP_EXAMPLES)
