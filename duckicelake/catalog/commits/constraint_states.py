"""What is known of a table's constraints, and the note that somebody has verified some."""

from collections.abc import Collection
from dataclasses import dataclass

from duckicelake.bridge.constraints.properties import UNVERIFIED, checkable, texts_of, unverified_since
from duckicelake.bridge.constraints.sql import condition_sql
from duckicelake.catalog.commits.attempts import TableCommit
from duckicelake.catalog.commits.committing import commit
from duckicelake.catalog.loads.loading import current_table
from duckicelake.catalog.services import Services
from duckicelake.iceberg.names import Namespace, schema_name
from duckicelake.iceberg.requirements import AssertRefSnapshotId, AssertTableUuid
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.snapshot import MAIN
from duckicelake.iceberg.updates import RemoveProperties


@dataclass(frozen=True, slots=True)
class ConstraintState:
    """A constraint: the snapshot since which rows may violate it, None if none does; why it can't be checked, if so.

    sql: the condition in DuckDB's words, over a relation `r`; None if it can't be checked.
    """

    name: str
    text: str
    unverified_since: str | None
    problem: str | None
    sql: str | None


@dataclass(frozen=True, slots=True)
class TableConstraints:
    """A table's constraints as of a snapshot of main, None if it has none; `lake_version` is DuckLake's then.

    lake_name: DuckLake's names for its schema and the table.
    """

    table_uuid: str
    lake_name: tuple[str, str]
    snapshot_id: int | None
    lake_version: int
    states: tuple[ConstraintState, ...]


def table_constraints(services: Services, namespace: Namespace, name: str) -> TableConstraints:
    """The constraints of a table, with all that DuckDB has done to it; NoSuchTable."""
    cached = current_table(services, namespace, name)
    metadata = cached.materialized.metadata
    found, broken = checkable(metadata.properties, metadata.schema())
    sql, since = {each.name: condition_sql(each.condition) for each in found}, unverified_since(metadata.properties)
    states = tuple(
        ConstraintState(each, text, since.get(each), broken.get(each), sql.get(each))
        for each, text in texts_of(metadata.properties).items()
    )
    lake_version = max(cached.checked_upto, cached.materialized.row.caught_up_to)
    lake_name = schema_name(namespace), name
    return TableConstraints(metadata.table_uuid, lake_name, metadata.current_snapshot_id, lake_version, states)


def note_verified(
    services: Services, namespace: Namespace, name: str, found: TableConstraints, names: Collection[str]
) -> None:
    """Note that all rows keep these constraints; CommitFailed if the table has changed since they were looked at."""
    request = CommitTableRequest(
        requirements=(
            AssertTableUuid(uuid=found.table_uuid),
            AssertRefSnapshotId(ref=MAIN, snapshot_id=found.snapshot_id),
        ),
        updates=(RemoveProperties(removals=tuple(f"{UNVERIFIED}{each}" for each in names)),),
    )
    commit(services, TableCommit(namespace, name, request))
