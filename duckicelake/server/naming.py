"""What a refused request was about, for the audit trail. Nothing of what it names need exist."""

from typing import Any, Final

import orjson
from starlette.types import Scope

from duckicelake.catalog.access.principal import Caller
from duckicelake.iceberg.names import full_name, schema_name

LARGEST_BODY: Final = 1024 * 1024
"""Larger ones are not parsed for names."""
MOST_RESOURCES: Final = 20
LONGEST_RESOURCE: Final = 500
"""Letters. Nobody has checked what a refused request names, so it isn't kept whole."""


def resources_of(caller: Caller, scope: Scope, body: bytes) -> list[str]:
    """What a request names, in its path or else in its body; of many the first, and how many more there are."""
    named = _named(caller, scope, body)
    more = len(named) - MOST_RESOURCES
    first = [_cut(resource) for resource in named[:MOST_RESOURCES]]
    return [*first, f"and {more} more"] if more > 0 else first


def _named(caller: Caller, scope: Scope, body: bytes) -> list[str]:
    if {"table", "view"} & scope.get("path_params", {}).keys() or len(body) > LARGEST_BODY:
        return [caller.resource]
    try:
        named = _in_body(orjson.loads(body), caller.resource)
    except (ValueError, TypeError, AttributeError, KeyError):
        named = []
    return named or [caller.resource]


def _cut(resource: str) -> str:
    return resource if len(resource) <= LONGEST_RESOURCE else resource[: LONGEST_RESOURCE - 1] + "…"


def _in_body(body: Any, namespace: str) -> list[str]:
    if "table-changes" in body:
        return [_identifier(change["identifier"]) for change in body["table-changes"]]
    if "source" in body:
        return [_identifier(body["source"])]
    if "name" in body and namespace:
        return [f"{namespace}.{schema_name((body['name'],))}"]
    return [schema_name(_levels(body["namespace"]))]


def _identifier(identifier: Any) -> str:
    return full_name(_levels(identifier["namespace"]), identifier["name"])


def _levels(namespace: Any) -> tuple[str, ...]:
    if not isinstance(namespace, list):
        raise TypeError(f"a namespace is a list of levels, not {namespace!r}")
    return tuple(namespace)
