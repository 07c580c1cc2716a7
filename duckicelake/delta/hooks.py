"""What Delta Lake adds to the core: tasks that follow Delta tables, and Delta logs beside tables."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature(
    "delta",
    commit_rule="duckicelake.delta.export.definition:RULE",
    service="duckicelake.delta.service:SERVICE",
    doctor_check="duckicelake.delta.doctor:DOCTOR_CHECK",
    commands="duckicelake.delta.commands:app",
    upkeep_source="duckicelake.delta.import_.follower:UPKEEP_SOURCE",
)
