"""How files that DuckDB added store their rows: their footers, read once, a few at a time."""

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Final, TypeAlias

from duckicelake.catalog.services import Services
from duckicelake.lake.model import LakeFile
from duckicelake.storage.footer_copies import footer_copies
from duckicelake.storage.parallel import in_parallel
from duckicelake.storage.parquet_layout import LayoutField, read_layout

Layout: TypeAlias = tuple[LayoutField, ...]
_LRU_FIELDS: Final = 200_000
"""Fields of all files whose layouts are kept: a table that can't be served yet is asked for again and again."""


class _Layouts:
    """The layouts read last, by path and length of the file."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._known: OrderedDict[tuple[str, int], Layout] = OrderedDict()
        self._fields = 0

    def get(self, file: LakeFile) -> Layout | None:
        with self._lock:
            return self._known.get((file.path, file.file_size_bytes))

    def put(self, file: LakeFile, layout: Layout) -> None:
        with self._lock:
            key = file.path, file.file_size_bytes
            self._fields += len(layout) - len(self._known.pop(key, ()))
            self._known[key] = layout
            while self._fields > _LRU_FIELDS:
                self._fields -= len(self._known.popitem(last=False)[1])


_LAYOUTS: Final = _Layouts()


def read_layouts(services: Services, files: Sequence[LakeFile]) -> list[Layout]:
    """The layout of each file; InvalidRequest or duckdb.Error for one that is missing or isn't Parquet."""
    found = {file.file_id: layout for file in files if (layout := _LAYOUTS.get(file)) is not None}
    unknown = [file for file in files if file.file_id not in found]
    with footer_copies(services.store, [file.path for file in unknown]) as paths:
        read = in_parallel(lambda file: read_layout(paths[file.path], file.path), unknown)
    for file, layout in zip(unknown, read, strict=True):
        _LAYOUTS.put(file, layout)
        found[file.file_id] = layout
    return [found[file.file_id] for file in files]
