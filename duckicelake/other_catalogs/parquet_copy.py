"""Copy a table's rows to Parquet in the lake's own store: data files of ORC and Avro, whose deletes are applied.

The copy is a table of one snapshot with the source's UUID, columns, partition specs, sort orders and properties. Its
folder is named by the source's snapshot, and its files by the source's files: a run that was interrupted goes on.
"""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, Generic, TypeVar
from uuid import NAMESPACE_URL, uuid4, uuid5

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import parse_mapping_from_json

from duckicelake.client.models import Json
from duckicelake.errors import BadSourceError, CatalogError, MissingRequirementError, PipelineError
from duckicelake.iceberg.manifest.entry import (
    DataFile,
    EntryStatus,
    FileContent,
    inherit_all_numbers,
)
from duckicelake.iceberg.manifest.reader import read_manifest, read_manifest_list
from duckicelake.iceberg.metadata import TableMetadata, parse_table_metadata
from duckicelake.iceberg.metadata_file import read_document
from duckicelake.iceberg.partition import PartitionSpec
from duckicelake.other_catalogs.copy_metadata import build_copy, list_schemas
from duckicelake.other_catalogs.row_deletes import (
    DeleteFiles,
    EqualityDelete,
    ForeignFile,
    find_kept,
    group_deletes,
    read_equality_delete,
    read_positions,
)
from duckicelake.other_catalogs.source import CatalogTable, CopyProgress, Options, find_store
from duckicelake.other_catalogs.stored_rows import fit_batch, list_leaves, open_rows
from duckicelake.rest.client import CatalogClient, encode_namespace
from duckicelake.rest.names import Namespace

_RENEW_SECONDS: Final = 600.0
"""Age at which vended keys are asked for again; most live an hour."""
_ROW_GROUP_ROWS: Final = 122_880
_ROW_GROUP_BYTES: Final = 64 << 20
_NAME_MAPPING: Final = "schema.name-mapping.default"
_FOLDER_END: Final = re.compile(r"-[0-9a-f]{8}$")
"""What makes the folder of a new table unique; the copy's name is unique by itself."""
_ANY_SCHEMA: Final = {"type": "struct", "fields": [{"id": 1, "name": "id", "required": False, "type": "long"}]}
"""Of a table that is staged only to learn its place and the keys for that."""
_FAR_TIMES: Final = (
    ". PyArrow reads ORC's timestamps of 1677 to 2262 alone: rewrite the table to Parquet with Spark before"
)
_STORE_LIBRARIES: Final = frozenset({"adlfs", "gcsfs", "s3fs"})
"""With which PyIceberg's FsspecFileIO reads stores; each is an extra of PyIceberg, too."""
_DELEGATION: Final = {"X-Iceberg-Access-Delegation": "vended-credentials"}

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class TableCopy:
    """A copy that is in the store, but no table yet. metadata: what its metadata.json says."""

    metadata_location: str
    metadata: Json
    files: int
    rows: int


class _Renewed(Generic[Value]):
    """A value that is made anew once it is old, such as a store with keys that expire."""

    def __init__(self, make: Callable[[], Value]) -> None:
        self._make = make
        self._value = make()
        self._made_at = time.monotonic()

    def get(self) -> Value:
        if time.monotonic() - self._made_at > _RENEW_SECONDS:
            self._value, self._made_at = self._make(), time.monotonic()
        return self._value


def copy_table(
    load: Callable[[], CatalogTable], client: CatalogClient, place: tuple[Namespace, str], progress: CopyProgress
) -> TableCopy:
    """Copy the rows of a source's table to where the lake would have a new table of this name.

    load: the table as it is now, with keys for its store. Raises PipelineError, CatalogError.
    """
    source = load()
    try:
        delegated = replace(client.connection, headers={**client.connection.headers, **_DELEGATION})
        with closing(CatalogClient(delegated)) as vended:
            return _Copy(source, load, vended, place).run(progress)
    except (PipelineError, CatalogError):
        raise
    except ModuleNotFoundError as error:
        if error.name not in _STORE_LIBRARIES:
            raise
        raise MissingRequirementError(
            f"PyIceberg needs {error.name} for a store of this copy: pip install 'pyiceberg[{error.name}]'"
        ) from error
    except Exception as error:
        raise PipelineError(f"its rows can't be copied: {type(error).__name__}: {error}") from error


def load_static_table(metadata_location: str, options: Options) -> CatalogTable:
    """Read the table of a metadata.json. Raises BadSourceError, InvalidRequestError."""
    try:
        with load_file_io(dict(options), metadata_location).new_input(metadata_location).open() as stream:
            data = stream.read()
    except Exception as error:
        raise BadSourceError(f"{metadata_location} can't be read: {type(error).__name__}: {error}") from error
    return CatalogTable(metadata_location, read_document(data, metadata_location), options)


class _Copy:
    """One run over a table's live files."""

    def __init__(
        self,
        source: CatalogTable,
        load: Callable[[], CatalogTable],
        client: CatalogClient,
        place: tuple[Namespace, str],
    ) -> None:
        self._metadata = parse_table_metadata(source.metadata)
        self._read_as = [Schema.model_validate(one.to_json()) for one in list_schemas(self._metadata)]
        self._specs = {spec.spec_id: spec for spec in self._metadata.partition_specs}
        mapping = self._metadata.properties.get(_NAME_MAPPING)
        self._mapping = parse_mapping_from_json(mapping) if mapping else None
        self._location = _find_location(client, place, self._metadata)
        self._source = _Renewed(lambda: load_file_io(dict(load().store), self._metadata.location))
        self._target = _Renewed(
            lambda: load_file_io(_stage(client, (place[0], str(uuid4())), self._location)[1], self._location)
        )

    def run(self, progress: CopyProgress) -> TableCopy:
        live = list(self._list_live())
        deletes = group_deletes(live)
        data = [one for one in live if one.file.content is FileContent.DATA]
        copied: dict[int, list[DataFile]] = defaultdict(list)
        rows = 0
        progress(0, len(data), 0)
        for done, one in enumerate(data, 1):
            try:
                file = self._copy_file(one, deletes)
            except (PipelineError, CatalogError, ModuleNotFoundError):
                raise
            except Exception as error:
                hint = _FAR_TIMES if "ORC timestamp" in str(error) else ""
                problem = f"{type(error).__name__}: {error}{hint}"
                raise PipelineError(f"{one.file.file_path} can't be copied: {problem}") from error
            if file is not None:
                copied[one.spec_id].append(file)
                rows += file.record_count
            progress(done, len(data), rows)
        metadata = build_copy(self._metadata, self._location, copied, partial(self._write, "metadata"))
        location = self._write("metadata", f"00000-{uuid4()}.metadata.json", orjson.dumps(metadata))
        return TableCopy(location, metadata, sum(map(len, copied.values())), rows)

    def _list_live(self) -> Iterator[ForeignFile]:
        snapshot = self._metadata.current_snapshot()
        if snapshot is None:
            return
        if snapshot.manifest_list is None:
            raise PipelineError("its snapshot has no manifest list: commit once with a newer writer")
        for line in read_manifest_list(self._read(snapshot.manifest_list)):
            manifest = read_manifest(self._read(line.manifest_path))
            for entry in inherit_all_numbers(manifest.entries, line):
                if entry.status is not EntryStatus.DELETED:
                    if entry.data_file.key_metadata is not None:
                        raise PipelineError(f"{entry.data_file.file_path} is encrypted")
                    yield ForeignFile(entry.data_file, line.partition_spec_id, entry.sequence_number or 0)

    def _read(self, path: str) -> bytes:
        with self._source.get().new_input(path).open() as stream:
            return stream.read()

    def _write(self, folder: str, name: str, data: bytes) -> str:
        path = f"{self._location}/{folder}/{name}"
        with self._target.get().new_output(path).create(overwrite=True) as stream:
            stream.write(data)
        return path

    def _copy_file(self, one: ForeignFile, deletes: DeleteFiles) -> DataFile | None:
        """Return the Parquet file of a data file's rows, which an earlier run may have written; None without rows."""
        path = f"{self._location}/data/{uuid5(NAMESPACE_URL, one.file.file_path)}.parquet"
        target = self._target.get()
        footer = _read_footer(target, path)
        if footer is None:
            batches = self._read_rows(one, deletes)
            first = next(batches, None)
            if first is None:
                return None
            footer = _write_rows(target, path, first, batches)
        wanted = self._read_as[0]
        statistics = data_file_statistics_from_parquet_metadata(
            footer,
            compute_statistics_plan(wanted, self._metadata.properties),
            parquet_path_to_id_mapping(wanted),
        ).to_serialized_dict()
        return DataFile(
            content=FileContent.DATA,
            file_path=path,
            file_format="PARQUET",
            partition=one.file.partition,
            file_size_in_bytes=len(target.new_input(path)),
            sort_order_id=one.file.sort_order_id,
            **statistics | {"split_offsets": tuple(statistics["split_offsets"] or ())},
        )

    def _read_rows(self, one: ForeignFile, deletes: DeleteFiles) -> Iterator[pa.RecordBatch]:
        """Yield the rows that aren't deleted, in the current schema."""
        io, wanted = self._source.get(), self._read_as[0]
        positions = read_positions(io, deletes.find_positional(one), one.file.file_path)
        equality = [read_equality_delete(io, delete, self._read_as) for delete in deletes.find_equality(one)]
        constants = _find_constants(self._specs[one.spec_id], one.file)
        first = 0
        with open_rows(io, one.file.file_path, one.file.file_format, self._mapping) as rows:
            for batch in rows.batches:
                here = positions[(positions >= first) & (positions < first + len(batch))] - first
                first += len(batch)
                kept = batch.filter(_mask(len(batch), here)) if len(here) else batch
                fitted = fit_batch(kept, rows.schema, wanted, constants)
                if equality:
                    fitted = self._apply_equality(kept, rows.schema, fitted, equality)
                if len(fitted):
                    yield fitted

    def _apply_equality(
        self, stored: pa.RecordBatch, schema: Schema, fitted: pa.RecordBatch, deletes: Iterable[EqualityDelete]
    ) -> pa.RecordBatch:
        columns = list_leaves(stored.to_struct_array(), schema.as_struct())
        columns |= list_leaves(fitted.to_struct_array(), self._read_as[0].as_struct())
        kept = find_kept(columns, len(fitted), deletes, self._read_as)
        return fitted if kept is None else fitted.take(kept)


def _find_location(client: CatalogClient, place: tuple[Namespace, str], metadata: TableMetadata) -> str:
    """Return the folder of the copy: where the lake would put a new table, named by what is copied."""
    current = metadata.current_snapshot()
    seed = f"{metadata.table_uuid}/{current.snapshot_id if current else 'none'}"
    named = place[0], f"{place[1]}-{uuid5(NAMESPACE_URL, seed).hex[:8]}"
    return _FOLDER_END.sub("", _stage(client, named, None)[0])


def _stage(client: CatalogClient, place: tuple[Namespace, str], location: str | None) -> tuple[str, Options]:
    """Return the location of a table that isn't made, and PyIceberg's properties for its store.

    place: of no table that is there.
    """
    body = {"name": place[1], "stage-create": True, "schema": _ANY_SCHEMA}
    path = client.iceberg("namespaces", encode_namespace(place[0]), "tables")
    staged = client.change("POST", path, body if location is None else {**body, "location": location})
    return staged["metadata"]["location"], find_store(staged, staged["metadata"]["location"])


def _find_constants(spec: PartitionSpec, file: DataFile) -> Mapping[int, object]:
    """Return the values of identity partitions: files of Hive's have no such column (spec, "Column Projection")."""
    return {
        field.source_id: value
        for field, value in zip(spec.fields, file.partition, strict=True)
        if str(field.transform) == "identity"
    }


def _mask(count: int, deleted: Any) -> pa.Array:
    kept = np.ones(count, dtype=bool)
    kept[deleted] = False
    return pa.array(kept)


def _read_footer(io: FileIO, path: str) -> pq.FileMetaData | None:
    """Return the footer of a whole Parquet file; None if there is none, or only a part of one."""
    found = io.new_input(path)
    if not found.exists():
        return None
    try:
        with found.open() as stream:
            return pq.read_metadata(stream)
    except pa.ArrowInvalid:
        return None


def _write_rows(io: FileIO, path: str, first: pa.RecordBatch, others: Iterable[pa.RecordBatch]) -> pq.FileMetaData:
    """Write rows in row groups of bounded size, and return the footer."""
    with io.new_output(path).create(overwrite=True) as stream:
        with pq.ParquetWriter(stream, first.schema, compression="zstd", store_decimal_as_integer=True) as writer:
            held, size = [first], first.nbytes
            for batch in others:
                held.append(batch)
                size += batch.nbytes
                if size >= _ROW_GROUP_BYTES or sum(map(len, held)) >= _ROW_GROUP_ROWS:
                    writer.write_table(pa.Table.from_batches(held), row_group_size=_ROW_GROUP_ROWS)
                    held, size = [], 0
            if held:
                writer.write_table(pa.Table.from_batches(held), row_group_size=_ROW_GROUP_ROWS)
        return writer.writer.metadata
