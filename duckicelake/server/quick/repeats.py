"""Requests that come again, byte for byte and from the same address: a server may give them to who answered them first.

It offers so in the scope, as the extension `REPEATS`, whose `learn` takes the `Repeat` to be called the next time.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

from duckicelake.server.headers import Header

REPEATS: Final = "duckicelake.repeats"


class Answer(NamedTuple):
    """An answer over HTTP/1.1. headers: all but those of the server and the id of the request."""

    status: int
    headers: tuple[Header, ...]
    request_id: str
    pieces: tuple[bytes, ...]


Reply = Callable[[Answer | None], None]
"""To be called once, and later than `Repeat` returns. None: the request must be read after all."""
Repeat = Callable[[int, Reply], bool]
"""Answers the request again, which came from this port; or says at once that it won't, and then calls nobody."""
