"""What lineage adds to the core: the log of reads, events, their deliveries and the routes of the graph."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature(
    "lineage",
    commands={"lineage": "duckicelake.lineage.commands:app"},
)
