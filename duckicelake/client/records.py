"""Parse the JSON of a server into records: dataclasses whose fields have the names of the JSON in snake_case."""

from collections.abc import Callable
from dataclasses import MISSING, Field, fields, is_dataclass
from datetime import datetime
from functools import cache, partial
from types import NoneType
from typing import Any, Final, TypeVar, get_args, get_origin, get_type_hints

Record = TypeVar("Record")
_BOOLEAN_PREFIX: Final = "is-"
"""Of fields. JSON may leave it out: `truncated` is `is_truncated`."""


def parse_record(kind: type[Record], answer: Any) -> Record:
    """Parse an object, the objects in it, and its times. What the JSON doesn't have is the field's default, or None."""
    values: dict[str, Any] = {}
    for field, parse in _read_fields(kind):  # type: ignore[arg-type]  # a type is hashable
        key = field.name.rstrip("_").replace("_", "-")
        value = answer.get(key, answer.get(key.removeprefix(_BOOLEAN_PREFIX)))
        if value is not None:
            values[field.name] = parse(value)
        elif field.default is MISSING:
            values[field.name] = None
    return kind(**values)


@cache
def _read_fields(kind: type) -> list[tuple[Field[Any], Callable[[Any], Any]]]:
    """Return the fields, and what parses each."""
    hints = get_type_hints(kind)
    return [(field, _find_parser(hints[field.name])) for field in fields(kind)]


def _find_parser(hint: Any) -> Callable[[Any], Any]:
    if NoneType in get_args(hint):
        hint = next(one for one in get_args(hint) if one is not NoneType)
    if get_origin(hint) is tuple:
        item = _find_parser(get_args(hint)[0])
        return lambda items: tuple(map(item, items))
    if isinstance(hint, type) and is_dataclass(hint):
        return partial(parse_record, hint)
    return datetime.fromisoformat if hint is datetime else _keep


def _keep(value: Any) -> Any:
    return value
