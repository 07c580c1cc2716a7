"""Tables that follow a Delta table, which only that one's writers may write."""

from duckicelake.catalog.context.services import Services
from duckicelake.errors import FeatureUnavailableError, ReadOnlyTable
from duckicelake.features.registry import is_installed
from duckicelake.lake.writer.followed import check_writable
from duckicelake.postgres.queries import Transaction


def check_followed(services: Services, name: str, table_id: int) -> None:
    """FeatureUnavailableError for a followed table where Delta isn't installed; else the commit itself refuses it.

    name: the table's full name.
    """
    if not is_installed("delta"):
        with services.database.reading() as cursor:
            check_not_followed(cursor, name, table_id)


def check_not_followed(cursor: Transaction, name: str, table_id: int) -> None:
    """ReadOnlyTable for a followed table, FeatureUnavailableError where Delta isn't installed."""
    try:
        check_writable(cursor, table_id)
    except ReadOnlyTable as error:
        if is_installed("delta"):
            raise
        raise FeatureUnavailableError(
            f"Table {name} uses delta (it follows a Delta table), which this server runs without: "
            f"install duckicelake with delta, or write the Delta table. {error}"
        ) from error
