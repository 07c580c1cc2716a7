"""What rewrites of files add to the core: kinds of upkeep tasks."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature("rewrites", needs=("query",), upkeep_source="duckicelake.rewrites.actions:UPKEEP")
