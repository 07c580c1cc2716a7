"""What moving from and to other catalogs adds to the core: commands."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature("other_catalogs", commands="duckicelake.other_catalogs.commands:app")
