"""Read files by DuckDB as groups of the same columns: CSV by each file's header, JSON lines, and files with types."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, groupby
from typing import TYPE_CHECKING, Any, Final

import duckdb
import orjson
from pyiceberg.types import BooleanType, DoubleType, IcebergType, LongType

from duckicelake.errors import BadInputError, BadSourceError, MissingRequirementError
from duckicelake.extras import import_extra
from duckicelake.file_import.column_types import from_duckdb_type, quote_name, quote_text, to_duckdb_type
from duckicelake.file_import.fits import Fit, find_keys, fit_good_text, fit_json, fit_member, fit_native, fit_text
from duckicelake.file_import.source_files import FileFormat, ReadableFile
from duckicelake.file_import.text_files import ENCODING_OPTIONS, read_head

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from duckdb.sqltypes import DuckDBPyType

FILE_COLUMN: Final = '"\x01file"'
LINE_COLUMN: Final = '"\x01line"'
_FILES: Final = "\x02files\x02"
_COMPRESSION: Final = "\x02compression\x02"
_REJECTS: Final = "store_rejects=true, rejects_limit=0"
"""`ignore_errors` instead would drop good lines behind a bad one (DuckDB 1.5)."""
_MAX_RECORD_BYTES: Final = 16 << 20
_LINES: Final = f"max_line_size={_MAX_RECORD_BYTES}, buffer_size={_MAX_RECORD_BYTES}"
"""For lines of CSV. By default a buffer has 16 of the longest lines, 256 MiB, for each thread. A buffer that isn't a
multiple of them loses rows (DuckDB 1.5)."""
_PARQUET_NAME: Final = (
    "CASE WHEN lag(repetition_type) OVER () = 'REPEATED' AND lag(num_children) OVER () = 1 THEN 'element' ELSE name END"
)
"""Of a node of a Parquet schema. Writers call the elements of a list as they like."""
_JSON_TEXT: Final = "CAST(record AS VARCHAR)"
_DELIMITERS: Final = (",", ";", "\t", "|")
_NAMES: Final = frozenset(
    {"sep", "delimiter", "header", "quote", "escape", "nullvalue", "encoding", "charset", "multiline"}
)
JSON_SCALARS: Final = ("VARCHAR", "BIGINT", "UBIGINT", "HUGEINT", "DOUBLE", "BOOLEAN")
"""Structures of JSON values that DuckDB reads as text without a loss."""
_SAFE_CASTS: Final[Mapping[type, tuple[str, ...]]] = {
    LongType: ("BIGINT", "UBIGINT"),
    DoubleType: ("BIGINT", "UBIGINT", "DOUBLE"),
    BooleanType: ("BOOLEAN",),
}
"""Structures of which each value fits a type."""


@dataclass(frozen=True, slots=True)
class Dialect:
    """How a CSV file is written."""

    delimiter: str
    encoding: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FileGroup:
    """Files that are read alike.

    Attributes:
        scan: what DuckDB reads them by; _FILES and _COMPRESSION stand in it.
        text: SQL of a whole record, as the quarantine keeps it.
        unread: SQL of whether a record isn't one; empty if DuckDB's rejects say it, or none can be.
        types: of files with types.
        has_header: whether a file's first line is none of its records.
        forms: structures of the fields of JSON objects, by names.
        members: structures of the fields of JSON objects, by names, if the scan has them in its column `fields`.
        rows: number of records, if each value is known to be of its field's type, or of one of `found`.
        found: types of the fields of CSV that all values have.
        is_clean: whether all records fit the columns that they are read for.
        quick: a scan of the same records that is faster, and doesn't know their lines.

    """

    kind: FileFormat
    files: tuple[ReadableFile, ...]
    names: tuple[str, ...]
    scan: str
    text: str
    unread: str = ""
    types: Mapping[str, DuckDBPyType] = field(default_factory=dict)
    has_header: bool = False
    forms: Mapping[str, Any] = field(default_factory=dict)
    members: Mapping[str, Any] = field(default_factory=dict)
    rows: int = 0
    found: Mapping[str, IcebergType] = field(default_factory=dict)
    is_clean: bool = False
    quick: FileGroup | None = None

    @property
    def size(self) -> int:
        """Bytes of the files, as they are stored."""
        return sum(one.found.size for one in self.files)

    def read(self, files: Sequence[ReadableFile] | None = None) -> str:
        """Return what stands behind FROM. DuckDB's table reject_errors gets the lines that are no records."""
        chosen = self.files if files is None else files
        listed = ", ".join(quote_text(escape_pattern(str(one.path))) for one in chosen)
        return self.scan.replace(_FILES, f"[{listed}]").replace(_COMPRESSION, chosen[0].compression)

    def find_keys(self, name: str) -> list[str]:
        """Find what the files call a column, regardless of case; JSON records may have more than one key for it."""
        return find_keys(self.forms if self.kind == "json" else self.names, name)

    def fit(self, name: str, type_: IcebergType) -> Fit:
        """Convert a column of the files into a type."""
        key = next(iter(self.find_keys(name)), name)
        if self.kind == "csv":
            is_known = self.rows and self.found.get(key) == type_
            return fit_good_text(quote_name(key), type_) if is_known else fit_text(quote_name(key), type_)
        if self.kind == "json":
            return self._fit_member(name, key, type_)
        come = self.types[key]
        return fit_native(quote_name(key), str(come), type_, lambda: from_duckdb_type(come, key, count(1)))

    def _fit_member(self, name: str, key: str, type_: IcebergType) -> Fit:
        """Convert a field of JSON records; one of `fields` is parsed together with the others."""
        form = self.members.get(key)
        if form is None or (form in JSON_SCALARS and not type_.is_primitive):
            return fit_member("record", self.forms, name, type_)
        member = f"fields.{quote_name(key)}"
        if self.rows and form in _SAFE_CASTS.get(type(type_), ()):
            return Fit(f"CAST({member} AS {to_duckdb_type(type_)})")
        return fit_text(member, type_) if form in JSON_SCALARS else fit_json(member, type_, form)


def forget_rejects(duck: DuckDBPyConnection) -> None:
    """Drop what DuckDB has noted of lines that are no records."""
    for table in ("reject_errors", "reject_scans"):
        duck.execute(f"DROP TABLE IF EXISTS {table}")


def has_rejects(duck: DuckDBPyConnection) -> bool:
    """Return whether DuckDB has noted lines that are no records since they were forgotten."""
    is_there = duck.execute("SELECT count(*) FROM duckdb_tables() WHERE table_name = 'reject_errors'").fetchone()
    found = duck.execute("SELECT count(*) FROM reject_errors").fetchone() if is_there and is_there[0] else None
    return bool(found and found[0])


def escape_pattern(path: str) -> str:
    """Return a path as a pattern of DuckDB's that matches it alone."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in path)


def check_options(options: Mapping[str, str]) -> None:
    """Raise BadInputError for an option of the reader that there isn't."""
    unknown = sorted({name.lower() for name in options} - _NAMES)
    if unknown:
        raise BadInputError(f"Invalid --option {unknown[0]}: expected {', '.join(sorted(_NAMES))}")


def read_groups(
    duck: DuckDBPyConnection, files: Sequence[ReadableFile], kind: FileFormat, options: Mapping[str, str]
) -> list[FileGroup]:
    """Group the files by how they are read. Raises BadSourceError, which names the file."""
    given = {name.lower(): value for name, value in options.items()}
    if kind in {"csv", "json"}:
        filled = [one for one in files if one.found.size]
        return list(_group_csv(filled, given) if kind == "csv" else _group_json(filled, given))
    for one in files:
        if not one.found.size:
            raise BadSourceError(f"{one.found.name} is empty, which no {kind} file is: copy it again, or remove it")
    return list(_group_typed(duck, files, kind))


def _group_csv(files: Sequence[ReadableFile], options: Mapping[str, str]) -> Iterator[FileGroup]:
    has_header = options.get("header", "true").lower() != "false"
    quote, null = options.get("quote", '"'), options.get("nullvalue", "")
    escape = options.get("escape", quote)
    found = [((_read_dialect(one, options, quote, has_header=has_header), one.compression), one) for one in files]
    keyed = sorted(((key, one) for key, one in found if key[0].names), key=lambda pair: (repr(pair[0]), pair[1].found))
    for (dialect, _), pairs in groupby(keyed, key=lambda pair: pair[0]):
        columns = ", ".join(f"{quote_text(name)}: 'VARCHAR'" for name in dialect.names)
        listed = ", ".join(quote_text(text) for text in {"", null})
        scan = (
            f"read_csv({_FILES}, auto_detect=false, header={str(has_header).lower()}, "
            f"delim={quote_text(dialect.delimiter)}, "
            f"quote={quote_text(quote)}, escape={quote_text(escape)}, columns={{{columns}}}, nullstr=[{listed}], "
            f"allow_quoted_nulls=false, encoding={quote_text(dialect.encoding)}, compression='{_COMPRESSION}', "
            f"{_LINES}, filename={quote_text(FILE_COLUMN.strip(chr(34)))}, {_REJECTS})"
        )
        parts = ", ".join(f"coalesce({quote_name(name)}, '')" for name in dialect.names)
        text = f"concat_ws({quote_text(dialect.delimiter)}, {parts})"
        members = tuple(one for _, one in pairs)
        yield FileGroup("csv", members, dialect.names, scan, text, has_header=has_header)


def _read_dialect(file: ReadableFile, options: Mapping[str, str], quote: str, *, has_header: bool) -> Dialect:
    head = read_head(file)
    if not any(name in options for name in ENCODING_OPTIONS):
        _check_text(head, file)
    text = head.decode(file.encoding, "replace").lstrip("\ufeff")
    first = text.split("\n", 1)[0]
    delimiter = options.get("sep") or options.get("delimiter") or _find_delimiter(first, file.found.name)
    delimiter = {"\\t": "\t"}.get(delimiter, delimiter)
    if not text.strip():
        return Dialect(delimiter, file.encoding, ())
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter[0], quotechar=quote or None)
    try:
        names = next(reader)
    except csv.Error as error:
        raise BadSourceError(f"{file.found.name}, line 1 is no header: {error}") from error
    if not has_header:
        return Dialect(delimiter, file.encoding, tuple(f"_c{number}" for number in range(len(names))))
    named = tuple(name.strip() or f"_c{number}" for number, name in enumerate(names))
    check_names(named, f"{file.found.name}, line 1")
    return Dialect(delimiter, file.encoding, named)


def _check_text(head: bytes, file: ReadableFile) -> None:
    if b"\0" in head:
        raise BadSourceError(
            f"{file.found.name} has NUL bytes, so it is no UTF-8 text: give --option encoding=utf-16, or its --format"
        )


def _find_delimiter(line: str, name: str) -> str:
    """Return the delimiter that occurs most often outside quotes of the header."""
    outside = "".join(line.split('"')[::2])
    candidates = ("\t", *_DELIMITERS) if ".tsv" in name else _DELIMITERS
    return max(candidates, key=outside.count)


def check_names(names: Iterable[str], place: str) -> None:
    """Raise BadSourceError for a name that is empty, or there twice regardless of case."""
    seen: set[str] = set()
    for number, name in enumerate(names, 1):
        if not name:
            raise BadSourceError(f"{place}: column {number} has no name; give it one")
        if name.lower() in seen:
            raise BadSourceError(f"{place}: the column {name!r} is there twice, regardless of case; rename one")
        seen.add(name.lower())


def _group_json(files: Sequence[ReadableFile], options: Mapping[str, str]) -> Iterator[FileGroup]:
    is_multiline = options.get("multiline", "false").lower() == "true"
    name = quote_text(FILE_COLUMN.strip('"'))
    for (is_array, _), members in groupby(
        sorted(files, key=lambda one: (_is_json_array(one), one.compression, one.found)),
        key=lambda one: (_is_json_array(one), one.compression),
    ):
        form = "array" if is_array else "unstructured" if is_multiline else "newline_delimited"
        objects = (
            f"(SELECT json AS record, {FILE_COLUMN} FROM read_json_objects({_FILES}, format='{form}', "
            f"compression='{_COMPRESSION}', maximum_object_size={_MAX_RECORD_BYTES}, filename={name}))"
        )
        chosen = tuple(members)
        quick = FileGroup("json", chosen, (), objects, _JSON_TEXT)
        if is_array or is_multiline:
            scan = objects
            unread = "coalesce(json_type(record) <> 'OBJECT', true)"
        else:
            scan = (
                f"read_csv({_FILES}, auto_detect=false, header=false, delim='\x01', quote='', escape='', "
                f"columns={{'record': 'VARCHAR'}}, compression='{_COMPRESSION}', {_LINES}, "
                f"filename={name}, {_REJECTS})"
            )
            scan = f"(SELECT * REPLACE (CASE WHEN trim(record) <> '' THEN record END AS record) FROM {scan})"
            is_object = "json_valid(record) AND json_type(TRY_CAST(record AS JSON)) = 'OBJECT'"
            unread = f"(record IS NOT NULL AND NOT coalesce({is_object}, false))"
        yield FileGroup("json", chosen, (), scan, _JSON_TEXT, unread, quick=quick)


def _is_json_array(file: ReadableFile) -> bool:
    head = read_head(file).lstrip(b"\xef\xbb\xbf \t\r\n")
    return head.startswith(b"[") and head[1:].lstrip().startswith(b"{")


def _group_typed(duck: DuckDBPyConnection, files: Sequence[ReadableFile], kind: FileFormat) -> Iterator[FileGroup]:
    name = quote_text(FILE_COLUMN.strip('"'))
    keyed = []
    for one in files:
        scan = _build_typed_scan(duck, one, kind, name)
        try:
            described = duck.sql(f"SELECT * EXCLUDE ({FILE_COLUMN}) FROM {scan.replace(_FILES, _list_path(one))}")
        except duckdb.Error as error:
            reason = " ".join(str(error).split())[:300]
            if isinstance(error, duckdb.NotImplementedException):
                advice = "write Parquet, or use duckicelake pipeline ingest"
                raise BadSourceError(
                    f"{one.found.name} has values that DuckDB can't read: {reason}; {advice}"
                ) from error
            raise BadSourceError(f"{one.found.name} is damaged, or no {kind} file: {reason}") from error
        _check_typed_names(duck, one, kind)
        types = dict(zip(described.columns, described.types, strict=True))
        keyed.append((repr({column: str(type_) for column, type_ in types.items()}), scan, types, one))
    keyed.sort(key=lambda item: (item[0], item[1], item[3].found))
    for (_, scan), members in groupby(keyed, key=lambda item: (item[0], item[1])):
        of_group = list(members)
        types = of_group[0][2]
        columns = ", ".join(f"{quote_name(column)} := {quote_name(column)}" for column in types)
        text = f"CAST(to_json(struct_pack({columns})) AS VARCHAR)"
        yield FileGroup(kind, tuple(item[3] for item in of_group), tuple(types), scan, text, types=types)


def _check_typed_names(duck: DuckDBPyConnection, file: ReadableFile, kind: FileFormat) -> None:
    """Raise BadSourceError if a column, or a field of a struct, has no name, or the same as another regardless of case.

    DuckDB gives such ones other names in Parquet and Arrow, and reads the first of two twice in Avro.
    """
    name = file.found.name
    if kind == "arrow":
        _check_arrow_names(_open_arrow(file).schema, name)
    elif kind == "avro":
        with file.path.open("rb") as stream:
            schema = import_extra("fastavro").reader(stream).writer_schema
        _check_avro_names(schema, name)
        _check_avro_types(schema, name)
    else:
        query = f"SELECT {_PARQUET_NAME}, num_children FROM parquet_schema({_list_path(file)})"
        nodes = iter(duck.execute(query).fetchall())
        _, children = next(nodes)
        _check_parquet_names(nodes, children, name)


def _check_parquet_names(nodes: Iterator[tuple[str, int | None]], children: int | None, place: str) -> None:
    """Check the names of a node's children, which come depth first."""
    names = []
    for _ in range(children or 0):
        name, inner = next(nodes)
        names.append(name)
        _check_parquet_names(nodes, inner, f"{place}, {name}")
    check_names(names, place)


def _check_arrow_names(fields: Iterable[Any], place: str) -> None:
    """Check the names of the fields of a schema or a struct, and of what is in them."""
    members = list(fields)
    check_names((member.name for member in members), place)
    for member in members:
        inner = member.type
        while hasattr(inner, "value_type"):  # the type of a list or a dictionary
            inner = inner.value_type
        if inner.num_fields:
            _check_arrow_names((inner.field(at) for at in range(inner.num_fields)), f"{place}, {member.name}")


def _check_avro_names(schema: Any, place: str) -> None:
    for one in schema if isinstance(schema, list) else [schema]:
        if isinstance(one, dict):
            check_names((part["name"] for part in one.get("fields", ())), place)
            parts = [part["type"] for part in one.get("fields", ())]
            for inner in (*parts, one.get("items"), one.get("values")):
                _check_avro_names(inner, place)


def _check_avro_types(schema: Any, place: str) -> None:
    """Raise BadSourceError for types that DuckDB 1.5.5 reads as bytes."""
    for column in schema["fields"]:
        if b'"logicalType":"decimal"' in orjson.dumps(column):
            raise BadSourceError(
                f"{place}: column {column['name']} has decimals, which DuckDB reads from Avro as bytes; "
                "write Parquet, or use duckicelake pipeline ingest"
            )


def _list_path(file: ReadableFile) -> str:
    return f"[{quote_text(escape_pattern(str(file.path)))}]"


def _build_typed_scan(duck: DuckDBPyConnection, file: ReadableFile, kind: FileFormat, name: str) -> str:
    if kind == "parquet":
        return f"read_parquet({_FILES}, filename={name}, hive_partitioning=false)"
    if kind == "avro":
        load_extension(duck, "avro")
        return f"read_avro({_FILES}, filename={name})"
    view = f"arrow_{abs(hash(file.path)):x}"
    duck.register(view, _open_arrow(file))
    return f"(SELECT *, {quote_text(str(file.path))} AS {FILE_COLUMN} FROM {view})"


def _open_arrow(file: ReadableFile) -> Any:
    """Open an Arrow file, or a stream, whose batches are kept on disk as they are."""
    dataset, ipc = import_extra("pyarrow.dataset"), import_extra("pyarrow.ipc")
    try:
        with file.path.open("rb") as raw:
            is_stream = raw.read(6) != b"ARROW1"
        if not is_stream:
            return dataset.dataset(str(file.path), format="ipc")
        with import_extra("pyarrow").memory_map(str(file.path)) as mapped:
            return ipc.open_stream(mapped).read_all()
    except (OSError, ValueError) as error:
        raise BadSourceError(f"{file.found.name} is damaged, or no arrow file: {error}") from error


def load_extension(duck: DuckDBPyConnection, name: str) -> None:
    """Load an extension of DuckDB's that the extra `duckdb` installs. Raises MissingRequirementError."""
    try:
        duck.execute(f"LOAD {name}")
    except duckdb.Error:
        try:
            from duckdb_extensions import import_extension

            import_extension(name, con=duck)
            duck.execute(f"LOAD {name}")
        except (ImportError, duckdb.Error, OSError) as error:
            raise MissingRequirementError(
                f"Files of {name} need DuckDB's extension {name}: pip install 'duckicelake[duckdb]'"
            ) from error
