"""`duckicelake principal`, `group` and `role`: who there is, who is in what, and secrets to log in with."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import typer

from duckicelake.cli.catalog.connection import add_administration_command
from duckicelake.cli.console.command import GOVERN, add_group, make_group
from duckicelake.cli.console.terminal import print_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from duckicelake.client.administration import Administrator
    from duckicelake.client.governance import SecretInfo

CREATE_EXAMPLES: Final = (
    "duckicelake principal create etl",
    "duckicelake principal create ann --kind user --issuer https://id.example --subject 00u1",
    "duckicelake principal create nightly --scope 'ns:sales:*' --description 'loads sales'",
)
CREATE_GROUP_EXAMPLES: Final = (
    "duckicelake group create analysts",
    "duckicelake group create analysts --issuer https://id.example --subject 'dept:analytics'",
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


def create(
    server: Administrator,
    name: Annotated[str, typer.Argument(help="Its name, which no other principal has.")],
    kind: Annotated[Kind, typer.Option(help="What it is.")] = "service",
    issuer: Annotated[str | None, typer.Option(help="URL of the issuer of its tokens (goes with --subject).")] = None,
    subject: Annotated[str | None, typer.Option(help="How the issuer's tokens name it.")] = None,
    scope: Annotated[
        list[str] | None, typer.Option(help="All that its tokens can have; may be repeated (default: grants).")
    ] = None,
    description: DescriptionOption = "",
    as_json: JsonOption = False,
) -> None:
    """Register a service account, user, group or role. It may do nothing yet: grant it something.

    A client of the server's settings is registered by its name, and keeps its secret there.
    """
    created = server.create_principal(
        name, kind, issuer=issuer, subject=subject, scopes=scope or ("grants",), description=description
    )
    print_facts(list_facts(created), as_json=as_json)


def list_(
    server: Administrator,
    kind: Annotated[Kind | None, typer.Option(help="Only these (default: all).")] = None,
    as_json: JsonOption = False,
) -> None:
    """List users, service accounts, groups and roles."""
    _list_kinds(server, ("user", "service", "group", "role") if kind is None else (kind,), as_json=as_json)


def show(server: Administrator, name: NameArgument, as_json: JsonOption = False) -> None:
    """Print a principal, the groups and roles that it is in by itself, and its members."""
    found, containers = server.load_principal(name)
    facts = list_facts(found) | {"in": list(containers)}
    if found.kind in ("group", "role"):
        facts["members"] = list(server.list_members(name))
    print_facts(facts, as_json=as_json)


def drop(server: Administrator, name: NameArgument) -> None:
    """Drop a principal with its secrets, memberships and grants. Its tokens end within a second."""
    server.drop_principal(name)
    typer.echo(f"{name} is dropped")


def disable(server: Administrator, name: NameArgument) -> None:
    """Let a principal do nothing, within a second. A disabled group or role passes nothing on to its members."""
    _set_disabled(server, name, is_disabled=True)


def enable(server: Administrator, name: NameArgument) -> None:
    """Let a disabled principal do again what it was granted."""
    _set_disabled(server, name, is_disabled=False)


def create_secret(
    server: Administrator,
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
) -> None:
    """Make a client secret or a token. It is printed this once: the server keeps only its hash.

    The output is the secret alone, or JSON with what else there is to know of it.
    """
    make = partial(
        server.create_secret,
        name,
        kind,
        description=description,
        expires_in=expires_in,
        end_others_in=end_others_in,
        scopes=scope,
    )
    print_made(make, secret_file, as_json=as_json)


def list_secrets(server: Administrator, name: NameArgument, as_json: JsonOption = False) -> None:
    """List the secrets and tokens of a principal: their ids, when they end, when they were last used."""
    print_secrets(server.list_secrets(name), as_json=as_json)


def revoke_secret(
    server: Administrator,
    name: NameArgument,
    secret_id: Annotated[str, typer.Argument(help="The secret's id, as `list` has it.")],
) -> None:
    """Revoke a secret or token. Tokens that were got by it end with it, within a second."""
    server.revoke_secret(name, parse_secret_id(secret_id, "duckicelake principal secret list"))
    typer.echo(f"{secret_id} is revoked")


def print_made(make: Callable[[], SecretInfo], secret_file: Path | None, *, as_json: bool) -> None:
    """Make a secret or token, and print it or put it into a new file."""
    from duckicelake.errors import PipelineError

    with open_secret_file(secret_file) as write:
        made = make()
        if made.secret is None:  # the first answer didn't arrive, and its repetition has none
            raise PipelineError(
                f"{made.secret_id} was made, but the answer with it was lost on the way: revoke it, and try again"
            )
        write(made.secret)
    if as_json:
        print_json({key: value for key, value in list_facts(made).items() if key != "secret" or not secret_file})
    else:
        typer.echo(f"{made.secret_id} is in {secret_file}" if secret_file else made.secret)


def print_secrets(found: Iterable[SecretInfo], *, as_json: bool) -> None:
    """Print a line about each secret or token, or what there is to know of it as JSON."""
    rows = [list_facts(one) for one in found]
    for row in rows:
        del row["secret"]
    if as_json:
        print_json(*rows)
        return
    for row in rows:
        until, used = row["expires"] or "when it is revoked", row["last-used"] or "never"
        scopes = "" if row["scopes"] is None else f", {' '.join(row['scopes'])}"
        line = f"{row['secret-id']} {row['kind']:13} ends {until}, last used {used}{scopes}  {row['description']}"
        typer.echo(line.rstrip())


def parse_secret_id(text: str, listing: str) -> str:
    """Parse the id of a secret or token. listing: the command that lists them; InvalidRequestError."""
    from uuid import UUID

    from duckicelake.errors import InvalidRequestError

    try:
        return str(UUID(text))
    except ValueError as error:
        raise InvalidRequestError(f"{text!r} is no id of a secret or token: see {listing}") from error


def create_group(
    server: Administrator,
    name: Annotated[str, typer.Argument(help="Its name, which no other principal has.")],
    issuer: Annotated[
        str | None, typer.Option(help="URL of the issuer whose tokens name it so (goes with --subject).")
    ] = None,
    subject: Annotated[
        str | None, typer.Option(help="The value in their claim of groups (default: its name, for all issuers).")
    ] = None,
    description: DescriptionOption = "",
    as_json: JsonOption = False,
) -> None:
    """Register a group. It may do nothing yet: grant it something."""
    created = server.create_principal(name, "group", issuer=issuer, subject=subject, description=description)
    print_facts(list_facts(created), as_json=as_json)


def create_role(
    server: Administrator,
    name: Annotated[str, typer.Argument(help="Its name, which no other principal has.")],
    description: DescriptionOption = "",
    as_json: JsonOption = False,
) -> None:
    """Register a role. It may do nothing yet: grant it something."""
    print_facts(list_facts(server.create_principal(name, "role", description=description)), as_json=as_json)


def _add_container_commands(group: typer.Typer, kind: Literal["group", "role"]) -> None:
    """Add the commands of groups or of roles, which are principals of that kind."""
    word = f"duckicelake {kind}"

    def list_(server: Administrator, as_json: JsonOption = False) -> None:
        _list_kinds(server, (kind,), as_json=as_json)

    def list_members(server: Administrator, name: ContainerArgument, as_json: JsonOption = False) -> None:
        _check_kind(server, name, kind)
        members = server.list_members(name)
        if as_json:
            print_json(*({"name": member} for member in members))
        elif members:
            typer.echo("\n".join(members))

    def add(server: Administrator, name: ContainerArgument, member: MemberArgument) -> None:
        _check_kind(server, name, kind)
        server.add_member(name, member)
        typer.echo(f"{member} is in {name}")

    def remove(server: Administrator, name: ContainerArgument, member: MemberArgument) -> None:
        _check_kind(server, name, kind)
        server.remove_member(name, member)
        typer.echo(f"{member} is not in {name}")

    list_.__doc__ = f"List the {kind}s."
    list_members.__doc__ = f"List the direct members of a {kind}."
    add.__doc__ = f"Put a principal into a {kind}. It has at once what the {kind} was granted."
    remove.__doc__ = f"Take a principal out of a {kind}. It loses what the {kind} was granted within a second."
    members = make_group("members", f"Who is in a {kind}.")
    add_administration_command(group, list_, f"{word} list", name="list")
    add_administration_command(members, list_members, f"{word} members list analysts", name="list")
    add_administration_command(members, add, f"{word} members add analysts ann", name="add")
    add_administration_command(members, remove, f"{word} members remove analysts ann", name="remove")
    add_group(group, members)


def _list_kinds(server: Administrator, kinds: tuple[Kind, ...], *, as_json: bool) -> None:
    rows = server.list_principals(kinds)
    if as_json:
        print_json(*map(list_facts, rows))
        return
    for row in rows:
        state = "  (disabled)" if row.is_disabled else ""
        typer.echo(f"{row.name:24} {row.kind:8} {' '.join(row.scopes)}{state}")


def _set_disabled(server: Administrator, name: str, *, is_disabled: bool) -> None:
    server.set_disabled(name, is_disabled=is_disabled)
    typer.echo(f"{name} is {'disabled' if is_disabled else 'enabled'}")


def _check_kind(server: Administrator, name: str, kind: str) -> None:
    from duckicelake.errors import InvalidRequestError

    found, _ = server.load_principal(name)
    if found.kind != kind:
        raise InvalidRequestError(f"{name} is a {found.kind}, no {kind}")


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


def list_facts(record: Any) -> dict[str, Any]:
    """List what a record of the client says, with the names of the management API."""
    from dataclasses import fields

    return {one.name.replace("_", "-"): _encode(getattr(record, one.name)) for one in fields(record)}


def _encode(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    return value.isoformat() if hasattr(value, "isoformat") else value


add_administration_command(app, create, *CREATE_EXAMPLES)
add_administration_command(app, list_, *LIST_EXAMPLES, name="list")
add_administration_command(app, show, *SHOW_EXAMPLES)
add_administration_command(app, drop, *DROP_EXAMPLES)
add_administration_command(app, disable, *DISABLE_EXAMPLES)
add_administration_command(app, enable, *ENABLE_EXAMPLES)
add_administration_command(secret_app, create_secret, *MAKE_SECRET_EXAMPLES, name="create")
add_administration_command(secret_app, list_secrets, *LIST_SECRETS_EXAMPLES, name="list")
add_administration_command(secret_app, revoke_secret, *REVOKE_EXAMPLES, name="revoke")
add_group(app, secret_app)
add_administration_command(group_app, create_group, *CREATE_GROUP_EXAMPLES, name="create")
_add_container_commands(group_app, "group")
add_administration_command(role_app, create_role, "duckicelake role create analysts", name="create")
_add_container_commands(role_app, "role")
