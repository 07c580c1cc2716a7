"""What a lake stands on: its folder alone, or Postgres and S3, then with logins, and with keys for one table each."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from scripts.backends_job.minio import Minio
from scripts.backends_job.stack import Backends, new_lake, up

VARIABLE = "LAKE_BACKENDS"
"""Names the folder of `scripts/backends`, on whose servers new lakes are made; unset: in their own folders."""
CLIENT, SECRET = "engines", "quack-quack-quack"


@dataclass(frozen=True, slots=True)
class Backend:
    """`settings` are the server's, `catalog` what Iceberg clients need besides a URI, `duckdb` what DuckDB does first.

    `minio` has the files, if they aren't local.
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    catalog: Mapping[str, str] = field(default_factory=dict)
    duckdb: tuple[str, ...] = ()
    minio: Minio | None = None


EMBEDDED = Backend()


def on_servers(backends: Backends) -> Backend:
    """Who isn't logged in gets nothing, and Iceberg clients get no keys but those that the server hands out."""
    minio = backends.minio
    auth = {
        "DUCKICELAKE_OAUTH_CLIENTS": f"{CLIENT}:{SECRET}|*",
        "DUCKICELAKE_REQUIRE_AUTH": "true",
        "DUCKICELAKE_METRICS_PUBLIC": "true",
        "DUCKICELAKE_S3_VENDING": "sts",
    }
    catalog = {"credential": f"{CLIENT}:{SECRET}", "header.X-Iceberg-Access-Delegation": "vended-credentials"}
    secret = (
        f"CREATE SECRET (TYPE s3, KEY_ID '{minio.access_key}', SECRET '{minio.secret_key}', REGION '{minio.region}', "
        f"ENDPOINT '{minio.endpoint.removeprefix('http://')}', URL_STYLE 'path', USE_SSL false)"
    )
    return Backend(backends.environment() | auth, catalog, ("LOAD httpfs", secret), minio)


def backend_of(lake: Path) -> Backend:
    """What the lake in a folder stands on in this process: always the same for the same folder."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        return EMBEDDED
    name = f"lake-{sha256(str(lake.absolute()).encode()).hexdigest()[:12]}"
    return on_servers(new_lake(Path(folder), up(Path(folder)), name))
