"""A process that waits for a line, and makes events until it is killed: its arguments are the database and a folder."""

import sys
from datetime import timedelta
from pathlib import Path

from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lineage.events.generator import EventGenerator
from tests.conftest import services_of


def follow(url: str, warehouse: Path) -> None:
    maker = EventGenerator(
        services_of(open_lake_database(url, pool_size=2), warehouse), "http://catalog", batch=3, age=timedelta(0)
    )
    sys.stdin.readline()
    while True:
        maker.advance()


if __name__ == "__main__":
    follow(sys.argv[1], Path(sys.argv[2]))
