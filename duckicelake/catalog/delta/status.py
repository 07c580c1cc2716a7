"""How far tables are that were imported from Delta, beside how far the Delta tables are."""

from dataclasses import dataclass

from duckicelake.catalog.delta.adoption import find_source
from duckicelake.catalog.services import Services
from duckicelake.delta.log import DeltaLog
from duckicelake.errors import CatalogError
from duckicelake.lake import delta_sources
from duckicelake.lake.delta_sources import Source
from duckicelake.storage.parallel import in_parallel


@dataclass(frozen=True, slots=True)
class Status:
    """newest: the Delta table's version. problem: why that isn't known, or why what comes next can't be had."""

    source: Source
    newest: int | None
    problem: str | None

    @property
    def behind(self) -> int:
        """How many versions the Delta table is ahead, as far as that is known."""
        return 0 if self.newest is None else self.newest - self.source.position.version


def statuses(services: Services, name: str | None = None) -> list[Status]:
    """Those of all tables, or of one; their logs are listed now. NoSuchTable."""
    if name is not None:
        return [_status(services, find_source(services, name))]
    with services.database.reading() as cursor:
        found = delta_sources.sources(cursor)
    return in_parallel(lambda source: _status(services, source), found)


def _status(services: Services, source: Source) -> Status:
    try:
        newest = DeltaLog(services.store, source.root).newest()
    except CatalogError as error:
        return Status(source, None, str(error))
    return Status(source, newest, source.error)
