"""PURE. Infer the inputs of a write from what its application read before; facets state the confidence."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final, Protocol

from duckicelake.lineage.openlineage.names import PRODUCER, DatasetName, NamedLake, build_schema_url

INFERENCE_WINDOW: Final = timedelta(minutes=15)
LIVES: Final = 24
"""Windows for which the reads of an application with an id count."""
MAX_INPUTS: Final = 100
_IDS: Final = (("app-id", None), ("spark.app.id", "spark"), ("trino_query_id", "trino"), ("flink.job-id", "flink"))
"""Keys by which summaries and reports name an application, and the engine."""
_MAX_ID_CHARS: Final = 200
_REWRITES: Final = "replace"
"""The operation of Iceberg's snapshots that have the same rows as before."""
_EARLIER: Final = 0.5
"""Factor on a guess if the output was looked up after the read: another statement may have read."""
_BEFORE_PREVIOUS: Final = 0.3
"""Factor on a guess if the application has written since."""
FACET: Final = "duckicelake_inferred"
MAX_INFERRED_EDGES: Final = 2000
_COLUMN_LINEAGE: Final = "https://openlineage.io/spec/facets/1-2-0/ColumnLineageDatasetFacet.json"
_SAME_NAME: Final = 0.8
_OTHER_NAME: Final = 0.2
_FILTER: Final = 0.9
_MAX_CANDIDATES: Final = 8
"""Source columns of other names: more say nothing."""


class ReadKind(StrEnum):
    """The evidence of a read or a write.

    `LOOKUP`: a load that names the wanted snapshots, as Iceberg's Java library does except for refreshes. `REPORT`: a
    commit report, which shows that the application sends reports. `PLAN`: a scan that the server planned, which is
    reported by no client.
    """

    LOAD = "load"
    LOOKUP = "lookup"
    SCAN = "scan"
    REPORT = "report"
    PLAN = "plan"
    WRITE = "write"


_SCANS: Final = (ReadKind.SCAN, ReadKind.PLAN)


class InferenceMethod(StrEnum):
    """The reason to relate a read to a write, and its confidence."""

    SCAN_OF_APPLICATION = "scan-report of the application"
    SCAN_IN_SESSION = "scan-report in the session"
    PLAN_IN_SESSION = "planned scan in the session"
    LOAD_IN_SESSION = "load in the session"
    LOAD_ON_CONNECTION = "load on the connection"


_CONFIDENCE: Final = {
    InferenceMethod.SCAN_OF_APPLICATION: 0.9,
    InferenceMethod.SCAN_IN_SESSION: 0.7,
    InferenceMethod.PLAN_IN_SESSION: 0.6,
    InferenceMethod.LOAD_IN_SESSION: 0.4,
    InferenceMethod.LOAD_ON_CONNECTION: 0.3,
}


class ApplicationRead(Protocol):
    """A table that an application loaded or scanned, or a report. snapshot_id: Iceberg's.

    session: by the server; what stands before `:` is the program on its machine, what stands after it the connection of
        a client that hasn't logged in. application: as `name_application` names it. filtered: columns of the filter.
    """

    @property
    def id(self) -> int: ...
    @property
    def at(self) -> datetime: ...
    @property
    def kind(self) -> str: ...
    @property
    def principal(self) -> str: ...
    @property
    def session(self) -> str: ...
    @property
    def application(self) -> str | None: ...
    @property
    def table_id(self) -> int: ...
    @property
    def table(self) -> str: ...
    @property
    def snapshot_id(self) -> int | None: ...
    @property
    def projected(self) -> Sequence[str]: ...
    @property
    def filtered(self) -> Sequence[str]: ...


@dataclass(frozen=True, slots=True)
class ApplicationWrite:
    """A transaction's write. outputs: ids of all tables in it. operation: Iceberg's, if any."""

    at: datetime
    principal: str | None
    session: str | None
    application: str | None
    outputs: frozenset[int]
    operation: str | None = None

    @property
    def is_known(self) -> bool:
        """Whether inputs can be inferred: not for DuckDB's own commits."""
        return self.principal is not None and bool(self.session) and self.operation != _REWRITES


@dataclass(frozen=True, slots=True)
class InferredInput:
    """A probable input of a write. confidence: 0 to 1. evidence: ids of reads."""

    table_id: int
    table: str
    snapshot_id: int | None
    confidence: float
    method: InferenceMethod
    evidence: tuple[int, ...]
    projected: tuple[str, ...] = ()
    filtered: tuple[str, ...] = ()


def name_application(named: Mapping[str, Any]) -> str | None:
    """Name an application by the metadata of a report or a snapshot's summary.

    `<engine> <its id>`.
    """
    for key, engine in _IDS:
        value = named.get(key)
        if value and isinstance(value, str):
            return f"{engine or named.get('engine-name') or 'engine'} {value}"[:_MAX_ID_CHARS]
    return None


def infer_inputs(
    write: ApplicationWrite, reads: Sequence[ApplicationRead], window: timedelta = INFERENCE_WINDOW
) -> list[InferredInput]:
    """Infer the inputs of a write, the most confident first."""
    if not write.is_known:
        return []
    own = [read for read in reads if _is_own(write, read, window)]
    previous = max((read.at for read in own if read.kind == ReadKind.WRITE), default=None)
    candidates = [read for read in own if _may_be_input(write, read)]
    if any(read.kind in (ReadKind.SCAN, ReadKind.REPORT) for read in own):
        candidates = [read for read in candidates if read.kind in _SCANS]
    since = [read for read in candidates if previous is None or read.at > previous]
    has_scanned = any(read.kind in _SCANS and (previous is None or read.at > previous) for read in own)
    before = [] if since or has_scanned else [read for read in candidates if write.at - read.at <= window]
    found_at = max((read.at for read in reads if _is_output_lookup(write, read)), default=None)
    inputs: dict[int, InferredInput] = {}
    for read in since or before:
        doubt = _compute_doubt(write, read, found_at, window) * (_BEFORE_PREVIOUS if before else 1.0)
        inputs[read.table_id] = _merge_guesses(inputs.get(read.table_id), _build_guess(read, doubt))
    return sorted(inputs.values(), key=lambda inferred: (-inferred.confidence, inferred.table))[:MAX_INPUTS]


def _is_own(write: ApplicationWrite, read: ApplicationRead, window: timedelta) -> bool:
    """Return whether the read was of the write's application, before it and not too long ago.

    Plans name no application: those of the session count for a write that names one, too.
    """
    is_plan = read.kind == ReadKind.PLAN and read.application is None
    is_alike = is_plan or read.application == write.application
    if read.principal != write.principal or not is_alike or not read.at < write.at:
        return False
    if read.application is None:
        return read.session == write.session and write.at - read.at <= window
    return _is_same_place(write, read) and write.at - read.at <= window * LIVES


def _is_same_place(write: ApplicationWrite, read: ApplicationRead) -> bool:
    """Return whether the read came from the write's session, if that is required.

    Without a login, the application's name proves little.
    """
    assert write.session is not None
    if ":" not in read.session and ":" not in write.session:
        return True
    return read.session.partition(":")[0] == write.session.partition(":")[0]


def _may_be_input(write: ApplicationWrite, read: ApplicationRead) -> bool:
    return read.kind in (ReadKind.LOAD, ReadKind.LOOKUP, *_SCANS) and read.table_id not in write.outputs


def _is_output_lookup(write: ApplicationWrite, read: ApplicationRead) -> bool:
    """Return whether the read is a lookup of a table before writing it."""
    is_output = read.kind == ReadKind.LOOKUP and read.table_id in write.outputs
    return is_output and read.principal == write.principal and _is_same_place(write, read) and read.at < write.at


def _compute_doubt(
    write: ApplicationWrite, read: ApplicationRead, found_at: datetime | None, window: timedelta
) -> float:
    """Compute the factor on a confidence.

    An engine looks up its output before it scans its inputs.
    """
    is_earlier = read.kind == ReadKind.SCAN and found_at is not None and read.at < found_at
    return _EARLIER if is_earlier or write.at - read.at > window else 1.0


def _choose_method(read: ApplicationRead) -> InferenceMethod:
    if read.kind == ReadKind.PLAN:
        return InferenceMethod.PLAN_IN_SESSION
    if read.kind == ReadKind.SCAN:
        return InferenceMethod.SCAN_IN_SESSION if read.application is None else InferenceMethod.SCAN_OF_APPLICATION
    return InferenceMethod.LOAD_ON_CONNECTION if ":" in read.session else InferenceMethod.LOAD_IN_SESSION


def _build_guess(read: ApplicationRead, doubt: float) -> InferredInput:
    method = _choose_method(read)
    what = (read.table_id, read.table, read.snapshot_id, round(doubt * _CONFIDENCE[method], 3), method)
    return InferredInput(*what, (read.id,), tuple(read.projected), tuple(read.filtered))


def _merge_guesses(known: InferredInput | None, guess: InferredInput) -> InferredInput:
    """Merge two guesses about a table: the more confident one, with evidence and columns of both.

    Of equal ones, the later.
    """
    if known is None:
        return guess
    better, other = (known, guess) if known.confidence > guess.confidence else (guess, known)
    return InferredInput(
        better.table_id,
        better.table,
        better.snapshot_id,
        better.confidence,
        better.method,
        tuple(sorted({*known.evidence, *guess.evidence})),
        tuple(dict.fromkeys((*better.projected, *other.projected))),
        tuple(dict.fromkeys((*better.filtered, *other.filtered))),
    )


Input = tuple[InferredInput, DatasetName]


@dataclass(frozen=True, slots=True)
class _InferredEdge:
    """A column of an input on which a column of the output, or the whole output (None), may depend."""

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


def build_input_facets(lake: NamedLake, found: InferredInput) -> dict[str, Any]:
    """Build the facets of an inferred input."""
    columns = {"projected": list(found.projected), "filtered": list(found.filtered)}
    return {
        FACET: {**_build_head(lake, found.confidence, str(found.method)), "evidence": list(found.evidence), **columns}
    }


def build_output_facets(lake: NamedLake, columns: Sequence[str], inputs: Sequence[Input]) -> dict[str, Any]:
    """Build the facets of an output with these columns and inferred inputs.

    None without column lineage.
    """
    edges = [*_iterate_direct(columns, inputs), *_iterate_indirect(inputs)][:MAX_INFERRED_EDGES]
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
    head = _build_head(lake, max(edge.confidence for edge in edges), "columns of reported scans")
    return {"columnLineage": lineage, FACET: {**head, "columns": [edge.as_inferred() for edge in edges]}}


def _iterate_direct(columns: Sequence[str], inputs: Sequence[Input]) -> Iterator[_InferredEdge]:
    projected = [(found, dataset, field) for found, dataset in inputs for field in found.projected]
    by_name: dict[str, list[tuple[InferredInput, DatasetName, str]]] = defaultdict(list)
    for scan in projected:
        by_name[scan[2].lower()].append(scan)
    written = {name.lower() for name in columns}
    others = [other for other in projected if other[2].lower() not in written]
    for name in columns:
        same = by_name.get(name.lower(), [])
        candidates = same or (others if len(others) <= _MAX_CANDIDATES else [])
        share = (_SAME_NAME if same else _OTHER_NAME) / max(1, len(candidates))
        for found, dataset, field in candidates:
            yield _InferredEdge(name, dataset, field, round(found.confidence * share, 3))


def _iterate_indirect(inputs: Sequence[Input]) -> Iterator[_InferredEdge]:
    for found, dataset in inputs:
        for field in found.filtered:
            yield _InferredEdge(None, dataset, field, round(found.confidence * _FILTER, 3))


def _build_head(lake: NamedLake, confidence: float, reason: str) -> dict[str, Any]:
    return {
        "_producer": PRODUCER,
        "_schemaURL": build_schema_url(lake, FACET),
        "confidence": confidence,
        "reason": reason,
    }
