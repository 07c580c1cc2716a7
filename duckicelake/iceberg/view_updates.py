"""The changes a commit makes to a view and what it assumes about it, as data (REST specification, `ViewUpdate`)."""

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Tag

from duckicelake.errors import CommitFailed
from duckicelake.iceberg.model import Int, SpecModel, tag_of
from duckicelake.iceberg.requirements import TABLE_REQUIREMENTS, VIEW_REQUIREMENTS
from duckicelake.iceberg.updates import (
    TABLE_UPDATES,
    VIEW_ONLY_UPDATES,
    AddSchema,
    AssignUuid,
    RemoveProperties,
    SetLocation,
    SetProperties,
    UpgradeFormatVersion,
)
from duckicelake.iceberg.view import ViewMetadata, ViewVersion

VIEW_UPDATES: Final = (
    "assign-uuid",
    "upgrade-format-version",
    "add-schema",
    "set-location",
    "set-properties",
    "remove-properties",
    *VIEW_ONLY_UPDATES,
)


class AddViewVersion(SpecModel):
    action: Literal["add-view-version"] = "add-view-version"
    view_version: ViewVersion


class SetCurrentViewVersion(SpecModel):
    action: Literal["set-current-view-version"] = "set-current-view-version"
    view_version_id: Int


class AssertViewUuid(SpecModel):
    type: Literal["assert-view-uuid"] = "assert-view-uuid"
    uuid: str


def _action_of(value: Any) -> str:
    return tag_of(value, "action", "update", VIEW_UPDATES, TABLE_UPDATES, "view")


def _type_of(value: Any) -> str:
    return tag_of(value, "type", "requirement", VIEW_REQUIREMENTS, TABLE_REQUIREMENTS, "view")


ViewUpdate = Annotated[
    Annotated[AssignUuid, Tag("assign-uuid")]
    | Annotated[UpgradeFormatVersion, Tag("upgrade-format-version")]
    | Annotated[AddSchema, Tag("add-schema")]
    | Annotated[SetLocation, Tag("set-location")]
    | Annotated[SetProperties, Tag("set-properties")]
    | Annotated[RemoveProperties, Tag("remove-properties")]
    | Annotated[AddViewVersion, Tag("add-view-version")]
    | Annotated[SetCurrentViewVersion, Tag("set-current-view-version")],
    Discriminator(_action_of),
]

ViewRequirement = Annotated[Annotated[AssertViewUuid, Tag("assert-view-uuid")], Discriminator(_type_of)]


def check(requirements: Sequence[ViewRequirement], base: ViewMetadata) -> None:
    """Check what a commit assumes about the view; CommitFailed, in the reference server's words, where it isn't so."""
    for requirement in requirements:
        if requirement.uuid.lower() != base.view_uuid.lower():
            raise CommitFailed(
                f"Requirement failed: view UUID does not match: expected {base.view_uuid} != {requirement.uuid}",
                requirement.type,
            )
