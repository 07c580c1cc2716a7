"""Names of namespaces and tables: checks, the form in URLs, and the DuckLake schema that a namespace is.

A namespace is the DuckLake schema whose full name joins the levels with `.`; inside a level, `.` is written `%2E`, and
a `%` that would begin such an escape is written `%25`. So nearly every schema that DuckDB made, `100%` too, is a
namespace. Lists leave out what no request can name. `duckicelake_schemas()` gives the full names of nested schemas.
"""

import re
from contextlib import suppress
from typing import Annotated, Final
from urllib.parse import unquote_plus

from pydantic import AfterValidator

from duckicelake.errors import InvalidRequestError

Namespace = tuple[str, ...]

_SEPARATOR: Final = re.compile("%1F|\x1f", re.IGNORECASE)
_AMBIGUOUS_PERCENT: Final = re.compile(r"%(?=25|2E)")
_ESCAPE: Final = re.compile(r"%(25|2E)")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
_STEPS: Final = frozenset({".", ".."})

MAX_NAME_BYTES: Final = 2000
"""UTF-8 bytes of a table's name, or of all levels of a namespace: the limit of Postgres's indexes."""


def to_schema_name(namespace: Namespace) -> str:
    """Build the name of the DuckLake schema that holds the namespace's tables."""
    return ".".join(map(_escape, namespace))


def format_full_name(parent: Namespace | str, name: str | None) -> str:
    """Build the full name of a table or view, whose own dots become %2E as in the names of levels.

    parent: a namespace, or the full name of a DuckLake schema. name: None for the parent itself.
    """
    schema_name = parent if isinstance(parent, str) else to_schema_name(parent)
    return schema_name if name is None else f"{schema_name}.{_escape(name)}"


def _escape(level: str) -> str:
    return _AMBIGUOUS_PERCENT.sub("%25", level).replace(".", "%2E")


def parse_schema_name(schema_name: str) -> Namespace:
    """Parse the full name of a DuckLake schema: the inverse of `to_schema_name`."""
    return tuple(_ESCAPE.sub(_unescape, level) for level in schema_name.split("."))


def parse_readable_namespace(schema_name_: str) -> Namespace | None:
    """Return the namespace of a DuckLake schema, None if no request can name it."""
    namespace = parse_schema_name(schema_name_)
    with suppress(InvalidRequestError):
        if to_schema_name(check_namespace(namespace)) == schema_name_:
            return namespace
    return None


def has_readable_name(name: str) -> bool:
    """Return whether a request can name a table or view of DuckDB's with this name."""
    with suppress(InvalidRequestError):
        return bool(check_name(name, "name"))
    return False


def _unescape(match: re.Match[str]) -> str:
    return "." if match[1] == "2E" else "%"


def decode_namespace(raw: str) -> Namespace:
    """Decode a path segment or query value; `%1F` separates levels and `+` is a space, as Java sends it.

    Raises:
        InvalidRequestError: a level is empty, isn't UTF-8 or holds control characters.

    """
    return check_namespace(tuple(decode_name(level) for level in _SEPARATOR.split(raw)))


def decode_name(raw: str) -> str:
    """Decode one percent-encoded name; `+` is a space, as Java sends it. InvalidRequestError: it isn't UTF-8."""
    try:
        return unquote_plus(raw, errors="strict")
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{raw!r} isn't percent-encoded UTF-8") from error


def check_namespace(namespace: Namespace) -> Namespace:
    """Return the namespace if it has levels and each is a valid name; InvalidRequestError otherwise."""
    if not namespace:
        raise InvalidRequestError("the namespace has no levels")
    for level in namespace:
        _check_letters(level, "namespace level")
    if len(namespace) == 1:
        _check_path(namespace[0], "namespace")
    _check_length("".join(namespace), "namespace")
    return namespace


def check_name(name: str, what: str) -> str:
    """Return the name if Postgres, DuckDB and a URL can hold it; otherwise InvalidRequestError names `what`."""
    _check_letters(name, what)
    _check_path(name, what)
    return name


def _check_path(name: str, what: str) -> None:
    if name in _STEPS:
        raise InvalidRequestError(f"{what} {name!r} can't be part of a URL, in which it leads to another path")


def _check_letters(name: str, what: str) -> None:
    if not name:
        raise InvalidRequestError(f"a {what} is empty")
    if _CONTROL.search(name):
        raise InvalidRequestError(f"{what} {name!r} holds control characters")
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        raise InvalidRequestError(f"{what} {name!r} isn't valid Unicode")
    _check_length(name, what)


def _check_length(name: str, what: str) -> None:
    length = len(name.encode())
    if length > MAX_NAME_BYTES:
        raise InvalidRequestError(f"a {what} has {length} bytes; it may have {MAX_NAME_BYTES} at most")


def _validate_table_name(name: str) -> str:
    return check_name(name, "table name")


NamespaceField = Annotated[Namespace, AfterValidator(check_namespace)]
TableNameField = Annotated[str, AfterValidator(_validate_table_name)]
