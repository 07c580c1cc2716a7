"""PURE. Which appends of Iceberg clients become inlined rows: those of few rows, to tables that want that.

The client's files then serve the rows, as the server's own do that it writes of inlined rows (design §6.16).
"""

from dataclasses import dataclass

from duckicelake.bridge.realise import AnyFile
from duckicelake.lake.additions import InlinedInto
from duckicelake.lake.model import ColumnStats


@dataclass(frozen=True, slots=True)
class AbsorbedFile:
    """A file whose rows are inlined: the values of each column, packed, and their exact statistics."""

    file: AnyFile
    values: tuple[str, ...]
    stats: tuple[ColumnStats, ...]


@dataclass(frozen=True, slots=True)
class Absorbed:
    """The files of one snapshot that are inlined, and where."""

    into: InlinedInto
    files: tuple[AbsorbedFile, ...]
