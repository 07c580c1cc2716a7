"""What upkeep adds to the core: background processes of the server, routes and commands."""

from typing import Final

from duckicelake.features.registry import Feature

FEATURE: Final = Feature(
    "upkeep",
    service="duckicelake.upkeep.service:SERVICE",
    routes="duckicelake.upkeep.routes:ROUTES",
    doctor_check="duckicelake.upkeep.doctor:DOCTOR_CHECK",
    commands="duckicelake.upkeep.commands:app",
)
