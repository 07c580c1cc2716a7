"""The rows of a graph that sides of events come to: what runs did with datasets, and from where to where things go."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from duckicelake.lake.lineage.entries import Entry
from duckicelake.lake.lineage.runs import Run
from duckicelake.lake.lineage.told import Column, Dataset, Event, Name

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Side:
    """An input or output of an event that was kept, and the dataset that it was found to be."""

    event_id: int
    event: Event
    told: Dataset
    entry: Entry
    is_output: bool


@dataclass(frozen=True, slots=True)
class Rows:
    """ids: of the datasets. runs: those of the events, which tell the jobs that they are of."""

    id_of: Callable[[Entry], int]
    job_ids: Mapping[Name, int]
    runs: Mapping[UUID, Run]

    def io(self, sides: Iterable[Side]) -> list[Row]:
        """What each run did with each dataset; sides are in the order of their times."""
        found: dict[tuple[UUID, int, bool], Row] = {}
        for side in sides:
            if side.event.run is None:
                continue
            key = (side.event.run, self.id_of(side.entry), side.is_output)
            before = found.get(key)
            confidence = side.told.confidence
            if before and (before["confidence"] is None or confidence is None):
                confidence = None
            found[key] = {
                "run_id": key[0],
                "dataset_id": key[1],
                "is_output": key[2],
                "job_id": self._job(side.event),
                "at": side.event.at,
                "version": side.told.version or (before and before["version"]),
                "lifecycle": side.told.lifecycle or (before and before["lifecycle"]),
                "confidence": confidence,
                "has_columns": side.told.has_columns or bool(before and before["has_columns"]),
                "event_id": side.event_id,
            }
        return list(found.values())

    def job_io(self, sides: Iterable[Side]) -> list[Row]:
        """What each job does with each dataset."""
        return [
            {
                "job_id": self._job(side.event),
                "dataset_id": self.id_of(side.entry),
                "is_output": side.is_output,
                "at": side.event.at,
            }
            for side in sides
            if side.event.job is not None
        ]

    def columns(self, made_of: Iterable[tuple[Side, Column, Entry]], sides: Iterable[Side]) -> list[Row]:
        """From which fields the fields of outputs come; as sure as it is said of them, or else of the input."""
        inputs = {(side.event_id, self.id_of(side.entry)): side.told.confidence for side in sides if not side.is_output}
        rows = []
        for side, column, entry in made_of:
            source = self.id_of(entry)
            own = column.confidence
            rows.append(
                {
                    "source": source,
                    "source_field": column.source_field,
                    "target": self.id_of(side.entry),
                    "target_field": column.target_field,
                    "job_id": self._job(side.event),
                    "kind": column.kind,
                    "subtype": column.subtype,
                    "description": column.description,
                    "is_masked": column.is_masked,
                    "at": side.event.at,
                    "confidence": inputs.get((side.event_id, source)) if own is None else own,
                }
            )
        return rows

    def edges(self, columns: Iterable[Row], sides: Sequence[Side]) -> list[Row]:
        """Between datasets: those that columns tell of, and those of definitions of jobs, of which there is no run."""
        kept = ("source", "target", "job_id", "at", "confidence")
        return [*({name: row[name] for name in kept} for row in columns), *self._defined(sides)]

    def _defined(self, sides: Sequence[Side]) -> Iterator[Row]:
        by_event: dict[int, list[Side]] = {}
        for side in sides:
            if side.event.run is None:
                by_event.setdefault(side.event_id, []).append(side)
        for told in by_event.values():
            outputs = [side for side in told if side.is_output]
            for output in outputs:
                if output.told.has_columns and len(outputs) > 1:
                    continue
                for given in told:
                    if not given.is_output:
                        yield {
                            "source": self.id_of(given.entry),
                            "target": self.id_of(output.entry),
                            "job_id": self._job(output.event),
                            "at": output.event.at,
                            "confidence": given.told.confidence,
                        }

    def definitions(self, sides: Iterable[Side]) -> list[Row]:
        """Outputs of which it is told anew from what they come: all of a job's, and datasets with their columns."""
        defined = [each for each in sides if each.event.run is None and (each.event.job or each.told.has_columns)]
        newest: dict[tuple[int, int], Row] = {}
        for side in defined:
            target, job_id = self.id_of(side.entry), self._job(side.event)
            newest[target, job_id] = {"target": target, "job_id": job_id, "at": side.event.at}
        return list(newest.values())

    def _job(self, event: Event) -> int:
        """0 where there is none."""
        if event.run is not None:
            return self.runs[event.run].job_id
        return self.job_ids[event.job] if event.job is not None else 0
