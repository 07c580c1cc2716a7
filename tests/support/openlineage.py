"""OpenLineage's published schemas as the classes of its client library have them, which are generated from the schemas.

No package has the schemas themselves. What an event may be is read off the classes: names, which are required, types,
enumerations, and the `_schemaURL` of each facet.
"""

import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from typing import Any, Union, get_args, get_origin

import attr
import orjson
from jsonschema_rs import Draft202012Validator
from openlineage.client import facet_v2
from openlineage.client.event_v2 import JobEvent, RunEvent
from openlineage.client.generated.base import BaseFacet

from duckicelake.lineage.graph.export import read_facet_schema

Json = dict[str, Any]

FORMATS = {"eventTime": "date-time", "nominalStartTime": "date-time", "nominalEndTime": "date-time", "runId": "uuid"}
_BASE: Json = {"_producer": {}, "_schemaURL": {}}
FACETS: Mapping[str, Any] = {
    "catalog": facet_v2.catalog_dataset.CatalogDatasetFacet,
    "columnLineage": facet_v2.column_lineage_dataset.ColumnLineageDatasetFacet,
    "dataSource": facet_v2.datasource_dataset.DatasourceDatasetFacet,
    "datasetType": facet_v2.dataset_type_dataset.DatasetTypeDatasetFacet,
    "errorMessage": facet_v2.error_message_run.ErrorMessageRunFacet,
    "externalQuery": facet_v2.external_query_run.ExternalQueryRunFacet,
    "jobType": facet_v2.job_type_job.JobTypeJobFacet,
    "lifecycleStateChange": facet_v2.lifecycle_state_change_dataset.LifecycleStateChangeDatasetFacet,
    "nominalTime": facet_v2.nominal_time_run.NominalTimeRunFacet,
    "outputStatistics": facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet,
    "ownership": facet_v2.ownership_dataset.OwnershipDatasetFacet,
    "parent": facet_v2.parent_run.ParentRunFacet,
    "processing_engine": facet_v2.processing_engine_run.ProcessingEngineRunFacet,
    "schema": facet_v2.schema_dataset.SchemaDatasetFacet,
    "sql": facet_v2.sql_job.SQLJobFacet,
    "storage": facet_v2.storage_dataset.StorageDatasetFacet,
    "symlinks": facet_v2.symlinks_dataset.SymlinksDatasetFacet,
    "tags": facet_v2.tags_run.TagsRunFacet,
    "version": facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet,
}


def check_event(event: Json) -> None:
    """Raises if an event of a run or of a job, or a facet of it, isn't as the schemas have it."""
    kind: Any = RunEvent if "run" in event else JobEvent
    validator(kind).validate(event)
    assert event["schemaURL"] == kind._get_schema()
    facets = [*_facets(event.get("run", {})), *_facets(event["job"])]
    for dataset in (*event["inputs"], *event["outputs"]):
        facets += [*_facets(dataset), *_facets(dataset, "inputFacets"), *_facets(dataset, "outputFacets")]
    for key, facet in facets:
        validator(FACETS.get(key, BaseFacet)).validate(facet)
        if key in FACETS:
            assert facet["_schemaURL"] == FACETS[key]._get_schema()
        else:
            assert facet["_schemaURL"].endswith(f"/lineage/v1/facets/{key}.json")
            own(key).validate(facet)


@cache
def own(key: str) -> Draft202012Validator:
    """Of a facet that is ours, by the schema in the package, but for what it has from OpenLineage's base facet."""
    schema = read_facet_schema(key)
    assert schema is not None, f"{key} is no facet of OpenLineage's, and not ours"
    ours = orjson.loads(schema)["allOf"][1]
    return Draft202012Validator({**ours, "properties": {**_BASE, **ours["properties"]}, "additionalProperties": False})


def _facets(thing: Json, key: str = "facets") -> list[tuple[str, Json]]:
    return list((thing.get(key) or {}).items())


@cache
def validator(kind: type[Any]) -> Draft202012Validator:
    """Of JSON that is to be this class."""
    definitions: dict[str, Json] = {}
    return Draft202012Validator({**_schema(kind, definitions), "$defs": definitions}, validate_formats=True)


def _schema(kind: Any, definitions: dict[str, Json]) -> Json:
    origin = get_origin(kind)
    if origin in {Union, types.UnionType}:
        return {"anyOf": [_schema(each, definitions) for each in get_args(kind)]}
    if origin in {list, typing.List}:  # noqa: UP006
        return {"type": "array", "items": _schema(get_args(kind)[0], definitions)}
    if origin in {dict, Mapping}:
        return {"type": "object", "additionalProperties": _schema(get_args(kind)[1], definitions)}
    if isinstance(kind, type) and attr.has(kind):
        return _reference(kind, definitions)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [each.value for each in kind]}
    names = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
    return {"type": names[kind]} if kind in names else {}


def _reference(kind: type[Any], definitions: dict[str, Json]) -> Json:
    name = f"{kind.__module__}.{kind.__qualname__}"
    if name not in definitions:
        definitions[name] = {}
        definitions[name] = _class_schema(kind, definitions)
    return {"$ref": f"#/$defs/{name}"}


def _class_schema(kind: type[Any], definitions: dict[str, Json]) -> Json:
    """What isn't named may be there; where a field isn't required, null is no value for it."""
    hints = typing.get_type_hints(kind)
    fields = {field.name: field for field in attr.fields(kind)}
    required = [name for name, field in fields.items() if field.default is attr.NOTHING]
    written = [name for name in ("producer", "schemaURL", "_producer", "_schemaURL") if name in fields]
    properties = {name: _said(_schema(hints[name], definitions)) | _format(name) for name in fields}
    return {"type": "object", "required": [*required, *written], "properties": properties}


def _said(schema: Json) -> Json:
    kinds = [each for each in schema.get("anyOf", ()) if each != {"type": "null"}]
    if not kinds:
        return schema
    return kinds[0] if len(kinds) == 1 else {"anyOf": kinds}


def _format(name: str) -> Json:
    is_uri = name in {"producer", "schemaURL", "_producer", "_schemaURL"}
    found = "uri" if is_uri else FORMATS.get(name)
    return {} if found is None else {"format": found}
