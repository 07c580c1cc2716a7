"""What doctor finds out about STS, on a store that narrows keys down and on ones that don't."""

from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest
from botocore.exceptions import ClientError

from duckicelake.errors import UnavailableError
from duckicelake.storage.policy import StoreFolder
from duckicelake.storage.probe import try_vending
from duckicelake.storage.s3 import S3Store
from duckicelake.storage.sts_vendor import S3Keys, StaticVendor, StsRole, StsVendor, open_sts_client
from duckicelake.storage.vendor import VendedKeys
from tests.support.backends import Bucket


@pytest.fixture
def store(bucket: Bucket) -> Iterator[S3Store]:
    with closing(S3Store(f"{bucket.uri}/warehouse", bucket.options())) as opened:
        yield opened


def sts_of(bucket: Bucket, store: S3Store) -> StsVendor:
    return StsVendor(
        open_sts_client(store.options.session(), store.options, store.options.endpoint), StsRole(), lambda: 0
    )


def test_keys_that_reach_one_folder_are_fine(bucket: Bucket, store: S3Store) -> None:
    tried = try_vending(store, sts_of(bucket, store))
    assert (tried.advice, tried.detail) == ("", "STS gives keys for clients that reach one table and nothing else")
    assert store.client.list_objects_v2(Bucket=bucket.name)["KeyCount"] == 0


def test_keys_that_no_policy_narrows_are_noticed(bucket: Bucket, store: S3Store) -> None:
    tried = try_vending(store, StaticVendor(S3Keys(bucket.minio.access_key, bucket.minio.secret_key)))
    assert "ignores session policies" in tried.advice
    assert bucket.minio.secret_key not in tried.detail


def test_keys_that_reach_nothing_are_noticed(bucket: Bucket, store: S3Store) -> None:
    class Elsewhere:
        def vend(self, holder: str, folders: Sequence[StoreFolder]) -> VendedKeys:  # noqa: ARG002
            return sts_of(bucket, store).vend(holder, [StoreFolder(f"{bucket.uri}/elsewhere/", is_writable=True)])

    tried = try_vending(store, Elsewhere())
    assert "only takes away" in tried.advice


def test_sts_that_refuses_is_noticed_with_its_reason(store: S3Store) -> None:
    class Refusing:
        def vend(self, holder: str, folders: Sequence[StoreFolder]) -> VendedKeys:  # noqa: ARG002
            cause = ClientError({"Error": {"Code": "AccessDenied", "Message": "user/server may not"}}, "AssumeRole")
            raise UnavailableError("no keys") from cause

    tried = try_vending(store, Refusing())
    assert "user/server may not" in tried.detail
    assert "sts:AssumeRole" in tried.advice


def test_warehouse_that_no_policy_can_name_is_noticed(bucket: Bucket) -> None:
    with closing(S3Store(f"{bucket.uri}/$x", bucket.options())) as store:
        assert "without *" in try_vending(store, sts_of(bucket, store)).advice
