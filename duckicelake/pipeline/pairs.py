"""PURE. Options that are given as `<name>=<value>`, once for each name."""

from collections.abc import Iterable

from duckicelake.errors import BadInput


def pairs(option: str, given: Iterable[str] | None, example: str) -> dict[str, str]:
    """The values by name, the last of a name. BadInput says what would be right, by the example."""
    found = {}
    for text in given or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise BadInput(f"{option} {text}: write <name>=<value>, as {option} {example}")
        found[name] = value
    return found
