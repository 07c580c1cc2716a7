"""The body of S3's DeleteObjects: pure, from XML to keys.

Read strictly, because S3 reads it again: what two XML readers might take for different keys is refused. Nothing is
expanded: a document type, and so any entity of its own, is refused before it is looked at.
"""

from typing import Final
from xml.parsers.expat import ExpatError, ParserCreate

from duckicelake.errors import Forbidden, InvalidRequest

MOST_KEYS: Final = 1000
MOST_CHARACTERS: Final = 4 * 1024 * 1024
"""What S3 takes: a thousand keys of a kilobyte each, every letter of which may be an escape."""
_PATHS: Final = {
    ("Delete",),
    ("Delete", "Quiet"),
    ("Delete", "Object"),
    ("Delete", "Object", "Key"),
}


def deleted_keys(body: str) -> tuple[str, ...]:
    """The keys that the body names; InvalidRequest for what is no such body, Forbidden for what isn't simple."""
    if len(body) > MOST_CHARACTERS:
        raise InvalidRequest(f"the body has more than {MOST_CHARACTERS} characters")
    reader = _Reader()
    try:
        reader.read(body)
    except (ExpatError, UnicodeEncodeError) as error:
        raise InvalidRequest(f"the body isn't the XML of a multi-object delete: {error}") from error
    if not reader.keys:
        raise InvalidRequest("the body names no keys")
    if len(reader.keys) > MOST_KEYS:
        raise InvalidRequest(f"the body names more than {MOST_KEYS} keys")
    return tuple(reader.keys)


class _Reader:
    """Follows the parser through the one shape that is accepted."""

    def __init__(self) -> None:
        self.keys: list[str] = []
        self._path: tuple[str, ...] = ()
        self._text = ""
        self._named = 0

    def read(self, body: str) -> None:
        parser = ParserCreate()
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._characters
        parser.StartDoctypeDeclHandler = _refuse
        parser.EntityDeclHandler = _refuse
        parser.CommentHandler = _refuse
        parser.ProcessingInstructionHandler = _refuse
        parser.StartCdataSectionHandler = _refuse
        parser.Parse(body.encode(), True)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        self._path = (*self._path, name)
        if self._path not in _PATHS or set(attributes) - ({"xmlns"} if len(self._path) == 1 else set()):
            raise Forbidden(f"the body of a multi-object delete may not hold {'/'.join(self._path)} {attributes or ''}")
        self._text = ""

    def _end(self, name: str) -> None:
        if name == "Key":
            if self._text != self._text.strip() or not self._text:
                raise Forbidden(f"key {self._text[:200]!r} is empty, or begins or ends with white space")
            self.keys.append(self._text)
            self._named += 1
        elif name == "Object":
            if self._named != 1:
                raise InvalidRequest("each Object must have one Key")
            self._named = 0
        elif self._text.strip() and name == "Delete":
            raise InvalidRequest("there is text between the elements")
        self._path = self._path[:-1]
        self._text = ""

    def _characters(self, text: str) -> None:
        if self._path[-1] not in {"Key", "Quiet"} and text.strip():
            raise InvalidRequest("there is text between the elements")
        self._text += text


def _refuse(*_: object) -> None:
    raise Forbidden("the body may not hold document types, entities, comments, instructions or CDATA")
