"""Where settings say that a lake's files are."""

from pathlib import Path

from duckicelake.settings import Settings
from duckicelake.storage.policy import LocationPolicy


def warehouse_of(settings: Settings) -> str:
    """The configured warehouse, or the folder `warehouse` in the lake's."""
    return (settings.warehouse or str(Path(settings.lake).resolve() / "warehouse")).rstrip("/")


def policy_of(settings: Settings) -> LocationPolicy:
    return LocationPolicy(warehouse_of(settings), settings.allowed_locations)
