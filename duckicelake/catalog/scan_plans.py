"""Plan scans of tables from the catalog's rows (REST specification, "planTableScan"); no manifest is opened.

Plans are stateless: a plan task says in itself what it is of, and any worker answers it while the snapshot is listed.
"""

import binascii
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Final

import orjson

from duckicelake.bridge.commit.renumber import find_aliases
from duckicelake.bridge.data_files import MetricsContract
from duckicelake.bridge.scan.filters import FieldTest, ScanFilter, bind_scan_filter, list_tests
from duckicelake.bridge.scan.manifests import Matches, find_matches, may_match_manifest
from duckicelake.bridge.scan.tasks import encode_content_file, encode_scan_tasks, encode_task
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.hooks import PlannedRead
from duckicelake.catalog.context.scan_cache import ScannedManifest
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import InvalidRequestError, NoSuchPlanTaskError, UnsupportedError
from duckicelake.iceberg.expressions import parse_predicate
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.iceberg.manifest.entry import ManifestContent
from duckicelake.iceberg.metadata import TableMetadata
from duckicelake.iceberg.scan_requests import PlanTableScanRequest
from duckicelake.iceberg.schema import Schema
from duckicelake.iceberg.types import PrimitiveType
from duckicelake.lake.side_tables import reader, scan
from duckicelake.lake.state import FileRow, SnapshotRow

PAGE_TASKS: Final = 2_000
"""Tasks of one answer; the first one has as many, and the rest as plan tasks."""
_TOKEN_VERSION: Final = 1
_CHECKSUM_BYTES: Final = 8
_MAX_TOKEN_BYTES: Final = 1 << 20
_TRUE: Final = b"true"
_FILE_COLUMN: Final = "_file"
_SEQUENCE_COLUMN: Final = "_last_updated_sequence_number"


@dataclass(frozen=True)
class Scan:
    """A request to plan, of one snapshot of a table. agent: what the client calls itself."""

    table: TableVersion
    snapshot: SnapshotRow
    request: PlanTableScanRequest
    agent: str

    @cached_property
    def schemas(self) -> tuple[Schema, ...]:
        """The schemas in which names are looked up, the one that the request asks for first."""
        metadata = self.table.metadata
        current = metadata.schema()
        own = next((schema for schema in metadata.schemas if schema.schema_id == self.snapshot.schema_id), current)
        found = (own, current) if self.request.use_snapshot_schema else (current, own)
        return found[:1] if own.schema_id == current.schema_id else found

    @cached_property
    def filters(self) -> tuple[ScanFilter, ...]:
        predicate = parse_predicate(self.request.filter, takes_transforms=True)
        return bind_scan_filter(predicate, self.schemas, is_case_sensitive=self.request.case_sensitive)

    @cached_property
    def _tests(self) -> list[FieldTest]:
        return [test for scan_filter in self.filters for test in list_tests(scan_filter)]

    @cached_property
    def columns(self) -> dict[int, PrimitiveType]:
        """The columns whose bounds decide, by field id."""
        return {test.field_id: test.type for test in self._tests if test.transform is None}

    @cached_property
    def stats_fields(self) -> frozenset[int]:
        return frozenset(self._find_field(name) for name in self.request.stats_fields or ())

    @cached_property
    def residual(self) -> bytes:
        """What a reader still filters by in files that don't match wholly: the request's own filter.

        Spark asks for scans whose rows it wants unfiltered, and the protocol has no word for that: it names `_file`, or
        every column of a snapshot. An honest residual would make it drop row groups that it means to keep.
        """
        return _TRUE if self._wants_whole_files else orjson.dumps(self.request.filter)

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

    def _find_field(self, name: str) -> int:
        for schema in self.schemas:
            for known, field_id in schema.names().items():
                if known == name or (not self.request.case_sensitive and known.lower() == name.lower()):
                    return field_id
        raise InvalidRequestError(f"Cannot find field {name!r} of stats-fields")


@dataclass(frozen=True, slots=True)
class PlanTask:
    """A part of a plan: the files of a manifest from one place to another. request: as it was sent."""

    table_uuid: str
    snapshot_id: int
    manifest_id: int
    first: int
    last: int
    request: bytes

    def encode(self) -> str:
        """Encode the task as the token that the client sends."""
        members = [_TOKEN_VERSION, self.table_uuid, self.snapshot_id, self.manifest_id, self.first, self.last]
        packed = zlib.compress(orjson.dumps(members) + b"\n" + self.request)
        return urlsafe_b64encode(sha256(packed).digest()[:_CHECKSUM_BYTES] + packed).decode()

    @classmethod
    def parse(cls, token: str) -> "PlanTask":
        """Parse a token; NoSuchPlanTaskError for one that this server didn't give, or that was cut."""
        try:
            return _unpack_task(urlsafe_b64decode(token.encode()))
        except (ValueError, TypeError, binascii.Error, zlib.error) as error:
            raise NoSuchPlanTaskError(
                "No such plan task: it is cut, or none that this catalog gave; plan again"
            ) from error


def _unpack_task(data: bytes) -> PlanTask:
    digest, packed = data[:_CHECKSUM_BYTES], data[_CHECKSUM_BYTES:]
    if sha256(packed).digest()[:_CHECKSUM_BYTES] != digest:
        raise ValueError(digest)
    members, _, request = _inflate(packed).partition(b"\n")
    version, uuid, snapshot_id, manifest_id, first, last = orjson.loads(members)
    if version != _TOKEN_VERSION:
        raise ValueError(version)
    return PlanTask(uuid, snapshot_id, manifest_id, first, last, request)


def _inflate(packed: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    data = unpacker.decompress(packed, _MAX_TOKEN_BYTES)
    if unpacker.unconsumed_tail:
        raise ValueError("too long")
    return data


@dataclass(frozen=True, slots=True)
class Page:
    """Files of one manifest that a scan reads: so many that one answer may have them."""

    scanned: ScannedManifest
    matches: Matches

    @property
    def file_ids(self) -> list[int]:
        ids: list[int] = self.scanned.manifest.file_ids[self.matches.places].tolist()
        return ids


def plan_table_scan(
    services: Services, namespace: Namespace, name: str, request: PlanTableScanRequest, body: bytes, agent: str
) -> bytes:
    """Plan a scan; return the completed PlanTableScanResult as JSON. body: the request as it was sent.

    Raises:
        NoSuchTableError, InvalidRequestError: for what the table doesn't have. UnsupportedError.

    """
    table = load_current_table(services, namespace, name)
    found = _find_snapshot(table, request)
    if found is None:
        return b'{"status":"completed","file-scan-tasks":[]}'
    planned = Scan(table, found, request, agent)
    _check_served(planned)
    manifest_ids = [id_ for id_, content in _list_contents(services, planned) if content == ManifestContent.DATA]
    inline, later = _divide(_match(services, planned, manifest_ids))
    services.reads.note_plan(services.caller, namespace, name, planned.describe_read())
    tokens = [
        PlanTask(
            table.row.table_uuid,
            found.snapshot_id,
            page.scanned.manifest.manifest_id,
            int(page.matches.places[0]),
            int(page.matches.places[-1]),
            body,
        ).encode()
        for page in later
    ]
    return b'{"status":"completed",' + _encode_pages(services, planned, inline, tokens) + b"}"


def fetch_scan_tasks(services: Services, namespace: Namespace, name: str, task: PlanTask, agent: str) -> bytes:
    """Fetch the tasks of a part of a plan as JSON.

    Raises:
        NoSuchTableError, NoSuchPlanTaskError: the task is another table's, or its snapshot isn't listed any more.

    """
    table = load_current_table(services, namespace, name)
    found = next((row for row in table.state.snapshots if row.snapshot_id == task.snapshot_id), None)
    if table.row.table_uuid != task.table_uuid or found is None or task.manifest_id not in found.manifest_ids:
        raise NoSuchPlanTaskError("No such plan task: it is another table's, or its snapshot has expired; plan again")
    planned = Scan(table, found, PlanTableScanRequest.model_validate_json(task.request), agent)
    pages = [
        Page(page.scanned, _cut(page.matches, task.first, task.last))
        for page in _match(services, planned, [task.manifest_id])
    ]
    return b"{" + _encode_pages(services, planned, pages, ()) + b"}"


def _find_snapshot(table: TableVersion, request: PlanTableScanRequest) -> SnapshotRow | None:
    """Find the snapshot to scan; None where the table has none yet."""
    if request.end_snapshot_id is not None:
        raise UnsupportedError(
            "scan-planning", "Scans from one snapshot to another aren't planned here: plan them locally"
        )
    if request.snapshot_id is None:
        return table.state.current()
    wanted = find_aliases(table.state.snapshots).get(request.snapshot_id, request.snapshot_id)
    found = next((row for row in table.state.snapshots if row.snapshot_id == wanted), None)
    if found is None:
        raise InvalidRequestError(f"Cannot find snapshot {request.snapshot_id}: the table lists none of this id")
    return found


def _check_served(planned: Scan) -> None:
    if _SEQUENCE_COLUMN in (planned.request.select or ()):
        raise UnsupportedError(
            "scan-planning",
            f"{_SEQUENCE_COLUMN} can't be read by a plan, whose tasks have no sequence numbers: read with "
            "scan-planning-mode=client",
        )


def _list_contents(services: Services, planned: Scan) -> list[tuple[int, int]]:
    """Return (id, content) of the snapshot's manifests, in list order."""
    rows = planned.table.known.manifests_of(services.database, planned.snapshot.manifest_ids)
    return [(row.manifest_id, row.content) for row in rows.values()]


def _match(services: Services, planned: Scan, manifest_ids: Sequence[int]) -> list[Page]:
    """Return for each manifest with files that may match all of them."""
    found = services.scans.read(services.database, planned.table.metadata, manifest_ids, planned.columns)
    pages = []
    for scanned in found:
        bounds = {id_: scanned.bounds[id_, str(type_)] for id_, type_ in planned.columns.items()}
        if may_match_manifest(scanned.manifest, bounds, planned.filters):
            matches = find_matches(scanned.manifest, bounds, planned.filters)
            if len(matches.places):
                pages.append(Page(scanned, matches))
    return pages


def _divide(found: Iterable[Page]) -> tuple[list[Page], list[Page]]:
    """Return the pages of the first answer, and the others."""
    pages = [
        Page(page.scanned, Matches(page.matches.places[start:stop], page.matches.is_whole[start:stop]))
        for page in found
        for start, stop in _list_parts(len(page.matches.places))
    ]
    inline, tasks = 0, 0
    for page in pages:
        tasks += len(page.matches.places)
        if tasks > PAGE_TASKS:
            break
        inline += 1
    return pages[:inline], pages[inline:]


def _list_parts(count: int) -> Iterator[tuple[int, int]]:
    return ((start, start + PAGE_TASKS) for start in range(0, count, PAGE_TASKS))


def _cut(matches: Matches, first: int, last: int) -> Matches:
    """Return the matches between two places, both included."""
    kept = (matches.places >= first) & (matches.places <= last)
    return Matches(matches.places[kept], matches.is_whole[kept])


def _encode_pages(services: Services, planned: Scan, pages: Sequence[Page], tokens: Sequence[str]) -> bytes:
    """Encode the tasks of pages, with the delete files that they refer to by their places in the answer."""
    metadata, table_id = planned.table.metadata, planned.table.row.table_id
    file_ids = [file_id for page in pages for file_id in page.file_ids]
    delete_manifests = [id_ for id_, content in _list_contents(services, planned) if content != ManifestContent.DATA]
    with services.database.statement(only_reads=True) as cursor:
        deletes = scan.read_delete_files(cursor, table_id, file_ids, delete_manifests) if delete_manifests else {}
        places = {id_: place for place, id_ in enumerate(sorted({id_ for ids in deletes.values() for id_ in ids}))}
        files = reader.read_files(cursor, {*file_ids, *places}) if file_ids else {}
    encode = _FileEncoder(metadata, planned.stats_fields)
    tasks = []
    for page in pages:
        for file_id, is_whole in zip(page.file_ids, page.matches.is_whole.tolist(), strict=True):
            references = [places[id_] for id_ in deletes.get(file_id, ())]
            residual = _TRUE if is_whole else planned.residual
            tasks.append(encode_task(encode(files[file_id]), references, residual))
    return encode_scan_tasks(tasks, [encode(files[id_]) for id_ in places], tokens)


class _FileEncoder:
    """Encodes files of a table. stats_fields: the fields whose counts and bounds are asked for."""

    def __init__(self, metadata: TableMetadata, stats_fields: frozenset[int]) -> None:
        self._metadata = metadata
        self._stats_fields = stats_fields
        self._contract = MetricsContract((*metadata.schemas, metadata.schema()))
        self._has_row_ids = metadata.format_version >= 3

    def __call__(self, file: FileRow) -> bytes:
        spec = self._metadata.spec(file.spec_id)
        return encode_content_file(file, spec, self._contract, self._stats_fields, has_row_ids=self._has_row_ids)
