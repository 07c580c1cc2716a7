"""Letting go of files that no listed snapshot needs: they go with DuckDB's next cleanup."""

from duckicelake.catalog.services import Services
from duckicelake.lake import writer
from duckicelake.lake.snapshots import retrying


def release_files(services: Services, table_id: int) -> int:
    """Release what snapshots that left history held; the number of files scheduled for deletion.

    Runs after the commit that removed them; if it never does, the files stay and the next release takes them.
    """

    def attempt() -> int:
        with services.database.transaction() as cursor:
            return writer.release(cursor, table_id)

    return retrying(attempt)
