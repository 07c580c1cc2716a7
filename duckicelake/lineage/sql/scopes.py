"""PURE. Resolve a name in SQL to the column of a relation."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from duckicelake.lineage.sql.model import (
    NO_FLOW,
    Flow,
    FlowSubtype,
    OpenColumns,
    SqlColumn,
    SqlRelation,
    merge_flows,
    pass_through,
)

Fold = Callable[[str], str]
_ASCII: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}


def fold_ascii(name: str) -> str:
    """Fold a name as DuckDB compares it."""
    return name.translate(_ASCII)


@dataclass(frozen=True, slots=True)
class ScopeSource:
    """A source in FROM. parts: its possible names; the last one is the table's or the alias."""

    parts: tuple[str, ...]
    relation: SqlRelation
    hidden: frozenset[str] = frozenset()
    """Folded names of columns that this and an earlier source share by USING."""


@dataclass(slots=True)
class NameScope:
    """The names that an expression may use. outer: for names that aren't here."""

    fold: Fold
    sources: list[ScopeSource] = field(default_factory=list)
    outer: "NameScope | None" = None
    aliases: dict[str, Flow] = field(default_factory=dict)
    """Flows by the query's own aliases, for clauses that may use them."""
    shared: dict[str, Flow] = field(default_factory=dict)
    """Columns of USING that aren't just the first source's."""
    bound: frozenset[str] = frozenset()
    """Parameters of lambdas."""

    _indexes: dict[int, tuple[SqlRelation, dict[str, list[SqlColumn]]]] = field(default_factory=dict)
    """Columns of relations by folded name, cached."""

    def inner(self) -> "NameScope":
        """Open the scope of a query in an expression, or after LATERAL."""
        return NameScope(self.fold, outer=self)

    def find(self, parts: Sequence[str]) -> Flow:
        """Find the flow of a name; NOTHING if it is ambiguous or unknown."""
        if self.fold(parts[0]) in self.bound:
            return NO_FLOW
        found = self._find(parts)
        if found is not None:
            return found
        return NO_FLOW if self.outer is None else self.outer.find(parts)

    def _find(self, parts: Sequence[str]) -> Flow | None:
        for size in range(len(parts) - 1, 0, -1):
            source = self.source(parts[:size])
            if source is not None:
                return self._column(source, parts[size], within=size + 1 < len(parts))
        name, within = parts[0], len(parts) > 1
        if within and self.outer is not None and self.outer.qualifies(parts) and not self._has(name):
            return None
        found = self._find_unqualified(name)
        if found is None and not within:
            source = self.source(parts)
            found = None if source is None else pass_through(source.relation.flows(), FlowSubtype.TRANSFORMATION)
        return pass_through(found, FlowSubtype.TRANSFORMATION) if within and found is not None else found

    def source(self, parts: Sequence[str]) -> ScopeSource | None:
        """Find the only source of a name."""
        wanted = [self.fold(part) for part in parts]
        found = [
            source for source in self.sources if [self.fold(part) for part in source.parts[-len(wanted) :]] == wanted
        ]
        return found[0] if len(found) == 1 else None

    def _column(self, source: ScopeSource, name: str, *, within: bool) -> Flow:
        candidates = self._find_flows(source.relation, name) or _guess_flows(source.relation, name)
        flow = candidates[0] if len(candidates) == 1 else NO_FLOW
        return pass_through(flow, FlowSubtype.TRANSFORMATION) if within else flow

    def _find_flows(self, relation: SqlRelation, name: str) -> list[Flow]:
        if id(relation) not in self._indexes:
            self._indexes[id(relation)] = relation, _group_by_name(relation, self.fold)
        columns = self._indexes[id(relation)][1].get(self.fold(name), ())
        exact = [column.flow for column in columns if column.name == name]
        return exact or [column.flow for column in columns]

    def _find_unqualified(self, name: str) -> Flow | None:
        folded = self.fold(name)
        if folded in self.shared:
            return self.shared[folded]
        visible = [source for source in self.sources if folded not in source.hidden]
        known = [flow for source in visible for flow in self._find_flows(source.relation, name)]
        if known:
            return known[0] if len(known) == 1 else NO_FLOW
        if folded in self.aliases:
            return NO_FLOW if self._is_open else self.aliases[folded]
        if not self._is_open:
            return None
        guesses = [flow for source in visible for flow in _guess_flows(source.relation, name)]
        elsewhere = self.outer is not None and self.outer.knows(name)
        return guesses[0] if len(guesses) == 1 and not elsewhere else NO_FLOW

    @property
    def _is_open(self) -> bool:
        """Return whether there may be unknown columns."""
        return any(not is_closed(source.relation) for source in self.sources)

    def qualifies(self, parts: Sequence[str]) -> bool:
        """Return whether the name begins with a source's name."""
        here = any(self.source(parts[:size]) is not None for size in range(1, len(parts)))
        return here or (self.outer is not None and self.outer.qualifies(parts))

    def _has(self, name: str) -> bool:
        return any(self._find_flows(source.relation, name) for source in self.sources)

    def knows(self, name: str) -> bool:
        """Return whether the name is, or may be, known here."""
        return self._find_unqualified(name) is not None or (self.outer is not None and self.outer.knows(name))


def is_closed(relation: SqlRelation) -> bool:
    """Return whether all columns' names are known."""
    return all(isinstance(column, SqlColumn) and column.name is not None for column in relation.columns)


def _group_by_name(relation: SqlRelation, fold: Fold) -> dict[str, list[SqlColumn]]:
    index: dict[str, list[SqlColumn]] = {}
    for column in relation.columns:
        if isinstance(column, SqlColumn) and column.name is not None:
            index.setdefault(fold(column.name), []).append(column)
    return index


def _guess_flows(relation: SqlRelation, name: str) -> list[Flow]:
    return [
        column.find_flow(name) if isinstance(column, OpenColumns) else NO_FLOW
        for column in relation.columns
        if _is_guess(column)
    ]


def _is_guess(column: SqlColumn | OpenColumns) -> bool:
    return isinstance(column, OpenColumns) or column.name is None


def expand_star(scope: NameScope, sources: Iterable[ScopeSource]) -> list[SqlColumn | OpenColumns]:
    """Expand `*`."""
    columns: list[SqlColumn | OpenColumns] = []
    for source in sources:
        for column in source.relation.columns:
            name = scope.fold(column.name) if isinstance(column, SqlColumn) and column.name is not None else None
            if name is not None and name in source.hidden:
                continue
            shared = scope.shared.get(name) if name is not None else None
            columns.append(
                column if shared is None or isinstance(column, OpenColumns) else SqlColumn(column.name, shared)
            )
    return columns


def merge_coalesced(flows: Iterable[Flow]) -> Flow:
    """Merge the flows of columns of which the first that isn't NULL counts."""
    return pass_through(merge_flows(flows), FlowSubtype.TRANSFORMATION)
