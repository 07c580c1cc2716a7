"""Keys of MinIO's STS: what they reach and what they don't, and how long they are kept."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, EndpointConnectionError

from duckicelake.errors import UnavailableError
from duckicelake.storage.policy import StoreFolder, parse_folder
from duckicelake.storage.sts_vendor import S3Keys, StaticVendor, StsRole, StsVendor, build_session_name, open_sts_client
from duckicelake.storage.vendor import VendedKeys
from scripts.backends_job.minio import Minio
from tests.support.backends import Bucket

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

OWN, SIBLING, LAKE, OTHER = "data/ns/orders-1", "data/ns/orders-12", "ducklake/main/orders", "ducklake/main/orders2"


def folder(location: str, *, write: bool = False) -> StoreFolder:
    found = parse_folder(location, is_writable=write)
    assert found is not None
    return found


@contextmanager
def client_of(minio: Minio, keys: S3Keys) -> "Iterator[S3Client]":
    client = boto3.client(
        "s3",
        endpoint_url=minio.endpoint,
        region_name=minio.region,
        aws_access_key_id=keys.access_key_id,
        aws_secret_access_key=keys.secret_access_key,
        aws_session_token=keys.session_token,
        config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}),
    )
    with closing(client):
        yield client


@pytest.fixture
def filled(bucket: Bucket) -> Bucket:
    with closing(bucket.minio.client()) as admin:
        for place in (OWN, SIBLING, LAKE, OTHER):
            admin.put_object(Bucket=bucket.name, Key=f"{place}/a", Body=b"1")
        admin.put_object(Bucket=bucket.name, Key=f"{OWN}.json", Body=b"1")
    return bucket


@pytest.fixture
def vendor(bucket: Bucket) -> Iterator[StsVendor]:
    options = bucket.options()
    with closing(open_sts_client(options.session(), options, options.endpoint)) as client:
        yield StsVendor(client, StsRole(seconds=900), lambda: 0)


def acts(client: "S3Client", bucket: str) -> dict[str, Callable[[str], object]]:
    """What a client may try at a key."""

    def multipart(key: str) -> None:
        upload = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
        part = client.upload_part(Bucket=bucket, Key=key, UploadId=upload, PartNumber=1, Body=b"1")
        assert client.list_parts(Bucket=bucket, Key=key, UploadId=upload)["Parts"]
        client.complete_multipart_upload(
            Bucket=bucket,
            Key=key,
            UploadId=upload,
            MultipartUpload={"Parts": [{"PartNumber": 1, "ETag": part["ETag"]}]},
        )

    def abort(key: str) -> None:
        upload = client.create_multipart_upload(Bucket=bucket, Key=key)["UploadId"]
        client.abort_multipart_upload(Bucket=bucket, Key=key, UploadId=upload)

    def delete_many(key: str) -> None:
        errors = client.delete_objects(Bucket=bucket, Delete={"Objects": [{"Key": key}]}).get("Errors")
        if errors:
            raise ClientError({"Error": {"Code": errors[0]["Code"]}}, "DeleteObjects")

    return {
        "get": lambda key: client.get_object(Bucket=bucket, Key=key)["Body"].close(),
        "head": lambda key: client.head_object(Bucket=bucket, Key=key),
        "list": lambda key: client.list_objects_v2(Bucket=bucket, Prefix=key.rpartition("/")[0] + "/"),
        "put": lambda key: client.put_object(Bucket=bucket, Key=key, Body=b"2"),
        "multipart": multipart,
        "abort": abort,
        "copy": lambda key: client.copy_object(
            Bucket=bucket, Key=f"{key}2", CopySource={"Bucket": bucket, "Key": f"{OWN}/a"}
        ),
        "delete": lambda key: client.delete_object(Bucket=bucket, Key=f"{key}-never"),
        "delete_many": lambda key: delete_many(f"{key}-never"),
    }


READING = {"get", "head", "list"}


def allowed(client: "S3Client", bucket: str, place: str) -> set[str]:
    names = set()
    for name, act in acts(client, bucket).items():
        try:
            act(f"{place}/a")
            names.add(name)
        except ClientError as error:
            code = error.response["Error"]["Code"]
            assert code in {"AccessDenied", "403"}, (name, place, error)  # noqa: PT017
    return names


def test_keys_of_a_writer_do_everything_in_its_folder_and_read_the_other(filled: Bucket, vendor: StsVendor) -> None:
    vending = vendor.vend("Ann", [folder(f"{filled.uri}/{OWN}", write=True), folder(f"{filled.uri}/{LAKE}")])
    assert vending.uncovered == ()
    (vended,) = vending.vended
    with client_of(filled.minio, vended.keys) as client:
        assert allowed(client, filled.name, OWN) == set(acts(client, filled.name))
        assert allowed(client, filled.name, LAKE) == READING
        assert allowed(client, filled.name, SIBLING) == set()
        assert allowed(client, filled.name, OTHER) == set()


def test_keys_of_a_reader_only_read(filled: Bucket, vendor: StsVendor) -> None:
    (vended,) = vendor.vend("Ann", [folder(f"{filled.uri}/{OWN}")]).vended
    with client_of(filled.minio, vended.keys) as client:
        assert allowed(client, filled.name, OWN) == READING
        for elsewhere in (SIBLING, LAKE, OTHER):
            assert allowed(client, filled.name, elsewhere) == set()


@pytest.mark.parametrize("prefix", ["", "data", "data/", "data/ns/orders-1", "data/ns/orders-", SIBLING, f"{SIBLING}/"])
def test_keys_list_nothing_that_begins_above_or_beside_their_folder(
    filled: Bucket, vendor: StsVendor, prefix: str
) -> None:
    (vended,) = vendor.vend("Ann", [folder(f"{filled.uri}/{OWN}", write=True)]).vended
    with client_of(filled.minio, vended.keys) as client:
        for arguments in ({"Prefix": prefix}, {"Prefix": prefix, "Delimiter": "/"}, {}):
            with pytest.raises(ClientError, match="AccessDenied"):
                client.list_objects_v2(Bucket=filled.name, **arguments)
        with pytest.raises(ClientError, match="AccessDenied"):
            client.get_object(Bucket=filled.name, Key=f"{OWN}.json")


def test_keys_copy_nothing_out_of_other_folders(filled: Bucket, vendor: StsVendor) -> None:
    (vended,) = vendor.vend("Ann", [folder(f"{filled.uri}/{OWN}", write=True)]).vended
    with client_of(filled.minio, vended.keys) as client, pytest.raises(ClientError, match="AccessDenied"):
        client.copy_object(
            Bucket=filled.name, Key=f"{OWN}/stolen", CopySource={"Bucket": filled.name, "Key": f"{SIBLING}/a"}
        )


def test_keys_reach_no_other_bucket_and_assume_no_further_role(filled: Bucket, vendor: StsVendor) -> None:
    (vended,) = vendor.vend("Ann", [folder(f"{filled.uri}/{OWN}", write=True)]).vended
    with client_of(filled.minio, vended.keys) as client:
        with pytest.raises(ClientError, match="AccessDenied"):
            client.create_bucket(Bucket="another")
        with pytest.raises(ClientError, match="AccessDenied"):
            client.list_buckets()
    keys = {"access_key_id": vended.keys.access_key_id, "secret_access_key": vended.keys.secret_access_key}
    options = replace(filled.options(), session_token=vended.keys.session_token, **keys)
    sts = open_sts_client(options.session(), options, options.endpoint)
    with closing(sts), pytest.raises(ClientError, match="AccessDenied"):
        sts.assume_role(RoleArn="arn:aws:iam::000000000000:role/any", RoleSessionName="again")


def test_name_with_letters_of_everywhere_is_reached(bucket: Bucket, vendor: StsVendor) -> None:
    key = "data/größe \"1\" 'x' [a] {b}\\^/日本"
    (vended,) = vendor.vend("Ann", [folder(f"{bucket.uri}/{key}", write=True)]).vended
    with client_of(bucket.minio, vended.keys) as client:
        client.put_object(Bucket=bucket.name, Key=f"{key}/a", Body=b"1")
        assert client.list_objects_v2(Bucket=bucket.name, Prefix=f"{key}/")["KeyCount"] == 1
        with pytest.raises(ClientError, match="AccessDenied"):
            client.put_object(Bucket=bucket.name, Key=f"{key}2/a", Body=b"1")


class CountedSts:
    """STS in front of which someone counts, and may break it: what it raises is what `failing` holds."""

    def __init__(self, client: Any) -> None:
        self.client = client
        self.calls: list[dict[str, Any]] = []
        self.failing: list[Exception | None] = []
        self.gate = threading.Event()
        self.gate.set()

    def assume_role(self, **request: Any) -> Any:
        self.calls.append(request)
        self.gate.wait(10)
        failure = self.failing.pop(0) if self.failing else None
        if failure is not None:
            raise failure
        return self.client.assume_role(**request)


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def counted(bucket: Bucket) -> Iterator[CountedSts]:
    options = bucket.options()
    with closing(open_sts_client(options.session(), options, options.endpoint)) as client:
        yield CountedSts(client)


def end_of(vending: VendedKeys) -> int:
    assert vending.expires_at_ms is not None
    return vending.expires_at_ms


def test_keys_are_kept_until_they_near_their_end(bucket: Bucket, counted: CountedSts) -> None:
    clock = Clock()
    vendor = StsVendor(counted, StsRole(seconds=3600), clock)  # type: ignore[arg-type]
    own = [folder(f"{bucket.uri}/t", write=True)]
    first = vendor.vend("Ann", own)
    clock.now_ms = end_of(first) - 900_001
    assert vendor.vend("Ann", own) == first
    clock.now_ms = end_of(first) - 900_000
    second = vendor.vend("Ann", own)
    assert second.vended[0].keys.access_key_id != first.vended[0].keys.access_key_id
    assert len(counted.calls) == 2


def test_keys_are_kept_for_their_holder_and_folders(bucket: Bucket, counted: CountedSts) -> None:
    vendor = StsVendor(counted, StsRole(), lambda: 0)  # type: ignore[arg-type]
    reading, writing = folder(f"{bucket.uri}/t"), folder(f"{bucket.uri}/t", write=True)
    vendings = [vendor.vend(holder, [each]) for holder in ("Ann", "Ben") for each in (reading, writing)]
    assert len({vending.vended[0].keys.access_key_id for vending in vendings}) == 4
    assert [call["RoleSessionName"] for call in counted.calls] == ["Ann", "Ann", "Ben", "Ben"]
    assert all(call["DurationSeconds"] == 3600 for call in counted.calls)


def test_many_at_once_ask_sts_once(bucket: Bucket, counted: CountedSts) -> None:
    vendor = StsVendor(counted, StsRole(), lambda: 0)  # type: ignore[arg-type]
    counted.gate.clear()
    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(vendor.vend, "Ann", [folder(f"{bucket.uri}/t")]) for _ in range(16)]
        counted.gate.set()
        assert len({vending.result().vended[0].keys.access_key_id for vending in asked}) == 1
    assert len(counted.calls) == 1


def test_oldest_keys_are_forgotten(bucket: Bucket, counted: CountedSts) -> None:
    vendor = StsVendor(counted, StsRole(), lambda: 0, most_kept=2)  # type: ignore[arg-type]
    for name in ("a", "b", "a", "c", "a", "b"):
        vendor.vend("Ann", [folder(f"{bucket.uri}/{name}")])
    assert len(counted.calls) == 4


DENIED = ClientError({"Error": {"Code": "AccessDenied", "Message": "arn:aws:iam::1:user/server may not"}}, "AssumeRole")
SILENT = EndpointConnectionError(endpoint_url="http://sts")


@pytest.mark.parametrize(("failure", "said"), [(DENIED, "AccessDenied"), (SILENT, "EndpointConnectionError")])
def test_sts_that_refuses_is_the_servers_fault_and_tried_again(
    bucket: Bucket, counted: CountedSts, failure: Exception, said: str
) -> None:
    vendor = StsVendor(counted, StsRole(), lambda: 0)  # type: ignore[arg-type]
    counted.failing = [failure]
    with pytest.raises(UnavailableError, match=said) as refused:
        vendor.vend("Ann", [folder(f"{bucket.uri}/t")])
    assert "arn:" not in str(refused.value)
    assert vendor.vend("Ann", [folder(f"{bucket.uri}/t")]).vended


def test_keys_of_before_go_on_while_sts_is_silent(bucket: Bucket, counted: CountedSts) -> None:
    clock = Clock()
    vendor = StsVendor(counted, StsRole(), clock)  # type: ignore[arg-type]
    own = [folder(f"{bucket.uri}/t")]
    first = vendor.vend("Ann", own)
    clock.now_ms = end_of(first) - 600_000
    counted.failing = [SILENT, SILENT]
    assert vendor.vend("Ann", own) == first
    clock.now_ms = end_of(first) - 300_000
    with pytest.raises(UnavailableError):
        vendor.vend("Ann", own)


def test_policy_that_amazon_packs_too_large_is_halved(bucket: Bucket, counted: CountedSts) -> None:
    vendor = StsVendor(counted, StsRole(), lambda: 0)  # type: ignore[arg-type]
    too_large = ClientError({"Error": {"Code": "PackedPolicyTooLarge"}}, "AssumeRole")
    given = [folder(f"{bucket.uri}/{name}") for name in "abc"]
    counted.failing = [too_large, None, too_large, too_large, None]
    vending = vendor.vend("Ann", given)
    assert [[each.location for each in vended.folders] for vended in vending.vended] == [
        [f"{bucket.uri}/a/"],
        [f"{bucket.uri}/c/"],
    ]
    assert [each.location for each in vending.uncovered] == [f"{bucket.uri}/b/"]


def test_role_of_amazons_is_asked_for_by_name(bucket: Bucket, counted: CountedSts) -> None:
    role = StsRole("arn:aws:iam::123456789012:role/lake", "external", 900)
    StsVendor(counted, role, lambda: 0).vend("Ann", [folder(f"{bucket.uri}/t")])  # type: ignore[arg-type]
    (call,) = counted.calls
    assert (call["RoleArn"], call["ExternalId"], call["DurationSeconds"]) == (role.arn, "external", 900)
    assert StsRole("arn:aws-cn:iam::123456789012:role/lake").partition == "aws-cn"


@pytest.mark.parametrize(
    ("holder", "name"),
    [("Ann", "Ann"), ("ann@example.org", "ann@example.org"), ("a", None), ("x" * 65, None), ("Ann Ümlaut/…", None)],
)
def test_session_names_are_legal_and_distinguish_holders(holder: str, name: str | None) -> None:
    made = build_session_name(holder)
    assert 2 <= len(made) <= 64
    assert made.isascii()
    if name is None:
        assert made != build_session_name(holder + "x")
    else:
        assert made == name


def test_static_keys_are_given_as_they_are(bucket: Bucket) -> None:
    keys = S3Keys("id", "secret")
    own = folder(f"{bucket.uri}/t")
    assert StaticVendor(keys).vend("Ann", [own]).vended[0].keys == keys
    assert StaticVendor(keys).vend("Ann", []).vended == ()


def test_secrets_are_in_no_representation() -> None:
    assert repr(S3Keys("id", "geheim", "token", 1)) == "S3Keys(access_key_id='id', expires_at_ms=1)"
