"""PURE. Files, folders, patterns or a JDBC database to read, and options as `<name>=<value>`."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, cast, get_args

from duckicelake.errors import BadInputError, BadSourceError

SourceFormat = Literal["csv", "json", "parquet", "orc", "avro", "jdbc"]
SOURCE_FORMATS: Final = frozenset(get_args(SourceFormat))
TEXT_FORMATS: Final = frozenset({"csv", "json"})
"""Formats whose values are text, so that a record may not be what its column wants."""
_SUFFIX_FORMATS: Final[Mapping[str, SourceFormat]] = {
    "csv": "csv",
    "tsv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "parquet": "parquet",
    "orc": "orc",
    "avro": "avro",
}
_COMPRESSION_SUFFIX: Final = re.compile(r"\.(gz|bz2|zst|lz4|snappy|deflate)$")
_RESERVED_OPTIONS: Final = frozenset(
    {"mode", "columnnameofcorruptrecord", "enforceschema", "inferschema", "mergeschema"}
)
"""Options by which Spark would drop or misread records."""
_JDBC_PATTERN: Final = re.compile(
    r"(jdbc:\w+:)(?://(?:[^/;?()]*@)?([\w.-]+(?::\d+)?(?:/[\w.$-]*)?)(?:[;?][^@]*)?)?", re.DOTALL
)
"""Of a JDBC URL its kind, and host and database if it is certain that they are these and no part of a password."""
_POSTGRES_PACKAGE: Final = "org.postgresql:postgresql:42.7.7"
_POSTGRES_PREFIX: Final = "jdbc:postgresql:"
_AVRO_PACKAGE: Final = "org.apache.spark:spark-avro_2.13:4.1.1"
"""Of the line of Spark that the extra `spark` names; not each of its versions has one."""


def parse_pairs(option: str, given: Iterable[str] | None, example: str) -> dict[str, str]:
    """Return the values by name, the last of a name. BadInputError says what would be right, by the example."""
    found = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise BadInputError(f"{option} {text}: write <name>=<value>, as {option} {example}")
        found[name] = value
    return found


@dataclass(frozen=True, slots=True)
class PipelineSource:
    """locations: as Spark wants them, of one format. options: of Spark's reader. schema: DDL; None is inferred."""

    locations: tuple[str, ...]
    format: SourceFormat
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None

    def packages(self) -> tuple[str, ...]:
        """Return maven coordinates that Spark needs besides, to read it."""
        if self.format == "avro":
            return (_AVRO_PACKAGE,)
        return (_POSTGRES_PACKAGE,) if self.locations[0].startswith(_POSTGRES_PREFIX) else ()

    @property
    def jdbc_options(self) -> dict[str, str]:
        """Of Spark's reader of databases, which by itself sees no driver that came as a package."""
        driver = {"driver": "org.postgresql.Driver"} if self.locations[0].startswith(_POSTGRES_PREFIX) else {}
        return {**driver, **self.options, "url": self.locations[0]}

    @property
    def masked_locations(self) -> tuple[str, ...]:
        """The locations with secrets masked."""
        return tuple(map(mask_secrets, self.locations))


@dataclass(frozen=True, slots=True, order=True)
class SourceFile:
    """A file as it is now. base: the folder that was asked for, whose subfolders may name values (`year=2024`)."""

    path: str
    size: int
    modified_ms: int
    base: str | None = None


def parse_source(
    locations: Sequence[str], format_: str | None = None, options: Sequence[str] = (), schema: str | None = None
) -> PipelineSource:
    """Return a source from the command line; a suffix gives the format unless an option does. BadInputError."""
    if not locations:
        raise BadInputError("Say what to read: files, folders, patterns, or a JDBC URL")
    wanted = format_ or _guess_format(locations)
    if wanted not in SOURCE_FORMATS:
        raise BadInputError(f"--format {wanted}: there are {', '.join(sorted(SOURCE_FORMATS))}")
    if wanted == "jdbc" and len(locations) > 1:
        raise BadInputError("One JDBC URL at a time")
    given = parse_pairs("--option", options, "sep=;")
    ours = [name for name in given if name.lower() in _RESERVED_OPTIONS]
    if ours:
        raise BadInputError(
            f"--option {ours[0]} isn't yours to set: bad records go to quarantine, and no column is left out"
        )
    if wanted == "csv":
        given = {"header": "true"} | given
        if all(_strip_suffix(location).endswith(".tsv") for location in locations):
            given = {"sep": "\t"} | given
    return PipelineSource(tuple(locations), cast("SourceFormat", wanted), given, schema)


def mask_secrets(location: str) -> str:
    """Return the location without what may be secret in it."""
    if not location.startswith("jdbc:"):
        return re.sub(r"^([\w+.-]+://)[^/]*@", r"\1", location)
    match = _JDBC_PATTERN.fullmatch(location)
    if match is None or match[2] is None:
        return f"{':'.join(location.split(':', 2)[:2])}:…"
    return f"{match[1]}//{match[2]}"


def drop_empty_files(source: PipelineSource, files: Iterable[SourceFile]) -> list[SourceFile]:
    """Return the files that aren't empty.

    Raises BadSourceError for an empty one of a format that has none: a copy that was cut off.
    """
    found = list(files)
    broken = [file.path for file in found if not file.size]
    if broken and source.format not in TEXT_FORMATS:
        raise BadSourceError(f"{broken[0]} is empty, which no file of {source.format} is: copy it again, or remove it")
    return [file for file in found if file.size]


def compute_fingerprint(source: PipelineSource, files: Iterable[SourceFile]) -> str:
    """Return the content's identity: paths, sizes and times of files; of a database only the query."""
    what = [repr((location.path, location.size, location.modified_ms)) for location in sorted(files)]
    if source.format == "jdbc":
        asked = {name: value for name, value in source.options.items() if name.lower() in {"dbtable", "query"}}
        what = [repr((source.masked_locations, sorted(asked.items())))]
    return hashlib.sha256("\n".join(what).encode()).hexdigest()[:32]


def escape_pattern(path: str) -> str:
    """Return a path that is meant as it is, where Spark would see a pattern."""
    return re.sub(r"([\\*?\[\]{},])", r"\\\1", path)


def _guess_format(locations: Sequence[str]) -> str:
    if all(location.startswith("jdbc:") for location in locations):
        return "jdbc"
    found = {_SUFFIX_FORMATS.get(_strip_suffix(location).rpartition(".")[2]) for location in locations}
    if len(found) != 1 or None in found:
        raise BadInputError(f"The format isn't clear from {', '.join(locations)}: give --format")
    return str(found.pop())


def _strip_suffix(location: str) -> str:
    """Strip the suffix of a compression, and a folder's slash."""
    return _COMPRESSION_SUFFIX.sub("", location.lower().rstrip("/"))
