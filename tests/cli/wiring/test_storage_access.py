"""What the settings make of access to S3: who gives keys, who signs, and what a server refuses to start with."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
from pydantic import ValidationError

from duckicelake.catalog.context.storage_access import NO_ACCESS, StorageAccess
from duckicelake.cli.wiring.storage_access import build_storage_access, check_signing
from duckicelake.cli.wiring.store_options import build_store_options
from duckicelake.errors import InvalidSettingsError
from duckicelake.settings.model import Settings
from duckicelake.storage.registry import StoreOptions, find_bucket_store, open_store
from duckicelake.storage.s3 import S3Store
from duckicelake.storage.signer import ServerKeys
from duckicelake.storage.sts_vendor import StaticVendor, StsVendor
from tests.support.backends import Bucket

WAREHOUSE = "s3://bucket/lake"
OWN = {"s3_access_key_id": "own", "s3_secret_access_key": "geheim"}
MINIO = {"s3_endpoint": "http://127.0.0.1:1", "s3_path_style": True}
STATIC = {"s3_vending": "static", "s3_static_access_key_id": "theirs", "s3_static_secret_access_key": "known"}
ROLE = {"s3_role_arn": "arn:aws:iam::1:role/r"}


def access(warehouse: str = WAREHOUSE, **changes: Any) -> StorageAccess:
    settings = Settings(**OWN | changes)
    return build_storage_access(settings, (warehouse,), build_store_options(settings))


def kinds(given: StorageAccess) -> tuple[type | None, type | None]:
    signing = given.signer and type(given.signer.vendor)
    return given.vendor and type(given.vendor), signing


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, (None, None)),
        (MINIO, (StsVendor, StsVendor)),
        (ROLE, (StsVendor, StsVendor)),
        ({"s3_sts_endpoint": "http://sts"}, (StsVendor, StsVendor)),
        ({"s3_vending": "sts", **ROLE}, (StsVendor, StsVendor)),
        ({"s3_vending": "none", **MINIO}, (None, None)),
        ({"s3_vending": "remote-signing"}, (None, ServerKeys)),
        ({"s3_vending": "remote-signing", **MINIO}, (None, ServerKeys)),
        ({"s3_vending": "remote-signing", **ROLE}, (None, StsVendor)),
        ({"s3_vending": "remote-signing", "s3_sts_endpoint": "http://sts"}, (None, StsVendor)),
        (STATIC, (StaticVendor, StaticVendor)),
    ],
)
def test_mode_decides_who_gives_keys_and_who_signs(
    changes: dict[str, Any], expected: tuple[type | None, type | None]
) -> None:
    assert kinds(access(**changes)) == expected


def test_lake_of_local_files_gives_nothing() -> None:
    assert access("/lake/warehouse", **MINIO) is NO_ACCESS


def test_clients_are_reported_the_public_endpoint() -> None:
    assert access(s3_region="eu-west-1").client == {"client.region": "eu-west-1", "s3.region": "eu-west-1"}
    given = access(**MINIO, s3_public_endpoint="https://s3.example.org")
    assert given.client["s3.endpoint"] == "https://s3.example.org/"
    assert given.client["s3.path-style-access"] == "true"
    assert given.signer is not None
    assert given.signer.endpoint == "https://s3.example.org"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"s3_vending": "sts"}, "set s3_role_arn"),
        ({"s3_vending": "static"}, "set s3_static_access_key_id"),
        ({**STATIC, "s3_vending": None}, "is for s3_vending=static"),
        ({**STATIC, "s3_static_access_key_id": "own"}, "the server's own key"),
        ({"s3_vending": "everything"}, "Input should be"),
        ({"s3_vending_seconds": 899}, "greater than or equal to 900"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Settings(**OWN | changes)


def test_static_key_that_is_the_environments_own_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "theirs")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "known")
    settings = Settings(**STATIC)
    with pytest.raises(InvalidSettingsError, match="the server's own key"):
        build_storage_access(settings, (WAREHOUSE,), build_store_options(settings))


@pytest.fixture
def store(bucket: Bucket) -> Iterator[S3Store]:
    with closing(S3Store(f"{bucket.uri}/lake", bucket.options())) as opened:
        yield opened


def of_minio(bucket: Bucket, **changes: Any) -> StorageAccess:
    minio = bucket.minio
    keys = {"s3_access_key_id": minio.access_key, "s3_secret_access_key": minio.secret_key}
    return access(f"{bucket.uri}/lake", s3_endpoint=minio.endpoint, s3_path_style=True, **keys, **changes)


def test_own_signatures_are_refused_where_the_store_obeys_what_no_one_signed(bucket: Bucket, store: S3Store) -> None:
    with pytest.raises(InvalidSettingsError, match="set DUCKICELAKE_S3_STS_ENDPOINT"):
        check_signing(of_minio(bucket, s3_vending="remote-signing"), store)
    check_signing(of_minio(bucket, s3_vending="remote-signing", s3_sts_endpoint=bucket.minio.endpoint), store)
    check_signing(of_minio(bucket), store)
    check_signing(NO_ACCESS, None)


def test_part_of_a_store_that_is_in_s3_is_found(bucket: Bucket, tmp_path: Any) -> None:
    local = str(tmp_path)
    with closing(open_store(local, bucket.uri, options=StoreOptions(s3=bucket.options()))) as both:
        assert isinstance(find_bucket_store(both, (local, bucket.uri), S3Store), S3Store)
    with closing(open_store(local)) as folder:
        assert find_bucket_store(folder, (local,), S3Store) is None
