"""PURE. Lineage of a statement from its text and known tables, and as OpenLineage's columnLineage facet."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from sqlglot import exp
from sqlglot.errors import SqlglotError

from duckicelake.lineage.openlineage.names import PRODUCER
from duckicelake.lineage.sql.dialects import SqlDialect, find_dialect
from duckicelake.lineage.sql.expressions import SqlTooComplexError
from duckicelake.lineage.sql.functions import name_file_dataset
from duckicelake.lineage.sql.model import ColumnOrigin, Files, Flow, FlowEffect, Lookup, SqlDataset, StatementLineage
from duckicelake.lineage.sql.scopes import fold_ascii
from duckicelake.lineage.sql.statements import StatementReader

_COLUMN_LINEAGE: Final = (
    "https://openlineage.io/spec/facets/1-2-0/ColumnLineageDatasetFacet.json#/$defs/ColumnLineageDatasetFacet"
)
LAKE: Final = "__lake__"
"""The catalog's name in the definition of a DuckLake view, which leaves it open."""
_UNREADABLE: Final = (SqlglotError, RecursionError, AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What sqlglot raises for texts that nobody tried on it, and what its trees make of expectations."""


def build_column_lineage(lineage: StatementLineage) -> dict[str, Any] | None:
    """Return the facet of the output; None if no column of an input is known to matter."""
    fields = {name: {"inputFields": _build_inputs(flow)} for name, flow in (lineage.fields or {}).items() if flow}
    influence = lineage.influence or {}
    if not fields and not influence:
        return None
    facet = {"_producer": PRODUCER, "_schemaURL": _COLUMN_LINEAGE, "fields": fields}
    return {**facet, "dataset": _build_inputs(influence)} if influence else facet


def _build_inputs(flow: Flow) -> list[dict[str, Any]]:
    return [_build_input(origin, flow[origin]) for origin in sorted(flow, key=_sort_key)]


def _sort_key(origin: ColumnOrigin) -> tuple[str, str, str]:
    return origin.dataset.namespace, origin.dataset.name, origin.column


def _build_input(origin: ColumnOrigin, effects: Iterable[FlowEffect]) -> dict[str, Any]:
    return {
        "namespace": origin.dataset.namespace,
        "name": origin.dataset.name,
        "field": origin.column,
        "transformations": [_build_transformation(effect) for effect in sorted(effects)],
    }


def _build_transformation(effect: FlowEffect) -> dict[str, Any]:
    kind = "DIRECT" if effect.is_direct else "INDIRECT"
    return {"type": kind, "subtype": effect.subtype.value, "description": "", "masking": effect.masking}


def read_view_lineage(
    sql: str, dialect: str, view: SqlDataset, lookup: Lookup, *, files: Files = name_file_dataset
) -> StatementLineage | None:
    """Return the lineage of a view by its query, or by its CREATE VIEW; None if nothing can be said.

    Tables and views are named as the user named them: a view in the query isn't replaced by its own. The view's columns
    name the query's in their order.
    """
    text = sql.replace("{DUCKLAKE_CATALOG}", LAKE)

    def read() -> StatementLineage | None:
        node = parse_statement(text, dialect)
        if node is None:
            return None
        if isinstance(node, exp.Create):
            target = tuple(part.name for part in node.find(exp.Table).parts)  # type: ignore[union-attr]
            found = _build_reader(dialect, lambda parts: view if parts == target else lookup(parts), files).lineage(
                node
            )
        else:
            found = _build_reader(dialect, lookup, files).lineage(node, view.columns)
        return None if found is None else StatementLineage(found.inputs, view, found.fields, found.influence)

    return _read_guarded(read)


def parse_statement(sql: str, dialect: str) -> exp.Expr | None:
    """Return the statement's syntax tree; None for several statements, none, and those too long or nested too deep."""
    found = find_dialect(dialect)
    try:
        return None if found is None else found.parsed(sql)
    except _UNREADABLE:
        return None


def read_lineage(
    tree: exp.Expr, dialect: str, lookup: Lookup, files: Files = name_file_dataset
) -> StatementLineage | None:
    """Return what a statement that is `parsed` reads and writes, and which columns flow where.

    None if nothing can be said.
    """
    return _read_guarded(lambda: _build_reader(dialect, lookup, files).lineage(tree))


def _build_reader(dialect: str, lookup: Lookup, files: Files) -> StatementReader:
    fold = fold_ascii if find_dialect(dialect) is SqlDialect.DUCKDB else str.lower
    return StatementReader(fold, lookup, files)


def _read_guarded(read: Callable[[], StatementLineage | None]) -> StatementLineage | None:
    try:
        return read()
    except (*_UNREADABLE, SqlTooComplexError):
        return None
