"""Files that tables share: a guard keeps Iceberg's engines from deleting any, as long as another table needs one."""

from collections.abc import Mapping, Sequence
from typing import Final

from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake import clones
from duckicelake.lake.changes import ChangeSet
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.writing.files import StaleBase

GUARD_PROPERTY: Final = "gc.enabled"
GUARD: Final = {GUARD_PROPERTY: "false"}
"""What a table says so that engines delete no file of its."""


def is_guarded(metadata: TableMetadata) -> bool:
    """Whether the table says that its files may not be deleted."""
    return _is_guard(metadata.properties)


def _is_guard(properties: Mapping[str, str]) -> bool:
    return properties.get(GUARD_PROPERTY, "").lower() == "false"


def check_guard(services: Services, table_id: int, base: TableMetadata, target: TableMetadata) -> None:
    """InvalidRequest for a commit that takes away the server's guard of a table while another needs its files."""
    if not is_guarded(base) or is_guarded(target):
        return
    with services.database.reading() as cursor:
        if _is_needed(cursor, table_id):
            raise InvalidRequest(
                f"The table shares files with another, a clone or its source: it keeps {GUARD_PROPERTY}=false until "
                "they share none, so that no engine deletes what the other needs"
            )


def unguards(base: TableMetadata, change: ChangeSet) -> bool:
    """Whether the change takes a guard away, so that `check_unguarded` belongs into its transaction."""
    return is_guarded(base) and not _is_guard(change.target.metadata["properties"])


def check_unguarded(cursor: Transaction, table_ids: Sequence[int]) -> None:
    """StaleBase if a table whose guard goes was cloned since that was checked, which changes nothing of the table."""
    for table_id in table_ids:
        if _is_needed(cursor, table_id):
            raise StaleBase(f"table {table_id} shares files by now")


def _is_needed(cursor: Transaction, table_id: int) -> bool:
    return clones.is_guarded_by_us(cursor, table_id) and clones.shares(cursor, table_id)
