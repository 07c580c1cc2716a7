"""PURE. What is to be read: files, folders or patterns of files of one format, or a database by JDBC."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, cast, get_args

from duckicelake.errors import BadInput, BadSource
from duckicelake.pipeline.pairs import pairs

Format = Literal["csv", "json", "parquet", "orc", "avro", "jdbc"]
FORMATS: Final = frozenset(get_args(Format))
TEXT: Final = frozenset({"csv", "json"})
"""Formats whose values are text, so that a record may not be what its column wants."""

_SUFFIXES: Final[Mapping[str, Format]] = {
    "csv": "csv",
    "tsv": "csv",
    "json": "json",
    "jsonl": "json",
    "ndjson": "json",
    "parquet": "parquet",
    "orc": "orc",
    "avro": "avro",
}
_COMPRESSED: Final = re.compile(r"\.(gz|bz2|zst|lz4|snappy|deflate)$")
_OURS: Final = frozenset({"mode", "columnnameofcorruptrecord", "enforceschema", "inferschema", "mergeschema"})
"""Options by which Spark would drop or misread records."""
_SHOWN_JDBC: Final = re.compile(
    r"(jdbc:\w+:)(?://(?:[^/;?()]*@)?([\w.-]+(?::\d+)?(?:/[\w.$-]*)?)(?:[;?][^@]*)?)?", re.DOTALL
)
"""Of a JDBC URL its kind, and host and database if it is certain that they are these and no part of a password."""
_POSTGRES: Final = "org.postgresql:postgresql:42.7.7"
_OF_POSTGRES: Final = "jdbc:postgresql:"
_AVRO: Final = "org.apache.spark:spark-avro_2.13:4.1.1"
"""Of the line of Spark that the extra `spark` names; not each of its versions has one."""


@dataclass(frozen=True, slots=True)
class Source:
    """locations: as Spark wants them, of one format. options: of Spark's reader. schema: DDL; None is inferred."""

    locations: tuple[str, ...]
    format: Format
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None

    def packages(self) -> tuple[str, ...]:
        """Maven coordinates that Spark needs besides, to read it."""
        if self.format == "avro":
            return (_AVRO,)
        return (_POSTGRES,) if self.locations[0].startswith(_OF_POSTGRES) else ()

    @property
    def jdbc_options(self) -> dict[str, str]:
        """Of Spark's reader of databases, which by itself sees no driver that came as a package."""
        driver = {"driver": "org.postgresql.Driver"} if self.locations[0].startswith(_OF_POSTGRES) else {}
        return {**driver, **self.options, "url": self.locations[0]}

    @property
    def shown(self) -> tuple[str, ...]:
        """The locations without what may be secret in them."""
        return tuple(map(shown, self.locations))


@dataclass(frozen=True, slots=True, order=True)
class SourceFile:
    """A file as it is now. base: the folder that was asked for, whose subfolders may name values (`year=2024`)."""

    path: str
    size: int
    modified_ms: int
    base: str | None = None


def source_of(
    locations: Sequence[str], format_: str | None = None, options: Sequence[str] = (), schema: str | None = None
) -> Source:
    """A source from what somebody typed; the format is told by a suffix unless it is given. BadInput."""
    if not locations:
        raise BadInput("Say what to read: files, folders, patterns, or a JDBC URL")
    wanted = format_ or _told(locations)
    if wanted not in FORMATS:
        raise BadInput(f"--format {wanted}: there are {', '.join(sorted(FORMATS))}")
    if wanted == "jdbc" and len(locations) > 1:
        raise BadInput("One JDBC URL at a time")
    given = pairs("--option", options, "sep=;")
    ours = [name for name in given if name.lower() in _OURS]
    if ours:
        raise BadInput(
            f"--option {ours[0]} isn't yours to set: bad records go to quarantine, and no column is left out"
        )
    if wanted == "csv":
        given = {"header": "true"} | given
        if all(_bare(each).endswith(".tsv") for each in locations):
            given = {"sep": "\t"} | given
    return Source(tuple(locations), cast("Format", wanted), given, schema)


def shown(location: str) -> str:
    """The location without what may be secret in it."""
    if not location.startswith("jdbc:"):
        return re.sub(r"^([\w+.-]+://)[^/]*@", r"\1", location)
    match = _SHOWN_JDBC.fullmatch(location)
    if match is None or match[2] is None:
        return f"{':'.join(location.split(':', 2)[:2])}:…"
    return f"{match[1]}//{match[2]}"


def with_content(source: Source, files: Iterable[SourceFile]) -> list[SourceFile]:
    """The files that aren't empty. BadSource for an empty one of a format that has none: a copy that was cut off."""
    found = list(files)
    broken = [each.path for each in found if not each.size]
    if broken and source.format not in TEXT:
        raise BadSource(f"{broken[0]} is empty, which no file of {source.format} is: copy it again, or remove it")
    return [each for each in found if each.size]


def fingerprint(source: Source, files: Iterable[SourceFile]) -> str:
    """What tells this content from another: paths, sizes and times of files; of a database only what is asked."""
    what = [repr((each.path, each.size, each.modified_ms)) for each in sorted(files)]
    if source.format == "jdbc":
        asked = {name: value for name, value in source.options.items() if name.lower() in {"dbtable", "query"}}
        what = [repr((source.shown, sorted(asked.items())))]
    return hashlib.sha256("\n".join(what).encode()).hexdigest()[:32]


def literal(path: str) -> str:
    """A path that is meant as it is, where Spark would see a pattern."""
    return re.sub(r"([\\*?\[\]{},])", r"\\\1", path)


def _told(locations: Sequence[str]) -> str:
    if all(each.startswith("jdbc:") for each in locations):
        return "jdbc"
    found = {_SUFFIXES.get(_bare(each).rpartition(".")[2]) for each in locations}
    if len(found) != 1 or None in found:
        raise BadInput(f"The format can't be told from {', '.join(locations)}: give --format")
    return str(found.pop())


def _bare(location: str) -> str:
    """Without the suffix of a compression, and a folder's slash."""
    return _COMPRESSED.sub("", location.lower().rstrip("/"))
