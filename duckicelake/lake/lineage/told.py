"""What an event of OpenLineage tells, as far as the graph is made of it. The event is one that was checked, or ours."""

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
"""Types of events by which something has gone from the inputs to the outputs; before them it is only meant to."""

INFERRED: Final = "duckicelake_inferred"
TABLE: Final = "duckicelake_table"
_NOT_A_TABLE: Final = frozenset({"LOCATION"})
_KEPT: Final = 2000
"""Names whose keys are kept: most are told again and again."""
_LONGEST_KEPT: Final = 2000
"""Letters."""


class Name(NamedTuple):
    """What OpenLineage calls a dataset or a job."""

    namespace: str
    name: str

    @property
    def key(self) -> UUID:
        """As short as an index wants it."""
        return _key(self) if len(self.namespace) + len(self.name) > _LONGEST_KEPT else _kept_key(self)


def _key(name: Name) -> UUID:
    return digest([name.namespace, name.name])


_kept_key = lru_cache(_KEPT)(_key)


class LakeTable(NamedTuple):
    """A table or view of the lake, by DuckLake's names."""

    schema_name: str
    table_name: str

    @property
    def dotted(self) -> str:
        """As symlinks name it. Other tables may be named so, too, since names of tables may hold dots."""
        return f"{self.schema_name}.{self.table_name}"

    @classmethod
    def cut(cls, dotted: str) -> "LakeTable | None":
        """What is most likely meant by a dotted name."""
        schema_name, dot, table_name = dotted.rpartition(".")
        return cls(schema_name, table_name) if dot else None


@dataclass(frozen=True, slots=True)
class Column:
    """What a field is made of. target_field: '' where the source decides about whole rows. kind: DIRECT or INDIRECT.

    confidence: None where it isn't inferred by itself.
    """

    source: Name
    source_field: str
    target_field: str
    kind: str
    subtype: str
    description: str | None
    is_masked: bool
    confidence: float | None = None


@dataclass(frozen=True, slots=True)
class Dataset:
    """An input or output. tables: its names besides that of the place. table: if that is said exactly.

    confidence: None where it wasn't inferred.
    """

    name: Name
    tables: tuple[Name, ...]
    table: LakeTable | None
    kind: str
    previous: Name | None
    lifecycle: str | None
    version: str | None
    confidence: float | None
    facets: Json
    columns: tuple[Column, ...]
    has_columns: bool

    @property
    def is_located(self) -> bool:
        """Whether its name is that of a place, not a table's."""
        return bool(self.tables) and self.name not in self.tables

    def names(self) -> Iterator[Name]:
        """All that are told, of what it is made of, too."""
        yield self.name
        yield from self.tables
        if self.previous is not None:
            yield self.previous
        yield from (column.source for column in self.columns)


@dataclass(frozen=True, slots=True)
class Event:
    """type: None for an event of a job or of a dataset, which have no run; the latter has no job and one output."""

    at: datetime
    type: str | None
    run: UUID | None
    job: Name | None
    inputs: tuple[Dataset, ...]
    outputs: tuple[Dataset, ...]
    run_facets: Json
    job_facets: Json

    @property
    def flows(self) -> bool:
        return self.run is None or self.type in FLOWING

    def datasets(self) -> Iterator[Dataset]:
        yield from self.inputs
        yield from self.outputs


def digest(value: object) -> UUID:
    """The same for equal JSON."""
    return UUID(bytes=blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).digest())


def read(event: Json) -> Event:
    """ValueError or KeyError for what isn't an event."""
    run, job = event.get("run") or {}, event.get("job")
    facets = run.get("facets") or {}
    confidence = _confidence(facets)
    outputs = event.get("outputs") or ()
    if "dataset" in event:
        outputs = (event["dataset"],)
    return Event(
        at=time_of(event["eventTime"]),
        type=(event.get("eventType") or "OTHER").upper() if run else None,
        run=UUID(run["runId"]) if run else None,
        job=Name(job["namespace"], job["name"]) if job else None,
        inputs=tuple(_dataset(each, "inputFacets", confidence) for each in event.get("inputs") or ()),
        outputs=tuple(_dataset(each, "outputFacets", confidence) for each in outputs),
        run_facets=facets,
        job_facets=(job or {}).get("facets") or {},
    )


def time_of(text: str) -> datetime:
    """In UTC, in which a time without a zone is meant to be; ValueError for what is none."""
    parsed = datetime.fromisoformat(text)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)


def _dataset(told: Json, of_this_run: str, confidence: float | None) -> Dataset:
    facets = told.get("facets") or {}
    change = facets.get("lifecycleStateChange") or {}
    previous = change.get("previousIdentifier")
    symlinks = (facets.get("symlinks") or {}).get("identifiers") or ()
    tables = tuple(Name(each["namespace"], each["name"]) for each in symlinks if each.get("type") not in _NOT_A_TABLE)
    ours = facets.get(TABLE)
    own = [_confidence(facets), _confidence(told.get(of_this_run) or {}), confidence]
    columns = facets.get("columnLineage")
    return Dataset(
        name=Name(told["namespace"], told["name"]),
        tables=tables,
        table=LakeTable(ours["namespace"], ours["name"]) if ours else None,
        kind=_kind(facets, symlinks),
        previous=Name(previous["namespace"], previous["name"]) if previous else None,
        lifecycle=change.get("lifecycleStateChange"),
        version=(facets.get("version") or {}).get("datasetVersion"),
        confidence=next((each for each in own if each is not None), None),
        facets=facets,
        columns=tuple(_sure(_columns(columns or {}), facets.get(INFERRED))),
        has_columns=columns is not None,
    )


def _kind(facets: Json, symlinks: Sequence[Json]) -> str:
    told = (facets.get("datasetType") or {}).get("datasetType")
    if told:
        return str(told).upper()
    types = [str(each.get("type")).upper() for each in symlinks]
    return "VIEW" if "VIEW" in types else "TABLE" if symlinks else "DATASET"


def _confidence(facets: Json) -> float | None:
    inferred = facets.get(INFERRED)
    return None if inferred is None else float(inferred.get("confidence", 0.5))


def _sure(columns: Iterator[Column], inferred: Json | None) -> Iterator[Column]:
    """The columns with how sure they are, each by itself or all as the dataset is."""
    if inferred is None:
        yield from columns
        return
    whole = None if "columns" in inferred else _confidence({INFERRED: inferred})
    own = {_place(each): float(each["confidence"]) for each in inferred.get("columns") or ()}
    for column in columns:
        place = (column.source, column.source_field, column.target_field)
        yield replace(column, confidence=own.get(place, whole))


def _place(inferred: Json) -> tuple[Name, str, str]:
    source = inferred["input"]
    return Name(source["namespace"], source["name"]), source["field"], inferred.get("output") or ""


def _columns(facet: Json) -> Iterator[Column]:
    for field, made_of in (facet.get("fields") or {}).items():
        for source in made_of.get("inputFields") or ():
            yield from _transformations(field, source, made_of.get("transformationType"))
    for source in facet.get("dataset") or ():
        yield from _transformations("", source, None)


def _transformations(field: str, source: Json, subtype: str | None) -> Iterator[Column]:
    """One for each; where there are none, as in the facet's first versions, it is what the field's own type says."""
    name, place = Name(source["namespace"], source["name"]), source["field"]
    default = {"type": "DIRECT" if field else "INDIRECT", "subtype": subtype}
    for each in source.get("transformations") or (default,):
        kind, how = str(each.get("type") or default["type"]), each.get("subtype") or ""
        yield Column(name, place, field, kind, how, each.get("description") or None, bool(each.get("masking")))
