"""What row changes add to the core: a route and a command."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature(
    "row_changes",
    needs=("query",),
    routes="duckicelake.row_changes.routes:ROUTES",
    commands="duckicelake.row_changes.commands:app",
)
