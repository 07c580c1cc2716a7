"""The manifests that a commit builds on, with the live files of those that it rewrites or packs."""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import replace

from duckicelake.bridge.manifest_packing import Packing
from duckicelake.bridge.manifests import ListedManifest, must_load
from duckicelake.lake import reader
from duckicelake.lake.postgres.database import Database
from duckicelake.lake.state import ManifestRow


def listed_manifests(
    database: Database,
    rows: Iterable[ManifestRow],
    removed: AbstractSet[int],
    format_version: int,
    packing: Packing,
) -> tuple[ListedManifest, ...]:
    """Manifests as they are listed; those that a next list of this format version rewrites with their live files."""
    bare = [ListedManifest.of(row) for row in rows]
    wanted = must_load(bare, format_version, packing)
    if not (wanted or removed):
        return tuple(bare)
    with database.reading() as cursor:
        found = reader.live_among(cursor, [each.manifest_id for each in bare], removed) if removed else ()
        wanted |= {manifest_id for manifest_id, _ in found}
        live: dict[int, dict[int, int]] = {manifest_id: {} for manifest_id in wanted}
        for file in reader.live_files(cursor, sorted(wanted)) if wanted else ():
            live[file.manifest_id][file.file_id] = file.sequence_number
    return tuple(replace(manifest, live=live.get(manifest.manifest_id)) for manifest in bare)
