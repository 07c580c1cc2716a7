"""PURE. The workload of a car that streams what its sensors read: 23 columns, batches of a few rows, 9 aggregations.

Modelled on the benchmark in "Data Inlining in DuckLake: Unlocking Streaming for Data Lakes" (DuckLake's blog, 2026).
"""

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from random import Random
from typing import Final

COLUMNS: Final = {
    "ts": "timestamp",
    "vehicle_id": "int",
    "trip_id": "bigint",
    "sequence": "bigint",
    "latitude": "double",
    "longitude": "double",
    "altitude_m": "float",
    "heading_deg": "float",
    "speed_mps": "float",
    "acceleration_x": "float",
    "acceleration_y": "float",
    "acceleration_z": "float",
    "yaw_rate": "float",
    "steering_angle_deg": "float",
    "throttle": "float",
    "brake": "float",
    "gear": "int",
    "battery_percent": "double",
    "motor_celsius": "double",
    "lidar_points": "int",
    "obstacle_m": "double",
    "autonomous": "boolean",
    "weather": "string",
}
"""Names and types, in Spark's words; only `timestamp` means something else to DuckDB, which has `timestamptz`."""

AGGREGATIONS: Final = (
    "SELECT count(*) FROM {t}",
    "SELECT avg(speed_mps) FROM {t}",
    "SELECT stddev(speed_mps) FROM {t}",
    "SELECT min(speed_mps), max(speed_mps) FROM {t}",
    "SELECT avg(battery_percent) FROM {t} WHERE autonomous",
    "SELECT max(motor_celsius) - min(motor_celsius) FROM {t}",
    "SELECT sum(lidar_points) FROM {t}",
    "SELECT weather, avg(obstacle_m) FROM {t} GROUP BY weather ORDER BY weather",
    "SELECT gear, count(*), avg(throttle), avg(brake) FROM {t} GROUP BY gear ORDER BY gear",
)

Row = tuple[datetime | int | float | bool | str, ...]

_START: Final = datetime(2026, 1, 1, tzinfo=UTC)
_WEATHER: Final = ("clear", "fog", "rain", "snow")


def batches(rows: int, size: int) -> Iterator[list[Row]]:
    """So many rows, a hundred a second, in batches of a size; always the same."""
    random = Random(23)  # noqa: S311 - nobody must not guess them
    for first in range(0, rows, size):
        yield [_row(number, random) for number in range(first, min(first + size, rows))]


def _row(number: int, random: Random) -> Row:
    seconds = number / 100
    speed = 15 + 10 * math.sin(seconds / 60)
    return (
        _START + timedelta(seconds=seconds),
        1,
        number // 60_000,
        number,
        52.37 + seconds * 1e-5,
        4.89 + seconds * 1e-5,
        round(random.gauss(2, 0.5), 2),
        (seconds * 3) % 360,
        round(speed + random.gauss(0, 0.2), 3),
        *(round(random.gauss(mean, 0.3), 3) for mean in (0.0, 0.0, 9.81, 0.0)),
        round(random.gauss(0, 5), 2),
        round(random.random(), 3),
        round(random.random() ** 4, 3),
        1 + int(speed // 6),
        100 - seconds / 600,
        60 + 5 * math.sin(seconds / 300),
        random.randint(80_000, 120_000),
        round(random.expovariate(0.05), 2),
        random.random() < 0.9,
        _WEATHER[int(seconds // 900) % len(_WEATHER)],
    )
