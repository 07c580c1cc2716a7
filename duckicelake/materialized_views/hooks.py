"""What materialized views add to the core: routes, commands, and refreshes as tasks of the upkeep."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature(
    "materialized_views",
    needs=("query",),
    routes="duckicelake.materialized_views.routes:ROUTES",
    commands="duckicelake.materialized_views.commands:app",
    upkeep_source="duckicelake.materialized_views.refreshes:UPKEEP_SOURCE",
)
