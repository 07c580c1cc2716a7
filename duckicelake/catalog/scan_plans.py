"""Plan scans of tables from the catalog's rows (REST specification, "planTableScan"); no manifest is opened.

Plans are stateless: any server answers a plan task while the snapshot is listed.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from duckicelake.bridge.commit.renumber import find_aliases
from duckicelake.bridge.data_files import MetricsContract
from duckicelake.bridge.scan.tasks import encode_content_file, encode_scan_tasks, encode_task
from duckicelake.catalog.context.cache import TableVersion
from duckicelake.catalog.context.hooks import PlannedRead
from duckicelake.catalog.context.services import Services
from duckicelake.catalog.plan_tasks import PlanPart, PlanTask, encode_tasks, parse_task
from duckicelake.catalog.scan_manifests import SnapshotGoneError
from duckicelake.catalog.scan_pages import Page, PageFinder, Scan, list_manifests
from duckicelake.catalog.table.load import load_current_table
from duckicelake.errors import InvalidRequestError, NoSuchPlanTaskError, UnavailableError, UnsupportedError
from duckicelake.iceberg.identifiers import Namespace
from duckicelake.iceberg.manifest.entry import ManifestContent
from duckicelake.iceberg.partition import UNPARTITIONED
from duckicelake.iceberg.rest import PlanTableScanRequest
from duckicelake.lake.side_tables import reader, scan
from duckicelake.lake.state import FileRow, SnapshotRow

_TRUE: Final = b"true"
_PYICEBERG: Final = "PyIceberg"
"""Up to 0.12 it refuses null in a file's partition, which it looks at only for columns that the file lacks."""
_LEAST_ANSWER_BYTES: Final = 2_048
_SEQUENCE_COLUMN: Final = "_last_updated_sequence_number"


def plan_table_scan(
    services: Services, namespace: Namespace, name: str, request: PlanTableScanRequest, body: bytes, agent: str
) -> bytes:
    """Plan a scan; return the completed PlanTableScanResult as JSON. body: the request as it was sent.

    Raises:
        NoSuchTableError, InvalidRequestError: for what the table doesn't have. UnsupportedError.
        TooManyRequestsError: see `encode_tasks`.

    """
    table = load_current_table(services, namespace, name)
    found = _find_snapshot(table, request)
    if found is None:
        return b'{"status":"completed","file-scan-tasks":[]}'
    planned = Scan(table, found, request, agent, body, services.scans.filters)
    _check_served(planned)
    key = (table.row.table_uuid, table.row.version, found.snapshot_id, planned.digest, agent)
    answer: _Answer | None = services.scans.answers.get(key)
    if answer is None:
        try:
            answer = _plan(services, planned)
        except SnapshotGoneError as error:
            raise UnavailableError("The snapshot has expired while the scan was planned; plan again") from error
        if answer.is_complete:
            services.scans.answers.put(key, answer, _LEAST_ANSWER_BYTES + len(answer.members) + len(agent))
    services.meter.scan_planned(answer.considered, answer.matched)
    services.reads.note_plan(services.caller, namespace, name, answer.read)
    return b'{"status":"completed",' + answer.members + b"}"


@dataclass(frozen=True, slots=True)
class _Answer:
    """An answer to a request to plan, which never changes for a version of the table.

    Attributes:
        members: Its JSON without status.
        is_complete: It has no plan tasks, of which long ones are kept in Postgres for a day.
        considered: Files that were looked at. matched: Those of them that the scan reads.

    """

    members: bytes
    is_complete: bool
    considered: int
    matched: int
    read: PlannedRead


def _plan(services: Services, planned: Scan) -> _Answer:
    manifests = [
        row for row in list_manifests(services, planned) if row.content == ManifestContent.DATA and row.live_files
    ]
    finder = PageFinder(services, planned)
    inline, parts = finder.collect(finder.find_pages(manifests))
    members = _encode_pages(services, planned, inline, _encode_parts(services, planned, parts))
    return _Answer(members, not parts, finder.considered, finder.matched, planned.describe_read())


def fetch_scan_tasks(services: Services, namespace: Namespace, name: str, token: str, agent: str) -> bytes:
    """Fetch the tasks of a part of a plan as JSON.

    Raises:
        NoSuchTableError, NoSuchPlanTaskError: the task is another table's, or its snapshot isn't listed any more.

    """
    table = load_current_table(services, namespace, name)
    task = parse_task(services.database, token)
    found = next((row for row in table.state.snapshots if row.snapshot_id == task.snapshot_id), None)
    if table.row.table_uuid != task.table_uuid or found is None or task.part.manifest_id not in found.manifest_ids:
        raise NoSuchPlanTaskError("No such plan task: it is another table's, or its snapshot has expired; plan again")
    planned = Scan(table, found, task.request, agent, task.body, services.scans.filters, task.schema_id)
    try:
        return b"{" + _fetch(services, planned, task) + b"}"
    except SnapshotGoneError as error:
        raise NoSuchPlanTaskError("No such plan task: its snapshot has expired; plan again") from error


def _fetch(services: Services, planned: Scan, task: PlanTask) -> bytes:
    (row,) = (row for row in list_manifests(services, planned) if row.manifest_id == task.part.manifest_id)
    finder = PageFinder(services, planned)
    inline, parts = finder.collect([finder.find_page(row, task.part)])
    return _encode_pages(services, planned, inline, _encode_parts(services, planned, parts))


def _encode_parts(services: Services, planned: Scan, parts: Sequence[PlanPart]) -> list[str]:
    uuid, schema_id = planned.table.row.table_uuid, planned.schema_id
    schema_id = planned.table.metadata.current_schema_id if schema_id is None else schema_id
    return encode_tasks(services.database, uuid, planned.snapshot.snapshot_id, schema_id, parts, planned.body)


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
        raise InvalidRequestError(
            f"snapshot-id: Cannot find snapshot {request.snapshot_id}, which the table doesn't list"
        )
    return found


def _check_served(planned: Scan) -> None:
    if _SEQUENCE_COLUMN in (planned.request.select or ()):
        raise UnsupportedError(
            "scan-planning",
            f"{_SEQUENCE_COLUMN} can't be read by a plan, whose tasks have no sequence numbers: read with "
            "scan-planning-mode=client",
        )


def _encode_pages(services: Services, planned: Scan, pages: Sequence[Page], tokens: Sequence[str]) -> bytes:
    """Encode the tasks of pages, with the delete files that they refer to by their places in the answer."""
    table_id, encoder = planned.table.row.table_id, _FileEncoder(planned)
    file_ids = [file_id for page in pages for file_id in page.file_ids]
    encoded = {} if encoder.form is None else services.scans.encoded.find(encoder.form, file_ids)
    manifests = list_manifests(services, planned)
    delete_manifests = [row.manifest_id for row in manifests if row.content != ManifestContent.DATA]
    deletes, files = dict[int, list[int]](), dict[int, FileRow]()
    places = dict[int, int]()
    if delete_manifests or len(encoded) < len(file_ids):
        with services.database.statement(only_reads=True) as cursor:
            if delete_manifests:
                deletes = scan.read_delete_files(cursor, table_id, file_ids, delete_manifests)
            ordered = sorted({id_ for ids in deletes.values() for id_ in ids})
            places = {id_: place for place, id_ in enumerate(ordered)}
            wanted = {*file_ids, *places} - encoded.keys()
            files = reader.read_files(cursor, wanted) if wanted else {}
        if len(files) < len(wanted):
            raise SnapshotGoneError
        made = {id_: encoder(file) for id_, file in files.items()}
        encoded |= made
        if encoder.form is not None and not planned.is_full:
            services.scans.encoded.add(encoder.form, {id_: made[id_] for id_ in file_ids if id_ in made})
    tasks = []
    for page in pages:
        for file_id, is_whole in zip(page.file_ids, page.matches.is_whole.tolist(), strict=True):
            references = [places[id_] for id_ in deletes.get(file_id, ())]
            residual = _TRUE if is_whole else planned.residual
            tasks.append(encode_task(encoded[file_id], references, residual))
    return encode_scan_tasks(tasks, [encoded[id_] for id_ in places], tokens)


class _FileEncoder:
    """Encodes files of a scan as its client can read them.

    form: what the encoded files depend on besides the file; None where they aren't worth keeping.
    """

    def __init__(self, planned: Scan) -> None:
        metadata = planned.table.metadata
        self._metadata = metadata
        self._stats_fields = planned.stats_fields
        self._contract = MetricsContract((*metadata.schemas, metadata.schema()))
        self._has_row_ids = metadata.format_version >= 3
        leaves = (schema.leaves() for schema in metadata.schemas)
        self._float_ids = {id_ for found in leaves for id_, type_ in found.items() if type_.traits.family == "float"}
        self._has_null_partitions = not planned.agent.startswith(_PYICEBERG)
        self.form: Hashable = None if self._stats_fields else (self._has_row_ids, self._has_null_partitions)

    def __call__(self, file: FileRow) -> bytes:
        if not self._has_null_partitions and None in file.partition:
            file = file._replace(partition=[])
            spec = UNPARTITIONED
        else:
            spec = self._metadata.spec(file.spec_id)
        return encode_content_file(
            file,
            spec,
            self._contract,
            self._stats_fields,
            float_ids=self._float_ids,
            has_row_ids=self._has_row_ids,
        )
