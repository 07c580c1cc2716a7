"""Tables that rows are posted to, kept between posts."""

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from sys import maxsize
from threading import Lock
from typing import TYPE_CHECKING, Final

from duckicelake.bridge.values.statistics import widen_table_stats
from duckicelake.catalog.context.combiner import CombiningQueues
from duckicelake.catalog.context.hooks import build_row_check
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.inlined.batches import InsertTarget
from duckicelake.lake.model import ColumnStats, Extent
from duckicelake.properties import read_constraint_texts

if TYPE_CHECKING:  # pyarrow takes long to import, and commands need no layout
    from duckicelake.rows.layout import Layout
    from duckicelake.rows.row_batch import Batch

MAX_TARGETS: Final = 1024


@dataclass(frozen=True, slots=True)
class RowTarget:
    """A table that rows are posted to. metadata: as of when its columns and constraints were read.

    The rest of it may be older. schema: of the columns as they are. folder: where DuckLake keeps the table's files.
    """

    lake: InsertTarget
    layout: "Layout"
    metadata: TableMetadata
    schema: Schema
    folder: str
    leaves: Mapping[int, PrimitiveType]

    @property
    def is_constrained(self) -> bool:
        """Whether rows must keep more than their columns' types, so that reading them takes longer."""
        return bool(read_constraint_texts(self.metadata.properties))

    def check_rows(self, batch: "Batch") -> None:
        """Check rows by the table's constraints.

        Raises InvalidRequestError naming rows, or a constraint that can't be checked.
        """
        build_row_check(self.metadata.properties, self.schema)(batch)

    def widen(
        self, existing: Mapping[int, ColumnStats] | None, batches: Sequence[Iterable[ColumnStats | Extent]]
    ) -> dict[int, ColumnStats | None]:
        """Return table-wide statistics after rows with these, which are exact."""
        return widen_table_stats(existing, batches, self.leaves, maxsize)


@dataclass(slots=True)
class RowTargets:
    """Those that were used last, by the table's name; safe to share between threads. readers: who makes them known."""

    readers: CombiningQueues = field(default_factory=CombiningQueues)
    _known: OrderedDict[tuple[Namespace, str], "RowTarget"] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def find(self, namespace: Namespace, name: str) -> "RowTarget | None":
        with self._lock:
            found = self._known.get((namespace, name))
            if found is not None:
                self._known.move_to_end((namespace, name))
            return found

    def put(self, namespace: Namespace, name: str, target: "RowTarget") -> None:
        with self._lock:
            self._known[namespace, name] = target
            self._known.move_to_end((namespace, name))
            if len(self._known) > MAX_TARGETS:
                self._known.popitem(last=False)
