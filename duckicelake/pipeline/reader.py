"""Read a source with Spark; every column and every bad record is kept."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from duckicelake.errors import BadSourceError, format_count
from duckicelake.pipeline.columns import apply_known_types, index_by_name, merge_columns
from duckicelake.pipeline.sources import (
    TEXT_FORMATS,
    PipelineSource,
    SourceFile,
    drop_empty_files,
    escape_pattern,
    mask_secrets,
)

T = TypeVar("T")
K = TypeVar("K")
FILE_COLUMN: Final = "__file"
RECORD_COLUMN: Final = "__record"
PROBLEM_COLUMN: Final = "__problem"
"""Columns that describe a bad row: its file and, if it can't be read, its text and the error."""
_LISTING_THREADS: Final = 8
_NO_COLUMNS: Final = StructType([])
_TEXT_COLUMN_ADVICE: Final = (
    "  If a column is string because of what stands for NULL, name that before you load: --option nullValue=NA. "
    "Or give the columns: --schema 'id long, x double'"
)


@dataclass(frozen=True, slots=True)
class SourceGroup:
    """Rows of one shape; `read` gives the columns of `schema`, and RECORD, which only rows have that can't be read.

    file, problem: of these rows; apart from them, as Spark works `file` out for every row that could be asked for it.
    may_be_unreadable: whether RECORD may be there, as of text. may_change: whether a second look may find other rows.
    """

    schema: StructType
    read: Callable[[], DataFrame]
    file: Column
    problem: Column
    may_be_unreadable: bool = False
    may_change: bool = False


def list_files(spark: SparkSession, source: PipelineSource) -> list[SourceFile]:
    """Return all files of a source, by path; none for a database. BadSourceError if a location has none."""
    if source.format == "jdbc":
        return []
    found = [file for location in source.locations for file in _list_location(spark, location)]
    return sorted({file.path: file for file in found}.values())


def read_groups(
    spark: SparkSession,
    source: PipelineSource,
    files: Sequence[SourceFile],
    given: StructType | None,
    known: StructType | None,
    *,
    apart: bool,
) -> list[SourceGroup]:
    """Return the source by shape. given: the columns that the source was said to have; known: those of the table.

    apart: don't let Spark join the columns of Parquet's and ORC's files, which is quicker.
    """
    if source.format == "jdbc":
        rows = spark.read.format("jdbc").options(**source.jdbc_options).load()
        return [build_frame_group(rows, source.masked_locations[0])]
    shapes = [
        _SourceShape(spark, source, base, tuple(member.path for member in members), schema)
        for base, of_base in _group_items(drop_empty_files(source, files), lambda member: member.base)
        for schema, members in _group_by_schema(spark, source, base, of_base, apart=apart)
    ]
    if source.format not in TEXT_FORMATS:
        return [SourceGroup(shape.schema, shape.rows, _build_path_column(), _build_null()) for shape in shapes]
    return _build_text_groups(shapes, given or known or _NO_COLUMNS)


def build_frame_group(rows: DataFrame, name: str | None = None) -> SourceGroup:
    """Return rows that Spark has already."""
    file = F.lit(name).cast("string")
    return SourceGroup(
        rows.schema, lambda: rows.withColumn(RECORD_COLUMN, _build_null()), file, _build_null(), may_change=True
    )


@dataclass(frozen=True, slots=True)
class _SourceShape:
    """Files that are read at once."""

    spark: SparkSession
    source: PipelineSource
    base: str | None
    paths: tuple[str, ...]
    schema: StructType

    @property
    def options(self) -> dict[str, str]:
        return _build_options(self.source, self.base)

    def infer_schema(self) -> StructType:
        """Return the columns with types that hold all values; reads everything."""
        reader = self.spark.read.format(self.source.format).options(**self.options, inferSchema="true")
        found = reader.load([escape_pattern(path) for path in self.paths]).schema
        return StructType([field for field in found.fields if field.name != "_corrupt_record"])

    def rows(self) -> DataFrame:
        reader = self.spark.read.format(self.source.format).options(**self.options).schema(self.schema)
        return reader.load([escape_pattern(path) for path in self.paths]).withColumn(RECORD_COLUMN, _build_null())

    def text_rows(self, schema: StructType) -> DataFrame:
        """Return the texts of records, also of those that can't be read."""
        reader = self.spark.read.format(self.source.format).options(**self.options)
        strict = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": RECORD_COLUMN, "columnPruning": "false"}
        if self.options.get("header", "").lower() == "true":
            strict["enforceSchema"] = "false"
        wanted = StructType([*schema.fields, StructField(RECORD_COLUMN, StringType())])
        return reader.options(**strict).schema(wanted).load([escape_pattern(path) for path in self.paths])


def _build_text_groups(shapes: Sequence[_SourceShape], known: StructType) -> list[SourceGroup]:
    """Infer the types of unknown columns, which reads all files; known columns have the known types."""
    names = index_by_name(known)
    found = [_find_text_columns(shape, known) for shape in shapes]
    unknown = _NO_COLUMNS
    for schema in found:
        unknown = merge_columns(
            unknown, StructType([field for field in schema.fields if field.name.lower() not in names])
        )
    types = StructType([*known.fields, *unknown.fields])
    return [
        _build_text_group(shape, apply_known_types(schema, types)) for shape, schema in zip(shapes, found, strict=True)
    ]


def _find_text_columns(shape: _SourceShape, known: StructType) -> StructType:
    """Return the columns of text files; what isn't known has the type that holds all its values."""
    if shape.source.format == "json":
        found = shape.infer_schema()
        if not found.fields and not known.fields:
            raise BadSourceError(f"No record of {', '.join(shape.source.masked_locations)} is a JSON object")
        return found if found.fields else known
    if not _has_header(shape.source) and known.fields:
        return known
    return shape.schema if set(index_by_name(shape.schema)) <= set(index_by_name(known)) else shape.infer_schema()


def _build_text_group(shape: _SourceShape, schema: StructType) -> SourceGroup:
    explain = _explain_csv if shape.source.format == "csv" else _explain_json
    problem = explain(schema, shape.source.options)
    return SourceGroup(schema, lambda: shape.text_rows(schema), _build_path_column(), problem, may_be_unreadable=True)


def _group_by_schema(
    spark: SparkSession, source: PipelineSource, base: str | None, files: Sequence[SourceFile], *, apart: bool
) -> list[tuple[StructType, list[SourceFile]]]:
    """Return files with equal columns.

    All of JSON, whose records differ anyway, and all that Spark joins the columns of.
    """

    def schema(paths: Sequence[str], **more: str) -> StructType:
        reader = spark.read.format(source.format).options(**_build_options(source, base), **more)
        found = reader.load([escape_pattern(path) for path in paths]).schema
        return StructType([StructField(field.name, field.dataType) for field in found.fields])

    paths = [file.path for file in files]
    if source.format == "json":
        return [(_NO_COLUMNS, list(files))]
    if source.format == "csv" and not _has_header(source):
        return [(schema(paths), list(files))]
    if source.format in {"parquet", "orc"} and not apart:
        with suppress(Exception):  # types that differ, which it doesn't join though the table might hold them all
            return [(schema(paths, mergeSchema="true"), list(files))]
    with ThreadPoolExecutor(_LISTING_THREADS) as pool:
        schemas = list(pool.map(lambda path: schema([path]), paths))
    keyed = list(zip((schema_.json() for schema_ in schemas), schemas, files, strict=True))
    return [(rows[0][1], [file for _, _, file in rows]) for _, rows in _group_items(keyed, lambda row: row[0])]


def _list_location(spark: SparkSession, location: str) -> list[SourceFile]:
    """Return files whose names begin with `.` or `_` aren't meant to be read, as everywhere in Spark."""
    try:
        listing = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(location)
        found = listing.select("path", "length", F.unix_millis("modificationTime")).collect()
    except Exception as error:
        if "PATH_NOT_FOUND" in str(error):
            raise BadSourceError(
                f"{mask_secrets(location)} isn't there; every executor must see it under this name"
            ) from error
        raise
    if not found:
        raise BadSourceError(f"{mask_secrets(location)} has no files, or only empty ones")
    is_folder = not set("*?[{") & set(location) and f"{location.rstrip('/').removeprefix('file://')}/" in found[0][0]
    base = location.rstrip("/") if is_folder else None
    return [SourceFile(path, size, modified, base) for path, size, modified in found]


def _build_options(source: PipelineSource, base: str | None) -> dict[str, str]:
    return {**source.options, **({"basePath": base} if base else {})}


def _has_header(source: PipelineSource) -> bool:
    return source.options.get("header", "").lower() == "true"


def _group_items(items: Iterable[T], key: Callable[[T], K]) -> list[tuple[K, list[T]]]:
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.items())


def _build_path_column() -> Column:
    return F.col("_metadata.file_path")


def _build_null() -> Column:
    return F.lit(None).cast("string")


def _explain_csv(schema: StructType, options: Mapping[str, str]) -> Column:
    """Return what is wrong with the record in RECORD: it is split again, with every value as text."""
    texts = StructType([StructField(f"c{number}", StringType()) for number in range(len(schema.fields) + 1)])
    plain = {name: value for name, value in options.items() if name.lower() not in {"header", "multiline"}}
    split = F.from_csv(F.col(RECORD_COLUMN), texts.toDDL(), {**plain, "mode": "PERMISSIVE"})
    wrong = [_explain_column(field, split[f"c{number}"]) for number, field in enumerate(schema.fields)]
    return _join_explanations(
        wrong, F.lit(f"not {format_count(len(schema.fields), 'field')}, or quotes that don't end")
    )


def _explain_json(schema: StructType, _: Mapping[str, str]) -> Column:
    values = F.from_json(F.col(RECORD_COLUMN), "map<string, string>")
    wrong = [_explain_column(field, F.element_at(values, field.name)) for field in schema.fields]
    return F.when(values.isNull(), F.lit("not a JSON object")).otherwise(
        _join_explanations(wrong, F.lit("a value inside isn't what its column wants"))
    )


def _explain_column(column: StructField, text: Column) -> Column:
    is_wrong = text.isNotNull() & F.col(f"`{column.name.replace('`', '``')}`").isNull()
    words = (F.lit(f"{column.name}: '"), F.left(text, F.lit(100)), F.lit(f"' is no {column.dataType.simpleString()}"))
    explanation = F.concat(*words)
    return F.when(is_wrong, explanation)


def _join_explanations(wrong: Sequence[Column], otherwise: Column) -> Column:
    explanation = F.concat_ws("; ", *wrong)
    return F.when(explanation == "", otherwise).otherwise(explanation)


def format_found_columns(schemas: Iterable[StructType], known: StructType | None) -> Iterator[str]:
    """Yield lines that show the columns which the table doesn't have yet, with their types; none if it has them all.

    A column is text as soon as one of its values is no number: `NA` for example.
    """
    names = set() if known is None else {name.lower() for name in known.names}
    new = {
        field.name: field.dataType for schema in schemas for field in schema.fields if field.name.lower() not in names
    }
    if not new:
        return
    yield f"columns found: {', '.join(f'{name} {type_.simpleString()}' for name, type_ in new.items())}"
    texts: Sequence[str] = [name for name, type_ in new.items() if isinstance(type_, StringType)]
    if texts:
        yield _TEXT_COLUMN_ADVICE
