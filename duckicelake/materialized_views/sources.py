"""Resolve the tables and views of a query, all at one DuckLake snapshot, with the rights of the view's definer."""

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from typing import Any, Final

import duckdb
import orjson

from duckicelake.catalog.authz.definers import StoredView, read_view
from duckicelake.catalog.context.caller import Capability, build_refusal
from duckicelake.catalog.context.services import Services
from duckicelake.errors import ForbiddenError, InvalidRequestError, NoSuchTableError, UnsupportedError
from duckicelake.iceberg.identifiers import Namespace, format_full_name, parse_schema_name, to_schema_name
from duckicelake.lake.side_tables import policies, reader
from duckicelake.materialized_views import view_rows
from duckicelake.materialized_views.view_rows import MaterializedQuery, NamedSource, NameKey, SourceState
from duckicelake.postgres.queries import Transaction
from duckicelake.query.processes import QueryProcess
from duckicelake.query.statement import (
    LAKE,
    ResolvedTable,
    ResolvedView,
    TableUse,
    Tree,
    check_statement,
)

_CLOCKS: Final = frozenset({"current_date", "current_time", "current_timestamp", "localtime", "localtimestamp"})
"""Names that DuckDB reads as functions where no column has them."""
_MACRO_CLOCK: Final = re.compile(r"\b(current_\w+|now\(|today\(|random\(|uuid)")
_UNSTABLE: Final = frozenset({"current_localtime", "current_localtimestamp", "reservoir_quantile"})
"""What DuckDB calls consistent, though it reads the clock or takes a sample."""
_PURE: Final = frozenset({"error"})
"""What DuckDB calls volatile, though it gives nothing."""
_QUOTED_NAME: Final = re.compile(r'"((?:[^"]|"")*)"')


@dataclass(frozen=True, slots=True)
class ResolvedQuery:
    """A checked query: its tree with tables of DuckLake at one snapshot.

    Attributes:
        names: what its own names stand for.
        states: the tables and views that it reads.
        digest: of all its SQL, by ids of tables, so that a renamed one changes nothing.

    """

    tree: Tree
    names: Mapping[NameKey, NamedSource]
    states: tuple[SourceState, ...]
    digest: bytes

    @property
    def tables(self) -> tuple[SourceState, ...]:
        """Return the tables alone."""
        return tuple(state for state in self.states if state.kind == "table")


@dataclass(slots=True)
class _SourceResolver:
    """Finds what the names of a query stand for. own_id: of the table that can't be a source."""

    services: Services
    cursor: Transaction
    process: QueryProcess
    query: MaterializedQuery
    snapshot_id: int
    own_id: int | None
    is_new: bool
    names: dict[NameKey, NamedSource] = field(default_factory=dict)
    states: dict[tuple[str, int], SourceState] = field(default_factory=dict)

    def resolve(self, use: TableUse) -> ResolvedTable | ResolvedView:
        """Find a table or view. Raises NoSuchTableError, ForbiddenError, InvalidRequestError, UnsupportedError."""
        key = self._parse(use)
        source = self._find(key, use)
        if use.version is not None:
            raise InvalidRequestError(f"AT has no place in a materialized view: remove it behind {'.'.join(key)}")
        return self._resolve_table(key, source) if source.kind == "table" else self._resolve_view(key, source)

    def _parse(self, use: TableUse) -> NameKey:
        *levels, name = use.parts
        levels = levels[1:] if len(levels) == 2 and levels[0] == LAKE else levels
        if levels:
            return to_schema_name(parse_schema_name(".".join(levels))), name
        return to_schema_name(self.query.namespace if use.view is None else use.view.namespace), name

    def _find(self, key: NameKey, use: TableUse) -> NamedSource:
        """Find what a name stands for: in the query what it stood for at its creation, in a view what it does now."""
        if use.view is not None:
            return self._look_up(key)
        if self.is_new or key not in self.query.names:
            return self.names.setdefault(key, self._look_up(key))
        return self.names.setdefault(key, self.query.names[key])

    def _look_up(self, key: NameKey) -> NamedSource:
        namespace = parse_schema_name(key[0])
        if not self.services.caller.principal.may(Capability.READ, namespace, key[1]):
            raise build_refusal(namespace, key[1], self.services.caller.principal)
        table_id = reader.find_table_id(self.cursor, *key)
        if table_id is not None:
            return NamedSource("table", table_id)
        view = read_view(self.cursor, namespace, key[1])
        if view is None:
            raise NoSuchTableError(f"Table or view does not exist: {format_full_name(namespace, key[1])}")
        return NamedSource("view", view.lake.view_id)

    def _resolve_table(self, key: NameKey, source: NamedSource) -> ResolvedTable:
        found = view_rows.find_table_name(self.cursor, source.object_id, self.snapshot_id)
        if found is None:
            raise NoSuchTableError(
                f"The source {'.'.join(key)} was dropped: bring it back with `duckicelake undrop`, or drop the "
                "materialized view"
            )
        schema_name, name, uuid = found
        self._check_readable(parse_schema_name(schema_name), name, source.object_id)
        state = SourceState("table", source.object_id, schema_name, name, uuid)
        self.states["table", source.object_id] = state
        return ResolvedTable(schema_name, name, self.snapshot_id)

    def _check_readable(self, namespace: Namespace, name: str, table_id: int) -> None:
        """Check the definer's rights. No guarded table is read: who may read the view needn't be one who may see all.

        Raises ForbiddenError, InvalidRequestError.
        """
        principal, rights = self.services.caller.principal, self.services.rights
        if not principal.may(Capability.READ, namespace, name):
            raise build_refusal(namespace, name, principal)
        if rights is not None and policies.has_policies(self.cursor, rights.place, table_id):
            raise ForbiddenError(
                f"Policies hide rows or values of {format_full_name(namespace, name)} from some, and a materialized "
                "view would show them to all who read it: use a view"
            )
        if table_id == self.own_id:
            full_name = format_full_name(namespace, name)
            raise InvalidRequestError(
                f"The new materialized view would read {full_name}, which it replaces: query the sources of that"
                if self.is_new
                else f"The materialized view reads itself, by {full_name}"
            )

    def _resolve_view(self, key: NameKey, source: NamedSource) -> ResolvedView:
        """Find a view by its id; one that DuckDB has replaced has another, and is found by its name."""
        namespace, name = self._place(view_rows.find_view_name(self.cursor, source.object_id) or key)
        principal = self.services.caller.principal
        if not principal.may(Capability.READ, namespace, name):
            raise build_refusal(namespace, name, principal)
        stored = read_view(self.cursor, namespace, name)
        if stored is None:
            raise NoSuchTableError(f"The source {'.'.join(key)} was dropped: create the view again")
        definition = stored.lake.definition
        if definition.dialect != "duckdb":
            raise UnsupportedError("queries", f"The view {name} has no SQL of DuckDB, only {definition.dialect}'s")
        tree = self.process.parse(definition.query)
        if tree["error"]:
            raise UnsupportedError("queries", f"DuckDB can't parse the view {name}: {tree.get('error_message')}")
        self._note_view(stored)
        columns = tuple(match[1].replace('""', '"') for match in _QUOTED_NAME.finditer(definition.column_aliases))
        return ResolvedView(format_full_name(namespace, name), tree["statements"][0], columns, namespace)

    def _place(self, key: NameKey) -> tuple[Namespace, str]:
        return parse_schema_name(key[0]), key[1]

    def _note_view(self, stored: StoredView) -> None:
        view = stored.lake
        version = None if stored.metadata is None else int(stored.metadata["current-version-id"])
        state = SourceState(
            "view", view.view_id, view.schema_name, view.view_name, str(view.view_uuid), version_id=version
        )
        self.states["view", view.view_id] = state


def resolve_query(
    services: Services,
    cursor: Transaction,
    process: QueryProcess,
    query: MaterializedQuery,
    snapshot_id: int,
    own_id: int | None = None,
    *,
    is_new: bool = False,
) -> ResolvedQuery:
    """Resolve and check a query. services: for the definer.

    own_id: of the table that it can't read: the view's own, or of the view that a new one replaces.
    is_new: the view is being made, so its names stand for what they stand for now.

    Raises NoSuchTableError, ForbiddenError, InvalidRequestError, UnsupportedError.
    """
    resolver = _SourceResolver(services, cursor, process, query, snapshot_id, own_id, is_new)
    tree = check_statement(process.parse(query.sql), resolver.resolve, query.sql)
    check_deterministic(tree)
    states = tuple(resolver.states.values())
    ids = {(state.schema_name, state.name): state.object_id for state in states if state.kind == "table"}
    return ResolvedQuery(tree, resolver.names, states, _compute_digest(tree, ids))


def check_deterministic(tree: Tree) -> None:
    """Check that a query gives the same whenever it reads the same. Raises InvalidRequestError."""
    for node in walk(tree):
        name = str(node.get("function_name", "")).lower()
        is_age_of_now = name == "age" and len(node["children"]) == 1
        if is_age_of_now or name in find_volatile_functions():
            raise _refuse(f"{name}()")
        names: Sequence[str] = node["column_names"] if node.get("class") == "COLUMN_REF" else ()
        if len(names) == 1 and names[0].lower() in _CLOCKS:
            raise _refuse(str(names[0]))
        if node.get("sample"):
            raise _refuse("TABLESAMPLE or USING SAMPLE")


def _refuse(what: str) -> InvalidRequestError:
    return InvalidRequestError(
        f"{what} gives something else each time, so no refresh could say what the view shows: leave it out, or use a "
        "view"
    )


@cache
def find_volatile_functions() -> frozenset[str]:
    """Find DuckDB's functions whose result isn't given by their arguments: clocks, and what is random."""
    with duckdb.connect() as connection:
        rows = connection.execute("SELECT lower(function_name), stability, macro_definition FROM duckdb_functions()")
        found = {
            name
            for name, stability, macro in rows.fetchall()
            if stability not in {None, "CONSISTENT"} or (macro and _MACRO_CLOCK.search(macro))
        }
    return frozenset(found - _PURE) | _UNSTABLE


def walk(tree: Tree) -> Iterator[dict[str, Any]]:
    """Yield the objects of a tree, each before those in it."""
    waiting = [tree]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting.extend(part.values())
        elif isinstance(part, list):
            waiting.extend(part)


def _compute_digest(tree: Tree, ids: Mapping[NameKey, int]) -> bytes:
    """Compute the digest of a tree in which tables have ids in place of names, and no snapshot."""
    copy = deepcopy(tree)
    for node in walk(copy):
        node.pop("query_location", None)
        if node.get("type") == "BASE_TABLE" and node.get("catalog_name") == LAKE:
            table_id = ids[node["schema_name"], node["table_name"]]
            node.update(schema_name="", table_name=str(table_id), at_clause=None)
    return sha256(orjson.dumps(copy, option=orjson.OPT_SORT_KEYS)).digest()
