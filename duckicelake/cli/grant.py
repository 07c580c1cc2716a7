"""`duckicelake grant`, `revoke`, `list-grants` and `why`: who may do what in a warehouse, and what decides it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from duckicelake.cli.console.terminal import print_json
from duckicelake.cli.principal import list_facts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckicelake.client.administration import Administrator
    from duckicelake.client.governance import DecisionInfo

GRANT_EXAMPLES: Final = (
    "duckicelake grant ann select namespace:sales",
    "duckicelake grant etl select,insert,delete table:sales.orders",
    "duckicelake grant analysts select warehouse --warehouse north",
)
REVOKE_EXAMPLES: Final = ("duckicelake revoke ann select namespace:sales",)
LIST_EXAMPLES: Final = (
    "duckicelake list-grants",
    "duckicelake list-grants ann --json | jq -r .privilege",
    "duckicelake list-grants --on table:sales.orders",
)
WHY_EXAMPLES: Final = (
    "duckicelake why ann select table:sales.orders",
    "duckicelake why etl drop namespace:sales --scopes ns:sales:rw",
    "duckicelake why role:analysts select view:sales.totals",
)
PrincipalArgument = Annotated[str, typer.Argument(help="A user, service, group or role.")]
PrivilegesArgument = Annotated[
    str,
    typer.Argument(
        help="Joined by commas: select, insert, update, delete, create, drop, alter, manage-grants, ownership."
    ),
]
ObjectArgument = Annotated[
    str, typer.Argument(help="warehouse, namespace:NAME, table:NAMESPACE.NAME or view:NAMESPACE.NAME.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


def grant(
    server: Administrator,
    principal: PrincipalArgument,
    privileges: PrivilegesArgument,
    target: ObjectArgument,
    warehouse: str,
) -> None:
    """Give privileges on a warehouse, namespace, table or view; those on a namespace hold below it, too.

    They decide where `duckicelake warehouse grants` is on.
    """
    wanted = privileges.split(",")
    done = server.change_grants(warehouse, principal, wanted, target)
    typer.echo(f"{principal} has {', '.join(wanted)} on {target}; {done.granted} new")
    if not done.grants_on:
        typer.echo(f"grants are off, so scopes alone decide: duckicelake warehouse grants {warehouse} on", err=True)


def revoke(
    server: Administrator,
    principal: PrincipalArgument,
    privileges: PrivilegesArgument,
    target: ObjectArgument,
    warehouse: str,
) -> None:
    """Take privileges that were given on an object. It ends within a second, on all servers."""
    wanted = privileges.split(",")
    done = server.change_grants(warehouse, principal, wanted, target, is_revoked=True)
    typer.echo(f"{done.revoked} of {len(wanted)} privileges of {principal} on {target} taken")


def list_grants(
    server: Administrator,
    warehouse: str,
    principal: Annotated[str | None, typer.Argument(help="Only what was granted to this one by itself.")] = None,
    on: Annotated[str | None, typer.Option(help="Only what was granted on this object.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List the grants of a warehouse."""
    found = server.list_grants(warehouse, principal, on)
    if as_json:
        print_json(*map(list_facts, found))
        return
    for one in found:
        where = f"{one.kind} {one.id}, which is not there" if one.object is None else one.object
        typer.echo(f"{one.principal:24} {one.privilege:14} {where:40} by {one.granted_by}")


def why(
    server: Administrator,
    principal: Annotated[str, typer.Argument(help="A user, service, group or role; role:admin also says its kind.")],
    action: Annotated[str, typer.Argument(help="A privilege, as select.")],
    target: ObjectArgument,
    warehouse: str,
    scopes: Annotated[
        str | None,
        typer.Option(help="Scopes of a token, separated by spaces; by default all that it can have."),
    ] = None,
    groups: Annotated[str, typer.Option(help="Names of groups in the token, joined by commas.")] = "",
    as_json: JsonOption = False,
) -> None:
    """Say whether a principal may do something, and what decides: scopes, grants, roles, an outside service.

    It exits with 1 if not. A client of the settings has the scopes that stand there: give them by --scopes.
    """
    decision = server.explain_decision(warehouse, principal, action, target, scopes=scopes, groups=groups)
    if as_json:
        print_json(list_facts(decision) | {"by": [list_facts(reason) for reason in decision.by]})
    else:
        typer.echo(f"{principal} may {'' if decision.is_allowed else 'not '}{action} on {target}")
        for line in _list_reasons(decision, warehouse):
            typer.echo(f"  {line}")
    if not decision.is_allowed:
        raise typer.Exit(1)


def _list_reasons(decision: DecisionInfo, warehouse: str) -> Iterator[str]:
    if decision.is_disabled:
        yield "it is disabled"
    allowing = "allow" if decision.is_in_scope else "don't allow"
    yield f"its scopes {allowing} it: {' '.join(decision.scopes) or 'it has none'}"
    if not decision.grants_on:
        yield f"grants are off in {warehouse}: scopes alone decide"
    for held in decision.by:
        yield f"{held.privilege} on {held.object}, granted to {' in '.join(held.path)}"
    if decision.grants_on and not decision.by:
        yield "no grant on it or above it gives this, to the principal or to a group or role that it is in"
    if decision.outside is not None:
        yield f"the outside service {'allows' if decision.outside else 'refuses'} it"
    if decision.policies:
        yield f"policies hide rows or values of it, which queries leave out: {', '.join(decision.policies)}"
    if decision.definer is not None:
        yield f"whoever may read this view reads by it with the rights of {decision.definer}"
