"""Batches of producers in snapshots of Iceberg clients: each is committed once, whoever sends it and however often.

A snapshot whose summary has `txn.app-id` and `txn.version` is refused unless its version is above the last one of that
app id in the table, which the rows endpoint counts on, too. What is looked at here holds until COMMIT: a table that
changes meanwhile, be it by posted rows, has its commits computed again.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from duckicelake.catalog.services import Services
from duckicelake.errors import CommittedBefore, InvalidRequest
from duckicelake.iceberg.rest import CommitTableRequest
from duckicelake.iceberg.updates import AddSnapshot, TableUpdate
from duckicelake.lake.rows import producers
from duckicelake.lake.rows.producers import APP_ID, LONGEST_APP_ID, VERSION, Producer, version_of

Batch = tuple[str, int]
"""An app id with the version of one of its batches."""


def check_batches(services: Services, table_id: int | None, updates: Sequence[TableUpdate]) -> None:
    """CommittedBefore if the table has one of these batches, or a later one of the same app id.

    table_id: None of a table that is created. A batch may be several snapshots of the request, as an overwrite of
    PyIceberg is.
    """
    batches = [batch for batch, _ in groupby(_batches(updates))]
    if not batches:
        return
    last: dict[str, int] = {} if table_id is None else _last_of(services, table_id, batches)
    for app_id, version in batches:
        known = last.get(app_id)
        if known is not None and version <= known:
            raise CommittedBefore(
                f"Already applied: the last batch of {app_id} in this table is version {known}, so version {version} "
                "is there, too. Nothing was written, and nothing is left to do for it"
            )
        last[app_id] = version


def share_producers(requests: Sequence[CommitTableRequest]) -> bool:
    """Whether several of the requests have batches of one app id, so that one may be another's repetition."""
    app_ids = [{app_id for app_id, _ in _batches(request.updates)} for request in requests]
    return len(set().union(*app_ids)) < sum(map(len, app_ids))


def _last_of(services: Services, table_id: int, batches: Sequence[Batch]) -> dict[str, int]:
    asked = [Producer(table_id, app_id) for app_id in dict.fromkeys(app_id for app_id, _ in batches)]
    with services.database.reading() as cursor:
        found = producers.applied(cursor, asked)()
    return {producer.app_id: version for producer, version in found.items()}


def _batches(updates: Sequence[TableUpdate]) -> Iterator[Batch]:
    for update in updates:
        if isinstance(update, AddSnapshot) and not update.snapshot.summary.keys().isdisjoint((APP_ID, VERSION)):
            yield _batch(update.snapshot.summary)


def _batch(summary: dict[str, str]) -> Batch:
    app_id, version = summary.get(APP_ID, ""), version_of(summary.get(VERSION, ""))
    if not app_id or len(app_id) > LONGEST_APP_ID or "\0" in app_id:
        raise InvalidRequest(f"{APP_ID}, beside {VERSION}, takes 1 to {LONGEST_APP_ID} letters, none of them NUL")
    if version is None:
        raise InvalidRequest(f"{VERSION} is a whole number beside {APP_ID}, not {summary.get(VERSION)!r}")
    return app_id, version
