"""PyIceberg's REST catalog: load, scan with a filter, append; Spark and DuckDB see what it wrote."""

import pyarrow as pa
from pyiceberg.catalog import Catalog

from scripts.demo_job.checks import Checks
from scripts.demo_job.duckdb_job import Readers
from scripts.demo_job.model import Model
from scripts.demo_job.spark_job import NAMESPACE

LATE_FROM_JFK = "month = 7 AND origin = 'JFK' AND dep_delay > 120"
COLUMNS = ("carrier", "flight", "tailnum", "dep_delay", "time_hour")
HELIPORTS = """
    SELECT * REPLACE ('H-' || faa AS faa, name || ' Heliport' AS name)
    FROM airports WHERE tzone = 'America/New_York' AND alt < 10"""


def table(catalog: Catalog, name: str) -> pa.Table:
    return catalog.load_table((NAMESPACE, name)).scan().to_arrow()


def scan(catalog: Catalog, model: Model, checks: Checks) -> None:
    flights = catalog.load_table((NAMESPACE, "flights"))
    got = flights.scan(row_filter=LATE_FROM_JFK, selected_fields=COLUMNS).to_arrow()
    expected = model.arrow(f"SELECT {', '.join(COLUMNS)} FROM flights WHERE {LATE_FROM_JFK}")
    checks.same_rows("PyIceberg: scan with a filter and a projection", expected, got)


def append(catalog: Catalog, readers: Readers, model: Model, checks: Checks) -> None:
    """A heliport for every low-lying airport on the east coast."""
    airports = catalog.load_table((NAMESPACE, "airports"))
    airports.append(model.arrow(HELIPORTS).cast(airports.schema().as_arrow()))
    model.run(f"INSERT INTO airports {HELIPORTS}")
    for engine, read in readers.items():
        checks.same_rows(f"{engine} after PyIceberg's append to airports", model.table("airports"), read("airports"))
