"""PURE. Lineage of SQL as OpenLineage's facets (columnLineage, 1-2-0)."""

from collections.abc import Iterable
from typing import Any, Final

from duckicelake.lineage.producer import PRODUCER
from duckicelake.lineage.sql.model import Effect, Flow, Lineage, Origin

_COLUMN_LINEAGE: Final = (
    "https://openlineage.io/spec/facets/1-2-0/ColumnLineageDatasetFacet.json#/$defs/ColumnLineageDatasetFacet"
)


def column_lineage(lineage: Lineage) -> dict[str, Any] | None:
    """The facet of the output; None if no column of an input is known to matter."""
    fields = {name: {"inputFields": _inputs(flow)} for name, flow in (lineage.fields or {}).items() if flow}
    influence = lineage.influence or {}
    if not fields and not influence:
        return None
    facet = {"_producer": PRODUCER, "_schemaURL": _COLUMN_LINEAGE, "fields": fields}
    return {**facet, "dataset": _inputs(influence)} if influence else facet


def _inputs(flow: Flow) -> list[dict[str, Any]]:
    return [_input(origin, flow[origin]) for origin in sorted(flow, key=_order)]


def _order(origin: Origin) -> tuple[str, str, str]:
    return origin.dataset.namespace, origin.dataset.name, origin.column


def _input(origin: Origin, effects: Iterable[Effect]) -> dict[str, Any]:
    return {
        "namespace": origin.dataset.namespace,
        "name": origin.dataset.name,
        "field": origin.column,
        "transformations": [_transformation(each) for each in sorted(effects)],
    }


def _transformation(effect: Effect) -> dict[str, Any]:
    kind = "DIRECT" if effect.is_direct else "INDIRECT"
    return {"type": kind, "subtype": effect.subtype.value, "description": "", "masking": effect.masking}
