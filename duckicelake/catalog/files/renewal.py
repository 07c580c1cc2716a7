"""Has manifests written anew that were written before their metrics had a contract and break it (docs/metrics.md).

The rows of files are completed with what DuckLake knows. A table whose manifests are all right stays as it is.
"""

from typing import Final

from duckicelake.bridge.artifacts import definitions_of
from duckicelake.bridge.contract import CONTRACT
from duckicelake.bridge.project import defined
from duckicelake.bridge.renewal import Renewal, renewal
from duckicelake.catalog.services import Services
from duckicelake.iceberg.manifest import FileContent
from duckicelake.lake import contract, reader
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lake.state import TableRow

MAX_FILES: Final = 10_000
"""Files whose metrics are looked at in one transaction, but those of one manifest at least."""


def renew_some(services: Services, row: TableRow) -> None:
    """Check some manifests of an older contract; nothing happens if the table has changed meanwhile.

    If one breaks the contract, the table gets a new version: all its listed snapshots are then served with new
    manifests, and what was written before is named by nothing any more.
    """
    definitions = definitions_of(defined(row, None))
    with services.database.reading() as cursor:
        manifest_ids = contract.unchecked(cursor, row.table_id, MAX_FILES)
        manifests = reader.manifests(cursor, manifest_ids)
        entries = reader.entries(cursor, manifest_ids)
        files = [file for found in entries.values() for _, file in found if file.content == FileContent.DATA]
        known = contract.known_of(cursor, {file.ducklake_id for file in files if file.ducklake_id is not None})
    found = renewal(manifests, entries, definitions, known)
    with services.database.transaction() as cursor:
        if contract.is_at(cursor, row.table_id, row.version):
            _write(cursor, row.table_id, found, [id_ for id_ in manifest_ids if id_ not in manifests])


def _write(cursor: Transaction, table_id: int, found: Renewal, unlisted: list[int]) -> None:
    """Write down what becomes of manifests; unlisted ones have no row any more, and nobody will read them."""
    if found.metrics:
        contract.set_metrics(cursor, table_id, found.metrics)
    contract.keep(cursor, table_id, [*found.kept, *unlisted], CONTRACT)
    if found.forgotten:
        contract.forget(cursor, table_id, found.forgotten)
