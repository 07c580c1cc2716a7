"""`duckicelake issuer`: OpenID Connect issuers that are trusted beside that of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duckicelake.cli.console.command import GOVERN, LakeOption, add_command, make_group, one_line_errors
from duckicelake.cli.console.terminal import print_json
from duckicelake.cli.principal import open_registry, print_facts

if TYPE_CHECKING:
    from duckicelake.catalog.issuers import ListedIssuer

ADD_EXAMPLES: Final = ("duckicelake issuer add corp https://id.example --audience lake --group-claim groups",)
LIST_EXAMPLES: Final = ("duckicelake issuer list",)
SHOW_EXAMPLES: Final = ("duckicelake issuer show corp --json",)
DROP_EXAMPLES: Final = ("duckicelake issuer drop corp",)
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
NameArgument = Annotated[str, typer.Argument(help="The issuer's name.")]
app: Final = make_group("issuer", "OpenID Connect issuers that are trusted beside that of the settings.", panel=GOVERN)


@one_line_errors()
def add(
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
    lake: LakeOption = None,
) -> None:
    """Trust an issuer. A server that runs without logins needs them from its next start on."""
    from duckicelake.catalog import issuers

    issuer = issuers.ListedIssuer(
        name, url, audience, jwks_url, subject_claim, group_claim, scope_claim, tuple(scope or ("grants",))
    )
    with open_registry(lake, "create_issuer") as (services, settings):
        created = issuers.create_issuer(services, issuer, settings.oidc_issuer)
    print_facts(_describe(created), as_json=as_json)


@one_line_errors()
def list_(as_json: JsonOption = False, lake: LakeOption = None) -> None:
    """List the issuers beside that of the settings."""
    from duckicelake.catalog import issuers

    with open_registry(lake, "list_issuers") as (services, _):
        rows = issuers.list_issuers(services).items
    if as_json:
        print_json(*map(_describe, rows))
        return
    for row in rows:
        typer.echo(f"{row.name:24} {row.url:40} for {row.audience}")


@one_line_errors()
def show(name: NameArgument, as_json: JsonOption = False, lake: LakeOption = None) -> None:
    """Print how the tokens of an issuer are read."""
    from duckicelake.catalog import issuers

    with open_registry(lake, "load_issuer") as (services, _):
        row = issuers.load_issuer(services, name)
    print_facts(_describe(row), as_json=as_json)


@one_line_errors()
def drop(name: NameArgument, lake: LakeOption = None) -> None:
    """Trust an issuer no more. Its tokens end within a second; its users stay registered."""
    from duckicelake.catalog import issuers

    with open_registry(lake, "drop_issuer") as (services, _):
        issuers.drop_issuer(services, name)
    typer.echo(f"{name} is dropped")


def _describe(row: ListedIssuer) -> dict[str, Any]:
    """Describe an issuer with the field names of the management API."""
    return {
        "name": row.name,
        "url": row.url,
        "audience": row.audience,
        "jwks-url": row.jwks_url,
        "subject-claim": row.subject_claim,
        "group-claim": row.group_claim,
        "scope-claim": row.scope_claim,
        "scopes": list(row.scopes),
        "created": None if row.created is None else row.created.isoformat(),
    }


add_command(app, add, *ADD_EXAMPLES, has_warehouse_option=False)
add_command(app, list_, *LIST_EXAMPLES, name="list", has_warehouse_option=False)
add_command(app, show, *SHOW_EXAMPLES, has_warehouse_option=False)
add_command(app, drop, *DROP_EXAMPLES, has_warehouse_option=False)
