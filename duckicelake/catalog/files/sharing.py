"""Files that tables share: a guard keeps Iceberg's engines from deleting any, as long as another table needs one."""

from typing import Final

from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.lake import clones

GUARD_PROPERTY: Final = "gc.enabled"
GUARD: Final = {GUARD_PROPERTY: "false"}
"""What a table says so that engines delete no file of its."""


def is_guarded(metadata: TableMetadata) -> bool:
    """Whether the table says that its files may not be deleted."""
    return metadata.properties.get(GUARD_PROPERTY, "").lower() == "false"


def check_guard(services: Services, table_id: int, base: TableMetadata, target: TableMetadata) -> None:
    """InvalidRequest for a commit that takes away the server's guard of a table while another needs its files."""
    if not is_guarded(base) or is_guarded(target):
        return
    with services.database.reading() as cursor:
        if clones.is_guarded_by_us(cursor, table_id) and clones.shares(cursor, table_id):
            raise InvalidRequest(
                f"The table shares files with another, a clone or its source: it keeps {GUARD_PROPERTY}=false until "
                "they share none, so that no engine deletes what the other needs"
            )
