"""PURE. Parse a checked OpenLineage event, or single facets of one, as far as the graph needs them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson

Json = Mapping[str, Any]
FLOWING: Final = frozenset({"COMPLETE", "RUNNING", "OTHER"})
"""Types of events after which data has flowed; before them it is only planned."""
INFERRED: Final = "duckicelake_inferred"
TABLE: Final = "duckicelake_table"
_NOT_A_TABLE: Final = frozenset({"LOCATION"})
_KEPT: Final = 2000
"""Cached keys of names: most names repeat."""
_MAX_KEPT_CHARS: Final = 2000
"""Characters of a cached name."""


def read_word(facet: object, key: str) -> str | None:
    """Read a text in a facet that isn't empty."""
    said = facet.get(key) if isinstance(facet, Mapping) else None
    return said if isinstance(said, str) and said else None


def read_facet_word(facets: Mapping[str, Any], facet: str, key: str) -> str | None:
    """Read a text in the facet of this name."""
    return read_word(facets.get(facet), key)


def read_field_names(fields: object, around: str = "") -> Iterator[str]:
    """Read the names of the fields of `schema` and nested ones, as `address` and `address.city`."""
    for field in fields if isinstance(fields, list) else ():
        name = read_word(field, "name")
        if name is not None:
            yield around + name
            yield from read_field_names(field.get("fields"), f"{around}{name}.")


def read_engine(facet: object) -> str | None:
    """Read the engine of `processing_engine`, with its version."""
    name, version = read_word(facet, "name"), read_word(facet, "version")
    return name if name is None or version in {None, "unknown"} else f"{name} {version}"


class EventName(NamedTuple):
    """OpenLineage's name of a dataset or a job."""

    namespace: str
    name: str

    @property
    def key(self) -> UUID:
        """A short key for indexes."""
        return _hash_key(self) if len(self.namespace) + len(self.name) > _MAX_KEPT_CHARS else _kept_key(self)


def _hash_key(name: EventName) -> UUID:
    return hash_json([name.namespace, name.name])


_kept_key = lru_cache(_KEPT)(_hash_key)


class LakeTable(NamedTuple):
    """A table or view of the lake, by DuckLake's names."""

    schema_name: str
    table_name: str

    @property
    def dotted(self) -> str:
        """The name in symlinks. Other tables may have the same, since names of tables may contain dots."""
        return f"{self.schema_name}.{self.table_name}"

    @classmethod
    def cut(cls, dotted: str) -> "LakeTable | None":
        """Return the most likely table of a dotted name."""
        schema_name, dot, table_name = dotted.rpartition(".")
        return cls(schema_name, table_name) if dot else None


@dataclass(frozen=True, slots=True)
class EventColumn:
    """A source of a field. target_field: '' if the source decides about whole rows. kind: DIRECT or INDIRECT.

    confidence: None if it isn't inferred by itself.
    """

    source: EventName
    source_field: str
    target_field: str
    kind: str
    subtype: str
    description: str | None
    is_masked: bool
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class EventDataset:
    """An input or output. tables: its names besides the location's. table: if stated exactly.

    confidence: None if it wasn't inferred.
    """

    name: EventName
    tables: tuple[EventName, ...]
    table: LakeTable | None
    kind: str
    previous: EventName | None
    lifecycle: str | None
    version: str | None
    confidence: float | None
    facets: Json
    columns: tuple[EventColumn, ...]
    has_columns: bool

    @property
    def is_located(self) -> bool:
        """Whether its name is a location's, not a table's."""
        return bool(self.tables) and self.name not in self.tables

    def names(self) -> Iterator[EventName]:
        """Yield all names in the event, with those of the columns' sources."""
        yield self.name
        yield from self.tables
        if self.previous is not None:
            yield self.previous
        yield from (column.source for column in self.columns)


@dataclass(frozen=True, slots=True)
class ParsedEvent:
    """An event. type: None for a job or dataset event, which has no run; a dataset event has no job and one output."""

    at: datetime
    type: str | None
    run: UUID | None
    job: EventName | None
    inputs: tuple[EventDataset, ...]
    outputs: tuple[EventDataset, ...]
    run_facets: Json
    job_facets: Json

    @property
    def flows(self) -> bool:
        return self.run is None or self.type in FLOWING

    def datasets(self) -> Iterator[EventDataset]:
        yield from self.inputs
        yield from self.outputs


def hash_json(value: object) -> UUID:
    """Hash JSON; equal JSON has equal hashes."""
    return UUID(bytes=blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).digest())


def parse_event(event: Json) -> ParsedEvent:
    """Parse an event; ValueError or KeyError: it is none."""
    run, job = event.get("run") or {}, event.get("job")
    facets = run.get("facets") or {}
    confidence = _parse_confidence(facets)
    outputs = event.get("outputs") or ()
    if "dataset" in event:
        outputs = (event["dataset"],)
    return ParsedEvent(
        at=parse_time(event["eventTime"]),
        type=(event.get("eventType") or "OTHER").upper() if run else None,
        run=UUID(run["runId"]) if run else None,
        job=EventName(job["namespace"], job["name"]) if job else None,
        inputs=tuple(
            _parse_dataset(parsed_input, "inputFacets", confidence) for parsed_input in event.get("inputs") or ()
        ),
        outputs=tuple(_parse_dataset(output, "outputFacets", confidence) for output in outputs),
        run_facets=facets,
        job_facets=(job or {}).get("facets") or {},
    )


def parse_time(text: str) -> datetime:
    """Parse a time to UTC, which is also the zone of times without one; ValueError."""
    parsed = datetime.fromisoformat(text)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)


def _parse_dataset(parsed: Json, of_this_run: str, confidence: float | None) -> EventDataset:
    facets = parsed.get("facets") or {}
    change = facets.get("lifecycleStateChange") or {}
    previous = change.get("previousIdentifier")
    symlinks = (facets.get("symlinks") or {}).get("identifiers") or ()
    tables = tuple(
        EventName(symlink["namespace"], symlink["name"])
        for symlink in symlinks
        if symlink.get("type") not in _NOT_A_TABLE
    )
    ours = facets.get(TABLE)
    own = [_parse_confidence(facets), _parse_confidence(parsed.get(of_this_run) or {}), confidence]
    columns = facets.get("columnLineage")
    return EventDataset(
        name=EventName(parsed["namespace"], parsed["name"]),
        tables=tables,
        table=LakeTable(ours["namespace"], ours["name"]) if ours else None,
        kind=_parse_kind(facets, symlinks),
        previous=EventName(previous["namespace"], previous["name"]) if previous else None,
        lifecycle=change.get("lifecycleStateChange"),
        version=(facets.get("version") or {}).get("datasetVersion"),
        confidence=next((known_confidence for known_confidence in own if known_confidence is not None), None),
        facets=facets,
        columns=tuple(_add_confidence(_parse_columns(columns or {}), facets.get(INFERRED))),
        has_columns=columns is not None,
    )


def _parse_kind(facets: Json, symlinks: Sequence[Json]) -> str:
    kind = (facets.get("datasetType") or {}).get("datasetType")
    if kind:
        return str(kind).upper()
    types = [str(symlink.get("type")).upper() for symlink in symlinks]
    return "VIEW" if "VIEW" in types else "TABLE" if symlinks else "DATASET"


def _parse_confidence(facets: Json) -> float | None:
    inferred = facets.get(INFERRED)
    return None if inferred is None else float(inferred.get("confidence", 0.5))


def _add_confidence(columns: Iterator[EventColumn], inferred: Json | None) -> Iterator[EventColumn]:
    """Yield the columns with their confidence, each column's own or the dataset's."""
    if inferred is None:
        yield from columns
        return
    whole = None if "columns" in inferred else _parse_confidence({INFERRED: inferred})
    own = {
        _parse_place(inferred_column): float(inferred_column["confidence"])
        for inferred_column in inferred.get("columns") or ()
    }
    for column in columns:
        place = (column.source, column.source_field, column.target_field)
        yield replace(column, confidence=own.get(place, whole))


def _parse_place(inferred: Json) -> tuple[EventName, str, str]:
    source = inferred["input"]
    return EventName(source["namespace"], source["name"]), source["field"], inferred.get("output") or ""


def _parse_columns(facet: Json) -> Iterator[EventColumn]:
    for field, made_of in (facet.get("fields") or {}).items():
        for source in made_of.get("inputFields") or ():
            yield from _parse_transformations(field, source, made_of.get("transformationType"))
    for source in facet.get("dataset") or ():
        yield from _parse_transformations("", source, None)


def _parse_transformations(field: str, source: Json, subtype: str | None) -> Iterator[EventColumn]:
    """Yield an edge for each transformation.

    Without any, as in the facet's first versions, the field's own type counts.
    """
    name, place = EventName(source["namespace"], source["name"]), source["field"]
    default = {"type": "DIRECT" if field else "INDIRECT", "subtype": subtype}
    for transformation in source.get("transformations") or (default,):
        kind, how = str(transformation.get("type") or default["type"]), transformation.get("subtype") or ""
        yield EventColumn(
            name,
            place,
            field,
            kind,
            how,
            transformation.get("description") or None,
            bool(transformation.get("masking")),
        )
