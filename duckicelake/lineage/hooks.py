"""What lineage adds to the core: the log of reads, events, their deliveries and the routes of the graph."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature(
    "lineage",
    read_observer="duckicelake.lineage.events.reads:READ_OBSERVER",
    routes="duckicelake.lineage.routes:ROUTES",
    service="duckicelake.lineage.service:SERVICE",
    doctor_check="duckicelake.lineage.doctor:DOCTOR_CHECK",
    commands="duckicelake.lineage.commands:app",
)
