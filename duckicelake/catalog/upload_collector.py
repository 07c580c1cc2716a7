"""Deletes manifest lists and manifests that clients uploaded, once the server's own have long taken their place.

A file goes if it was uploaded for a commit that was accepted, 7 days ago or more, lies in its table's metadata folder,
and no row names it: of a snapshot that is listed, held or staged, of a branch, a clone or a registered table, whose
manifests are listed as they are. Keys of requests (Idempotency-Key) have been forgotten by then. What belongs to a
commit of which nobody knows what came of it was never recorded, and is for `duckicelake gc`.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Final

from duckicelake.catalog import gc
from duckicelake.catalog.access.confinement import check_readable, is_link
from duckicelake.catalog.background import in_thread
from duckicelake.catalog.services import Services
from duckicelake.errors import InvalidRequest
from duckicelake.lake import uploads
from duckicelake.lake.uploads import UploadRow
from duckicelake.storage.objects import StoredFile
from duckicelake.storage.parallel import in_parallel
from duckicelake.storage.policy import canonical

PAUSE: Final = 600.0
"""Seconds between two rounds."""
BATCH: Final = 500
"""Uploads that are looked at together: few, so that little happens between the last look and the deletion."""


def collect_uploads(services: Services) -> int:
    """Delete the files of at most `BATCH` uploads that are due; how many uploads were looked at."""
    with services.database.statement() as cursor:
        found = uploads.due(cursor, BATCH)
    candidates = {row.upload_id: _candidates(services, row) for row in found}
    files = {file.location: file for some in candidates.values() for file in some or ()}
    gone = {file.location for file in gc.unnamed(services, list(files.values()))}
    in_parallel(services.store.delete, sorted(gone))
    done = [key for key, some in candidates.items() if some is not None and gone.issuperset(f.location for f in some)]
    needed = sorted(candidates.keys() - set(done))
    if found:
        with services.database.transaction() as cursor:
            uploads.settle(cursor, done, needed)
    return len(found)


def _candidates(services: Services, row: UploadRow) -> Sequence[StoredFile] | None:
    """The files of an upload, canonical; None if one may not be deleted, so that all of them stay."""
    if row.location is None:
        return None
    folder = f"{canonical(row.location)}/metadata/"
    try:
        places = [canonical(path) for path in row.paths]
        for place in places:
            check_readable(services, place, row.location)
    except InvalidRequest:
        return None
    if any(not place.startswith(folder) or "/" in place[len(folder) :] for place in places):
        return None
    return None if any(is_link(services, place) for place in places) else [StoredFile(place, 0, 0) for place in places]


def collecting_uploads(services: Services, failed: Callable[[Exception], object]) -> AbstractContextManager[None]:
    """Collect for as long as the context lasts; `failed` hears of what went wrong, and the next round tries again."""

    def run(ended: threading.Event) -> None:
        while not ended.wait(PAUSE):
            try:
                while collect_uploads(services) == BATCH and not ended.is_set():
                    pass
            except Exception as error:  # noqa: BLE001 - whatever it was, the next round may find it gone
                with suppress(Exception):
                    failed(error)

    return in_thread("uploads", run)
