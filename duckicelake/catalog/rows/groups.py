"""Small batches of rows that come at the same time: they are read one by one as they come, and written together.

That is done with those that can be written at the first try. The others are none of its business: they go the usual way
(`inserts.append_rows`), which finds out again what is wrong with them, and says so or tries again.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from duckicelake.catalog.commits.groups import RowsCommit
from duckicelake.catalog.rows.inserts import PostedRows, RowsAnswer, answer, commit_of, prepared_rows
from duckicelake.catalog.services import Services
from duckicelake.errors import CatalogError, CommitStateUnknown, InvalidRequest, Unavailable
from duckicelake.rows import inlining
from duckicelake.rows.reading import read_batch

LARGEST_BODY: Final = 16 * 1024
"""Bytes of a request that is read within a few hundred microseconds: whoever reads it does nothing else meanwhile."""


@dataclass(frozen=True, slots=True)
class PreparedRows:
    """Posted rows that only wait to be written, with the services for whoever posts them."""

    services: Services
    commit: RowsCommit


def prepared_to_join(services: Services, posted: PostedRows) -> PreparedRows | None:
    """The rows, if they may be written with others: nothing is asked of the database for that, so it takes no time.

    None: they are to go the usual way.
    """
    if len(posted.body) > LARGEST_BODY:
        return None
    target = services.rows.find(posted.namespace, posted.table)
    if target is None or target.is_constrained:  # else they are checked by their types alone
        return None
    try:
        with services.meter.phase("rows_read"):
            batch = read_batch(posted.body, posted.content_type, target.layout, on_unknown=posted.on_unknown)
    except InvalidRequest:
        return None
    if not 0 < batch.num_rows <= target.lake.limit or inlining.obstacle(batch) is not None:
        return None
    return PreparedRows(services, commit_of(services, posted, prepared_rows(services, posted, target, batch)))


def append_together(
    prepared: Sequence[PreparedRows], more: Callable[[], Sequence[PreparedRows]]
) -> list[RowsAnswer | CatalogError | None]:
    """Write those that hold; for each what came of it, None if nothing was written of it: it is to go the usual way.

    more: gives those that have come since; they are asked for when other processes are done.
    """
    services, commits = prepared[0].services, [each.commit for each in prepared]

    def join() -> list[RowsCommit]:
        new = [each.commit for each in more()]
        commits.extend(new)
        return new

    services.commits.write_together(services.database, services.meter, tuple(commits), join)
    return list(map(_outcome, commits))


def _outcome(commit: RowsCommit) -> RowsAnswer | CatalogError | None:
    try:
        return answer(commit.result())
    except (CommitStateUnknown, Unavailable) as error:
        return error
    except Exception:  # noqa: BLE001 - whatever it was, the usual way meets it again
        return None
