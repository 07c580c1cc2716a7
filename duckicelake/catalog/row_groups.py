"""Small batches of rows that come at the same time: one thread reads them one after the other and writes them together.

It does so with those that can be written at the first try. The others are none of its business: they go the usual way
(`rows.append_rows`), which finds out again what is wrong with them, and says so or tries again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from duckicelake.catalog.groups import RowsCommit
from duckicelake.catalog.row_cache import RowTarget
from duckicelake.catalog.rows import PostedRows, RowsAnswer, answer, commit_of, prepared_rows
from duckicelake.catalog.services import Services
from duckicelake.errors import CatalogError, CommitStateUnknown, InvalidRequest, Unavailable
from duckicelake.rows import inlining
from duckicelake.rows.reading import read_batch

LARGEST_BODY: Final = 64 * 1024
"""Bytes of a request that doesn't keep the others waiting for long."""


@dataclass(frozen=True, slots=True)
class RowsRequest:
    """Posted rows with the services for whoever posts them."""

    services: Services
    posted: PostedRows

    @property
    def is_small(self) -> bool:
        """Whether it may go with others."""
        return len(self.posted.body) <= LARGEST_BODY and self.known_target is not None

    @property
    def known_target(self) -> RowTarget | None:
        """The table, if nothing need be asked to know it, and its rows are checked by their types alone."""
        target = self.services.rows.find(self.posted.namespace, self.posted.table)
        return None if target is None or target.is_constrained else target


def append_together(requests: Sequence[RowsRequest]) -> list[RowsAnswer | CatalogError | None]:
    """Write those that hold; for each what came of it, None if nothing was written of it: it is to go the usual way."""
    commits = list(map(_commit, requests))
    works = [each for each in commits if each is not None]
    if works:
        services = requests[0].services
        services.commits.write_together(services.database, services.meter, works)
    return [None if each is None else _outcome(each) for each in commits]


def _commit(request: RowsRequest) -> RowsCommit | None:
    services, posted, target = request.services, request.posted, request.known_target
    if target is None:
        return None
    try:
        with services.meter.phase("rows_read"):
            batch = read_batch(posted.body, posted.content_type, target.layout, on_unknown=posted.on_unknown)
    except InvalidRequest:
        return None
    if not 0 < batch.num_rows <= target.lake.limit or inlining.obstacle(batch) is not None:
        return None
    return commit_of(services, posted, prepared_rows(services, posted, target, batch))


def _outcome(commit: RowsCommit) -> RowsAnswer | CatalogError | None:
    try:
        return answer(commit.result())
    except (CommitStateUnknown, Unavailable) as error:
        return error
    except Exception:  # noqa: BLE001 - whatever it was, the usual way meets it again
        return None
