"""Principals, issuers, warehouses, grants and policies as one document, without secrets, for `apply` and `export`."""

from collections.abc import Collection, Iterable, Iterator
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from duckicelake.catalog.governance_policies import name_policy, name_tag
from duckicelake.catalog.governance_state import GovernanceState, GrantKey, PolicyKey, WarehouseState
from duckicelake.catalog.issuers import ListedIssuer
from duckicelake.catalog.policy_definitions import PolicyDefinition, Table, TaggedColumn, parse_table
from duckicelake.catalog.principals import PrincipalRegistration
from duckicelake.catalog.warehouse_places import NewWarehouse
from duckicelake.catalog.warehouses import FIRST_WAREHOUSE_NAME
from duckicelake.errors import InvalidRequestError
from duckicelake.lake.side_tables.issuers import LEEWAY_SECONDS, WEB_SCOPES
from duckicelake.postgres.other_databases import format_database_url, parse_database_url

_GRANTS: Final = ("grants",)
Name = Annotated[str, Field(min_length=1, max_length=256)]
Scopes = tuple[str, ...]


def _write_key(attribute: str) -> str:
    return attribute.replace("_", "-")


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, alias_generator=_write_key, populate_by_name=False, extra="forbid")


class PrincipalEntry(_Entry):
    """A user or service account. What is left out stays as it is."""

    name: Name
    kind: Literal["user", "service"] = "service"
    issuer: str | None = None
    subject: str | None = None
    scopes: Scopes = _GRANTS
    is_disabled: bool = False
    description: str = ""


class ContainerEntry(_Entry):
    """A group or role. issuer, subject: of a group that tokens of an issuer name otherwise."""

    name: Name
    issuer: str | None = None
    subject: str | None = None
    is_disabled: bool = False
    description: str = ""
    members: tuple[Name, ...] = ()


class IssuerEntry(_Entry):
    """An issuer of OpenID Connect. The secret of its client for the console stays as it is."""

    name: Name
    url: str
    audience: str
    jwks_url: str | None = None
    subject_claim: str = "sub"
    group_claim: str | None = None
    scope_claim: str | None = None
    scopes: Scopes = _GRANTS
    is_disabled: bool = False
    leeway: int = LEEWAY_SECONDS
    label: str = ""
    web_client_id: str | None = None
    web_scopes: Scopes = WEB_SCOPES
    web_parameters: tuple[str, ...] = ()


class WarehouseEntry(_Entry):
    """A warehouse; the first one's name is duckicelake."""

    name: Name
    location: str | None = None
    storage_profile: str | None = None
    adopted_schema: str | None = None
    database_url: str | None = None
    grants_on: bool | None = None
    options: dict[Name, str | int | float] | None = None


class GrantEntry(_Entry):
    """Privileges of a principal on an object."""

    principal: Name
    warehouse: Name = FIRST_WAREHOUSE_NAME
    object: Name
    privileges: Annotated[tuple[str, ...], Field(min_length=1)]


class PolicyEntry(_Entry):
    """A row filter or column mask. object: the table; none for one of a tag."""

    name: Name
    warehouse: Name = FIRST_WAREHOUSE_NAME
    object: Name | None = None
    column: Name | None = None
    tag: Name | None = None
    mask: Name | None = None
    condition: Name | None = None
    to: tuple[Name, ...] = ()
    exempt: tuple[Name, ...] = ()


class ColumnTagEntry(_Entry):
    """A tag of a table's column."""

    tag: Name
    warehouse: Name = FIRST_WAREHOUSE_NAME
    object: Name
    column: Name


class GovernanceDocument(_Entry):
    """All of a document. None: it says nothing of these."""

    principals: tuple[PrincipalEntry, ...] | None = None
    groups: tuple[ContainerEntry, ...] | None = None
    roles: tuple[ContainerEntry, ...] | None = None
    issuers: tuple[IssuerEntry, ...] | None = None
    warehouses: tuple[WarehouseEntry, ...] | None = None
    grants: tuple[GrantEntry, ...] | None = None
    column_tags: tuple[ColumnTagEntry, ...] | None = None
    policies: tuple[PolicyEntry, ...] | None = None


Named = TypeVar("Named", bound=PrincipalEntry | ContainerEntry | IssuerEntry | WarehouseEntry)


def parse_document(content: Any, name: str) -> GovernanceDocument:
    """Parse a document. name: of it, for errors. Raises InvalidRequestError, which names the place."""
    try:
        return GovernanceDocument.model_validate(content)
    except ValidationError as error:
        found = error.errors()[0]
        raise InvalidRequestError(f"{name}: {_format_place(found['loc'])}: {found['msg']}") from error


def describe_state(state: GovernanceState) -> dict[str, Any]:
    """Describe what a server has as a document."""
    return {
        "principals": [
            _strip(new.name, kind=new.kind, issuer=new.issuer, subject=new.subject, **_describe(new))
            for new in _sort(state, ("user", "service"))
        ],
        "groups": [_describe_container(new, state) for new in _sort(state, ("group",))],
        "roles": [_describe_container(new, state) for new in _sort(state, ("role",))],
        "issuers": [_describe_issuer(issuer) for _, issuer in sorted(state.issuers.items())],
        "warehouses": [_describe_warehouse(state.warehouses[name]) for name in sorted(state.warehouses)],
        "grants": list(_describe_grants(state.grants)),
        "column-tags": [
            {"tag": key.tag, "warehouse": key.warehouse, "object": key.object, "column": tagged.column}
            for key, tagged in sorted(state.tags.items(), key=lambda pair: pair[0])
        ],
        "policies": [
            _describe_policy(key, definition)
            for key, definition in sorted(state.policies.items(), key=lambda pair: pair[0])
        ],
    }


def _format_place(path: Iterable[str | int]) -> str:
    """Write a place as `grants[2].object`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "the whole"


def build_state(file: GovernanceDocument, name: str) -> GovernanceState:
    """Build what a document wants. name: of it, for errors. Raises InvalidRequestError, which names the place."""
    state = GovernanceState()
    for place, entry in _walk(file.principals, f"{name}: principals", state, ("user", "service")):
        state.given[entry.name] = entry.model_fields_set
        _add_principal(state, PrincipalRegistration(**entry.model_dump()), place)
    for kind, entries in (("group", file.groups), ("role", file.roles)):
        for place, container in _walk(entries, f"{name}: {kind}s", state, (kind,)):
            _add_container(state, kind, container, place)
    for place, issuer in _walk(file.issuers, f"{name}: issuers", state, ("issuer",)):
        _check_new(state.issuers, issuer.name, place)
        state.issuers[issuer.name] = ListedIssuer(**issuer.model_dump())
        state.places["issuer", issuer.name] = place
    for place, warehouse in _walk(file.warehouses, f"{name}: warehouses", state, ()):
        _add_warehouse(state, warehouse, place)
    for place, grant in _walk(file.grants, f"{name}: grants", state, ("grant",)):
        for privilege in grant.privileges:
            key = GrantKey(grant.principal, grant.warehouse, grant.object, privilege)
            state.grants.add(key)
            state.places[key] = place
    for place, tagged in _walk(file.column_tags, f"{name}: column-tags", state, ("tag",)):
        _add_tag(state, tagged, place)
    for place, policy in _walk(file.policies, f"{name}: policies", state, ("policy",)):
        _add_policy(state, policy, place)
    return state


Entry = TypeVar("Entry")


def _walk(
    entries: tuple[Entry, ...] | None, section: str, state: GovernanceState, kinds: Collection[str]
) -> Iterator[tuple[str, Entry]]:
    """Iterate over a section with places; note that it is there, so that what it lacks isn't wanted."""
    if entries is not None:
        state.whole.update(kinds)
    for number, entry in enumerate(entries or ()):
        yield f"{section}[{number}]", entry


def _add_principal(state: GovernanceState, new: PrincipalRegistration, place: str) -> None:
    _check_new(state.principals, new.name, place)
    state.principals[new.name] = new
    state.places["principal", new.name] = place


def _add_container(state: GovernanceState, kind: Any, entry: ContainerEntry, place: str) -> None:
    state.given[entry.name] = entry.model_fields_set
    new = PrincipalRegistration(**entry.model_dump(exclude={"members"}), kind=kind)
    _add_principal(state, new, place)
    if "members" in entry.model_fields_set:
        state.whole.add(f"members of {entry.name}")
    for member in entry.members:
        state.members.add((entry.name, member))
        state.places[entry.name, member] = f"{place}.members"


def _add_warehouse(state: GovernanceState, entry: WarehouseEntry, place: str) -> None:
    _check_new(state.warehouses, entry.name, place)
    url = entry.database_url
    try:
        url = None if url is None else format_database_url(parse_database_url(url))
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{place}: {error}") from error
    new = NewWarehouse(entry.name, entry.location, entry.adopted_schema, entry.storage_profile, url)
    options = None if entry.options is None else {option: str(value) for option, value in entry.options.items()}
    state.warehouses[entry.name] = WarehouseState(new, entry.grants_on, options)
    state.places["warehouse", entry.name] = place


def _add_tag(state: GovernanceState, entry: ColumnTagEntry, place: str) -> None:
    table = _parse_table(entry.object, place)
    tagged = TaggedColumn(entry.tag, table, entry.column)
    key = name_tag(entry.warehouse, tagged)
    if key in state.tags:
        raise InvalidRequestError(f"{place}: tag {entry.tag} of {entry.column} stands twice")
    state.tags[key], state.places[key] = tagged, place


def _add_policy(state: GovernanceState, entry: PolicyEntry, place: str) -> None:
    what = entry.column, entry.tag, entry.mask, entry.condition
    table = None if entry.object is None else _parse_table(entry.object, place)
    definition = PolicyDefinition(entry.name, table, *what, entry.to, entry.exempt)
    key = name_policy(entry.warehouse, definition)
    if key in state.policies:
        raise InvalidRequestError(f"{place}: policy {entry.name} stands twice")
    state.policies[key], state.places[key] = definition, place


def _parse_table(text: str, place: str) -> Table:
    try:
        return parse_table(text)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{place}: {error}") from error


def _check_new(known: Collection[str], name: str, place: str) -> None:
    if name in known:
        raise InvalidRequestError(f"{place}: {name} stands twice")


def _sort(state: GovernanceState, kinds: Collection[str]) -> list[PrincipalRegistration]:
    return [new for _, new in sorted(state.principals.items()) if new.kind in kinds]


def _strip(name: str, **facts: Any) -> dict[str, Any]:
    """Leave out what is so by default."""
    kept = {_write_key(key): value for key, value in facts.items() if value not in (None, "", False)}
    return {"name": name, **kept}


def _describe(new: PrincipalRegistration) -> dict[str, Any]:
    return {"scopes": list(new.scopes), "is_disabled": new.is_disabled, "description": new.description}


def _describe_container(new: PrincipalRegistration, state: GovernanceState) -> dict[str, Any]:
    members = sorted(member for container, member in state.members if container == new.name)
    facts = _strip(
        new.name,
        issuer=new.issuer,
        subject=new.subject,
        is_disabled=new.is_disabled,
        description=new.description,
    )
    return {**facts, "members": members}


def _describe_issuer(issuer: ListedIssuer) -> dict[str, Any]:
    facts = _strip(
        issuer.name,
        url=issuer.url,
        audience=issuer.audience,
        jwks_url=issuer.jwks_url,
        subject_claim=issuer.subject_claim,
        group_claim=issuer.group_claim,
        scope_claim=issuer.scope_claim,
        scopes=list(issuer.scopes),
        is_disabled=issuer.is_disabled,
        label=issuer.label,
        web_client_id=issuer.web_client_id,
    )
    lists = {"web-scopes": (issuer.web_scopes, WEB_SCOPES), "web-parameters": (issuer.web_parameters, ())}
    facts |= {key: list(value) for key, (value, default) in lists.items() if value != default}
    return facts if issuer.leeway == LEEWAY_SECONDS else {**facts, "leeway": issuer.leeway}


def _describe_warehouse(state: WarehouseState) -> dict[str, Any]:
    new = state.new
    facts = _strip(
        new.name,
        location=new.location,
        storage_profile=new.profile,
        adopted_schema=new.adopted_schema,
        database_url=new.database_url,
    )
    return {**facts, "grants-on": state.grants_on, "options": dict(state.options or {})}


def _describe_grants(keys: Collection[GrantKey]) -> Iterator[dict[str, Any]]:
    held: dict[tuple[str, str, str], list[str]] = {}
    for key in sorted(keys):
        held.setdefault((key.principal, key.warehouse, key.object), []).append(key.privilege)
    for (principal, warehouse, target), privileges in held.items():
        yield {"principal": principal, "warehouse": warehouse, "object": target, "privileges": privileges}


def _describe_policy(key: PolicyKey, definition: PolicyDefinition) -> dict[str, Any]:
    facts = _strip(
        key.name,
        warehouse=key.warehouse,
        object=key.object,
        column=definition.column,
        tag=definition.tag,
        mask=definition.mask,
        condition=definition.condition,
    )
    whom = {"to": list(definition.to), "exempt": list(definition.exempt)}
    return facts | {part: names for part, names in whom.items() if names}
