"""Files of the store under paths of this machine, for what reads paths only."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from duckicelake.storage.objects import ObjectStore


@contextmanager
def local_copies(store: ObjectStore, locations: Iterable[str]) -> Iterator[Mapping[str, Path]]:
    """Plainly named paths in a folder of their own, by location; the folder ends with the context.

    Local files are linked to, so nothing is copied; a link says nothing of whether its file exists. Files of other
    stores are copied, whole and through memory. Raises FileMissing, Unavailable.
    """
    with tempfile.TemporaryDirectory(prefix="duckicelake-") as folder:
        paths = {
            location: Path(folder, f"{number}.parquet") for number, location in enumerate(dict.fromkeys(locations))
        }
        for location, path in paths.items():
            _place(store, location, path)
        yield paths


def _place(store: ObjectStore, location: str, path: Path) -> None:
    local = store.local_path(location)
    if local is None:
        path.write_bytes(store.read(location))
    else:
        path.symlink_to(local)
