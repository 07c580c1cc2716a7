"""PURE. The actions of a Delta log as values, and the table features that this package reads (protocol, "Actions")."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal, NamedTuple

from duckicelake.errors import UnsupportedError

NOTHING: Final[Mapping[str, str | None]] = {}
"""The usual partition values and tags of a file, shared by all files."""
MAX_READER_VERSION: Final = 3
"""The newest reader version, from which on features are listed by name."""
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
    """The place of a data file's deleted positions: a file of the table (`u`), any file (`p`), or inline (`i`)."""

    storage: Literal["u", "p", "i"]
    path_or_inline: str
    size_in_bytes: int
    cardinality: int
    offset: int | None = None

    @property
    def unique_id(self) -> str:
        """Return the vector's identity among those of the same data file."""
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage}{self.path_or_inline}{suffix}"


class FileKey(NamedTuple):
    """The identity of a logical file: its path, and its deletion vector's unique id."""

    path: str
    vector_id: str | None


class AddFile(NamedTuple):
    """A data file that joins the table. stats: the log's JSON text, None without one."""

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
        """The key by which a later `remove` names the file."""
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
        """The key of the `add`."""
        return FileKey(self.path, None if self.deletion_vector is None else self.deletion_vector.unique_id)


@dataclass(frozen=True)
class Metadata:
    """A table's `metaData`. schema_string: Delta's schema as JSON, with the partition columns."""

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
        """How files name columns: by name, by physical name, or by field id."""
        mode = self.configuration.get("delta.columnMapping.mode", "none")
        return mode if mode in ("name", "id") else "none"  # type: ignore[return-value]


@dataclass(frozen=True, slots=True)
class Protocol:
    """Requirements on readers and writers. Features are None before reader 3, writer 7."""

    min_reader_version: int
    min_writer_version: int
    reader_features: frozenset[str] | None = None
    writer_features: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Txn:
    """The last version of an application's writes."""

    app_id: str
    version: int
    last_updated_ms: int | None = None


@dataclass(frozen=True, slots=True)
class DomainMetadata:
    """A feature's own data about the table. configuration: its text."""

    domain: str
    configuration: str
    removed: bool


@dataclass(frozen=True, slots=True)
class DeltaCommit:
    """A version, from its log file. timestamp_ms: in-commit timestamp, else the file's time, always increasing.

    info: the `commitInfo`, empty if the log has none.
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
        """Delta's name of the commit, as `WRITE` or `MERGE`."""
        found = self.info.get("operation")
        return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True)
class DeltaSnapshot:
    """A table at a version: its live files by key, and the newest of everything else."""

    version: int
    timestamp_ms: int
    protocol: Protocol
    metadata: Metadata
    files: Mapping[FileKey, AddFile]
    txns: Mapping[str, Txn] = field(default_factory=dict)
    domains: Mapping[str, DomainMetadata] = field(default_factory=dict)


def check_readable(protocol: Protocol, root: str, version: int) -> None:
    """Raise UnsupportedError if the table needs a reader version or features that this package lacks; it names them."""
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
