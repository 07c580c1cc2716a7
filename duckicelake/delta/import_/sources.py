"""SQL of imported Delta tables: their positions, and which of them only Delta's writers may write."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from duckicelake.lake.conflicts import StaleBaseError
from duckicelake.lake.ducklake.snapshots import LOCK_KEY
from duckicelake.postgres.queries import Transaction, load_queries

_SQL = load_queries("delta.import_", "sources")
FOLLOWER_KEY: Final = LOCK_KEY + 3


@dataclass(frozen=True, slots=True)
class DeltaPosition:
    """How far a Delta table has come here: `version`, of the table whose metadata has the id.

    digest: SHA-256 of that version's file in the log, in hex; None: not known. state: what the translation of the next
    version must know of the ones before.
    """

    delta_id: str
    version: int
    digest: str | None = None
    state: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class DeltaSource:
    """A live table, and the Delta table whose files it has. root: that one's folder, without a slash at its end.

    error, failed_at: why its next version can't be had, and since when that is known.
    """

    table_id: int
    schema_name: str
    table_name: str
    root: str
    position: DeltaPosition
    following: bool
    error: str | None = None
    failed_at: datetime | None = None

    @property
    def name(self) -> str:
        """As DuckLake has it."""
        return f"{self.schema_name}.{self.table_name}"


def record_source(cursor: Transaction, table_id: int, root: str, position: DeltaPosition, *, following: bool) -> None:
    """Note in the transaction that makes a table, as its last step, which Delta table it is of.

    following: from then on no other writer may write it.
    """
    parameters = {"table_id": table_id, "root": root.rstrip("/"), "following": following, **_build_columns(position)}
    cursor.execute(_SQL.record, parameters)


def read_sources(cursor: Transaction, name: str | None = None, *, followed: bool = False) -> list[DeltaSource]:
    """Return those of all live tables, by name.

    Or of those followed; or of the one that is called so, `namespace.table`.

    Only that one comes with the state: of many it is much to read, and they are read all the time.
    """
    schema, _, table = (name or "").rpartition(".")
    parameters = {"schema_name": schema, "table_name": None if name is None else table, "followed": followed}
    return [_read_source(*row) for row in cursor.execute(_SQL.sources, parameters).fetchall()]


def _read_source(
    table_id: int, schema: str, table: str, root: str, delta_id: str, version: int, digest: str | None, *more: Any
) -> DeltaSource:
    following, state, *seen = more
    return DeltaSource(table_id, schema, table, root, DeltaPosition(delta_id, version, digest, state), following, *seen)


def move_position(cursor: Transaction, source: DeltaSource, position: DeltaPosition) -> None:
    """Note the version that the transaction brings, as its last step.

    StaleBaseError if another transaction has brought it, or the table was taken over, since the source was read.
    """
    before = {"table_id": source.table_id, "before": source.position.version, "following": source.following}
    if not cursor.execute(_SQL.move, {**_build_columns(position), **before}).rowcount:
        raise StaleBaseError(
            f"version {source.position.version + 1} of {source.root} is there, or {source.name} was adopted"
        )


def is_redefined(cursor: Transaction, source: DeltaSource) -> bool:
    """Return whether the table's definition was changed since its version came, as far as that was caught up with."""
    return cursor.execute(_SQL.is_redefined, {"table_id": source.table_id}).fetchone() == (True,)


def record_failure(cursor: Transaction, source: DeltaSource, error: str) -> bool:
    """Note why the next version can't be had, as far as Postgres keeps such a text; False if that is known already."""
    kept = error.replace("\0", "\ufffd").encode(errors="replace").decode()
    parameters = {"table_id": source.table_id, "version": source.position.version, "error": kept}
    return bool(cursor.execute(_SQL.fail, parameters).rowcount)


def clear_failure(cursor: Transaction, source: DeltaSource) -> None:
    """Note that nothing is wrong any more."""
    cursor.execute(_SQL.recover, {"table_id": source.table_id})


def end_following(cursor: Transaction, table_id: int) -> bool:
    """Let everybody write the table from now on; False if it isn't followed."""
    return bool(cursor.execute(_SQL.adopt, {"table_id": table_id}).rowcount)


def is_follower_free(cursor: Transaction) -> bool:
    """Return whether no process follows Delta tables at this moment."""
    return cursor.execute(_SQL.is_free, {"key": FOLLOWER_KEY}).fetchone() == (True,)


def take_lead(cursor: Transaction) -> bool:
    """Be the one that follows Delta tables for as long as the session lasts; False if another is."""
    return cursor.execute(_SQL.lead, {"key": FOLLOWER_KEY}).fetchone() == (True,)


def _build_columns(position: DeltaPosition) -> dict[str, Any]:
    return {
        "delta_id": position.delta_id,
        "version": position.version,
        "digest": position.digest,
        "state": dict(position.state or {}),
    }
