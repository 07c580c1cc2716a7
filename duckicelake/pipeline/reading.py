"""Reads a source with Spark, and leaves nothing out in silence: no column that only some files have, no bad record.

A record that isn't what its columns want comes with its text and with what is wrong with it.
What is read at once has one shape: CSV files with the same header, Avro files with the same schema.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType

from duckicelake.errors import BadSource
from duckicelake.pipeline.columns import both, by_name, typed_by
from duckicelake.pipeline.sources import TEXT, Source, SourceFile, literal, shown, with_content

T = TypeVar("T")
K = TypeVar("K")

FILE: Final = "__file"
RECORD: Final = "__record"
PROBLEM: Final = "__problem"
"""What is told of a bad row: its file, and if it can't be read its text and what is wrong with it."""

_THREADS: Final = 8
_NOTHING: Final = StructType([])


@dataclass(frozen=True, slots=True)
class Group:
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


def list_files(spark: SparkSession, source: Source) -> list[SourceFile]:
    """All files of a source, by path; none for a database. BadSource if a location has none."""
    if source.format == "jdbc":
        return []
    found = [each for location in source.locations for each in _files_in(spark, location)]
    return sorted({each.path: each for each in found}.values())


def groups_of(
    spark: SparkSession,
    source: Source,
    files: Sequence[SourceFile],
    given: StructType | None,
    known: StructType | None,
    *,
    apart: bool,
) -> list[Group]:
    """The source by shape. given: the columns that the source was said to have; known: those of the table.

    apart: don't let Spark join the columns of Parquet's and ORC's files, which is quicker.
    """
    if source.format == "jdbc":
        rows = spark.read.format("jdbc").options(**source.jdbc_options).load()
        return [frame_group(rows, source.shown[0])]
    shapes = [
        _Shape(spark, source, base, tuple(each.path for each in members), schema)
        for base, of_base in _grouped(with_content(source, files), lambda each: each.base)
        for schema, members in _by_schema(spark, source, base, of_base, apart=apart)
    ]
    if source.format not in TEXT:
        return [Group(shape.schema, shape.rows, _path(), _none()) for shape in shapes]
    return _text_groups(shapes, given or known or _NOTHING)


def frame_group(rows: DataFrame, name: str | None = None) -> Group:
    """Rows that Spark has already."""
    file = F.lit(name).cast("string")
    return Group(rows.schema, lambda: rows.withColumn(RECORD, _none()), file, _none(), may_change=True)


@dataclass(frozen=True, slots=True)
class _Shape:
    """Files that are read at once."""

    spark: SparkSession
    source: Source
    base: str | None
    paths: tuple[str, ...]
    schema: StructType

    @property
    def options(self) -> dict[str, str]:
        return _options(self.source, self.base)

    def inferred(self) -> StructType:
        """The columns with types that hold all values; reads everything."""
        reader = self.spark.read.format(self.source.format).options(**self.options, inferSchema="true")
        found = reader.load([literal(path) for path in self.paths]).schema
        return StructType([each for each in found.fields if each.name != "_corrupt_record"])

    def rows(self) -> DataFrame:
        reader = self.spark.read.format(self.source.format).options(**self.options).schema(self.schema)
        return reader.load([literal(path) for path in self.paths]).withColumn(RECORD, _none())

    def text_rows(self, schema: StructType) -> DataFrame:
        """Of records that can't be read, too."""
        reader = self.spark.read.format(self.source.format).options(**self.options)
        strict = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": RECORD, "columnPruning": "false"}
        if self.options.get("header", "").lower() == "true":
            strict["enforceSchema"] = "false"
        wanted = StructType([*schema.fields, StructField(RECORD, StringType())])
        return reader.options(**strict).schema(wanted).load([literal(path) for path in self.paths])


def _text_groups(shapes: Sequence[_Shape], known: StructType) -> list[Group]:
    """Columns that are known have the known types; those of the others must be found out, which reads everything."""
    names = by_name(known)
    found = [_text_columns(shape, known) for shape in shapes]
    unknown = _NOTHING
    for schema in found:
        unknown = both(unknown, StructType([each for each in schema.fields if each.name.lower() not in names]))
    types = StructType([*known.fields, *unknown.fields])
    return [_text_group(shape, typed_by(schema, types)) for shape, schema in zip(shapes, found, strict=True)]


def _text_columns(shape: _Shape, known: StructType) -> StructType:
    """The columns of text files; what isn't known has the type that holds all its values."""
    if shape.source.format == "json":
        found = shape.inferred()
        if not found.fields and not known.fields:
            raise BadSource(f"No record of {', '.join(shape.source.shown)} is a JSON object")
        return found if found.fields else known
    if not _has_header(shape.source) and known.fields:
        return known
    return shape.schema if set(by_name(shape.schema)) <= set(by_name(known)) else shape.inferred()


def _text_group(shape: _Shape, schema: StructType) -> Group:
    explain = _explain_csv if shape.source.format == "csv" else _explain_json
    problem = explain(schema, shape.source.options)
    return Group(schema, lambda: shape.text_rows(schema), _path(), problem, may_be_unreadable=True)


def _by_schema(
    spark: SparkSession, source: Source, base: str | None, files: Sequence[SourceFile], *, apart: bool
) -> list[tuple[StructType, list[SourceFile]]]:
    """Files with equal columns; all of JSON, whose records differ anyway, and all that Spark joins the columns of."""

    def schema(paths: Sequence[str], **more: str) -> StructType:
        reader = spark.read.format(source.format).options(**_options(source, base), **more)
        found = reader.load([literal(path) for path in paths]).schema
        return StructType([StructField(each.name, each.dataType) for each in found.fields])

    paths = [each.path for each in files]
    if source.format == "json":
        return [(_NOTHING, list(files))]
    if source.format == "csv" and not _has_header(source):
        return [(schema(paths), list(files))]
    if source.format in {"parquet", "orc"} and not apart:
        with suppress(Exception):  # types that differ, which it doesn't join though the table might hold them all
            return [(schema(paths, mergeSchema="true"), list(files))]
    with ThreadPoolExecutor(_THREADS) as pool:
        schemas = list(pool.map(lambda path: schema([path]), paths))
    keyed = list(zip((each.json() for each in schemas), schemas, files, strict=True))
    return [(rows[0][1], [file for _, _, file in rows]) for _, rows in _grouped(keyed, lambda row: row[0])]


def _files_in(spark: SparkSession, location: str) -> list[SourceFile]:
    """Files whose names begin with `.` or `_` aren't meant to be read, as everywhere in Spark."""
    try:
        listing = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(location)
        found = listing.select("path", "length", F.unix_millis("modificationTime")).collect()
    except Exception as error:
        if "PATH_NOT_FOUND" in str(error):
            raise BadSource(f"{shown(location)} isn't there; every executor must see it under this name") from error
        raise
    if not found:
        raise BadSource(f"{shown(location)} has no files, or only empty ones")
    is_folder = not set("*?[{") & set(location) and f"{location.rstrip('/').removeprefix('file://')}/" in found[0][0]
    base = location.rstrip("/") if is_folder else None
    return [SourceFile(path, size, modified, base) for path, size, modified in found]


def _options(source: Source, base: str | None) -> dict[str, str]:
    return {**source.options, **({"basePath": base} if base else {})}


def _has_header(source: Source) -> bool:
    return source.options.get("header", "").lower() == "true"


def _grouped(items: Iterable[T], key: Callable[[T], K]) -> list[tuple[K, list[T]]]:
    groups: dict[K, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.items())


def _path() -> Column:
    return F.col("_metadata.file_path")


def _none() -> Column:
    return F.lit(None).cast("string")


def _explain_csv(schema: StructType, options: Mapping[str, str]) -> Column:
    """What is wrong with the record in RECORD: it is split again, with every value as text."""
    texts = StructType([StructField(f"c{number}", StringType()) for number in range(len(schema.fields) + 1)])
    plain = {name: value for name, value in options.items() if name.lower() not in {"header", "multiline"}}
    split = F.from_csv(F.col(RECORD), texts.toDDL(), {**plain, "mode": "PERMISSIVE"})
    wrong = [_wrong(each, split[f"c{number}"]) for number, each in enumerate(schema.fields)]
    return _explained(wrong, F.lit(f"not {len(schema.fields)} fields, or quotes that don't end"))


def _explain_json(schema: StructType, _: Mapping[str, str]) -> Column:
    values = F.from_json(F.col(RECORD), "map<string, string>")
    wrong = [_wrong(each, F.element_at(values, each.name)) for each in schema.fields]
    return F.when(values.isNull(), F.lit("not a JSON object")).otherwise(
        _explained(wrong, F.lit("a value inside isn't what its column wants"))
    )


def _wrong(column: StructField, text: Column) -> Column:
    is_wrong = text.isNotNull() & F.col(f"`{column.name.replace('`', '``')}`").isNull()
    words = (F.lit(f"{column.name}: '"), F.left(text, F.lit(100)), F.lit(f"' is no {column.dataType.simpleString()}"))
    told = F.concat(*words)
    return F.when(is_wrong, told)


def _explained(wrong: Sequence[Column], otherwise: Column) -> Column:
    told = F.concat_ws("; ", *wrong)
    return F.when(told == "", otherwise).otherwise(told)
