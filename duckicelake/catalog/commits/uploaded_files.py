"""Files that clients uploaded before they committed, read for them: manifest lists and manifests.

Java's library, PyIceberg and those that follow them name a commit's files alike: `snap-<id>-<attempt>-<commit>.avro`
lists `<commit>-m0.avro` beside it. Where stores are far that one is read while its list is: a wait less. If it isn't
so, it was read for nothing.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import BoundedSemaphore
from typing import Final, TypeAlias

from duckicelake.bridge.entries import packed
from duckicelake.catalog.access.confinement import check_readable
from duckicelake.catalog.services import Services
from duckicelake.errors import FileMissing, InvalidRequest
from duckicelake.iceberg.manifest import (
    Manifest,
    ManifestContent,
    ManifestFile,
    inherit_all,
    read_manifest,
    read_manifest_list,
)
from duckicelake.iceberg.snapshot import Snapshot
from duckicelake.storage.parallel import begun_within

Expected: TypeAlias = Mapping[str, Callable[[], bytes | None]]
"""Manifests that are being read, by path; None of those that aren't there, or are longer than expected."""

MAX_MANIFESTS: Final = 10_000
MAX_MANIFESTS_BYTES: Final = 256 << 20
"""Manifests of one snapshot, and any one file that a client uploaded; a manifest is about 8 MB at most."""
EXPECTED_BYTES: Final = 1 << 20
"""Of a manifest that nothing has told the length of; longer ones take so long that a wait less is little."""
_slots: Final = BoundedSemaphore(32)
USUAL_LIST: Final = re.compile(r"(.+)/snap-[0-9]+-[0-9]+-([0-9A-Fa-f-]{36})\.avro")


def read_uploaded(
    services: Services, table_location: str, location: str, what: str, at_most: int = MAX_MANIFESTS_BYTES
) -> bytes:
    """A file that the client uploaded; InvalidRequest if it isn't there, isn't the table's, or has more bytes."""
    check_readable(services, location, table_location)
    try:
        return services.store.read(location, at_most)
    except FileMissing:
        raise InvalidRequest(f"The {what} {location} does not exist: upload it before committing") from None


def expected_manifest(services: Services, location: str, snapshot: Snapshot) -> Expected:
    """Begin to read the manifest that the snapshot's list most likely names; none where files are near.

    Nor where many are being read: nobody waits for those that no list names, so requests without end could begin them.
    """
    named = USUAL_LIST.fullmatch(snapshot.manifest_list or "")
    if named is None or _is_near(services, named[0]):
        return {}
    path = f"{named[1]}/{named[2]}-m0.avro"
    reading = begun_within(_slots, partial(_if_readable, services, location, path))
    return {} if reading is None else {path: reading}


def _is_near(services: Services, path: str) -> bool:
    with suppress(InvalidRequest):
        return services.store.local_path(path) is not None
    return True


def _if_readable(services: Services, location: str, path: str) -> bytes | None:
    with suppress(InvalidRequest):
        return read_uploaded(services, location, path, "manifest", EXPECTED_BYTES)
    return None


def read_list(
    services: Services, location: str, snapshot: Snapshot, at_most: int = MAX_MANIFESTS_BYTES
) -> tuple[ManifestFile, ...]:
    """The lines of a snapshot's manifest list; InvalidRequest."""
    if snapshot.manifest_list is None:
        return _lines_of(services, location, snapshot.manifests or (), snapshot.snapshot_id)
    data = read_uploaded(services, location, snapshot.manifest_list, "manifest list", at_most)
    try:
        return read_manifest_list(data)
    except InvalidRequest as error:
        raise InvalidRequest(f"{snapshot.manifest_list}: {error}") from error


def _lines_of(services: Services, location: str, paths: Sequence[str], snapshot_id: int) -> tuple[ManifestFile, ...]:
    """The lines of the manifests that a version 1 snapshot lists itself, without a manifest list."""
    if len(paths) > MAX_MANIFESTS or len(set(paths)) < len(paths):
        raise InvalidRequest(
            f"Snapshot {snapshot_id} lists {len(paths)} manifests: name each once, and up to {MAX_MANIFESTS}"
        )
    lines: list[ManifestFile] = []
    left = MAX_MANIFESTS_BYTES
    for path in paths:
        data = read_uploaded(services, location, path, "manifest", left)
        left -= len(data)
        found = read_manifest(data)
        spec_id, content = found.spec_id or 0, found.content or ManifestContent.DATA
        lines.append(ManifestFile(path, len(data), spec_id, content, 0, 0, snapshot_id, *[None] * 6))
    return tuple(lines)


def read_manifest_at(services: Services, location: str, expected: Expected, line: ManifestFile) -> Manifest:
    """The manifest of a line, its entries with what they inherit; InvalidRequest."""
    path = line.manifest_path
    data = expected[path]() if path in expected else None
    if data is None:
        data = read_uploaded(services, location, path, "manifest", line.manifest_length)
    if len(data) != line.manifest_length:
        raise InvalidRequest(
            f"Manifest {path} has {len(data)} bytes, but its manifest list says {line.manifest_length}"
        )
    try:
        return read_manifest(data, lambda entries: inherit_all(map(packed, entries), line))
    except InvalidRequest as error:
        raise InvalidRequest(f"{path}: {error}") from error
