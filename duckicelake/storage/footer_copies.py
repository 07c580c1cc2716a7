"""Parquet files of the store of which this machine has the footer only, for what reads schemas."""

import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from duckicelake.storage.objects import ObjectStore
from duckicelake.storage.parallel import in_parallel
from duckicelake.storage.parquet_footer import MAX_FOOTER

_MAGIC: Final = b"PAR1"
_TRAILER: Final = 4 + len(_MAGIC)
_GUESSED: Final = 64 << 10
"""Bytes in which most footers are: one request of a distant store is enough for those."""


@contextmanager
def footer_copies(store: ObjectStore, locations: Iterable[str]) -> Iterator[Mapping[str, Path]]:
    """Plainly named paths by location, in a folder that ends with the context: `local_copies` without the rows.

    A file of a distant store has its length and its footer, and zeros for rows. Raises FileMissing, Unavailable.
    """
    with tempfile.TemporaryDirectory(prefix="duckicelake-") as folder:
        names = enumerate(dict.fromkeys(locations))
        paths = {location: Path(folder, f"{number}.parquet") for number, location in names}
        in_parallel(lambda pair: _fetch(store, *pair), paths.items())
        yield paths


def _fetch(store: ObjectStore, location: str, path: Path) -> None:
    local = store.local_path(location)
    if local is not None:
        path.symlink_to(local)
        return
    end, length = store.read_end(location, _GUESSED)
    footer = int.from_bytes(end[-_TRAILER : -len(_MAGIC)], "little") + _TRAILER
    if len(end) < min(footer, length) and footer <= MAX_FOOTER:
        end, length = store.read_end(location, footer)
    with path.open("wb") as file:
        file.write(_MAGIC)
        file.seek(max(length - len(end), 0))
        file.write(end)
