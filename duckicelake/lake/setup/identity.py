"""What a lake says of itself in `duckicelake_lake`: its identity, its limits, the folders and servers that use it."""

import json
import os
import socket
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Final
from uuid import UUID

from psycopg.errors import UndefinedColumn

from duckicelake.errors import ConflictError, InvalidRequestError, InvalidSettingsError
from duckicelake.lake.ducklake.snapshots import LOCK_KEY
from duckicelake.postgres.database import Database
from duckicelake.postgres.queries import Transaction, load_queries

SEEN_SECONDS: Final = 90.0
"""A server that wasn't seen for so long has ended."""
SERVERS_KEY: Final = LOCK_KEY + 6
MAX_TABLES: Final = "max-tables"
MAX_NAMESPACES: Final = "max-namespaces"
DROP_RETENTION: Final = "drop-retention-seconds"
"""Limits of a lake, as options of its warehouse: how many tables and namespaces, how long what is dropped stays."""
_SQL = load_queries("lake", "identity")


@dataclass(frozen=True, slots=True)
class LakeIdentity:
    """What distinguishes one lake from all others, copies of it included.

    lake_id is the same in a restored copy, which is in another database or another cluster: `system` is the cluster's
    identifier, empty where Postgres doesn't show it.
    """

    lake_id: str
    database: str
    schema: str
    system: str

    def is_same(self, other: "LakeIdentity") -> bool:
        """Return whether both are one lake; an unknown cluster equals any."""
        is_cluster_same = "" in (self.system, other.system) or self.system == other.system
        mine, others = (self.lake_id, self.database, self.schema), (other.lake_id, other.database, other.schema)
        return mine == others and is_cluster_same

    def __str__(self) -> str:
        cluster = f" of the Postgres cluster {self.system}" if self.system else ""
        return f"lake {self.lake_id} (database {self.database}, schema {self.schema}{cluster})"

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()


@dataclass(frozen=True, slots=True)
class LakeRecord:
    """A lake with what its servers have recorded. warehouse: canonical; None before any did."""

    identity: LakeIdentity
    warehouse: str | None
    marked: frozenset[str]


def parse_identity(data: bytes) -> LakeIdentity:
    """Read `Identity.to_json`; raise InvalidRequestError for anything else."""
    try:
        parsed = json.loads(data)
        return LakeIdentity(**{field.name: str(parsed[field.name]) for field in fields(LakeIdentity)})
    except (ValueError, KeyError, TypeError) as error:
        raise InvalidRequestError(f"a lake's marker can't be read: {data[:200]!r}") from error


def read_lake(database: Database) -> LakeRecord:
    """Read the identity of the lake in this database."""
    with database.reading() as cursor:
        lake_id, name, schema, warehouse, marked = cursor.execute(_SQL.lake).fetchall()[0]
    return LakeRecord(
        LakeIdentity(lake_id, name, schema, _read_system_identifier(database)), warehouse, frozenset(marked)
    )


def is_of_schema(database: Database, identity: LakeIdentity, schema: str) -> bool:
    """Return whether a lake is, or was, in a schema of this database."""
    with database.statement() as cursor:
        ((name,),) = cursor.execute(_SQL.database_name).fetchall()
    is_here = (identity.database, identity.schema) == (name, schema)
    return is_here and identity.system in ("", _read_system_identifier(database))


def record_warehouse(cursor: Transaction, warehouse: str) -> None:
    """Note the canonical warehouse that all servers of the lake have."""
    cursor.execute(_SQL.record_warehouse, {"warehouse": warehouse})


def record_marked_folders(cursor: Transaction, folders: Sequence[str]) -> None:
    """Note the canonical folders that hold the lake's marker."""
    cursor.execute(_SQL.record_marked, {"folders": list(folders)})


class RunningServer:
    """A process that serves a lake; settings: those that all servers of the lake must share."""

    def __init__(self, server_id: UUID, settings: Mapping[str, str]) -> None:
        self._id = server_id
        self._settings = settings
        self._place = {"host": socket.gethostname(), "process": os.getpid()}

    def check(self, cursor: Transaction) -> None:
        """Raise InvalidSettingsError if another server runs with other settings; a registration waits for this one."""
        cursor.execute(_SQL.lock_servers, {"key": SERVERS_KEY})
        for server_id, host, process, settings, age in cursor.execute(
            _SQL.servers, {"seconds": SEEN_SECONDS}
        ).fetchall():
            if server_id == self._id or self._has_ended(host, process):
                continue
            for name, value in self._settings.items():
                if settings.get(name, value) != value:
                    raise InvalidSettingsError(
                        f"another server of this lake (process {process} on {host}, seen {age:.0f} s ago) has {name} "
                        f"{settings[name]!r}, and this one has {value!r}: give both the same, or stop the other first"
                    )

    def register(self, cursor: Transaction) -> None:
        """Do as `check`, and note that this server runs."""
        self.check(cursor)
        parameters = {"server_id": self._id, "settings": dict(self._settings), "seconds": SEEN_SECONDS, **self._place}
        cursor.execute(_SQL.see_server, parameters)

    def forget(self, cursor: Transaction) -> None:
        """Note that this server has ended."""
        cursor.execute(_SQL.forget_server, {"server_id": self._id})

    def has_others(self, cursor: Transaction) -> bool:
        """Return whether another server of the lake runs, as far as is known."""
        found = cursor.execute(_SQL.servers, {"seconds": SEEN_SECONDS}).fetchall()
        return any(server_id != self._id and not self._is_gone(host, pid) for server_id, host, pid, *_ in found)

    def _is_gone(self, host: str, process: int) -> bool:
        is_own = host == self._place["host"] and process == self._place["process"]
        return not is_own and self._has_ended(host, process)

    def _has_ended(self, host: str, process: int) -> bool:
        """Return whether that is a process of this machine that has ended, or one whose pid this process has now."""
        if host != self._place["host"]:
            return False
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            return False
        return process == self._place["process"]


def _read_system_identifier(database: Database) -> str:
    """Read the cluster's identifier; empty where a service that speaks Postgres's protocol hides it."""
    with database.statement() as cursor:
        if not cursor.execute(_SQL.shows_identifier).fetchall()[0][0]:
            return ""
        return str(cursor.execute(_SQL.system_identifier).fetchall()[0][0])


def read_limits(cursor: Transaction) -> dict[str, str]:
    """Read the limits that there are, by their names as options."""
    ((tables, namespaces, seconds),) = cursor.execute(_SQL.limits).fetchall()
    retention = f"{float(seconds):.6f}".rstrip("0").rstrip(".")
    found = {MAX_TABLES: tables, MAX_NAMESPACES: namespaces, DROP_RETENTION: retention}
    return {name: value for name, value in found.items() if value is not None}


def change_limits(cursor: Transaction, changes: Mapping[str, str | None]) -> None:
    """Change limits; ConflictError for a lake of an older version.

    None: any number of tables or namespaces, and the retention of a new lake.
    """
    if changes:
        parameters = {
            "has_tables": MAX_TABLES in changes,
            "max_tables": changes.get(MAX_TABLES),
            "has_namespaces": MAX_NAMESPACES in changes,
            "max_namespaces": changes.get(MAX_NAMESPACES),
            "has_retention": DROP_RETENTION in changes,
            "retention": changes.get(DROP_RETENTION),
        }
        try:
            cursor.execute(_SQL.change_limits, parameters)
        except UndefinedColumn as error:
            raise ConflictError("An older version prepared this lake: let a server open the warehouse first") from error
