"""Names as a terminal may be shown them."""

from rich.text import Text


def plain(text: str) -> Text:
    """Names are whatever clients wrote: nothing in them may steer the terminal."""
    return Text("".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text))
