"""Routes of policies: list, add and drop row filters and column masks, and tags of columns."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from fastapi import APIRouter, Query, Response
from pydantic import ConfigDict, Field

from duckicelake.catalog import policies
from duckicelake.catalog.policies import PolicyDetails
from duckicelake.catalog.policy_definitions import PolicyDefinition, Table, TaggedColumn, parse_table
from duckicelake.iceberg.identifiers import NamespaceField, TableNameField
from duckicelake.iceberg.model import SpecModel
from duckicelake.server.http.errors import RESPONSES, parse_body
from duckicelake.server.http.route import StrictRequest, StrictRoute
from duckicelake.server.routes.dependencies import AppServices, Body, KeyedServices, PageQuery, describe_body

router = APIRouter(tags=["policies"], responses=RESPONSES, route_class=StrictRoute)
POLICIES = "/management/v1/policies"
_Principals = Annotated[tuple[str, ...], Field(max_length=1000)]
OnQuery = Annotated[str | None, Query(description="only those of a table, as table:a.b.c")]


class PolicyTable(StrictRequest):
    """A table."""

    namespace: NamespaceField
    name: TableNameField


class NewPolicyRequest(StrictRequest):
    """A row filter of a table, or a mask of a column, or of all columns that have a tag.

    condition: what holds for rows that are shown, in DuckDB's SQL. to: empty: everyone.
    """

    name: str
    table: PolicyTable | None = None
    column: str | None = None
    tag: str | None = None
    mask: str | None = None
    condition: str | None = None
    to: _Principals = ()
    exempt: _Principals = ()

    def parse(self) -> PolicyDefinition:
        table = None if self.table is None else (self.table.namespace, self.table.name)
        what = self.column, self.tag, self.mask, self.condition
        return PolicyDefinition(self.name, table, *what, self.to, self.exempt)


class NamedTable(SpecModel):
    """A table, by the name of now, or its last one."""

    model_config = ConfigDict(frozen=True)

    namespace: tuple[str, ...]
    name: str

    @classmethod
    def of(cls, table: Table | None) -> Self | None:
        return None if table is None else cls(namespace=table[0], name=table[1])


class PolicyAnswer(SpecModel):
    """A policy. is_live: false once its table was dropped; a table that takes its name then shows no rows."""

    model_config = ConfigDict(frozen=True)

    id: UUID
    name: str
    table: NamedTable | None = None
    column: str | None = None
    tag: str | None = None
    mask: str | None = None
    condition: str | None = None
    to: tuple[str, ...]
    exempt: tuple[str, ...]
    is_live: bool
    created_by: str
    created_at: datetime


class PolicyList(SpecModel):
    """Policies of a warehouse, by name."""

    model_config = ConfigDict(frozen=True)

    policies: tuple[PolicyAnswer, ...]
    next_page_token: str | None = None


class TaggedColumnRequest(StrictRequest):
    """A column of a table, and a tag."""

    tag: str
    table: PolicyTable
    column: str


class ChangeTagsRequest(StrictRequest):
    """Tags of columns to give and to take, one after the other."""

    give: Annotated[tuple[TaggedColumnRequest, ...], Field(max_length=100)] = ()
    take: Annotated[tuple[TaggedColumnRequest, ...], Field(max_length=100)] = ()


class TaggedColumnAnswer(SpecModel):
    """A tag of a column."""

    model_config = ConfigDict(frozen=True)

    tag: str
    table: NamedTable
    column: str
    is_live: bool


class TagList(SpecModel):
    """Tagged columns of a warehouse, by tag."""

    model_config = ConfigDict(frozen=True)

    tags: tuple[TaggedColumnAnswer, ...]
    next_page_token: str | None = None


@router.get(POLICIES)
def list_policies(services: AppServices, page: PageQuery, on: OnQuery = None) -> PolicyList:
    """List the policies of a warehouse that the caller may manage."""
    found = policies.list_policies(services, None if on is None else parse_table(on), page)
    return PolicyList(policies=tuple(map(_describe, found.items)), next_page_token=found.next_token)


@router.post(POLICIES, openapi_extra=describe_body(NewPolicyRequest))
def add_policy(services: KeyedServices, body: Body) -> PolicyAnswer:
    """Add a row filter or a column mask."""
    return _describe(policies.add_policy(services, parse_body(NewPolicyRequest, body).parse()))


@router.get(f"{POLICIES}/{{policy_id}}")
def load_policy(services: AppServices, policy_id: UUID) -> PolicyAnswer:
    """Load a policy."""
    return _describe(policies.get_policy(services, policy_id))


@router.delete(f"{POLICIES}/{{policy_id}}", status_code=204)
def drop_policy(services: KeyedServices, policy_id: UUID) -> Response:
    """Drop a policy."""
    policies.drop_policy(services, policy_id)
    return Response(status_code=204)


@router.get("/management/v1/column-tags")
def list_column_tags(services: AppServices, page: PageQuery, on: OnQuery = None) -> TagList:
    """List the tags of columns of tables whose policies the caller may manage."""
    found = policies.list_tags(services, None if on is None else parse_table(on), page)
    return _describe_tags(found.items, found.next_token)


@router.post("/management/v1/column-tags", openapi_extra=describe_body(ChangeTagsRequest))
def change_column_tags(services: AppServices, body: Body) -> TagList:
    """Give and take tags of columns; return those of the tables that were named."""
    request = parse_body(ChangeTagsRequest, body)
    for asked, is_given in [*((one, True) for one in request.give), *((one, False) for one in request.take)]:
        table = asked.table.namespace, asked.table.name
        policies.change_tag(services, TaggedColumn(asked.tag, table, asked.column), is_given=is_given)
    tables = {(one.table.namespace, one.table.name) for one in (*request.give, *request.take)}
    return _describe_tags([tagged for table in sorted(tables) for tagged in policies.list_tags(services, table).items])


def _describe(found: PolicyDetails) -> PolicyAnswer:
    own = found.definition
    return PolicyAnswer(
        id=found.policy_id,
        name=own.name,
        table=NamedTable.of(own.table),
        column=own.column,
        tag=own.tag,
        mask=own.mask,
        condition=own.condition,
        to=own.to,
        exempt=own.exempt,
        is_live=found.is_live,
        created_by=found.created_by,
        created_at=found.created_at,
    )


def _describe_tags(found: Sequence[TaggedColumn], next_token: str | None = None) -> TagList:
    return TagList(
        next_page_token=next_token,
        tags=tuple(
            TaggedColumnAnswer(
                tag=one.tag,
                table=NamedTable(namespace=one.table[0], name=one.table[1]),
                column=one.column,
                is_live=one.is_live,
            )
            for one in found
        ),
    )
