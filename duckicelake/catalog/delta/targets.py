"""The table that gets a Delta table's versions, and how changes of it are written one after the other."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from duckicelake.bridge.delta.tables import DeltaState
from duckicelake.bridge.increments import Base
from duckicelake.catalog.commits.workspace import Listed
from duckicelake.catalog.services import Services
from duckicelake.iceberg.metadata import ROW_LINEAGE_VERSION, TableMetadata
from duckicelake.lake.changes import ChangeSet, Creation, Written
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.writing import writer


@dataclass(frozen=True, slots=True)
class DeltaTarget:
    """The table that gets versions. metadata: as it is; creation: of one that isn't there yet.

    next_id: the DuckLake snapshot that the first version becomes, where Iceberg's numbers say it. copies: DuckLake may
    get copies of files.
    """

    table: int | Creation
    base: Base
    metadata: TableMetadata
    state: DeltaState
    listed: Listed = ()
    next_id: int | None = None
    copies: bool = False

    @property
    def creation(self) -> Creation | None:
        return self.table if isinstance(self.table, Creation) else None


def numbers_are_shared(services: Services, metadata: TableMetadata) -> bool:
    """Whether Iceberg's numbers say which DuckLake snapshot a version becomes."""
    return services.snapshot_ids == "ducklake" or metadata.format_version >= ROW_LINEAGE_VERSION


def write_all(cursor: Transaction, changes: Iterable[ChangeSet]) -> Written:
    """Write changes of one table, each over what the one before left; there is at least one. StaleBase."""
    written: Written | None = None
    for change in changes:
        following = change
        if written is not None:
            version = 0 if written.change.table_id is None else written.change.base_version + 1
            following = replace(
                change, table_id=written.table_id, base_version=version, caught_up_to=written.caught_up_to
            )
        written = writer.write(cursor, following)
    assert written is not None
    return written
