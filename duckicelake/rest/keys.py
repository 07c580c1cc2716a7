"""Keys by which the catalog knows a request that it has had."""

import os
import time
from uuid import UUID


def new_key() -> UUID:
    """A UUID of version 7 (RFC 9562): milliseconds since the epoch, then chance."""
    millis = time.time_ns() // 1_000_000
    value = millis << 80 | int.from_bytes(os.urandom(10), "big")
    value &= ~(0xF << 76 | 0b11 << 62)
    return UUID(int=value | 7 << 76 | 0b10 << 62)
