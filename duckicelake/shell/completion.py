"""Complete what is typed: meta-commands, their arguments, keywords, tables behind FROM, columns of tables named."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeVar

from duckicelake.errors import PipelineError
from duckicelake.rest.names import parse_name
from duckicelake.shell.formats import FORMAT_NAMES
from duckicelake.shell.metacommands import COMMANDS, find_command

if TYPE_CHECKING:
    from duckicelake.client.models import CatalogObject, ColumnInfo, LakeReader

_KEYWORDS: Final = (
    *("SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "OFFSET", "JOIN", "LEFT JOIN", "USING"),
    *("ON", "AS", "WITH", "UNION ALL", "EXCEPT", "INTERSECT", "DISTINCT", "CASE", "WHEN", "THEN", "ELSE", "END"),
    *("AND", "OR", "NOT", "NULL", "IS NULL", "IS NOT NULL", "IN", "BETWEEN", "LIKE", "ILIKE", "CAST", "EXISTS"),
    *("CREATE MATERIALIZED VIEW", "CREATE OR REPLACE MATERIALIZED VIEW", "REFRESH MATERIALIZED VIEW"),
    *("DROP MATERIALIZED VIEW", "MATERIALIZED VIEW", "IF EXISTS", "IF NOT EXISTS"),
    *("EXPLAIN", "VALUES", "DESC", "ASC", "NULLS LAST", "OVER", "PARTITION BY", "QUALIFY", "PIVOT", "UNNEST"),
)
_PIECE: Final = re.compile(r"""(?P<word>"[^"]*"?|`[^`]*`?|[\w.]+)|.""", re.DOTALL)
_NAME: Final = r"""(?:"[^"]+"|\w+)(?:\.(?:"[^"]+"|\w+))*"""
_NAMED: Final = re.compile(
    rf"\b(?:FROM|JOIN|INTO|UPDATE)\s+({_NAME})(?:\s+(?:AS\s+)?(?!(?:SELECT|WHERE|ON|USING|GROUP|ORDER|LIMIT|JOIN|LEFT|SET)\b)(\w+))?",
    re.IGNORECASE,
)
_BEFORE_TABLE: Final = re.compile(
    r"\b(?:FROM|JOIN|INTO|UPDATE|TABLE|DESCRIBE|SUMMARIZE|MATERIALIZED\s+VIEW(?:\s+IF(?:\s+NOT)?\s+EXISTS)?)\s+$|"
    r"\bFROM\s+[^()]*,\s*$",
    re.IGNORECASE,
)
_PLAIN: Final = re.compile(r"[^\W\d]\w*")
_LIFETIME_SECONDS: Final = 30.0
Found = TypeVar("Found")
_QUOTED: Final = re.compile(r'"([^"]+)"')


@dataclass(frozen=True, slots=True)
class Suggestion:
    """A text that may stand in the place of the last `length` characters. meta: what it is, as a type."""

    text: str
    length: int
    meta: str


@dataclass
class KnownNames:
    """Names of a lake, which are read when they are first needed, and again after some seconds."""

    lake: LakeReader
    _objects: dict[str, tuple[float, Sequence[CatalogObject]]] = field(default_factory=dict)
    _columns: dict[str, tuple[float, Sequence[ColumnInfo]]] = field(default_factory=dict)

    def find_objects(self, namespace: str) -> Sequence[CatalogObject]:
        """Return what is in a namespace; nothing where the lake doesn't answer."""
        return _remember(self._objects, namespace, lambda: list(self.lake.list(namespace)))

    def find_columns(self, name: str) -> Sequence[ColumnInfo]:
        """Return the columns of a table or view."""
        return _remember(self._columns, name, lambda: self.lake.find(name).columns)


def complete(text: str, names: KnownNames, profiles: Sequence[str] = ()) -> Iterator[Suggestion]:
    """Yield suggestions for the end of a text."""
    line = text.rpartition("\n")[2].lstrip()
    if line.startswith("\\"):
        yield from _complete_command(line, names, profiles)
        return
    statement = text.rpartition(";")[2]
    word = _get_word(statement)
    before = statement[: len(statement) - len(word)]
    found = (
        _suggest_objects(word, names, spell_sql_name)
        if _BEFORE_TABLE.search(before)
        else _suggest_columns(word, statement, names)
    )
    yield from _pick(found, word)


def _complete_command(line: str, names: KnownNames, profiles: Sequence[str]) -> Iterator[Suggestion]:
    name, space, rest = line[1:].partition(" ")
    if not space:
        commands = (Suggestion(f"\\{one.name}", 0, one.text) for one in COMMANDS)
        yield from _pick(commands, line)
        return
    try:
        command, _ = find_command(name)
    except PipelineError:
        return
    word = _get_word(rest)
    if rest.strip() != word:
        return  # the first argument is there
    match command.first:
        case "object" | "namespace":
            is_any = command.first == "object"
            objects = (one for one in _suggest_objects(word, names, str) if is_any or one.meta == "namespace")
            yield from _pick(objects, word)
        case "format":
            yield from _pick((Suggestion(one, 0, "format") for one in FORMAT_NAMES), word)
        case "profile":
            yield from _pick((Suggestion(one, 0, "profile") for one in profiles), word)


def _suggest_objects(word: str, names: KnownNames, spell: Callable[[str], str]) -> Iterator[Suggestion]:
    namespace = _QUOTED.sub(r"`\1`", word).rpartition(".")[0]
    for one in names.find_objects(namespace):
        yield Suggestion(spell(one.name), 0, one.kind)


def _suggest_columns(word: str, statement: str, names: KnownNames) -> Iterator[Suggestion]:
    qualifier = word.rpartition(".")[0]
    for match in _NAMED.finditer(statement):
        name, alias = match[1], match[2]
        if qualifier and qualifier not in {alias, name, name.rpartition(".")[2]}:
            continue
        for column in names.find_columns(_QUOTED.sub(lambda level: _quote_level(level[1]), name)):
            spelled = spell_identifier(column.name)
            yield Suggestion(f"{qualifier}.{spelled}" if qualifier else spelled, 0, column.type)
    if not qualifier:
        yield from (Suggestion(keyword, 0, "keyword") for keyword in _KEYWORDS)


def _pick(found: Iterator[Suggestion], word: str) -> Iterator[Suggestion]:
    """Yield those that begin with the word, whatever the case, each once."""
    begin, seen = word.lower().replace('"', ""), set()
    for one in found:
        if one.text.lower().replace('"', "").startswith(begin) and one.text not in seen and one.text.isprintable():
            seen.add(one.text)
            yield Suggestion(one.text, len(word), one.meta)


def spell_sql_name(name: str) -> str:
    """Spell an object's name for SQL, where the levels of its namespace are one name: `"a.b".t`."""
    *levels, last = parse_name(name)
    return ".".join(map(spell_identifier, ([".".join(levels)] if levels else []) + [last]))


def spell_identifier(name: str) -> str:
    """Spell a name for SQL, in quotes only where needed."""
    return name if _PLAIN.fullmatch(name) else '"' + name.replace('"', '""') + '"'


def _quote_level(level: str) -> str:
    """Spell a quoted name as names of the client are; one with dots is a namespace of several levels."""
    return level if "." in level else f"`{level}`"


def _get_word(text: str) -> str:
    """Return the name that the text ends with, or its begin."""
    word = ""
    for piece in _PIECE.finditer(text):
        word = word + piece[0] if piece["word"] else ""
    return word


def _remember(
    cache: dict[str, tuple[float, Sequence[Found]]], key: str, read: Callable[[], Sequence[Found]]
) -> Sequence[Found]:
    now = time.monotonic()
    known = cache.get(key)
    if known is None or now - known[0] > _LIFETIME_SECONDS:
        try:
            known = (now, read())
        except PipelineError:
            known = (now, ())
        cache[key] = known
    return known[1]
