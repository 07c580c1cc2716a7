"""The base of every Iceberg JSON object: frozen, kebab-case, unknown keys ignored, explicit nulls as if absent."""

import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from operator import methodcaller
from typing import Annotated, Any, Final, Literal, Self, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Discriminator, Field, ValidationError, model_validator

from duckicelake.errors import InvalidRequestError

Int = Annotated[int, Field(strict=True, ge=-(2**31), lt=2**31)]
Long = Annotated[int, Field(strict=True, ge=-(2**63), lt=2**63)]
Json = Any

_NUL_ESCAPE: Final = b"\\u0000"
_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_TO_JSON: Final = methodcaller("to_json")
Model = TypeVar("Model", bound=BaseModel)
Made = TypeVar("Made")


def to_kebab_case(name: str) -> str:
    """Return the JSON key of an attribute: `schema_id` is `schema-id`, `schema_` is `schema`."""
    return name.rstrip("_").replace("_", "-")


def lower_text(value: Any) -> Any:
    """Lower a text that a client may have written in capitals; return anything else unchanged."""
    return value.lower() if isinstance(value, str) else value


class SpecModel(BaseModel):
    """One JSON object of the Iceberg specification."""

    model_config = ConfigDict(frozen=True, alias_generator=to_kebab_case, populate_by_name=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _null_is_absent(cls, data: Any) -> Any:
        if isinstance(data, Mapping) and None in data.values():
            return {key: value for key, value in data.items() if value is not None}
        return data

    def to_json(self) -> dict[str, Json]:
        """Return the object as JSON values, absent keys left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)

    def to_json_once(self) -> dict[str, Json]:
        """Return the object as JSON values, made by the first call only."""
        return self.compute_once(_TO_JSON)

    def replace_fields(self, **changes: Any) -> Self:
        """Copy the object with other values, trusted to be valid: nothing is checked, and no cache is copied."""
        held = self.__dict__  # fields and cached results
        return self.build_trusted({name: held[name] for name in type(self).model_fields} | changes)

    def compute_once(self, make: Callable[[Self], Made]) -> Made:
        """Call a pure function of the object once, and cache its result."""
        known: dict[Callable[[Self], Made], Made] = self.__dict__.setdefault("_remembered", {})
        if make not in known:
            known[make] = make(self)
        return known[make]

    @classmethod
    def build_trusted(cls, values: dict[str, Any]) -> Self:
        """Build the object of one value for each field, unchecked. Ten times as fast as `model_construct`."""
        made = cls.__new__(cls)
        set_ = object.__setattr__  # the model is frozen
        set_(made, "__dict__", values)
        set_(made, "__pydantic_fields_set__", set(values))
        set_(made, "__pydantic_extra__", None)
        set_(made, "__pydantic_private__", None)
        return made


def parse(model: type[Model], data: Json, what: str) -> Model:
    """Read `data` as `model`.

    Raises:
        InvalidRequestError: `data` doesn't have the shape; the message names `what`, the key and the reason.

    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise InvalidRequestError(f"invalid {what}: {explain_errors(error)}") from error


def has_nul(document: bytes) -> bool:
    """Return whether a text of the JSON document contains NUL, which JSON has only as an escape."""
    return _NUL_ESCAPE in document and _NUL.search(document) is not None


def compute_digest(value: Json) -> bytes:
    """Compute a digest that is equal for equal JSON; comparing it is faster."""
    return blake2b(orjson.dumps(value, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()


def explain_errors(error: ValidationError) -> str:
    """Say in one line which keys are wrong and why."""
    return "; ".join(
        f"{'.'.join(str(part) for part in problem['loc'])}: {problem['msg']}" if problem["loc"] else problem["msg"]
        for problem in error.errors(include_url=False, include_context=False, include_input=False)
    )


def build_discriminator(
    key: str, what: str, legal: Sequence[str], foreign: Sequence[str], of: Literal["table", "view"] = "table"
) -> Discriminator:
    """Build what distinguishes a union's members: `value[key]`, one of `legal`; `foreign` are the other kind's.

    Another value raises InvalidRequestError, which names it and lists what is legal.
    """

    def get_tag(value: Any) -> str:
        tag = value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)
        if tag in legal:
            return str(tag)
        other = "views" if of == "table" else "tables"
        problem = f"{what} {tag!r} is for {other}" if tag in foreign else f"unknown {what} {tag!r}"
        raise InvalidRequestError(f"{problem}; a {of} takes {', '.join(legal)}")

    return Discriminator(get_tag)
