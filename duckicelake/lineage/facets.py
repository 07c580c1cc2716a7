"""PURE. Tables and views as OpenLineage's datasets: facets without a value of data or of a property, save the owner."""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from openlineage.client.facet_v2 import (
    BaseFacet,
    catalog_dataset,
    dataset_type_dataset,
    dataset_version_dataset,
    datasource_dataset,
    ownership_dataset,
    schema_dataset,
    storage_dataset,
    symlinks_dataset,
)
from openlineage.client.serde import Serde

from duckicelake.lineage.naming import DatasetName, Lake
from duckicelake.lineage.producer import PRODUCER, schema_url
from duckicelake.lineage.told import Json, Schema, Told

Field = schema_dataset.SchemaDatasetFacetFields

TABLE: Final = "duckicelake_table"
DATA: Final = frozenset({"append", "delete", "overwrite", "replace"})
"""Kinds of changes that make a snapshot of a table's rows."""
MOST_FIELDS: Final = 5000
"""At any depth: what a schema has beyond them is left out."""
KEPT: Final = 500
"""Facets that are made once for all whose they are; nobody changes them."""


def as_json(facet: BaseFacet) -> Json:
    """A facet of OpenLineage's as we say it."""
    return {**Serde.to_dict(facet), "_producer": PRODUCER}


_VERSION: Final = as_json(dataset_version_dataset.DatasetVersionDatasetFacet(""))


def own(lake: Lake, key: str, **values: Any) -> Json:
    """A facet of our own; what is None isn't said."""
    said = {name: value for name, value in values.items() if value is not None}
    return {"_producer": PRODUCER, "_schemaURL": schema_url(lake, key), **said}


def symlinks(told: Told, lake: Lake) -> Json:
    """By which name the catalog knows it, and DuckLake, in whose schemas' names there may be dots."""
    change, kind = told.change, "VIEW" if told.is_view else "TABLE"
    table = own(lake, TABLE, namespace=change.namespace, name=change.name, objectId=change.object_id, uuid=change.uuid)
    return {**symlink(change.resource, kind, lake), TABLE: table}


@lru_cache(KEPT)
def symlink(resource: str, kind: str, lake: Lake) -> Json:
    """The facet with the catalog's name of it alone."""
    identifier = symlinks_dataset.Identifier(*lake.named(resource), type=kind)
    return {"symlinks": as_json(symlinks_dataset.SymlinksDatasetFacet([identifier]))}


def dataset_facets(told: Told, lake: Lake, name: DatasetName) -> Json:
    """What is true of a table or view after its change."""
    facets = dict(_constant(lake, name.namespace, is_view=told.is_view))
    version = None if told.is_view else _version(told)
    if version is not None:
        facets["version"] = {**_VERSION, "datasetVersion": version}
    if told.known.owner:
        facets["ownership"] = _ownership(told.known.owner)
    if told.known.schema is not None:
        facets["schema"] = _schema(told.known.schema)
    return facets


@lru_cache(KEPT)
def _constant(lake: Lake, namespace: str, *, is_view: bool) -> Json:
    """What is the same for all tables, or views, that lie in the namespace."""
    facets: dict[str, BaseFacet] = {
        "dataSource": datasource_dataset.DatasourceDatasetFacet(namespace, namespace),
        "datasetType": dataset_type_dataset.DatasetTypeDatasetFacet("VIEW" if is_view else "TABLE"),
        "catalog": catalog_dataset.CatalogDatasetFacet(
            framework="iceberg", type="rest", name="duckicelake", metadataUri=lake.uri, catalogProperties=None
        ),
    }
    if not is_view:
        facets["storage"] = storage_dataset.StorageDatasetFacet("iceberg", "parquet")
    return {key: as_json(facet) for key, facet in facets.items()}


def _version(told: Told) -> str | None:
    """Iceberg's snapshot, as engines name it; DuckDB's have DuckLake's number. None if the rows stay the same."""
    change = told.change
    if change.iceberg_snapshot_id is not None:
        return str(change.iceberg_snapshot_id)
    return str(change.snapshot_id) if change.source == "duckdb" and change.kind in DATA else None


@lru_cache(KEPT)
def _ownership(owner: str) -> Json:
    return as_json(ownership_dataset.OwnershipDatasetFacet([ownership_dataset.Owner(owner, "OWNER")]))


@lru_cache(KEPT)
def _schema(schema: Schema) -> Json:
    left = iter(range(MOST_FIELDS))
    return as_json(schema_dataset.SchemaDatasetFacet(fields=list(_of_struct(schema.json.get("fields") or (), left))))


def _of_struct(fields: Sequence[Mapping[str, Any]], left: Iterator[int]) -> Iterator[Field]:
    for field in fields:
        if next(left, None) is None:
            return
        yield _field(str(field["name"]), field.get("type"), field.get("doc"), left)


def _field(name: str, kind: Any, doc: object, left: Iterator[int]) -> Field:
    """A field and those in it, named as OpenLineage's integrations name what is in lists and maps."""
    text, inner = str(kind), None
    if isinstance(kind, Mapping):
        text = "array" if kind["type"] == "list" else str(kind["type"])
        inner = list(_inner(kind, left))
    return Field(name, text, doc if isinstance(doc, str) else None, fields=inner)


def _inner(kind: Mapping[str, Any], left: Iterator[int]) -> Iterator[Field]:
    parts = {"list": (("_element", "element"),), "map": (("key", "key"), ("value", "value"))}
    if kind["type"] == "struct":
        yield from _of_struct(kind["fields"], left)
    for name, key in parts.get(kind["type"], ()):
        if next(left, None) is not None:
            yield _field(name, kind[key], None, left)
