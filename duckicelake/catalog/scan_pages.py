"""Which files a scan reads, page by page: of manifests in memory or read from the catalog's rows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Final

from duckicelake.bridge.scan.filters import EVERYTHING, FieldTest, ScanFilter, bind_scan_filter, list_tests
from duckicelake.bridge.scan.manifests import BoundedBlock, FileBlock, Matches, find_all_matches, find_matches
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.hooks import PlannedRead
from duckicelake.catalog.context.scan_cache import SizedCache
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.plan_tasks import PlanPart
from duckicelake.catalog.scan_manifests import ManifestScanner
from duckicelake.errors import InvalidRequestError
from duckicelake.extras import DeferredModule
from duckicelake.iceberg.expressions import parse_predicate
from duckicelake.iceberg.manifest.entry import ManifestContent
from duckicelake.iceberg.rest import PlanTableScanRequest
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.side_tables import reader, scan
from duckicelake.lake.state import ManifestRow, SnapshotRow

if TYPE_CHECKING:
    import numpy as np
else:
    np = DeferredModule("numpy")


PAGE_TASKS: Final = 2_000
"""Tasks of one answer; the first one has as many, and the rest as plan tasks."""
MAX_RESIDUAL_BYTES: Final = 16 << 20
"""Of all residuals of one answer: each task repeats a filter, however long it is."""
MAX_READ_FILES: Final = 1_000_000
"""Files whose bounds one request reads. The manifests beyond are pruned when their plan tasks are fetched."""
MAX_DECISIONS: Final = 200_000_000
"""Of one request: files times predicates. They take some 15 ns each; what lies beyond is decided as above."""
_LEAST_FILTER_BYTES: Final = 4_096
_FILTER_BYTES_PER_BODY_BYTE: Final = 8
"""What bound filters take, with the keys of their constants; measured, of 100,000 numbers and texts."""
_FIRST_FILES: Final = 10_000
_MAX_BLOCK_FILES: Final = 320_000
_LEAST_BLOCK_FILES: Final = 160_000
"""Of a block that may end: one ends after a fourth of the manifests, by their ids."""
_MIXER: Final = 0x9E3779B1
_MAX_DELETE_READS: Final = 3
_TRUE: Final = b"true"
_FILE_COLUMN: Final = "_file"


@dataclass(frozen=True)
class Scan:
    """A request to plan, of one snapshot of a table.

    Attributes:
        agent: What the client calls itself.
        body: The request as it was sent.
        kept: Filters that earlier requests bound.
        schema_id: The table's newest schema when the scan was planned; None for now.

    """

    table: TableVersion
    snapshot: SnapshotRow
    request: PlanTableScanRequest
    agent: str
    body: bytes
    kept: SizedCache[tuple[ScanFilter, ...]]
    schema_id: int | None = None

    @cached_property
    def digest(self) -> bytes:
        return sha256(self.body).digest()

    @cached_property
    def schemas(self) -> tuple[Schema, ...]:
        """The schemas in which names are looked up, the one that the request asks for first."""
        known = {schema.schema_id: schema for schema in self.table.metadata.schemas}
        newest = self.table.metadata.schema()
        current = newest if self.schema_id is None else known.get(self.schema_id, newest)
        own = current if self.snapshot.schema_id is None else known.get(self.snapshot.schema_id, current)
        found = (own, current) if self.request.use_snapshot_schema else (current, own)
        return found[:1] if own.schema_id == current.schema_id else found

    @cached_property
    def filters(self) -> tuple[ScanFilter, ...]:
        """The filter with fields of the schemas. Clients fetch hundreds of pages by one, and ask again by the same."""
        key = (self.table.row.table_uuid, tuple(schema.schema_id for schema in self.schemas), self.digest)
        found = self.kept.get(key)
        if found is None:
            predicate = parse_predicate(self.request.filter, takes_transforms=True, place="filter")
            found = bind_scan_filter(predicate, self.schemas, is_case_sensitive=self.request.case_sensitive)
            self.kept.put(key, found, _LEAST_FILTER_BYTES + _FILTER_BYTES_PER_BODY_BYTE * len(self.body))
        return found

    @cached_property
    def _tests(self) -> list[FieldTest]:
        return [test for scan_filter in self.filters for test in list_tests(scan_filter)]

    @cached_property
    def columns(self) -> dict[int, PrimitiveType]:
        """The columns whose bounds decide, by field id."""
        return {test.field_id: test.type for test in self._tests if test.transform is None}

    @cached_property
    def stats_fields(self) -> frozenset[int]:
        wanted = self.request.stats_fields or ()
        known = self._list_names() if wanted else {}
        for place, name in enumerate(wanted):
            if self._fold(name) not in known:
                raise InvalidRequestError(f"stats-fields[{place}]: Cannot find field {name[:60]!r}")
        return frozenset(known[self._fold(name)] for name in wanted)

    @cached_property
    def residual(self) -> bytes:
        """What a reader still filters by in files that don't match wholly: the request's own filter.

        Spark asks for scans whose rows it wants unfiltered, and the protocol has no word for that: it names `_file`, or
        every column of a snapshot. An honest residual would make it drop row groups that it means to keep.

        Constants may be whole numbers of any size, or infinite, which orjson doesn't write.
        """
        if self._wants_whole_files:
            return _TRUE
        return json.dumps(self.request.filter, separators=(",", ":"), ensure_ascii=False).encode()

    @cached_property
    def page_tasks(self) -> int:
        """How many tasks an answer has at most."""
        return max(1, min(PAGE_TASKS, MAX_RESIDUAL_BYTES // len(self.residual)))

    def count_tests(self) -> int:
        """Count the predicates that are decided for each file."""
        return len(self._tests)

    @property
    def is_full(self) -> bool:
        """Whether nothing is tested, so that every file is read."""
        return not self._tests and any(scan_filter == EVERYTHING for scan_filter in self.filters)

    def describe_read(self) -> PlannedRead:
        """Describe what is read, for lineage. Columns that no schema has, such as `_file`, are left out."""
        schema = self.schemas[0]
        names, fold = schema.compute_once(Schema.full_names), str if self.request.case_sensitive else str.lower
        if self.request.select is None:
            projected = [field.name for field in schema.fields]
        else:
            selected = set(map(fold, self.request.select))
            projected = [name for name in names.values() if fold(name) in selected]
        filtered = dict.fromkeys(names[test.field_id] for test in self._tests if test.field_id in names)
        return PlannedRead(self.snapshot.snapshot_id, tuple(projected), tuple(filtered))

    @property
    def _wants_whole_files(self) -> bool:
        selected = self.request.select
        if selected is None:
            return False
        if _FILE_COLUMN in selected:
            return True
        is_java = self.agent.startswith("Apache Iceberg") and self.request.snapshot_id is not None
        names = set(selected)
        return is_java and any({field.name for field in schema.fields} <= names for schema in self.schemas)

    def _list_names(self) -> dict[str, int]:
        return {
            self._fold(name): field_id for schema in reversed(self.schemas) for name, field_id in schema.names().items()
        }

    def _fold(self, name: str) -> str:
        return name if self.request.case_sensitive else name.lower()


@dataclass(frozen=True)
class Page:
    """Files of a block that a scan reads."""

    block: FileBlock
    matches: Matches

    @cached_property
    def file_ids(self) -> list[int]:
        ids: list[int] = self.block.files.file_ids[self.matches.places].tolist()
        return ids

    @property
    def whole_file_ids(self) -> list[int]:
        """The ids of those files of which every row passes the filter."""
        ids: list[int] = self.block.files.file_ids[self.matches.places[self.matches.is_whole]].tolist()
        return ids

    def __len__(self) -> int:
        return len(self.matches.places)

    def take(self, files: slice) -> Page:
        """Return some of the files."""
        return Page(self.block, Matches(self.matches.places[files], self.matches.is_whole[files]))

    def describe(self, size: int) -> Iterator[PlanPart]:
        """Describe the page for plan tasks of up to this many files."""
        for manifest_id, places in self.block.divide(self.matches.places):
            for start in range(0, len(places), size):
                some = places[start : start + size]
                yield PlanPart(manifest_id, int(some[0]), int(some[-1]))

    def cut(self, part: PlanPart) -> Page:
        """Return those files of the page, which is of one manifest, that are of the part."""
        first = int(np.searchsorted(self.matches.places, part.first))
        last = None if part.last is None else int(np.searchsorted(self.matches.places, part.last, "right"))
        return self.take(slice(first, last))


class PageFinder:
    """Finds the files that a scan reads, and counts those that were considered and that may match."""

    def __init__(self, services: Services, planned: Scan) -> None:
        self._services = services
        self._planned = planned
        self._scanner = ManifestScanner(services.scans, services.database, planned.table.metadata)
        self.considered = 0
        self.matched = 0

    def find_pages(self, manifests: Sequence[ManifestRow]) -> Iterator[Page | PlanPart]:
        """Find the files of manifests, and the parts of those that aren't read for this answer.

        Raises SnapshotGoneError.
        """
        planned, scanner = self._planned, self._scanner
        may_end_soon = planned.is_full or bool(planned.request.min_rows_requested)
        left, decisions, blocks = MAX_READ_FILES, MAX_DECISIONS, list[BoundedBlock]()
        for rows in _group(manifests) if may_end_soon else cut_blocks(manifests):
            if planned.is_full and self.matched > planned.page_tasks:
                for row in rows:
                    yield from self._describe_all(row)
                continue
            decisions -= planned.count_tests() * sum(row.live_files for row in rows)
            unread = 0 if decisions < 0 else scanner.count_unread(rows, planned.columns)
            if decisions < 0 or unread > left:
                yield from (PlanPart(row.manifest_id) for row in rows)
                continue
            left -= unread
            if may_end_soon:
                yield from self._match(scanner.read_each(rows, planned.columns))
            else:
                blocks += scanner.read(rows, planned.columns)
        yield from self._match(blocks)

    def find_page(self, row: ManifestRow, part: PlanPart) -> Page:
        """Find those files of a manifest that are of a part. Raises SnapshotGoneError."""
        (bounded,) = self._scanner.read_each([row], self._planned.columns)
        return Page(bounded.block, find_matches(bounded, self._planned.filters)).cut(part)

    def _match(self, blocks: Sequence[BoundedBlock]) -> Iterator[Page]:
        self.considered += sum(len(bounded.block) for bounded in blocks)
        matches = find_all_matches(blocks, self._planned.filters)
        for (block, _), matched in zip(blocks, matches, strict=True):
            if len(matched.places):
                self.matched += len(matched.places)
                yield Page(block, matched)

    def _describe_all(self, row: ManifestRow) -> Iterator[PlanPart]:
        """Describe all files of a manifest without reading it."""
        size = self._planned.page_tasks
        self.matched += row.live_files
        for start in range(0, row.live_files, size):
            yield PlanPart(row.manifest_id, start, min(start + size, row.live_files) - 1)

    def collect(self, pages: Iterable[Page | PlanPart]) -> tuple[list[Page], list[PlanPart]]:
        """Return the pages of this answer, and the parts for others. Few rows wanted: stop once there are as many."""
        size = self._planned.page_tasks
        inline, parts, room = list[Page](), list[PlanPart](), size
        wanted = _WantedRows(self._services, self._planned)
        for page in pages:
            if isinstance(page, PlanPart):
                parts.append(page)
                continue
            first = page.take(slice(0 if parts else room))
            enough = wanted.cut(first) if len(first) else None
            if enough is not None:
                return [*inline, enough], []
            inline.append(first)
            room -= len(first)
            parts += page.take(slice(len(first), None)).describe(size)
        return inline, parts


class _WantedRows:
    """Counts the rows that a scan surely finds in files of the first answer, until there are as many as are wanted.

    Of a file that matches wholly these are all rows but those deleted; each row of a delete file deletes one at most.
    """

    def __init__(self, services: Services, planned: Scan) -> None:
        self._services = services
        self._planned = planned
        self._wanted = self._needed = planned.request.min_rows_requested or 0
        self._rows = 0
        self._file_ids: list[int] = []
        self._reads = _MAX_DELETE_READS

    def cut(self, page: Page) -> Page | None:
        """Return the first files of a page with which there are enough rows; None if there aren't, with all of it."""
        if not self._wanted:
            return None
        places, is_whole = page.matches.places, page.matches.is_whole
        sums = self._rows + np.cumsum(np.where(is_whole, page.block.files.record_counts[places], 0))
        while self._reads and (place := int(np.searchsorted(sums, self._needed))) < len(sums):
            self._reads -= 1
            first = slice(place + 1)
            part = page.take(first)
            self._needed = self._wanted + self._count_deleted(part)
            if sums[place] >= self._needed:
                return part
        self._rows = int(sums[-1])
        self._file_ids += page.whole_file_ids
        return None

    def _count_deleted(self, page: Page) -> int:
        rows = list_manifests(self._services, self._planned)
        manifest_ids = [row.manifest_id for row in rows if row.content != ManifestContent.DATA]
        if not manifest_ids:
            return 0
        table_id = self._planned.table.row.table_id
        with self._services.database.statement(only_reads=True) as cursor:
            found = scan.read_delete_files(cursor, table_id, self._file_ids + page.whole_file_ids, manifest_ids)
            files = reader.read_files(cursor, {id_ for ids in found.values() for id_ in ids})
        return sum(file.record_count for file in files.values())


def list_manifests(services: Services, planned: Scan) -> list[ManifestRow]:
    """List the snapshot's manifests in order."""
    return list(planned.table.known.manifests_of(services.database, planned.snapshot.manifest_ids).values())


def cut_blocks(manifests: Iterable[ManifestRow]) -> list[list[ManifestRow]]:
    """Group data manifests by how they are read and decided together: in blocks of one spec, the newest first.

    Later snapshots list most manifests that earlier ones do. They are cut at the same ones, from the oldest on, so that
    most of their blocks are in memory already: a commit changes the newest one, or two.
    """
    blocks, files = list[list[ManifestRow]](), 0
    is_cut = True
    for row in sorted(manifests, key=lambda row: (row.spec_id, row.manifest_id)):
        if is_cut or row.spec_id != blocks[-1][0].spec_id or files + row.live_files > _MAX_BLOCK_FILES:
            blocks.append([])
            files = 0
        blocks[-1].append(row)
        files += row.live_files
        is_cut = files >= _LEAST_BLOCK_FILES and (row.manifest_id * _MIXER >> 16) % 4 == 0
    return [block[::-1] for block in reversed(blocks)]


def _group(manifests: Sequence[ManifestRow]) -> Iterator[list[ManifestRow]]:
    """Group manifests by how many files are looked at together: few at first, which may be enough."""
    group, files, most = list[ManifestRow](), 0, _FIRST_FILES
    for row in manifests:
        if group and files + row.live_files > most:
            yield group
            group, files, most = [], 0, min(4 * most, _MAX_BLOCK_FILES)
        group.append(row)
        files += row.live_files
    if group:
        yield group
