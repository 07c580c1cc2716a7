"""A lake on MinIO: its catalog in the session's Postgres, its files in a bucket of its own, and keys for clients."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from duckicelake.catalog.context.services import Services
from duckicelake.catalog.context.storage_access import StorageAccess
from duckicelake.lake.ducklake.database import open_lake_database
from duckicelake.lake.side_tables.locations import record_zones
from duckicelake.postgres.embedded import EmbeddedPostgres
from duckicelake.storage.policy import LocationPolicy, canonicalize
from duckicelake.storage.s3 import S3Store
from duckicelake.storage.signer import Signer
from duckicelake.storage.sts_vendor import StsRole, StsVendor, open_sts_client
from tests.conftest import new_lake
from tests.support.backends import Bucket


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Clock:
    """The server's and its vendor's: now, or by so much later."""

    ahead_ms: int = 0

    def __call__(self) -> int:
        return now_ms() + self.ahead_ms


def access_to(bucket: Bucket, stack: ExitStack, clock: Clock) -> StorageAccess:
    options = bucket.options()
    sts = stack.enter_context(closing(open_sts_client(options.session(), options, options.endpoint)))
    vendor = StsVendor(sts, StsRole(seconds=3600), clock)
    client = {
        "s3.endpoint": f"{bucket.minio.endpoint}/",
        "s3.region": bucket.minio.region,
        "client.region": bucket.minio.region,
        "s3.path-style-access": "true",
    }
    return StorageAccess(client, vendor, Signer(vendor, bucket.minio.region, bucket.minio.endpoint))


@contextmanager
def s3_lake(postgres: EmbeddedPostgres, bucket: Bucket, *allowed: str) -> Iterator[Services]:
    """A server's services on a lake in the bucket's folder `lake`, which hands out keys and signs."""
    warehouse = f"{bucket.uri}/lake"
    policy, clock = LocationPolicy(warehouse, allowed), Clock()
    with ExitStack() as stack:
        url = stack.enter_context(new_lake(postgres, warehouse))  # type: ignore[arg-type]
        database = stack.enter_context(closing(open_lake_database(url, pool_size=8)))
        store = stack.enter_context(closing(S3Store(warehouse, bucket.options())))
        with database.transaction() as cursor:
            record_zones(cursor, map(canonicalize, (policy.data_path, policy.data_zone, *allowed)))
        yield Services(database, store, policy, "client", clock, access=access_to(bucket, stack, clock))
