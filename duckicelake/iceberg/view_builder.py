"""Apply the updates of a commit to view metadata."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from duckicelake.errors import InvalidViewError
from duckicelake.iceberg import updates, view
from duckicelake.iceberg.metadata import SUPPORTED_FORMAT_VERSION
from duckicelake.iceberg.schema import Schema, check_schema
from duckicelake.iceberg.updates import LAST_ADDED
from duckicelake.iceberg.view import (
    DEFAULT_HISTORY_SIZE,
    DROP_DIALECT_ALLOWED,
    HISTORY_SIZE,
    VIEW_FORMAT_VERSION,
    ViewLogEntry,
    ViewMetadata,
    ViewUpdate,
    ViewVersion,
    check_dialects,
)

FIRST_SCHEMA_ID: Final = 0
FIRST_VERSION_ID: Final = 1


@dataclass(slots=True)
class ViewDraft:
    """The view while the updates of one request change it. base: None for a new view."""

    now_ms: int
    view_uuid: str
    location: str
    base: ViewMetadata | None = None
    current_version_id: int | None = None
    schemas: dict[int, Schema] = field(default_factory=dict)
    versions: dict[int, ViewVersion] = field(default_factory=dict)
    log: list[ViewLogEntry] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)

    last_added_schema_id: int | None = None
    last_added_version_id: int | None = None
    added_versions: set[int] = field(default_factory=set)
    log_entry: ViewLogEntry | None = None  # of the version that the request ends with, if it chooses one


def build_new_view_metadata(
    *, view_uuid: str, location: str, schema: Schema, version: ViewVersion, properties: dict[str, str], now_ms: int
) -> ViewMetadata:
    """Make a view's first metadata; the schema and the version get their ids here.

    Raises:
        InvalidViewError: the schema or the version breaks a rule of the specification.

    """
    draft = ViewDraft(now_ms, view_uuid, location, properties=dict(properties))
    first = version.replace_fields(version_id=FIRST_VERSION_ID, schema_id=LAST_ADDED, timestamp_ms=now_ms)
    add_schema(draft, updates.AddSchema(schema_=schema))
    add_view_version(draft, view.AddViewVersion(view_version=first))
    set_current_view_version(draft, view.SetCurrentViewVersion(view_version_id=LAST_ADDED))
    return finish_view_draft(draft)


def apply_view_updates(base: ViewMetadata, changes: Sequence[ViewUpdate], now_ms: int) -> ViewMetadata:
    """Apply the updates in their order; gives `base` itself when nothing changed.

    Raises:
        InvalidViewError: an update breaks a rule of the specification.

    """
    draft = begin_view_draft(base, now_ms)
    for update in changes:
        _APPLY[type(update)](draft, update)
    target = finish_view_draft(draft)
    if target.properties.get(DROP_DIALECT_ALLOWED, "false").lower() != "true":
        _check_kept_dialects(base.current_version(), target.current_version())
    return target


def begin_view_draft(base: ViewMetadata, now_ms: int) -> ViewDraft:
    """Begin a change of `base`, which itself stays as it is."""
    return ViewDraft(
        now_ms,
        base.view_uuid,
        base.location,
        base=base,
        current_version_id=base.current_version_id,
        schemas={schema.schema_id: schema for schema in base.schemas},
        versions={version.version_id: version for version in base.versions},
        log=list(base.version_log),
        properties=dict(base.properties),
    )


def finish_view_draft(draft: ViewDraft) -> ViewMetadata:
    """Return the metadata without versions beyond the history's limit, or the base if nothing changed."""
    assert draft.current_version_id is not None
    kept = _select_kept_versions(draft, draft.current_version_id)
    log = draft.log if draft.log_entry is None else [*draft.log, draft.log_entry]
    values: dict[str, Any] = {
        "view_uuid": draft.view_uuid,
        "location": draft.location,
        "schemas": tuple(draft.schemas.values()),
        "current_version_id": draft.current_version_id,
        "versions": tuple(version for version_id, version in draft.versions.items() if version_id in kept),
        "version_log": _trim_log(log, kept),
        "properties": draft.properties,
    }
    if draft.base is None:
        return ViewMetadata.model_construct(**values)
    target = draft.base.replace_fields(**values)
    return draft.base if target == draft.base.replace_fields() else target


def assign_uuid(draft: ViewDraft, update: updates.AssignUuid) -> None:
    if update.uuid.lower() != draft.view_uuid.lower():
        raise InvalidViewError(f"Cannot reassign uuid: the view's is {draft.view_uuid}")


def upgrade_format_version(draft: ViewDraft, update: updates.UpgradeFormatVersion) -> None:  # noqa: ARG001
    if update.format_version < VIEW_FORMAT_VERSION:
        raise InvalidViewError(f"Cannot downgrade v{VIEW_FORMAT_VERSION} view to v{update.format_version}")
    if update.format_version > VIEW_FORMAT_VERSION:
        raise InvalidViewError(f"Unsupported format version: {update.format_version}")


def add_schema(draft: ViewDraft, update: updates.AddSchema) -> None:
    check_schema(update.schema_, SUPPORTED_FORMAT_VERSION)
    schema_id = next((schema.schema_id for schema in draft.schemas.values() if schema.same_as(update.schema_)), None)
    if schema_id is None:
        schema_id = max(draft.schemas, default=FIRST_SCHEMA_ID - 1) + 1
        draft.schemas[schema_id] = update.schema_.replace_fields(schema_id=schema_id)
    draft.last_added_schema_id = schema_id


def set_location(draft: ViewDraft, update: updates.SetLocation) -> None:
    if not update.location:
        raise InvalidViewError("Invalid location: it is empty")
    draft.location = update.location


def set_properties(draft: ViewDraft, update: updates.SetProperties) -> None:
    draft.properties.update(update.updates)


def remove_properties(draft: ViewDraft, update: updates.RemoveProperties) -> None:
    for key in update.removals:
        draft.properties.pop(key, None)


def add_view_version(draft: ViewDraft, update: view.AddViewVersion) -> None:
    """Add the version under its own id if that is above all others, else under the next id. Reuse an equal version."""
    version = _with_schema(draft, update.view_version)
    known = next(
        (known_version.version_id for known_version in draft.versions.values() if known_version.same_as(version)), None
    )
    if known is None:
        check_dialects(version)
        known = max(version.version_id, FIRST_VERSION_ID, *(number + 1 for number in draft.versions))
        draft.versions[known] = version.replace_fields(
            version_id=known, timestamp_ms=min(version.timestamp_ms, draft.now_ms)
        )
        draft.added_versions.add(known)
    draft.last_added_version_id = known


def set_current_view_version(draft: ViewDraft, update: view.SetCurrentViewVersion) -> None:
    version_id = update.view_version_id
    if version_id == LAST_ADDED:
        if draft.last_added_version_id is None:
            raise InvalidViewError("Cannot set last version id: no current version id has been set")
        version_id = draft.last_added_version_id
    if version_id not in draft.versions:
        raise InvalidViewError(f"Cannot set current version to unknown version: {version_id}")
    if version_id != draft.current_version_id:
        added = version_id in draft.added_versions
        time = draft.versions[version_id].timestamp_ms if added else draft.now_ms
        draft.log_entry = ViewLogEntry(timestamp_ms=time, version_id=version_id)
        draft.current_version_id = version_id


_APPLY: Final[Mapping[type, Callable[[ViewDraft, Any], None]]] = {
    updates.AssignUuid: assign_uuid,
    updates.UpgradeFormatVersion: upgrade_format_version,
    updates.AddSchema: add_schema,
    updates.SetLocation: set_location,
    updates.SetProperties: set_properties,
    updates.RemoveProperties: remove_properties,
    view.AddViewVersion: add_view_version,
    view.SetCurrentViewVersion: set_current_view_version,
}


def _with_schema(draft: ViewDraft, version: ViewVersion) -> ViewVersion:
    if version.schema_id == LAST_ADDED:
        if draft.last_added_schema_id is None:
            raise InvalidViewError("Cannot set last added schema: no schema has been added")
        return version.replace_fields(schema_id=draft.last_added_schema_id)
    if version.schema_id not in draft.schemas:
        raise InvalidViewError(f"Cannot add version with unknown schema: {version.schema_id}")
    return version


def _select_kept_versions(draft: ViewDraft, current: int) -> set[int]:
    """Select the versions to keep: the current one, those of this request, and the newest others up to the limit."""
    size = _parse_history_size(draft.properties)
    kept = {current, *draft.added_versions}
    others = sorted(draft.versions.keys() - kept, reverse=True)
    return kept | set(others[: max(size - len(kept), 0)])


def _parse_history_size(properties: Mapping[str, str]) -> int:
    text = properties.get(HISTORY_SIZE, str(DEFAULT_HISTORY_SIZE))
    try:
        size = int(text)
    except ValueError:
        raise InvalidViewError(f"{HISTORY_SIZE} is {text!r}, expected a number") from None
    if size <= 0:
        raise InvalidViewError(f"{HISTORY_SIZE} must be positive but was {size}")
    return size


def _trim_log(log: Iterable[ViewLogEntry], kept: set[int]) -> tuple[ViewLogEntry, ...]:
    """Trim the log to the entries after the last one of an expired version: earlier history is unknown."""
    entries: list[ViewLogEntry] = []
    for entry in log:
        entries = [*entries, entry] if entry.version_id in kept else []
    return tuple(entries)


def _check_kept_dialects(before: ViewVersion, after: ViewVersion) -> None:
    previous, new = before.dialects(), after.dialects()
    if not previous <= new:
        raise InvalidViewError(
            f"Cannot replace view due to loss of view dialects ({DROP_DIALECT_ALLOWED}=false):\n"
            f"Previous dialects: [{', '.join(sorted(previous))}]\nNew dialects: [{', '.join(sorted(new))}]"
        )
