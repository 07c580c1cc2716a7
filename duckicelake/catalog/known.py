"""What commits on a version of a table need besides its metadata, once it was read: the next one need not read it."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from duckicelake.bridge.diff import Base
from duckicelake.lake import reader
from duckicelake.lake.database import Database
from duckicelake.lake.state import ManifestRow


@dataclass(slots=True)
class Known:
    """Rows that hold as long as the version is the newest; entries are only added, so that threads may share it.

    `lake` is what DuckLake has of the table, None until it was read.
    """

    manifests: dict[int, ManifestRow] = field(default_factory=dict)
    lake: Base | None = None

    def manifests_of(self, database: Database, manifest_ids: Iterable[int]) -> dict[int, ManifestRow]:
        """Manifests by id, those that aren't known yet read."""
        wanted = list(manifest_ids)
        missing = [manifest_id for manifest_id in wanted if manifest_id not in self.manifests]
        if missing:
            with database.reading() as cursor:
                self.manifests.update(reader.manifests(cursor, missing))
        return {manifest_id: self.manifests[manifest_id] for manifest_id in wanted}
