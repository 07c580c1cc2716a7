"""Policies as use cases: row filters and column masks of tables, and tags of columns, by which masks name them.

What they hide from whom, `context/rights` reads; what is refused for them, `context/caller` says.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from duckicelake.bridge.scan.explanation import rename_condition
from duckicelake.catalog.context.audit_notes import build_touched
from duckicelake.catalog.context.caller import EVERYTHING, build_refusal
from duckicelake.catalog.context.page import EVERY_ITEM, ListPage, PageRequest, cut_page
from duckicelake.catalog.context.privileges import Privilege
from duckicelake.catalog.context.rights import RightsCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.policy_definitions import (
    PolicyDefinition,
    Table,
    TaggedColumn,
    bind_definition,
    build_guarded,
    check_form,
    check_name,
    find_column,
    load_schema,
)
from duckicelake.errors import AlreadyExistsError, ConflictError, InvalidRequestError, NotFoundError
from duckicelake.iceberg.identifiers import format_full_name, parse_schema_name, to_schema_name
from duckicelake.lake.side_tables import policies, reader
from duckicelake.lake.side_tables.audit import AuditedResource
from duckicelake.lake.side_tables.policies import GuardedColumn, NewPolicy, PolicyRow
from duckicelake.postgres.queries import Transaction
from duckicelake.storage.policy import canonicalize

_SEPARATOR: Final = "\x1f"
_ID: Final = re.compile("[0-9]{1,18}")
_TAG_IDS: Final = 2


@dataclass(frozen=True, slots=True)
class PolicyDetails:
    """A policy as it is, with today's names.

    is_live: False once its table was dropped; it counts for a table that takes the name, of which nothing is shown.
    """

    policy_id: UUID
    definition: PolicyDefinition
    is_live: bool
    created_by: str
    created_at: datetime


def add_policy(services: Services, definition: PolicyDefinition) -> PolicyDetails:
    """Add a policy; it counts at once here, and within two seconds on other workers.

    Raises:
        InvalidRequestError: it isn't one, the mask doesn't fit, or the warehouse's files aren't in S3.
        ForbiddenError: the caller doesn't manage the table. AlreadyExistsError: the table has one of its name.
        NotFoundError: there is no such principal. NoSuchTableError.

    """
    new = _build_checked(services, definition)
    place = get_rights(services).place

    def add() -> UUID:
        with services.database.transaction() as cursor:
            policy_id = policies.insert_policy(cursor, place, new, services.caller.principal.name)
            if policy_id is None:
                where = "the warehouse" if definition.table is None else format_full_name(*definition.table)
                raise AlreadyExistsError(f"{where} has a policy {definition.name} already")
            for names, is_exempt in ((new.to, False), (new.exempt, True)):
                missing = policies.add_principals(cursor, place, policy_id, names, is_exempt=is_exempt)
                if missing:
                    raise NotFoundError(f"There is no principal {min(missing)}: create it first")
            services.settle(cursor, [_describe(definition, "policy-added")], str(policy_id))
            return policy_id

    policy_id = services.run_once(add, UUID)
    get_rights(services).look()
    return get_policy(services, policy_id)


def check_policy(services: Services, definition: PolicyDefinition) -> None:
    """Raise what `add_policy` would, but for its principals and its name."""
    _build_checked(services, definition)


def list_policies(
    services: Services, table: Table | None = None, page: PageRequest = EVERY_ITEM
) -> ListPage[PolicyDetails]:
    """List the policies of a warehouse that the caller may manage, or those of a table, by name.

    A page leaves out others, so that it can have less than was asked for. Raises NoSuchTableError, and
    InvalidRequestError for a token of another list.
    """
    place = get_rights(services).place
    table_id = None if table is None else load_schema(services, table)[0]
    with services.database.reading() as cursor:
        rows = policies.list_policies(cursor, place, table_id, _parse_policy_key(page), page.fetch)
    cut = cut_page(rows, page, lambda row: _SEPARATOR.join((row.name, str(row.policy_id))))
    seen = (_build_details(row) for row in cut.items if _may_manage(services, _find_table(row)))
    return ListPage(tuple(seen), cut.next_token)


def get_policy(services: Services, policy_id: UUID) -> PolicyDetails:
    """Return a policy that the caller may manage; NotFoundError."""
    with services.database.reading() as cursor:
        rows = policies.list_policies(cursor, get_rights(services).place, policy_id=policy_id)
    for row in rows:
        if _may_manage(services, _find_table(row)):
            return _build_details(row)
    raise NotFoundError(f"There is no policy {policy_id}, or it isn't the caller's to manage")


def drop_policy(services: Services, policy_id: UUID) -> None:
    """Drop a policy; NotFoundError."""
    place = get_rights(services).place

    def drop() -> None:
        found = get_policy(services, policy_id)
        with services.database.transaction() as cursor:
            if not policies.delete_policy(cursor, place, policy_id):
                raise NotFoundError(f"There is no policy {policy_id}")
            services.settle(cursor, [_describe(found.definition, "policy-dropped")])

    services.run_once(drop, lambda _: None)
    get_rights(services).look()


def change_tag(services: Services, tagged: TaggedColumn, *, is_given: bool) -> bool:
    """Give a column a tag, or take it; return whether that changed anything.

    Raises ForbiddenError, InvalidRequestError, NoSuchTableError.
    """
    on = _find_tagged(services, tagged)
    place = get_rights(services).place
    change = policies.tag_column if is_given else policies.untag_column
    with services.database.transaction() as cursor:
        is_changed = change(cursor, place, tagged.tag, on)
        verb = "tagged" if is_given else "untagged"
        services.settle(cursor, [build_touched(*tagged.table, {verb: {on.column_name: tagged.tag}})])
    get_rights(services).look()
    return is_changed


def check_tag(services: Services, tagged: TaggedColumn) -> None:
    """Raise what `change_tag` would."""
    _find_tagged(services, tagged)


def list_tags(services: Services, table: Table | None = None, page: PageRequest = EVERY_ITEM) -> ListPage[TaggedColumn]:
    """List the tagged columns of a warehouse that the caller may manage, or those of a table, by tag.

    A page leaves out others, so that it can have less than was asked for. Raises NoSuchTableError, and
    InvalidRequestError for a token of another list.
    """
    place = get_rights(services).place
    table_id = None if table is None else load_schema(services, table)[0]
    with services.database.reading() as cursor:
        rows = policies.list_tags(cursor, place, table_id, _parse_tag_key(page), page.fetch)
    cut = cut_page(rows, page, lambda row: _SEPARATOR.join((row.tag, str(row.table_id), str(row.column_id))))
    found = [
        TaggedColumn(row.tag, (parse_schema_name(row.schema_name), row.table_name), row.column_name, row.is_live)
        for row in cut.items
    ]
    return ListPage(tuple(tagged for tagged in found if _may_manage(services, tagged.table)), cut.next_token)


def copy_policies(services: Services, cursor: Transaction, from_id: int, to_id: int, table: Table) -> None:
    """Give a clone the policies of its source, in the transaction that makes it."""
    if services.rights is not None:
        to = GuardedColumn(to_id, to_schema_name(table[0]), table[1])
        policies.copy_policies(cursor, services.rights.place, from_id, to)


def check_unguarded(services: Services, cursor: Transaction, table: Table) -> None:
    """Raise ConflictError if a table has policies: once it is given up, its files would be no table's."""
    table_id = reader.find_table_id(cursor, to_schema_name(table[0]), table[1])
    if services.rights is None or table_id is None:
        return
    if policies.has_policies(cursor, services.rights.place, table_id):
        raise ConflictError(f"{format_full_name(*table)} has policies, which would be lost with it: drop them first")


def get_rights(services: Services) -> RightsCache:
    """Return where the warehouse's policies are; InvalidRequestError."""
    if services.rights is None:
        raise InvalidRequestError("This process has no policies")
    return services.rights


def _parse_policy_key(page: PageRequest) -> policies.PolicyKey | None:
    """Parse the key of the last policy of the page before."""
    if not page.after:
        return None
    name, separator, policy_id = page.after.partition(_SEPARATOR)
    try:
        return name, UUID(policy_id if separator else "")
    except ValueError:
        raise _refuse_page() from None


def _parse_tag_key(page: PageRequest) -> policies.TagKey | None:
    """Parse the key of the last tagged column of the page before."""
    if not page.after:
        return None
    tag, *ids = page.after.split(_SEPARATOR)
    if len(ids) != _TAG_IDS or not all(_ID.fullmatch(one) for one in ids):
        raise _refuse_page()
    return tag, int(ids[0]), int(ids[1])


def _refuse_page() -> InvalidRequestError:
    return InvalidRequestError("pageToken is not one of this list; start again without it")


def _build_checked(services: Services, definition: PolicyDefinition) -> NewPolicy:
    """Bind a definition to the table as it is; raise what `add_policy` says."""
    check_form(definition)
    _check_manager(services, definition.table)
    _check_store(services)
    return bind_definition(services, definition)


def _find_tagged(services: Services, tagged: TaggedColumn) -> GuardedColumn:
    check_name(tagged.tag, "tag")
    _check_manager(services, tagged.table)
    table_id, schema = load_schema(services, tagged.table)
    return build_guarded(tagged.table, table_id, find_column(schema, tagged.column))


def _check_store(services: Services) -> None:
    """Raise InvalidRequestError unless nothing but keys of the server leads to the warehouse's files."""
    for location in (*services.policy.places, services.policy.data_path):
        if not canonicalize(location).startswith(("s3://", "gs://")):
            raise InvalidRequestError(
                "Policies take a warehouse whose files are all in S3 or in Google Cloud Storage: nothing keeps readers "
                f"from those in {location}"
            )


def _check_manager(services: Services, table: Table | None) -> None:
    if not _may_manage(services, table):
        raise build_refusal(*(table or ((), "")), services.caller.principal)


def _may_manage(services: Services, table: Table | None) -> bool:
    """Return whether the caller may change the policies of a table, or with none named those of tags."""
    principal, (namespace, name) = services.caller.principal, table or ((), "")
    if principal.may_administer():
        return True
    if principal.rights is None or not principal.rights.are_granted:
        return False
    return Privilege.MANAGE_GRANTS in principal.rights.find(namespace, name) and principal.is_in_scope(
        EVERYTHING, namespace
    )


def _find_table(row: PolicyRow) -> Table | None:
    if row.schema_name is None or row.table_name is None:
        return None
    return parse_schema_name(row.schema_name), row.table_name


def _build_details(row: PolicyRow) -> PolicyDetails:
    condition = row.condition and rename_condition(row.condition, row.condition_names or {})
    definition = PolicyDefinition(
        row.name, _find_table(row), row.column_name, row.tag, row.mask, condition, row.to, row.exempt
    )
    return PolicyDetails(row.policy_id, definition, row.is_live or row.tag is not None, row.created_by, row.created_at)


def _describe(definition: PolicyDefinition, verb: str) -> AuditedResource:
    """Describe a change for the audit trail."""
    what = definition.condition or " ".join(filter(None, (definition.mask, definition.column, definition.tag)))
    detail: dict[str, Any] = {verb: definition.name, "policy": what}
    detail |= {"to": list(definition.to)} if definition.to else {}
    detail |= {"exempt": list(definition.exempt)} if definition.exempt else {}
    if definition.table is None:
        return AuditedResource("warehouse", detail=detail)
    return build_touched(*definition.table, detail)
