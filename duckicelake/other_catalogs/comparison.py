"""Compare a table in its source and in the lake: metadata, and rows by PyIceberg, which reads files by itself."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from duckicelake.client.lake import Lake
from duckicelake.client.models import Json, ObjectKind
from duckicelake.errors import MissingRequirementError, PipelineError, format_count
from duckicelake.other_catalogs.source import CatalogSource, CatalogTable, Options
from duckicelake.rest.names import parse_table

if TYPE_CHECKING:
    from pyiceberg.table import Table

State = Literal[
    "would create",
    "created",
    "there",
    "would update",
    "updated",
    "would copy",
    "copied",
    "behind",
    "diverged",
    "taken",
    "refused",
    "differs",
    "would give up",
    "given up",
]
"""What became of an object.

there: it was here already, as it is in the source. copied: its rows are here, in Parquet. behind: the source has newer
snapshots. diverged: the lake has snapshots that the source lacks. taken: something else has its name. refused: the
error says why. differs: what is here now isn't what the source has.
"""
_BAD_STATES: Final[Collection[State]] = ("behind", "diverged", "taken", "refused", "differs")
COPIED_SNAPSHOT: Final = "migration.source-snapshot-id"
"""Property of a table whose rows were copied: the source's snapshot that they are of; `none` of an empty table."""
_NOT_OF_FILES: Final = frozenset({"uri", "warehouse", "credential", "token", "scope", "catalog", "type"})
"""Options of the source that say nothing of its store."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a namespace, table or view, or would. detail: why, or what there is."""

    kind: ObjectKind
    name: str
    state: State
    detail: str = ""

    @property
    def is_good(self) -> bool:
        return self.state not in _BAD_STATES


def compare_tables(theirs: Json, ours: Json | None, is_as_registered: Callable[[], bool]) -> tuple[State | None, str]:
    """Say how a source's table stands to the lake's of the same name, and why; None: the lake has none.

    is_as_registered: returns whether the lake's table wasn't changed since it was registered. It is asked only where
    the source lacks snapshots of the lake's: then it has expired them. Nessie keeps the current one alone.
    """
    if ours is None:
        return None, ""
    if theirs["table-uuid"] != ours["table-uuid"]:
        return "taken", f"another table has this name here: its UUID is {ours['table-uuid']}"
    copied = (ours.get("properties") or {}).get(COPIED_SNAPSHOT)
    if copied is not None:
        return _compare_copy(theirs, ours, copied)
    here, there = _snapshot_ids(ours), _snapshot_ids(theirs)
    if here - there and not is_as_registered():
        return "diverged", f"snapshots here that the source lacks: {len(here - there)}"
    if here != there or _refs(ours) != _refs(theirs):
        return "behind", f"newer snapshots in the source: {len(there - here)}; --update brings them"
    difference = find_difference(theirs, ours)
    return ("behind", f"{difference}; --update brings it") if difference else ("there", "")


def _compare_copy(theirs: Json, ours: Json, copied: str) -> tuple[State, str]:
    if copied == str(find_current_snapshot(theirs) or "none"):
        return "there", ""
    if len(_snapshot_ids(ours)) > 1:
        return "diverged", f"written here since snapshot {copied} of the source was copied"
    return "behind", f"a copy of snapshot {copied}; --update --rewrite copies it again"


def find_difference(theirs: Json, ours: Json) -> str:
    """Name what differs between two metadata of a table that readers would see; empty if nothing does."""
    pairs = {
        "the UUID": (theirs["table-uuid"], ours["table-uuid"]),
        "the current snapshot": (find_current_snapshot(theirs), find_current_snapshot(ours)),
        "the snapshots": (_snapshot_ids(theirs), _snapshot_ids(ours)),
        "the branches and tags": (_refs(theirs), _refs(ours)),
        "the columns": (_columns(theirs), _columns(ours)),
        "the partitioning": (_partitions(theirs), _partitions(ours)),
    }
    different = [what for what, (one, other) in pairs.items() if one != other]
    return f"{' and '.join(different)} differ" if different else ""


def find_current_snapshot(metadata: Json) -> int | None:
    """Return the id of the current snapshot of a table's metadata, if it has one."""
    found = metadata.get("current-snapshot-id")
    return None if found in (None, -1) else int(found)  # version 1 writes -1 for none


def _snapshot_ids(metadata: Json) -> frozenset[int]:
    return frozenset(snapshot["snapshot-id"] for snapshot in metadata.get("snapshots") or ())


def _refs(metadata: Json) -> Mapping[str, tuple[int, str]]:
    refs = metadata.get("refs") or {}
    current = find_current_snapshot(metadata)
    main = {} if current is None else {"main": (current, "branch")}
    return main | {name: (ref["snapshot-id"], ref["type"]) for name, ref in refs.items()}


def _columns(metadata: Json) -> Sequence[tuple[int, str, str, bool]]:
    schemas = metadata.get("schemas") or [metadata["schema"]]
    current = metadata.get("current-schema-id", schemas[0].get("schema-id"))
    schema = next(one for one in schemas if one.get("schema-id") == current)
    return [(field["id"], field["name"], str(field["type"]), field["required"]) for field in schema["fields"]]


def _partitions(metadata: Json) -> Sequence[tuple[int, str, str]]:
    specs = metadata.get("partition-specs") or ()
    spec = next((one for one in specs if one["spec-id"] == metadata["default-spec-id"]), {"fields": ()})
    return [(field["source-id"], field["name"], field["transform"]) for field in spec["fields"]]


def count_beside(outcomes: Iterable[Outcome], source: CatalogSource, lake: Lake, options: Options) -> Iterator[Outcome]:
    """Yield the outcomes, those of tables with their rows; they differ where the counts do.

    options: of the source, among them those of its store. A table that PyIceberg can't read keeps its outcome, and the
    detail says so. Raises MissingRequirementError.
    """
    try:
        from pyiceberg.catalog.rest import RestCatalog
    except ModuleNotFoundError as error:
        raise MissingRequirementError("--count-rows needs PyIceberg: pip install 'duckicelake[pyiceberg]'") from error
    stored = {key: value for key, value in options.items() if key not in _NOT_OF_FILES}
    ours = RestCatalog("lake", **lake.client.connection.catalog_properties())
    for outcome in outcomes:
        if outcome.kind != "table" or not outcome.is_good:
            yield outcome
            continue
        name = parse_table(outcome.name)
        try:
            there = _count(partial(_open_static, source.load_table(*name), stored), "the source")
            here = _count(partial(ours.load_table, (*name[0], name[1])), "the lake")
        except PipelineError as error:
            yield replace(outcome, detail=f"rows weren't counted: {error}")
            continue
        if here == there:
            yield replace(outcome, detail=format_count(here, "row"))
        else:
            yield replace(outcome, state="differs", detail=f"{format_count(here, 'row')} here, {there} in the source")


def _open_static(table: CatalogTable, stored: Options) -> "Table":
    from pyiceberg.table import StaticTable

    return StaticTable.from_metadata(table.metadata_location, {**table.store, **stored})


def _count(load: "Callable[[], Table]", side: str) -> int:
    try:
        return load().scan().count()
    except Exception as error:
        raise PipelineError(f"PyIceberg can't read it from {side}: {type(error).__name__}: {error}") from error
