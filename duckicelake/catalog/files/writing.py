"""Writes a version's files as they are encoded: far stores take their time, in which the next ones are."""

from collections.abc import Callable
from functools import partial

from duckicelake.catalog.access.confinement import write_derived
from duckicelake.catalog.files.encoding import Made, Prepared
from duckicelake.catalog.services import Services
from duckicelake.storage.objects import NewFile
from duckicelake.storage.parallel import begun


def written(services: Services, location: str, encode: Callable[[Made], Prepared]) -> Prepared:
    """The version that is encoded, every file of it written; raises as `write_derived` does. location: its table's."""
    waits: dict[str, Callable[[], None]] = {}

    def begin(file: NewFile) -> None:
        waits[file[0]] = begun(partial(write_derived, services, [file]))

    prepared = encode(begin if services.store.local_path(location) is None else _not_yet)
    write_derived(services, [file for file in prepared.files if file[0] not in waits])
    for wait in waits.values():
        wait()
    return prepared


def _not_yet(_: NewFile) -> None:
    """A near store writes all at once, and has a disk to wait for but once."""
