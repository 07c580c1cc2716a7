"""What CHECK constraints add to the core."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature(
    "constraints",
    commit_rule="duckicelake.constraints.rule:RULE",
    commands="duckicelake.constraints.commands:app",
)
