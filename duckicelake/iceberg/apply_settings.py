"""Updates of a table's identity, format version, location and properties."""

from typing import Final

from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.draft import Draft
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, SUPPORTED_FORMAT_VERSION
from duckicelake.iceberg.named_order import SORT_ORDER_PROPERTY
from duckicelake.iceberg.updates import AssignUuid, RemoveProperties, SetLocation, SetProperties, UpgradeFormatVersion

FORMAT_VERSION_PROPERTY: Final = "format-version"
RESERVED_PROPERTIES: Final = frozenset(
    (
        FORMAT_VERSION_PROPERTY,
        "uuid",
        "snapshot-count",
        "current-snapshot-summary",
        "current-snapshot-id",
        "current-snapshot-timestamp-ms",
        "current-schema",
        "default-partition-spec",
        "default-sort-order",
        SORT_ORDER_PROPERTY,
    )
)


def assign_uuid(draft: Draft, update: AssignUuid) -> None:
    if draft.table_uuid is not None and draft.table_uuid.lower() != update.uuid.lower():
        raise InvalidRequest(f"Cannot reassign uuid: the table's is {draft.table_uuid}")
    draft.table_uuid = draft.table_uuid or update.uuid


def upgrade_format_version(draft: Draft, update: UpgradeFormatVersion) -> None:
    old, new = draft.format_version, update.format_version
    if new > SUPPORTED_FORMAT_VERSION:
        supported = f"(supported: v{SUPPORTED_FORMAT_VERSION})"
        raise InvalidRequest(f"Cannot upgrade table to unsupported format version: v{new} {supported}")
    if new < old:
        raise InvalidRequest(f"Cannot downgrade v{old} table to v{new}")
    if old < ROW_LINEAGE_VERSION <= new:
        draft.next_row_id = 0
    draft.format_version = new


def set_location(draft: Draft, update: SetLocation) -> None:
    location = update.location.rstrip("/")  # paths of files add one, and to an object store two are another key
    if not location:
        raise InvalidRequest("set-location: the location is empty")
    draft.location = location


def set_properties(draft: Draft, update: SetProperties) -> None:
    """Set properties; `format-version` is an upgrade, as the Java client makes of it."""
    reserved = sorted(update.updates.keys() & (RESERVED_PROPERTIES - {FORMAT_VERSION_PROPERTY}))
    if reserved:
        raise InvalidRequest(f"properties {', '.join(reserved)} are reserved: the table's metadata says them")
    if FORMAT_VERSION_PROPERTY in update.updates:
        wanted = format_version_of(update.updates, draft.format_version)
        upgrade_format_version(draft, UpgradeFormatVersion(format_version=wanted))
    draft.properties.update(unreserved(update.updates))


def remove_properties(draft: Draft, update: RemoveProperties) -> None:
    for key in update.removals:
        draft.properties.pop(key, None)


def unreserved(properties: dict[str, str]) -> dict[str, str]:
    """Give the properties that a table may store."""
    return {key: value for key, value in properties.items() if key not in RESERVED_PROPERTIES}


def format_version_of(properties: dict[str, str], default: int) -> int:
    """Give the format version that the properties ask for; InvalidRequest if it isn't a number."""
    text = properties.get(FORMAT_VERSION_PROPERTY)
    if text is not None and not (text.isascii() and text.isdigit() and len(text) <= 3):
        raise InvalidRequest(f"property {FORMAT_VERSION_PROPERTY} is {text!r}, expected 1, 2 or 3")
    return default if text is None else int(text)
