"""PURE. What was inferred, as facets of OpenLineage datasets: nothing is certain, and each facet says how sure it is.

A filter's columns decide about whole rows: they are INDIRECT dependencies of the dataset. Of projected columns, those
named like a column that was written are its DIRECT candidates; the others are candidates of the columns that none is
named like.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from duckicelake.lineage.inference import InferredInput
from duckicelake.lineage.naming import DatasetName, Lake
from duckicelake.lineage.producer import PRODUCER, schema_url

FACET: Final = "duckicelake_inferred"
MOST_EDGES: Final = 2000
_COLUMN_LINEAGE: Final = "https://openlineage.io/spec/facets/1-2-0/ColumnLineageDatasetFacet.json"
_SAME_NAME: Final = 0.8
_OTHER_NAME: Final = 0.2
_FILTER: Final = 0.9
_MOST_CANDIDATES: Final = 8
"""Columns of other names: so many tell nothing any more."""


Input = tuple[InferredInput, DatasetName]


@dataclass(frozen=True, slots=True)
class _Edge:
    """A column of an input that a column of the output, or all of it (None), may depend on."""

    output: str | None
    dataset: DatasetName
    field: str
    confidence: float

    def as_input_field(self) -> dict[str, Any]:
        kind = {"type": "INDIRECT", "subtype": "FILTER"} if self.output is None else {"type": "DIRECT"}
        described = {**kind, "description": f"inferred, confidence {self.confidence}"}
        where = {"namespace": self.dataset.namespace, "name": self.dataset.name, "field": self.field}
        return {**where, "transformations": [described]}

    def as_inferred(self) -> dict[str, Any]:
        where = {"namespace": self.dataset.namespace, "name": self.dataset.name, "field": self.field}
        kind = "INDIRECT" if self.output is None else "DIRECT"
        return {"output": self.output, "input": where, "type": kind, "confidence": self.confidence}


def input_facets(lake: Lake, found: InferredInput) -> dict[str, Any]:
    """Facets of a dataset that was inferred to be an input."""
    columns = {"projected": list(found.projected), "filtered": list(found.filtered)}
    return {FACET: {**_head(lake, found.confidence, str(found.method)), "evidence": list(found.evidence), **columns}}


def output_facets(lake: Lake, columns: Sequence[str], inputs: Sequence[Input]) -> dict[str, Any]:
    """Facets of a dataset with these columns that was made from the inputs; none if nothing is known of columns."""
    edges = [*_direct(columns, inputs), *_indirect(inputs)][:MOST_EDGES]
    if not edges:
        return {}
    fields: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for edge in edges:
        if edge.output is not None:
            fields[edge.output].append(edge.as_input_field())
    lineage = {
        "_producer": PRODUCER,
        "_schemaURL": f"{_COLUMN_LINEAGE}#/$defs/ColumnLineageDatasetFacet",
        "fields": {name: {"inputFields": found} for name, found in fields.items()},
        "dataset": [edge.as_input_field() for edge in edges if edge.output is None],
    }
    head = _head(lake, max(edge.confidence for edge in edges), "columns of reported scans")
    return {"columnLineage": lineage, FACET: {**head, "columns": [edge.as_inferred() for edge in edges]}}


def _direct(columns: Sequence[str], inputs: Sequence[Input]) -> Iterator[_Edge]:
    projected = [(found, dataset, field) for found, dataset in inputs for field in found.projected]
    by_name: dict[str, list[tuple[InferredInput, DatasetName, str]]] = defaultdict(list)
    for each in projected:
        by_name[each[2].lower()].append(each)
    written = {name.lower() for name in columns}
    others = [each for each in projected if each[2].lower() not in written]
    for name in columns:
        same = by_name.get(name.lower(), [])
        candidates = same or (others if len(others) <= _MOST_CANDIDATES else [])
        share = (_SAME_NAME if same else _OTHER_NAME) / max(1, len(candidates))
        for found, dataset, field in candidates:
            yield _Edge(name, dataset, field, round(found.confidence * share, 3))


def _indirect(inputs: Sequence[Input]) -> Iterator[_Edge]:
    for found, dataset in inputs:
        for field in found.filtered:
            yield _Edge(None, dataset, field, round(found.confidence * _FILTER, 3))


def _head(lake: Lake, confidence: float, reason: str) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": schema_url(lake, FACET), "confidence": confidence, "reason": reason}
