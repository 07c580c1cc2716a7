"""Files that were written for a commit, which nothing lists if it comes to nothing."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

from duckicelake.catalog.services import Services
from duckicelake.errors import CommitStateUnknown


@contextmanager
def discarding(services: Services, locations: Iterable[str]) -> Iterator[None]:
    """Discard the files, of which the block may write more, if it comes to nothing for certain."""
    try:
        yield
    except CommitStateUnknown:
        raise
    except Exception:
        discard(services, locations)
        raise


def discard(services: Services, locations: Iterable[str]) -> None:
    """Delete files that nothing lists, as well as it goes; what isn't deleted is an orphan."""
    for location in locations:
        with suppress(Exception):
            services.store.delete(location)
