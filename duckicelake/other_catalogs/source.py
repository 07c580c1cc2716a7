"""Catalogs that tables can come from: what is asked of one, and how one is opened by its kind."""

import gzip
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Final, Protocol
from urllib.parse import urlsplit

import orjson

from duckicelake.client.models import Json
from duckicelake.errors import BadInputError, MissingRequirementError
from duckicelake.rest.names import Namespace

Options = dict[str, str]
CopyProgress = Callable[[int, int, int], None]
"""Is given the files of a table that are copied, all its files, and the rows so far."""


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table as another catalog has it now.

    Attributes:
        metadata_location: its current metadata.json.
        metadata: what that says, as JSON.
        store: PyIceberg's properties for the store of its files.

    """

    metadata_location: str
    metadata: Json
    store: Mapping[str, str] = field(default_factory=dict)


class CatalogSource(Protocol):
    """A catalog that tables come from. Methods raise PipelineError."""

    def namespaces(self, parent: Namespace) -> Iterator[Namespace]:
        """Yield the direct children of a namespace; of (): the top level."""

    def properties(self, namespace: Namespace) -> Mapping[str, str]:
        """Return the properties of a namespace."""

    def tables(self, namespace: Namespace) -> Iterator[str]:
        """Yield the names of a namespace's tables."""

    def views(self, namespace: Namespace) -> Iterator[str]:
        """Yield the names of a namespace's views; none if the catalog has no views."""

    def load_table(self, namespace: Namespace, name: str) -> CatalogTable:
        """Return a table as it is now."""

    def load_view(self, namespace: Namespace, name: str) -> Json:
        """Return a view's metadata."""

    def close(self) -> None:
        """Close connections."""


@dataclass(frozen=True, slots=True)
class _SourceKind:
    """How a kind of catalog is opened.

    Attributes:
        opener: `module:attribute` of a function of options.
        defaults: options that it has unless they are given.
        path: of its Iceberg interface, for a URI without one.
        needs: options that must be given.

    """

    opener: str
    defaults: Mapping[str, str]
    path: str = ""
    needs: tuple[str, ...] = ("uri",)


_REST: Final = "duckicelake.other_catalogs.rest_source:open_rest_source"
_PYICEBERG: Final = "duckicelake.other_catalogs.pyiceberg_source:open_pyiceberg_source"
_KINDS: Final[Mapping[str, _SourceKind]] = {
    "rest": _SourceKind(_REST, {}),
    "polaris": _SourceKind(_REST, {"scope": "PRINCIPAL_ROLE:ALL"}, "/api/catalog", ("uri", "warehouse")),
    "lakekeeper": _SourceKind(_REST, {}, "/catalog", ("uri", "warehouse")),
    "nessie": _SourceKind("duckicelake.other_catalogs.rest_source:open_nessie_source", {}, "/iceberg"),
    "unity": _SourceKind(_REST, {}, "/api/2.1/unity-catalog/iceberg-rest", ("uri", "warehouse")),
    "glue": _SourceKind(_PYICEBERG, {"type": "glue"}, needs=()),
    "hive": _SourceKind("duckicelake.other_catalogs.hive_source:open_hive_source", {}),
    "jdbc": _SourceKind(_PYICEBERG, {"type": "sql"}, needs=("uri", "catalog")),
    "pyiceberg": _SourceKind(_PYICEBERG, {}, needs=("catalog",)),
    "hadoop": _SourceKind("duckicelake.other_catalogs.hadoop_source:open_hadoop_source", {}, needs=("warehouse",)),
}
KINDS: Final = tuple(_KINDS)
_INSTALLS: Final[Mapping[str, str]] = {
    "pyiceberg": "duckicelake[pyiceberg]",
    "obstore": "duckicelake[s3]",
    "thrift": "pyiceberg[hive]",
}
"""What brings a module that is missing."""
_GZIP_MAGIC: Final = b"\x1f\x8b"


def parse_options(pairs: list[str]) -> Options:
    """Parse `<key>=<value>` of a command. A value `@<file>` is what the file holds. Raises BadInputError."""
    options: Options = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise BadInputError(f"--option {pair!r} is not of the form <key>=<value>")
        options[key] = _read_value(value[1:]) if value.startswith("@") else value
    return options


def _read_value(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"the option's file {path} can't be read: {error}") from error


def open_source(kind: str, given: Options) -> CatalogSource:
    """Open a catalog of a kind in KINDS. Nothing is sent yet.

    given: options in PyIceberg's names, such as `uri`, `warehouse` and `credential`. Raises BadInputError.
    """
    if kind not in _KINDS:
        raise BadInputError(f"there is no kind of catalog {kind!r}; there are {', '.join(KINDS)}")
    found = _KINDS[kind]
    options = {**found.defaults, **given}
    missing = [name for name in found.needs if not options.get(name)]
    if missing:
        raise BadInputError(f"--from {kind} needs {' and '.join(f'--option {name}=…' for name in missing)}")
    if found.path and urlsplit(options["uri"]).path in {"", "/"}:
        options["uri"] = options["uri"].rstrip("/") + found.path
    module, _, attribute = found.opener.partition(":")
    try:
        opener: Callable[[Options], CatalogSource] = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        install = _INSTALLS.get(str(error.name).partition(".")[0])
        if install is None:
            raise
        raise MissingRequirementError(f"--from {kind} needs more: pip install '{install}'") from error
    return opener(options)


def parse_metadata(data: bytes) -> Json:
    """Parse a metadata.json, which may be packed by gzip. Raises OSError, ValueError."""
    return orjson.loads(gzip.decompress(data) if data.startswith(_GZIP_MAGIC) else data)


def list_namespaces(source: CatalogSource, top: Namespace) -> Iterator[Namespace]:
    """Yield a namespace and those below it, each before its children; of (): all of the catalog."""
    if top:
        yield top
    for child in source.namespaces(top):
        yield from list_namespaces(source, child)


def find_store(answer: Json, location: str) -> Options:
    """Return PyIceberg's properties for a table's store, of what a REST catalog answers: with the nearest keys."""
    found = dict(answer.get("config") or {})
    near = [one for one in answer.get("storage-credentials") or () if location.startswith(one["prefix"])]
    if near:
        found |= max(near, key=lambda one: len(one["prefix"]))["config"]
    return found
