"""A server process that commits to a table and exits hard at its k-th I/O.

Arguments are database, warehouse and k: it appends a row. With two more, the key of a request and the file of its body,
it makes that commit.
"""

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from uuid import UUID

from duckicelake.catalog.idempotency import Once
from duckicelake.catalog.services import Services
from duckicelake.lake.database import Database
from duckicelake.storage.policy import LocationPolicy
from duckicelake.storage.stores import open_store
from tests.catalog.client import Client, append
from tests.catalog.seams import Fuse, exit_hard, fused

FINGERPRINT = b"the request"

if __name__ == "__main__":
    url, warehouse, steps, *request = sys.argv[1:]
    services = Services(
        Database(url, 4),
        open_store(warehouse),
        LocationPolicy(warehouse),
        "client",
        lambda: time.time_ns() // 1_000_000,
    )
    if request:
        body = json.loads(Path(request[1]).read_text())
        dying = replace(services, once=Once(UUID(request[0]), FINGERPRINT))
    else:
        body, dying = append(Client(services).metadata(), (2, "two")), services
    Client(fused(dying, Fuse(int(steps), exit_hard))).commit(body)
    services.database.close()
