"""Tokens for Google Cloud Storage and signatures for Azure: what they say, and what emulators let them do."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from urllib.parse import parse_qs

import pytest

from duckicelake.errors import InvalidSettingsError, StoreDeniedError, UnavailableError
from duckicelake.storage.azure import AzureStore
from duckicelake.storage.azure_vendor import AzureVendor, sign_folder
from duckicelake.storage.gcs import GcsOptions, GcsStore, ServiceAccountKey
from duckicelake.storage.gcs_vendor import GcsVendor
from duckicelake.storage.policy import StoreFolder, parse_folder
from duckicelake.storage.vendor import SchemeVendor, VendedKeys
from tests.support.s3_lakes import Clock, now_ms
from tests.support.stores import AzureContainer, GcsBucket, make_key_file

pytestmark = pytest.mark.stores


def open_with(container: AzureContainer, vended: VendedKeys) -> AzureStore:
    """Open a store as a client with a signature does."""
    text = dict(vended.vended[0].keys.list_properties())["adls.sas-token"]
    pairs = [(name, values[0]) for name, values in parse_qs(text).items()]
    options = replace(container.options(), account_key=None)
    return AzureStore(f"{container.uri}/lake", options, now_ms, lambda: {"sas_token": pairs, "expires_at": None})


def make_folder(uri: str, *, is_writable: bool = False) -> StoreFolder:
    folder = parse_folder(f"{uri}/lake/a", is_writable=is_writable)
    assert folder is not None
    return folder


def test_signature_for_a_container_reads_and_writes_as_it_says(azure_container: AzureContainer) -> None:
    vendor = AzureVendor(azure_container.options(), "container", now_ms)
    location = f"{azure_container.uri}/lake/a/x"
    with closing(
        open_with(azure_container, vendor.vend("me", [make_folder(azure_container.uri, is_writable=True)]))
    ) as s:
        s.write(location, b"1")
    with closing(open_with(azure_container, vendor.vend("me", [make_folder(azure_container.uri)]))) as reader:
        assert reader.read(location) == b"1"
        assert [file.location for file in reader.files_below(f"{azure_container.uri}/lake")] == [location]
        for act in (lambda: reader.overwrite(location, b"2"), lambda: reader.write(f"{location}2", b"2")):
            with pytest.raises(StoreDeniedError):
                act()


def test_signature_reaches_no_other_container_and_ends(azure_container: AzureContainer) -> None:
    azure_container.azurite.create_container(f"{azure_container.name}-other")
    other = azure_container.uri.replace("@", "-other@")
    folder = make_folder(azure_container.uri, is_writable=True)
    vendor = AzureVendor(azure_container.options(), "container", now_ms)
    with closing(open_with(azure_container, vendor.vend("me", [folder]))) as store, pytest.raises(StoreDeniedError):
        store.write(f"{other}/lake/a/x", b"1")
    past = AzureVendor(azure_container.options(), "container", Clock(-2 * 3600 * 1000))
    with closing(open_with(azure_container, past.vend("me", [folder]))) as store, pytest.raises(StoreDeniedError):
        store.write(f"{azure_container.uri}/lake/a/x", b"1")


def test_who_is_bound_by_grants_gets_no_signature_for_a_container(azure_container: AzureContainer) -> None:
    folder = make_folder(azure_container.uri)
    vended = AzureVendor(azure_container.options(), "container", now_ms).vend("me", [folder], 900)
    assert (vended.vended, vended.uncovered) == ((), (folder,))


def test_signature_for_a_directory_names_it_and_its_depth(azure_container: AzureContainer) -> None:
    folder = make_folder(azure_container.uri, is_writable=True)
    times = ("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z")
    text = sign_folder(folder, "directory", times, azure_container.azurite.key, {})
    said = {name: values[0] for name, values in parse_qs(text).items()}
    assert (said["sr"], said["sdd"], said["sp"], said["se"]) == ("d", "2", "racwdl", times[1])
    with pytest.raises(InvalidSettingsError, match="base64"):
        AzureStore(azure_container.uri, replace(azure_container.options(), account_key="no base 64"), now_ms)


def test_token_is_bounded_to_the_folders_of_the_table(gcs_bucket: GcsBucket) -> None:
    vendor = GcsVendor(gcs_bucket.options(), now_ms)
    read, written = StoreFolder(f"{gcs_bucket.uri}/lake/b/"), make_folder(gcs_bucket.uri, is_writable=True)
    (vended,) = vendor.vend("me", [written, read]).vended
    token = dict(vended.keys.list_properties())["gcs.oauth2.token"]
    (boundary,) = gcs_bucket.tokens.boundaries.values()
    assert token in gcs_bucket.tokens.boundaries
    assert boundary == {"accessBoundary": {"accessBoundaryRules": [
        {
            "availableResource": f"//storage.googleapis.com/projects/_/buckets/{gcs_bucket.name}",
            "availablePermissions": [f"inRole:roles/storage.{role}"],
            "availabilityCondition": {
                "title": "folder",
                "expression": (
                    f"resource.name.startsWith('projects/_/buckets/{gcs_bucket.name}/objects/lake/{name}/') || "
                    f"api.getAttribute('storage.googleapis.com/objectListPrefix', '').startsWith('lake/{name}/')"
                ),
            },
        }
        for name, role in (("a", "objectUser"), ("b", "objectViewer"))
    ]}}  # fmt: skip
    assert vendor.vend("me", [written, read]).vended == (vended,)
    assert token not in vended.keys.name


def test_token_of_a_bound_principal_is_made_of_a_short_one(gcs_bucket: GcsBucket) -> None:
    folder = make_folder(gcs_bucket.uri)
    GcsVendor(gcs_bucket.options(), now_ms).vend("me", [folder], 900)
    assert gcs_bucket.tokens.given == ["server-0", "short-900s-1", "downscoped-2"]


def test_folder_that_a_boundary_can_not_name_is_none() -> None:
    assert parse_folder("gs://bucket/it's") is None
    assert parse_folder("gs://bucket/its") is not None


def test_each_store_has_a_vendor_of_its_own(gcs_bucket: GcsBucket, azure_container: AzureContainer) -> None:
    vendor = SchemeVendor({"gs": GcsVendor(gcs_bucket.options(), now_ms)})
    ours, other = make_folder(gcs_bucket.uri), make_folder(azure_container.uri)
    vended = vendor.vend("me", [other, ours])
    assert [keys.folders for keys in vended.vended] == [(ours,)]
    assert vended.uncovered == (other,)


def test_key_that_google_refuses_is_denied_without_the_key_in_the_error(gcs_bucket: GcsBucket) -> None:
    key = ServiceAccountKey.parse(make_key_file())
    options = replace(gcs_bucket.options(), sts_endpoint=f"{gcs_bucket.tokens.endpoint}/elsewhere", key=key)
    for act in list_uses(options, gcs_bucket):
        with pytest.raises((StoreDeniedError, UnavailableError), match=r"127\.0\.0\.1") as caught:
            act()
        assert key.private_key not in str(caught.value)
    assert key.private_key not in repr(options)
    with pytest.raises(InvalidSettingsError, match="client_email and private_key"):
        ServiceAccountKey.parse("{}")


def list_uses(options: GcsOptions, bucket: GcsBucket) -> list[Callable[[], object]]:
    store = GcsStore(bucket.uri, options, now_ms)
    vendor = GcsVendor(options, now_ms)
    return [store.check, lambda: vendor.vend("me", [make_folder(bucket.uri)])]


def test_token_of_the_server_is_renewed_before_its_end(gcs_bucket: GcsBucket) -> None:
    clock = Clock()
    with closing(GcsStore(gcs_bucket.uri, gcs_bucket.options(), clock)) as store:
        for ahead_ms, tokens in ((0, 1), (40 * 60_000, 1), (55 * 60_000, 2)):
            clock.ahead_ms = ahead_ms
            store.check()
            assert len(gcs_bucket.tokens.given) == tokens
