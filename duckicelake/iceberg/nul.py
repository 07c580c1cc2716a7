"""NUL characters in JSON documents: Postgres stores none."""

import re
from typing import Final

_ESCAPE: Final = b"\\u0000"
_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def holds_nul(document: bytes) -> bool:
    """Whether a text of the JSON document holds one; JSON has it as an escape only."""
    return _ESCAPE in document and _NUL.search(document) is not None
