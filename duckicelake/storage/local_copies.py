"""Files of the store under paths of this machine, for what reads paths only."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from duckicelake.storage.objects import ObjectStore
from duckicelake.storage.parallel import in_parallel


@contextmanager
def local_copies(store: ObjectStore, locations: Iterable[str]) -> Iterator[Mapping[str, Path]]:
    """Plainly named paths in a folder of their own, by location; the folder ends with the context.

    Local files are linked to, so nothing is copied; a link says nothing of whether its file exists. Files of other
    stores are copied whole, a few at a time. Raises FileMissing, Unavailable.
    """
    with tempfile.TemporaryDirectory(prefix="duckicelake-") as folder:
        paths = {
            location: Path(folder, f"{number}.parquet") for number, location in enumerate(dict.fromkeys(locations))
        }
        distant = [(location, path) for location, path in paths.items() if not _linked(store, location, path)]
        in_parallel(lambda pair: store.download(*pair), distant)
        yield paths


def _linked(store: ObjectStore, location: str, path: Path) -> bool:
    local = store.local_path(location)
    if local is not None:
        path.symlink_to(local)
    return local is not None
