"""What queries add to the core: a route, a command, and limits from the settings."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature(
    "query",
    routes="duckicelake.query.routes:ROUTES",
    commands="duckicelake.query.commands:app",
    service="duckicelake.query.service:SERVICE",
)
