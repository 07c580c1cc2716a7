"""Tools that change something, for a server with --read-write: create_table, create_branch, append_rows, set_comment.

Nothing here writes rows to `main`: an agent makes a branch, and a person merges it.
"""

from typing import Annotated, Any, Final

from pydantic import Field

from duckicelake.client.models import MAIN_BRANCH, TableInfo
from duckicelake.mcp.tools.tool import (
    NameArgument,
    Tool,
    ToolArguments,
    ToolContext,
    ToolError,
    ToolResult,
)

_MAX_ROWS: Final = 1000
BranchArgument = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$",
        description="Name of a branch, in letters, digits, dots, hyphens and underscores. Never main.",
    ),
]


def check_branch(name: str) -> None:
    """Raise ToolError protected_branch for `main`, in any case. Other letters than ASCII's are no branch's name."""
    if name.casefold() == MAIN_BRANCH:
        raise ToolError("protected_branch", "Agents don't write to main")


class CreateTableArguments(ToolArguments):
    """A table to create."""

    name: NameArgument
    columns: Annotated[
        str,
        Field(
            min_length=1,
            max_length=100_000,
            description="As id long not null, name string comment 'Full name', tags list<string>. Types are Iceberg's.",
        ),
    ]
    partition_by: Annotated[str, Field(max_length=10_000, description="As day(time), bucket(16, id), region.")] = ""
    comment: Annotated[str, Field(max_length=10_000)] = ""


class CreatedTable(ToolResult):
    """The table that is there now, without rows."""

    name: str


def create_table(context: ToolContext, arguments: CreateTableArguments) -> CreatedTable:
    """Create an empty table."""
    properties = {"comment": arguments.comment} if arguments.comment else {}
    table = context.lake.create_table(
        arguments.name, arguments.columns, partition_by=arguments.partition_by, properties=properties
    )
    return CreatedTable(name=table.name)


class CreateBranchArguments(ToolArguments):
    """A branch to create. at: a snapshot id, branch or tag."""

    name: NameArgument
    branch: BranchArgument
    at: Annotated[
        str | None, Field(max_length=200, description="An Iceberg snapshot id, a branch or a tag. Null: main.")
    ] = None


class CreatedBranch(ToolResult):
    """The branch, and the snapshot that it points to."""

    name: str
    branch: str
    snapshot_id: int


def create_branch(context: ToolContext, arguments: CreateBranchArguments) -> CreatedBranch:
    """Create a branch that isn't there yet."""
    check_branch(arguments.branch)
    table = context.lake.table(arguments.name)
    snapshot_id = table.resolve_snapshot(arguments.at)
    table.set_ref(arguments.branch, "branch", snapshot_id)
    return CreatedBranch(name=table.name, branch=arguments.branch, snapshot_id=snapshot_id)


class AppendArguments(ToolArguments):
    """Rows to append to a branch."""

    name: NameArgument
    branch: BranchArgument
    rows: Annotated[
        list[dict[str, Any]],
        Field(min_length=1, max_length=_MAX_ROWS, description="Objects by column; decimals and times are texts."),
    ]


class AppendedRows(ToolResult):
    """How many rows the branch has got, and its snapshot now."""

    name: str
    branch: str
    rows: int
    snapshot_id: int | None


def append_rows(context: ToolContext, arguments: AppendArguments) -> AppendedRows:
    """Append rows to a branch."""
    check_branch(arguments.branch)
    table = context.lake.table(arguments.name)
    done = table.append(arguments.rows, branch=arguments.branch)
    return AppendedRows(name=table.name, branch=arguments.branch, rows=done.rows, snapshot_id=done.snapshot_id)


class SetCommentArguments(ToolArguments):
    """A comment to set."""

    name: NameArgument
    column: Annotated[str | None, Field(max_length=1000, description="Comment this column of the table instead.")] = (
        None
    )
    comment: Annotated[str, Field(max_length=10_000, description="Empty: remove the comment.")]


class ReplacedComment(ToolResult):
    """The comment that was there before; null if there was none."""

    name: str
    column: str | None
    previous: str | None


def set_comment(context: ToolContext, arguments: SetCommentArguments) -> ReplacedComment:
    """Set or remove the comment of a table, view or column."""
    info = context.lake.find(arguments.name)
    if arguments.column is not None:
        column = next((one for one in info.columns if one.name == arguments.column), None)
        context.lake.table(arguments.name).set_column_comment(arguments.column, arguments.comment or None)
        previous = None if column is None else column.comment
    else:
        kind = context.lake.table if isinstance(info, TableInfo) else context.lake.view
        updates = {"comment": arguments.comment} if arguments.comment else {}
        removals = () if arguments.comment else ("comment",)
        kind(arguments.name).update_properties(updates, removals)
        previous = info.comment
    return ReplacedComment(name=info.name, column=arguments.column, previous=previous)


CHANGE_TOOLS: Final = (
    Tool(
        "create_table",
        "Create a table",
        "Create an empty table.",
        CreateTableArguments,
        CreatedTable,
        create_table,
        is_change=True,
        is_idempotent=False,
    ),
    Tool(
        "create_branch",
        "Create a branch",
        "Create a branch of a table, to write to. A person merges it into main.",
        CreateBranchArguments,
        CreatedBranch,
        create_branch,
        is_change=True,
        is_idempotent=False,
    ),
    Tool(
        "append_rows",
        "Append rows to a branch",
        "Append rows to a branch of a table, all or none. Main is refused: make a branch, and let a person merge it.",
        AppendArguments,
        AppendedRows,
        append_rows,
        is_change=True,
        is_idempotent=False,
    ),
    Tool(
        "set_comment",
        "Set a comment",
        "Set or remove the comment of a table, view or column. The result has the comment that was there.",
        SetCommentArguments,
        ReplacedComment,
        set_comment,
        is_change=True,
        is_destructive=True,
    ),
)
