"""`duckicelake grant`, `revoke`, `list-grants` and `why`: who may do what in a warehouse, and what decides it."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from duckicelake.cli.console.command import LakeOption, one_line_errors
from duckicelake.cli.console.terminal import print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from duckicelake.catalog.context.services import Services
    from duckicelake.catalog.grants import Decision, GrantChange, GrantDetails

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
_FIRST: Final = "duckicelake"
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
WarehouseOption = Annotated[str, typer.Option("--warehouse", help="The warehouse; by default the first one.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]


@one_line_errors()
def grant(
    principal: PrincipalArgument,
    privileges: PrivilegesArgument,
    target: ObjectArgument,
    warehouse: WarehouseOption = _FIRST,
    lake: LakeOption = None,
) -> None:
    """Give privileges on a warehouse, namespace, table or view; those on a namespace hold below it, too.

    They decide where `duckicelake warehouse grants` is on.
    """
    from duckicelake.catalog.grants import change_grants, has_grants_on

    with open_named_warehouse(lake, "change_grants", warehouse) as services:
        change = _parse_change(principal, privileges, target)
        given, _ = change_grants(services, [change])
        is_on = has_grants_on(services)
    typer.echo(f"{principal} has {', '.join(change.privileges)} on {target}; {given} new")
    if not is_on:
        typer.echo(f"grants are off, so scopes alone decide: duckicelake warehouse grants {warehouse} on", err=True)


@one_line_errors()
def revoke(
    principal: PrincipalArgument,
    privileges: PrivilegesArgument,
    target: ObjectArgument,
    warehouse: WarehouseOption = _FIRST,
    lake: LakeOption = None,
) -> None:
    """Take privileges that were given on an object. It ends within a second, on all servers."""
    from duckicelake.catalog.grants import change_grants

    with open_named_warehouse(lake, "change_grants", warehouse) as services:
        change = _parse_change(principal, privileges, target)
        _, taken = change_grants(services, (), [change])
    typer.echo(f"{taken} of {len(change.privileges)} privileges of {principal} on {target} taken")


@one_line_errors()
def list_grants(
    principal: Annotated[str | None, typer.Argument(help="Only what was granted to this one by itself.")] = None,
    on: Annotated[str | None, typer.Option(help="Only what was granted on this object.")] = None,
    as_json: JsonOption = False,
    warehouse: WarehouseOption = _FIRST,
    lake: LakeOption = None,
) -> None:
    """List the grants of a warehouse."""
    from duckicelake.catalog import grants
    from duckicelake.catalog.context.page import walk_pages

    with open_named_warehouse(lake, "list_grants", warehouse) as services:
        target = None if on is None else grants.parse_object(on)
        for one in walk_pages(lambda page: grants.list_grants(services, principal, target, page)):
            if as_json:
                print_json(_describe(one))
                continue
            where = f"{one.kind} {one.object_id}, which is not there" if one.object is None else str(one.object)
            typer.echo(f"{one.principal:24} {one.privilege:14} {where:40} by {one.granted_by}")


@one_line_errors()
def why(
    principal: Annotated[str, typer.Argument(help="A user, service, group or role; role:admin also says its kind.")],
    action: Annotated[str, typer.Argument(help="A privilege, as select.")],
    target: ObjectArgument,
    scopes: Annotated[
        str | None,
        typer.Option(help="Scopes of a token, separated by spaces; by default all that it can have."),
    ] = None,
    groups: Annotated[str, typer.Option(help="Names of groups in the token, joined by commas.")] = "",
    as_json: JsonOption = False,
    warehouse: WarehouseOption = _FIRST,
    lake: LakeOption = None,
) -> None:
    """Say whether a principal may do something, and what decides: scopes, grants, roles, an outside service.

    It exits with 1 if not. A client of the settings has the scopes that stand there: give them by --scopes.
    """
    from duckicelake.catalog import grants
    from duckicelake.cli.wiring.services import build_outside
    from duckicelake.settings.sources import read_settings

    kind, _, name = principal.rpartition(":")
    given = None if scopes is None else tuple(scopes.split())
    asked = grants.AskedPrincipal(name, kind or None, given, tuple(filter(None, groups.split(","))))
    outside = build_outside(read_settings({"lake": lake}))
    with open_named_warehouse(lake, "explain_decision", warehouse) as services:
        decision = grants.explain_decision(services, asked, action, grants.parse_object(target), outside)
    if as_json:
        print_json(_describe_decision(decision))
    else:
        typer.echo(f"{name} may {'' if decision.is_allowed else 'not '}{action} on {target}")
        for line in _list_reasons(decision, warehouse):
            typer.echo(f"  {line}")
    if not decision.is_allowed:
        raise typer.Exit(1)


def _list_reasons(decision: Decision, warehouse: str) -> Iterator[str]:
    if decision.is_disabled:
        yield "it is disabled"
    allowing = "allow" if decision.is_in_scope else "don't allow"
    yield f"its scopes {allowing} it: {' '.join(decision.scopes) or 'it has none'}"
    if not decision.grants_on:
        yield f"grants are off in {warehouse}: scopes alone decide"
    for held in decision.by:
        yield f"{_name_privilege(held.privilege)} on {held.object}, granted to {' in '.join(held.path)}"
    if decision.grants_on and not decision.by:
        yield "no grant on it or above it gives this, to the principal or to a group or role that it is in"
    if decision.outside is not None:
        yield f"the outside service {'allows' if decision.outside else 'refuses'} it"
    if decision.definer is not None:
        yield f"whoever may read this view reads by it with the rights of {decision.definer}"


def _describe_decision(decision: Decision) -> dict[str, Any]:
    return {
        "is-allowed": decision.is_allowed,
        "is-disabled": decision.is_disabled,
        "scopes": decision.scopes,
        "is-in-scope": decision.is_in_scope,
        "grants-on": decision.grants_on,
        "by": [
            {"privilege": _name_privilege(held.privilege), "object": str(held.object), "path": held.path}
            for held in decision.by
        ],
        "outside": decision.outside,
        "definer": decision.definer,
    }


def _name_privilege(privilege: Any) -> str:
    from duckicelake.catalog.context.privileges import list_names

    return list_names(privilege)[0]


def _describe(one: GrantDetails) -> dict[str, Any]:
    return {
        "principal": one.principal,
        "principal-kind": one.principal_kind,
        "privilege": one.privilege,
        "kind": one.kind,
        "id": one.object_id,
        "object": None if one.object is None else str(one.object),
        "granted-by": one.granted_by,
        "granted-at": one.granted_at.isoformat(),
    }


def _parse_change(principal: str, privileges: str, target: str) -> GrantChange:
    from duckicelake.catalog.grants import GrantChange, parse_object

    return GrantChange(principal, tuple(privileges.split(",")), parse_object(target))


@contextmanager
def open_named_warehouse(lake: Any, operation: str, name: str) -> Iterator[Services]:
    """Open the services of a warehouse by its name."""
    from duckicelake.catalog.warehouses import close_warehouse, find_warehouse, open_warehouse
    from duckicelake.cli.wiring.services import build_warehouse_wiring, open_lake
    from duckicelake.settings.sources import read_settings

    settings = read_settings({"lake": lake})
    with open_lake(settings, operation) as services:
        if name == _FIRST:
            yield services
            return
        own = open_warehouse(services, build_warehouse_wiring(settings), find_warehouse(services, name))
        try:
            yield replace(own, caller=services.caller)
        finally:
            close_warehouse(services, own)
