"""Where the lake's files are: a folder, or a real S3 server (MinIO) behind a proxy that spoils its requests."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from duckicelake.storage.protocol import ObjectStore
from duckicelake.storage.registry import StoreOptions, open_store
from duckicelake.storage.s3 import S3Options
from scripts.backends_job.minio import BUCKET, Minio, create_bucket, running_minio
from scripts.history_job.proxy import Plan, Proxy, running


@dataclass(frozen=True, slots=True)
class Storage:
    """`settings` are the server's; clients, PyIceberg and DuckDB reach the files undisturbed."""

    store: ObjectStore
    settings: Mapping[str, str] = field(default_factory=dict)
    pyiceberg: dict[str, str] = field(default_factory=dict)
    duckdb: Sequence[str] = ()
    proxy: Proxy | None = None


@contextmanager
def local_files(lake: Path) -> Iterator[Storage]:
    store = open_store(str(lake.resolve() / "warehouse"))
    yield Storage(store)
    store.close()


@contextmanager
def s3(folder: Path, plan: Plan) -> Iterator[Storage]:
    """`folder` becomes MinIO's."""
    with ExitStack() as stack:
        minio = stack.enter_context(running_minio(folder))
        create_bucket(minio)
        proxy = stack.enter_context(running(Proxy(plan, minio.endpoint)))
        options = S3Options(
            endpoint=minio.endpoint,
            region=minio.region,
            path_style=True,
            access_key_id=minio.access_key,
            secret_access_key=minio.secret_key,
        )
        store = open_store(f"s3://{BUCKET}", options=StoreOptions(s3=options))
        stack.callback(store.close)
        yield Storage(store, _settings(minio, proxy), _pyiceberg(minio), (_secret(minio),), proxy)


def _settings(minio: Minio, proxy: Proxy) -> dict[str, str]:
    return {
        "DUCKICELAKE_WAREHOUSE": f"s3://{BUCKET}",
        "DUCKICELAKE_S3_ENDPOINT": proxy.uri,
        "DUCKICELAKE_S3_PUBLIC_ENDPOINT": minio.endpoint,
        "DUCKICELAKE_S3_REGION": minio.region,
        "DUCKICELAKE_S3_PATH_STYLE": "true",
        "DUCKICELAKE_S3_ACCESS_KEY_ID": minio.access_key,
        "DUCKICELAKE_S3_SECRET_ACCESS_KEY": minio.secret_key,
        "DUCKICELAKE_S3_VENDING": "none",
    }


def _pyiceberg(minio: Minio) -> dict[str, str]:
    keys = {"s3.access-key-id": minio.access_key, "s3.secret-access-key": minio.secret_key}
    return {"s3.endpoint": minio.endpoint, "s3.region": minio.region, **keys}


def _secret(minio: Minio) -> str:
    host = minio.endpoint.removeprefix("http://")
    return (
        f"CREATE SECRET (TYPE s3, KEY_ID '{minio.access_key}', SECRET '{minio.secret_key}', ENDPOINT '{host}', "
        f"REGION '{minio.region}', URL_STYLE 'path', USE_SSL false)"
    )
