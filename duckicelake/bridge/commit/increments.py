"""PURE. A commit before it becomes rows: its base, its new snapshots, and the updates of main."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.lake.additions import InlinedInto, NewDeleteFile, SideFiles
from duckicelake.lake.model import ColumnStats, InlinedKey, NameMap, PartitionKey
from duckicelake.lake.state import FileRow, PackedStats


@dataclass(frozen=True, slots=True)
class AbsorbedFile:
    """A file whose rows are inlined: the values of each column, packed, and their exact statistics."""

    file: FileRow
    values: tuple[str, ...]
    stats: tuple[ColumnStats, ...]


@dataclass(frozen=True, slots=True)
class Absorbed:
    """The files of one snapshot that are inlined, and where."""

    into: InlinedInto
    files: tuple[AbsorbedFile, ...]


@dataclass(frozen=True, slots=True)
class Base:
    """The state a commit is computed from; `metadata` is None for a table to be created.

    `declared` are DuckLake's partition keys, `narrow` its types of columns that are wider in Iceberg, `stats` its
    (record count, next row id, size in bytes), and `holds_files` says whether main has data files. `row_ids` are
    (file id, first row id) of files that get theirs with this commit. has_epoch_keys: whether the lake takes `epoch_*`
    partition keys. has_new_values: whether files may bring values that the table doesn't have, unlike a rewrite's.
    """

    table_id: int | None = None
    version: int = 0
    caught_up_to: int = 0
    metadata: TableMetadata | None = None
    declared: tuple[PartitionKey, ...] = ()
    narrow: Mapping[int, str] = field(default_factory=dict)
    holds_files: bool = False
    stats: tuple[int, int, int] | None = None
    column_stats: Mapping[int, ColumnStats] = field(default_factory=dict)
    row_ids: tuple[tuple[int, int], ...] = ()
    has_epoch_keys: bool = False
    has_new_values: bool = True


@dataclass(frozen=True, slots=True)
class LakeCopy:
    """A file that DuckLake has in the place of one of Iceberg's; `path` is relative to the table's DuckLake folder.

    path_is_relative: or else it is absolute, in another table's.
    """

    file_id: int
    path: str
    file_size_bytes: int
    path_is_relative: bool = True


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """Registered files as DuckLake's rows have them, by file id: they needn't be made of what Iceberg knows of them.

    widening: what all of these hold together by column, exactly; with None the column loses its table-wide row, and
    one that isn't in it keeps what it has.
    """

    stats: Mapping[int, PackedStats]
    partition_values: Mapping[int, tuple[str | None, ...] | None]
    widening: Mapping[int, ColumnStats | None]


@dataclass(frozen=True, slots=True)
class MainUpdate:
    """Main's move as DuckLake makes it, what is DuckLake's alone written; `rewrites` if it shows the same rows.

    `name_maps` are by file id. known: of all registered files or none. least_row_id: above all that their rows hold.
    """

    ended_files: tuple[int, ...] = ()
    ended_rows: tuple[InlinedKey, ...] = ()
    registered: tuple[FileRow, ...] = ()
    copies: tuple[LakeCopy, ...] = ()
    name_maps: Mapping[int, NameMap] = field(default_factory=dict)
    delete_files: tuple[NewDeleteFile, ...] = ()
    absorbed: Absorbed | None = None
    rewrites: bool = False
    known: KnownFiles | None = None
    least_row_id: int = 0


@dataclass(frozen=True, slots=True)
class NewList:
    """A new snapshot, with the manifests that it lists."""

    snapshot: Snapshot
    manifest_ids: tuple[int, ...]
    proposed_id: int | None = None


@dataclass(frozen=True, slots=True)
class Increment:
    """One step of a commit: snapshots with the rows that they bring, and main's move, None where it stays.

    `ducklake_id` is the DuckLake snapshot that the step must become, None: any. If it `redefines` the table, rows that
    were prepared for what it was are prepared anew.
    """

    snapshots: tuple[NewList, ...] = ()
    side: SideFiles = field(default_factory=SideFiles)
    move: MainUpdate | None = None
    ducklake_id: int | None = None
    redefines: bool = False
