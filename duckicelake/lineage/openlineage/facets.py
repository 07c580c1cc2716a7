"""PURE. Tables and views as OpenLineage datasets: facets without data values, and run outputs with their counts."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from openlineage.client.facet_v2 import (
    BaseFacet,
    catalog_dataset,
    dataset_type_dataset,
    dataset_version_dataset,
    datasource_dataset,
    lifecycle_state_change_dataset,
    output_statistics_output_dataset,
    ownership_dataset,
    schema_dataset,
    storage_dataset,
    symlinks_dataset,
)
from openlineage.client.serde import Serde

from duckicelake.lineage.openlineage.changes import CatalogChange, Json, TableSchema
from duckicelake.lineage.openlineage.names import PRODUCER, DatasetName, NamedLake, build_schema_url

Field = schema_dataset.SchemaDatasetFacetFields
TABLE: Final = "duckicelake_table"
DATA: Final = frozenset({"append", "delete", "overwrite", "replace"})
"""Kinds of changes that make a snapshot of a table's rows."""
MAX_FIELDS: Final = 5000
"""Fields of a schema facet, at any depth; further ones are left out."""
KEPT_PROPERTIES: Final = 500
"""Cached facets that datasets share; callers must not change them."""
CHANGE: Final = "duckicelake_change"
_LIFECYCLES: Final[Mapping[str, str]] = {
    "create-table": "CREATE",
    "create-view": "CREATE",
    "drop-table": "DROP",
    "drop-view": "DROP",
    "rename-table": "RENAME",
    "rename-view": "RENAME",
    "alter-table": "ALTER",
    "alter-view": "ALTER",
    "update-table": "ALTER",
}
_COUNTED: Final[Mapping[str, str]] = {
    "added-records": "addedRecords",
    "deleted-records": "deletedRecords",
    "added-data-files": "addedDataFiles",
    "deleted-data-files": "deletedDataFiles",
    "added-files-size": "addedFilesSize",
}
"""Counts by Iceberg's names, with their names in this package's facet."""
_IN_STATISTICS: Final = {"added-records": "rowCount", "added-files-size": "size", "added-data-files": "fileCount"}
_BY_WEIGHT: Final = ("DROP", "CREATE", "RENAME", "TRUNCATE", "OVERWRITE", "ALTER")
"""Lifecycle states by weight: of several changes of a dataset, the event has the first one."""


def encode_facet(facet: BaseFacet) -> Json:
    """Encode a facet of OpenLineage's."""
    return {**Serde.to_dict(facet), "_producer": PRODUCER}


_VERSION: Final = encode_facet(dataset_version_dataset.DatasetVersionDatasetFacet(""))


def build_own_facet(lake: NamedLake, key: str, **values: Any) -> Json:
    """Build a facet of this package; None values are left out."""
    said = {name: value for name, value in values.items() if value is not None}
    return {"_producer": PRODUCER, "_schemaURL": build_schema_url(lake, key), **said}


def build_symlinks(catalog_change: CatalogChange, lake: NamedLake) -> Json:
    """Build the object's names in the catalog and in DuckLake, whose schemas may contain dots."""
    change, kind = catalog_change.change, "VIEW" if catalog_change.is_view else "TABLE"
    table = build_own_facet(
        lake, TABLE, namespace=change.namespace, name=change.name, objectId=change.object_id, uuid=change.uuid
    )
    return {**build_symlink(change.resource, kind, lake), TABLE: table}


@lru_cache(KEPT_PROPERTIES)
def build_symlink(resource: str, kind: str, lake: NamedLake) -> Json:
    """Build the facet with only the catalog's name."""
    identifier = symlinks_dataset.Identifier(*lake.name_dataset(resource), type=kind)
    return {"symlinks": encode_facet(symlinks_dataset.SymlinksDatasetFacet([identifier]))}


def build_dataset_facets(catalog_change: CatalogChange, lake: NamedLake, name: DatasetName) -> Json:
    """Build the facets of a table or view after its change."""
    facets = dict(_build_constant_facets(lake, name.namespace, is_view=catalog_change.is_view))
    version = None if catalog_change.is_view else _build_version(catalog_change)
    if version is not None:
        facets["version"] = {**_VERSION, "datasetVersion": version}
    if catalog_change.known.owner:
        facets["ownership"] = _build_ownership(catalog_change.known.owner)
    if catalog_change.known.schema is not None:
        facets["schema"] = _build_schema(catalog_change.known.schema)
    return facets


@lru_cache(KEPT_PROPERTIES)
def _build_constant_facets(lake: NamedLake, namespace: str, *, is_view: bool) -> Json:
    """Build the facets that all tables, or views, of a namespace share."""
    facets: dict[str, BaseFacet] = {
        "dataSource": datasource_dataset.DatasourceDatasetFacet(namespace, namespace),
        "datasetType": dataset_type_dataset.DatasetTypeDatasetFacet("VIEW" if is_view else "TABLE"),
        "catalog": catalog_dataset.CatalogDatasetFacet(
            framework="iceberg", type="rest", name="duckicelake", metadataUri=lake.uri, catalogProperties=None
        ),
    }
    if not is_view:
        facets["storage"] = storage_dataset.StorageDatasetFacet("iceberg", "parquet")
    return {key: encode_facet(facet) for key, facet in facets.items()}


def _build_version(catalog_change: CatalogChange) -> str | None:
    """Return the dataset's version: Iceberg's snapshot id.

    DuckDB's snapshots have DuckLake's number. None if the rows stay the same.
    """
    change = catalog_change.change
    if change.iceberg_snapshot_id is not None:
        return str(change.iceberg_snapshot_id)
    return str(change.snapshot_id) if change.source == "duckdb" and change.kind in DATA else None


@lru_cache(KEPT_PROPERTIES)
def _build_ownership(owner: str) -> Json:
    return encode_facet(ownership_dataset.OwnershipDatasetFacet([ownership_dataset.Owner(owner, "OWNER")]))


@lru_cache(KEPT_PROPERTIES)
def _build_schema(schema: TableSchema) -> Json:
    left = iter(range(MAX_FIELDS))
    return encode_facet(
        schema_dataset.SchemaDatasetFacet(fields=list(_iterate_struct(schema.json.get("fields") or (), left)))
    )


def _iterate_struct(fields: Sequence[Mapping[str, Any]], left: Iterator[int]) -> Iterator[Field]:
    for field in fields:
        if next(left, None) is None:
            return
        yield _build_field(str(field["name"]), field.get("type"), field.get("doc"), left)


def _build_field(name: str, kind: Any, doc: object, left: Iterator[int]) -> Field:
    """Build a field with its nested fields. Elements, keys and values have the names of OpenLineage's integrations."""
    text, inner = str(kind), None
    if isinstance(kind, Mapping):
        text = "array" if kind["type"] == "list" else str(kind["type"])
        inner = list(_iterate_inner(kind, left))
    return Field(name, text, doc if isinstance(doc, str) else None, fields=inner)


def _iterate_inner(kind: Mapping[str, Any], left: Iterator[int]) -> Iterator[Field]:
    parts = {"list": (("_element", "element"),), "map": (("key", "key"), ("value", "value"))}
    if kind["type"] == "struct":
        yield from _iterate_struct(kind["fields"], left)
    for name, key in parts.get(kind["type"], ()):
        if next(left, None) is not None:
            yield _build_field(name, kind[key], None, left)


_STATISTICS: Final = encode_facet(output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet())


def build_outputs(catalog_changes: Sequence[CatalogChange], lake: NamedLake) -> list[Json]:
    """Build the output datasets of a run's changes, in order. Namespaces are none."""
    return [_build_output(group, lake) for group in _group_by_object(catalog_changes)]


def strip_to_names(outputs: Sequence[Json]) -> list[Json]:
    """Strip outputs to their names, as in a START event."""
    kept = ("symlinks", "duckicelake_table")
    return [
        {
            "namespace": output["namespace"],
            "name": output["name"],
            "facets": {key: facet for key, facet in output["facets"].items() if key in kept},
        }
        for output in outputs
    ]


def add_counts(output: Json, counts: Mapping[str, int]) -> Json:
    """Replace an output's counts, by Iceberg's names, for example by those of all batches of a stream so far."""
    said = dict(output["outputFacets"])
    said[CHANGE] = {**said[CHANGE], **_rename_counts(counts)}
    return {**output, "outputFacets": {**said, "outputStatistics": _build_statistics(counts)}}


def sum_counts(catalog_changes: Sequence[CatalogChange]) -> dict[str, int]:
    """Sum rows, files and bytes that the changes added and removed, as far as known."""
    counts: dict[str, int] = {}
    for catalog_change in catalog_changes:
        metrics = catalog_change.facts.get("metrics") or {}
        for key in _COUNTED:
            if metrics.get(key) is not None:
                counts[key] = counts.get(key, 0) + int(metrics[key])
    return counts


def _group_by_object(catalog_changes: Sequence[CatalogChange]) -> list[list[CatalogChange]]:
    found: dict[object, list[CatalogChange]] = {}
    for catalog_change in catalog_changes:
        if catalog_change.change.name is not None:
            key = (
                catalog_change.change.resource
                if catalog_change.change.object_id is None
                else catalog_change.change.object_id
            )
            found.setdefault(key, []).append(catalog_change)
    return list(found.values())


def _build_output(catalog_changes: Sequence[CatalogChange], lake: NamedLake) -> Json:
    last = catalog_changes[-1]
    name = last.dataset(lake)
    facets = build_symlinks(last, lake) | build_dataset_facets(last, lake, name)
    lifecycle = _build_lifecycle(catalog_changes, lake)
    if lifecycle is not None:
        facets["lifecycleStateChange"] = lifecycle
    counts = sum_counts(catalog_changes)
    kinds = list(dict.fromkeys(kind for catalog_change in catalog_changes for kind in _collect_kinds(catalog_change)))
    position = f"{last.change.snapshot_id}.{last.change.ordinal}"
    said = {CHANGE: build_own_facet(lake, CHANGE, kinds=kinds, position=position, **_rename_counts(counts))}
    if DATA.intersection(kinds):
        said["outputStatistics"] = _build_statistics(counts)
    return {"namespace": name.namespace, "name": name.name, "facets": facets, "outputFacets": said}


def _collect_kinds(catalog_change: CatalogChange) -> list[str]:
    return [str(kind) for kind in catalog_change.facts.get("kinds") or (catalog_change.change.kind,)]


def _build_statistics(counts: Mapping[str, int]) -> Json:
    return {**_STATISTICS, **{name: counts[key] for key, name in _IN_STATISTICS.items() if key in counts}}


def _build_lifecycle(catalog_changes: Sequence[CatalogChange], lake: NamedLake) -> Json | None:
    done = {
        state: catalog_change
        for catalog_change in catalog_changes
        for kind in _collect_kinds(catalog_change)
        if (state := _find_state(kind, catalog_change)) is not None
    }
    state = next((change_kind for change_kind in _BY_WEIGHT if change_kind in done), None)
    if state is None:
        return None
    previous = done[state].change.previous if state == "RENAME" else None
    identifier = None
    if previous is not None:
        former = lake.name_dataset(previous)
        identifier = lifecycle_state_change_dataset.PreviousIdentifier(name=former.name, namespace=former.namespace)
    change = lifecycle_state_change_dataset.LifecycleStateChange(state)
    return encode_facet(lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet(change, identifier))


def _find_state(kind: str, catalog_change: CatalogChange) -> str | None:
    """Find the lifecycle state of a change. A table is overwritten if all of its rows were written anew."""
    if kind in {"delete", "overwrite"}:
        metrics = catalog_change.facts.get("metrics") or {}
        total, added = _read_number(metrics, "total-records"), _read_number(metrics, "added-records") or 0
        if not _read_number(metrics, "deleted-records"):
            return None
        if total == 0:
            return "TRUNCATE"
        is_whole = kind == "overwrite" and total == added
        return "OVERWRITE" if is_whole or catalog_change.summary.get("replace-partitions") == "true" else None
    return _LIFECYCLES.get(kind)


def _read_number(metrics: Mapping[str, Any], key: str) -> int | None:
    return None if metrics.get(key) is None else int(metrics[key])


def _rename_counts(counts: Mapping[str, int]) -> dict[str, int]:
    """Rename counts to the names of facets."""
    return {_COUNTED[key]: value for key, value in counts.items()}
