"""How Python's garbage collector goes about the memory of a server."""

import gc
from typing import Final

_ALLOCATIONS: Final = 20_000
"""New containers, less those that are gone, after which the youngest are looked through: requests leave few behind."""


def settle() -> None:
    """What is there once a server has started stays: the collector needn't look through it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS)
