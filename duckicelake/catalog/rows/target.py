"""A table that rows are posted to."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from sys import maxsize

from duckicelake.bridge.constraints.properties import Constraint, constraints_of, texts_of
from duckicelake.bridge.stats import widen
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.model import ColumnStats, Extent
from duckicelake.lake.rows.batches import InsertTarget
from duckicelake.rows.layout import Layout


@dataclass(frozen=True, slots=True)
class RowTarget:
    """A table that rows are posted to. metadata: as of when its columns and constraints were read.

    The rest of it may be older. schema: of the columns as they are. folder: where DuckLake keeps the table's files.
    """

    lake: InsertTarget
    layout: Layout
    metadata: TableMetadata
    schema: Schema
    folder: str
    leaves: Mapping[int, PrimitiveType]

    @property
    def is_constrained(self) -> bool:
        """Whether rows must keep more than their columns' types, so that reading them takes longer."""
        return bool(texts_of(self.metadata.properties))

    @property
    def constraints(self) -> tuple[Constraint, ...]:
        """What rows must keep; InvalidRequest if one can't be checked any more."""
        return constraints_of(self.metadata.properties, self.schema)

    def widen(
        self, existing: Mapping[int, ColumnStats] | None, batches: Sequence[Iterable[ColumnStats | Extent]]
    ) -> dict[int, ColumnStats | None]:
        """Table-wide statistics after rows with these, which are exact."""
        return widen(existing, batches, self.leaves, maxsize)
