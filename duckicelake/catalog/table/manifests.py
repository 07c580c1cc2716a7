"""Read the manifests that a version builds on, and rewrite those with broken metrics."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Final

from duckicelake.bridge.artifacts import ManifestRenewal, get_definitions, sort_manifests
from duckicelake.bridge.data_files import CONTRACT_VERSION
from duckicelake.bridge.manifest_lists import ListedManifest, ManifestPacking, find_manifests_to_load
from duckicelake.bridge.project import apply_definitions
from duckicelake.catalog.context.services import Services
from duckicelake.iceberg.manifest.entry import FileContent
from duckicelake.lake.side_tables import reader, written_files
from duckicelake.lake.state import ManifestRow, TableRow
from duckicelake.postgres.database import Database, Transaction

MAX_FILES: Final = 10_000
"""Files whose metrics are looked at in one transaction, but those of one manifest at least."""


def read_listed_manifests(
    database: Database,
    rows: Iterable[ManifestRow],
    removed: AbstractSet[int],
    format_version: int,
    packing: ManifestPacking,
) -> tuple[ListedManifest, ...]:
    """Manifests as they are listed; those that a next list of this format version rewrites with their live files."""
    bare = [ListedManifest.from_row(row) for row in rows]
    wanted = find_manifests_to_load(bare, format_version, packing)
    if not (wanted or removed):
        return tuple(bare)
    with database.reading() as cursor:
        found = reader.find_live_among(cursor, [manifest.manifest_id for manifest in bare], removed) if removed else ()
        wanted |= {manifest_id for manifest_id, _ in found}
        live: dict[int, dict[int, int]] = {manifest_id: {} for manifest_id in wanted}
        for file in reader.read_live_files(cursor, sorted(wanted)) if wanted else ():
            live[file.manifest_id][file.file_id] = file.sequence_number
    return tuple(replace(manifest, live=live.get(manifest.manifest_id)) for manifest in bare)


def renew_some(services: Services, row: TableRow) -> None:
    """Check some manifests of an older contract; nothing happens if the table has changed meanwhile.

    If one breaks the contract, the table gets a new version: all its listed snapshots are then served with new
    manifests, and what was written before is named by nothing any more.
    """
    definitions = get_definitions(apply_definitions(row, None))
    with services.database.reading() as cursor:
        manifest_ids = written_files.find_unchecked_manifests(cursor, row.table_id, MAX_FILES)
        manifests = reader.read_manifests(cursor, manifest_ids)
        entries = reader.read_manifest_entries(cursor, manifest_ids)
        files = [file for found in entries.values() for _, file in found if file.content == FileContent.DATA]
        known = written_files.read_known_columns(
            cursor, {file.ducklake_id for file in files if file.ducklake_id is not None}
        )
    found = sort_manifests(manifests, entries, definitions, known)
    with services.database.transaction() as cursor:
        if written_files.is_at_version(cursor, row.table_id, row.version):
            _write(cursor, row.table_id, found, [id_ for id_ in manifest_ids if id_ not in manifests])


def _write(cursor: Transaction, table_id: int, found: ManifestRenewal, unlisted: list[int]) -> None:
    """Record renewed manifests. Unlisted ones have no row any more and are never read."""
    if found.metrics:
        written_files.replace_metrics(cursor, table_id, found.metrics)
    written_files.mark_contract(cursor, table_id, [*found.kept, *unlisted], CONTRACT_VERSION)
    if found.forgotten:
        written_files.forget_manifests(cursor, table_id, found.forgotten)
