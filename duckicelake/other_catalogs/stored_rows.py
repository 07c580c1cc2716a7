"""Read the rows of data and delete files in Parquet, ORC and Avro, a batch at a time, and fit them to a schema.

PyIceberg reads Parquet and ORC, but not ORC's times and uuids, and no Avro; and it turns null lists of structs into
empty ones. So it only translates schemas here.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, Final

import fastavro
import orjson
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping
from pyiceberg.types import IcebergType, ListType, MapType, NestedField, StructType
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

from duckicelake.errors import PipelineError

_BATCH_ROWS: Final = 32_768
_FIELD_ID: Final = b"PARQUET:field_id"
_ORC_TIME_UNIT, _ORC_LONG, _ORC_BINARY, _ORC_LENGTH = (
    b"iceberg.timestamp-unit",
    b"iceberg.long-type",
    b"iceberg.binary-type",
    b"iceberg.length",
)
"""Attributes by which Iceberg's ORC files name types that ORC lacks (spec, Appendix A)."""


@dataclass(frozen=True, slots=True)
class StoredRows:
    """The rows of a file as they are stored. schema: of the file, with Iceberg's field ids."""

    schema: Schema
    batches: Iterator[pa.RecordBatch]


@contextmanager
def open_rows(io: FileIO, path: str, file_format: str, mapping: NameMapping | None) -> Iterator[StoredRows]:
    """Open a file. mapping: names the ids of files that have none. Raises PipelineError for another format."""
    readers = {"PARQUET": _read_parquet, "ORC": _read_orc, "AVRO": _read_avro}
    if file_format not in readers:
        raise PipelineError(f"{path} is {file_format}: only Parquet, ORC and Avro can be read")
    with io.new_input(path).open() as stream:
        yield readers[file_format](stream, mapping)  # type: ignore[arg-type]  # PyIceberg's streams are files enough


def _read_parquet(stream: IO[bytes], mapping: NameMapping | None) -> StoredRows:
    file = pq.ParquetFile(stream)
    return StoredRows(_to_schema(file.schema_arrow, mapping), file.iter_batches(_BATCH_ROWS))


def _read_orc(stream: IO[bytes], mapping: NameMapping | None) -> StoredRows:
    file = pyarrow.orc.ORCFile(stream)
    stored = pa.schema([_restore_type(field) for field in file.schema])
    stripes = (file.read_stripe(number) for number in range(file.nstripes))
    return StoredRows(_to_schema(stored, mapping), (stripe.cast(stored) for stripe in stripes))


def _read_avro(stream: IO[bytes], _: NameMapping | None) -> StoredRows:
    reader = fastavro.reader(stream)
    schema = AvroSchemaConversion().avro_to_iceberg(orjson.loads(reader.metadata["avro.schema"]))
    return StoredRows(schema, _batch_records(reader, schema_to_pyarrow(schema, include_field_ids=False)))


def _batch_records(records: Iterator[Any], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    held = []
    for record in records:
        held.append(record)
        if len(held) == _BATCH_ROWS:
            yield pa.RecordBatch.from_pylist(held, schema)
            held = []
    if held:
        yield pa.RecordBatch.from_pylist(held, schema)


def _to_schema(stored: pa.Schema, mapping: NameMapping | None) -> Schema:
    return pyarrow_to_schema(stored, mapping, downcast_ns_timestamp_to_us=False, format_version=3)


def _restore_type(field: pa.Field) -> pa.Field:
    """Return a field of an ORC file with the type that its attributes name."""
    kind = field.type
    if pa.types.is_struct(kind):
        return field.with_type(pa.struct([_restore_type(child) for child in kind]))
    if pa.types.is_list(kind):
        return field.with_type(pa.list_(_restore_type(kind.value_field)))
    if pa.types.is_map(kind):
        return field.with_type(pa.map_(_restore_type(kind.key_field), _restore_type(kind.item_field)))
    return field.with_type(_restore_primitive(kind, field.metadata or {}))


def _restore_primitive(kind: pa.DataType, attributes: Mapping[bytes, bytes]) -> pa.DataType:
    if pa.types.is_timestamp(kind) and attributes.get(_ORC_TIME_UNIT) != b"NANOS":
        return pa.timestamp("us", kind.tz)
    if attributes.get(_ORC_LONG) == b"TIME":
        return pa.time64("us")
    if attributes.get(_ORC_BINARY) == b"UUID":
        return pa.binary(16)
    if attributes.get(_ORC_BINARY) == b"FIXED":
        return pa.binary(int(attributes[_ORC_LENGTH]))
    return kind


def fit_batch(batch: pa.RecordBatch, stored: Schema, wanted: Schema, constants: Mapping[int, object]) -> pa.RecordBatch:
    """Return the rows with the columns of a schema, found by field id (spec, "Column Projection").

    constants: values of columns that the file lacks, by field id. Fields have their ids, as Parquet files hold them.
    """
    whole = _fit_struct(batch.to_struct_array(), stored.as_struct(), wanted.as_struct(), constants)
    return pa.RecordBatch.from_struct_array(whole)


def _fit(values: pa.Array, stored: IcebergType, wanted: IcebergType) -> pa.Array:
    match stored, wanted:
        case StructType(), StructType():
            return _fit_struct(values, stored, wanted, {})
        case ListType(), ListType():
            elements = _fit(values.values, stored.element_type, wanted.element_type)
            kind = pa.large_list if pa.types.is_large_list(values.type) else pa.list_
            return _replace_children(values, kind(_field(wanted.element_field, elements)), elements)
        case MapType(), MapType():
            keys = _fit(values.keys, stored.key_type, wanted.key_type)
            items = _fit(values.items, stored.value_type, wanted.value_type)
            fields = [_field(wanted.key_field, keys), _field(wanted.value_field, items)]
            return _replace_children(values, pa.map_(*fields), pa.StructArray.from_arrays([keys, items], fields=fields))
    return values.cast(schema_to_pyarrow(wanted))


def _replace_children(values: pa.Array, kind: pa.DataType, child: pa.Array) -> pa.Array:
    """Return a list or map with the same lengths and nulls."""
    return pa.Array.from_buffers(
        kind, len(values), values.buffers()[:2], values.null_count, values.offset, children=[child]
    )


def _fit_struct(
    values: pa.StructArray, stored: StructType, wanted: StructType, constants: Mapping[int, object]
) -> pa.StructArray:
    places = {field.field_id: place for place, field in enumerate(stored.fields)}
    columns = []
    for field in wanted.fields:
        place = places.get(field.field_id)
        if place is not None:
            columns.append(_fit(values.field(place), stored.fields[place].field_type, field.field_type))
        else:
            columns.append(_repeat_missing(field, constants.get(field.field_id, field.initial_default), len(values)))
    fields = [_field(field, column) for field, column in zip(wanted.fields, columns, strict=True)]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=values.is_null())


def _repeat_missing(field: NestedField, value: object, count: int) -> pa.Array:
    kind = schema_to_pyarrow(field.field_type)
    if value is None and field.required:
        raise PipelineError(f"a file lacks the required column {field.name}")
    return pa.nulls(count, kind) if value is None else pa.repeat(pa.scalar(value, kind), count)


def _field(field: NestedField, values: pa.Array) -> pa.Field:
    return pa.field(field.name, values.type, not field.required, {_FIELD_ID: str(field.field_id)})


def list_leaves(values: pa.StructArray, kind: StructType) -> dict[int, pa.Array]:
    """Return the primitive columns, also those within structs, by field id."""
    found: dict[int, pa.Array] = {}
    for field, column in zip(kind.fields, values.flatten(), strict=True):
        if isinstance(field.field_type, StructType):
            found |= list_leaves(column, field.field_type)
        elif field.field_type.is_primitive:
            found[field.field_id] = column
    return found
