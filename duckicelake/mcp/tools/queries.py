"""Tools that read rows or estimate what that costs: run_query, sample, explain, profile_column."""

import time
from collections.abc import Sequence
from typing import Annotated, Any, Final

from pydantic import Field, TypeAdapter

from duckicelake.client.lake import Lake
from duckicelake.client.models import ColumnMetrics, quote_sql_name
from duckicelake.client.query_result import PlanInfo
from duckicelake.errors import BadInputError, NotAllowedError
from duckicelake.iceberg import values
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.mcp.tools.tool import (
    AtArgument,
    NameArgument,
    Tool,
    ToolArguments,
    ToolContext,
    ToolError,
    ToolResult,
)
from duckicelake.rest.names import parse_table

_MAX_ROWS: Final = 10_000
_MAX_BYTES: Final = 1 << 20
_MAX_SECONDS: Final = 300
_SAMPLE_BYTES: Final = 256 << 10
_SAMPLE_SECONDS: Final = 30.0
_TEXT_TYPES: Final = frozenset({"string", "binary", "fixed"})
SqlArgument = Annotated[
    str,
    Field(
        min_length=1,
        max_length=100_000,
        description="One SELECT in DuckDB's SQL. Tables are named as describe says in sql_name.",
    ),
]


class TableEstimate(ToolResult):
    """What a scan of the query reads of a table. where: the conditions that leave out files. Null: not known."""

    table: str
    where: str | None
    files: int | None
    files_of_table: int | None
    rows: int | None
    bytes: int | None


class QueryEstimate(ToolResult):
    """What a query reads at most, each table as often as it is scanned. Columns that it leaves out are counted."""

    tables: list[TableEstimate]
    files: int
    rows: int
    scan_bytes: int
    is_known: Annotated[bool, Field(description="False: the catalog has no statistics of an older state.")]
    is_hidden: Annotated[
        bool,
        Field(description="True: there is none, as the caller may read the rows, and not what statistics say of them."),
    ] = False


def build_estimate(plan: PlanInfo) -> QueryEstimate:
    """Sum up what the scans of a plan read."""
    tables = [
        TableEstimate(
            table=scan.table,
            where=scan.where,
            files=scan.files,
            files_of_table=scan.files_of_table,
            rows=scan.rows,
            bytes=scan.bytes,
        )
        for scan in plan.scans
    ]
    return QueryEstimate(
        tables=tables,
        files=sum(table.files or 0 for table in tables),
        rows=sum(table.rows or 0 for table in tables),
        scan_bytes=sum(table.bytes or 0 for table in tables),
        is_known=all(table.bytes is not None for table in tables),
    )


class QueryArguments(ToolArguments):
    """A query and its budgets."""

    sql: SqlArgument
    namespace: Annotated[
        str, Field(max_length=1000, description="Namespace of tables that are named without one. Empty: main.")
    ] = ""
    at: AtArgument = None
    max_rows: Annotated[int, Field(ge=1, le=_MAX_ROWS)] = 100
    max_bytes: Annotated[int, Field(ge=1000, le=_MAX_BYTES, description="Of the rows, as JSON.")] = 100_000
    timeout_seconds: Annotated[int, Field(ge=1, le=_MAX_SECONDS)] = 30
    confirmed_scan_bytes: Annotated[
        int, Field(ge=0, description="Bytes that the person agrees to read. Needed where the estimate is over budget.")
    ] = 0


def estimate_query(lake: Lake, arguments: QueryArguments) -> QueryEstimate:
    """Return what a query reads. Raises NotAllowedError for one that the caller may not run."""
    namespace, at = arguments.namespace, arguments.at
    try:
        return build_estimate(lake.explain_sql(arguments.sql, namespace=namespace, at=at))
    except NotAllowedError:  # of the query, or of its plan alone
        lake.sql(f"SELECT 1 FROM (\n{arguments.sql.strip().rstrip(';')}\n) LIMIT 0", namespace=namespace, at=at)
        return QueryEstimate(tables=[], files=0, rows=0, scan_bytes=0, is_known=False, is_hidden=True)


class QueryRows(ToolResult):
    """Rows of a query. Decimals, times and bytes are texts."""

    rows: list[dict[str, Any]]
    is_cut: Annotated[bool, Field(description="True: there are more rows than max_rows or max_bytes allow.")]
    estimate: QueryEstimate
    seconds: float


def run_query(context: ToolContext, arguments: QueryArguments) -> QueryRows:
    """Run a query within its budgets. ToolError over_budget."""
    began = time.monotonic()
    estimate = estimate_query(context.lake, arguments)
    _check_budget(estimate, context.scan_bytes, arguments.confirmed_scan_bytes)
    page = context.lake.preview(
        arguments.sql,
        namespace=arguments.namespace,
        at=arguments.at,
        limit=arguments.max_rows,
        max_bytes=arguments.max_bytes,
        seconds=arguments.timeout_seconds,
    )
    seconds = round(time.monotonic() - began, 3)
    return QueryRows(rows=page.rows, is_cut=page.is_cut, estimate=estimate, seconds=seconds)


def _check_budget(estimate: QueryEstimate, budget: int, confirmed: int) -> None:
    if estimate.scan_bytes <= max(budget, confirmed) if estimate.is_known else confirmed > 0:
        return
    what = "more bytes than the budget" if estimate.is_known else "an amount that can't be estimated"
    raise ToolError(
        "over_budget",
        f"The query reads {what}, and was not run",
        scan_bytes=estimate.scan_bytes if estimate.is_known else None,
        budget_bytes=budget,
        estimate=estimate.model_dump(),
    )


class SampleArguments(ToolArguments):
    """What to show rows of."""

    name: NameArgument
    rows: Annotated[int, Field(ge=1, le=100)] = 10
    at: AtArgument = None


class SampleRows(ToolResult):
    """Some rows, not chosen at random."""

    rows: list[dict[str, Any]]
    is_cut: bool


def sample(context: ToolContext, arguments: SampleArguments) -> SampleRows:
    """Read some rows of a table or view."""
    statement = f"FROM {quote_sql_name(*parse_table(arguments.name))}"
    page = context.lake.preview(
        statement, at=arguments.at, limit=arguments.rows, max_bytes=_SAMPLE_BYTES, seconds=_SAMPLE_SECONDS
    )
    return SampleRows(rows=page.rows, is_cut=page.is_cut)


class ExplainArguments(ToolArguments):
    """A query to explain."""

    sql: SqlArgument
    namespace: Annotated[
        str, Field(max_length=1000, description="Namespace of tables that are named without one. Empty: main.")
    ] = ""
    at: AtArgument = None


class QueryPlan(ToolResult):
    """DuckDB's plan, and what the query reads at most."""

    plan: str
    estimate: QueryEstimate


def explain(context: ToolContext, arguments: ExplainArguments) -> QueryPlan:
    """Explain a query without running it."""
    plan = context.lake.explain_sql(arguments.sql, namespace=arguments.namespace, at=arguments.at)
    return QueryPlan(plan=plan.text, estimate=build_estimate(plan))


class ProfileArguments(ToolArguments):
    """A column to profile. at: a snapshot id, branch or tag."""

    name: NameArgument
    column: Annotated[str, Field(min_length=1, max_length=1000, description="A top-level column of the table.")]
    at: Annotated[
        str | None, Field(max_length=200, description="An Iceberg snapshot id, a branch or a tag. Null: main.")
    ] = None


class ColumnProfile(ToolResult):
    """Statistics of a column, from the catalog. Null: not known of every file."""

    column: str
    type: str
    files: int
    rows: Annotated[int, Field(description="Deleted ones included.")]
    nulls: int | None
    nans: int | None
    minimum: Any
    maximum: Any
    bytes: Annotated[int | None, Field(description="Of the column in the files, compressed.")]
    is_exact: Annotated[bool, Field(description="False: rows were deleted since, or long texts are cut.")]


def profile_column(context: ToolContext, arguments: ProfileArguments) -> ColumnProfile:
    """Sum up the catalog's statistics of a column; no data file is read."""
    table = context.lake.table(arguments.name)
    column = next((one for one in table.load().columns if one.name == arguments.column), None)
    if column is None:
        raise BadInputError(f"{table.name} has no top-level column {arguments.column!r}")
    metrics = list(table.column_metrics(arguments.column, arguments.at))
    is_primitive = "<" not in column.type
    minimum, maximum = _find_extremes(column.type, metrics) if is_primitive else (None, None)
    has_deletes = any(one.delete_files for one in metrics)
    return ColumnProfile(
        column=column.name,
        type=column.type,
        files=len(metrics),
        rows=sum(one.rows for one in metrics),
        nulls=_sum_known([one.nulls for one in metrics]),
        nans=_sum_known([one.nans for one in metrics]) if column.type in {"float", "double"} else None,
        minimum=minimum,
        maximum=maximum,
        bytes=_sum_known([one.stored_bytes for one in metrics]),
        is_exact=not has_deletes and column.type.partition("[")[0] not in _TEXT_TYPES,
    )


def _find_extremes(type_: str, metrics: Sequence[ColumnMetrics]) -> tuple[Any, Any]:
    """Return the least lower and the greatest upper bound as JSON; None unless each file with values has one."""
    with_values = [one for one in metrics if one.nulls is None or one.nulls < one.rows]
    kind = TypeAdapter(PrimitiveType).validate_python(type_)

    def decode(bounds: Sequence[bytes | None]) -> list[Any] | None:
        known = [values.from_bytes(kind, bound) for bound in bounds if bound is not None]
        return known if known and len(known) == len(bounds) else None

    lower = decode([one.lower for one in with_values])
    upper = decode([one.upper for one in with_values])
    return (
        None if lower is None else values.to_json(kind, min(lower)),
        None if upper is None else values.to_json(kind, max(upper)),
    )


def _sum_known(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


QUERY_TOOLS: Final = (
    Tool(
        "sample",
        "Show some rows",
        "Return some rows of a table or view, not chosen at random.",
        SampleArguments,
        SampleRows,
        sample,
    ),
    Tool(
        "run_query",
        "Run a query",
        "Run one SELECT of DuckDB's SQL, within budgets of rows, bytes and time. What it reads is estimated first; a "
        "query over the server's budget is refused until the person confirms it.",
        QueryArguments,
        QueryRows,
        run_query,
        seconds=_MAX_SECONDS + 30.0,
    ),
    Tool(
        "explain",
        "Explain a query",
        "Return DuckDB's plan of a SELECT, and how many files, rows and bytes it reads at most. Nothing is read.",
        ExplainArguments,
        QueryPlan,
        explain,
    ),
    Tool(
        "profile_column",
        "Profile a column",
        "Return minimum, maximum, nulls and size of a column from the catalog's statistics. No data is read.",
        ProfileArguments,
        ColumnProfile,
        profile_column,
    ),
)
