"""What materialized views add to the core: routes and commands."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature(
    "materialized_views",
    needs=("query",),
    routes="duckicelake.materialized_views.routes:ROUTES",
    commands="duckicelake.materialized_views.commands:app",
)
