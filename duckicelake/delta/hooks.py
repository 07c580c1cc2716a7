"""What Delta Lake adds to the core: followed tables, and Delta logs beside tables."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature(
    "delta",
    commit_rule="duckicelake.delta.export.definition:RULE",
    service="duckicelake.delta.service:SERVICE",
    commands="duckicelake.delta.commands:app",
)
