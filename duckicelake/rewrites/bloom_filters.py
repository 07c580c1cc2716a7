"""The task that gives Bloom filters to the files that have none, in tables that ask for them by a property."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.upkeep_tasks import TaskControl
from duckicelake.errors import InvalidRequestError, UnavailableError
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.maintenance.policy import find_filter_columns
from duckicelake.maintenance.task import DUCKLAKE_SNAPSHOT, TaskOutcome, UpkeepTask
from duckicelake.properties import BLOOM_FILTER_PREFIX
from duckicelake.rewrites.actions import Rewrite
from duckicelake.rewrites.member_files import explain_footer_failure
from duckicelake.rewrites.rows import ProcessFailedError, RewriteProcess, RewrittenTable
from duckicelake.rewrites.selection import FilePaths, MemberFile, RewriteGroup, group_all

_FOOTERS_AT_ONCE: Final = 500
_MAX_DIGITS: Final = 18
"""Of decimals for which DuckDB writes filters."""


def build_filters(services: Services, task: UpkeepTask, control: TaskControl) -> TaskOutcome:
    """Rewrite the files in which columns that the table asks for have no Bloom filter.

    Raises InvalidRequestError if no such column can have one, and as `compact`.
    """
    return _FilterRewrite(services, task, control, is_whole=True).run()


@dataclass(slots=True)
class _FilterRewrite(Rewrite):
    """The task while it runs."""

    def choose_groups(
        self, process: RewriteProcess, table: RewrittenTable, files: Sequence[MemberFile], paths: FilePaths
    ) -> list[RewriteGroup]:
        """Choose the files without filters, by the footers of all."""
        columns, without, rest = _find_columns(table.metadata), set[str](), iter(files)
        while some := [*islice(rest, _FOOTERS_AT_ONCE)]:
            self.control.check()
            try:
                without |= process.find_files_without_filters(some, columns)
            except (UnavailableError, ProcessFailedError) as error:
                raise explain_footer_failure(self.services, process, some, error) from error
        return group_all((file for file in files if file.path in without), self.task.target_size, paths)

    def explain_no_groups(self, version: TableVersion) -> TaskOutcome:
        """Say up to when all files have filters."""
        return TaskOutcome("unchanged", "all files have Bloom filters", (), {DUCKLAKE_SNAPSHOT: version.lake_snapshot})


def _find_columns(metadata: TableMetadata) -> dict[int, str]:
    """Find the columns that are to have filters, names by id. Raises InvalidRequestError if none can have one."""
    named = find_filter_columns(metadata.properties)
    found = {one.id: one.name for one in metadata.schema().fields if one.name in named and _can_have_filter(one.type)}
    if not found:
        raise InvalidRequestError(
            f"No column of {', '.join(named) or 'none'} can have a Bloom filter: name one of the table in "
            f"{BLOOM_FILTER_PREFIX}<name>, which is no boolean, list, map, struct, variant or geometry, and no "
            f"decimal of more than {_MAX_DIGITS} digits"
        )
    return found


def _can_have_filter(type_: object) -> bool:
    """Return whether DuckDB writes filters of a type."""
    if not isinstance(type_, PrimitiveType):
        return False
    return type_.name != "boolean" and not type_.traits.is_opaque and (type_.precision or 0) <= _MAX_DIGITS
