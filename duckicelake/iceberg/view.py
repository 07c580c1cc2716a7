"""View metadata, the updates of a view, and its requirements (view spec, version 1)."""

from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import Field, Tag

from duckicelake.errors import CommitFailedError, InvalidViewError
from duckicelake.iceberg.metadata import TableUuid
from duckicelake.iceberg.metadata_file import read_document
from duckicelake.iceberg.model import Int, Json, Long, SpecModel, build_discriminator, parse
from duckicelake.iceberg.requirements import TABLE_REQUIREMENTS, VIEW_REQUIREMENTS
from duckicelake.iceberg.schema import Schema
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

VIEW_FORMAT_VERSION: Final = 1
COMMENT: Final = "comment"
HISTORY_SIZE, DEFAULT_HISTORY_SIZE = "version.history.num-entries", 10
DROP_DIALECT_ALLOWED: Final = "replace.drop-dialect.allowed"
_INVALID: Final = "invalid view metadata"
VIEW_UPDATES: Final = (
    "assign-uuid",
    "upgrade-format-version",
    "add-schema",
    "set-location",
    "set-properties",
    "remove-properties",
    *VIEW_ONLY_UPDATES,
)


class SqlViewRepresentation(SpecModel):
    """The view's query in one engine's SQL."""

    type: Literal["sql"] = "sql"
    sql: str
    dialect: str

    @property
    def dialect_key(self) -> str:
        """The dialect in lower case, since case doesn't matter."""
        return self.dialect.lower()


class StorageTable(SpecModel):
    """The table that holds a materialized view's rows."""

    namespace: tuple[str, ...]
    name: str


class ViewVersion(SpecModel):
    """One state of the view; all its representations mean the same query."""

    version_id: Int
    schema_id: Int
    timestamp_ms: Long
    summary: dict[str, str] = Field(default_factory=dict)
    representations: tuple[SqlViewRepresentation, ...]
    default_catalog: str | None = None
    default_namespace: tuple[str, ...]
    storage_table: StorageTable | None = None

    def dialects(self) -> set[str]:
        """Return the dialects that the version has, in lower case."""
        return {representation.dialect_key for representation in self.representations}

    def sql_for(self, dialect: str) -> str | None:
        """Return the query in a dialect, None if the version has none."""
        return next(
            (
                representation.sql
                for representation in self.representations
                if representation.dialect_key == dialect.lower()
            ),
            None,
        )

    def same_as(self, other: "ViewVersion") -> bool:
        """Return whether both mean the same, whatever their ids and times."""
        return (
            self.replace_fields(version_id=other.version_id, timestamp_ms=other.timestamp_ms) == other.replace_fields()
        )


class ViewLogEntry(SpecModel):
    """The time at which a version became current."""

    timestamp_ms: Long
    version_id: Int


class ViewMetadata(SpecModel):
    """The content of a view's metadata.json."""

    view_uuid: TableUuid
    format_version: Literal[1] = VIEW_FORMAT_VERSION
    location: str
    schemas: tuple[Schema, ...]
    current_version_id: Int
    versions: tuple[ViewVersion, ...]
    version_log: tuple[ViewLogEntry, ...]
    properties: dict[str, str] = Field(default_factory=dict)

    def current_version(self) -> ViewVersion:
        """Return the version that readers use."""
        return next(version for version in self.versions if version.version_id == self.current_version_id)

    def current_schema(self) -> Schema:
        """Return the schema of the current version."""
        wanted = self.current_version().schema_id
        return next(schema for schema in self.schemas if schema.schema_id == wanted)

    def to_json(self) -> dict[str, Json]:
        """Return the JSON of the spec."""
        return {
            "view-uuid": self.view_uuid,
            "format-version": self.format_version,
            "location": self.location,
            "properties": dict(self.properties),
            "schemas": [schema.to_json() for schema in self.schemas],
            "current-version-id": self.current_version_id,
            "versions": [version.to_json() for version in self.versions],
            "version-log": [entry.to_json() for entry in self.version_log],
        }


def read_view_metadata(data: bytes, location: str) -> ViewMetadata:
    """Read a view's metadata.json, plain or gzipped, by any writer.

    InvalidRequestError names the file and what is wrong.
    """
    return parse_view_metadata(read_document(data, location))


def parse_view_metadata(data: Json) -> ViewMetadata:
    """Read the JSON of view metadata by any writer.

    Raises:
        InvalidRequestError: a required key is missing or malformed, or ids contradict each other.

    """
    metadata = parse(ViewMetadata, data, "view metadata")
    _check_unique("version-id", [version.version_id for version in metadata.versions])
    _check_unique("schema-id", [schema.schema_id for schema in metadata.schemas])
    _check_known("current version", metadata.current_version_id, [version.version_id for version in metadata.versions])
    for version in metadata.versions:
        _check_known("schema", version.schema_id, [schema.schema_id for schema in metadata.schemas])
        check_dialects(version)
    return metadata


def check_dialects(version: ViewVersion) -> None:
    """Raise InvalidViewError if two representations of the version have one dialect."""
    for dialect, times in Counter(representation.dialect_key for representation in version.representations).items():
        if times > 1:
            raise InvalidViewError(f"Invalid view version: Cannot add multiple queries for dialect {dialect}")


def _check_unique(what: str, ids: list[int]) -> None:
    for id_, times in Counter(ids).items():
        if times > 1:
            raise InvalidViewError(f"{_INVALID}: {what} {id_} is listed {times} times")


def _check_known(what: str, wanted: int, known: list[int]) -> None:
    if wanted not in known:
        raise InvalidViewError(f"{_INVALID}: Cannot find {what} {wanted}, only {known}")


class AddViewVersion(SpecModel):
    action: Literal["add-view-version"] = "add-view-version"
    view_version: ViewVersion


class SetCurrentViewVersion(SpecModel):
    action: Literal["set-current-view-version"] = "set-current-view-version"
    view_version_id: Int


class AssertViewUuid(SpecModel):
    type: Literal["assert-view-uuid"] = "assert-view-uuid"
    uuid: str


ViewUpdate = Annotated[
    Annotated[AssignUuid, Tag("assign-uuid")]
    | Annotated[UpgradeFormatVersion, Tag("upgrade-format-version")]
    | Annotated[AddSchema, Tag("add-schema")]
    | Annotated[SetLocation, Tag("set-location")]
    | Annotated[SetProperties, Tag("set-properties")]
    | Annotated[RemoveProperties, Tag("remove-properties")]
    | Annotated[AddViewVersion, Tag("add-view-version")]
    | Annotated[SetCurrentViewVersion, Tag("set-current-view-version")],
    build_discriminator("action", "update", VIEW_UPDATES, TABLE_UPDATES, "view"),
]

ViewRequirement = Annotated[
    Annotated[AssertViewUuid, Tag("assert-view-uuid")],
    build_discriminator("type", "requirement", VIEW_REQUIREMENTS, TABLE_REQUIREMENTS, "view"),
]


def check_view_requirements(requirements: Sequence[ViewRequirement], base: ViewMetadata) -> None:
    """Check what a commit assumes about the view.

    CommitFailedError, with the reference server's text: a requirement doesn't hold.
    """
    for requirement in requirements:
        if requirement.uuid.lower() != base.view_uuid.lower():
            raise CommitFailedError(
                f"Requirement failed: view UUID does not match: expected {base.view_uuid} != {requirement.uuid}",
                requirement.type,
            )
