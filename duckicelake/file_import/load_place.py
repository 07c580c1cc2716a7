"""Where the files of a load lie: in the table's folder on this machine, or in a bucket, to which they are uploaded."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from duckicelake.file_import.data_files import ParquetPart, describe_file, translate_errors

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Transaction
    from pyiceberg.table.metadata import TableMetadata

_UPLOAD_THREADS: Final = 4
_REFUSED: Final = "The table's store takes no files, nothing was committed"


class LoadPlace:
    """The place of one attempt's files.

    Attributes:
        folder: where DuckDB writes, the table's if that is on this machine, else a temporary one.

    """

    def __init__(self, transaction: Transaction, temporary: Path) -> None:
        metadata = transaction.table_metadata
        base = metadata.properties.get("write.data.path") or f"{metadata.location.rstrip('/')}/data"
        local, name = find_local_path(base), f"load-{uuid4().hex}"
        self.folder = (temporary if local is None else local) / name
        self._url = f"{base}/{name}" if local is None else None
        self._io = transaction._table.io  # noqa: SLF001 - PyIceberg's own transactions offer no other way to it
        self._uploads: list[str] = []

    def place(self, files: Sequence[ParquetPart], metadata: TableMetadata) -> list[DataFile]:
        """Return files as manifests describe them, uploaded if the table is in a bucket. Raises PipelineError."""
        prefix = metadata.location[: metadata.location.find("/")] + "//" * metadata.location.startswith("file:///")
        if self._url is None:
            return [describe_file(one, metadata, f"{prefix}{one.path}") for one in files]
        with ThreadPoolExecutor(_UPLOAD_THREADS) as pool, translate_errors(_REFUSED):
            return list(pool.map(partial(self._upload, metadata), files))

    def _upload(self, metadata: TableMetadata, one: ParquetPart) -> DataFile:
        location = f"{self._url}/{one.path.name}"
        described = describe_file(one, metadata, location)
        self._uploads.append(location)
        with one.path.open("rb") as source, _translate_store_errors(), self._io.new_output(location).create() as target:
            shutil.copyfileobj(source, target, 8 << 20)
        one.path.unlink()
        return described

    def remove(self) -> None:
        """Remove what was written for nothing; what a store doesn't delete now is an orphan, which gc removes."""
        with suppress(OSError):
            shutil.rmtree(self.folder)
        with ThreadPoolExecutor(_UPLOAD_THREADS) as pool:
            pool.map(self._remove_upload, self._uploads)

    def _remove_upload(self, location: str) -> None:
        with suppress(Exception):
            self._io.delete(location)


def find_local_path(location: str) -> Path | None:
    """Return the path of a location on this machine, in each form that `file:` has; None for one in a bucket."""
    match = re.fullmatch(r"(?:file:(?://)?)?(/.*)", location, re.DOTALL)
    return None if match is None else Path(match[1])


@contextmanager
def _translate_store_errors() -> Iterator[None]:
    """Raise OSError for what stores' libraries raise: those of Azure and Google have errors of their own."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
