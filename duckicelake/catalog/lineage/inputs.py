"""What runs were made from, as far as the catalog saw their applications read: inputs that are guessed, and say so."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final

from duckicelake.catalog.lineage.reads import SESSION, inputs_of, reader_of
from duckicelake.lake import jobs
from duckicelake.lake.lineage import follower as lineage_follower
from duckicelake.lake.lineage import reads
from duckicelake.lake.postgres.database import Transaction
from duckicelake.lineage.facets import DATA, symlink
from duckicelake.lineage.inference import InferredInput, Write, application_of
from duckicelake.lineage.inferred_facets import input_facets, output_facets
from duckicelake.lineage.jobs import job_name
from duckicelake.lineage.naming import DatasetName, Lake, located
from duckicelake.lineage.runs import Run
from duckicelake.lineage.sql.files import file_of
from duckicelake.lineage.told import Json

JOB_KEY: Final = "duckicelake.job"
"""Key of a snapshot's summary, by which the pipeline says which of its jobs made it."""


class Inputs:
    """What some runs were made from; asked of each once, in their order. window: see `ReadLog`."""

    def __init__(self, cursor: Transaction, runs: Sequence[Run], window: timedelta) -> None:
        self._cursor = cursor
        self._window = window
        writes = [write for run in runs if (write := _write_of(run)) is not None]
        self._readers = reads.readers(cursor, [reader_of(write) for write in writes if write.is_known])

    def add(self, run: Run, body: Json, lake: Lake) -> Json:
        """The run's body with the files that its job read; else its inferred inputs, and what they mean for columns."""
        files = self._files(run)
        return {**body, "inputs": files} if files else self._with_inferred(run, body, lake)

    def _files(self, run: Run) -> list[Json]:
        """The places that the pipeline's job names, if the changes are a job's of the same principal."""
        first = run[0]
        job = first.summary.get(JOB_KEY)
        if job is None:
            return []
        found = jobs.inputs(self._cursor, str(job), first.change.principal)
        places = dict.fromkeys(place for each in found if (place := file_of(each)) is not None)
        return [{"namespace": each.namespace, "name": each.name, "facets": {}} for each in places]

    def _with_inferred(self, run: Run, body: Json, lake: Lake) -> Json:
        write = _write_of(run)
        if write is None or not write.is_known or not self._readers.have(reader_of(write)):
            return body
        found = inputs_of(self._cursor, write, self._window)
        if not found:
            return body
        places = lineage_follower.places(self._cursor, [each.table_id for each in found])
        inputs = [(each, located(places[each.table_id])) for each in found if each.table_id in places]
        told = [_input(each, name, lake) for each, name in inputs]
        outputs = [_output(output, inputs, lake) for output in body["outputs"]]
        name = job_name(run, lake, [each.table.rpartition(".")[0] for each, _ in inputs])
        return {**body, "job": {**body["job"], "name": name}, "inputs": told, "outputs": outputs}


def _write_of(run: Run) -> Write | None:
    """What the run wrote, if it wrote rows at all, or none where there might have been some."""
    kinds = [str(kind) for told in run for kind in told.facts.get("kinds") or (told.change.kind,)]
    written = [kind for kind in kinds if kind in DATA]
    outputs = frozenset(told.change.object_id for told in run if told.change.object_id is not None)
    first = run[0]
    operation = next(iter(written), first.summary.get("operation"))
    if operation is None or not outputs:
        return None
    return Write(
        first.change.at,
        first.change.principal,
        first.client.get(SESSION),
        application_of(first.summary),
        outputs,
        operation,
    )


def _input(found: InferredInput, name: DatasetName, lake: Lake) -> Json:
    facets = symlink(found.table, "TABLE", lake) | input_facets(lake, found)
    return {"namespace": name.namespace, "name": name.name, "facets": facets}


def _output(output: Json, inputs: Sequence[tuple[InferredInput, DatasetName]], lake: Lake) -> Json:
    schema: Mapping[str, Any] = output["facets"].get("schema") or {}
    columns = [field["name"] for field in schema.get("fields", ())]
    return {**output, "facets": {**output["facets"], **output_facets(lake, columns, inputs)}}
