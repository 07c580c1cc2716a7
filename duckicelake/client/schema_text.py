"""Parse columns and partition fields as people write them: `id long not null, tags list<string>`, `day(time)`.

Names of primitive types are the catalog's to check.
"""

import re
from collections.abc import Iterator
from typing import Final

from duckicelake.client.models import Json
from duckicelake.errors import BadInputError

_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^']|'')*'|\w+(?:\s*\([^()]*\)|\s*\[[^\[\]]*\])?|.)")
_WORD: Final = re.compile(r"[^\W\d]\w*")
_QUOTED: Final = r"`(?:[^`]|``)+`|[^\W\d]\w*"
_PATH: Final = rf"(?:{_QUOTED})(?:\.(?:{_QUOTED}))*"
_FIELD: Final = re.compile(
    rf"\s*(?:(?P<transform>\w+)\s*\(\s*(?:(?P<width>\d+)\s*,\s*)?(?P<argument>{_PATH})\s*\)|(?P<plain>{_PATH}))"
    r"(?:\s+(?P<direction>asc|desc)\b)?(?:\s+nulls\s+(?P<nulls>first|last)\b)?\s*(?:,|$)",
    re.IGNORECASE,
)
_PATH_LEVEL: Final = re.compile(_QUOTED)
_SPELLINGS: Final = {"integer": "int", "bigint": "long", "bool": "boolean", "varchar": "string", "text": "string"}
"""SQL's names of types."""
_FIRST_PARTITION_ID: Final = 1000


def parse_columns(text: str) -> Json:
    """Parse columns into an Iceberg schema, as JSON. Raises BadInputError, which names the place."""
    reader = ColumnReader(text)
    fields = reader.read_fields("")
    if not fields:
        raise BadInputError("No columns: expected them as in `id long not null, name string`")
    return {"type": "struct", "fields": fields}


def parse_partition_fields(text: str, schema: Json) -> Json:
    """Parse partition fields, as `day(time), bucket(16, id), region`, into a spec, as JSON. Raises BadInputError."""
    fields: list[Json] = []
    for match in _match_fields(text, "partition field", "day(time), bucket(16, id) or a column"):
        if match["direction"] or match["nulls"]:
            raise BadInputError(f"Invalid partition field {match[0].strip(' ,')!r}: partitions have no order")
        source_id, path = _find_source(match, schema)
        kind = _build_transform(match)
        name = path if kind == "identity" else f"{path}_{match['transform'].lower()}"
        field_id = _FIRST_PARTITION_ID + len(fields)
        fields.append({"source-id": source_id, "field-id": field_id, "name": name, "transform": kind})
    return {"spec-id": 0, "fields": fields}


def parse_sort_fields(text: str, schema: Json) -> Json:
    """Parse sort fields, as `region, day(time) desc nulls last`, into an order, as JSON. Raises BadInputError.

    NULLs come first in an ascending field, last in a descending one.
    """
    fields: list[Json] = []
    for match in _match_fields(text, "sort field", "a column or transform, then asc, desc, nulls first, nulls last"):
        source_id, _ = _find_source(match, schema)
        direction = (match["direction"] or "asc").lower()
        nulls = (match["nulls"] or ("first" if direction == "asc" else "last")).lower()
        fields.append(
            {
                "source-id": source_id,
                "transform": _build_transform(match),
                "direction": direction,
                "null-order": f"nulls-{nulls}",
            }
        )
    return {"order-id": 1 if fields else 0, "fields": fields}


def parse_path(text: str) -> list[str]:
    """Parse the name of a column into its levels: `address.city`, a level of other letters in backticks."""
    if not re.fullmatch(_PATH, text):
        raise BadInputError(f"Invalid column {text!r}: expected a name; one of other letters takes backticks")
    return [level[1:-1].replace("``", "`") if level[0] == "`" else level for level in _PATH_LEVEL.findall(text)]


def list_children(type_: Json) -> list[Json]:
    """Return the fields of a type, as JSON: of a struct; `element` of a list; `key` and `value` of a map."""
    if isinstance(type_, str):
        return []
    if type_["type"] == "struct":
        fields: list[Json] = type_["fields"]
        return fields
    parts = ("element",) if type_["type"] == "list" else ("key", "value")
    return [{"id": type_[f"{part}-id"], "name": part, "type": type_[part]} for part in parts]


def find_column(fields: list[Json], path: list[str]) -> Json | None:
    """Return the field of a path, as JSON; None if there is none."""
    found: Json | None = next((field for field in fields if field["name"] == path[0]), None)
    return found if found is None or len(path) == 1 else find_column(list_children(found["type"]), path[1:])


def _match_fields(text: str, what: str, expected: str) -> Iterator[re.Match[str]]:
    at = 0
    while at < len(text):
        match = _FIELD.match(text, at)
        if match is None:
            raise BadInputError(f"Invalid {what} at {text[at:].strip()!r}: expected {expected}")
        yield match
        at = match.end()


def _find_source(match: re.Match[str], schema: Json) -> tuple[int, str]:
    """Return the id of a partition or sort field's column, and its path."""
    path = parse_path(match["argument"] or match["plain"])
    found = find_column(schema["fields"], path)
    if found is None:
        names = ", ".join(field["name"] for field in schema["fields"])
        raise BadInputError(f"Invalid field: no column {'.'.join(path)!r}; the columns are {names}")
    return found["id"], ".".join(path)


def _build_transform(match: re.Match[str]) -> str:
    if match["transform"] is None:
        return "identity"
    name: str = match["transform"].lower()
    return f"{name}[{match['width']}]" if match["width"] else name


class ColumnReader:
    """Read columns token by token. A type with arguments, as `decimal(9, 2)`, is one token."""

    def __init__(self, text: str, last_id: int = 0, *, what: str = "columns") -> None:
        """last_id: of the ids that are taken. what: the text, as errors name it."""
        self._text = text
        self._at = 0
        self._what = what
        self.last_id = last_id

    def read_fields(self, end: str) -> list[Json]:
        """Read fields up to the token `end`, which is left; empty: the end of the text."""
        fields: list[Json] = []
        while self.peek() not in {"", end}:
            fields.append(self.read_field())
            if self.peek() != ",":
                break
            self.take()
        if self.peek() != end:
            raise self.build_error(f"',' or {repr(end) if end else 'the end'}")
        return fields

    def read_field(self) -> Json:
        return self.read_description(self.read_name())

    def read_description(self, name: str) -> Json:
        """Read what follows the name of a column: its type, and not null, default and comment if they are there."""
        field = {"name": name, "id": self._take_id(), "required": False}
        if self.peek() == ":":
            self.take()
        field["type"] = self.read_type()
        if self.peek().lower() == "not":
            self.take()
            self.expect("null")
            field["required"] = True
        if self.peek().lower() == "default":
            self.take()
            default = self._read_literal(field["type"])
            field |= {"initial-default": default, "write-default": default}
        if self.peek().lower() == "comment":
            self.take()
            field["doc"] = self.read_text()
        return field

    def read_type(self) -> Json:
        token = self.peek()
        name = token.lower()
        if name in {"list", "map", "struct"}:
            self.take()
            return self._read_nested(name)
        if not _WORD.match(token):
            raise self.build_error("a type, as long, string, decimal(9, 2), list<…>, map<…> or struct<…>")
        self.take()
        return _SPELLINGS.get(name, name)

    def _read_nested(self, kind: str) -> Json:
        self.expect("<")
        if kind == "struct":
            type_: Json = {"type": "struct", "fields": self.read_fields(">")}
        elif kind == "list":
            type_ = {"type": "list", "element-id": self._take_id(), "element-required": False}
            type_["element"] = self.read_type()
        else:
            type_ = {"type": "map", "key-id": self._take_id(), "value-id": self._take_id(), "value-required": False}
            type_["key"] = self.read_type()
            self.expect(",")
            type_["value"] = self.read_type()
        self.expect(">")
        return type_

    def read_name(self) -> str:
        token = self.peek()
        if token.startswith("`") and len(token) > 1:
            self.take()
            return token[1:-1].replace("``", "`")
        if not _WORD.fullmatch(token):
            raise self.build_error("the name of a column; a name of other letters than a, 1 and _ takes backticks")
        return self.take()

    def read_text(self) -> str:
        token = self.peek()
        if not token.startswith("'") or len(token) < 2:
            raise self.build_error("a text in single quotes")
        return self.take()[1:-1].replace("''", "'")

    def _read_literal(self, type_: Json) -> Json:
        """Read a text in quotes, a number, true or false, as Iceberg writes values of the type in JSON."""
        token = self.peek()
        if token.startswith("'"):
            return self.read_text()
        sign = "-" if token in {"-", "+"} and self.take() == "-" else ""
        token = self.peek()
        if token.lower() in {"true", "false"} and not sign:
            return self.take().lower() == "true"
        number = re.compile(r"\s*(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)").match(self._text, self._at)
        if number is None:
            raise self.build_error("a default: a text in single quotes, a number, true or false")
        self._at = number.end()
        text = f"{sign}{number[1]}"
        if str(type_).startswith("decimal"):
            return text
        return int(text) if text.lstrip("-").isdecimal() else float(text)

    def _take_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def expect(self, token: str) -> None:
        if self.peek().lower() != token:
            raise self.build_error(repr(token))
        self.take()

    def peek(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        return match[1] if match else ""

    def take(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        return match[1]

    def take_rest(self) -> str:
        rest = self._text[self._at :].strip()
        self._at = len(self._text)
        return rest

    def build_error(self, expected: str) -> BadInputError:
        rest = self._text[self._at :].strip()
        place = f"at {rest[:40]!r}" if rest else "at the end"
        return BadInputError(f"Invalid {self._what} {place}: expected {expected}")
