"""What lakes in files add to the core."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature("file_lake", commands="duckicelake.file_lake.commands:app")
