"""An Iceberg REST catalog whose truth is a DuckLake catalog in Postgres; `connect` opens one by its URL."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckicelake.client.lake import connect

__all__ = ["connect"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Import `connect` when it is used: other imports of the package need no HTTP client."""
    if name == "connect":
        return getattr(import_module("duckicelake.client.lake"), name)
    raise AttributeError(f"module 'duckicelake' has no attribute {name!r}")
