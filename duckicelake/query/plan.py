"""Explain a query: DuckDB's plan, and how many files of each table its scans read, by the catalog's statistics."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.scan_explanation import ExplainQuery, FileTotals, explain_table_scan, is_decided
from duckicelake.errors import ExpiredError, InvalidRequestError, NotFoundError
from duckicelake.iceberg.identifiers import Namespace, format_full_name
from duckicelake.iceberg.model import SpecModel
from duckicelake.query.reach import load_queried_table
from duckicelake.query.statement import ResolvedSnapshot, ResolvedTable

_SCAN: Final = "DUCKLAKE_SCAN"
_OPTIONAL: Final = "optional: "
"""Before a filter that a scan needn't apply, as another operator does; it prunes files all the same."""


@dataclass(frozen=True, slots=True)
class TableRead:
    """A table that a query names, and the state of it that is read."""

    namespace: Namespace
    name: str
    resolved: ResolvedTable | ResolvedSnapshot


class ScanEstimate(SpecModel):
    """What a scan reads of a table at most, whichever columns it takes.

    Attributes:
        where: the conditions that leave out files; null: none does.
        read: files that may have rows of the query; rows are those before deletes. Null: the catalog doesn't know.
        total: all files of the table, at the state that is read.

    """

    table: str
    where: str | None = None
    read: FileTotals | None = None
    total: FileTotals | None = None


class QueryExplanation(SpecModel):
    """DuckDB's plan, drawn as text; what its scans read, each for itself; and the sum of that."""

    plan: str
    scans: tuple[ScanEstimate, ...]
    read: FileTotals


@dataclass(frozen=True, slots=True)
class _Scan:
    """A scan of DuckDB's plan: the name of a table without its schema, and the filters that DuckDB gives it."""

    name: str
    filters: tuple[str, ...]


def build_plan(
    services: Services, answer: Mapping[str, Any], reads: Sequence[TableRead], newest: int | None
) -> QueryExplanation:
    """Build the plan of a query from DuckDB's. newest: DuckLake's snapshot of now, if it is known."""
    estimates = tuple(_estimate_scans(services, [*_find_scans(answer["tree"])], reads, newest))
    read = [estimate.read for estimate in estimates if estimate.read is not None]
    total = FileTotals(
        files=sum(one.files for one in read), bytes=sum(one.bytes for one in read), rows=sum(one.rows for one in read)
    )
    return QueryExplanation(plan=answer["text"], scans=estimates, read=total)


def _find_scans(tree: Any) -> Iterator[_Scan]:
    for node in tree:
        if node["name"].strip() == _SCAN:
            filters = node["extra_info"].get("Filters", [])
            texts = [filters] if isinstance(filters, str) else filters
            yield _Scan(node["extra_info"].get("Table", ""), tuple(text.removeprefix(_OPTIONAL) for text in texts))
        yield from _find_scans(node["children"])


def _estimate_scans(
    services: Services, scans: Sequence[_Scan], reads: Sequence[TableRead], newest: int | None
) -> Iterator[ScanEstimate]:
    """Estimate each scan. Where a name stands for two tables or states, the filters may be of either, and are left."""
    named: dict[str, dict[TableRead, None]] = {}
    for read in reads:
        if isinstance(read.resolved, ResolvedTable):
            named.setdefault(read.resolved.name, {})[read] = None
        else:
            yield _estimate(services, read, str(read.resolved.snapshot_id), ())
    for scan in scans:
        found = [*named.get(scan.name, ())]
        if len(found) == 1:
            yield _estimate(services, found[0], _choose_state(found[0], newest), scan.filters)
    for several in named.values():
        for read in several if len(several) > 1 else ():
            yield _estimate(services, read, _choose_state(read, newest), ())


def _choose_state(read: TableRead, newest: int | None) -> str | None:
    assert isinstance(read.resolved, ResolvedTable)
    return None if read.resolved.version == newest else str(read.resolved.version)


def _estimate(services: Services, read: TableRead, at: str | None, filters: Sequence[str]) -> ScanEstimate:
    schema = load_queried_table(services, read.namespace, read.name).metadata.schema()
    where = " AND ".join(f"({text})" for text in filters if is_decided(text, schema)) or None
    try:
        found = _explain(services, read, ExplainQuery(where=where, at=at))
    except InvalidRequestError:  # an older state has other columns
        where, found = None, _explain(services, read, ExplainQuery(at=at))
    name = format_full_name(read.namespace, read.name)
    return ScanEstimate(table=name, where=where, read=found[0], total=found[1])


def _explain(
    services: Services, read: TableRead, query: ExplainQuery
) -> tuple[FileTotals, FileTotals] | tuple[None, None]:
    """Return what is read, and of how much; None for a state that Iceberg doesn't list."""
    try:
        explained = explain_table_scan(services, read.namespace, read.name, query)
    except ExpiredError:
        return None, None
    except NotFoundError:  # the table had no rows yet
        return FileTotals(), FileTotals()
    return explained.read, explained.total
