"""PURE. Manifests that were written before their metrics had a contract: which of them promise too much."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from duckicelake.bridge.artifacts import Definitions, Entries, manifest_facts
from duckicelake.bridge.entries import kept_metrics
from duckicelake.iceberg.manifest import FileContent
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.model import KnownColumns
from duckicelake.lake.state import ManifestRow

_BOUNDS: Final = ("lower_bounds", "upper_bounds")
_NANS: Final = "nan_value_counts"
_REPEATED: Final = ("files", "rows", "partitions", "first_row_id")
_NOTHING: Final = KnownColumns(go_by_name=False, without_nan=frozenset())


@dataclass(frozen=True, slots=True)
class Renewal:
    """What becomes of manifests of an older contract. metrics: of files of which more is known, by their ids."""

    kept: tuple[int, ...]
    forgotten: tuple[int, ...]
    metrics: Mapping[int, Mapping[str, Any]]


def renewal(
    manifests: Mapping[int, ManifestRow],
    entries: Mapping[int, Entries],
    definitions: Definitions,
    known: Mapping[int, KnownColumns],
) -> Renewal:
    """Sort manifests into those that keep the contract as they are, and those to be written anew."""
    completion = _Completion(definitions, known)
    forgotten = [
        manifest_id
        for manifest_id, manifest in manifests.items()
        if completion.is_stale(entries.get(manifest_id, ())) or _repeats_otherwise(manifest, entries, definitions)
    ]
    kept = manifests.keys() - set(forgotten)
    return Renewal(tuple(sorted(kept)), tuple(forgotten), completion.completed)


def _repeats_otherwise(manifest: ManifestRow, entries: Mapping[int, Entries], definitions: Definitions) -> bool:
    """Whether manifest lists would now say something else of the manifest."""
    said = manifest.facts or {}
    found = manifest_facts(manifest, entries.get(manifest.manifest_id, ()), definitions)
    return any(said.get(name) != found[name] for name in _REPEATED)


class _Completion:
    """Metrics with what DuckLake knows of their files besides, and without what was misread of its statistics."""

    def __init__(self, definitions: Definitions, known: Mapping[int, KnownColumns]) -> None:
        self._contract = definitions.contract
        self._known = known
        self._floats = _leaves_of(definitions, ("float", "double"))
        self._bytes = _leaves_of(definitions, ("binary", "fixed"))
        self.completed: dict[int, Mapping[str, Any]] = {}

    def is_stale(self, entries: Entries) -> bool:
        """Whether a manifest of these files, written as their metrics were, promises too much or lacks a map."""
        stale = False
        for _, file in entries:
            before = kept_metrics(file)
            known = self._known.get(file.ducklake_id or -1, _NOTHING) if file.content == FileContent.DATA else _NOTHING
            after = self._complete(before, known)
            if after != before:
                self.completed[file.file_id] = after
            stale = stale or _promises(before) != _promises(self._contract.published(file.content, after))
        return stale

    def _complete(self, metrics: Mapping[str, Any], known: KnownColumns) -> Mapping[str, Any]:
        counts = metrics.get(_NANS) or {}
        without = {key: 0 for key, field_id in self._floats.items() if field_id in known.without_nan} | counts
        found = {**metrics, _NANS: without} if without else dict(metrics)
        for name in _BOUNDS if known.go_by_name else ():
            bounds = metrics.get(name) or {}
            if bounds.keys() & self._bytes.keys():
                found[name] = {key: bound for key, bound in bounds.items() if key not in self._bytes}
        return found


def _promises(metrics: Mapping[str, Any]) -> tuple[object, ...]:
    return "column_sizes" in metrics, *(metrics.get(name) or {} for name in _BOUNDS)


def _leaves_of(definitions: Definitions, names: Iterable[str]) -> dict[str, int]:
    """The ids of columns of the types, by how metrics write them."""
    leaves: dict[int, PrimitiveType] = {}
    for schema in definitions.schemas:
        leaves |= schema.leaves()
    return {str(field_id): field_id for field_id, kind in leaves.items() if kind.name in set(names)}
