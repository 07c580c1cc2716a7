"""PURE. Files in SQL as datasets."""

import posixpath
import re
from typing import Final

from duckicelake.lineage.naming import located
from duckicelake.lineage.sql.model import Dataset

_ENDINGS: Final = (".parquet", ".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".avro", ".xlsx", ".gz", ".zst", ".parq")
_PATTERN: Final = re.compile(r"[*?\[{]")
_ABSOLUTE: Final = re.compile(r"/|[a-z][a-z0-9+.-]*:/", re.IGNORECASE)


def looks_like_file(name: str) -> bool:
    """Tell whether DuckDB would take the name of a table for one of a file."""
    return name.lower().partition("?")[0].endswith(_ENDINGS)


def file_of(path: str, folder: str = "/") -> Dataset | None:
    """The dataset of a path, which is in the folder if it's relative; the folder above a pattern's first wildcard."""
    if not path or "\0" in path:
        return None
    is_url = "://" in path
    absolute = path if _ABSOLUTE.match(path) else posixpath.join(folder, path)
    place = _above_patterns(absolute.partition("?")[0] if is_url else posixpath.normpath(absolute))
    try:
        return Dataset(*located(place))
    except ValueError:
        return None


def _above_patterns(path: str) -> str:
    found = _PATTERN.search(path)
    return path if found is None else path[: found.start()].rpartition("/")[0] or "/"
