"""`duckicelake principal`, `group` and `role`: who there is, who is in what, and secrets to log in with."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from duckicelake.cli.console.command import GOVERN, LakeOption, add_command, add_group, make_group, one_line_errors
from duckicelake.cli.console.terminal import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckicelake.catalog.context.services import Services
    from duckicelake.catalog.principals import RegisteredPrincipal, RegisteredSecret
    from duckicelake.settings.model import Settings

CREATE_EXAMPLES: Final = (
    "duckicelake principal create etl",
    "duckicelake principal create ann --kind user --issuer https://id.example --subject 00u1",
    "duckicelake principal create nightly --scope 'ns:sales:*' --description 'loads sales'",
)
LIST_EXAMPLES: Final = (
    "duckicelake principal list",
    "duckicelake principal list --kind user --json | jq -r .name",
)
SHOW_EXAMPLES: Final = ("duckicelake principal show etl",)
DROP_EXAMPLES: Final = ("duckicelake principal drop etl",)
DISABLE_EXAMPLES: Final = ("duckicelake principal disable etl",)
ENABLE_EXAMPLES: Final = ("duckicelake principal enable etl",)
MAKE_SECRET_EXAMPLES: Final = (
    "duckicelake principal secret create etl --secret-file etl.secret",
    "duckicelake principal secret create etl --expires-in 7776000 --end-others-in 86400",
    "duckicelake principal secret create ann --kind token",
)
LIST_SECRETS_EXAMPLES: Final = ("duckicelake principal secret list etl --json",)
REVOKE_EXAMPLES: Final = ("duckicelake principal secret revoke etl 0f7c61f2-6cf2-4b0c-9c0c-6c1f3f1f3a55",)
Kind = Literal["user", "service", "group", "role"]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
NameArgument = Annotated[str, typer.Argument(help="The name of the user, service account, group or role.")]
ContainerArgument = Annotated[str, typer.Argument(help="The name of the group or role.")]
MemberArgument = Annotated[str, typer.Argument(help="The name of the member.")]
ScopeOption = Annotated[
    list[str] | None, typer.Option(help="All that it gives of its principal's scopes; may be repeated (default: all).")
]
SecretFileOption = Annotated[
    Path | None, typer.Option(help="New file for it, which its owner alone may read, instead of the terminal.")
]
DescriptionOption = Annotated[str, typer.Option(help="What it is for.")]
app: Final = make_group("principal", "Users, service accounts, groups and roles, and their secrets.", panel=GOVERN)
secret_app: Final = make_group("secret", "Client secrets and tokens of users and service accounts.")
group_app: Final = make_group("group", "Groups of users and service accounts.", panel=GOVERN)
role_app: Final = make_group("role", "Roles of users, service accounts, groups and other roles.", panel=GOVERN)


@one_line_errors()
def create(
    name: Annotated[str, typer.Argument(help="Its name, which no other principal has.")],
    kind: Annotated[Kind, typer.Option(help="What it is.")] = "service",
    issuer: Annotated[str | None, typer.Option(help="URL of the issuer of its tokens (goes with --subject).")] = None,
    subject: Annotated[str | None, typer.Option(help="How the issuer's tokens name it.")] = None,
    scope: Annotated[
        list[str] | None, typer.Option(help="All that its tokens can have; may be repeated (default: grants).")
    ] = None,
    description: DescriptionOption = "",
    as_json: JsonOption = False,
    lake: LakeOption = None,
) -> None:
    """Register a service account, user, group or role. It may do nothing yet: grant it something.

    A client of the server's settings is registered by its name, and keeps its secret there.
    """
    from duckicelake.catalog import principals

    with open_registry(lake, "create_principal") as (services, _):
        new = principals.PrincipalRegistration(
            name, kind, issuer, subject, tuple(scope or ("grants",)), description=description
        )
        created = principals.create_principal(services, new)
    print_facts(_describe(created), as_json=as_json)


@one_line_errors()
def list_(
    kind: Annotated[Kind | None, typer.Option(help="Only these (default: all).")] = None,
    as_json: JsonOption = False,
    lake: LakeOption = None,
) -> None:
    """List users, service accounts, groups and roles."""
    _list_kinds(lake, ("user", "service", "group", "role") if kind is None else (kind,), as_json=as_json)


@one_line_errors()
def show(name: NameArgument, as_json: JsonOption = False, lake: LakeOption = None) -> None:
    """Print a principal, the groups and roles that it is in by itself, and its members."""
    from duckicelake.catalog import principals

    with open_registry(lake, "load_principal") as (services, _):
        row = principals.load_principal(services, name)
        pairs = principals.list_memberships(services)
    facts = _describe(row)
    facts["in"] = [container for container, member in pairs if member == name]
    if row.kind in ("group", "role"):
        facts["members"] = [member for container, member in pairs if container == name]
    print_facts(facts, as_json=as_json)


@one_line_errors()
def drop(name: NameArgument, lake: LakeOption = None) -> None:
    """Drop a principal with its secrets, memberships and grants. Its tokens end within a second."""
    from duckicelake.catalog import principals

    with open_registry(lake, "drop_principal") as (services, _):
        principals.drop_principal(services, name)
    typer.echo(f"{name} is dropped")


@one_line_errors()
def disable(name: NameArgument, lake: LakeOption = None) -> None:
    """Let a principal do nothing, within a second. A disabled group or role passes nothing on to its members."""
    _set_disabled(lake, name, is_disabled=True)


@one_line_errors()
def enable(name: NameArgument, lake: LakeOption = None) -> None:
    """Let a disabled principal do again what it was granted."""
    _set_disabled(lake, name, is_disabled=False)


@one_line_errors()
def create_secret(
    name: NameArgument,
    kind: Annotated[
        Literal["client-secret", "token"],
        typer.Option(help="client-secret: to log in with, as name:secret. token: sent as Bearer itself."),
    ] = "client-secret",
    expires_in: Annotated[
        int | None, typer.Option(min=1, help="Seconds that it is valid (default: until it is revoked).")
    ] = None,
    end_others_in: Annotated[
        int | None, typer.Option(min=0, help="Seconds after which its other secrets of the kind end.")
    ] = None,
    scope: ScopeOption = None,
    description: DescriptionOption = "",
    secret_file: SecretFileOption = None,
    as_json: JsonOption = False,
    lake: LakeOption = None,
) -> None:
    """Make a client secret or a token. It is printed this once: the server keeps only its hash.

    The output is the secret alone, or JSON with what else there is to know of it.
    """
    from datetime import timedelta

    from duckicelake.catalog import principals
    from duckicelake.cli.wiring.authentication import is_settings_client

    def count(seconds: int | None) -> timedelta | None:
        return None if seconds is None else timedelta(seconds=seconds)

    scopes = tuple(scope) if scope else None
    wish = principals.SecretRequest(kind, description, count(expires_in), count(end_others_in), scopes)
    with open_registry(lake, "create_secret") as (services, settings), open_secret_file(secret_file) as write:
        made = principals.create_secret(services, name, wish, lambda client: is_settings_client(settings, client))
        text = made.text or ""
        write(text)
    facts = _describe_secret(made.row)
    if as_json:
        print_json(facts if secret_file else facts | {"secret": text})
    else:
        typer.echo(f"{facts['secret-id']} is in {secret_file}" if secret_file else text)


@one_line_errors()
def list_secrets(name: NameArgument, as_json: JsonOption = False, lake: LakeOption = None) -> None:
    """List the secrets and tokens of a principal: their ids, when they end, when they were last used."""
    from duckicelake.catalog import principals

    with open_registry(lake, "list_secrets") as (services, _):
        rows = [_describe_secret(row) for row in principals.list_secrets(services, name).items]
    if as_json:
        print_json(*rows)
        return
    for row in rows:
        print_secret(row)


@one_line_errors()
def revoke_secret(
    name: NameArgument,
    secret_id: Annotated[str, typer.Argument(help="The secret's id, as `list` has it.")],
    lake: LakeOption = None,
) -> None:
    """Revoke a secret or token. Tokens that were got by it end with it, within a second."""
    from uuid import UUID

    from duckicelake.catalog import principals
    from duckicelake.errors import InvalidRequestError

    try:
        found = UUID(secret_id)
    except ValueError as error:
        raise InvalidRequestError(
            f"{secret_id!r} is no id of a secret: see duckicelake principal secret list"
        ) from error
    with open_registry(lake, "revoke_secret") as (services, _):
        principals.revoke_secret(services, name, found)
    typer.echo(f"{secret_id} is revoked")


def print_secret(row: dict[str, Any]) -> None:
    """Print a line about a secret, as the management API describes it."""
    until, used = row["expires"] or "when it is revoked", row["last-used"] or "never"
    scopes = "" if row["scopes"] is None else f", {' '.join(row['scopes'])}"
    line = f"{row['secret-id']} {row['kind']:13} ends {until}, last used {used}{scopes}  {row['description']}"
    typer.echo(line.rstrip())


def _add_container_commands(group: typer.Typer, kind: Literal["group", "role"]) -> None:
    """Add the commands of groups or of roles, which are principals of that kind."""
    word = f"duckicelake {kind}"

    @one_line_errors()
    def create(
        name: Annotated[str, typer.Argument(help="Its name, which no other principal has.")],
        description: DescriptionOption = "",
        as_json: JsonOption = False,
        lake: LakeOption = None,
    ) -> None:
        from duckicelake.catalog import principals

        with open_registry(lake, "create_principal") as (services, _):
            new = principals.PrincipalRegistration(name, kind, description=description)
            created = principals.create_principal(services, new)
        print_facts(_describe(created), as_json=as_json)

    @one_line_errors()
    def list_(as_json: JsonOption = False, lake: LakeOption = None) -> None:
        _list_kinds(lake, (kind,), as_json=as_json)

    @one_line_errors()
    def list_members(name: ContainerArgument, as_json: JsonOption = False, lake: LakeOption = None) -> None:
        from duckicelake.catalog import principals
        from duckicelake.catalog.context.page import walk_pages

        with open_registry(lake, "list_members") as (services, _):
            _check_kind(services, name, kind)
            for member in walk_pages(lambda page: principals.list_members(services, name, page)):
                if as_json:
                    print_json({"name": member})
                else:
                    typer.echo(member)

    @one_line_errors()
    def add(name: ContainerArgument, member: MemberArgument, lake: LakeOption = None) -> None:
        from duckicelake.catalog import principals

        with open_registry(lake, "add_member") as (services, _):
            _check_kind(services, name, kind)
            principals.add_member(services, name, member)
        typer.echo(f"{member} is in {name}")

    @one_line_errors()
    def remove(name: ContainerArgument, member: MemberArgument, lake: LakeOption = None) -> None:
        from duckicelake.catalog import principals

        with open_registry(lake, "remove_member") as (services, _):
            _check_kind(services, name, kind)
            principals.remove_member(services, name, member)
        typer.echo(f"{member} is not in {name}")

    create.__doc__ = f"Create a {kind}. Principals of all kinds have names of their own. Drop it with principal drop."
    list_.__doc__ = f"List the {kind}s."
    list_members.__doc__ = f"List the direct members of a {kind}."
    add.__doc__ = f"Put a principal into a {kind}. It has at once what the {kind} was granted."
    remove.__doc__ = f"Take a principal out of a {kind}. It loses what the {kind} was granted within a second."
    members = make_group("members", f"Who is in a {kind}.")
    add_command(group, create, f"{word} create analysts", name="create", has_warehouse_option=False)
    add_command(group, list_, f"{word} list", name="list", has_warehouse_option=False)
    add_command(members, list_members, f"{word} members list analysts", name="list", has_warehouse_option=False)
    add_command(members, add, f"{word} members add analysts ann", name="add", has_warehouse_option=False)
    add_command(members, remove, f"{word} members remove analysts ann", name="remove", has_warehouse_option=False)
    add_group(group, members)


def _list_kinds(lake: Any, kinds: tuple[Kind, ...], *, as_json: bool) -> None:
    from duckicelake.catalog import principals
    from duckicelake.catalog.context.page import walk_pages

    with open_registry(lake, "list_principals") as (services, _):
        for row in walk_pages(lambda page: principals.list_principals(services, kinds, page)):
            if as_json:
                print_json(_describe(row))
                continue
            state = "  (disabled)" if row.is_disabled else ""
            typer.echo(f"{row.name:24} {row.kind:8} {' '.join(row.scopes)}{state}")


def _set_disabled(lake: Any, name: str, *, is_disabled: bool) -> None:
    from duckicelake.catalog import principals

    with open_registry(lake, "change_principal") as (services, _):
        principals.change_principal(services, name, principals.PrincipalChange(is_disabled=is_disabled))
    typer.echo(f"{name} is {'disabled' if is_disabled else 'enabled'}")


def _check_kind(services: Services, name: str, kind: str) -> None:
    from duckicelake.catalog import principals
    from duckicelake.errors import InvalidRequestError

    found = principals.load_principal(services, name)
    if found.kind != kind:
        raise InvalidRequestError(f"{name} is a {found.kind}, no {kind}")


@contextmanager
def open_registry(lake: Any, operation: str) -> Iterator[tuple[Services, Settings]]:
    """Open the first warehouse, whose schema holds principals and issuers."""
    from duckicelake.cli.wiring.services import open_lake
    from duckicelake.settings.sources import read_settings

    settings = read_settings({"lake": lake})
    with open_lake(settings, operation) as services:
        yield services, settings


@contextmanager
def open_secret_file(path: Path | None) -> Iterator[Any]:
    """Yield what writes a secret to a new file; the file is made first, and removed if the block fails."""
    import os

    from duckicelake.errors import InvalidRequestError

    if path is None:
        yield lambda _: None
        return
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise InvalidRequestError(f"{path} can't be made as a new file: {error.strerror}") from error
    try:
        with os.fdopen(number, "w") as file:
            yield lambda text: file.write(f"{text}\n")
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def print_facts(facts: dict[str, Any], *, as_json: bool) -> None:
    """Print what something is, as the management API has it."""
    if as_json:
        print_json(facts)
        return
    for name, value in facts.items():
        if value is not None:
            typer.echo(f"{name:16} {' '.join(value) if isinstance(value, list) else value}".rstrip())


def _describe(row: RegisteredPrincipal) -> dict[str, Any]:
    """Describe a principal with the field names of the management API."""
    return {
        "principal-id": row.principal_id,
        "name": row.name,
        "kind": row.kind,
        "issuer": row.issuer,
        "subject": row.subject,
        "scopes": list(row.scopes),
        "is-disabled": row.is_disabled,
        "description": row.description,
        "created": row.created.isoformat(),
    }


def _describe_secret(row: RegisteredSecret) -> dict[str, Any]:
    return {
        "secret-id": str(row.secret_id),
        "kind": row.kind,
        "description": row.description,
        "created": row.created.isoformat(),
        "expires": None if row.expires is None else row.expires.isoformat(),
        "last-used": None if row.last_used is None else row.last_used.isoformat(),
        "scopes": None if row.scopes is None else list(row.scopes),
        "made-by": [*map(str, row.made_by)],
    }


add_command(app, create, *CREATE_EXAMPLES, has_warehouse_option=False)
add_command(app, list_, *LIST_EXAMPLES, name="list", has_warehouse_option=False)
add_command(app, show, *SHOW_EXAMPLES, has_warehouse_option=False)
add_command(app, drop, *DROP_EXAMPLES, has_warehouse_option=False)
add_command(app, disable, *DISABLE_EXAMPLES, has_warehouse_option=False)
add_command(app, enable, *ENABLE_EXAMPLES, has_warehouse_option=False)
add_command(secret_app, create_secret, *MAKE_SECRET_EXAMPLES, name="create", has_warehouse_option=False)
add_command(secret_app, list_secrets, *LIST_SECRETS_EXAMPLES, name="list", has_warehouse_option=False)
add_command(secret_app, revoke_secret, *REVOKE_EXAMPLES, name="revoke", has_warehouse_option=False)
add_group(app, secret_app)
_add_container_commands(group_app, "group")
_add_container_commands(role_app, "role")
