"""What the server answers of operations and of the caller: append, restore, expire, flush, undrop, whoami."""

from dataclasses import dataclass
from datetime import datetime

from duckicelake.client.models import Json, ObjectKind, build_name


@dataclass(frozen=True, slots=True)
class RowIdRange:
    """Row ids that follow each other. first: None if there are none."""

    first: int | None
    count: int


@dataclass(frozen=True, slots=True)
class AppendInfo:
    """Appended rows. snapshot_id: that has them, DuckLake's, or of a branch Iceberg's; None if there were none."""

    snapshot_id: int | None
    rows: int
    row_ids: RowIdRange


@dataclass(frozen=True, slots=True)
class RestoreInfo:
    """What a restore did, or would do. snapshot_id, ducklake_id: those that it made; None if it made none.

    files_added and files_removed count data files.
    """

    restored_from: int
    restored_over: int | None
    snapshot_id: int | None
    ducklake_id: int | None
    files_added: int
    files_removed: int
    rows_added: int
    rows_removed: int
    changes_definition: bool

    @property
    def changes_anything(self) -> bool:
        counts = (self.files_added, self.files_removed, self.rows_added, self.rows_removed)
        return any(counts) or self.changes_definition


@dataclass(frozen=True, slots=True)
class ExpireInfo:
    """How many snapshots left, or would leave, and how many stay. keeps_files: the table says gc.enabled=false.

    refs: branches and tags that left, or would, as they were older than they may be.
    """

    snapshots: int
    left: int
    keeps_files: bool
    refs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FlushInfo:
    """What was flushed to files. snapshot_id: DuckLake's; None if there were no rows."""

    rows: int
    deletes: int
    files: int
    snapshot_id: int | None


@dataclass(frozen=True, slots=True)
class DroppedInfo:
    """A table, view or namespace that can be brought back."""

    kind: ObjectKind
    id: int
    uuid: str
    name: str
    dropped_at: datetime
    kept_until: datetime
    ducklake_snapshot_id: int
    is_purge_requested: bool


@dataclass(frozen=True, slots=True)
class UndropInfo:
    """What came back, in which DuckLake snapshot; a namespace with so many tables and views."""

    kind: ObjectKind
    name: str
    ducklake_snapshot_id: int
    tables: int
    views: int


def parse_restore(answer: Json) -> RestoreInfo:
    """Parse the answer of the route `…/restore`."""
    return RestoreInfo(
        answer["restored-from"],
        answer.get("restored-over"),
        answer.get("snapshot-id"),
        answer.get("ducklake-snapshot-id"),
        answer["files-added"],
        answer["files-removed"],
        answer["rows-added"],
        answer["rows-removed"],
        answer["changes-definition"],
    )


def parse_dropped(item: Json) -> DroppedInfo:
    """Parse an item of the route `/v1/dropped`."""
    return DroppedInfo(
        item["kind"],
        item["id"],
        item["uuid"],
        _name(item),
        datetime.fromisoformat(item["dropped-at"]),
        datetime.fromisoformat(item["kept-until"]),
        item["ducklake-snapshot-id"],
        item["purge-requested"],
    )


def parse_undrop(answer: Json) -> UndropInfo:
    """Parse the answer of the route `…/undrop`."""
    return UndropInfo(answer["kind"], _name(answer), answer["ducklake-snapshot-id"], answer["tables"], answer["views"])


def _name(item: Json) -> str:
    return build_name(tuple(item["namespace"]), *((item["name"],) if item.get("name") else ()))


@dataclass(frozen=True, slots=True)
class CallerInfo:
    """Who the caller is for the server, and what it may do in the warehouse.

    Attributes:
        groups: those of the token, and registered ones.
        actions: privileges on the whole warehouse.
        server_version: None of a server that doesn't say so.

    """

    principal: str
    is_authenticated: bool
    is_admin: bool
    groups: tuple[str, ...]
    roles: tuple[str, ...]
    scopes: tuple[str, ...]
    are_grants_on: bool
    actions: tuple[str, ...]
    server_version: str | None


def parse_caller(answer: Json) -> CallerInfo:
    """Parse the answer of the route `/v1/whoami`."""
    return CallerInfo(
        answer["principal"],
        answer["is-authenticated"],
        answer["is-admin"],
        tuple(answer["groups"]),
        tuple(answer["roles"]),
        tuple(answer["scopes"]),
        answer["grants-on"],
        tuple(answer["actions"]),
        answer.get("server-version"),
    )
