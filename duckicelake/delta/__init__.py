"""Delta Lake's transaction log: its actions, and how tables are read from and written to it (Delta's PROTOCOL.md).

`connect` and `install` give DuckDB tables to read in place (`duckdb/`); nothing of theirs is imported before.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckicelake.delta.duckdb.connection import connect, install

__all__ = ["connect", "install"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module("duckicelake.delta.duckdb"), name)
