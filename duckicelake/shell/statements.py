"""Split what is typed into SQL statements and meta-commands, and meta-commands into words. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from duckicelake.errors import BadInputError

_TOKEN: Final = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<line>--[^\n]*)
  | (?P<block>/\*)
  | (?P<text>[eE]'(?:[^'\\]|\\.|'')*'|'(?:[^']|'')*')
  | (?P<name>"(?:[^"]|"")*")
  | (?P<dollar>\$(?P<tag>[^\W\d]\w*|)\$.*?\$(?P=tag)\$)
  | (?P<end>;)
  | (?P<meta>\\[^\n]*)
  | (?P<open>['"]|\$(?:[^\W\d]\w*|)\$)
  | (?P<word>\w+|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_COMMENT_EDGE: Final = re.compile(r"/\*|\*/")
_ARGUMENT: Final = re.compile(
    r"""\s*('(?:[^']|'')*'(?=\s|$)|\((?:[^()']|'(?:[^']|'')*'|\([^()]*\))*\)|(?!['(])(?:`[^`]*`|"[^"]*"|[^\s`"])+)"""
)
_QUOTED_LEVEL: Final = re.compile(r'"((?:[^"]|"")*)"')


@dataclass(frozen=True, slots=True)
class Statement:
    """A SQL statement without its semicolon. is_ended: there was one."""

    sql: str
    is_ended: bool = True


@dataclass(frozen=True, slots=True)
class MetaCommand:
    r"""A line that begins with a backslash, as `\dt+ sales`. before: a statement in front of it, without semicolon."""

    name: str
    text: str
    before: str = ""

    @property
    def words(self) -> Sequence[str]:
        """The arguments. Raises BadInputError for quotes that don't end."""
        return tuple(_split_words(self.text))


def split_input(text: str) -> Sequence[Statement | MetaCommand]:
    """Split a text into statements and meta-commands, in their order. The last statement may have no semicolon.

    Raises BadInputError for a quote or comment that doesn't end.
    """
    pieces: list[Statement | MetaCommand] = []
    begin, has_sql = 0, False
    for kind, start, end in _scan(text):
        if kind == "open":
            raise BadInputError(f"A quote or comment doesn't end: {' '.join(text[start:].split())[:40]}")
        if kind == "end":
            if has_sql:
                pieces.append(Statement(text[begin:start].strip()))
            begin, has_sql = end, False
        elif kind == "meta":
            name, _, rest = text[start + 1 : end].rstrip().rstrip(";").partition(" ")
            pieces.append(MetaCommand(name.strip(), rest.strip(), text[begin:start].strip() if has_sql else ""))
            begin, has_sql = end, False
        elif kind == "sql":
            has_sql = True
    if has_sql:
        pieces.append(Statement(text[begin:].strip(), is_ended=False))
    return pieces


def is_complete(text: str) -> bool:
    """Return whether nothing more needs to be typed: each statement has its semicolon, each quote its end."""
    try:
        pieces = split_input(text)
    except BadInputError:
        return False
    return not pieces or isinstance(pieces[-1], MetaCommand) or pieces[-1].is_ended


def list_tokens(sql: str) -> Sequence[tuple[str, int, int]]:
    """List the tokens of a statement, without comments: each with its begin and its end."""
    return [(sql[begin:end], begin, end) for kind, begin, end in _scan(sql) if kind == "sql"]


def _scan(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield (kind, begin, end) of tokens; kinds are sql, end, meta, and open for what doesn't end."""
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        assert match is not None
        kind, begin, at = str(match.lastgroup), at, match.end()
        if kind == "block":
            at = _find_comment_end(text, begin)
            if at < 0:
                yield "open", begin, len(text)
                return
        elif kind in {"open", "end", "meta"}:
            yield kind, begin, at
        elif kind not in {"space", "line"}:
            yield "sql", begin, at


def _find_comment_end(text: str, at: int) -> int:
    """Find the end of a comment, in which others may be; -1 if there is none."""
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, at):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    return -1


def _split_words(text: str) -> Iterator[str]:
    at = 0
    while text[at:].strip():
        match = _ARGUMENT.match(text, at)
        if match is None or (match.end() < len(text) and not text[match.end()].isspace()):
            raise BadInputError(f"Invalid argument at {text[at:].strip()[:40]!r}: a quote or bracket doesn't end")
        at, word = match.end(), match[1]
        if word.startswith("'"):
            yield word[1:-1].replace("''", "'")
        elif word.startswith("("):
            yield word
        else:
            yield _QUOTED_LEVEL.sub(lambda level: f"`{level[1].replace('`', '``')}`", word)
