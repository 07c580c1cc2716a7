"""The manifests that a commit builds on, with the live files of those that it rewrites or packs."""

from collections.abc import Iterable, Sequence

from duckicelake.bridge.manifests import ListedManifest, must_load
from duckicelake.lake import reader
from duckicelake.lake.database import Transaction


def listed_manifests(
    cursor: Transaction, manifest_ids: Sequence[int], removed: Iterable[int]
) -> tuple[ListedManifest, ...]:
    """Manifests in list order; those that hold a removed file, or are due to be packed, come with their live files."""
    rows = reader.manifests(cursor, manifest_ids)
    bare = [
        ListedManifest(row.manifest_id, row.content, row.spec_id, row.live_files)
        for row in (rows[manifest_id] for manifest_id in manifest_ids)
    ]
    gone = list(removed)
    wanted = must_load(bare) | (reader.manifests_holding(cursor, manifest_ids, gone) if gone else set())
    live: dict[int, dict[int, int]] = {manifest_id: {} for manifest_id in wanted}
    for file in reader.live_files(cursor, sorted(wanted)) if wanted else ():
        live[file.manifest_id][file.file_id] = file.sequence_number
    return tuple(
        ListedManifest(m.manifest_id, m.content, m.spec_id, m.live_count, live.get(m.manifest_id)) for m in bare
    )
