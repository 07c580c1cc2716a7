"""Write rows as Parquet files of a table by DuckDB, and commit them through the catalog by PyIceberg."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    BadRequestError,
    CommitFailedException,
    ForbiddenError,
    NoSuchTableError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    UnauthorizedError,
    ValidationException,
)
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table import Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.sorting import SortDirection, SortField
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    IcebergType,
    PrimitiveType,
    StringType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)
from requests import RequestException

from duckicelake import pyiceberg_v3
from duckicelake.errors import (
    BadCredentialsError,
    BadInputError,
    CatalogUnreachableError,
    JobConflictError,
    MissingRequirementError,
    MissingTableError,
    NotAllowedError,
    PipelineError,
)
from duckicelake.file_import.column_types import build_field_ids, quote_name, quote_text
from duckicelake.file_import.duckdb_session import choose_row_group_bytes
from duckicelake.pipeline.destination import WriteMode

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from duckicelake.client.lake import Lake

_TARGET_BYTES: Final = 512 << 20
_KEY_PREFIX: Final = "duckicelake_partition_key_"
_AZURE: Final = re.compile(r"(?:abfs|wasb)s?://", re.IGNORECASE)
_CODECS: Final = frozenset({"zstd", "snappy", "gzip", "lz4", "brotli", "uncompressed"})


@dataclass(frozen=True, slots=True)
class ParquetPart:
    """A Parquet file that no table has yet. keys: the partition's values by the order of its fields."""

    path: Path
    rows: int
    size: int
    keys: tuple[str | None, ...]


def open_catalog(lake: Lake) -> Catalog:
    """Open the catalog in PyIceberg, which writes manifests with the keys that the catalog gives."""
    pyiceberg_v3.install()
    given = dict(lake.client.connection.catalog_properties())
    if "credential" not in given and (token := lake.client.get_token()) is not None:
        given["token"] = token
    with translate_errors():
        return load_catalog("lake", type="rest", **given)


@contextmanager
def translate_errors(of_files: str = "A file of the table can't be read or written") -> Iterator[None]:
    """Raise PipelineError for what PyIceberg raises. of_files: what is said of errors of the store."""
    try:
        yield
    except (UnauthorizedError, AuthorizationExpiredError) as error:
        raise BadCredentialsError(
            f"{_summarize(error)}; give --credential or --token, or run duckicelake login"
        ) from error
    except ForbiddenError as error:
        raise NotAllowedError(_summarize(error)) from error
    except NoSuchTableError as error:
        raise MissingTableError(f"The table was dropped meanwhile: {_summarize(error)}") from error
    except (CommitFailedException, TableAlreadyExistsError, ValidationException) as error:
        raise JobConflictError(f"Another writer was faster: {_summarize(error)}; run it again") from error
    except (ServerError, ServiceUnavailableError) as error:
        raise CatalogUnreachableError(f"The catalog can't serve now: {_summarize(error)}") from error
    except BadRequestError as error:
        raise BadInputError(_summarize(error)) from error
    except RESTError as error:
        raise PipelineError(_summarize(error)) from error
    except RequestException as error:
        raise CatalogUnreachableError(f"The catalog doesn't answer: {_summarize(error)}") from error
    except OSError as error:
        hint = "Run it again once the store takes the keys that the catalog gives"
        raise PipelineError(f"{of_files}: {_summarize(error)}. {hint}") from error


def _summarize(error: Exception) -> str:
    return " ".join(str(error).split())[:500]


def write_files(duck: DuckDBPyConnection, rows: str, metadata: TableMetadata, folder: Path) -> list[ParquetPart]:
    """Write the rows of a query, whose columns are the table's, as files in its layout."""
    schema, spec = metadata.schema(), metadata.spec()
    keys = [_build_key(duck, one, schema) for one in spec.fields]
    key_names = [f"{_KEY_PREFIX}{number}" for number in range(len(keys))]
    names = list(map(quote_name, key_names))
    computed = "".join(f", {key} AS {name}" for key, name in zip(keys, names, strict=True))
    order = _build_order(duck, metadata)
    codec = metadata.properties.get("write.parquet.compression-codec", "zstd").lower()
    options = [
        "FORMAT parquet",
        "GEOPARQUET_VERSION 'V2'",
        f"COMPRESSION {codec if codec in _CODECS else 'zstd'}",
        f"FIELD_IDS {build_field_ids(schema.fields)}",
        f"ROW_GROUP_SIZE_BYTES {choose_row_group_bytes(duck)}",
        "RETURN_STATS true",
        f"FILENAME_PATTERN {quote_text(f'load-{uuid4().hex}-{{i}}')}",
    ]
    if keys:
        options += [f"PARTITION_BY ({', '.join(names)})", "WRITE_PARTITION_COLUMNS false"]
    else:
        options.append(f"FILE_SIZE_BYTES {metadata.properties.get('write.target-file-size-bytes', _TARGET_BYTES)}")
    folder.mkdir(parents=True, exist_ok=True)
    written = duck.execute(
        f"COPY (SELECT *{computed} FROM ({rows}){order}) TO {quote_text(str(folder))} ({', '.join(options)})"
    ).fetchall()
    return [
        ParquetPart(_flatten(path, folder), count, size, tuple((found or {}).get(key) for key in key_names))
        for path, count, size, _, _, found in written
        if count
    ]


def _flatten(path: str, folder: Path) -> Path:
    """Move a file out of DuckDB's folder for its partition, whose name escapes the values: no reader needs it."""
    flat = folder / f"{uuid4().hex}.parquet"
    return Path(path).rename(flat)


def _build_order(duck: DuckDBPyConnection, metadata: TableMetadata) -> str:
    order = next((one for one in metadata.sort_orders if one.order_id == metadata.default_sort_order_id), None)
    fields = order.fields if order is not None else []
    terms = [_build_term(duck, one, metadata.schema()) for one in fields]
    return f" ORDER BY {', '.join(terms)}" if terms else ""


def _build_term(duck: DuckDBPyConnection, field: SortField, schema: Schema) -> str:
    direction = "ASC" if field.direction == SortDirection.ASC else "DESC"
    value = _transform(duck, field.source_id, field.transform, schema, is_key=False)
    return f"{value} {direction} {str(field.null_order.value).replace('-', ' ')}"


def _build_key(duck: DuckDBPyConnection, field: PartitionField, schema: Schema) -> str:
    return _transform(duck, field.source_id, field.transform, schema, is_key=True)


def _transform(
    duck: DuckDBPyConnection, source_id: int, transform: Transform[Any, Any], schema: Schema, *, is_key: bool
) -> str:
    """Return SQL of a transformed column; times as Iceberg counts them if it is a partition's key."""
    column = ".".join(map(quote_name, str(schema.find_column_name(source_id)).split(".")))
    type_ = schema.find_type(source_id)
    if isinstance(transform, IdentityTransform):
        return _to_internal(column, type_) if is_key else column
    if isinstance(transform, VoidTransform):
        return "NULL"
    if isinstance(transform, YearTransform):
        return f"(year({column}) - 1970)"
    if isinstance(transform, MonthTransform):
        return f"((year({column}) - 1970) * 12 + month({column}) - 1)"
    if isinstance(transform, DayTransform):
        return f"date_diff('day', DATE '1970-01-01', CAST({column} AS DATE))"
    if isinstance(transform, HourTransform):
        return f"CAST(floor(epoch_us({column}) / 3600000000) AS BIGINT)"
    if isinstance(transform, TruncateTransform):
        return _truncate(column, type_, transform.width)
    if isinstance(transform, BucketTransform):
        return _call_bucket(duck, column, type_, transform)
    raise BadInputError(f"Files can't be laid out by {transform}: use duckicelake pipeline ingest")


def _to_internal(column: str, type_: IcebergType) -> str:
    if isinstance(type_, DateType):
        return f"date_diff('day', DATE '1970-01-01', {column})"
    if isinstance(type_, TimestampType | TimestamptzType):
        return f"epoch_us({column})"
    if isinstance(type_, BinaryType):
        return f"hex({column})"
    return f"CAST({column} AS VARCHAR)"


def _truncate(column: str, type_: IcebergType, width: int) -> str:
    if isinstance(type_, StringType):
        return f"left({column}, {width})"
    if isinstance(type_, DecimalType):
        step = f"CAST({Decimal(width).scaleb(-type_.scale)} AS DECIMAL({type_.precision}, {type_.scale}))"
        return f"({column} - ((({column} % {step}) + {step}) % {step}))"
    return f"({column} - ((({column} % {width}) + {width}) % {width}))"


def _call_bucket(duck: DuckDBPyConnection, column: str, type_: IcebergType, transform: BucketTransform[Any]) -> str:
    if not isinstance(type_, PrimitiveType):
        raise BadInputError(f"No buckets of {column}, which is {type_}")
    compute, name = transform.transform(type_), f"bucket_{uuid4().hex}"
    given = _to_internal(column, type_)

    def bucket(text: str) -> int | None:
        return compute(_parse_key(text, type_, IdentityTransform()))

    duck.create_function(name, bucket, ["VARCHAR"], "INTEGER")
    return f"{name}(CAST({given} AS VARCHAR))"


def _parse_key(text: str | None, type_: IcebergType, transform: Transform[Any, Any]) -> Any:
    """Parse a partition's value as DuckDB returns it."""
    if text is None:
        return None
    result = transform.result_type(type_)
    if isinstance(result, StringType):
        return text
    if isinstance(result, BooleanType):
        return text.lower() == "true"
    if isinstance(result, DecimalType):
        return Decimal(text)
    if isinstance(result, UUIDType):
        return UUID(text)
    if isinstance(result, BinaryType):
        return bytes.fromhex(text)
    return float(text) if "." in text or not text.lstrip("-").isdigit() else int(text)


def choose_io(transaction: Transaction) -> None:
    """Let PyIceberg write a new table's files as it does those of others. Raises MissingRequirementError without adlfs.

    Before there is a metadata.json it takes PyArrow for all stores, which reads the account of Azure's locations as a
    part of the container's name.
    """
    table, location = transaction._table, transaction.table_metadata.location  # noqa: SLF001 - as in LoadPlace
    if _AZURE.match(location) and find_spec("adlfs") is None:
        raise MissingRequirementError(
            f"{location} is in Azure, which PyIceberg writes with adlfs: pip install 'pyiceberg[adlfs]'"
        )
    table.io = load_file_io(table.io.properties, location)


def describe_file(one: ParquetPart, metadata: TableMetadata, location: str) -> DataFile:
    """Describe a file as manifests do. location: where it is, or is about to be."""
    schema, spec = metadata.schema(), metadata.spec()
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=pq.read_metadata(one.path),
        stats_columns=compute_statistics_plan(schema, metadata.properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    values = [
        _parse_key(key, schema.find_type(part.source_id), part.transform)
        for key, part in zip(one.keys, spec.fields, strict=True)
    ]
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=location,
        file_format=FileFormat.PARQUET,
        partition=Record(*values),
        file_size_in_bytes=one.size,
        sort_order_id=None,
        spec_id=metadata.default_spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def stage_snapshot(
    transaction: Transaction,
    files: Sequence[DataFile],
    mode: WriteMode,
    summary: Mapping[str, str],
    replaced: Sequence[DataFile] = (),
) -> None:
    """Add the snapshot to a transaction. Raises BadInputError if there are no partitions to overwrite.

    replaced: files that a merge has written anew.
    """
    update = transaction.update_snapshot(snapshot_properties=dict(summary))
    if mode == "append":
        with update.fast_append() as append:
            for file in files:
                append.append_data_file(file)
        return
    if mode == "merge":
        with update.overwrite() as overwrite:
            for file in replaced:
                overwrite.delete_data_file(file)
            for file in files:
                overwrite.append_data_file(file)
        # PyIceberg would try a lost commit again, without a match with the rows that came meanwhile
        transaction._snapshot_producers.clear()  # noqa: SLF001
        return
    metadata = transaction.table_metadata
    partitions = {tuple(_list_record(file.partition)) for file in files}
    if mode == "overwrite-partitions" and metadata.spec().is_unpartitioned():
        raise BadInputError("The table has no partitions that could be overwritten: --mode overwrite replaces all")
    with update.overwrite() as overwrite:
        for task in transaction._scan().plan_files():  # noqa: SLF001
            old = task.file
            if mode == "overwrite":
                overwrite.delete_data_file(old)
                continue
            if old.spec_id != metadata.default_spec_id:
                raise BadInputError(
                    "Files lie in partitions of an older kind: rewrite the table first, or --mode overwrite"
                )
            if tuple(_list_record(old.partition)) in partitions:
                overwrite.delete_data_file(old)
        for file in files:
            overwrite.append_data_file(file)


def _list_record(record: Record) -> list[Any]:
    return [record[number] for number in range(len(record))]
