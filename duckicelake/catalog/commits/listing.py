"""The manifests that a commit builds on, with the live files of those that it rewrites or packs."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from duckicelake.bridge.manifests import ListedManifest, must_load
from duckicelake.lake import reader
from duckicelake.lake.postgres.database import Transaction


def listed_manifests(
    cursor: Transaction, manifest_ids: Sequence[int], removed: AbstractSet[int], format_version: int
) -> tuple[ListedManifest, ...]:
    """Manifests in list order; those that a next list of this format version rewrites come with their live files."""
    rows = reader.manifests(cursor, manifest_ids)
    bare = [
        ListedManifest(row.manifest_id, row.content, row.spec_id, row.live_files, row.format_version)
        for row in (rows[manifest_id] for manifest_id in manifest_ids)
    ]
    found = reader.live_among(cursor, manifest_ids, removed) if removed else ()
    wanted = must_load(bare, format_version).union(manifest_id for manifest_id, _ in found)
    live: dict[int, dict[int, int]] = {manifest_id: {} for manifest_id in wanted}
    for file in reader.live_files(cursor, sorted(wanted)) if wanted else ():
        live[file.manifest_id][file.file_id] = file.sequence_number
    return tuple(replace(manifest, live=live.get(manifest.manifest_id)) for manifest in bare)
