"""PURE. Predicates on rows as JSON says them (expressions spec, Appendix B), in its own form and the deprecated one.

They are true or false of each row, never unknown: `x != 1` is true where x is null ("Boolean logic").
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from duckicelake.errors import CatalogError, InvalidRequestError, UnsupportedError
from duckicelake.iceberg.partition import Transform
from duckicelake.iceberg.types import PrimitiveType

MAX_DEPTH: Final = 100
MAX_PREDICATES: Final = 1000
MAX_VALUES: Final = 100_000

_MIRRORED: Final = {"lt": "gt", "lt-eq": "gt-eq", "gt": "lt", "gt-eq": "lt-eq", "eq": "eq", "not-eq": "not-eq"}
_COMPARISONS: Final = frozenset({*_MIRRORED, "starts-with", "not-starts-with"})
_UNARY: Final = frozenset({"is-null", "not-null", "is-nan", "not-nan"})
_SETS: Final = frozenset({"in", "not-in"})
_JUNCTIONS: Final = frozenset({"and", "or"})
_TYPES: Final = (*sorted(_JUNCTIONS), "not", *sorted(_COMPARISONS), *sorted(_SETS), *sorted(_UNARY))


@dataclass(frozen=True, slots=True)
class ConstantPredicate:
    """A predicate with the same result for every row."""

    holds: bool


@dataclass(frozen=True, slots=True)
class NotPredicate:
    child: "Predicate"


@dataclass(frozen=True, slots=True)
class Junction:
    """All parts hold (and), or any of them does (or)."""

    operator: Literal["and", "or"]
    left: "Predicate"
    right: "Predicate"


@dataclass(frozen=True, slots=True)
class JsonConstant:
    """A constant as JSON. data_type: the type that the expression names for it."""

    json: Any
    data_type: PrimitiveType | None = None


@dataclass(frozen=True, slots=True)
class ColumnTest:
    """A column compared with constants: with one, with several (in, not-in) or with none.

    The column is a name or a field id, and the values are `JsonConstant`; once bound, a field id and values of its
    type. transform: what is made of the column before it is compared. places: where the request has the column and the
    values, as `filter.left.term`.
    """

    operator: str
    column: str | int
    values: tuple[Any, ...] = ()
    transform: Transform | None = None
    places: tuple[str, str] = field(default=("", ""), compare=False)

    def find_place(self, index: int) -> str:
        """Return where the request has the value of this index."""
        return f"{self.places[1]}[{index}]" if self.operator in _SETS else self.places[1]


Predicate: TypeAlias = ConstantPredicate | NotPredicate | Junction | ColumnTest


def parse_predicate(json: Any, *, takes_transforms: bool = False, place: str = "") -> Predicate:
    """Parse a predicate.

    takes_transforms: columns may be compared by what a partition transform makes of them. place: the member of the
    request that has the predicate; errors then begin with where in it they are.

    Raises:
        InvalidRequestError: it is none, or too large. UnsupportedError: it compares anything else.

    """
    parser = _Parser(takes_transforms, [place] if place else [])
    if not place:
        return parser.predicate(json, 0)
    try:
        return parser.predicate(json, 0)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{'.'.join(parser.path)}: {error}") from error


def collect_tests(predicate: Predicate) -> list[ColumnTest]:
    """Collect a predicate's tests of columns, in order."""
    match predicate:
        case ConstantPredicate():
            return []
        case NotPredicate():
            return collect_tests(predicate.child)
        case Junction():
            return collect_tests(predicate.left) + collect_tests(predicate.right)
    return [predicate]


@dataclass(slots=True)
class _Parser:
    """Parses one expression, and counts its predicates and values against the limits.

    path: the names of the members that lead to what is parsed now.
    """

    takes_transforms: bool
    path: list[str]
    predicates: int = 0
    values: int = 0
    _readers: Mapping[str, Callable[[dict[str, Any], str, int], Predicate]] = field(init=False)

    def __post_init__(self) -> None:
        kinds = [(_JUNCTIONS, self._read_junction), (_COMPARISONS, self._read_comparison), (_SETS, self._set)]
        self._readers = {"not": self._not} | dict.fromkeys(_UNARY, self._read_unary)
        self._readers |= {name: read for names, read in kinds for name in names}

    def predicate(self, json: Any, depth: int) -> Predicate:
        self.predicates += 1
        if depth > MAX_DEPTH or self.predicates > MAX_PREDICATES:
            raise InvalidRequestError(f"A filter has up to {MAX_PREDICATES} predicates, {MAX_DEPTH} inside each other")
        if type(json) is bool:
            return ConstantPredicate(json)
        kind = json.get("type") if type(json) is dict else None
        match kind:
            case "true" | "false":
                return ConstantPredicate(kind == "true")
            case "literal" if type(json.get("value")) is bool:
                return ConstantPredicate(json["value"])
            case str() if kind in self._readers:
                return self._readers[kind](json, kind, depth)
        raise InvalidRequestError(
            f"Invalid predicate {_render(json)}: expected true, false, or an object of type {', '.join(_TYPES)}"
        )

    def _not(self, json: dict[str, Any], _: str, depth: int) -> Predicate:
        _match_members(json, {"child"})
        return NotPredicate(self._read_part(json, "child", depth))

    def _read_junction(self, json: dict[str, Any], kind: Any, depth: int) -> Predicate:
        _match_members(json, {"left", "right"})
        return Junction(kind, self._read_part(json, "left", depth), self._read_part(json, "right", depth))

    def _read_part(self, json: dict[str, Any], member: str, depth: int) -> Predicate:
        self.path.append(member)
        part = self.predicate(json[member], depth + 1)
        self.path.pop()
        return part

    def _read_unary(self, json: dict[str, Any], kind: str, _: int) -> Predicate:
        (name,) = _match_members(json, {"child"}, {"term"})
        return self._build_test(kind, (name, json[name]))

    def _read_comparison(self, json: dict[str, Any], kind: str, _: int) -> Predicate:
        if _match_members(json, {"left", "right"}, {"term", "value"}) == {"term", "value"}:
            return self._build_test(kind, ("term", json["term"]), json["value"], member="value")
        if _is_value(json["left"]) and not _is_value(json["right"]) and kind in _MIRRORED:
            return self._build_test(_MIRRORED[kind], ("right", json["right"]), json["left"], member="left")
        return self._build_test(kind, ("left", json["left"]), json["right"], member="right")

    def _set(self, json: dict[str, Any], kind: str, _: int) -> Predicate:
        found = _match_members(json, {"child", "values"}, {"term", "values"})
        values, data_type = json["values"], None
        if type(values) is dict and values.get("type") == "literals":
            _match_members(values, {"values", "data-type"})
            values, data_type = values["values"], _parse_data_type(values["data-type"])
        if type(values) is not list:
            raise InvalidRequestError(f"Invalid values {_render(values)}: expected a list")
        return self._build_test(kind, (min(found), json[min(found)]), *values, data_type=data_type, member="values")

    def _build_test(
        self,
        kind: str,
        term: tuple[str, Any],
        *values: Any,
        data_type: PrimitiveType | None = None,
        member: str = "",
    ) -> ColumnTest:
        """Build a test. term: the member that has the column, and its JSON. member: the one that has the values."""
        places = ".".join([*self.path, term[0]]), ".".join([*self.path, member])
        self.path.append(term[0])
        column, transform = _parse_term(term[1]) if self.takes_transforms else (_parse_column(term[1]), None)
        self.path[-1] = member
        constants = tuple(self._value(value, data_type) for value in values)
        self.path.pop()
        return ColumnTest(kind, column, constants, transform, places)

    def _value(self, json: Any, data_type: PrimitiveType | None = None) -> JsonConstant:
        self.values += 1
        if self.values > MAX_VALUES:
            raise InvalidRequestError(f"A filter has up to {MAX_VALUES} values")
        if type(json) is dict and json.get("type") == "literal":
            _match_members(json, {"value"}, {"value", "data-type"})
            data_type = _parse_data_type(json["data-type"]) if "data-type" in json else data_type
            json = json["value"]
        if type(json) is dict:
            raise _explain_refusal(json)
        if json is None:
            raise InvalidRequestError("Nothing is compared with null: test for it by is-null or not-null")
        return JsonConstant(json, data_type)


def _parse_column(json: Any) -> str | int:
    """Return the column that a reference names. The deprecated forms are a name, and `term`."""
    if type(json) is str:
        return json
    if type(json) is dict and json.get("type") == "reference":
        (name,) = _match_members(json, {"id"}, {"name"}, {"term"})
        if type(json[name]) is (int if name == "id" else str):
            column: str | int = json[name]
            return column
    raise _explain_refusal(json)


def _parse_term(json: Any) -> tuple[str | int, Transform | None]:
    """Return the column that a term names, and the transform of it, in either form."""
    kind = json.get("type") if type(json) is dict else None
    if kind == "transform" and json.keys() == {"type", "transform", "term"} and type(json["transform"]) is str:
        return _parse_column(json["term"]), Transform.parse(json["transform"])
    if kind == "apply" and json.keys() == {"type", "function", "arguments"}:
        return _parse_application(json)
    return _parse_column(json), None


def _parse_application(json: dict[str, Any]) -> tuple[str | int, Transform]:
    """Return the column and the transform of a function's application: its arguments are the width, if any, and it."""
    function, arguments = json["function"], json["arguments"]
    path = function.get("identifier") if type(function) is dict else [function]
    if type(path) is not list or len(path) != 1 or type(path[0]) is not str or type(arguments) is not list:
        raise _explain_refusal(json)
    width = [argument for argument in arguments if _is_value(argument) and type(argument) is not str]
    columns = [argument for argument in arguments if argument not in width]
    if len(columns) != 1 or len(width) > 1:
        raise _explain_refusal(json)
    sizes = [size["value"] if type(size) is dict else size for size in width]
    return _parse_column(columns[0]), Transform.parse(f"{path[0]}[{sizes[0]}]" if sizes else path[0])


def _is_value(json: Any) -> bool:
    return type(json) is not dict or json.get("type") == "literal"


def _explain_refusal(json: Any) -> CatalogError:
    """Build the error that says why this can't be compared."""
    if type(json) is dict and json.get("type") in {"transform", "apply", "reference"}:
        return UnsupportedError("filter-terms", f"Filters compare columns with constants, not {_render(json)}")
    return InvalidRequestError(f"Invalid column {_render(json)}: expected its name")


def _match_members(json: dict[str, Any], *choices: set[str]) -> set[str]:
    """Return the first of these sets of members that the object has besides its type; InvalidRequestError: none."""
    found = json.keys() - {"type"}
    if found not in choices:
        wanted = ", or ".join(" and ".join(sorted(choice)) for choice in choices)
        given = " and ".join(sorted(found)) or "nothing"
        raise InvalidRequestError(f"This {json['type']!r} has {given} beside its type: expected {wanted}")
    return found


def _parse_data_type(json: Any) -> PrimitiveType:
    if type(json) is str:
        return PrimitiveType.parse(json)
    raise InvalidRequestError(f"Invalid data-type {_render(json)}: expected the text of a type, such as int")


def _render(json: Any) -> str:
    text = repr(json)
    return text if len(text) <= 80 else f"{text[:80]}…"
