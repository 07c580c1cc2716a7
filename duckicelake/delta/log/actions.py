"""PURE. The actions of a Delta log as values, and the table features that this package reads (protocol, "Actions")."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from duckicelake.errors import UnsupportedError

NOTHING: Final[Mapping[str, str | None]] = {}
"""What most files have of partition values and of tags: one for all of them."""
MAX_READER_VERSION: Final = 3
"""The newest reader version; from it on, features say by name what a reader must know."""
READABLE_FEATURES: Final = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantShredding",
        "variantShredding-preview",
        "variantType",
        "variantType-preview",
    }
)
"""The reader features that this package reads the log of; what of their data is taken in, others decide."""


@dataclass(frozen=True, slots=True)
class DeletionVector:
    """Where a data file's deleted positions are: in a file of the table's (`u`), any file (`p`), or inline (`i`)."""

    storage: Literal["u", "p", "i"]
    path_or_inline: str
    size_in_bytes: int
    cardinality: int
    offset: int | None = None

    @property
    def unique_id(self) -> str:
        """Return its identity among vectors of the same data file."""
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage}{self.path_or_inline}{suffix}"


class FileKey(NamedTuple):
    """What a logical file is known by: its path, and its deletion vector's unique id."""

    path: str
    vector_id: str | None


class AddFile(NamedTuple):
    """A data file that joins the table; `stats` is the log's text of JSON, None where it has none."""

    path: str
    partition_values: Mapping[str, str | None]
    size: int
    modification_ms: int
    data_change: bool
    stats: str | None = None
    deletion_vector: DeletionVector | None = None
    base_row_id: int | None = None
    default_row_commit_version: int | None = None
    tags: Mapping[str, str | None] = NOTHING

    @property
    def key(self) -> FileKey:
        """What a later `remove` names it by."""
        return FileKey(self.path, None if self.deletion_vector is None else self.deletion_vector.unique_id)


class RemoveFile(NamedTuple):
    """A data file that leaves the table, a tombstone until it is vacuumed."""

    path: str
    data_change: bool
    deletion_ms: int | None = None
    size: int | None = None
    partition_values: Mapping[str, str | None] | None = None
    deletion_vector: DeletionVector | None = None

    @property
    def key(self) -> FileKey:
        """What the `add` was named by."""
        return FileKey(self.path, None if self.deletion_vector is None else self.deletion_vector.unique_id)


@dataclass(frozen=True)
class Metadata:
    """A table's `metaData`; `schema_string` is Delta's schema as JSON, its columns partly of `partition_columns`."""

    id: str
    schema_string: str
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict)
    name: str | None = None
    description: str | None = None
    created_ms: int | None = None
    format_provider: str = "parquet"

    @cached_property
    def column_mapping(self) -> Literal["none", "name", "id"]:
        """Whether columns go by their names, by physical names or by field ids in the files."""
        mode = self.configuration.get("delta.columnMapping.mode", "none")
        return mode if mode in ("name", "id") else "none"  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Protocol:
    """What a client must know to read the table and to write it; features are None before reader 3, writer 7."""

    min_reader_version: int
    min_writer_version: int
    reader_features: frozenset[str] | None = None
    writer_features: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Txn:
    """How far an application is with its own count of writes."""

    app_id: str
    version: int
    last_updated_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DomainMetadata:
    """What a feature keeps of the table under a name of its own; `configuration` is its text."""

    domain: str
    configuration: str
    removed: bool


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """One version as its log file has it. `timestamp_ms` is the in-commit timestamp, else the file's, never back.

    `info` is the `commitInfo` as JSON has it, empty where the log has none.
    """

    version: int
    timestamp_ms: int
    adds: tuple[AddFile, ...] = ()
    removes: tuple[RemoveFile, ...] = ()
    metadata: Metadata | None = None
    protocol: Protocol | None = None
    txns: tuple[Txn, ...] = ()
    domains: tuple[DomainMetadata, ...] = ()
    info: Mapping[str, Any] = field(default_factory=dict)

    @property
    def operation(self) -> str | None:
        """What Delta calls the commit, as `WRITE` or `MERGE`."""
        found = self.info.get("operation")
        return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True)
class DeltaSnapshot:
    """A table as it is at a version: its live files by key, and the newest of everything else."""

    version: int
    timestamp_ms: int
    protocol: Protocol
    metadata: Metadata
    files: Mapping[FileKey, AddFile]
    txns: Mapping[str, Txn] = field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)


def check_readable(protocol: Protocol, root: str, version: int) -> None:
    """Raise UnsupportedError naming the reader version, or the features, that the table has and this package hasn't."""
    table = f"the Delta table {root} asks of its readers, from version {version} or before,"
    if protocol.min_reader_version > MAX_READER_VERSION:
        raise UnsupportedError(
            "delta-features",
            f"{table} protocol version {protocol.min_reader_version}, "
            f"and {MAX_READER_VERSION} is the newest that is read",
        )
    unknown = sorted((protocol.reader_features or frozenset()) - READABLE_FEATURES)
    if unknown:
        raise UnsupportedError(
            "delta-features",
            f"{table} {' and '.join(unknown)}, which isn't read; what is: {', '.join(sorted(READABLE_FEATURES))}",
        )
