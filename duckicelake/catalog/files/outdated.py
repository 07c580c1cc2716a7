"""Old metadata files, which a table can ask not to keep."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from duckicelake.catalog.services import Services
from duckicelake.lake import reader
from duckicelake.lake.state import TableRow

DELETE_AFTER_COMMIT: Final = "write.metadata.delete-after-commit.enabled"


def delete_outdated(services: Services, row: TableRow) -> None:
    """Delete metadata files that have left the metadata log, if the table says so; best effort, the next time again."""
    if row.metadata.get("properties", {}).get(DELETE_AFTER_COMMIT, "").lower() != "true":
        return
    with suppress(Exception):  # what came before is done, whatever becomes of these
        with services.database.reading() as cursor:
            paths = reader.outdated_metadata(cursor, row)
        if paths:
            _delete(services, row.table_id, paths)


def _delete(services: Services, table_id: int, paths: Sequence[str]) -> None:
    for path in paths:
        services.store.delete(path)
    with services.database.transaction() as cursor:
        reader.forget_metadata(cursor, table_id, paths)
