"""A server process that appends a row and exits hard at its k-th I/O: arguments are database, warehouse and k."""

import sys
import time

from duckicelake.catalog.services import Services
from duckicelake.lake.database import Database
from duckicelake.storage.objects import open_store
from duckicelake.storage.policy import LocationPolicy
from tests.catalog.client import Client, append
from tests.catalog.seams import Fuse, exit_hard, fused

if __name__ == "__main__":
    url, warehouse, steps = sys.argv[1:]
    services = Services(
        Database(url, 4),
        open_store(warehouse),
        LocationPolicy(warehouse),
        "client",
        lambda: time.time_ns() // 1_000_000,
    )
    body = append(Client(services).metadata(), (2, "two"))
    Client(fused(services, Fuse(int(steps), exit_hard))).commit(body)
    services.database.close()
