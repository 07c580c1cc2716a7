"""`duckicelake issuer`: OpenID Connect issuers that are trusted beside that of the settings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duckicelake.cli.catalog.connection import add_administration_command
from duckicelake.cli.console.command import GOVERN, make_group
from duckicelake.cli.console.terminal import print_json, read_secret
from duckicelake.cli.principal import list_facts, print_facts

if TYPE_CHECKING:
    from duckicelake.client.administration import Administrator

ADD_EXAMPLES: Final = (
    "duckicelake issuer add corp https://id.example --audience lake --group-claim groups",
    "duckicelake issuer add corp https://id.example --audience lake --web-client-id lake-console --label 'Corp SSO'",
)
LIST_EXAMPLES: Final = ("duckicelake issuer list",)
SHOW_EXAMPLES: Final = ("duckicelake issuer show corp --json",)
DROP_EXAMPLES: Final = ("duckicelake issuer drop corp",)
CHANGE_EXAMPLES: Final = (
    "duckicelake issuer change corp --web-client-id lake-console --label 'Corp SSO'",
    "duckicelake issuer change corp --web-client-id lake-console --web-secret < console.secret",
    "duckicelake issuer change corp --web-client-id ''",
)
DISABLE_EXAMPLES: Final = ("duckicelake issuer disable corp",)
ENABLE_EXAMPLES: Final = ("duckicelake issuer enable corp",)
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
NameArgument = Annotated[str, typer.Argument(help="The issuer's name.")]
JwksOption = Annotated[str | None, typer.Option(help="Address of its keys (default: as its discovery document says).")]
SubjectOption = Annotated[str, typer.Option(help="The claim that names the caller.")]
GroupOption = Annotated[str | None, typer.Option(help="The claim whose values are names of groups.")]
ScopeClaimOption = Annotated[str | None, typer.Option(help="The claim whose values are scopes, beside --scope.")]
ScopeOption = Annotated[
    list[str] | None, typer.Option(help="What each of its tokens has; may be repeated (default: grants).")
]
LeewayOption = Annotated[int, typer.Option(help="Seconds by which its clock may differ.")]
LabelOption = Annotated[str, typer.Option(help="What the page to sign in calls it (default: its address).")]
WebClientOption = Annotated[
    str | None, typer.Option(help="What it calls the console, where people sign in to that (default: they don't).")
]
WebScopeOption = Annotated[
    list[str] | None, typer.Option(help="What the console asks it for; may be repeated (default: openid).")
]
WebParameterOption = Annotated[
    list[str] | None, typer.Option(help="name=value, what else its page to sign in is sent; may be repeated.")
]
WebSecretOption = Annotated[
    bool, typer.Option("--web-secret", help="Read that client's secret from the terminal or standard input.")
]
_OPTIONAL: Final = frozenset({"jwks_url", "group_claim", "scope_claim", "web_client_id"})
app: Final = make_group("issuer", "OpenID Connect issuers that are trusted beside that of the settings.", panel=GOVERN)


def add(
    server: Administrator,
    name: Annotated[str, typer.Argument(help="Its name: lower-case letters, digits, _, . and -.")],
    url: Annotated[str, typer.Argument(help="The claim iss of its tokens.")],
    audience: Annotated[str, typer.Option(help="What its tokens call this server, by the claim aud.")],
    jwks_url: JwksOption = None,
    subject_claim: SubjectOption = "sub",
    group_claim: GroupOption = None,
    scope_claim: ScopeClaimOption = None,
    scope: ScopeOption = None,
    leeway: LeewayOption = 30,
    label: LabelOption = "",
    web_client_id: WebClientOption = None,
    web_scope: WebScopeOption = None,
    web_parameter: WebParameterOption = None,
    web_secret: WebSecretOption = False,
    as_json: JsonOption = False,
) -> None:
    """Trust an issuer. A server that runs without logins needs them from its next start on.

    With --web-client-id people sign in to the console there; see docs/how-to/sign-in.md.
    """
    from duckicelake.client.governance import IssuerInfo

    issuer = IssuerInfo(
        name,
        url,
        audience,
        jwks_url,
        subject_claim,
        group_claim,
        scope_claim,
        tuple(scope or ("grants",)),
        leeway=leeway,
        label=label,
        web_client_id=web_client_id,
        web_scopes=tuple(web_scope or ("openid",)),
        web_parameters=tuple(web_parameter or ()),
    )
    print_facts(list_facts(server.create_issuer(issuer, _read_secret(web_secret))), as_json=as_json)


def change(
    server: Administrator,
    name: NameArgument,
    audience: Annotated[str | None, typer.Option(help="What its tokens call this server, by the claim aud.")] = None,
    jwks_url: JwksOption = None,
    subject_claim: Annotated[str | None, typer.Option(help="The claim that names the caller.")] = None,
    group_claim: GroupOption = None,
    scope_claim: ScopeClaimOption = None,
    scope: ScopeOption = None,
    leeway: Annotated[int | None, typer.Option(help="Seconds by which its clock may differ.")] = None,
    label: Annotated[str | None, typer.Option(help="What the page to sign in calls it.")] = None,
    web_client_id: WebClientOption = None,
    web_scope: WebScopeOption = None,
    web_parameter: WebParameterOption = None,
    web_secret: WebSecretOption = False,
    as_json: JsonOption = False,
) -> None:
    """Change an issuer, within a second. What isn't given stays; an empty text takes away what may be left out."""
    from dataclasses import replace

    given: dict[str, Any] = {
        "audience": audience,
        "jwks_url": jwks_url,
        "subject_claim": subject_claim,
        "group_claim": group_claim,
        "scope_claim": scope_claim,
        "scopes": scope,
        "leeway": leeway,
        "label": label,
        "web_client_id": web_client_id,
        "web_scopes": web_scope,
        "web_parameters": web_parameter,
    }
    changes = {key: _parse_change(key, value) for key, value in given.items() if value is not None}
    issuer = replace(server.load_issuer(name), **changes)
    print_facts(list_facts(server.change_issuer(issuer, _read_secret(web_secret))), as_json=as_json)


def disable(server: Administrator, name: NameArgument) -> None:
    """Let the tokens of an issuer count no more, and no one sign in there, within a second. It stays registered."""
    _set_disabled(server, name, is_disabled=True)


def enable(server: Administrator, name: NameArgument) -> None:
    """Let the tokens of a disabled issuer count again."""
    _set_disabled(server, name, is_disabled=False)


def list_(server: Administrator, as_json: JsonOption = False) -> None:
    """List the issuers beside that of the settings."""
    rows = server.list_issuers()
    if as_json:
        print_json(*map(list_facts, rows))
        return
    for row in rows:
        state = "  (disabled)" if row.is_disabled else "" if row.web_client_id is None else "  signs in to the console"
        typer.echo(f"{row.name:24} {row.url:40} for {row.audience}{state}")


def show(server: Administrator, name: NameArgument, as_json: JsonOption = False) -> None:
    """Print how the tokens of an issuer are read."""
    print_facts(list_facts(server.load_issuer(name)), as_json=as_json)


def drop(server: Administrator, name: NameArgument) -> None:
    """Trust an issuer no more. Its tokens end within a second; its users stay registered."""
    server.drop_issuer(name)
    typer.echo(f"{name} is dropped")


def _set_disabled(server: Administrator, name: str, *, is_disabled: bool) -> None:
    from dataclasses import replace

    server.change_issuer(replace(server.load_issuer(name), is_disabled=is_disabled))
    typer.echo(f"{name} is {'disabled' if is_disabled else 'enabled'}")


def _parse_change(key: str, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(filter(None, value))
    return None if value == "" and key in _OPTIONAL else value


def _read_secret(is_given: bool) -> str | None:
    return read_secret("Secret of the client") if is_given else None


add_administration_command(app, add, *ADD_EXAMPLES)
add_administration_command(app, change, *CHANGE_EXAMPLES)
add_administration_command(app, disable, *DISABLE_EXAMPLES)
add_administration_command(app, enable, *ENABLE_EXAMPLES)
add_administration_command(app, list_, *LIST_EXAMPLES, name="list")
add_administration_command(app, show, *SHOW_EXAMPLES)
add_administration_command(app, drop, *DROP_EXAMPLES)
