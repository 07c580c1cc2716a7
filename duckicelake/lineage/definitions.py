"""PURE. Definitions of views as OpenLineage's jobs without runs: what a view is made of, and which column of which."""

from dataclasses import dataclass, replace
from typing import Final

from openlineage.client.event_v2 import JobEvent
from openlineage.client.facet_v2 import BaseFacet, job_type_job, sql_job

from duckicelake.lineage.facets import as_json
from duckicelake.lineage.jobs import named
from duckicelake.lineage.masking import LONGEST, masked, tells_values
from duckicelake.lineage.naming import Lake
from duckicelake.lineage.outputs import announced, outputs_of
from duckicelake.lineage.producer import PRODUCER
from duckicelake.lineage.run_facets import utc
from duckicelake.lineage.sql.facets import column_lineage
from duckicelake.lineage.sql.lineage import view_lineage
from duckicelake.lineage.sql.model import Dataset, Lineage, Lookup
from duckicelake.lineage.told import Json, Told

DEFINING: Final = frozenset({"create-view", "alter-view"})
_SCHEMA_URL: Final = JobEvent._get_schema()  # noqa: SLF001 - as the library itself would say it


@dataclass(frozen=True, slots=True)
class Definition:
    """What a view says. sql: as DuckLake keeps it; shown: for people. columns: their names, where it names them.

    literals: whether those of its SQL may be told.
    """

    sql: str
    shown: str
    dialect: str
    columns: tuple[str, ...] | None
    literals: bool = False


def definition_event(told: Told, definition: Definition, lookup: Lookup, lake: Lake) -> Json:
    """A view as it was created or altered, by its SQL; its lineage as far as that can be told."""
    view = Dataset(*told.dataset(lake), definition.columns)
    found = view_lineage(definition.sql, definition.dialect, view, lookup) or Lineage(())
    (output,) = announced(outputs_of([told], lake))
    columns = column_lineage(found if definition.literals else _without_values(found))
    facets = output["facets"] if columns is None else {**output["facets"], "columnLineage": columns}
    return {
        "eventTime": utc(told.change.at),
        "producer": PRODUCER,
        "schemaURL": _SCHEMA_URL,
        "job": _job(told, definition, lake),
        "inputs": [{"namespace": each.namespace, "name": each.name, "facets": {}} for each in found.inputs],
        "outputs": [{**output, "facets": facets}],
    }


def _job(told: Told, definition: Definition, lake: Lake) -> Json:
    facets: dict[str, BaseFacet] = {"jobType": job_type_job.JobTypeJobFacet("BATCH", "DUCKICELAKE", "VIEW")}
    sql = definition.shown[:LONGEST] if definition.literals else masked(definition.shown, definition.dialect)
    if sql:
        facets["sql"] = sql_job.SQLJobFacet(sql, definition.dialect)
    name = named(lake, "duckicelake", "view", [told.change.resource], None)
    return {"namespace": lake.uri, "name": name, "facets": {key: as_json(facet) for key, facet in facets.items()}}


def _without_values(found: Lineage) -> Lineage:
    """Without columns that are named after what their expressions say."""
    fields = {name: flow for name, flow in (found.fields or {}).items() if not tells_values(name)}
    return replace(found, fields=fields)
