"""Policies and tags of columns as part of a server's governance: read, checked, and made as they are wanted."""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from duckicelake.catalog import policies
from duckicelake.catalog.context.page import ListPage, PageRequest, walk_pages
from duckicelake.catalog.context.privileges import ObjectRef
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.governance_state import GovernanceState, PolicyKey, Step, TagKey, refuse
from duckicelake.catalog.policies import PolicyDetails
from duckicelake.catalog.policy_definitions import PolicyDefinition, Table, TaggedColumn
from duckicelake.errors import CatalogError, UnavailableError

Key = TypeVar("Key", PolicyKey, TagKey)
Found = TypeVar("Found")
_ATTRIBUTES: Final = ("tag", "column", "mask", "condition", "to", "exempt")


def name_policy(warehouse: str, definition: PolicyDefinition) -> PolicyKey:
    """Name a policy of a warehouse."""
    return PolicyKey(warehouse, "" if definition.table is None else _name_table(definition.table), definition.name)


def name_tag(warehouse: str, tagged: TaggedColumn) -> TagKey:
    """Name a tag of a column of a warehouse."""
    return TagKey(warehouse, tagged.tag, _name_table(tagged.table), tagged.column.lower())


def read_policies(own: Services, warehouse: str, state: GovernanceState) -> None:
    """Read the policies and tags of a warehouse; those of dropped tables are left out."""
    for found in walk_pages(partial(_read_policy_page, own)):
        if found.is_live:
            key = name_policy(warehouse, found.definition)
            state.policies[key], state.policy_ids[key] = found.definition, found.policy_id
    for tagged in walk_pages(partial(_read_tag_page, own)):
        if tagged.is_live:
            state.tags[name_tag(warehouse, tagged)] = tagged


def list_places(state: GovernanceState) -> set[str]:
    """List the warehouses that have policies or tags."""
    return {key.warehouse for key in state.policies} | {tag.warehouse for tag in state.tags}


def check_policies(
    own: Services | None, warehouse: str, known: GovernanceState, wanted: GovernanceState, principals: Collection[str]
) -> None:
    """Raise InvalidRequestError for policies and tags of a warehouse that can't be, with their places.

    own: None: the warehouse isn't there yet. principals: those that there will be.
    """
    for key, definition in _choose(wanted.policies, warehouse):
        missing = sorted({*definition.to, *definition.exempt} - set(principals))
        if missing:
            raise refuse(wanted, key, f"there is no principal {missing[0]}")
        if not _is_known(known, key, definition):
            _check(own, wanted, key, partial(policies.check_policy, definition=definition))
    for tag, tagged in _choose(wanted.tags, warehouse):
        if tag not in known.tags:
            _check(own, wanted, tag, partial(policies.check_tag, tagged=tagged))


def compare_policies(
    known: GovernanceState, wanted: GovernanceState, warehouse: str, *, prunes: bool
) -> Iterator[Step]:
    """List the policies and tags of a warehouse that come, change and go: what hides comes before what shows."""
    for tag, tagged in _choose(wanted.tags, warehouse):
        if tag not in known.tags:
            yield Step(f"+ {_describe_tag(tag)}", tag, partial(policies.change_tag, tagged=tagged, is_given=True))
    for key, definition in _choose(wanted.policies, warehouse):
        if key not in known.policies:
            yield Step(f"+ {_describe(key)}", key, partial(policies.add_policy, definition=definition))
        elif not _is_known(known, key, definition):
            what = ", ".join(_list_differences(known.policies[key], definition))
            yield Step(
                f"~ {_describe(key)}: {what}",
                key,
                partial(_replace, policy_id=known.policy_ids[key], definition=definition),
            )
    if prunes and "policy" in wanted.whole:
        for key, _ in _choose(known.policies, warehouse):
            if key not in wanted.policies:
                yield Step(f"- {_describe(key)}", key, partial(policies.drop_policy, policy_id=known.policy_ids[key]))
    if prunes and "tag" in wanted.whole:
        for tag, tagged in _choose(known.tags, warehouse):
            if tag not in wanted.tags:
                act = partial(policies.change_tag, tagged=tagged, is_given=False)
                yield Step(f"- {_describe_tag(tag)}", tag, act)


def _read_policy_page(own: Services, page: PageRequest) -> ListPage[PolicyDetails]:
    return policies.list_policies(own, page=page)


def _read_tag_page(own: Services, page: PageRequest) -> ListPage[TaggedColumn]:
    return policies.list_tags(own, page=page)


def _choose(found: Mapping[Key, Found], warehouse: str) -> list[tuple[Key, Found]]:
    return sorted(((key, one) for key, one in found.items() if key.warehouse == warehouse), key=lambda pair: pair[0])


def _is_known(known: GovernanceState, key: PolicyKey, definition: PolicyDefinition) -> bool:
    return key in known.policies and not _list_differences(known.policies[key], definition)


def _list_differences(old: PolicyDefinition, new: PolicyDefinition) -> list[str]:
    pairs = ((name, _read(old, name), _read(new, name)) for name in _ATTRIBUTES)
    return [f"{name} {had!r} -> {has!r}" for name, had, has in pairs if had != has]


def _read(definition: PolicyDefinition, attribute: str) -> object:
    """Read an attribute so that what is the same is equal."""
    value = getattr(definition, attribute)
    if attribute == "column":
        return value and value.lower()
    return sorted(set(value)) if isinstance(value, tuple) else value


def _check(
    own: Services | None, wanted: GovernanceState, key: PolicyKey | TagKey, act: Callable[[Services], None]
) -> None:
    if own is None and key.warehouse not in wanted.warehouses:
        raise refuse(wanted, key, f"there is no warehouse {key.warehouse}")
    if own is None and key.object:
        raise refuse(wanted, key, f"there is no {key.object} in {key.warehouse}, which is new")
    if own is None:
        return
    try:
        act(own)
    except UnavailableError:
        raise
    except CatalogError as error:
        raise refuse(wanted, key, str(error)) from error


def _replace(services: Services, policy_id: UUID, definition: PolicyDefinition) -> None:
    """Replace a policy by another one, in the transaction that is open."""
    policies.drop_policy(services, policy_id)
    policies.add_policy(services, definition)


def _describe(key: PolicyKey) -> str:
    return f"policy {key.name} on {key.object or 'columns with a tag'} in {key.warehouse}"


def _describe_tag(key: TagKey) -> str:
    return f"tag {key.tag} on {key.column} of {key.object} in {key.warehouse}"


def _name_table(table: Table) -> str:
    return str(ObjectRef("table", *table))
