"""What the import of files adds to the core: commands."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature("file_import", commands="duckicelake.file_import.commands:app")
