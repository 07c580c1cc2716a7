"""The task that gives Bloom filters to the files that have none, in tables that ask for them by a property."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.upkeep_tasks import TaskControl
from duckicelake.errors import InvalidRequestError, UnavailableError
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.ducklake import native
from duckicelake.maintenance.policy import find_filter_columns
from duckicelake.maintenance.task import DUCKLAKE_SNAPSHOT, TaskOutcome, UpkeepTask
from duckicelake.properties import BLOOM_FILTER_PREFIX
from duckicelake.rewrites.actions import Rewrite
from duckicelake.rewrites.member_files import find_damaged_footer
from duckicelake.rewrites.rows import ProcessFailedError, RewriteProcess
from duckicelake.rewrites.selection import FilePaths, MemberFile, RewriteGroup, group_all
from duckicelake.rewrites.source import RewrittenTable

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
    """The task while it runs. columns: which get filters; asked_ids: which the table has asked for all the time."""

    columns: dict[int, str] = field(default_factory=dict)
    asked_ids: Sequence[int] | None = None

    def choose_groups(
        self, process: RewriteProcess, table: RewrittenTable, files: Sequence[MemberFile], paths: FilePaths
    ) -> list[RewriteGroup]:
        """Choose the files without filters, by the footers of all."""
        asked, self.columns = _find_columns(table.metadata)
        self.asked_ids = [id_ for id_ in asked if self.asked_ids is None or id_ in self.asked_ids]
        without = set[str]()
        for columns, named_alike in self._group_by_names(files):
            rest = iter(named_alike)
            while some := [*islice(rest, _FOOTERS_AT_ONCE)]:
                self.control.check()
                try:
                    without |= process.find_files_without_filters(some, columns)
                except (UnavailableError, ProcessFailedError) as error:
                    self.damage.add(find_damaged_footer(self.services, process, some), error)
        return group_all((file for file in files if file.path in without), self.task.target_size, paths)

    def _group_by_names(self, files: Sequence[MemberFile]) -> list[tuple[dict[int, str], list[MemberFile]]]:
        """Return the names of the columns in files, and the files; in those without any there is nothing to filter."""
        by_mapping: defaultdict[int | None, list[MemberFile]] = defaultdict(list)
        for file in files:
            by_mapping[file.mapping_id].append(file)
        with self.services.database.reading() as cursor:
            maps = native.read_name_maps(cursor, {mapping_id for mapping_id in by_mapping if mapping_id is not None})
        names = {
            mapping_id: {
                name.field_id: name.source_name
                for name in name_map.names
                if name.field_id in self.columns and name.parent is None and not name.is_partition
            }
            for mapping_id, name_map in maps.items()
        }
        found = [
            (self.columns if mapping_id is None else names[mapping_id], named_alike)
            for mapping_id, named_alike in by_mapping.items()
        ]
        return [(columns, named_alike) for columns, named_alike in found if columns]

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The columns that have filters now, and the ids of those that the table asked for: plans compare these."""
        ids = self.asked_ids or ()
        return {"columns": [self.columns[id_] for id_ in ids if id_ in self.columns], "column-ids": [*ids]}

    def explain_no_groups(self, version: TableVersion) -> TaskOutcome:
        """Say up to when all files have filters."""
        counts = {DUCKLAKE_SNAPSHOT: version.lake_snapshot}
        return TaskOutcome("unchanged", "all files have Bloom filters", (), counts, self.parameters)


def _find_columns(metadata: TableMetadata) -> tuple[list[int], dict[int, str]]:
    """Find the ids of columns that the table asks filters for, and names by id of those that are to have them.

    Raises InvalidRequestError if none can have one.
    """
    named = find_filter_columns(metadata.properties)
    asked = [column for column in metadata.schema().fields if column.name in named]
    found = {column.id: column.name for column in asked if _can_have_filter(column.type)}
    if not found:
        raise InvalidRequestError(
            f"No column of {', '.join(named) or 'none'} can have a Bloom filter: name one of the table in "
            f"{BLOOM_FILTER_PREFIX}<name>, which is no boolean, list, map, struct, variant or geometry, and no "
            f"decimal of more than {_MAX_DIGITS} digits"
        )
    return [column.id for column in asked], found


def _can_have_filter(type_: object) -> bool:
    """Return whether DuckDB writes filters of a type."""
    if not isinstance(type_, PrimitiveType):
        return False
    return type_.name != "boolean" and not type_.traits.is_opaque and (type_.precision or 0) <= _MAX_DIGITS
