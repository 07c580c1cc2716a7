"""Where a Delta table and what its log names may lie: naming a file of the lake's gets nobody at it.

The log's writers need no rights here, and go on after somebody who has some imported the table. So their word counts
only in the table's folder, and in places that are for files of others: nowhere in the lake's own zones, and a symbolic
link counts as what it leads to.
"""

from collections.abc import Iterable, Sequence

from duckicelake.catalog.access.confinement import is_link, real_place
from duckicelake.catalog.services import Services
from duckicelake.delta.listing import FOLDER
from duckicelake.errors import InvalidRequest
from duckicelake.lake import ownership
from duckicelake.storage.policy import is_within


def check_root(services: Services, root: str) -> None:
    """InvalidRequest unless a Delta table's folder may be imported."""
    services.policy.check_readable(root, services.policy.warehouse)
    zones, place = _zones(services), real_place(services, root)
    for zone in zones:
        if is_within(place, zone) or is_within(zone, place):
            raise InvalidRequest(
                f"{root} overlaps {zone}, where the lake keeps tables of its own: to have one of those twice, "
                "`duckicelake clone` it; any other Delta table must lie elsewhere"
            )
    if not _is_in(place, _places(services)):
        raise InvalidRequest(f"{root} leads elsewhere by a symbolic link: name the Delta table's own folder")


def check_files(services: Services, root: str, files: Iterable[str]) -> None:
    """InvalidRequest unless each file that the log of the table in `root` names is where one may be.

    What isn't there may be named. The log's own folder is checked with them.
    """
    named = {f"{root}/{FOLDER}/x": root, f"{root}/{FOLDER}/_sidecars/x": root}
    for file in files:
        named.setdefault(file if is_link(services, file) else file.rpartition("/")[0] or "/", file)
    zones, places, folder = _zones(services), _places(services), real_place(services, root)
    for spelled, file in named.items():
        place = real_place(services, spelled)
        if is_within(place, folder):
            continue
        if _is_in(place, zones):
            raise InvalidRequest(
                f"{file} is where the lake keeps tables of its own: the Delta table {root} may have no files there"
            )
        if not _is_in(place, places):
            services.policy.check_readable(file, services.policy.warehouse)
            raise InvalidRequest(f"{file} leads elsewhere by a symbolic link: put the file itself there")


def _zones(services: Services) -> Sequence[str]:
    """Those where only the lake's own writers write."""
    with services.database.reading() as cursor:
        data_path = ownership.data_path(cursor)
    return [real_place(services, zone) for zone in (data_path, services.policy.data_zone)]


def _places(services: Services) -> Sequence[str]:
    return [real_place(services, place) for place in (services.policy.warehouse, *services.policy.allowed)]


def _is_in(place: str, zones: Iterable[str]) -> bool:
    return any(is_within(place, zone) for zone in zones)
