"""The governance of a server as one state: read it, compare it with the one that is wanted, make it so.

Each change is made by the use case that the management API calls, with its checks and its entry in the audit trail.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial

from duckicelake.catalog import grants, issuers, principals, warehouse_registry
from duckicelake.catalog.context.page import ListPage, PageRequest, walk_pages
from duckicelake.catalog.context.privileges import parse_privilege
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.governance_policies import check_policies, compare_policies, list_places, read_policies
from duckicelake.catalog.governance_state import GovernanceState, GrantKey, Step, WarehouseState, refuse
from duckicelake.catalog.grants import GrantChange, GrantDetails, parse_object
from duckicelake.catalog.issuers import ListedIssuer
from duckicelake.catalog.principals import PrincipalChange, PrincipalRegistration
from duckicelake.catalog.warehouse_options import KEPT_OPTIONS, change_options, check_options, read_options
from duckicelake.catalog.warehouse_places import NewWarehouse
from duckicelake.catalog.warehouses import (
    FIRST_WAREHOUSE_NAME,
    WarehouseWiring,
    close_warehouse,
    find_warehouse,
    list_warehouses,
    open_warehouse,
)
from duckicelake.errors import CatalogError, CommitStateUnknownError, InvalidRequestError, UnavailableError
from duckicelake.lake.side_tables.principals import BUILT_IN_ROLES, KINDS, lock_governance
from duckicelake.postgres.other_databases import strip_password
from duckicelake.postgres.shared_pools import JoinedDatabase


class _DryRunError(Exception):
    """Ends the transaction of a dry run."""


def read_state(services: Services, wiring: WarehouseWiring) -> GovernanceState:
    """Read what a server has; what was dropped, and warehouses that are being made or dropped, are left out."""
    state = GovernanceState()
    for row in principals.list_principals(services, KINDS).items:
        state.principals[row.name] = PrincipalRegistration(
            row.name, row.kind, row.issuer, row.subject, row.scopes, row.is_disabled, row.description
        )
    state.members = set(principals.list_memberships(services))
    state.issuers = {
        row.name: replace(row, created=None, web_secret=None) for row in issuers.list_issuers(services).items
    }
    first = NewWarehouse(FIRST_WAREHOUSE_NAME)
    created = [
        NewWarehouse(row.name, row.location, row.schema_name if row.is_adopted else None, row.profile, row.database_url)
        for row in list_warehouses(services)
        if row.is_active
    ]
    for new in (first, *created):
        with _open(services, wiring, new.name) as own:
            state.warehouses[new.name] = WarehouseState(new, grants.has_grants_on(own), read_options(own))
            _read_grants(own, new.name, state)
            read_policies(own, new.name, state)
    return state


def apply_state(
    services: Services, wiring: WarehouseWiring, wanted: GovernanceState, *, prunes: bool = False, is_dry: bool = False
) -> list[str]:
    """Make a server as wanted; return the changes.

    Principals, memberships, issuers and the first warehouse's grants and policies change in one transaction, all or
    none. Further warehouses come after it, the grants and policies of each in one more transaction.

    prunes: drop what isn't wanted of the kinds that are whole. is_dry: change nothing; the transaction is rolled back.

    Raises InvalidRequestError, which names the place.
    """
    known = read_state(services, wiring)
    _check(services, wiring, known, wanted)
    dropped = _list_dropped(known, wanted) if prunes else set()
    remaining = (known.principals.keys() | wanted.principals.keys()) - dropped
    for name in sorted(list_places(wanted)):
        is_known = name in known.warehouses
        with _open(services, wiring, name) if is_known else nullcontext() as own:
            check_policies(own, name, known, wanted, remaining)
    done: list[Step] = []
    with _name_place(wanted, done), suppress(_DryRunError), services.database.transaction() as cursor:
        lock_governance(cursor)
        joined = replace(services, database=JoinedDatabase(services.database, cursor))
        _run(_compare(known, wanted, wiring, prunes=prunes), joined, done)
        if is_dry:
            raise _DryRunError
    if services.rights is not None:
        services.rights.look()
    for name, warehouse in wanted.warehouses.items():
        if name not in known.warehouses:
            step = Step(f"+ warehouse {name}", ("warehouse", name), _bind_creation(wiring, warehouse.new))
            with _name_place(wanted, done):
                _run([step], services, done, is_dry=is_dry)
    for name in _list_further(known, wanted):
        options = _compare_options(known, wanted, name, wiring, prunes=prunes)
        hiding = compare_policies(known, wanted, name, prunes=prunes)
        steps = [*_compare_grants(known, wanted, name, prunes=prunes), *hiding, *options]
        if is_dry or not steps:
            done += steps
            continue
        with _open(services, wiring, name) as own, _name_place(wanted, done), own.database.transaction() as cursor:
            _run(steps, replace(own, database=JoinedDatabase(own.database, cursor)), done)
    return [step.text for step in done]


def _list_further(known: GovernanceState, wanted: GovernanceState) -> list[str]:
    named = {grant.warehouse for grant in wanted.grants} | list_places(wanted)
    names = known.warehouses.keys() | wanted.warehouses.keys() | named
    return sorted(names - {FIRST_WAREHOUSE_NAME})


def _run(steps: Iterable[Step], services: Services, done: list[Step], *, is_dry: bool = False) -> None:
    """Run steps; note each before, so that a failure has its place."""
    for step in steps:
        done.append(step)
        if not is_dry:
            step.act(services)


@contextmanager
def _name_place(wanted: GovernanceState, done: list[Step]) -> Iterator[None]:
    """Name the place of the last step in an error of the block, if it is about what is wanted."""
    try:
        yield
    except (UnavailableError, CommitStateUnknownError):
        raise
    except CatalogError as error:
        if not done:
            raise
        raise InvalidRequestError(f"{wanted.places.get(done[-1].key, done[-1].text)}: {error}") from error


@contextmanager
def _open(services: Services, wiring: WarehouseWiring, name: str) -> Iterator[Services]:
    """Open the services of a warehouse for the caller."""
    if name == FIRST_WAREHOUSE_NAME:
        yield services
        return
    own = open_warehouse(services, wiring, find_warehouse(services, name))
    try:
        yield replace(own, caller=services.caller)
    finally:
        close_warehouse(services, own)


def _read_grants(own: Services, warehouse: str, state: GovernanceState) -> None:
    for row in walk_pages(partial(_read_grants_page, own)):
        if row.object is not None:
            key = GrantKey(row.principal, warehouse, str(row.object), row.privilege)
            state.grants.add(key)
            if row.privilege == "ownership" and row.granted_by == row.principal:
                state.kept.add(key)


def _read_grants_page(own: Services, page: PageRequest) -> ListPage[GrantDetails]:
    return grants.list_grants(own, page=page)


def _check(services: Services, wiring: WarehouseWiring, known: GovernanceState, wanted: GovernanceState) -> None:
    """Raise InvalidRequestError for what can't be, before anything is changed."""
    for name, new in wanted.principals.items():
        old = known.principals.get(name)
        if old is None:
            continue
        kept = {"kind", *({"issuer", "subject"} & set(wanted.given.get(name, ())))}
        for attribute in sorted(kept):
            had, has = getattr(old, attribute), getattr(new, attribute)
            if had != has:
                message = f"{attribute} of {name} is {had}, and can't change to {has}: drop it first"
                raise refuse(wanted, ("principal", name), message)
    for name, warehouse in wanted.warehouses.items():
        _check_warehouse(known, wanted, wiring, name, warehouse)
    names = known.principals.keys() | wanted.principals.keys()
    for pair in sorted(wanted.members):
        if pair[1] not in names:
            raise refuse(wanted, pair, f"there is no principal {pair[1]}")
    for grant in sorted(wanted.grants):
        try:
            parse_privilege(grant.privilege)
            parse_object(grant.object)
        except CatalogError as error:
            raise refuse(wanted, grant, str(error)) from error
        if grant.principal not in names:
            raise refuse(wanted, grant, f"there is no principal {grant.principal}")
        if grant.warehouse not in known.warehouses.keys() | wanted.warehouses.keys():
            raise refuse(wanted, grant, f"there is no warehouse {grant.warehouse}")
    _check_objects(services, wiring, known, wanted)


def _check_warehouse(
    known: GovernanceState, wanted: GovernanceState, wiring: WarehouseWiring, name: str, warehouse: WarehouseState
) -> None:
    try:
        check_options(warehouse.options or {}, wiring.check_policies, is_first=name == FIRST_WAREHOUSE_NAME)
    except CatalogError as error:
        raise refuse(wanted, ("warehouse", name), str(error)) from error
    old, new = known.warehouses.get(name), warehouse.new
    url = None if new.database_url is None else strip_password(new.database_url)
    if old is not None and url not in (None, old.new.database_url):
        message = (
            f"database-url of {name} is {old.new.database_url}, and can't change to {url}: see `warehouse database`"
        )
        raise refuse(wanted, ("warehouse", name), message)
    for attribute in ("location", "profile", "adopted_schema"):
        has = getattr(new, attribute)
        if old is not None and has is not None and has.rstrip("/") != (getattr(old.new, attribute) or "").rstrip("/"):
            message = f"{attribute} of {name} is {getattr(old.new, attribute)}, and can't change to {has}"
            raise refuse(wanted, ("warehouse", name), message)


def _check_objects(
    services: Services, wiring: WarehouseWiring, known: GovernanceState, wanted: GovernanceState
) -> None:
    """Raise InvalidRequestError for a grant on an object that isn't there."""
    seen = {(grant.warehouse, grant.object) for grant in known.grants}
    new = {(grant.warehouse, grant.object): grant for grant in sorted(wanted.grants)}
    for (warehouse, target), grant in new.items():
        if target == "warehouse" or (warehouse, target) in seen:
            continue
        if warehouse not in known.warehouses:
            raise refuse(wanted, grant, f"there is no {target} in {warehouse}, which is new")
        try:
            with _open(services, wiring, warehouse) as own:
                grants.list_grants(own, None, parse_object(target), PageRequest("", 1))
        except CatalogError as error:
            raise refuse(wanted, grant, str(error)) from error


def _compare(
    known: GovernanceState, wanted: GovernanceState, wiring: WarehouseWiring, *, prunes: bool
) -> Iterator[Step]:
    """List what changes in the transaction: what ends first, so that names and subjects are free."""
    yield from _compare_grants(known, wanted, FIRST_WAREHOUSE_NAME, prunes=prunes, gives=False)
    if prunes:
        yield from _list_ends(known, wanted)
    yield from _compare_issuers(known, wanted)
    yield from _compare_principals(known, wanted)
    for container, member in sorted(wanted.members - known.members):
        yield Step(f"+ {member} in {container}", (container, member), _bind_member(container, member, is_added=True))
    yield from compare_policies(known, wanted, FIRST_WAREHOUSE_NAME, prunes=prunes)
    yield from _compare_grants(known, wanted, FIRST_WAREHOUSE_NAME, prunes=prunes, takes=False)
    yield from _compare_options(known, wanted, FIRST_WAREHOUSE_NAME, wiring, prunes=prunes)


def _list_dropped(known: GovernanceState, wanted: GovernanceState) -> set[str]:
    """List the principals that pruning drops."""
    return {
        name
        for name, old in known.principals.items()
        if name not in wanted.principals and name not in BUILT_IN_ROLES and old.kind in wanted.whole
    }


def _list_ends(known: GovernanceState, wanted: GovernanceState) -> Iterator[Step]:
    dropped = _list_dropped(known, wanted)
    for container, member in sorted(known.members - wanted.members):
        if f"members of {container}" in wanted.whole and not {container, member} & dropped:
            act = _bind_member(container, member, is_added=False)
            yield Step(f"- {member} in {container}", (container, member), act)
    for name in sorted(dropped):
        yield Step(f"- {known.principals[name].kind} {name}", ("principal", name), _bind_principal_drop(name))
    if "issuer" in wanted.whole:
        for name in sorted(known.issuers.keys() - wanted.issuers.keys()):
            yield Step(f"- issuer {name}", ("issuer", name), _bind_issuer_drop(name))


def _compare_issuers(known: GovernanceState, wanted: GovernanceState) -> Iterator[Step]:
    for name, issuer in wanted.issuers.items():
        key, old = ("issuer", name), known.issuers.get(name)
        if old is None:
            yield Step(f"+ issuer {name}", key, _bind_issuer(issuer, wanted))
        elif old != issuer:
            what = _describe_difference(old, issuer, ListedIssuer.__slots__)
            yield Step(f"~ issuer {name}: {what}", key, _bind_issuer_change(issuer, wanted))


def _compare_principals(known: GovernanceState, wanted: GovernanceState) -> Iterator[Step]:
    for name, new in wanted.principals.items():
        key, old = ("principal", name), known.principals.get(name)
        if old is None:
            yield Step(f"+ {new.kind} {name}", key, _bind_principal(new, wanted))
            continue
        given = set(wanted.given.get(name, ())) & {"scopes", "description", "is_disabled"}
        merged = replace(old, **{attribute: getattr(new, attribute) for attribute in given})
        if merged != old:
            change = PrincipalChange(**{attribute: getattr(new, attribute) for attribute in given})
            what = _describe_difference(old, merged, ("scopes", "is_disabled", "description"))
            yield Step(f"~ {old.kind} {name}: {what}", key, _bind_principal_change(name, change))


def _compare_grants(
    known: GovernanceState,
    wanted: GovernanceState,
    warehouse: str,
    *,
    prunes: bool,
    gives: bool = True,
    takes: bool = True,
) -> Iterator[Step]:
    """List the grants of a warehouse that come and go. gives, takes: only these."""
    taken = known.grants - wanted.grants - known.kept if prunes and "grant" in wanted.whole else set()
    given = wanted.grants - known.grants
    for keys, sign, is_asked in ((taken, "-", takes), (given, "+", gives)):
        own = sorted(key for key in keys if key.warehouse == warehouse and is_asked)
        for key in own:
            text = f"{sign} grant {key.privilege} on {key.object} in {warehouse} to {key.principal}"
            yield Step(text, key, _bind_grant(key, is_given=sign == "+"))


def _compare_options(
    known: GovernanceState, wanted: GovernanceState, name: str, wiring: WarehouseWiring, *, prunes: bool
) -> Iterator[Step]:
    state, old = wanted.warehouses.get(name), known.warehouses.get(name)
    if state is None:
        return
    if state.grants_on is not None and state.grants_on != (old is not None and old.grants_on):
        is_on = state.grants_on
        text = f"~ warehouse {name}: grants {'on' if is_on else 'off'}"
        yield Step(text, ("warehouse", name), lambda services: grants.set_grants(services, is_on=is_on))
    had, has = (old and old.options) or {}, state.options or {}
    changes: dict[str, str | None] = {option: has[option] for option in sorted(has) if has[option] != had.get(option)}
    if prunes and state.options is not None:
        changes |= dict.fromkeys(sorted(had.keys() - has.keys() - KEPT_OPTIONS))
    if changes:
        what = ", ".join(f"{option} {had.get(option)} -> {value}" for option, value in changes.items())
        change = partial(change_options, changes=changes, check_policies=wiring.check_policies, roots=wiring.roots)
        yield Step(f"~ warehouse {name}: {what}", ("warehouse", name), change)


def _describe_difference(old: object, new: object, attributes: Collection[str]) -> str:
    changed = [name for name in attributes if getattr(old, name) != getattr(new, name)]
    return ", ".join(f"{name.replace('_', '-')} {getattr(old, name)!r} -> {getattr(new, name)!r}" for name in changed)


def _bind_principal(new: PrincipalRegistration, wanted: GovernanceState) -> Callable[[Services], object]:
    return lambda services: principals.create_principal(services, new, wanted.issuer_rules.settings_url)


def _bind_principal_change(name: str, change: PrincipalChange) -> Callable[[Services], object]:
    return lambda services: principals.change_principal(services, name, change)


def _bind_principal_drop(name: str) -> Callable[[Services], object]:
    return lambda services: principals.drop_principal(services, name)


def _bind_member(container: str, member: str, *, is_added: bool) -> Callable[[Services], object]:
    act = principals.add_member if is_added else principals.remove_member
    return lambda services: act(services, container, member)


def _bind_issuer(issuer: ListedIssuer, wanted: GovernanceState) -> Callable[[Services], object]:
    return lambda services: issuers.create_issuer(services, issuer, wanted.issuer_rules)


def _bind_issuer_change(issuer: ListedIssuer, wanted: GovernanceState) -> Callable[[Services], object]:
    return lambda services: issuers.change_issuer(services, issuer, wanted.issuer_rules)


def _bind_issuer_drop(name: str) -> Callable[[Services], object]:
    return lambda services: issuers.drop_issuer(services, name)


def _bind_grant(key: GrantKey, *, is_given: bool) -> Callable[[Services], object]:
    changes = [GrantChange(key.principal, (key.privilege,), parse_object(key.object))]
    if is_given:
        return lambda services: grants.change_grants(services, changes)
    return lambda services: grants.change_grants(services, (), changes)


def _bind_creation(wiring: WarehouseWiring, new: NewWarehouse) -> Callable[[Services], object]:
    return lambda services: warehouse_registry.create_warehouse(services, wiring, new)
