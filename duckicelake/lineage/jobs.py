"""PURE. Which job a change is of: what one program does again and again to the same tables, for one principal."""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Final

import orjson
from openlineage.client.facet_v2 import job_type_job

from duckicelake.lineage.engines import engine_of, is_streaming
from duckicelake.lineage.facets import KEPT, as_json
from duckicelake.lineage.naming import Lake
from duckicelake.lineage.told import Json, Told

_BY_WEIGHT: Final = (
    "create-table",
    "overwrite",
    "append",
    "delete",
    "replace",
    "create-view",
    "alter-view",
    "alter-table",
    "update-table",
)
"""Of several things done at once, a job is named by the one that says most."""
_TYPES: Final = {"append": "WRITE", "overwrite": "WRITE", "delete": "WRITE", "replace": "MAINTENANCE"}
_LONGEST: Final = 100
_SEVERAL: Final = "several-namespaces"
"""Instead of a table's name, which not everybody may know who may know of the job."""


def job_name(tolds: Sequence[Told], lake: Lake, others: Iterable[str] = ()) -> str:
    """`program.what.table.hash`: the same as long as all of that, and the principal, is.

    others: namespaces of tables that the job reads. Who may read one of them may know of the job, and not the table.
    """
    engine = engine_of(tolds[0])
    program, verb, principal = engine.application_name or engine.name, verb_of(tolds), principal_of(tolds[0])
    resources = list(dict.fromkeys(told.change.resource for told in tolds))
    is_of_one = len({told.change.namespace for told in tolds} | set(others)) == 1
    return named(lake, program, verb, resources, principal, subject=None if is_of_one else _SEVERAL)


def job_of(tolds: Sequence[Told], lake: Lake) -> Json:
    """The job of a run's changes."""
    first, verb = tolds[0], verb_of(tolds)
    processing = "STREAMING" if is_streaming(first) else "BATCH"
    job_type = _job_type(processing, engine_of(first).name.upper(), _TYPES.get(verb, "DDL"))
    return {"namespace": lake.uri, "name": job_name(tolds, lake), "facets": {"jobType": job_type}}


@lru_cache(KEPT)
def _job_type(processing: str, integration: str, job_type: str) -> Json:
    return as_json(job_type_job.JobTypeJobFacet(processing, integration, job_type))


def identity_of(name: str) -> str:
    """The part of a job's name that is the same whether or not the name tells the table."""
    return name.rpartition(".")[2]


def tells_table(name: str) -> bool:
    """Whether a job's name may tell that of a table."""
    return f".{_SEVERAL}." not in name


def verb_of(tolds: Sequence[Told]) -> str:
    """What was done, as the chronicle calls it."""
    kinds = [str(told.change.kind) for told in tolds]
    return next((kind for kind in _BY_WEIGHT if kind in kinds), kinds[0])


def named(
    lake: Lake, program: str, verb: str, resources: Sequence[str], principal: str | None, subject: str | None = None
) -> str:
    """The name with the hash of all that makes it this job and no other. subject: instead of the first resource."""
    identity = [str(lake.id), principal, program, verb, sorted(resources)]
    digest = blake2b(orjson.dumps(identity), digest_size=4).hexdigest()
    others = f"+{len(resources) - 1}" if len(resources) > 1 else ""
    return f"{program[:_LONGEST]}.{verb}.{subject or resources[0][:_LONGEST] + others}.{digest}"


def principal_of(told: Told) -> str | None:
    """Who did it: a principal of the catalog, or whom DuckDB calls the author of its commit."""
    return told.change.principal or told.facts.get("author")
