"""What the import of files adds to the core: commands, and routes for the record of loaded files."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature(
    "file_import",
    routes="duckicelake.file_import.routes:ROUTES",
    commands="duckicelake.file_import.commands:app",
)
