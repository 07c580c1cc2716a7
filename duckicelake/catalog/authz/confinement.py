"""Where the server reads and writes in a client's name: below the table's own and the allowed places, links too."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from duckicelake.catalog.context.services import Services
from duckicelake.errors import InvalidRequest
from duckicelake.lake.side_tables import locations
from duckicelake.storage.policy import canonicalize, is_within
from duckicelake.storage.protocol import NewObject

_ONLY_THE_PATH: Final[int] = getattr(os, "O_PATH", os.O_RDONLY)


def check_readable(services: Services, location: str, table_location: str, folders: Iterable[str] = ()) -> None:
    """InvalidRequest unless the file lies in the table's location, its folders or an allowed prefix.

    A symbolic link below them counts as what it leads to. The lake's zones themselves may be, or lie behind, links.
    """
    services.policy.check_readable(location, table_location, folders)
    _check_links(services, location, (table_location, *folders, *services.policy.allowed))


def write(services: Services, location: str, data: bytes) -> None:
    """Write a file of a table or view; InvalidRequest if a symbolic link would lead it out of the lake."""
    _check_places(services, [location])
    services.store.write(location, data)


def write_all(services: Services, files: Sequence[NewObject]) -> None:
    """Write several, sooner than one by one (`ObjectStore.write_all`); raises as `write` does."""
    _check_places(services, [location for location, _ in files])
    services.store.write_all(files)


def write_derived(services: Services, files: Sequence[NewObject]) -> None:
    """Write several that can be made again (`ObjectStore.write_derived`); raises as `write` does."""
    _check_places(services, [location for location, _ in files])
    services.store.write_derived(files)


def _check_places(services: Services, locations: Sequence[str]) -> None:
    near = {location: path for location in locations if (path := _local_path(services, location)) is not None}
    links = (location for location, path in near.items() if os.path.islink(path))  # noqa: PTH114 - as in `is_link`
    for place in {*map(os.path.dirname, near), *links}:
        _check_links(services, place, ())


def _check_links(services: Services, location: str, places: Iterable[str]) -> None:
    """Check that links lead to where the places really are; for none of them, into the lake's zones."""
    real = real_place(services, location)
    if real == canonicalize(location):
        return
    zones = [real_place(services, zone) for zone in _zones(services)]
    allowed = [place for place in (real_place(services, place) for place in places) if _is_in(place, zones)] or zones
    if not _is_in(real, allowed):
        raise InvalidRequest(f"{location} leads elsewhere by a symbolic link: put the file itself there")


def _zones(services: Services) -> Iterator[str]:
    with services.database.reading() as cursor:
        yield locations.read_data_path(cursor)
    yield from (services.policy.data_zone, *services.policy.allowed)


def _is_in(place: str, zones: Iterable[str]) -> bool:
    return any(is_within(place, zone) for zone in zones)


def is_link(services: Services, location: str) -> bool:
    path = _local_path(services, location)
    return path is not None and os.path.islink(path)  # noqa: PTH114 - what is no usable name is no link, either


def _local_path(services: Services, location: str) -> Path | None:
    try:
        return services.store.local_path(location)
    except InvalidRequest:
        return None


def real_place(services: Services, location: str) -> str:
    """The canonical location with symbolic links followed, where the store has them."""
    path = _local_path(services, location)
    try:
        return canonicalize(location if path is None else _real_path(path))
    except (OSError, ValueError) as error:
        raise InvalidRequest(f"{location!r} isn't a usable file name: {error}") from error


def _real_path(path: Path) -> str:
    """As `os.path.realpath`, which asks for each folder on the way; Linux tells at once where an open file is."""
    try:
        descriptor = os.open(path, _ONLY_THE_PATH | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return os.path.realpath(path)
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}")  # noqa: PTH115 - a Path takes as long to make
    except OSError:
        return os.path.realpath(path)
    finally:
        os.close(descriptor)
