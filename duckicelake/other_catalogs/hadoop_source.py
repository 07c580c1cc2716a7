"""Hadoop catalogs: folders of namespaces and tables, without a server. HadoopTables.java says where things are."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from obstore.store import ObjectStore, from_url

from duckicelake.client.models import Json
from duckicelake.errors import BadInputError, CatalogUnreachableError, MissingTableError, PipelineError
from duckicelake.other_catalogs.source import CatalogSource, CatalogTable, Options, parse_metadata
from duckicelake.rest.names import Namespace, format_name

_METADATA: Final = re.compile(r"v(\d+)(\.gz)?\.metadata\.json(\.gz)?")
"""The file of a version, with either place of the codec that Java's TableMetadataParser reads."""
_PYICEBERG_NAMES: Final = {
    "endpoint": "s3.endpoint",
    "region": "s3.region",
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "session_token": "s3.session-token",
}
"""PyIceberg's names of the store's options."""


class HadoopSource:
    """A folder with a folder for each namespace and table. A table's folder has one named `metadata`."""

    def __init__(self, store: ObjectStore, root: str, options: Options) -> None:
        self._store = store
        self._root = root.rstrip("/")
        self._files = {_PYICEBERG_NAMES[name]: value for name, value in options.items() if name in _PYICEBERG_NAMES}

    def namespaces(self, parent: Namespace) -> Iterator[Namespace]:
        """Yield the direct children of a namespace; of (): the top level."""
        yield from ((*parent, name) for name in self._list_folders(parent) if not self._is_table((*parent, name)))

    def properties(self, namespace: Namespace) -> Mapping[str, str]:
        """Return nothing: folders have no properties."""
        return {}

    def tables(self, namespace: Namespace) -> Iterator[str]:
        """Yield the names of a namespace's tables."""
        yield from (name for name in self._list_folders(namespace) if self._is_table((*namespace, name)))

    def views(self, namespace: Namespace) -> Iterator[str]:
        """Yield nothing: Hadoop catalogs have no views."""
        yield from ()

    def load_table(self, namespace: Namespace, name: str) -> CatalogTable:
        """Return a table as it is now: the highest version in its folder."""
        versions = self._list_versions((*namespace, name))
        if not versions:
            raise MissingTableError(f"Table does not exist: {format_name(namespace, name)}")
        path = "/".join((*namespace, name, "metadata", max(versions)[1]))
        with self._errors(path):
            data = bytes(self._store.get(path).bytes())
            metadata = parse_metadata(data)
        return CatalogTable(f"{self._root}/{path}", metadata, self._files)

    def load_view(self, namespace: Namespace, name: str) -> Json:
        """Raise MissingTableError: there are no views."""
        raise MissingTableError(f"View does not exist: {format_name(namespace, name)}")

    def close(self) -> None:
        """Do nothing: the store keeps no connection that must be closed."""

    def _list_folders(self, levels: Namespace) -> list[str]:
        found = self._list("/".join(levels))["common_prefixes"]
        names = (prefix.rstrip("/").rpartition("/")[2] for prefix in found)
        return sorted(name for name in names if not name.startswith((".", "_")))

    def _list_versions(self, levels: Namespace) -> list[tuple[int, str]]:
        objects = self._list("/".join((*levels, "metadata")))["objects"]
        names = (one["path"].rpartition("/")[2] for one in objects)
        return [(int(match[1]), name) for name in names if (match := _METADATA.fullmatch(name))]

    def _is_table(self, levels: Namespace) -> bool:
        return bool(self._list_versions(levels))

    def _list(self, prefix: str) -> Any:
        with self._errors(prefix):
            return self._store.list_with_delimiter(f"{prefix}/" if prefix else None)

    def _errors(self, path: str) -> "_StoreErrors":
        return _StoreErrors(f"{self._root}/{path}")


class _StoreErrors:
    """Raises PipelineError for what the store raises, and for what isn't JSON."""

    def __init__(self, place: str) -> None:
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, FileNotFoundError):
            raise MissingTableError(f"{self._place} isn't there") from error
        if isinstance(error, Exception):
            raise PipelineError(f"{self._place} can't be read: {error}") from error


def open_hadoop_source(options: Options) -> CatalogSource:
    """Open the folder that `warehouse` names. Other options are the store's, such as `endpoint` and `region`."""
    given: dict[str, Any] = dict(options)
    root = given.pop("warehouse")
    parts = urlsplit(root)
    if parts.scheme in {"s3a", "s3n"}:
        root = f"s3://{root.partition('://')[2]}"
    elif parts.scheme in {"", "file"}:
        if not parts.path.startswith("/"):
            raise BadInputError(f"the warehouse {root!r} is no absolute path and no URI")
        root = f"file://{parts.path}"
    try:
        return HadoopSource(from_url(root, **given), root, given)
    except Exception as error:
        raise CatalogUnreachableError(f"the warehouse {root} can't be opened: {error}") from error
