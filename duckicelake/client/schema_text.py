"""Parse columns and partition fields as people write them: `id long not null, tags list<string>`, `day(time)`.

Names of primitive types are the catalog's to check.
"""

import re
from typing import Final

from duckicelake.client.models import Json
from duckicelake.errors import BadInputError

_TOKEN: Final = re.compile(r"\s*(`(?:[^`]|``)+`|'(?:[^']|'')*'|\w+(?:\s*\([^()]*\)|\s*\[[^\[\]]*\])?|.)")
_WORD: Final = re.compile(r"[^\W\d]\w*")
_FIELD: Final = re.compile(r"\s*(?:(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?([\w.`]+)\s*\)|([\w.`]+))\s*(?:,|$)")
_SPELLINGS: Final = {"integer": "int", "bigint": "long", "bool": "boolean", "varchar": "string", "text": "string"}
"""SQL's names of types."""
_FIRST_PARTITION_ID: Final = 1000


def parse_columns(text: str) -> Json:
    """Parse columns into an Iceberg schema, as JSON. Raises BadInputError, which names the place."""
    reader = _Reader(text)
    fields = reader.read_fields("")
    if not fields:
        raise BadInputError("No columns: expected them as in `id long not null, name string`")
    return {"type": "struct", "fields": fields}


def parse_partition_fields(text: str, schema: Json) -> Json:
    """Parse partition fields, as `day(time), bucket(16, id), region`, into a spec, as JSON. Raises BadInputError."""
    columns = {field["name"]: field["id"] for field in schema["fields"]}
    fields: list[Json] = []
    at = 0
    while at < len(text):
        match = _FIELD.match(text, at)
        if match is None:
            raise BadInputError(
                f"Invalid partition field at {text[at:].strip()!r}: expected day(time), bucket(16, id) or a column"
            )
        transform, width, argument, plain = match.groups()
        column = (argument or plain).strip("`")
        if column not in columns:
            raise BadInputError(f"Invalid partition field: no column {column!r}; the columns are {', '.join(columns)}")
        name = column if transform is None else f"{column}_{transform.lower()}"
        kind = "identity" if transform is None else f"{transform.lower()}[{width}]" if width else transform.lower()
        field_id = _FIRST_PARTITION_ID + len(fields)
        fields.append({"source-id": columns[column], "field-id": field_id, "name": name, "transform": kind})
        at = match.end()
    return {"spec-id": 0, "fields": fields}


class _Reader:
    """Read columns token by token. A type with arguments, as `decimal(9, 2)`, is one token."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._last_id = 0

    def read_fields(self, end: str) -> list[Json]:
        """Read fields up to the token `end`, which is left; empty: the end of the text."""
        fields: list[Json] = []
        while self._peek() not in {"", end}:
            fields.append(self._read_field())
            if self._peek() != ",":
                break
            self._take()
        if self._peek() != end:
            raise self._build_error(f"',' or {repr(end) if end else 'the end'}")
        return fields

    def _read_field(self) -> Json:
        field = {"name": self._read_name(), "id": self._take_id(), "required": False}
        if self._peek() == ":":
            self._take()
        field["type"] = self._read_type()
        if self._peek().lower() == "not":
            self._take()
            self._expect("null")
            field["required"] = True
        if self._peek().lower() == "comment":
            self._take()
            field["doc"] = self._read_text()
        return field

    def _read_type(self) -> Json:
        token = self._peek()
        name = token.lower()
        if name in {"list", "map", "struct"}:
            self._take()
            return self._read_nested(name)
        if not _WORD.match(token):
            raise self._build_error("a type, as long, string, decimal(9, 2), list<…>, map<…> or struct<…>")
        self._take()
        return _SPELLINGS.get(name, name)

    def _read_nested(self, kind: str) -> Json:
        self._expect("<")
        if kind == "struct":
            type_: Json = {"type": "struct", "fields": self.read_fields(">")}
        elif kind == "list":
            type_ = {"type": "list", "element-id": self._take_id(), "element-required": False}
            type_["element"] = self._read_type()
        else:
            type_ = {"type": "map", "key-id": self._take_id(), "value-id": self._take_id(), "value-required": False}
            type_["key"] = self._read_type()
            self._expect(",")
            type_["value"] = self._read_type()
        self._expect(">")
        return type_

    def _read_name(self) -> str:
        token = self._peek()
        if token.startswith("`") and len(token) > 1:
            self._take()
            return token[1:-1].replace("``", "`")
        if not _WORD.fullmatch(token):
            raise self._build_error("the name of a column; a name of other letters than a, 1 and _ takes backticks")
        return self._take()

    def _read_text(self) -> str:
        token = self._peek()
        if not token.startswith("'") or len(token) < 2:
            raise self._build_error("a text in single quotes")
        return self._take()[1:-1].replace("''", "'")

    def _take_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def _expect(self, token: str) -> None:
        if self._peek().lower() != token:
            raise self._build_error(repr(token))
        self._take()

    def _peek(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        return match[1] if match else ""

    def _take(self) -> str:
        match = _TOKEN.match(self._text, self._at)
        assert match is not None
        self._at = match.end()
        return match[1]

    def _build_error(self, expected: str) -> BadInputError:
        rest = self._text[self._at :].strip()
        place = f"at {rest[:40]!r}" if rest else "at the end"
        return BadInputError(f"Invalid columns {place}: expected {expected}")
