"""PURE. Facets as others have written them: where one isn't what it should be, it says nothing."""

from collections.abc import Iterator, Mapping
from typing import Any


def word(facet: object, key: str) -> str | None:
    """What a facet says by a word that isn't empty."""
    said = facet.get(key) if isinstance(facet, Mapping) else None
    return said if isinstance(said, str) and said else None


def word_in(facets: Mapping[str, Any], facet: str, key: str) -> str | None:
    """The same, of the facet of this name."""
    return word(facets.get(facet), key)


def field_names(fields: object, around: str = "") -> Iterator[str]:
    """Of the fields of `schema` and those in them, as `address` and `address.city`."""
    for field in fields if isinstance(fields, list) else ():
        name = word(field, "name")
        if name is not None:
            yield around + name
            yield from field_names(field.get("fields"), f"{around}{name}.")


def engine(facet: object) -> str | None:
    """What `processing_engine` names, with its version."""
    name, version = word(facet, "name"), word(facet, "version")
    return name if name is None or version in {None, "unknown"} else f"{name} {version}"
