"""Bring tables and views of another catalog into a lake, and give tables up to one. No file is copied or moved.

A table keeps its UUID. So the lake itself says what is there already, and a migration goes on where it ended.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from duckicelake.client.lake import Lake
from duckicelake.client.models import Json, ObjectKind, build_name
from duckicelake.errors import (
    CatalogError,
    JobConflictError,
    MissingRequirementError,
    MissingTableError,
    PipelineError,
)
from duckicelake.other_catalogs.comparison import Outcome, State, compare_tables, find_current_snapshot, find_difference
from duckicelake.other_catalogs.source import CatalogSource, CatalogTable, CopyProgress, Options, list_namespaces
from duckicelake.rest.client import encode_namespace, encode_segment
from duckicelake.rest.names import Namespace, parse_table

if TYPE_CHECKING:
    from duckicelake.other_catalogs.parquet_copy import TableCopy

_REGISTER_SECONDS: Final = 3600.0
"""Timeout of a registration: the server reads every manifest of the table's history first."""
_HISTORY_SECONDS: Final = 10.0
"""How long the history is waited for, where it alone tells whether a table was written here."""
_HISTORY_PAUSE_SECONDS: Final = 0.2
WatchCopy = Callable[[str], CopyProgress]
_FORMAT_REFUSED: Final = "(MISSING.md, file-formats)"
"""Ends the server's refusal of ORC and Avro."""
_REWRITE_HINT: Final = "--rewrite copies its rows to Parquet"
_PLACE_REFUSED: Final = ("ALLOWED_LOCATIONS adds places", "allowed-locations adds some")
"""Stand in the server's refusals of files outside of the lake."""
_PLACE_HINT: Final = "--rewrite needs this, too: the server first looks whether it can take a table as it is"
_NEEDS_PYICEBERG: Final = "--rewrite needs PyIceberg: pip install 'duckicelake[pyiceberg]'"
_KEPT_OUT: Final = frozenset({"location"})
"""Properties of namespaces that stay behind: new tables belong in the lake's own folders."""


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """What to bring.

    Attributes:
        top: a namespace with all below it; () for the whole catalog.
        is_dry_run: find out what would be, change nothing.
        updates: register tables again that the source has changed since.
        threads: how many tables at a time.
        rewrites: copy rows to Parquet where data files are in ORC or Avro.

    """

    top: Namespace = ()
    is_dry_run: bool = False
    updates: bool = False
    threads: int = 4
    rewrites: bool = False


@dataclass(frozen=True, slots=True)
class _Found:
    kind: ObjectKind
    namespace: Namespace
    name: str = ""

    @property
    def called(self) -> str:
        return build_name(self.namespace, self.name) if self.name else build_name(self.namespace)


def migrate(
    source: CatalogSource, lake: Lake, plan: MigrationPlan, begin: Callable[[int], None], watch: WatchCopy
) -> Iterator[Outcome]:
    """Yield what became of each namespace, table and view, as it is done.

    begin: is given the number of objects first. watch: makes the progress of a table that is copied. Raises
    PipelineError if the source can't be listed; what is wrong with one object is its outcome.
    """
    found = list(_list_all(source, plan.top))
    begin(len(found))
    namespaces = [one for one in found if one.kind == "namespace"]
    missing = set()
    for one in namespaces:
        outcome = _bring_namespace(source, lake, one, plan)
        if outcome.state == "would create":
            missing.add(one.namespace)
        yield outcome
    tables = [one for one in found if one.kind == "table"]
    with ThreadPoolExecutor(plan.threads) as pool:
        yield from pool.map(lambda one: _bring_table(source, lake, one, plan, watch), tables)
    yield from _bring_views(source, lake, [one for one in found if one.kind == "view"], plan, missing)


def _list_all(source: CatalogSource, top: Namespace) -> Iterator[_Found]:
    for namespace in list_namespaces(source, top):
        yield _Found("namespace", namespace)
        yield from (_Found("table", namespace, name) for name in source.tables(namespace))
        yield from (_Found("view", namespace, name) for name in source.views(namespace))


def _bring_namespace(source: CatalogSource, lake: Lake, one: _Found, plan: MigrationPlan) -> Outcome:
    try:
        if lake.client.namespace_exists(one.namespace):
            return Outcome("namespace", one.called, "there")
        if plan.is_dry_run:
            return Outcome("namespace", one.called, "would create")
        properties = source.properties(one.namespace)
        kept = {key: value for key, value in properties.items() if key not in _KEPT_OUT}
        lake.client.make_namespace(one.namespace, kept)
    except (PipelineError, CatalogError) as error:
        return Outcome("namespace", one.called, "refused", str(error))
    return Outcome("namespace", one.called, "created")


def _bring_table(source: CatalogSource, lake: Lake, one: _Found, plan: MigrationPlan, watch: WatchCopy) -> Outcome:
    try:
        table = source.load_table(one.namespace, one.name)
        ours = _load_here(lake, one)
        state, detail = compare_tables(table.metadata, ours, partial(_is_as_registered, lake, one, ours))
        if state is not None and not (state == "behind" and plan.updates):
            return Outcome("table", one.called, state, detail)
        overwrite = state is not None
        try:
            return _register(lake, one, table, plan, overwrite=overwrite)
        except PipelineError as error:
            hint = _find_hint(error, plan)
            if hint is not None:
                return Outcome("table", one.called, "refused", f"{error}: {hint}")
            if _FORMAT_REFUSED not in str(error):
                raise
        if plan.is_dry_run:
            return Outcome("table", one.called, "would copy", "its rows, to Parquet")
        load = partial(source.load_table, one.namespace, one.name)
        place = one.namespace, one.name
        copied = _copy_and_register(lake, place, load, watch(one.called), overwrite=overwrite)
        return Outcome("table", one.called, "copied", f"files: {copied.files}, rows: {copied.rows}")
    except (PipelineError, CatalogError) as error:
        return Outcome("table", one.called, "refused", str(error))


def _find_hint(error: PipelineError, plan: MigrationPlan) -> str | None:
    """Return what --rewrite has to do with a refusal that stays one."""
    if not plan.rewrites:
        return _REWRITE_HINT if _FORMAT_REFUSED in str(error) else None
    return _PLACE_HINT if any(advice in str(error) for advice in _PLACE_REFUSED) else None


def _load_here(lake: Lake, one: _Found) -> Json | None:
    try:
        return lake.client.load_table(one.namespace, one.name)["metadata"]
    except MissingTableError:
        return None


def _is_as_registered(lake: Lake, one: _Found, ours: Json | None) -> bool:
    """Return whether the last change of a table is that it was registered, as it is now.

    The history lags, by a second or by more on a busy machine: until it says more than an earlier registration, wait.
    """
    current = None if ours is None else find_current_snapshot(ours)
    deadline = time.monotonic() + _HISTORY_SECONDS
    while True:
        last = next(lake.history(one.called, page_size=1), None)
        if last is not None and last.operation == "register_table" and last.iceberg_snapshot_id == current:
            return True
        if (last is not None and last.operation != "register_table") or time.monotonic() > deadline:
            return False
        time.sleep(_HISTORY_PAUSE_SECONDS)


def _register(lake: Lake, one: _Found, table: CatalogTable, plan: MigrationPlan, *, overwrite: bool) -> Outcome:
    path = lake.client.iceberg("namespaces", encode_namespace(one.namespace), "register")
    body = {"name": one.name, "metadata-location": table.metadata_location, "overwrite": overwrite}
    if plan.is_dry_run:
        would = lake.client.change("POST", path, body | {"dry-run": True}, seconds=_REGISTER_SECONDS)
        size = f"snapshots: {would['snapshots']}, files: {would['files']}"
        return Outcome("table", one.called, "would update" if overwrite else "would create", size)
    registered = lake.client.change("POST", path, body, seconds=_REGISTER_SECONDS)
    difference = find_difference(table.metadata, registered["metadata"])
    if difference:
        return Outcome("table", one.called, "differs", difference)
    return Outcome("table", one.called, "updated" if overwrite else "created")


def _copy_and_register(
    lake: Lake,
    place: tuple[Namespace, str],
    load: Callable[[], CatalogTable],
    progress: CopyProgress,
    *,
    overwrite: bool = False,
) -> "TableCopy":
    try:
        from duckicelake.other_catalogs.parquet_copy import copy_table
    except ModuleNotFoundError as error:
        raise MissingRequirementError(_NEEDS_PYICEBERG) from error
    copied = copy_table(load, lake.client, place, progress)
    path = lake.client.iceberg("namespaces", encode_namespace(place[0]), "register")
    body = {"name": place[1], "metadata-location": copied.metadata_location, "overwrite": overwrite}
    registered = lake.client.change("POST", path, body, seconds=_REGISTER_SECONDS)
    difference = find_difference(copied.metadata, registered["metadata"])
    if difference:
        raise PipelineError(f"the copy isn't as it was written: {difference}")
    return copied


def register_named(lake: Lake, name: str, metadata_location: str) -> None:
    """Register a table by its metadata.json. The refusal of one in ORC or Avro names --rewrite."""
    try:
        lake.register_table(name, metadata_location)
    except PipelineError as error:
        if _FORMAT_REFUSED not in str(error):
            raise
        raise PipelineError(f"{error}: {_REWRITE_HINT}") from error


def register_copy(
    lake: Lake, place: tuple[Namespace, str], metadata_location: str, options: Options, progress: CopyProgress
) -> "TableCopy":
    """Copy the rows of the table of a metadata.json to Parquet in the lake's store, and register the copy.

    options: of the table's store, in PyIceberg's names. Raises PipelineError, CatalogError.
    """
    try:
        from duckicelake.other_catalogs.parquet_copy import load_static_table
    except ModuleNotFoundError as error:
        raise MissingRequirementError(_NEEDS_PYICEBERG) from error
    if lake.client.table_exists(*place):
        raise JobConflictError(f"{build_name(*place)} is there already: drop or rename it, or take another name")
    return _copy_and_register(lake, place, partial(load_static_table, metadata_location, options), progress)


def _bring_views(
    source: CatalogSource, lake: Lake, views: Sequence[_Found], plan: MigrationPlan, missing: Collection[Namespace]
) -> Iterator[Outcome]:
    """Bring views in rounds, as long as one more succeeds: a view may read others."""
    left = list(views)
    while left:
        failed: list[tuple[_Found, Outcome]] = []
        for one in left:
            outcome = _bring_view(source, lake, one, plan, missing)
            if outcome.is_good:
                yield outcome
            else:
                failed.append((one, outcome))
        if len(failed) == len(left):
            yield from (outcome for _, outcome in failed)
            return
        left = [one for one, _ in failed]


def _bring_view(
    source: CatalogSource, lake: Lake, one: _Found, plan: MigrationPlan, missing: Collection[Namespace]
) -> Outcome:
    try:
        theirs = source.load_view(one.namespace, one.name)
        ours = None if one.namespace in missing else _load_view_here(lake, one)
        if ours is not None:
            is_same = _texts(ours) == _texts(theirs)
            return Outcome("view", one.called, *_IS_THERE if is_same else _IS_TAKEN)
        if plan.is_dry_run:
            return Outcome("view", one.called, "would create", "its SQL is checked when it is created")
        path = lake.client.iceberg("namespaces", encode_namespace(one.namespace), "views")
        lake.client.change("POST", path, _build_view(one.name, theirs))
    except JobConflictError as error:
        return Outcome("view", one.called, "taken", str(error))
    except (PipelineError, CatalogError) as error:
        return Outcome("view", one.called, "refused", str(error))
    return Outcome("view", one.called, "created")


_IS_THERE: Final[tuple[State, str]] = ("there", "")
_IS_TAKEN: Final[tuple[State, str]] = ("taken", "the view here has other SQL")


def _load_view_here(lake: Lake, one: _Found) -> Json | None:
    path = lake.client.iceberg("namespaces", encode_namespace(one.namespace), "views", encode_segment(one.name))
    try:
        return lake.client.get(path)["metadata"]
    except MissingTableError:
        return None


def _current_version(view: Json) -> Json:
    return next(one for one in view["versions"] if one["version-id"] == view["current-version-id"])


def _texts(view: Json) -> Mapping[str, str]:
    return {one["dialect"].lower(): one["sql"].strip() for one in _current_version(view)["representations"]}


def _build_view(name: str, view: Json) -> Json:
    version = _current_version(view)
    schema = next(one for one in view["schemas"] if one["schema-id"] == version["schema-id"])
    return {"name": name, "schema": schema, "view-version": version, "properties": view.get("properties") or {}}


def give_up(lake: Lake, names: Sequence[str], top: str, *, is_dry_run: bool) -> Iterator[Outcome]:
    """Yield what became of each table, as it is done; of views only where their metadata is.

    names: tables; none: all of the namespace `top` and below it, or of the lake if that is empty. A table that can't
    be given up, such as a protected one, stays, and its outcome says why.
    """
    if names:
        yield from (_give_up(lake, name, is_dry_run=is_dry_run) for name in names)
        return
    for one in list(lake.list(top, is_recursive=True)):
        if one.kind == "table":
            yield _give_up(lake, one.name, is_dry_run=is_dry_run)
        elif one.kind == "view":
            yield _find_view(lake, one.name)


def list_given_up(lake: Lake, names: Sequence[str], top: str) -> Iterator[Outcome]:
    """Yield tables that were given up earlier, the newest first, as the lake's history has them.

    names, top: as in `give_up`. A table that has been registered again since is left out.
    """
    seen: set[str] = set()
    for change in lake.history(kinds=("create-table", "drop-table")):
        name = change.resource
        location = change.parameters.get("metadata-location")
        is_wanted = name in names if names else not top or name.startswith(f"{top}.")
        if name in seen or not is_wanted:
            continue
        seen.add(name)
        if change.operation == "unregister_table" and location:
            yield Outcome("table", name, "given up", str(location))


def _give_up(lake: Lake, name: str, *, is_dry_run: bool) -> Outcome:
    try:
        if is_dry_run:
            return Outcome("table", name, "would give up", _load_anything(lake, "tables", name)["metadata-location"])
        return Outcome("table", name, "given up", lake.table(name).unregister())
    except (PipelineError, CatalogError) as error:
        return Outcome("table", name, "refused", str(error))


def _find_view(lake: Lake, name: str) -> Outcome:
    """Say where a view's metadata is: no catalog owns files of views, so it needn't be given up."""
    try:
        return Outcome("view", name, "there", _load_anything(lake, "views", name)["metadata-location"])
    except (PipelineError, CatalogError) as error:
        return Outcome("view", name, "refused", str(error))


def _load_anything(lake: Lake, kind: str, name: str) -> Json:
    namespace, last = parse_table(name)
    return lake.client.get(
        lake.client.iceberg("namespaces", encode_namespace(namespace), kind, encode_segment(last)),
        {"snapshots": "refs"} if kind == "tables" else None,
    )
