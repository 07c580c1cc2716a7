"""How Python's garbage collector goes about the memory of a server, and of a command that makes very much."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_ALLOCATIONS: Final = 20_000
"""New containers, less those that are gone, after which the youngest are looked through: requests leave few behind."""


def settle() -> None:
    """What is there once a server has started stays: the collector needn't look through it again and again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS)


@contextmanager
def uncollected() -> Iterator[None]:
    """What is made meanwhile is hardly ever in a cycle: the collector would look through all of it for nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
