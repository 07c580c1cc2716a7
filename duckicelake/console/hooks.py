"""What the console adds to the core: the routes of its pages."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature("console", routes="duckicelake.console.routes:ROUTES")
