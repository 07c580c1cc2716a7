"""What commits on a version of a table need besides its metadata, once it was read: the next one need not read it."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from duckicelake.bridge.increments import Base
from duckicelake.lake import reader
from duckicelake.lake.postgres.database import Database
from duckicelake.lake.state import ManifestRow
from duckicelake.lake.writing.files import StaleBase

_OLDER: Final = 50


class Unwritten(StaleBase):
    """Manifests of a version that was loaded aren't recorded as written any more: their files got lost."""


@dataclass(slots=True)
class Known:
    """Rows that hold as long as the version is the newest; entries are only added, so that threads may share it.

    `lake` is what DuckLake has of the table, None until it was read.
    """

    manifests: dict[int, ManifestRow] = field(default_factory=dict)
    lake: Base | None = None

    def manifests_of(self, database: Database, manifest_ids: Iterable[int]) -> dict[int, ManifestRow]:
        """Manifests by id, those that aren't known yet read; one that isn't written has no path, and is read again."""
        wanted = list(manifest_ids)
        found = {manifest_id: row for manifest_id in wanted if (row := self.manifests.get(manifest_id)) is not None}
        missing = [manifest_id for manifest_id in wanted if manifest_id not in found]
        if missing:
            with database.statement() as cursor:
                read = reader.manifests(cursor, missing)
            self.manifests.update((id_, row) for id_, row in read.items() if row.path is not None)
            found |= read
        return {manifest_id: found[manifest_id] for manifest_id in wanted}

    def inherit(self, before: "Known") -> None:
        """Take over the last of what is known of manifests that an older version listed.

        Clients that append at the same time build on those: they are some commits behind.
        """
        known = before.manifests.copy()  # at once: other threads add to it
        older = [each for each in known.items() if each[0] not in self.manifests]
        self.manifests = {**dict(older[-_OLDER:]), **self.manifests}
