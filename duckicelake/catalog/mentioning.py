"""Lists in messages."""

from collections.abc import Sequence


def some(things: Sequence[str], most: int = 5) -> str:
    """The first of them, and how many more there are."""
    more = len(things) - most
    return ", ".join(things[:most]) + (f" and {more} more" if more > 0 else "")
